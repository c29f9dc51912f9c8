//! What the frr-agent knows of the API server: FRRConfigurations of one namespace, its own Node, and its own reports.
//! In: watches. Out: decoded objects. Invariant: an object that cannot be decoded still says which nodes it selects.
//! Not here: Secrets (`secrets`).

use api::frr_configuration::FRRConfiguration;
use api::frr_state::{BGPSessionState, BGPSessionStateStatus, FRRNodeState, LABEL_NODE};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube_edge::cache::watch_labelled;
use kube_edge::{Cache, untyped, watch};
use model::ObjectKey;
use model::frr::Source;
use model::node::Node;
use reconcile::WorkQueue;
use serde_json::Value;

use crate::beside::is_of_frr_k8s;
use crate::key::{Configuration, Report};
use crate::report::{MANAGED_BY, Said};

/// All caches.
#[derive(Debug, Clone)]
pub(crate) struct Caches {
    pub(crate) sources: Cache<Source>,
    pub(crate) node: Cache<Node>,
}

impl Caches {
    pub(crate) fn start(
        client: &kube::Client,
        namespace: &str,
        node: &str,
        queue: &WorkQueue<Configuration>,
    ) -> Self {
        let enqueue = || {
            let queue = queue.clone();
            move |_: Option<&ObjectKey>| queue.enqueue(Configuration)
        };
        let nodes: kube::Api<KubeNode> = kube::Api::all(client.clone());
        Self {
            sources: watch(
                untyped::<FRRConfiguration>(client.clone(), Some(namespace)),
                None,
                decode,
                enqueue(),
            ),
            node: watch(
                nodes,
                Some(&format!("metadata.name={node}")),
                api::decode_node,
                enqueue(),
            ),
        }
    }

    pub(crate) fn ready(&self) -> bool {
        self.sources.ready() && self.node.ready()
    }
}

fn decode(object: &DynamicObject) -> Source {
    let key = ObjectKey::new(
        object.metadata.namespace.clone().unwrap_or_default(),
        object.metadata.name.clone().unwrap_or_default(),
    );
    api::decode_source(key, api::read_source(object))
}

/// FRRNodeState as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// It bears our label.
    pub(crate) ours: bool,
    /// frr-k8s has written it.
    pub(crate) of_frr_k8s: bool,
    pub(crate) report: Said,
}

/// Watches the node's FRRNodeState.
pub(crate) fn watch_state(
    client: &kube::Client,
    node: &str,
    queue: WorkQueue<Report>,
) -> Cache<State> {
    watch(
        untyped::<FRRNodeState>(client.clone(), None),
        Some(&format!("metadata.name={node}")),
        decode_state,
        move |_| queue.enqueue(Report),
    )
}

fn decode_state(object: &DynamicObject) -> State {
    let text = |field: &str| {
        let value = object.data.pointer(&format!("/status/{field}"));
        value.and_then(Value::as_str).map(str::to_owned)
    };
    State {
        ours: is_ours(&object.metadata),
        of_frr_k8s: is_of_frr_k8s(&object.metadata),
        report: Said {
            conversion: text("lastConversionResult").unwrap_or_default(),
            reload: text("lastReloadResult"),
            running: text("runningConfig"),
        },
    }
}

fn is_ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|l| l.get(MANAGED_BY.0)).map(String::as_str) == Some(MANAGED_BY.1)
}

/// Watches the node's BGPSessionStates that are ours, and no others: a cluster may have a million of them.
pub(crate) fn watch_sessions(
    client: &kube::Client,
    namespace: &str,
    node: &str,
) -> Cache<BGPSessionStateStatus> {
    let labels = format!("{LABEL_NODE}={node},{}={}", MANAGED_BY.0, MANAGED_BY.1);
    // Whoever wants to know looks each second.
    let api = untyped::<BGPSessionState>(client.clone(), Some(namespace));
    watch_labelled(api, &labels, decode_session, |_| {})
}

fn decode_session(object: &DynamicObject) -> BGPSessionStateStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}
