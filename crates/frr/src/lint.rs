//! What frr-k8s lets through and FRR then refuses or silently drops.
//! In: a merged configuration and the node's own addresses. Out: problems with object and field.
//! Invariant: nothing here stops a configuration by itself; who calls decides.
//! Not here: conflicts between objects (`merge`), whether bgpd listens at all.

mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::Family;
use model::names::ObjectKey;
use model::problem::Problem;

use crate::config::{NeighborConfig, NodeConfig, RouterConfig, subject, vrf_name};

/// Everything that will not work as written, sorted. `own_addresses` are all addresses of the node.
#[must_use]
pub fn lint(config: &NodeConfig, own_addresses: &BTreeSet<IpAddr>) -> Vec<Problem> {
    let mut problems = config.notes.clone();
    for router in &config.routers {
        for neighbor in &router.neighbors {
            if is_self(neighbor, own_addresses) {
                problems.push(self_neighbor(config, router, neighbor));
            }
            lint_timers(router, neighbor, &mut problems);
            lint_ranges(router, neighbor, &mut problems);
            lint_password(router, neighbor, &mut problems);
        }
        lint_spellings(router, &mut problems);
    }
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

/// A default beside another value takes the whole `timers` line with it.
fn lint_timers(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let asked = &neighbor.asked;
    if let (Some(hold), Some(keepalive)) = (asked.hold, asked.keepalive) {
        let lost = match (hold, keepalive) {
            (180, 60) => None,
            (180, _) => Some("holdTime 180s is the default"),
            (_, 60) => Some("keepaliveTime 60s is the default"),
            _ => None,
        };
        if let Some(why) = lost {
            let text = format!(
                "{why}, so that holdTime {hold}s and keepaliveTime {keepalive}s are both dropped and the session runs with 180s and 60s"
            );
            problems.push(problem(router, neighbor, "TimersDropped", &text));
        }
    }
    if asked.connect == Some(60) {
        let text = "connectTime 60s is taken for the default and dropped; FRR then uses its own (120s or 30s, by version)";
        problems.push(problem(router, neighbor, "TimersDropped", text));
    }
}

fn lint_ranges(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    for range in &neighbor.receive.prefixes {
        let longest = range.prefix.family().host_len();
        for (field, value) in [("ge", range.ge), ("le", range.le)] {
            let Some(value) = value.filter(|value| *value > longest) else {
                continue;
            };
            let family = match range.prefix.family() {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            };
            let text = format!(
                "toReceive prefix {} has {field} {value}; {family} allows at most {longest}, and FRR refuses the whole file",
                range.prefix
            );
            problems.push(problem(router, neighbor, "PrefixLength", &text));
        }
    }
}

fn lint_password(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let password = neighbor.session.password.as_deref().unwrap_or_default();
    if password.contains(char::is_whitespace) {
        let text = "the password contains white space; FRR refuses the whole file";
        problems.push(problem(router, neighbor, "PasswordWhitespace", text));
    }
}

fn lint_spellings(router: &RouterConfig, problems: &mut Vec<Problem>) {
    let mut known: BTreeMap<IpAddr, &NeighborConfig> = BTreeMap::new();
    for neighbor in &router.neighbors {
        let Some(ip) = neighbor.peer.ip() else {
            continue;
        };
        let first = *known.entry(ip).or_insert(neighbor);
        if first.peer != neighbor.peer {
            let text = format!(
                "the same peer is also spelled {} by {}; FRR sees one peer and the last filters win. Use {ip} everywhere",
                first.peer.as_str(),
                first
                    .sources
                    .iter()
                    .map(ObjectKey::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            problems.push(problem(router, neighbor, "TwoSpellings", &text));
        }
    }
}

#[cfg(test)]
mod tests;
