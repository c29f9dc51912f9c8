//! What becomes of destinations that stand and that the kernel has lost.
//! In: probes of FRR, the suppression, bgpd's sessions. Out: each is retained, or goes. What has no other reason to go waits for a probe
//! at FRR that was taken after the loss.
//! Invariant: nothing is retained for a node that is gone or that lost the subnet, over a link that is down, where another
//! writer took the destination, or where the kernel has another route for it. Not here: for how long (`retention`, `suppression`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use model::address::Prefix;
use model::route::{KernelRoute, RouteKind, RoutePath};

use crate::Importer;
use crate::decide;
use crate::place::{Place, Retained};
use crate::retention::{Peer, Retention};
use crate::suppression::Suppression;

/// What bgpd says of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions<'a> {
    /// Nobody asked, or nobody may ask: no mass withdrawal is retained.
    Unknown,
    /// bgpd runs and does not answer, as one does that is busy with a mass withdrawal: any session may be up.
    NoAnswer,
    /// Its peers, and whether their sessions are up.
    Peers {
        /// By how bgpd's configuration names them.
        peers: &'a BTreeMap<Peer, bool>,
        /// The interface that imported routes lead to. Source: `[gateway] interface`.
        interface: &'a str,
    },
}

impl Sessions<'_> {
    /// Whether a withdrawal over these next hops could be a mistake: a session that may have brought it is up. A next hop
    /// that is no peer was brought by any of them; a link-local one by the peer that is named by the link, or else by a
    /// neighbor on it whose global address is its peer's name, and which one is not known: while one of those is down, that
    /// explains the loss.
    fn believes(self, hops: &[IpAddr]) -> bool {
        match self {
            Self::Unknown => false,
            Self::NoAnswer => true,
            Self::Peers { peers, interface } => {
                let any = || peers.values().any(|up| *up);
                let of_link = || peers.get(&Peer::Interface(interface.to_owned()));
                let all_on_link = || {
                    let mut on_link = peers.iter().filter(|(peer, _)| is_ipv6(peer));
                    on_link.all(|(_, up)| *up)
                };
                hops.iter().any(|hop| {
                    let link_local = is_link_local(*hop);
                    let peer = peers.get(&Peer::Address(*hop));
                    match peer.or_else(|| of_link().filter(|_| link_local)) {
                        Some(up) => *up,
                        None => any() && (!link_local || all_on_link()),
                    }
                })
            }
        }
    }
}

fn is_ipv6(peer: &Peer) -> bool {
    matches!(peer, Peer::Address(IpAddr::V6(_)))
}

fn is_link_local(hop: IpAddr) -> bool {
    matches!(hop, IpAddr::V6(hop) if hop.is_unicast_link_local())
}

impl<R: Copy + Ord> Importer<R> {
    /// Evaluates every destination that stands and that the kernel has lost: it is retained, or it goes. To be called after inputs, before [`Self::step`].
    pub fn evaluate_losses(
        &mut self,
        now: Duration,
        retention: &Retention,
        suppression: &mut Suppression,
        sessions: Sessions<'_>,
    ) {
        suppression.went(now, std::mem::take(&mut self.went));
        if let Sessions::Peers { .. } = sessions {
            suppression.explain(|hops| sessions.believes(hops));
        }
        let mass = self.is_mass(now, suppression);
        for prefix in &self.withdrawn {
            if let Some(place) = self.places.get_mut(prefix) {
                place.lost.get_or_insert(now);
            }
        }
        let mut retained: BTreeMap<Prefix, (Retained, Vec<IpAddr>)> = BTreeMap::new();
        let (mut suspects, mut unexplained) = (Vec::new(), 0);
        for prefix in &self.withdrawn {
            let Some(place) = self.places.get(prefix) else {
                continue;
            };
            let hops = self.retainable(*prefix, place);
            let lost = place.lost.unwrap_or(now);
            let waits: Vec<IpAddr> = hops
                .iter()
                .filter(|hop| retention.waits_for(now, **hop))
                .copied()
                .collect();
            if !waits.is_empty() {
                retained.insert(*prefix, (Retained::Restart, waits));
            } else if !hops.is_empty() && !retention.explains(now, lost, mass) {
                unexplained += usize::from(sessions.believes(&hops));
                retained.insert(*prefix, (Retained::Unexplained, hops));
            } else if !hops.is_empty() && sessions.believes(&hops) {
                suspects.push((*prefix, hops));
            }
        }
        // What was lost since the probe belongs to the same withdrawal; alone it may be FRR's end.
        let going = if suspects.is_empty() {
            0
        } else {
            suspects.len() + unexplained
        };
        if suppression.evaluate(now, self.existing, going) {
            let of_suppression = |(prefix, hops)| (prefix, (Retained::MassWithdrawal, hops));
            retained.extend(suspects.into_iter().map(of_suppression));
        }
        let before: Vec<Prefix> = self.withdrawn.iter().copied().collect();
        for prefix in before {
            let retained = retained.remove(&prefix).map(Box::new);
            if let Some(place) = self.places.get_mut(&prefix)
                && place.retained != retained
            {
                place.retained = retained;
                self.touch(prefix);
            }
        }
    }

    /// Whether so much is withdrawn that FRR's sessions have to be asked for before anything goes.
    pub fn is_mass(&self, now: Duration, suppression: &mut Suppression) -> bool {
        suppression.suspects(now, self.existing, self.withdrawn.len()) || suppression.is_open()
    }

    /// Believes of all rows that stand that the kernel once asked for them: a process that is new has not seen it, and what
    /// was retained before it is retained on. To be called once, when routes, rows and owners have been reported for the first time.
    pub fn adopt(&mut self) {
        for prefix in &self.withdrawn {
            if let Some(place) = self.places.get_mut(prefix) {
                place.hops = place.rows.iter().map(|(hop, _)| *hop).collect();
                place.owners = self
                    .owners
                    .longest_match(prefix)
                    .cloned()
                    .unwrap_or_default();
            }
        }
    }

    /// Of a withdrawn destination, the next hops over which it may be retained: rows stand over them that the kernel asked for
    /// and has no route at this moment, its node is the same and there (an aggregate covers nodes that are), and it would be
    /// imported if the kernel had it.
    pub(super) fn retainable(&self, prefix: Prefix, place: &Place<R>) -> Vec<IpAddr> {
        let Some(scope) = &self.scope else {
            return Vec::new();
        };
        let owners = self.owners.longest_match(&prefix);
        // Another node that claims the subnet too takes nothing away from the one that had it.
        let same = match owners {
            Some(now) => now.iter().any(|node| place.owners.contains(node)),
            None => place.owners.is_empty(),
        };
        let in_cluster = scope.cluster_subnets.iter().any(|s| s.contains(&prefix));
        let somebodys = !in_cluster || owners.is_some() || self.owners.any_within(&prefix);
        let link = scope.gateway_link.filter(|link| self.rib.is_up(*link));
        let (Some(link), Some(table), true) = (
            link,
            self.table,
            place.kernel.is_none() && same && somebodys,
        ) else {
            return Vec::new();
        };
        let stands = |hop: &&IpAddr| place.rows.iter().any(|(row, _)| row == *hop);
        let path = |hop: &IpAddr| RoutePath {
            gateway: Some(*hop),
            oif: link,
        };
        let as_it_was = KernelRoute {
            table,
            prefix,
            metric: 0,
            kind: RouteKind::Unicast,
            paths: place.hops.iter().filter(stands).map(path).collect(),
        };
        decide::decide(&as_it_was, scope).hops
    }
}
