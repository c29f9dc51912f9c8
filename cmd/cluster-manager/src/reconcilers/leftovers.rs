//! Reports of nodes that are gone, which only a cluster with a garbage collector removes by itself.
//! In: the set of nodes. Out: deletes, each with the uid that was listed. Invariant: only objects of ours, and only of nodes that do not exist.
//! Not here: what the reports say.

use std::collections::{BTreeMap, BTreeSet};

use api::frr_state::{BGPSessionState, FRRNodeState, LABEL_NODE};
use api::node_routes::NodeRoutes;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube_edge::client::CALL_DEADLINE;
use kube_edge::untyped;
use model::{NodeName, ObjectKey};
use plan_cluster::{MANAGED_BY, World};
use reconcile::Action;

use super::ClusterReconciler;
use super::writes::{Job, What};
use crate::key::Key;

impl ClusterReconciler {
    /// Deletes reports of ours about nodes that are gone; looks only when the set of nodes changed.
    pub(super) async fn leftovers(&mut self, world: &World) -> Action {
        let nodes: BTreeSet<NodeName> = world.nodes.keys().cloned().collect();
        if self.swept.as_ref() == Some(&nodes) {
            return Action::Done;
        }
        let ours = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let by_name = |object: &DynamicObject| object.metadata.name.clone();
        let by_label =
            |object: &DynamicObject| object.metadata.labels.as_ref()?.get(LABEL_NODE).cloned();
        let whole = self.sweep::<NodeRoutes>(&nodes, &ours, by_name).await
            & self.sweep::<FRRNodeState>(&nodes, &ours, by_name).await
            & self.sweep::<BGPSessionState>(&nodes, &ours, by_label).await;
        if !whole {
            return Action::Requeue;
        }
        self.swept = Some(nodes);
        Action::Done
    }

    /// Deletes objects of one kind whose node is gone; false where one could not be listed or deleted.
    async fn sweep<K>(
        &mut self,
        nodes: &BTreeSet<NodeName>,
        labels: &str,
        node_of: impl Fn(&DynamicObject) -> Option<String>,
    ) -> bool
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let api = untyped::<K>(self.clients.client.clone(), None);
        let params = ListParams::default().labels(labels);
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list(&params)).await;
        let list = match listed {
            Ok(Ok(list)) => list,
            // A kind that is not installed has no objects.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return true,
            _ => {
                tracing::warn!(kind = %K::kind(&()), "cannot list reports of nodes");
                return false;
            }
        };
        let mut jobs = Vec::new();
        let mut asked: BTreeMap<NodeName, bool> = BTreeMap::new();
        for object in list.items {
            let node = node_of(&object).map(NodeName::from);
            let gone = match node.as_ref().filter(|node| !nodes.contains(*node)) {
                None => false,
                Some(node) => match asked.get(node) {
                    Some(gone) => *gone,
                    None => {
                        let Some(gone) = self.is_gone(node).await else {
                            return false;
                        };
                        asked.insert(node.clone(), gone);
                        gone
                    }
                },
            };
            if let (Some(name), Some(uid), true) = (object.metadata.name, object.metadata.uid, gone)
            {
                jobs.push(Job {
                    key: ObjectKey::new(object.metadata.namespace.unwrap_or_default(), name),
                    node,
                    what: What::Delete { uid },
                });
            }
        }
        let done = self.write_all::<K>(&Key::Leftovers, jobs).await;
        done.action() == Action::Done
    }

    /// Whether the API server has no such Node: the watch may be behind, and not know one that has just joined. `None` where
    /// it does not answer.
    async fn is_gone(&self, node: &NodeName) -> Option<bool> {
        let api: Api<Node> = Api::all(self.clients.client.clone());
        let asked = tokio::time::timeout(CALL_DEADLINE, api.get_metadata_opt(node.as_str())).await;
        match asked {
            Ok(Ok(found)) => Some(found.is_none()),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(%node, "cannot ask whether the Node is gone");
                None
            }
        }
    }
}
