//! Line 9: networks of users.
//!
//! In: pods of each network. Out: whether they reach each other with their own addresses,
//! the outside host with the node's (or, where nothing is translated, with their own),
//! and no pod of another network.

use std::time::Duration;

use anyhow::Result;

use super::{Failure, Layer, Verdict, World, listed};
use crate::echo;
use crate::networks::{Members, members};
use crate::run::{each, until};
use crate::state::Lab;

/// How long packets may take to find their way for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Line 9.
pub(super) fn apart(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    let all = members(lab);
    for one in &all {
        if one.pods.len() != lab.nodes.len() {
            let seen = format!("network {} has pods on {} nodes", one.name, one.pods.len());
            return Ok(Err(Failure::new(
                Layer::Ovn,
                "a pod of each network on each node",
                seen,
            )));
        }
        for (_, pod, namespace) in &one.pods {
            for own in &pod.addresses {
                // Of the default network line 3 may have started it.
                drop(echo::serve(namespace, own.address));
            }
        }
    }
    for family in lab.values.families() {
        drop(echo::serve(
            &lab.namespace("outside"),
            lab.values.outside_address(family)?,
        ));
    }
    let found = each(&all, |one| look(lab, one, &all));
    let (counts, complaints): (Vec<usize>, Vec<Vec<String>>) = found.into_iter().unzip();
    let complaints: Vec<String> = complaints.into_iter().flatten().collect();
    if complaints.is_empty() {
        let paths: usize = counts.iter().sum();
        return Ok(Ok(format!("{} networks, {paths} paths", all.len())));
    }
    let expected = "own addresses within a network, the node's outside, nothing between networks";
    Ok(Err(Failure::new(
        Layer::Packets,
        expected,
        listed(&complaints),
    )))
}

/// How many paths begin in a network, and what is wrong with them.
fn look(lab: &Lab, one: &Members, all: &[Members]) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for (node, pod, namespace) in &one.pods {
        let from = format!("pod of {} on {}", one.name, node.name);
        for own in &pod.addresses {
            let family = own.family();
            let own_network = one.pods.iter().filter(|(other, ..)| other != node);
            for (other, far, _) in own_network {
                let Some(to) = far.in_family(family) else {
                    continue;
                };
                count += 1;
                let seen = until(PATIENCE, Duration::from_millis(500), || {
                    echo::tcp(namespace, to.address).ok()
                });
                if seen.map(|seen| seen.ip()) != Some(own.address) {
                    wrong.push(format!("{from} -> {}: {seen:?} is seen", other.name));
                }
            }
            let outside = lab.values.outside_address(family);
            let node_address = lab.values.address_of(node.index, family);
            if let (Ok(outside), Ok(node_address)) = (outside, node_address) {
                let expected = if one.is_translated {
                    node_address
                } else {
                    own.address
                };
                let seen = until(PATIENCE, Duration::from_millis(500), || {
                    echo::tcp(namespace, outside).ok()
                });
                count += 1;
                if seen.map(|seen| seen.ip()) != Some(expected) {
                    wrong.push(format!("{from} -> outside: {seen:?} is seen"));
                }
            }
            for foreign in all.iter().filter(|other| other.name != one.name) {
                for (other, far, _) in &foreign.pods {
                    let Some(to) = far.in_family(family) else {
                        continue;
                    };
                    count += 1;
                    if let Ok(seen) = echo::tcp(namespace, to.address) {
                        let to = format!("pod of {} on {}", foreign.name, other.name);
                        wrong.push(format!("{from} -> {to}: it answers and sees {seen}"));
                    }
                }
            }
        }
    }
    (count, wrong)
}
