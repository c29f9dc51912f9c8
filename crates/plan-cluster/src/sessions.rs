//! Whether the fabric's BGP sessions come up, and when it looks as if FRR does not listen.
//! In: what nodes report of their sessions, the time, and what was seen before. Out: a verdict, its condition and event.
//! Invariant: a pair of nodes is down only where both ends have tried for longer than [`PATIENCE`] without one of them
//! being Established; what is not reported is not judged.
//! Not here: the clock, reading reports, writing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::NodeName;
use model::address::Family;
use model::intent::{Condition, Event};

use crate::world::World;

/// How long both ends have to try in vain: longer than a reload and a few attempts to connect.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The condition's type.
pub const CONDITION: &str = "SessionsUp";
const REASON_DOWN: &str = "NobodyAnswers";
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

/// Pairs of which both ends try, and since when, on a clock that never goes back.
pub type Trying = BTreeMap<Pair, Duration>;

/// What is true of the sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody reports any.
    Unknown,
    /// Some are on their way: what was said before stands.
    Pending,
    /// All that are reported stand.
    Up,
    /// Between these pairs of nodes both ends have tried in vain for too long.
    Down(BTreeSet<(NodeName, NodeName)>),
}

/// A judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What is true now.
    pub verdict: Verdict,
    /// To be given to the next judgement.
    pub trying: Trying,
    /// When, on the same clock, another look is due even if nothing is reported.
    pub again_at: Option<Duration>,
}

/// Judges from all reports at a moment.
#[must_use]
pub fn judge(world: &World, ends: &[End], before: &Trying, now: Duration) -> Judgement {
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
    let mut trying = Trying::new();
    let mut down = BTreeSet::new();
    let mut pending = false;
    for (pair, ends) in &pairs {
        if ends.iter().any(|end| end.state == "Established") {
            continue;
        }
        let nodes: BTreeSet<&NodeName> = ends.iter().map(|end| &end.node).collect();
        if nodes.len() < 2 || !ends.iter().all(|end| end.tries()) {
            pending = true;
            continue;
        }
        let since = before.get(pair).copied().unwrap_or(now);
        trying.insert(pair.clone(), since);
        if now.saturating_sub(since) > PATIENCE {
            down.insert((pair.0.clone(), pair.1.clone()));
        } else {
            pending = true;
        }
    }
    let due = trying.values().map(|since| *since + PATIENCE);
    let again_at = due.filter(|at| *at >= now).min();
    let verdict = if pairs.is_empty() {
        Verdict::Unknown
    } else if !down.is_empty() {
        Verdict::Down(down)
    } else if pending {
        Verdict::Pending
    } else {
        Verdict::Up
    };
    Judgement {
        verdict,
        trying,
        again_at: again_at.map(|at| at + Duration::from_millis(1)),
    }
}

/// The condition of a verdict; `standing` is what the object says now.
#[must_use]
pub fn condition(verdict: &Verdict, standing: Option<Condition>) -> Option<Condition> {
    let said = |status, reason: &str, message: String| {
        Some(Condition {
            kind: CONDITION,
            status,
            reason: reason.to_owned(),
            message,
        })
    };
    match verdict {
        Verdict::Unknown => None,
        Verdict::Pending => standing,
        Verdict::Up => said(
            true,
            "Established",
            "every reported session between nodes of the fabric is established".to_owned(),
        ),
        Verdict::Down(pairs) => {
            let named: Vec<String> = pairs
                .iter()
                .take(NAMED)
                .map(|(a, b)| format!("{a} and {b}"))
                .collect();
            let more = match pairs.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let message = format!(
                "{} pairs of nodes have no BGP session although both ends have tried for more than {} s: {}{more}; likely bgpd does not listen on these nodes (started with -p 0, as frr-k8s does by default), or port 179 is closed between them",
                pairs.len(),
                PATIENCE.as_secs(),
                named.join(", ")
            );
            said(false, REASON_DOWN, message)
        }
    }
}

/// The event for a change of the condition; none where it only changed its words, or is good from the first.
#[must_use]
pub fn event(before: Option<&Condition>, now: Option<&Condition>) -> Option<Event> {
    let now = now?;
    if before.map(|c| c.status) == Some(now.status) || (before.is_none() && now.status) {
        return None;
    }
    Some(Event {
        warning: !now.status,
        reason: if now.status {
            "SessionsEstablished"
        } else {
            REASON_DOWN
        },
        message: now.message.clone(),
    })
}

#[cfg(test)]
mod tests;
