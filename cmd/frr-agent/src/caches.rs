//! What the frr-agent knows of the API server: FRRConfigurations of one namespace, and its own Node.
//! In: watches. Out: lifted objects. Invariant: an object that cannot be lifted still says which nodes it selects.
//! Not here: Secrets (`secrets`).

use api::frr_configuration::FRRConfiguration;
use api::frr_state::BGPSessionState;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::core::DynamicObject;
use kube_edge::{Cache, untyped, watch};
use model::ObjectKey;
use model::frr::Source;
use model::node::Node;
use reconcile::Poker;

use crate::key::Configuration;

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
        poker: &Poker<Configuration>,
    ) -> Self {
        let poke = || {
            let poker = poker.clone();
            move |_: Option<&ObjectKey>| poker.poke(Configuration)
        };
        let nodes: kube::Api<KubeNode> = kube::Api::all(client.clone());
        Self {
            sources: watch(
                untyped::<FRRConfiguration>(client.clone(), Some(namespace)),
                None,
                lift,
                poke(),
            ),
            node: watch(
                nodes,
                Some(&format!("metadata.name={node}")),
                api::lift_node,
                poke(),
            ),
        }
    }

    pub(crate) fn ready(&self) -> bool {
        self.sources.ready() && self.node.ready()
    }
}

fn lift(object: &DynamicObject) -> Source {
    let key = ObjectKey::new(
        object.metadata.namespace.clone().unwrap_or_default(),
        object.metadata.name.clone().unwrap_or_default(),
    );
    let typed = object.clone().try_parse::<FRRConfiguration>();
    api::lift_source(key, typed.map_err(|error| error.to_string()))
}

/// The session states that stand in the API for a node, by name, as JSON of their status.
pub(crate) async fn standing_sessions(
    client: &kube::Client,
    namespace: &str,
    node: &str,
) -> Result<Vec<BGPSessionState>, kube::Error> {
    let api: kube::Api<BGPSessionState> = kube::Api::namespaced(client.clone(), namespace);
    let params =
        kube::api::ListParams::default().labels(&format!("{}={node}", api::frr_state::LABEL_NODE));
    Ok(api.list(&params).await?.items)
}
