//! Invariants of a plan, above all: what each node gets will load together with everything else that selects it.
//! In: the world and the objects an RA wants. Out: conflicts, each with node, reason and the objects that would cause it.
//! Invariant: an object with which a node's configuration would not merge, or FRR refuse the file, is never written.
//! Not here: the merge itself and what FRR refuses (`frr`).

use std::collections::{BTreeMap, BTreeSet};

use frr::config::{NodeInput, Passwords};
use model::frr::{EVPN_UNSUPPORTED, FrrConfiguration};
use model::node::Node;
use model::{NodeName, ObjectKey};

use crate::generated::is_generated_for;
use crate::world::World;

/// Nodes whose configuration would not load with `desired`, why, and which of `desired` are theirs.
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
            .cloned()
            .collect();
        let mut why = unreadable(world, node, desired);
        why.extend(wrong(node, &objects));
        if !why.is_empty() {
            out.push((
                node.name.clone(),
                format!("its FRR configuration would not load: {}", why.join("; ")),
                mine.iter().map(|o| o.key.clone()).collect(),
            ));
        }
    }
    out
}

/// Objects that cannot be read stop every node that they select. One that uses EVPN costs itself only, and one that
/// is about to be overwritten nobody.
fn unreadable(
    world: &World,
    node: &Node,
    desired: &BTreeMap<ObjectKey, FrrConfiguration>,
) -> Vec<String> {
    let mut out = Vec::new();
    for (key, object) in &world.frr {
        let Err(problems) = object else { continue };
        let selector = world.selectors.get(key);
        let counts = key.namespace == world.frr_namespace
            && !desired.contains_key(key)
            && selector.is_none_or(|s| s.matches(&node.labels))
            && !problems.iter().any(|p| p.reason == EVPN_UNSUPPORTED);
        if counts {
            out.extend(problems.iter().map(|p| p.message.clone()));
        }
    }
    out
}

/// Why the objects do not make one configuration, or FRR would refuse it.
fn wrong(node: &Node, objects: &[FrrConfiguration]) -> Vec<String> {
    let input = NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: node.hostname().to_owned(),
        objects,
        passwords: &stand_ins(objects),
    };
    let problems = match frr::merge::merge(&input) {
        Ok(config) => frr::lint::refused(&config),
        Err(problems) => problems,
    };
    problems.into_iter().map(|p| p.message).collect()
}

/// Secrets are not the manager's to read. One password stands for all of them: a Secret beside none is a conflict
/// whatever it holds, and whether two Secrets agree, or exist, is seen on the node.
fn stand_ins(objects: &[FrrConfiguration]) -> Passwords {
    let neighbors = objects
        .iter()
        .flat_map(|o| o.routers.iter())
        .flat_map(|r| r.neighbors.iter());
    let names: BTreeSet<&String> = neighbors
        .filter_map(|n| n.session.password_secret.as_ref())
        .collect();
    names
        .into_iter()
        .map(|name| (name.clone(), Ok("of-a-secret".to_owned())))
        .collect()
}

#[cfg(test)]
mod tests;
