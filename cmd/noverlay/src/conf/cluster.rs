//! The same objects from the cluster, and what FRR on a node runs.
//! In: a kubeconfig. Out: decoded objects, the running configuration that the node reports.
//! Invariant: it only reads; a Secret that may not be read is stood in for, since passwords are never compared.
//! Not here: files (`documents`).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::egress_ip::EgressIP;
use api::frr_configuration::FRRConfiguration;
use api::frr_state::FRRNodeState;
use api::nad::NetworkAttachmentDefinition;
use api::operator_network::Network;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node as KubeNode, Secret};
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use kube_edge::client::found;
use model::names::ObjectKey;
use serde::de::DeserializeOwned;

use super::Objects;
use super::documents::Documents;

/// Waits for one answer of the API server, with the deadline of every call.
async fn answer<T>(
    what: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(kube_edge::client::CALL_DEADLINE, call).await;
    let answer = answer.with_context(|| format!("cannot read {what}: no answer"))?;
    answer.with_context(|| format!("cannot read {what}"))
}

fn wait<T>(
    kubeconfig: Option<&Path>,
    read: impl AsyncFnOnce(kube::Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async { read(kube_edge::connect(kubeconfig).await?).await })
}

/// The FRRConfigurations of the namespace, the node, and the Secrets that the objects refer to.
pub(super) fn documents(kubeconfig: Option<&Path>, asked: &Objects) -> anyhow::Result<Documents> {
    wait(kubeconfig, async |client| {
        let mut out = Documents::default();
        let namespace = asked.namespace.as_str();
        let objects = kube_edge::untyped::<FRRConfiguration>(client.clone(), Some(namespace));
        let list = answer("frrconfigurations", objects.list(&ListParams::default())).await?;
        for object in list.items {
            let key = ObjectKey::new(namespace, object.name_any());
            out.add(key, api::read_source(&object));
        }
        let nodes: Api<KubeNode> = Api::all(client.clone());
        if let Some(node) = get(&nodes, "node", &asked.node).await? {
            let node = api::decode_node(&node);
            out.nodes.insert(node.name.clone(), node);
        }
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        for name in secret_names(&out) {
            let password = match get(&secrets, "secret", &name).await {
                Ok(None) => continue,
                Ok(Some(secret)) => api::decode_secret(&secret),
                // Most people may not read Secrets.
                Err(error) if is_forbidden(&error) => Ok("not-read".to_owned()),
                Err(error) => return Err(error),
            };
            out.secrets
                .insert(ObjectKey::new(namespace, name), password);
        }
        Ok(out)
    })
}

/// Everything that the cluster-manager plans from; with `openshift`, its operator's object and what is kept of it too.
pub(crate) fn world(
    kubeconfig: Option<&Path>,
    openshift: bool,
) -> anyhow::Result<offline::Objects> {
    wait(kubeconfig, async |client| {
        let mut out = offline::Objects::default();
        list::<KubeNode>(&client, &mut out).await?;
        list::<Namespace>(&client, &mut out).await?;
        list::<FRRConfiguration>(&client, &mut out).await?;
        list::<RouteAdvertisements>(&client, &mut out).await?;
        list::<ClusterUserDefinedNetwork>(&client, &mut out).await?;
        list::<EgressIP>(&client, &mut out).await?;
        list::<NetworkAttachmentDefinition>(&client, &mut out).await?;
        if openshift {
            one::<Network>(&client, None, "cluster", &mut out).await?;
            let namespace = Some("noverlay-system");
            one::<ConfigMap>(&client, namespace, "noverlay-operator", &mut out).await?;
        }
        Ok(out)
    })
}

/// All objects of a kind, without who wrote which field.
async fn list<K>(client: &kube::Client, out: &mut offline::Objects) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()>,
{
    let api = kube_edge::untyped::<K>(client.clone(), None);
    let list = answer(&K::plural(&()), api.list(&ListParams::default())).await?;
    (list.items.into_iter()).try_for_each(|object| put::<K>(object, out))
}

/// One object, where it and its kind are there.
async fn one<K>(
    client: &kube::Client,
    namespace: Option<&str>,
    name: &str,
    out: &mut offline::Objects,
) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()>,
{
    let api = kube_edge::untyped::<K>(client.clone(), namespace);
    let what = format!("{} {name}", K::kind(&()));
    match answer(&what, found(&api, name)).await? {
        Some(object) => put::<K>(object, out),
        None => Ok(()),
    }
}

/// Puts an object without who wrote which field.
fn put<K>(mut object: DynamicObject, out: &mut offline::Objects) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()>,
{
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&object)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("kind".to_owned(), K::kind(&()).as_ref().into());
        map.insert("apiVersion".to_owned(), K::api_version(&()).as_ref().into());
    }
    out.put(value).map_err(anyhow::Error::msg)
}

/// `FRRNodeState.status.runningConfig` of the node.
pub(super) fn running(kubeconfig: Option<&Path>, node: &str) -> anyhow::Result<String> {
    wait(kubeconfig, async |client| {
        let state: Option<FRRNodeState> = get(&Api::all(client), "frrnodestate", node).await?;
        let state = state.with_context(|| {
            format!("there is no FRRNodeState {node}: nobody reports what FRR on the node runs; name a file with --against")
        })?;
        let running = state.status.and_then(|status| status.running_config);
        running
            .filter(|text| !text.trim().is_empty())
            .with_context(|| format!("FRRNodeState {node} has no status.runningConfig yet"))
    })
}

async fn get<K>(api: &Api<K>, kind: &str, name: &str) -> anyhow::Result<Option<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    answer(&format!("{kind} {name}"), api.get_opt(name)).await
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<kube::Error>();
    matches!(cause, Some(kube::Error::Api(status)) if status.code == 403)
}

/// Names of Secrets that objects refer to.
pub(crate) fn secret_names(documents: &Documents) -> BTreeSet<String> {
    let objects = documents.sources.values();
    objects
        .filter_map(|source| source.object.as_ref().ok())
        .flat_map(|object| object.routers.iter())
        .flat_map(|router| router.neighbors.iter())
        .filter_map(|neighbor| neighbor.session.password_secret.clone())
        .collect()
}
