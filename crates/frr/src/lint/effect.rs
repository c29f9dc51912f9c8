//! What FRR accepts and then does otherwise than it reads.
//! In: a neighbor or router of a merged configuration. Out: problems.
//! Invariant: FRR and frr-k8s say nothing about any of these.
//! Not here: what they refuse (`refused`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::names::ObjectKey;
use model::problem::Problem;

use super::problem;
use crate::config::{NeighborConfig, RouterConfig};

pub(super) fn lint(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    lint_timers(router, neighbor, problems);
    lint_restart(router, neighbor, problems);
    lint_families(router, neighbor, problems);
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

/// Without BFD a dead node looks like a restarting one.
fn lint_restart(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let session = &neighbor.session;
    if session.graceful_restart && session.bfd_profile.is_none() {
        let text = "enableGracefulRestart without bfdProfile: the routes of a peer that dies are kept for its restart time (120s by default) on top of the hold time";
        problems.push(problem(router, neighbor, "RestartWithoutBfd", text));
    }
}

fn lint_families(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let families = neighbor.families();
    for range in &neighbor.receive.prefixes {
        if !families.has(range.prefix.family()) {
            let text = format!(
                "toReceive names prefix {}, but the session carries {} only, so that it never matches",
                range.prefix,
                families.as_str()
            );
            problems.push(problem(router, neighbor, "ReceiveFamily", &text));
        }
    }
}

pub(super) fn lint_spellings(router: &RouterConfig, problems: &mut Vec<Problem>) {
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
