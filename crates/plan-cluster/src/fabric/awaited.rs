//! What a change of the fabric's topology waits for, in words.
//! In: what is awaited, what nodes report of their sessions and of their running configuration. Out: a condition and its event.
//! Invariant: the words are the same as long as the same things are missing, whoever looks and however often.
//! Not here: what is awaited (`roles`), reading the reports, the seconds that routes get to arrive.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeName;
use model::intent::{Condition, Event};

use super::members::LIST;
use super::roles::{Awaited, is_steady};
use crate::sessions::{End, Reach};
use crate::world::World;

/// The condition's type.
pub const CONDITION: &str = "TopologyInForce";
const IN_FORCE: &str = "TopologyInForce";
const REFLECTORS: &str = "RouteReflectorsAwaited";
const MESH: &str = "FullMeshAwaited";

/// So many nodes, or pairs, are named.
const NAMED: usize = 5;

/// What a node's FRRNodeState says of its FRR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// The API server does not answer.
    Unread,
    /// There is no such object.
    Missing,
    /// It has no running configuration.
    Empty,
    /// Its running configuration is not that of a reflector.
    ReflectsNot,
    /// It is.
    Reflects,
}

/// What is waited for, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    reason: &'static str,
    message: String,
}

/// What is waited for; `reported` has those reflectors whose FRRNodeState was looked at.
#[must_use]
pub fn waiting(
    world: &World,
    awaited: &Awaited,
    ends: &[End],
    reported: &BTreeMap<NodeName, Reported>,
) -> Waiting {
    let reach = Reach::new(world, ends);
    let (reason, message) = match awaited {
        Awaited::Reflectors(wanted) => (REFLECTORS, reflectors(world, wanted, &reach, reported)),
        Awaited::Mesh => (MESH, mesh(world, &reach)),
    };
    Waiting { reason, message }
}

/// Whether the two differ in nothing but words.
#[must_use]
pub fn same_reason(a: &Option<Waiting>, b: &Option<Waiting>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a.reason == b.reason)
}

fn reflectors(
    world: &World,
    wanted: &BTreeSet<NodeName>,
    reach: &Reach<'_>,
    reported: &BTreeMap<NodeName, Reported>,
) -> String {
    let names = listed(wanted.iter().map(NodeName::to_string));
    let beginning = format!(
        "sessions and route reflectors of before stay until {names} are reported to reflect the routes of the managed BGP fabric: "
    );
    if is_steady(world, wanted) {
        return beginning + WRITING;
    }
    if reach.live().is_empty() {
        return beginning + NOBODY_REPORTS;
    }
    let is_ready =
        |name: &NodeName| world.nodes.get(name).and_then(|node| node.ready) != Some(false);
    let (ready, away): (Vec<_>, Vec<_>) = wanted.iter().partition(|name| is_ready(name));
    let lacking = ready
        .iter()
        .filter_map(|name| lack(name, reach, reported.get(*name).copied()));
    let mut missing = listed_by("; ", lacking);
    // Nobody waits for those where two others do the work.
    if missing.is_empty() && ready.len() < wanted.len().min(2) {
        let away = away.iter().map(|name| format!("node {name} is not Ready"));
        missing = listed_by("; ", away);
    }
    if missing.is_empty() {
        return beginning + ARRIVING;
    }
    let states = [Reported::Missing, Reported::Empty];
    let limited = reported.values().any(|state| states.contains(state));
    let hint = if limited { LIMIT } else { "" };
    beginning + &missing + hint
}

const NOBODY_REPORTS: &str =
    "no BGPSessionState of a node that is Ready says that a session is established";
const WRITING: &str = "they are; FRRConfigurations or labels of Nodes are still to be written";
const ARRIVING: &str = "nothing is missing, the routes get some seconds to arrive";
const LIMIT: &str = " (frr-k8s stores no FRRNodeState that is larger than 1 MiB)";

/// What is missing of a reflector.
fn lack(name: &NodeName, reach: &Reach<'_>, reported: Option<Reported>) -> Option<String> {
    if !reach.live().contains(name) {
        return Some(format!(
            "node {name} is not Ready or reports no established BGP session"
        ));
    }
    let without = listed(reach.missing(name).map(NodeName::to_string));
    if !without.is_empty() {
        return Some(format!(
            "node {name} and {without} do not both report their BGP session as established"
        ));
    }
    match reported? {
        Reported::Unread => Some(format!("FRRNodeState {name} cannot be read")),
        Reported::Missing => Some(format!("there is no FRRNodeState {name}")),
        Reported::Empty => Some(format!("FRRNodeState {name} has no runningConfig")),
        Reported::ReflectsNot => Some(format!(
            "runningConfig of FRRNodeState {name} has no prefix list {LIST} with all pod subnets"
        )),
        Reported::Reflects => None,
    }
}

fn mesh(world: &World, reach: &Reach<'_>) -> String {
    let beginning = "the route reflectors of the managed BGP fabric stay until every two nodes are reported to have a session: ";
    let nodes = reach.live();
    let rest = if world.evidence.meshed {
        WRITING.to_owned()
    } else if nodes.len() < 2 {
        NOBODY_REPORTS.to_owned()
    } else {
        let pairs = nodes.iter().flat_map(|a| {
            let others = reach.missing(a).filter(move |b| *a < *b);
            others.map(move |b| format!("{a} and {b}"))
        });
        match listed(pairs) {
            none if none.is_empty() => ARRIVING.to_owned(),
            pairs => format!("{pairs} do not both report theirs as established"),
        }
    };
    beginning.to_owned() + &rest
}

/// The first few, without a number of the others: that would change with each of them.
fn listed(all: impl Iterator<Item = String>) -> String {
    listed_by(", ", all)
}

fn listed_by(separator: &str, all: impl Iterator<Item = String>) -> String {
    let mut first: Vec<String> = all.take(NAMED + 1).collect();
    let more = first.len() > NAMED;
    first.truncate(NAMED);
    first.join(separator) + if more { " and more" } else { "" }
}

/// The condition; `existing` is what the object says now. Absent where nothing was ever waited for.
#[must_use]
pub fn condition(waiting: Option<&Waiting>, existing: Option<Condition>) -> Option<Condition> {
    let said = |status, reason: &str, message: &str| {
        Some(Condition {
            kind: CONDITION,
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    };
    match (waiting, existing) {
        (Some(waiting), _) => said(false, waiting.reason, &waiting.message),
        (None, Some(existing)) if !existing.status => said(
            true,
            IN_FORCE,
            "the sessions of the managed BGP fabric are those of its topology, and no others",
        ),
        (None, existing) => existing,
    }
}

/// The event for a change of the condition; none where it only changed its words.
#[must_use]
pub fn event(before: Option<&Condition>, now: Option<&Condition>) -> Option<Event> {
    let now = now?;
    let same = before.is_some_and(|c| c.reason == now.reason);
    (!same).then(|| Event {
        warning: false,
        reason: match now.reason.as_str() {
            REFLECTORS => REFLECTORS,
            MESH => MESH,
            _ => IN_FORCE,
        },
        message: now.message.clone(),
    })
}

#[cfg(test)]
mod tests;
