//! ClusterUserDefinedNetworks: their NetworkAttachmentDefinitions, finalizers, labels and conditions.
//! In: the world. Out: objects, conditions, events. Invariant: an object that pods use is not let go, and a network without
//! its finalizer has no object left; one network, namespace or refused write costs only itself.
//! Not here: what is wanted (`plan_cluster::attachments`, `plan_cluster::transport`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::nad::NetworkAttachmentDefinition;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube_edge::WriteError;
use kube_edge::client::CALL_DEADLINE;
use model::ObjectKey;
use model::intent::{Condition, Event};
use model::user_network::Attachment;
use plan_cluster::attachments::{self, FINALIZER, NAME_LABEL, SYNC_ERROR, Wanted};
use plan_cluster::{World, fabric, transport};
use reconcile::Action;
use serde_json::{Value, json};
use telemetry::Chain;

use super::advertisement::conditions;
use super::attachment::same_json;
use super::writes::{Done, Job, What};
use super::{ClusterReconciler, planned};
use crate::caches::UserNetwork;
use crate::key::Key;

/// Annotation of a pod's networks, a JSON object by `namespace/name` of their NetworkAttachmentDefinitions (OVN-Kubernetes).
const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";
/// Most pods that a condition names.
const NAMED: usize = 5;

impl ClusterReconciler {
    pub(super) async fn user_networks(&mut self, world: &Arc<World>) -> Action {
        let planner = &mut self.planner;
        let (plan, accepted) = planned(|| {
            let plans = planner.plan_all(world);
            let advertised = attachments::advertised(world, plans);
            let readable = world
                .cudns
                .iter()
                .filter_map(|(name, c)| Some((name, c.as_ref().ok()?)));
            let accepted: BTreeMap<String, Condition> = readable
                .filter_map(|(name, cudn)| {
                    let condition = transport::condition(world, cudn, plans)?;
                    Some((name.clone(), condition))
                })
                .collect();
            (attachments::plan(world, &advertised), accepted)
        });
        let subject = Key::UserNetworks;
        // Before the first object, and after the last.
        let jobs = self.protections(world, &plan.finalizers);
        let done = self
            .write_all::<ClusterUserDefinedNetwork>(&subject, jobs)
            .await;
        let jobs = self.attachment_jobs(&plan.desired);
        let done = done.and(
            self.write_all::<NetworkAttachmentDefinition>(&subject, jobs)
                .await,
        );
        let (released, in_use) = self.let_go(&plan.surplus).await;
        let done = done.and(released);
        let mut action = done.action();
        for (name, condition) in plan.created {
            let mut wanted = vec![self.with_refusals(&name, condition, &in_use)];
            wanted.extend(accepted.get(&name).cloned());
            if let Err(error) = self.network_status(&name, &wanted).await {
                if !error.is_not_leading() {
                    tracing::warn!(name, error = %Chain(&error), "cannot write the status");
                }
                action = Action::Requeue;
            }
        }
        if in_use.is_empty() {
            action
        } else {
            Action::Requeue
        }
    }

    /// Finalizers, and the label of managed networks; both are one apply, since what is left out of it is taken away.
    fn protections(&self, world: &World, wanted: &BTreeMap<String, bool>) -> Vec<Job> {
        let labelled = fabric::plan(world).labelled;
        let mut jobs = Vec::new();
        for (name, protected) in wanted {
            let key = ObjectKey::new("", name);
            let Some(entry) = self.caches.cudns.get(&key) else {
                continue;
            };
            let Ok(cudn) = &entry.value.spec else {
                continue;
            };
            let label = labelled.contains(name);
            let has_label = cudn.labels.get(NAME_LABEL).map(String::as_str) == Some(name.as_str());
            if cudn.finalizers.contains(FINALIZER) == *protected && (has_label || !label) {
                continue;
            }
            let finalizers: Vec<&str> = protected.then_some(FINALIZER).into_iter().collect();
            let labels: BTreeMap<&str, &String> =
                label.then_some((NAME_LABEL, name)).into_iter().collect();
            jobs.push(Job {
                key,
                node: None,
                what: What::Apply {
                    uid: Some(entry.uid),
                    version: None,
                    body: json!({"metadata": {"finalizers": finalizers, "labels": labels}}),
                },
            });
        }
        jobs
    }

    fn attachment_jobs(&self, desired: &BTreeMap<ObjectKey, Wanted>) -> Vec<Job> {
        let job = |(key, wanted): (&ObjectKey, &Wanted)| {
            let (network, spec) = &wanted.network;
            let config = api::nad::config(network, spec, key);
            let existing = self.caches.attachments.get(key);
            let is_right = |e: &Attachment| wanted.describes(e) && same_json(&e.config, &config);
            if existing.as_ref().is_some_and(|e| is_right(&e.value)) {
                return None;
            }
            let body = json!({
                "metadata": {
                    "labels": wanted.labels, "annotations": wanted.annotations, "finalizers": [FINALIZER],
                    "ownerReferences": [api::nad::owner(&wanted.owner.0, &wanted.owner.1)],
                },
                "spec": {"config": config},
            });
            Some(Job {
                key: key.clone(),
                node: None,
                what: What::Apply {
                    uid: existing.map(|e| e.uid),
                    version: None,
                    body,
                },
            })
        };
        desired.iter().filter_map(job).collect()
    }

    /// Lets objects go that no pod uses; the others by network, with the pods.
    async fn let_go(
        &mut self,
        surplus: &BTreeMap<ObjectKey, Option<String>>,
    ) -> (Done, BTreeMap<String, Vec<String>>) {
        let mut in_use: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut releases, mut deletes) = (Vec::new(), Vec::new());
        for (key, network) in surplus {
            let Some(entry) = self.caches.attachments.get(key) else {
                continue;
            };
            let users = match self.users(key, &entry.value).await {
                Ok(users) => users,
                Err(why) => vec![format!(
                    "(pods of namespace {} cannot be listed: {why})",
                    key.namespace
                )],
            };
            if !users.is_empty() {
                let network = network.clone().unwrap_or_default();
                let text = format!(
                    "failed to delete NetworkAttachmentDefinition [{key}]: network in use by the following pods: [{}]",
                    users.join(" ")
                );
                tracing::info!(%key, "{text}");
                in_use.entry(network).or_default().push(text);
                continue;
            }
            let job = |what| Job {
                key: key.clone(),
                node: None,
                what,
            };
            if entry.value.finalizers.contains(FINALIZER) {
                releases.push(job(What::Apply {
                    uid: Some(entry.uid.clone()),
                    version: None,
                    body: released(key, &entry.value),
                }));
            }
            if !entry.value.deleting {
                deletes.push(job(What::Delete { uid: entry.uid }));
            }
        }
        // Deleted first: between the two nobody else finds an object that nothing protects.
        let done = self
            .write_more::<NetworkAttachmentDefinition>(&Key::UserNetworks, deletes)
            .await;
        let released = self
            .write_more::<NetworkAttachmentDefinition>(&Key::UserNetworks, releases)
            .await;
        (done.and(released), in_use)
    }

    /// Names of the pods that use an object; asked of the API server, since nobody watches pods here.
    async fn users(&self, key: &ObjectKey, attachment: &Attachment) -> Result<Vec<String>, String> {
        let api: kube::Api<Pod> =
            kube::Api::namespaced(self.clients.client.clone(), &key.namespace);
        let params = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list(&params)).await;
        let list = match listed {
            Ok(Ok(list)) => list,
            Ok(Err(error)) => return Err(Chain(&error).to_string()),
            Err(_) => return Err(format!("no answer within {CALL_DEADLINE:?}")),
        };
        let primary = attachment
            .network
            .as_ref()
            .is_some_and(|(_, primary)| *primary);
        let uses = |pod: &Pod| uses(pod, key, primary);
        let names = list
            .items
            .into_iter()
            .filter(uses)
            .filter_map(|pod| pod.metadata.name);
        Ok(names.take(NAMED).collect())
    }

    /// `NetworkCreated` with what the API server refused and which pods hold objects.
    fn with_refusals(
        &self,
        name: &str,
        mut condition: Condition,
        in_use: &BTreeMap<String, Vec<String>>,
    ) -> Condition {
        let refused = self.refusals.of(&Key::UserNetworks).into_iter();
        let of_network = refused.filter(|r| {
            r.object.ends_with(&format!("/{name}")) || r.object.ends_with(&format!(" {name}"))
        });
        let mut wrong: Vec<String> = of_network
            .map(|r| format!("cannot {} {}: {}", r.verb, r.object, r.words))
            .collect();
        wrong.extend(in_use.get(name).into_iter().flatten().cloned());
        if !wrong.is_empty() {
            if !condition.status && condition.reason == SYNC_ERROR {
                wrong.push(condition.message);
            }
            condition.status = false;
            SYNC_ERROR.clone_into(&mut condition.reason);
            condition.message = wrong.join("; ");
        }
        condition
    }

    /// Writes the conditions where they differ, and an event for each that is not True and says something new.
    async fn network_status(&self, name: &str, wanted: &[Condition]) -> Result<(), WriteError> {
        let key = ObjectKey::new("", name);
        let Some(entry) = self.caches.cudns.get(&key) else {
            return Ok(());
        };
        let UserNetwork {
            spec,
            conditions: existing,
        } = &entry.value;
        let generation = spec.as_ref().map_or(0, |cudn| cudn.generation);
        for condition in wanted {
            let metric = &self.clients.metrics.network_condition;
            metric
                .with_label_values(&[name, condition.kind])
                .set(i64::from(condition.status));
        }
        let says = |w: &Condition| {
            existing.iter().any(|s| {
                s.kind == w.kind
                    && s.status == w.status
                    && s.reason == w.reason
                    && s.message == w.message
            })
        };
        let is_current = |w: &Condition| {
            existing
                .iter()
                .any(|s| s.kind == w.kind && s.generation == generation)
        };
        if wanted.iter().all(|w| says(w) && is_current(w)) {
            return Ok(());
        }
        let status = json!({"conditions": conditions(wanted, existing, generation)});
        let writer = &self.clients.writer;
        writer
            .apply_status::<ClusterUserDefinedNetwork>(&key, status)
            .await?;
        for condition in wanted.iter().filter(|c| !c.status && !says(c)) {
            let event = Event {
                warning: true,
                reason: event_reason(&condition.reason),
                message: condition.message.clone(),
            };
            self.clients
                .events
                .publish::<ClusterUserDefinedNetwork>(&key, &entry.uid, &event);
        }
        Ok(())
    }
}

/// Reasons of events are from a closed set.
fn event_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 10] = [
        SYNC_ERROR,
        "SubnetsInUse",
        "MTUTooLarge",
        "NetworkAttachmentDefinitionDeleted",
        "NetworkNotSupported",
        "RouteAdvertisementsNotEnabled",
        "ManagedTopologyMissing",
        "NoOverlayRouteAdvertisementsIsMissing",
        "NoOverlayRouteAdvertisementsNotAccepted",
        "NoOverlayRouteAdvertisementsLeavesOut",
    ];
    KNOWN
        .into_iter()
        .find(|known| *known == reason)
        .unwrap_or("NetworkNotReady")
}

/// The object as it stands, without its finalizer: whatever an apply leaves out it takes away.
fn released(key: &ObjectKey, attachment: &Attachment) -> Value {
    let owners: BTreeSet<&String> = attachment.owner.iter().collect();
    let owners: Vec<Value> = owners
        .into_iter()
        .map(|uid| api::nad::owner(&key.name, uid))
        .collect();
    json!({
        "metadata": {
            "labels": attachment.labels, "annotations": attachment.annotations, "ownerReferences": owners,
        },
        "spec": {"config": attachment.config},
    })
}

/// Whether a pod uses a network: as its own annotation says; where it has none, a primary network serves every pod of the
/// namespace that is not the host's own.
fn uses(pod: &Pod, key: &ObjectKey, primary: bool) -> bool {
    let annotation = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|map| map.get(POD_NETWORKS));
    let networks = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
    match networks {
        Some(networks) => networks.get(key.to_string()).is_some(),
        None => primary && pod.spec.as_ref().and_then(|spec| spec.host_network) != Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_uses_what_its_annotation_names_and_without_one_the_primary_network() {
        let pod = |annotation: Option<&str>, host: bool| -> Pod {
            let annotations = annotation.map(|text| json!({POD_NETWORKS: text}));
            let object = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [], "hostNetwork": host}});
            serde_json::from_value(object).unwrap()
        };
        let key = ObjectKey::new("shop", "amber");
        let named = r#"{"default":{},"shop/amber":{"role":"primary"}}"#;
        for (pod, primary, wanted) in [
            (pod(Some(named), false), true, true),
            (pod(Some(named), false), false, true),
            (pod(Some(r#"{"default":{}}"#), false), true, false),
            (pod(None, false), true, true),
            (pod(None, false), false, false),
            (pod(None, true), true, false),
            (pod(Some("no JSON"), false), true, true),
        ] {
            assert_eq!(uses(&pod, &key, primary), wanted, "{pod:?}");
        }
    }
}
