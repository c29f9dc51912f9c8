//! One RouteAdvertisements into the FRRConfigurations of the nodes it selects, and its two conditions.
//! In: the world and the RA's name. Out: wanted objects, objects to leave as they are, conditions, problems.
//! Invariant: every wanted object has a derived name, selects one node, and never names that node as its own neighbor.
//! Not here: merging with other people's objects (`check` asks `frr`), user-defined networks.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::{FrrConfiguration, Raw, Router};
use model::intent::{Condition, NetworkSelector, RouteAdvertisements, TargetVrf};
use model::node::{Fact, Node};
use model::selector::{LabelSelector, Labels};
use model::{ObjectKey, Prefix, Problem};

use crate::check;
use crate::fabric;
use crate::generated::{self, is_generated, owned};
use crate::world::World;
use crate::{MANAGED_BY, RA_KEY};

mod neighbors;
mod raw;

/// Message of an accepted RA, OVN-Kubernetes' own.
pub const ACCEPTED: &str = "ovn-kubernetes cluster-manager validated the resource and requested the necessary configuration changes";

/// What an RA leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Objects to have.
    pub desired: BTreeMap<ObjectKey, FrrConfiguration>,
    /// Objects that stay as they are, because what they were made from cannot be read just now.
    pub keep: BTreeSet<ObjectKey>,
    /// `Accepted` and `Complete`, in this order.
    pub conditions: Vec<Condition>,
    /// Who is left out, and why; events on the RA.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// Whether `Accepted` is True.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.conditions
            .iter()
            .any(|c| c.kind == "Accepted" && c.status)
    }
}

/// Why nothing can be made of an RA.
struct Refusal {
    reason: &'static str,
    message: String,
    /// True where the user took the input away, so that the objects go too.
    withdraw: bool,
}

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal {
        reason: "ConfigurationError",
        message: format!("configuration error: {}", message.into()),
        withdraw: false,
    }
}

fn pending(message: &str) -> Refusal {
    Refusal {
        reason: "ConfigurationPending",
        message: format!("configuration pending: {message}"),
        withdraw: true,
    }
}

/// The plan of one RA. An RA that is not in the world plans nothing, so that its objects go.
#[must_use]
pub fn plan(world: &World, ra: &str) -> Plan {
    let outcome = match world.ras.get(ra) {
        None => Err(pending("the RouteAdvertisements is gone")),
        Some(Err(why)) => Err(wrong(why.clone())),
        Some(Ok(spec)) => objects(world, spec),
    };
    match outcome {
        Ok(plan) => plan,
        Err(refusal) => Plan {
            desired: BTreeMap::new(),
            keep: if refusal.withdraw {
                BTreeSet::new()
            } else {
                owned(world, ra)
                    .into_iter()
                    .map(|o| o.key.clone())
                    .collect()
            },
            problems: vec![Problem::new(
                format!("RouteAdvertisements/{ra}"),
                refusal.reason,
                refusal.message.clone(),
            )],
            conditions: vec![
                condition("Accepted", false, refusal.reason, refusal.message.clone()),
                condition("Complete", false, refusal.reason, refusal.message),
            ],
        },
    }
}

fn condition(kind: &'static str, status: bool, reason: &str, message: String) -> Condition {
    Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message,
    }
}

fn objects(world: &World, ra: &RouteAdvertisements) -> Result<Plan, Refusal> {
    let TargetVrf::Default = &ra.target_vrf else {
        let text = match &ra.target_vrf {
            TargetVrf::Auto => {
                "targetVRF auto: no selected network has a VRF of its own; only the default network is served"
            }
            TargetVrf::Named(_) | TargetVrf::Default => {
                "targetVRF is neither default nor auto nor the VRF of a selected network"
            }
        };
        return Err(wrong(text));
    };
    if !ra.pod_network
        || !ra
            .networks
            .iter()
            .any(|n| matches!(n, NetworkSelector::DefaultNetwork))
    {
        return Err(pending("no networks selected"));
    }
    let nodes: Vec<&Node> = world
        .nodes
        .values()
        .filter(|n| ra.node_selector.matches(&n.labels))
        .collect();
    if nodes.is_empty() {
        return Err(pending("no nodes selected"));
    }
    let mut left_out: BTreeMap<String, String> = BTreeMap::new();
    let sources = sources(world, ra, &mut left_out);
    if sources.is_empty() && left_out.is_empty() {
        return Err(pending("no FRRConfigurations selected"));
    }
    let mut maker = Maker {
        world,
        ra,
        desired: BTreeMap::new(),
        keep: BTreeSet::new(),
        left_out,
    };
    let excluded = world.excluded_nodes();
    for node in nodes {
        maker.node(node, excluded.get(&node.name), &sources);
    }
    maker.keep_unreadable();
    maker.verify();
    Ok(maker.finish())
}

fn sources<'a>(
    world: &'a World,
    ra: &RouteAdvertisements,
    left_out: &mut BTreeMap<String, String>,
) -> Vec<&'a FrrConfiguration> {
    let mut out = Vec::new();
    for (key, object) in &world.frr {
        match object {
            // Its labels cannot be read either, so it may be one of ours: say so, and keep what was made from it.
            Err(problems) => {
                let why: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
                left_out.insert(format!("FRRConfiguration {key}"), why.join("; "));
            }
            Ok(source) if is_generated(source) || !ra.frr_selector.matches(&source.labels) => {}
            Ok(source) if key.namespace != world.frr_namespace => {
                let text = format!(
                    "it is without effect: only namespace {} is read",
                    world.frr_namespace
                );
                left_out.insert(format!("FRRConfiguration {key}"), text);
            }
            Ok(source) => out.push(source),
        }
    }
    out
}

struct Maker<'a> {
    world: &'a World,
    ra: &'a RouteAdvertisements,
    desired: BTreeMap<ObjectKey, FrrConfiguration>,
    keep: BTreeSet<ObjectKey>,
    left_out: BTreeMap<String, String>,
}

impl Maker<'_> {
    fn leave_out(&mut self, node: &Node, why: &str) {
        self.left_out
            .insert(format!("node {}", node.name), why.to_owned());
        let of_node = |o: &&FrrConfiguration| {
            let suffix = format!("/{}", node.name);
            o.annotations
                .get(RA_KEY)
                .is_some_and(|key| key.ends_with(&suffix))
        };
        let kept = owned(self.world, &self.ra.name)
            .into_iter()
            .filter(of_node)
            .map(|o| o.key.clone());
        self.keep.extend(kept.collect::<Vec<_>>());
    }

    fn node(&mut self, node: &Node, excluded: Option<&String>, sources: &[&FrrConfiguration]) {
        if let Some(why) = excluded {
            return self.leave_out(node, why);
        }
        let prefixes = match &node.subnets {
            Fact::Absent => {
                let why = "waiting for subnet annotation to be set: could not find \"k8s.ovn.org/node-subnets\" annotation";
                return self.leave_out(node, why);
            }
            Fact::Malformed(why) => return self.leave_out(node, why),
            Fact::Known(_) => match self.world.default_subnets(node) {
                Some(list) => sorted(list),
                None => {
                    return self.leave_out(
                        node,
                        "annotation k8s.ovn.org/node-subnets has no entry for network default",
                    );
                }
            },
        };
        let mut any = false;
        for source in sources {
            if !(fabric::is_template(source) || source.node_selector.matches(&node.labels)) {
                continue;
            }
            any = true;
            if let Some(object) = self.object(source, node, &prefixes) {
                self.desired.insert(object.key.clone(), object);
            }
        }
        if !any {
            let text = "no selected FRRConfiguration matches this node";
            self.left_out
                .insert(format!("node {}", node.name), text.to_owned());
        }
    }

    fn object(
        &mut self,
        source: &FrrConfiguration,
        node: &Node,
        prefixes: &[Prefix],
    ) -> Option<FrrConfiguration> {
        let router = source
            .routers
            .iter()
            .find(|r| r.vrf.is_empty() || r.vrf == "default");
        let Some(router) = router else {
            let text = format!(
                "FRRConfiguration {} has no router of the default VRF",
                source.key
            );
            self.left_out.insert(format!("node {}", node.name), text);
            return None;
        };
        let own = node.own_addresses();
        let mut neighbors = Vec::new();
        for neighbor in &router.neighbors {
            if neighbor.peer.ip().is_some_and(|ip| own.contains(&ip)) {
                continue;
            }
            if neighbor.session.dual_stack {
                let text = format!(
                    "DualStackAddressFamily==true not supported, seen on FRRConfiguration {} neighbor {}",
                    source.key,
                    neighbor.peer.as_str()
                );
                self.left_out
                    .insert(format!("neighbor {}", neighbor.peer.as_str()), text);
                continue;
            }
            neighbors.extend(neighbors::neighbor(self.world, neighbor, prefixes));
        }
        // A template without other nodes yet is no fault: the only node of a cluster has no neighbor.
        if neighbors.is_empty() && !fabric::is_template(source) {
            return None;
        }
        let name = &self.ra.name;
        let identity = format!("{name}/{}/{}", source.key.name, node.name);
        let raw = (!neighbors.is_empty()).then(|| Raw {
            priority: 10,
            config: raw::allowas_in(router.asn, &neighbors),
        });
        Some(FrrConfiguration {
            key: ObjectKey::new(
                &source.key.namespace,
                generated::name(name, &source.key, node.name.as_str()),
            ),
            labels: labels(name),
            annotations: [(RA_KEY.to_owned(), identity)].into(),
            node_selector: LabelSelector::label("kubernetes.io/hostname", node.hostname()),
            routers: vec![Router {
                asn: router.asn,
                id: router.id.clone(),
                vrf: String::new(),
                neighbors,
                prefixes: prefixes.to_vec(),
                imports: Vec::new(),
            }],
            bfd_profiles: source.bfd_profiles.clone(),
            raw,
        })
    }

    /// Objects made from a source that cannot be read now stay.
    fn keep_unreadable(&mut self) {
        let unreadable: BTreeSet<&str> = self
            .world
            .frr
            .iter()
            .filter(|(_, object)| object.is_err())
            .map(|(key, _)| key.name.as_str())
            .collect();
        let kept = owned(self.world, &self.ra.name)
            .into_iter()
            .filter(|o| {
                let source = o
                    .annotations
                    .get(RA_KEY)
                    .and_then(|id| id.split('/').nth(1));
                source.is_some_and(|s| unreadable.contains(s))
            })
            .map(|o| o.key.clone());
        self.keep.extend(kept.collect::<Vec<_>>());
    }

    /// Objects with which a node's configuration would not merge are not written; what the node has stays.
    fn verify(&mut self) {
        for (node, why, objects) in check::conflicts(self.world, &self.ra.name, &self.desired) {
            self.left_out.insert(format!("node {node}"), why);
            for key in objects {
                self.desired.remove(&key);
                self.keep.insert(key);
            }
        }
    }

    fn finish(self) -> Plan {
        let list: Vec<String> = self
            .left_out
            .iter()
            .map(|(who, why)| format!("{who}: {why}"))
            .collect();
        let subject = format!("RouteAdvertisements/{}", self.ra.name);
        let problems = list
            .iter()
            .map(|text| Problem::new(subject.clone(), "LeftOut", text.clone()))
            .collect();
        let (accepted, complete) = if list.is_empty() {
            let text = "every selected node has its configuration".to_owned();
            (
                ACCEPTED.to_owned(),
                condition("Complete", true, "Complete", text),
            )
        } else {
            let text = shortened(&list);
            (
                format!("{ACCEPTED}; left out: {text}"),
                condition("Complete", false, "LeftOut", text),
            )
        };
        let existing: BTreeSet<ObjectKey> = owned(self.world, &self.ra.name)
            .iter()
            .map(|o| o.key.clone())
            .collect();
        let keep = self
            .keep
            .into_iter()
            .filter(|key| existing.contains(key) && !self.desired.contains_key(key))
            .collect();
        Plan {
            desired: self.desired,
            keep,
            conditions: vec![condition("Accepted", true, "Accepted", accepted), complete],
            problems,
        }
    }
}

/// All of it, up to a size that the API server takes in a condition.
fn shortened(list: &[String]) -> String {
    const MOST: usize = 8000;
    let mut text = String::new();
    for (at, entry) in list.iter().enumerate() {
        let glue = if at == 0 { "" } else { "; " };
        if at > 0 && text.len() + glue.len() + entry.len() > MOST {
            text.push_str(&format!("; and {} more", list.len() - at));
            return text;
        }
        text.push_str(glue);
        text.extend(entry.chars().take(MOST));
    }
    text
}

fn labels(ra: &str) -> Labels {
    [(RA_KEY, ra), MANAGED_BY]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

fn sorted(mut list: Vec<Prefix>) -> Vec<Prefix> {
    list.sort_by_key(ToString::to_string);
    list.dedup();
    list
}

#[cfg(test)]
mod tests;
