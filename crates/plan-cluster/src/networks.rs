//! Node ids and node subnets of the default network.
//! In: the world. Out: for each node that lacks one, its id and subnets; problems.
//! Invariant: what a node has it keeps; nothing is given twice; the same world gives the same answer, whatever the order nodes came in.
//! Not here: writing annotations.

use std::collections::{BTreeMap, BTreeSet};

use model::node::{Fact, Node};
use model::{NetworkName, NodeName, Prefix, Problem};

use crate::world::World;

/// The first node id; smaller ones are the cluster router's and the base address.
pub const FIRST_NODE_ID: u32 = 2;

/// What a node should be told. Absent parts it has already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// `k8s.ovn.org/node-id`.
    pub node_id: Option<u32>,
    /// The whole of `k8s.ovn.org/node-subnets`, other networks' entries kept.
    pub subnets: Option<BTreeMap<NetworkName, Vec<Prefix>>>,
}

/// Allocations by node; nodes that need none are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to write.
    pub allocations: BTreeMap<NodeName, Allocation>,
    /// Nodes that get nothing, and why.
    pub problems: Vec<Problem>,
}

/// Gives ids and subnets: the smallest free ones, to nodes in the order of their names.
#[must_use]
pub fn plan(world: &World) -> Plan {
    let mut plan = Plan::default();
    let mut ids: BTreeSet<u32> = world
        .nodes
        .values()
        .filter_map(|n| n.node_id.known().copied())
        .collect();
    let mut used: BTreeSet<Prefix> = world
        .nodes
        .values()
        .filter_map(|n| n.subnets.known())
        .flat_map(|map| {
            map.get(&NetworkName::default_network())
                .into_iter()
                .flatten()
                .copied()
        })
        .collect();
    let mut cursors = vec![0_u128; world.cluster_subnets.len()];
    for node in world.nodes.values() {
        let mut allocation = Allocation::default();
        match &node.node_id {
            Fact::Known(_) => {}
            Fact::Malformed(why) => plan.problems.push(problem(node, why)),
            Fact::Absent => match free_id(&ids, &world.join_subnets) {
                Some(id) => {
                    ids.insert(id);
                    allocation.node_id = Some(id);
                }
                None => plan
                    .problems
                    .push(problem(node, "no node id is left in the join subnets")),
            },
        }
        match subnets(node, world, &mut used, &mut cursors) {
            Ok(subnets) => allocation.subnets = subnets,
            Err(why) => plan.problems.push(problem(node, &why)),
        }
        if allocation != Allocation::default() {
            plan.allocations.insert(node.name.clone(), allocation);
        }
    }
    plan
}

fn problem(node: &Node, why: &str) -> Problem {
    Problem::new(
        format!("Node/{}", node.name),
        "AllocationFailed",
        format!("node {}: {why}", node.name),
    )
}

fn free_id(ids: &BTreeSet<u32>, join: &[Prefix]) -> Option<u32> {
    let mut next = FIRST_NODE_ID;
    for id in ids.range(FIRST_NODE_ID..) {
        if *id != next {
            break;
        }
        next = next.checked_add(1)?;
    }
    join.iter()
        .all(|j| j.nth(u128::from(next) + 1).is_some())
        .then_some(next)
}

type Subnets = BTreeMap<NetworkName, Vec<Prefix>>;

fn subnets(
    node: &Node,
    world: &World,
    used: &mut BTreeSet<Prefix>,
    cursors: &mut [u128],
) -> Result<Option<Subnets>, String> {
    let known = match &node.subnets {
        Fact::Known(map) => map.clone(),
        Fact::Absent => BTreeMap::new(),
        Fact::Malformed(why) => return Err(why.clone()),
    };
    let default = NetworkName::default_network();
    if known.get(&default).is_some_and(|list| !list.is_empty()) {
        return Ok(None);
    }
    let mut own = Vec::new();
    let families: BTreeSet<_> = world
        .cluster_subnets
        .iter()
        .map(|c| c.cidr.family())
        .collect();
    for family in families {
        let found = world
            .cluster_subnets
            .iter()
            .zip(cursors.iter_mut())
            .filter(|(c, _)| c.cidr.family() == family)
            .find_map(|(c, cursor)| next_free(c.cidr, c.host_len, used, cursor));
        let Some(subnet) = found else {
            let all: Vec<String> = world
                .cluster_subnets
                .iter()
                .map(ToString::to_string)
                .collect();
            return Err(format!(
                "no subnet is left in the cluster subnets {}",
                all.join(", ")
            ));
        };
        own.push(subnet);
    }
    used.extend(own.iter().copied());
    let mut map = known;
    map.insert(default, own);
    Ok(Some(map))
}

fn next_free(
    cidr: Prefix,
    host_len: u8,
    used: &BTreeSet<Prefix>,
    cursor: &mut u128,
) -> Option<Prefix> {
    while *cursor < cidr.subnet_count(host_len) {
        let candidate = cidr.subnet(*cursor, host_len)?;
        *cursor += 1;
        if !used.contains(&candidate) {
            return Some(candidate);
        }
    }
    None
}

#[cfg(test)]
mod tests;
