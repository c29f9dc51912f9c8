//! Node ids, node subnets and roles in the fabric: plan from what the API server holds now, write to that and nothing later.
//! In: the world, and a listing of all Nodes' metadata. Out: annotations and a label, each with the resource version that was
//! read.
//! Invariant: no allocation is made from a cache: what a watch has not reported yet may have been given away already.
//! Not here: which id and subnet a node gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::ListParams;
use kube_edge::client::CALL_DEADLINE;
use model::node::{Node, annotation};
use model::{NodeName, ObjectKey, Problem};
use plan_cluster::fabric::{
    self,
    roles::{ROLE_LABEL, Role},
};
use plan_cluster::refused::Refusal;
use plan_cluster::{World, advertise, networks};
use reconcile::Action;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::key::Key;

mod written;

use written::Wish;
pub(super) use written::Written;

/// Roles in the fabric by node.
type Roles = BTreeMap<NodeName, Role>;
/// uid and resource version by node.
type Versions = BTreeMap<NodeName, (String, String)>;

/// What is to be written to Nodes.
#[derive(Default)]
struct Writes {
    jobs: Vec<Job>,
    /// By node that is written to.
    wishes: BTreeMap<NodeName, Wish>,
    /// Some were written a moment ago, and are not there.
    waits: bool,
}

impl ClusterReconciler {
    pub(super) async fn networks(&mut self, world: &World, complete: &Arc<World>) -> Action {
        // Beside OVN-Kubernetes only roles in the fabric are ours to give.
        let observes = self.observes();
        let allocate = |world: &World| {
            if observes {
                networks::Plan {
                    usage: networks::plan(world).usage,
                    ..networks::Plan::default()
                }
            } else {
                networks::plan(world)
            }
        };
        let mut plan = planned(|| allocate(world));
        let roles = self.roles(&plan, complete);
        let labelled: BTreeSet<&NodeName> = world
            .nodes
            .values()
            .filter(|node| role_label(node) != roles.get(&node.name).copied().map(Role::word))
            .map(|node| &node.name)
            .collect();
        self.written.retain(world);
        let wanted: BTreeSet<&NodeName> = plan.allocations.keys().chain(labelled.clone()).collect();
        let mut writes = Writes {
            waits: !wanted.is_empty(),
            ..Writes::default()
        };
        if wanted.iter().any(|name| !self.waits(name, &plan, &roles)) {
            let (now, versions) = match self.listed(world).await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(error, "cannot list nodes to allocate ids and subnets");
                    return Action::Requeue;
                }
            };
            plan = planned(|| allocate(&now));
            let wanted = plan.allocations.keys().chain(labelled).collect();
            writes = self.writes((&now, &versions), wanted, &plan, &roles);
        }
        let done = self
            .write_all::<KubeNode>(&Key::Networks, writes.jobs)
            .await;
        for (name, wish) in writes.wishes {
            if done.written.contains(&key_of(&name)) {
                self.written.took(name, wish, world, Instant::now());
            }
        }
        self.clients.metrics.networks.tell_usage(&plan.usage);
        let mut problems = plan.problems;
        problems.extend(self.refused_allocations());
        self.tell_problems(Key::Networks, &problems);
        self.report_on_nodes("networks", problems);
        if writes.waits {
            return Action::Requeue;
        }
        done.action()
    }

    /// Roles in the fabric. A node that gets subnets gets its role with them: one write, and one plan less.
    fn roles(&mut self, plan: &networks::Plan, complete: &Arc<World>) -> Roles {
        let plans = if plan.allocations.is_empty() {
            let planner = &mut self.planner;
            planned(|| planner.plan_all(complete))
        } else {
            let allocated = || plan.applied(complete.as_ref().clone());
            planned(|| Arc::new(advertise::plan_all(&allocated())))
        };
        let of_fabric = plans.get(&fabric::base_name());
        of_fabric.map(|plan| plan.roles.clone()).unwrap_or_default()
    }

    /// Whether what the caches lack was written to a node a moment ago.
    fn waits(&self, name: &NodeName, plan: &networks::Plan, roles: &Roles) -> bool {
        let Some(entry) = self.caches.nodes.get(&key_of(name)) else {
            return false;
        };
        let (allocation, role) = (plan.allocations.get(name), roles.get(name));
        let wish = Wish::new(&entry.uid, allocation, role.copied());
        self.written.waits(name, &wish, Instant::now())
    }

    /// The writes that these nodes need by what the API server has.
    fn writes(
        &self,
        (now, versions): (&World, &Versions),
        wanted: BTreeSet<&NodeName>,
        plan: &networks::Plan,
        roles: &Roles,
    ) -> Writes {
        let mut writes = Writes::default();
        for name in wanted {
            let (Some(node), Some(version)) = (now.nodes.get(name), versions.get(name)) else {
                continue;
            };
            let allocation = plan.allocations.get(name);
            let role = roles.get(name).copied();
            let others = self.observes();
            let Some(job) = node_job((node, others), version, allocation, role) else {
                continue;
            };
            let wish = Wish::new(&version.0, allocation, role);
            if self.written.waits(name, &wish, Instant::now()) {
                writes.waits = true;
            } else {
                writes.jobs.push(job);
                writes.wishes.insert(name.clone(), wish);
            }
        }
        writes
    }

    /// What the API server said against writes to Nodes.
    fn refused_allocations(&self) -> Vec<Problem> {
        let refused = self.refusals.of(&Key::Networks).into_iter();
        let problem = |r: Refusal| {
            let node = r.node?;
            let of = if r.verb == "apply" {
                "its annotations"
            } else {
                "it"
            };
            let text = format!("node {node}: cannot {} {of}: {}", r.verb, r.words);
            let subject = format!("Node/{node}");
            Some(Problem::new(subject, "AllocationFailed", text))
        };
        refused.filter_map(problem).collect()
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

fn key_of(node: &NodeName) -> ObjectKey {
    ObjectKey::new("", node.as_str())
}

/// The write that a node needs, to this version of it only: annotations and the label. An apply leaves a label that others put
/// there; it is taken off by a write of its own. `others`: annotations are somebody else's.
fn node_job(
    (node, others): (&Node, bool),
    (uid, version): &(String, String),
    allocation: Option<&networks::Allocation>,
    role: Option<Role>,
) -> Option<Job> {
    let (uid, version) = (uid.clone(), version.clone());
    let what = match (allocation, role) {
        (None, role) if role_label(node) == role.map(Role::word) => return None,
        (None, None) => What::Unlabel {
            uid,
            version,
            label: ROLE_LABEL,
        },
        (allocation, role) => {
            let nothing = networks::Allocation::default();
            let annotations = if others {
                json!({})
            } else {
                annotations(node, allocation.unwrap_or(&nothing))
            };
            let label = role.map(|role| (ROLE_LABEL.to_owned(), role.word()));
            let labels: BTreeMap<String, &str> = label.into_iter().collect();
            What::Apply {
                uid: Some(uid),
                version: Some(version),
                body: json!({"metadata": {"annotations": annotations, "labels": labels}}),
            }
        }
    };
    Some(Job {
        key: key_of(&node.name),
        node: Some(node.name.clone()),
        what,
    })
}

fn role_label(node: &Node) -> Option<&str> {
    node.labels.get(ROLE_LABEL).map(String::as_str)
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
