//! Imported routes that stay although the kernel has lost them: while FRR itself is gone, or starts anew.
//! In: looks at FRR. Out: over which next hops rows wait.
//! Invariant: what a living FRR takes away is obeyed at once; nothing is held longer than the stale time.
//! Not here: which rows they are, and that none is held for a node that is gone (`importing`); asking FRR (the node-agent);
//! mass withdrawals (`breaker`).
//!
//! ```text
//!   well --no answer, or other daemons than before--> restarting --every peer judged, or stale time over--> well
//! ```
//! A peer is judged when its session has been up for [`SETTLE`] since the restart, or has come up and gone down again:
//! from then on the kernel is believed about its routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long after a session came up its routes may need to reach the kernel: bgpd waits for the ends of all initial
/// updates before it chooses paths (measured: up to two seconds on a busy machine).
pub const SETTLE: Duration = Duration::from_secs(5);

/// FRR as it is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Its daemons cannot be asked from here (no permission): nothing is known, and nothing is held.
    Unseen,
    /// zebra or bgpd does not run.
    Gone,
    /// Both run.
    Up {
        /// Identity of the processes: another one means that one of them is new.
        instance: String,
        /// bgpd's peers of the default VRF, and whether their sessions are established; `None`: not asked, or no answer.
        peers: Option<BTreeMap<IpAddr, bool>>,
    },
}

/// What is known of a peer since the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Its session has not come up yet.
    Waiting,
    /// It is up since then.
    Up(Duration),
    /// It came up and went down again.
    Lost,
}

impl Peer {
    fn judged(self, now: Duration) -> bool {
        match self {
            Self::Waiting => false,
            Self::Up(since) => now.saturating_sub(since) >= SETTLE,
            Self::Lost => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Restart {
    since: Duration,
    peers: BTreeMap<IpAddr, Peer>,
}

/// What is remembered from look to look. Times are durations since any fixed moment, never decreasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    stale: Duration,
    /// False until the first look.
    looked: bool,
    /// The daemons that ran last; `None` until they have been seen.
    instance: Option<String>,
    restart: Option<Restart>,
}

impl Holding {
    /// Nothing is known yet. `stale` is the longest time that a row is held. Source: `[limits] stale-time`.
    #[must_use]
    pub fn new(stale: Duration) -> Self {
        Self {
            stale,
            looked: false,
            instance: None,
            restart: None,
        }
    }

    /// True while FRR is gone or not yet itself again: whoever looks has to look again soon, peers included.
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.restart.is_some()
    }

    /// True while rows may be held, so that somebody has to look again although nothing tells.
    #[must_use]
    pub fn is_waiting(&self, now: Duration) -> bool {
        self.restart.is_some() && !self.expired(now)
    }

    /// Takes notice of FRR.
    pub fn look(&mut self, now: Duration, look: &Look) {
        self.notice(now, look);
        self.looked = true;
    }

    fn notice(&mut self, now: Duration, look: &Look) {
        let fresh = || Restart {
            since: now,
            peers: BTreeMap::new(),
        };
        match look {
            Look::Unseen => {
                self.instance = None;
                self.restart = None;
            }
            // Gone at the first look: it went before this process came, and rows stand from before.
            Look::Gone if self.instance.is_some() || !self.looked => {
                self.restart.get_or_insert_with(fresh).peers.clear();
            }
            Look::Gone => {}
            Look::Up { instance, peers } => {
                let expired = self.expired(now);
                let other = self.instance.as_ref().is_some_and(|was| was != instance);
                if other {
                    if expired {
                        self.restart = None;
                    }
                    self.restart.get_or_insert_with(fresh).peers.clear();
                } else if expired {
                    self.restart = None;
                }
                self.instance = Some(instance.clone());
                if let (Some(restart), Some(peers)) = (&mut self.restart, peers) {
                    restart.notice(now, peers);
                    let judged = restart.peers.values().all(|peer| peer.judged(now));
                    if judged && !restart.peers.is_empty() {
                        self.restart = None;
                    }
                }
            }
        }
    }

    fn expired(&self, now: Duration) -> bool {
        self.restart
            .as_ref()
            .is_some_and(|r| now.saturating_sub(r.since) >= self.stale)
    }

    /// Whether a restart is under way that has not yet told about this next hop.
    #[must_use]
    pub fn waits_for(&self, now: Duration, next_hop: IpAddr) -> bool {
        let Some(restart) = self.restart.as_ref().filter(|_| !self.expired(now)) else {
            return false;
        };
        // A next hop that is no peer (a reflected route) is judged when all peers are: then the restart is over.
        restart
            .peers
            .get(&next_hop)
            .is_none_or(|peer| !peer.judged(now))
    }
}

impl Restart {
    fn notice(&mut self, now: Duration, seen: &BTreeMap<IpAddr, bool>) {
        self.peers.retain(|peer, _| seen.contains_key(peer));
        for (address, established) in seen {
            let peer = self.peers.entry(*address).or_insert(Peer::Waiting);
            *peer = match (*peer, *established) {
                (Peer::Waiting, true) => Peer::Up(now),
                (Peer::Up(_), false) => Peer::Lost,
                (same, _) => same,
            };
        }
    }
}

#[cfg(test)]
mod tests;
