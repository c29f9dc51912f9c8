//! What becomes of destinations that stand and that the kernel has lost.
//! In: looks at FRR, the breaker, bgpd's sessions. Out: each is held, or goes.
//! Invariant: nothing is held for a node that is gone or that lost the subnet, over a link that is down, or where another
//! writer took the destination. Not here: for how long (`holding`, `breaker`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use model::address::Prefix;
use model::route::{KernelRoute, Leg, RouteKind};

use super::Importer;
use super::place::Place;
use crate::breaker::Breaker;
use crate::holding::Holding;
use crate::imports;

/// Why a destination stays although the kernel has lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// FRR is gone or starts anew.
    Restart,
    /// Too many went at once while their sessions are up.
    MassWithdrawal,
}

/// What bgpd says of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions<'a> {
    /// Nobody asked, or nobody may ask: no mass withdrawal is held.
    Unknown,
    /// bgpd runs and does not answer, as one does that is busy with a mass withdrawal: any session may be up.
    NoAnswer,
    /// Its peers, and whether their sessions are up.
    Peers(&'a BTreeMap<IpAddr, bool>),
}

impl Sessions<'_> {
    /// Whether a withdrawal over these next hops could be a mistake: a session that may have brought it is up. A next hop
    /// that is no peer was brought by any of them.
    fn believes(self, hops: &[IpAddr]) -> bool {
        match self {
            Self::Unknown => false,
            Self::NoAnswer => true,
            Self::Peers(peers) => hops.iter().any(|hop| match peers.get(hop) {
                Some(up) => *up,
                None => peers.values().any(|up| *up),
            }),
        }
    }
}

impl<R: Copy + Ord> Importer<R> {
    /// Judges every destination that stands and that the kernel has lost: it is held, or it goes. To be called after inputs, before [`Self::step`].
    pub fn judge(
        &mut self,
        now: Duration,
        holding: &Holding,
        breaker: &mut Breaker,
        sessions: Sessions<'_>,
    ) {
        breaker.went(now, std::mem::take(&mut self.went));
        let mut held: BTreeMap<Prefix, (Held, Vec<IpAddr>)> = BTreeMap::new();
        let mut suspects = Vec::new();
        for prefix in &self.withdrawn {
            let Some(place) = self.places.get(prefix) else {
                continue;
            };
            let hops = self.holdable(*prefix, place);
            let waits: Vec<IpAddr> = hops
                .iter()
                .filter(|hop| holding.waits_for(now, **hop))
                .copied()
                .collect();
            if !waits.is_empty() {
                held.insert(*prefix, (Held::Restart, waits));
            } else if !hops.is_empty() && sessions.believes(&hops) {
                suspects.push((*prefix, hops));
            }
        }
        if breaker.judge(now, self.standing, suspects.len()) {
            let of_breaker = |(prefix, hops)| (prefix, (Held::MassWithdrawal, hops));
            held.extend(suspects.into_iter().map(of_breaker));
        }
        let before: Vec<Prefix> = self.withdrawn.iter().copied().collect();
        for prefix in before {
            let held = held.remove(&prefix);
            if let Some(place) = self.places.get_mut(&prefix)
                && place.held != held
            {
                place.held = held;
                self.touch(prefix);
            }
        }
    }

    /// Believes of all rows that stand that the kernel once asked for them: a process that is new has not seen it, and what
    /// was held before it is held on. To be called once, when routes, rows and owners have been told for the first time.
    pub fn adopt(&mut self) {
        for prefix in &self.withdrawn {
            if let Some(place) = self.places.get_mut(prefix) {
                place.hops = place.rows.iter().map(|(hop, _)| *hop).collect();
                place.owner = self.owners.longest_match(prefix).cloned();
            }
        }
    }

    /// Of a withdrawn destination, the next hops over which it may be held: rows stand over them that the kernel asked for,
    /// its node is the same and there, and it would be imported if the kernel had it.
    fn holdable(&self, prefix: Prefix, place: &Place<R>) -> Vec<IpAddr> {
        let Some(world) = &self.world else {
            return Vec::new();
        };
        let owner = self.owners.longest_match(&prefix);
        let in_cluster = world.cluster_subnets.iter().any(|s| s.contains(&prefix));
        let link = world.gateway_link.filter(|link| self.rib.is_up(*link));
        let (Some(link), Some(table), true) = (
            link,
            self.table,
            owner == place.owner.as_ref() && (owner.is_some() || !in_cluster),
        ) else {
            return Vec::new();
        };
        let stands = |hop: &&IpAddr| place.rows.iter().any(|(row, _)| row == *hop);
        let leg = |hop: &IpAddr| Leg {
            gateway: Some(*hop),
            oif: link,
        };
        let as_it_was = KernelRoute {
            table,
            prefix,
            metric: 0,
            kind: RouteKind::Unicast,
            legs: place.hops.iter().filter(stands).map(leg).collect(),
        };
        imports::decide(&as_it_was, world).hops
    }
}
