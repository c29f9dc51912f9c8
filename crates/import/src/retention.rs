//! Imported routes that stay although the kernel has lost them: while FRR itself is gone, starts again or is on its way down,
//! and until it is known that it is not.
//! In: probes of FRR, when the kernel lost what. Out: which losses FRR explains, and over which next hops rows wait.
//! Invariant: no loss counts as explained by a probe that was taken before it; what a living FRR takes away is obeyed after
//! the next probe; nothing is retained longer than the stale time.
//! Not here: which rows they are, and that none is retained for a node that is gone (`losses`); asking FRR (the node-agent);
//! mass withdrawals (`suppression`).
//!
//! ```text
//!   well --no answer, other daemons, or bgpd not zebra's client--> restarting --every peer settled, or stale time over--> well
//! ```
//! A peer is settled when its session, and bgpd's connection to zebra, have been up for [`SETTLE`] since the restart, or when
//! the session went down after that, or came up and has been down again for [`SETTLE`]: from then on the kernel is believed
//! about its routes.

mod restart;
mod status;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use self::restart::Restart;
pub use self::status::{FrrStatus, Peer, Running, Session, Sessions};

/// How long after a session came up its routes may need to reach the kernel: bgpd waits for the ends of all initial
/// updates before it chooses paths (measured: up to two seconds on a busy machine).
pub const SETTLE: Duration = Duration::from_secs(5);

/// A probe explains what was lost at least this long before it: zebra says that bgpd is its client no longer before the
/// first of its routes goes, but a machine may be slow to run those who are asked to stop.
pub const PAUSE: Duration = Duration::from_millis(50);

/// FRR that runs and does not answer explains what was lost at least this long before the probe: one that ends is gone
/// by then, one that is busy is not.
pub const BUSY: Duration = Duration::from_secs(1);

/// What is remembered from probe to probe. Times are durations since any fixed moment, never decreasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    stale: Duration,
    /// The interface that a link-local next hop is on.
    interface: Option<String>,
    /// False until the first probe.
    probed: bool,
    /// FRR cannot be asked: its will is not known, and nothing is retained.
    unseen: bool,
    /// The daemons that ran last; `None` until they have been seen.
    instance: Option<String>,
    restart: Option<Restart>,
    /// Peers whose session was down before the restart.
    down: BTreeSet<Peer>,
    /// When the last probe began in which both daemons answered, and the last of those in which sessions were asked for.
    answered: (Option<Duration>, Option<Duration>),
    /// When the last probe began that found FRR running.
    running: Option<Duration>,
}

impl Retention {
    /// Nothing is known yet. `stale` is the longest time that a row is retained. Source: `[limits] stale-time`.
    /// `interface` is where imported routes lead to: there a peer that is named by it has the link-local next hops.
    /// Source: `[gateway] interface`.
    #[must_use]
    pub fn new(stale: Duration, interface: Option<String>) -> Self {
        Self {
            stale,
            interface,
            probed: false,
            unseen: false,
            instance: None,
            restart: None,
            down: BTreeSet::new(),
            answered: (None, None),
            running: None,
        }
    }

    /// Takes another stale time; what is retained now is measured by it too. Source: `[limits] stale-time`.
    pub fn set_stale(&mut self, stale: Duration) {
        self.stale = stale;
    }

    /// True while FRR is gone or not yet itself again: whoever probes has to probe again soon, peers included.
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.restart.is_some()
    }

    /// True while rows may be retained, so that somebody has to probe again although nothing tells.
    #[must_use]
    pub fn is_waiting(&self, now: Duration) -> bool {
        self.restart.is_some() && !self.expired(now)
    }

    /// Takes notice of FRR, as a probe saw it that began at `at`.
    pub fn observe(&mut self, at: Duration, status: &FrrStatus) {
        match status {
            FrrStatus::Absent if self.instance.is_some() => self.gone(at),
            // Gone at the first probe: it went before this process came, and rows stand from before.
            FrrStatus::Gone
                if self.instance.is_some() || !self.probed || self.restart.is_some() =>
            {
                self.gone(at);
            }
            FrrStatus::Unseen | FrrStatus::Absent | FrrStatus::Gone => {
                self.unseen = true;
                self.instance = None;
                self.restart = None;
            }
            FrrStatus::Up(running) => self.up(at, running),
        }
        self.probed = true;
    }

    fn gone(&mut self, at: Duration) {
        self.unseen = false;
        let restart = self.restart.get_or_insert_with(|| Restart::new(at));
        restart.forget();
    }

    fn up(&mut self, at: Duration, seen: &Running) {
        self.unseen = false;
        let other = self.instance.as_ref().map(|was| *was != seen.instance);
        let linked = seen.linked != Some(false);
        // One that lasts is not begun again when its time is over.
        if self.expired(at) && (other == Some(true) || linked) {
            self.restart = None;
        }
        match other {
            Some(true) => self
                .restart
                .get_or_insert_with(|| Restart::new(at))
                .forget(),
            // It may have started shortly before this process did, and not be itself again yet.
            None if self.restart.is_none() && seen.age < self.stale => {
                self.restart = Some(Restart::begun(at, seen.age));
            }
            None | Some(false) => {}
        }
        if !linked {
            self.restart.get_or_insert_with(|| Restart::new(at));
        }
        self.instance = Some(seen.instance.clone());
        self.running = Some(at);
        let asked = seen.sessions != Sessions::NotAsked;
        if seen.linked.is_some() && seen.sessions != Sessions::Silent {
            self.answered.0 = Some(at);
            if asked {
                self.answered.1 = Some(at);
            }
        }
        match &mut self.restart {
            Some(restart) => {
                restart.notice(at, seen);
                if restart.is_over(at, &self.down) {
                    self.restart = None;
                }
            }
            None => {
                if let Sessions::Peers(peers) = &seen.sessions {
                    let down = peers.iter().filter(|(_, session)| !session.up);
                    self.down = down.map(|(peer, _)| peer.clone()).collect();
                }
            }
        }
    }

    fn expired(&self, now: Duration) -> bool {
        self.restart
            .as_ref()
            .is_some_and(|restart| restart.age(now) >= self.stale)
    }

    /// Whether FRR's will is known about what the kernel lost at `lost`: it cannot be asked, or a probe was taken late
    /// enough. With `sessions`, one in which they were asked for.
    #[must_use]
    pub fn explains(&self, now: Duration, lost: Duration, sessions: bool) -> bool {
        let (any, with_sessions) = self.answered;
        let answered = if sessions { with_sessions } else { any };
        self.probed
            && (self.unseen
                || self.expired(now)
                || answered.is_some_and(|at| at >= lost + PAUSE)
                || self.running.is_some_and(|at| at >= lost + BUSY))
    }

    /// Whether a restart is under way that has not yet reported about this next hop.
    #[must_use]
    pub fn waits_for(&self, now: Duration, next_hop: IpAddr) -> bool {
        let Some(restart) = self.restart.as_ref().filter(|_| !self.expired(now)) else {
            return false;
        };
        let by_address = restart.is_settled(now, &Peer::Address(next_hop));
        let by_interface = || {
            let name = self.interface.as_ref().filter(|_| is_link_local(next_hop));
            name.and_then(|name| restart.is_settled(now, &Peer::Interface(name.clone())))
        };
        // A next hop that is no peer (a reflected route) is settled when all peers are: then the restart is over.
        !by_address.or_else(by_interface).unwrap_or(false)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
        IpAddr::V4(v4) => v4.is_link_local(),
    }
}

#[cfg(test)]
mod tests;
