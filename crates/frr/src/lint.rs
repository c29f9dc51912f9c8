//! What frr-k8s lets through and FRR then refuses or silently drops.
//! In: a merged configuration and the node's own addresses. Out: problems with object and field.
//! Invariant: nothing here stops a configuration by itself; who calls decides.
//! Not here: conflicts between objects (`merge`).

mod effect;
mod listening;
mod raw;
mod refused;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::names::ObjectKey;
use model::problem::Problem;

use crate::config::{NeighborConfig, NodeConfig, RouterConfig, subject, vrf_name};

pub use listening::{Listening, Speaker, bgp_listen_disabled};
pub use refused::refused;

/// Everything that will not work as written, sorted. `own_addresses` are all addresses of the node.
#[must_use]
pub fn lint(config: &NodeConfig, own_addresses: &BTreeSet<IpAddr>) -> Vec<Problem> {
    let mut problems = config.notes.clone();
    for router in &config.routers {
        for neighbor in &router.neighbors {
            if is_self(neighbor, own_addresses) {
                problems.push(self_neighbor(config, router, neighbor));
            }
            effect::lint(router, neighbor, &mut problems);
        }
        effect::lint_spellings(router, &mut problems);
    }
    refused::lint(config, &mut problems);
    raw::lint(config, &mut problems);
    problems.sort();
    problems.dedup();
    problems
}

/// The configuration without the node itself as a neighbor, and one problem for each that was left out:
/// FRR would refuse that line at every reload.
#[must_use]
pub fn without_self(
    mut config: NodeConfig,
    own_addresses: &BTreeSet<IpAddr>,
) -> (NodeConfig, Vec<Problem>) {
    let mut problems = Vec::new();
    for router in &config.routers {
        for neighbor in &router.neighbors {
            if is_self(neighbor, own_addresses) {
                problems.push(self_neighbor(&config, router, neighbor));
            }
        }
    }
    for router in &mut config.routers {
        router.neighbors.retain(|n| !is_self(n, own_addresses));
    }
    (config, problems)
}

/// Addresses are compared as numbers, so no spelling of an own address passes for somebody else's.
fn is_self(neighbor: &NeighborConfig, own_addresses: &BTreeSet<IpAddr>) -> bool {
    neighbor
        .peer
        .ip()
        .is_some_and(|ip| own_addresses.contains(&ip) || own_addresses.contains(&ip.to_canonical()))
}

fn self_neighbor(config: &NodeConfig, router: &RouterConfig, neighbor: &NeighborConfig) -> Problem {
    let text = format!(
        "the address is node {}'s own; FRR refuses a neighbor that is itself",
        config.node
    );
    problem(router, neighbor, "SelfNeighbor", &text)
}

/// A problem with a neighbor: the subject is the first object that names it, the message lists all.
fn problem(
    router: &RouterConfig,
    neighbor: &NeighborConfig,
    reason: &'static str,
    text: &str,
) -> Problem {
    let sources: Vec<String> = neighbor.sources.iter().map(ObjectKey::to_string).collect();
    Problem::new(
        neighbor.sources.first().map(subject).unwrap_or_default(),
        reason,
        format!(
            "routers[vrf {}].neighbors[{}] of {}: {text}",
            vrf_name(&router.vrf),
            neighbor.peer.as_str(),
            sources.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests;
