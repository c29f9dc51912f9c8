//! Invariants of a plan, above all: what each node gets will merge with everything else that selects it.
//! In: the world and the objects an RA wants. Out: conflicts, each with node, reason and the objects that would cause it.
//! Invariant: an object that would make a node's merge fail is never written.
//! Not here: the merge itself (`frr`).

use std::collections::BTreeMap;

use frr::config::NodeInput;
use model::frr::FrrConfiguration;
use model::{NodeName, ObjectKey};

use crate::generated::is_generated_for;
use crate::world::World;

/// Nodes whose configuration would not merge with `desired`, why, and which of `desired` are theirs.
#[must_use]
pub fn conflicts(
    world: &World,
    ra: &str,
    desired: &BTreeMap<ObjectKey, FrrConfiguration>,
) -> Vec<(NodeName, String, Vec<ObjectKey>)> {
    let others: Vec<&FrrConfiguration> = world
        .frr
        .iter()
        .filter(|(key, _)| key.namespace == world.frr_namespace)
        .filter_map(|(_, object)| object.as_ref().ok())
        .filter(|o| !is_generated_for(o, ra))
        .collect();
    let none = BTreeMap::new();
    let mut out = Vec::new();
    for node in world.nodes.values() {
        let selects = |o: &&FrrConfiguration| o.node_selector.matches(&node.labels);
        let mine: Vec<&FrrConfiguration> = desired.values().filter(selects).collect();
        if mine.is_empty() {
            continue;
        }
        let objects: Vec<FrrConfiguration> = others
            .iter()
            .copied()
            .filter(selects)
            .chain(mine.iter().copied())
            .map(without_secrets)
            .collect();
        let input = NodeInput {
            name: node.name.clone(),
            labels: &node.labels,
            hostname: node.hostname().to_owned(),
            objects: &objects,
            passwords: &none,
        };
        if let Err(problems) = frr::merge::merge(&input) {
            let why: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
            out.push((
                node.name.clone(),
                format!("its FRR configuration would not merge: {}", why.join("; ")),
                mine.iter().map(|o| o.key.clone()).collect(),
            ));
        }
    }
    out
}

/// Secrets are not the manager's to read: whether one exists is seen on the node.
fn without_secrets(object: &FrrConfiguration) -> FrrConfiguration {
    let mut object = object.clone();
    for neighbor in object
        .routers
        .iter_mut()
        .flat_map(|r| r.neighbors.iter_mut())
    {
        neighbor.session.password_secret = None;
    }
    object
}
