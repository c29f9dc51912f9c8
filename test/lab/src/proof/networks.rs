//! Line 9: networks of users.
//!
//! In: pods of each network. Out: whether they reach each other with their own addresses,
//! the outside host with the node's (or, where nothing is translated, with their own),
//! no pod of another network, and nodes and Services as they should (`services`).

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;

use super::matrix::Matrix;
use super::{Failure, Layer, Verdict, World, listed, services};
use crate::echo;
use crate::family::Family;
use crate::networks::{DEFAULT, Members, members};
use crate::run::{each, tool, until};
use crate::state::{Lab, Node};

/// How long packets may take to find their way for the first time.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

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
    }
    serve(lab, &all)?;
    // Nodes and Services are reached by way of the network's VRF: where the kernel has none there is no way to look at.
    let with_services = has_vrfs(lab);
    if with_services {
        services::serve(lab)?;
    }
    let found = each(&all, |one| -> Result<Found> {
        let mut found = look(lab, one, &all);
        if !with_services {
            return Ok(found);
        }
        services::clusters(lab, one, &all, &mut found)?;
        if one.name != DEFAULT {
            services::look(lab, one, &mut found)?;
        }
        Ok(found)
    });
    let found = found.into_iter().collect::<Result<Vec<_>>>()?;
    let (mut matrix, mut counts, mut complaints) = (Matrix::default(), Vec::new(), Vec::new());
    for one in found {
        matrix.extend(one.matrix);
        counts.push(one.count);
        complaints.push(one.wrong);
    }
    matrix.print();
    let complaints: Vec<String> = complaints.into_iter().flatten().collect();
    if complaints.is_empty() {
        let paths: usize = counts.iter().sum();
        let without = if with_services {
            ""
        } else {
            "; no VRFs here: nodes and Services were not looked at"
        };
        return Ok(Ok(format!(
            "{} networks, {paths} paths{without}",
            all.len()
        )));
    }
    let expected = "own addresses within a network, the node's outside, nothing between networks, Services that are allowed";
    Ok(Err(Failure::new(
        Layer::Packets,
        expected,
        listed(&complaints),
    )))
}

/// Pods and the outside host answer.
fn serve(lab: &Lab, all: &[Members]) -> Result<()> {
    for (_, pod, namespace) in all.iter().flat_map(|one| &one.pods) {
        for own in &pod.addresses {
            // Of the default network line 3 may have started it.
            drop(echo::serve(namespace, own.address));
        }
    }
    for family in lab.values.families() {
        drop(echo::serve(
            &lab.namespace("outside"),
            lab.values.outside_address(family)?,
        ));
    }
    Ok(())
}

/// Whether the kernel has VRF devices: one is made in the namespace of the underlay, and is gone again.
fn has_vrfs(lab: &Lab) -> bool {
    let underlay = lab.namespace("underlay");
    let run = |words: &str| tool("ip").words(words).inside(&underlay).run();
    let made = run("link add probe type vrf table 999");
    drop(run("link del probe"));
    made.is_ok()
}

/// Whether pods reach those of another, advertised network: where nothing keeps networks apart on the nodes, and the physical
/// network knows the way.
fn meets(lab: &Lab, foreign: &Members) -> bool {
    lab.outward.is_loose() && !lab.outward.is_translated() && foreign.is_advertised
}

/// Whether packets of one network's pods may come to another's on other nodes from the physical network: they bear the node's address
/// there, as any host's do, and hosts reach what is advertised. Which node that network leads them to is its own affair.
fn comes_in(one: &Members, foreign: &Members, is_elsewhere: bool) -> bool {
    is_elsewhere && one.is_translated && !one.is_advertised && foreign.is_advertised
}

/// What was tried from one network, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many paths.
    pub(super) count: usize,
    /// What is wrong.
    pub(super) wrong: Vec<String>,
    /// Who reached whom.
    pub(super) matrix: Matrix,
}

/// The paths of one pod to those of a network that it must not reach.
fn kept_apart(
    found: &mut Found,
    one: &Members,
    (node, namespace, family, node_address): (&Node, &str, Family, IpAddr),
    foreign: &Members,
) {
    for (other, far, _) in &foreign.pods {
        let Some(to) = far.in_family(family) else {
            continue;
        };
        let seen = echo::tcp(namespace, to.address);
        found.count += 1;
        let column = format!("pods of {}", foreign.name);
        found.matrix.note(&one.name, &column, seen.is_ok());
        let allowed = comes_in(one, foreign, other.name != node.name);
        let allowed = allowed.then_some(node_address);
        if let Some(seen) = seen.ok().filter(|seen| Some(seen.ip()) != allowed) {
            found.wrong.push(format!(
                "pod of {} on {} -> pod of {} on {}: it answers and sees {seen}",
                one.name, node.name, foreign.name, other.name
            ));
        }
    }
}

/// The paths to pods and to the outside host.
fn look(lab: &Lab, one: &Members, all: &[Members]) -> Found {
    let mut found = Found::default();
    for (node, pod, namespace) in &one.pods {
        let from = format!("pod of {} on {}", one.name, node.name);
        for own in &pod.addresses {
            let family = own.family();
            let mut right = |to: &str, what: String, at: IpAddr, expected: IpAddr| {
                let seen = until(PATIENCE, Duration::from_millis(500), || {
                    echo::tcp(namespace, at).ok()
                });
                found.count += 1;
                found.matrix.note(&one.name, to, seen.is_some());
                if seen.map(|seen| seen.ip()) != Some(expected) {
                    found
                        .wrong
                        .push(format!("{from} -> {what}: {seen:?} is seen"));
                }
            };
            let outside = lab.values.outside_address(family);
            let node_address = lab.values.address_of(node.index, family);
            let (Ok(outside), Ok(node_address)) = (outside, node_address) else {
                continue;
            };
            let beyond = if one.is_translated {
                node_address
            } else {
                own.address
            };
            for network in (all.iter()).filter(|n| n.name == one.name || meets(lab, n)) {
                let to = format!("pods of {}", network.name);
                let is_own = network.name == one.name;
                let source = if is_own { own.address } else { beyond };
                for (other, far, _) in &network.pods {
                    if let Some(far) = far.in_family(family).filter(|_| !is_own || other != node) {
                        let what = format!("pod of {} on {}", network.name, other.name);
                        right(&to, what, far.address, source);
                    }
                }
            }
            right("outside", "outside".to_owned(), outside, beyond);
            let pod = (node, namespace.as_str(), family, node_address);
            for foreign in (all.iter()).filter(|n| n.name != one.name && !meets(lab, n)) {
                kept_apart(&mut found, one, pod, foreign);
            }
        }
    }
    found
}
