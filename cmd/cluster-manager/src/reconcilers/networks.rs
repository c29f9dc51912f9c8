//! Node ids and node subnets: plan from what the API server holds now, write to that and nothing later.
//! In: the world, and a listing of all Nodes' metadata. Out: annotations, each with the resource version that was read.
//! Invariant: no allocation is made from a cache: what a watch has not reported yet may have been given away already.
//! Not here: which id and subnet a node gets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::ListParams;
use kube_edge::client::CALL_DEADLINE;
use model::node::{Node, annotation};
use model::{NodeName, ObjectKey, Problem};
use plan_cluster::{World, networks};
use reconcile::Action;
use serde_json::{Value, json};

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::key::Key;

/// uid and resource version by node.
type Versions = BTreeMap<NodeName, (String, String)>;

impl ClusterReconciler {
    pub(super) async fn networks(&mut self, world: &World) -> Action {
        let mut plan = planned(|| networks::plan(world));
        let mut jobs = Vec::new();
        if !plan.allocations.is_empty() {
            let (now, versions) = match self.listed(world).await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(error, "cannot list nodes to allocate ids and subnets");
                    return Action::Requeue;
                }
            };
            plan = planned(|| networks::plan(&now));
            for (name, allocation) in &plan.allocations {
                let (Some(node), Some((uid, version))) = (now.nodes.get(name), versions.get(name))
                else {
                    continue;
                };
                let what = What::Apply {
                    uid: Some(uid.clone()),
                    version: Some(version.clone()),
                    body: json!({"metadata": {"annotations": annotations(node, allocation)}}),
                };
                jobs.push(Job {
                    key: ObjectKey::new("", name.as_str()),
                    node: Some(name.clone()),
                    what,
                });
            }
        }
        let done = self.write_all::<KubeNode>(&Key::Networks, jobs).await;
        let mut problems = plan.problems;
        problems.extend(
            self.refusals
                .of(&Key::Networks)
                .into_iter()
                .filter_map(|r| {
                    let node = r.node?;
                    let text = format!(
                        "node {node}: cannot {} its annotations: {}",
                        r.verb, r.words
                    );
                    Some(Problem::new(
                        format!("Node/{node}"),
                        "AllocationFailed",
                        text,
                    ))
                }),
        );
        self.report_on_nodes("networks", problems);
        done.action()
    }

    /// The world with the annotations that Nodes have at this moment.
    async fn listed(&self, world: &World) -> Result<(World, Versions), String> {
        let api: kube::Api<KubeNode> = kube::Api::all(self.clients.client.clone());
        let params = ListParams::default();
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list_metadata(&params)).await;
        let list = match listed {
            Ok(Ok(list)) => list,
            Ok(Err(error)) => return Err(telemetry::Chain(&error).to_string()),
            Err(_) => return Err(format!("no answer within {CALL_DEADLINE:?}")),
        };
        let mut now = world.clone();
        let mut versions = Versions::new();
        now.nodes.clear();
        for item in list.items {
            let metadata = item.metadata;
            let uid = metadata.uid.clone().unwrap_or_default();
            let version = metadata.resource_version.clone().unwrap_or_default();
            let mut node = api::decode_node(&KubeNode {
                metadata,
                ..KubeNode::default()
            });
            // Metadata has no status.
            if let Some(known) = world.nodes.get(&node.name) {
                node.internal_ips.clone_from(&known.internal_ips);
                node.bad_addresses.clone_from(&known.bad_addresses);
            }
            versions.insert(node.name.clone(), (uid, version));
            now.nodes.insert(node.name.clone(), node);
        }
        Ok((now, versions))
    }
}

/// Both keys each time: what is left out of an apply is taken away from its manager.
fn annotations(node: &Node, allocation: &networks::Allocation) -> Value {
    let mut annotations = serde_json::Map::new();
    if let Some(id) = allocation.node_id.or(node.node_id.known().copied()) {
        annotations.insert(annotation::NODE_ID.to_owned(), id.to_string().into());
    }
    if let Some(subnets) = allocation.subnets.as_ref().or(node.subnets.known()) {
        let map: BTreeMap<&str, Vec<String>> = subnets
            .iter()
            .map(|(net, list)| (net.as_str(), list.iter().map(ToString::to_string).collect()))
            .collect();
        annotations.insert(
            annotation::NODE_SUBNETS.to_owned(),
            json!(map).to_string().into(),
        );
    }
    annotations.into()
}
