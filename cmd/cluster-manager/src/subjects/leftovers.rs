//! Reports of nodes that are gone, which only a cluster with a garbage collector removes by itself.
//! In: the set of nodes. Out: deletes, each with the uid that was listed. Invariant: only objects of ours, and only of nodes that do not exist.
//! Not here: what the reports say.

use std::collections::BTreeSet;

use api::frr_state::{BGPSessionState, FRRNodeState, LABEL_NODE};
use api::node_routes::NodeRoutes;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube_edge::client::CALL_DEADLINE;
use kube_edge::{WriteError, untyped};
use model::{NodeName, ObjectKey};
use plan_cluster::{MANAGED_BY, World};
use reconcile::Verdict;

use super::ClusterSubjects;

impl ClusterSubjects {
    /// Deletes reports of ours about nodes that are gone; looks only when the set of nodes changed.
    pub(super) async fn leftovers(&mut self, world: &World) -> Result<Verdict, WriteError> {
        let nodes: BTreeSet<NodeName> = world.nodes.keys().cloned().collect();
        if self.swept.as_ref() == Some(&nodes) {
            return Ok(Verdict::Settled);
        }
        let ours = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let by_name = |object: &DynamicObject| object.metadata.name.clone();
        let by_label =
            |object: &DynamicObject| object.metadata.labels.as_ref()?.get(LABEL_NODE).cloned();
        let whole = self.sweep::<NodeRoutes>(&nodes, "", by_name).await?
            & self.sweep::<FRRNodeState>(&nodes, &ours, by_name).await?
            & self
                .sweep::<BGPSessionState>(&nodes, &ours, by_label)
                .await?;
        if !whole {
            return Ok(Verdict::Retry);
        }
        self.swept = Some(nodes);
        Ok(Verdict::Settled)
    }

    /// Deletes objects of one kind whose node is gone; false where they could not be listed.
    async fn sweep<K>(
        &self,
        nodes: &BTreeSet<NodeName>,
        labels: &str,
        node_of: impl Fn(&DynamicObject) -> Option<String>,
    ) -> Result<bool, WriteError>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let api = untyped::<K>(self.doors.client.clone(), None);
        let params = ListParams::default().labels(labels);
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list(&params)).await;
        let Ok(Ok(list)) = listed else {
            tracing::warn!(kind = %K::kind(&()), "cannot list reports of nodes");
            return Ok(false);
        };
        for object in list.items {
            let gone = node_of(&object).is_some_and(|node| !nodes.contains(&NodeName::from(node)));
            let (Some(name), Some(uid), true) = (object.metadata.name, object.metadata.uid, gone)
            else {
                continue;
            };
            let key = ObjectKey::new(object.metadata.namespace.unwrap_or_default(), name);
            tracing::info!(kind = %K::kind(&()), %key, "deleting the report of a node that is gone");
            self.doors.writer.delete::<K>(&key, &uid).await?;
        }
        Ok(true)
    }
}
