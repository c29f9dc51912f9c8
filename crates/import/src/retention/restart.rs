//! A restart of FRR: which peers have been heard of since, and whether routes have had the time to come back.
//! In: probes. Out: whether a peer is settled, and whether all are.
//! Invariant: what the daemons reported before they were gone counts for nothing. Not here: when a restart begins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SETTLE;
use super::status::{Peer, Running, Session, Sessions};

/// What is known of a peer since the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Its session has not come up yet.
    Waiting,
    /// It is up; its routes will have had their time at this moment. With how often it has ended.
    Up(Duration, u64),
    /// A probe that was taken after that moment saw it up without a break.
    Steady(u64),
    /// It came up and went down before its routes had their time, as sessions do while bgpd gets its configuration; at this
    /// moment that is believed.
    Fell(Duration),
    /// It was up for a while and went down again.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restart {
    since: Duration,
    /// How long it had lasted then.
    lasted: Duration,
    /// When the routes of bgpd, zebra's client, have had their time; `None` while it is none.
    linked: Option<Duration>,
    peers: BTreeMap<Peer, Heard>,
}

impl Restart {
    pub(super) fn new(at: Duration) -> Self {
        Self::begun(at, Duration::ZERO)
    }

    /// One that had lasted for a while.
    pub(super) fn begun(at: Duration, lasted: Duration) -> Self {
        Self {
            since: at,
            lasted,
            linked: None,
            peers: BTreeMap::new(),
        }
    }

    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since).saturating_add(self.lasted)
    }

    /// Other daemons come.
    pub(super) fn forget(&mut self) {
        self.linked = None;
        self.peers.clear();
    }

    pub(super) fn notice(&mut self, at: Duration, seen: &Running) {
        match seen.linked {
            Some(true) => drop(self.linked.get_or_insert(at + SETTLE)),
            Some(false) => self.linked = None,
            None => {}
        }
        let Sessions::Peers(peers) = &seen.sessions else {
            return;
        };
        self.peers.retain(|peer, _| peers.contains_key(peer));
        let linked = self.linked.is_some_and(|settled| settled <= at);
        for (name, session) in peers {
            let peer = self.peers.entry(name.clone()).or_insert(Heard::Waiting);
            *peer = peer.next(at, *session, linked);
        }
    }

    /// Whether this peer's routes that the kernel does not have are really gone; `None` where there is no such peer.
    pub(super) fn is_settled(&self, now: Duration, peer: &Peer) -> Option<bool> {
        self.peers.get(peer).map(|heard| self.settled(now, *heard))
    }

    fn settled(&self, now: Duration, heard: Heard) -> bool {
        match heard {
            Heard::Waiting => false,
            // It may have gone down since the last probe.
            Heard::Up(..) => false,
            Heard::Steady(_) => self.linked.is_some_and(|at| at <= now),
            Heard::Fell(at) => at <= now,
            Heard::Lost => true,
        }
    }

    /// Whether all peers are settled. Those that were `down` before are not waited for, if there are any others.
    pub(super) fn is_over(&self, now: Duration, down: &BTreeSet<Peer>) -> bool {
        let waited = || self.peers.iter().filter(|(peer, _)| !down.contains(peer));
        let all = waited().all(|(_, heard)| self.settled(now, *heard));
        if waited().next().is_some() {
            return all;
        }
        let mut peers = self.peers.values();
        !self.peers.is_empty() && peers.all(|heard| self.settled(now, *heard))
    }
}

impl Heard {
    fn next(self, at: Duration, session: Session, linked: bool) -> Self {
        match (self, session.up) {
            (Self::Steady(falls), true) if falls == session.falls => self,
            (Self::Up(settled, falls), true) if falls == session.falls && at < settled => self,
            (Self::Up(_, falls), true) if falls == session.falls => Self::Steady(falls),
            (Self::Waiting | Self::Fell(_) | Self::Up(..) | Self::Steady(_), true) => {
                if session.since >= SETTLE {
                    Self::Steady(session.falls)
                } else {
                    Self::Up(at + SETTLE.saturating_sub(session.since), session.falls)
                }
            }
            (Self::Steady(_), false) if linked => Self::Lost,
            (Self::Up(..) | Self::Steady(_), false) => Self::Fell(at + SETTLE),
            (Self::Waiting, false) if session.falls > 0 => Self::Fell(at + SETTLE),
            (Self::Waiting | Self::Fell(_), false) | (Self::Lost, _) => self,
        }
    }
}
