//! Whether the fabric's BGP sessions come up, and when it looks as if FRR does not listen.
//! In: what nodes report of their sessions, the time, and what was seen before. Out: a state, its condition and event.
//! Invariant: a pair of nodes is up only where both ends say so, each from a node that is Ready (a node whose Lease is no
//! longer renewed is not, and its reports are as old as that); it is down only where both ends have tried for longer than
//! [`PATIENCE`]. All else is on its way, and after that time not known.
//! Not here: the clock, reading reports, writing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::NodeName;
use model::address::Family;
use model::intent::{Condition, Event, REPORTS_MISSING};

use crate::fabric::roles::Role;
use crate::world::World;

/// How long both ends have to try in vain: longer than a reload and a few attempts to connect.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The condition's type.
pub const CONDITION: &str = "SessionsUp";
const REASON_DOWN: &str = "SessionsDown";
const NAMED: usize = 5;

/// One end of a session, as its node reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The node that reports.
    pub node: NodeName,
    /// The neighbor's address.
    pub peer: IpAddr,
    /// `Idle`, `Connect`, `Active`, `OpenSent`, `OpenConfirm` or `Established`.
    pub state: String,
}

impl End {
    fn tries(&self) -> bool {
        ["Idle", "Connect", "Active"].contains(&self.state.as_str())
    }
}

/// Two nodes, smaller name first, and the family of their session.
pub type Pair = (NodeName, NodeName, Family);

/// Pairs that are not up, in which of two ways, and since when, on a clock that never goes back.
pub type Trying = BTreeMap<Pair, (Lack, Duration)>;

/// Why a pair is not up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Both ends try.
    Answer,
    /// One end does not report, or they contradict each other.
    Report,
}

/// What is true of the sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nobody reports any.
    Unknown,
    /// Some are on their way: what was said before stands.
    Pending,
    /// All that are reported stand, by both ends.
    Up,
    /// None is down, but of these pairs of nodes nobody can tell.
    Unclear(BTreeSet<(NodeName, NodeName)>),
    /// Between these pairs of nodes both ends have tried in vain for too long.
    Down(BTreeSet<(NodeName, NodeName)>),
}

/// What the reports say at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// What is true now.
    pub state: State,
    /// To be given to the next evaluation.
    pub trying: Trying,
    /// When, on the same clock, another look is due even if nothing is reported.
    pub again_at: Option<Duration>,
}

/// The sessions' state by all reports at a moment.
#[must_use]
pub fn evaluate(world: &World, ends: &[End], before: &Trying, now: Duration) -> Evaluation {
    let pairs = pairs(world, ends);
    let mut trying = Trying::new();
    let (mut down, mut unclear) = (BTreeSet::new(), BTreeSet::new());
    let mut pending = false;
    for (pair, ends) in &pairs {
        let named = (pair.0.clone(), pair.1.clone());
        let is_ready = |name| world.nodes.get(name).and_then(|n| n.ready) == Some(true);
        if !is_ready(&pair.0) || !is_ready(&pair.1) {
            unclear.insert(named);
            continue;
        }
        let lack = match progress(ends) {
            Progress::Up => continue,
            Progress::Changing => {
                pending = true;
                continue;
            }
            Progress::Lacks(lack) => lack,
        };
        let known = before.get(pair).filter(|(was, _)| *was == lack);
        let since = known.map_or(now, |(_, since)| *since);
        trying.insert(pair.clone(), (lack, since));
        if now.saturating_sub(since) <= PATIENCE {
            pending = true;
        } else if lack == Lack::Answer {
            down.insert(named);
        } else {
            unclear.insert(named);
        }
    }
    let due = trying.values().map(|(_, since)| *since + PATIENCE);
    let again_at = due.filter(|at| *at >= now).min();
    let state = if pairs.is_empty() {
        State::Unknown
    } else if !down.is_empty() {
        State::Down(down)
    } else if !unclear.is_empty() {
        State::Unclear(unclear)
    } else if pending {
        State::Pending
    } else {
        State::Up
    };
    Evaluation {
        state,
        trying,
        again_at: again_at.map(|at| at + Duration::from_millis(1)),
    }
}

/// What the ends of one session say together.
enum Progress {
    Up,
    /// Neither up nor trying.
    Changing,
    Lacks(Lack),
}

fn progress(ends: &[&End]) -> Progress {
    let nodes: BTreeSet<&NodeName> = ends.iter().map(|end| &end.node).collect();
    let is_up = |end: &&End| end.state == "Established";
    if nodes.len() < 2 {
        Progress::Lacks(Lack::Report)
    } else if ends.iter().all(is_up) {
        Progress::Up
    } else if ends.iter().all(|end| end.tries()) {
        Progress::Lacks(Lack::Answer)
    } else if ends.iter().all(|end| end.tries() || is_up(end)) {
        Progress::Lacks(Lack::Report)
    } else {
        Progress::Changing
    }
}

/// Which members of the fabric have sessions with one another.
pub(crate) struct Reach<'a> {
    live: BTreeSet<&'a NodeName>,
    up: BTreeMap<(NodeName, NodeName), bool>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(world: &'a World, ends: &[End]) -> Self {
        let established = ends.iter().filter(|end| end.state == "Established");
        let established: BTreeSet<&NodeName> = established.map(|end| &end.node).collect();
        let nodes = world.nodes.values();
        let live = nodes.filter(|node| {
            Role::of(node).is_some() && node.ready == Some(true) && established.contains(&node.name)
        });
        let mut up: BTreeMap<(NodeName, NodeName), bool> = BTreeMap::new();
        for ((a, b, _), ends) in pairs(world, ends) {
            *up.entry((a, b)).or_insert(true) &= matches!(progress(&ends), Progress::Up);
        }
        Self {
            live: live.map(|node| &node.name).collect(),
            up,
        }
    }

    /// Live members: Ready, and with at least one established session. Nobody waits for the others.
    pub(crate) fn live(&self) -> &BTreeSet<&'a NodeName> {
        &self.live
    }

    /// Live members that this one lacks a session with, as either end says.
    pub(crate) fn missing(&self, name: &NodeName) -> impl Iterator<Item = &'a NodeName> {
        let others = self.live.iter().copied();
        others.filter(move |other| *other != name && !self.is_up(name, other))
    }

    fn is_up(&self, a: &NodeName, b: &NodeName) -> bool {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        self.up.get(&(a.clone(), b.clone())) == Some(&true)
    }
}

/// Live members of the fabric that have their sessions with every other one, as both ends say.
#[must_use]
pub fn reached_by_all(world: &World, ends: &[End]) -> BTreeSet<NodeName> {
    let reach = Reach::new(world, ends);
    let all = reach.live.iter().copied();
    let reached = all.filter(|name| reach.missing(name).next().is_none());
    reached.cloned().collect()
}

/// Whether every two live members of the fabric, of which there are at least two, have their sessions.
#[must_use]
pub fn meshed(world: &World, ends: &[End]) -> bool {
    let reach = Reach::new(world, ends);
    let mut all = reach.live.iter();
    reach.live.len() > 1 && all.all(|name| reach.missing(name).next().is_none())
}

/// The ends of each session between two nodes of the cluster.
fn pairs<'a>(world: &World, ends: &'a [End]) -> BTreeMap<Pair, Vec<&'a End>> {
    let mut holders: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    for node in world.nodes.values() {
        holders.extend(node.internal_ips.iter().map(|ip| (*ip, &node.name)));
    }
    let mut pairs: BTreeMap<Pair, Vec<&End>> = BTreeMap::new();
    for end in ends {
        let Some(other) = holders.get(&end.peer) else {
            continue;
        };
        if **other == end.node || !world.nodes.contains_key(&end.node) {
            continue;
        }
        let (a, b) = (end.node.clone(), (*other).clone());
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        let pair = (a, b, Family::of(end.peer));
        pairs.entry(pair).or_default().push(end);
    }
    pairs
}

/// The condition of a state; `existing` is what the object says now.
#[must_use]
pub fn condition(state: &State, existing: Option<Condition>) -> Option<Condition> {
    let said = |status, reason: &str, message: String| {
        Some(Condition {
            kind: CONDITION,
            status,
            reason: reason.to_owned(),
            message,
        })
    };
    match state {
        State::Unknown => None,
        State::Pending => existing,
        State::Up => said(
            true,
            "Established",
            "both ends of every reported session between nodes of the fabric say that it is established".to_owned(),
        ),
        State::Unclear(pairs) => said(
            false,
            REPORTS_MISSING,
            format!(
                "of {} pairs of nodes it is not known whether they have a BGP session: {}; one end does not report, contradicts the other, or is on a node that is not Ready",
                pairs.len(),
                named(pairs)
            ),
        ),
        State::Down(pairs) => said(
            false,
            REASON_DOWN,
            format!(
                "{} pairs of nodes have no BGP session although both ends have tried for more than {} s: {}; likely bgpd does not listen on these nodes (started with -p 0, as frr-k8s does by default), or port 179 is closed between them",
                pairs.len(),
                PATIENCE.as_secs(),
                named(pairs)
            ),
        ),
    }
}

/// The first few pairs, and how many more there are.
fn named(pairs: &BTreeSet<(NodeName, NodeName)>) -> String {
    let first: Vec<String> = pairs
        .iter()
        .take(NAMED)
        .map(|(a, b)| format!("{a} and {b}"))
        .collect();
    match pairs.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
}

/// The event for a change of the condition; none where it only changed its words, or is good from the first.
#[must_use]
pub fn event(before: Option<&Condition>, now: Option<&Condition>) -> Option<Event> {
    let now = now?;
    let same = before.is_some_and(|c| (c.status, &c.reason) == (now.status, &now.reason));
    if same || (before.is_none() && now.status) {
        return None;
    }
    Some(Event {
        warning: !now.status,
        reason: match now.word() {
            "True" => "SessionsEstablished",
            "Unknown" => REPORTS_MISSING,
            _ => REASON_DOWN,
        },
        message: now.message.clone(),
    })
}

#[cfg(test)]
mod tests;
