//! The import of one network, step by step: routes, rows and everything between them as a value that is changed only where
//! something changed.
//! In: dumps and events of routes, links, rows as they come and go, the world, who owns which subnet, looks at FRR.
//! Out: the next few rows to add and to remove. Invariant: after any sequence of inputs the rows that are wanted equal those
//! of a fresh value with the same inputs, held destinations aside; a destination is never without a row because its next hop
//! changes; pod subnets come first. Not here: reading and writing; what a single route becomes (`imports`).
//!
//! ```text
//!   routes, links --> rib --decide--> Place.hops ---.
//!   rows ------------------------> Place.rows --- differ? --> due --step(n)--> add, remove
//!   FRR, breaker --judge--> held ---- budget -----'
//! ```

mod judge;
mod place;
mod step;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::hash;
use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, RouteEvent, TableId};
use rib::Rib;

pub use self::judge::{Held, Sessions};
use self::place::Place;
pub use self::step::Step;
use crate::budget::{Budget, OVER_LIMIT, Rank};
use crate::imports::{self, Decision, ImportWorld};
use crate::subnets::Subnets;

/// The import of one network.
#[derive(Debug, Clone)]
pub struct Importer<R> {
    /// `None`: the network has no table, and so no routes.
    table: Option<TableId>,
    rib: Rib,
    world: Option<ImportWorld>,
    owners: Subnets<NodeName>,
    places: BTreeMap<Prefix, Place<R>>,
    odd: BTreeSet<R>,
    /// How many rows of others have a destination.
    others: BTreeMap<Prefix, usize>,
    budget: Budget,
    /// Destinations with rows to add, or to exchange.
    adds: BTreeSet<Rank>,
    /// Destinations with rows to remove and none to add.
    removals: BTreeSet<Rank>,
    /// Destinations and odd rows that a step has taken and whose rows have not changed since.
    sent: BTreeSet<Rank>,
    sent_odd: BTreeSet<R>,
    withdrawn: BTreeSet<Prefix>,
    skipped: BTreeMap<&'static str, BTreeSet<Prefix>>,
    /// How many destinations have rows.
    standing: usize,
    /// How many lost their rows since the last judgement, because the kernel had lost them.
    went: usize,
    rows: usize,
    digest: u64,
}

impl<R: Copy + Ord> Importer<R> {
    /// An empty one: no table, no routes, no links, no rows, no world. `limit` in destinations.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            table: None,
            rib: Rib::default(),
            world: None,
            owners: Subnets::default(),
            places: BTreeMap::new(),
            odd: BTreeSet::new(),
            others: BTreeMap::new(),
            budget: Budget::new(limit),
            adds: BTreeSet::new(),
            removals: BTreeSet::new(),
            sent: BTreeSet::new(),
            sent_odd: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            skipped: BTreeMap::new(),
            standing: 0,
            went: 0,
            rows: 0,
            digest: 0,
        }
    }

    /// Takes the network's routing table. Routes of another one before it are forgotten: a dump has to follow.
    pub fn set_table(&mut self, table: Option<TableId>) {
        if self.table == table {
            return;
        }
        self.dump(Vec::new());
        self.table = table;
    }

    /// Takes the world, but for what other rows take: that is told row by row. Everything is decided anew where it changed.
    pub fn set_world(&mut self, mut world: ImportWorld) {
        world.taken = self.others.keys().copied().collect();
        if self.world.as_ref() == Some(&world) {
            return;
        }
        let pods = self.world.as_ref().map(|w| w.cluster_subnets.as_slice());
        let other_pods = pods != Some(world.cluster_subnets.as_slice());
        self.world = Some(world);
        if other_pods {
            self.rank_anew();
        }
        self.decide_all();
    }

    /// Takes who owns which subnet of the network now.
    pub fn set_owners(&mut self, owners: impl IntoIterator<Item = (Prefix, NodeName)>) {
        let owners: Subnets<NodeName> = owners.into_iter().collect();
        if owners == self.owners {
            return;
        }
        self.owners = owners;
        for (prefix, place) in &mut self.places {
            // What the kernel has lost keeps the owner of its time: another one now is why it is not held.
            if place.wanted {
                place.owner = self.owners.longest_match(prefix).cloned();
            }
        }
    }

    /// Takes the state of all links, by interface index.
    pub fn set_links(&mut self, links: BTreeMap<u32, bool>) {
        for (table, prefix) in self.rib.set_links(links) {
            if Some(table) == self.table {
                self.decide(prefix);
            }
        }
    }

    /// Takes a whole dump of the table's routes. Returns how many destinations differ from what was known.
    pub fn dump(&mut self, routes: Vec<KernelRoute>) -> usize {
        let changed = self.rib.replace(routes);
        let mut count = 0;
        for (table, prefix) in changed {
            if Some(table) == self.table {
                self.decide(prefix);
                count += 1;
            }
        }
        count
    }

    /// Takes events of routes of one protocol. False: they do not tell enough, a dump has to.
    #[must_use]
    pub fn events(&mut self, protocol: u8, events: Vec<RouteEvent>) -> bool {
        let Some(table) = self.table else {
            return true;
        };
        let Some(changed) = self.rib.apply(protocol, table, events) else {
            return false;
        };
        for (_, prefix) in changed {
            self.decide(prefix);
        }
        true
    }

    /// Takes a row of the gateway router that came, went or is another one now.
    pub fn row(&mut self, id: R, before: Option<&RouteRow>, after: Option<&RouteRow>) {
        match before {
            Some(RouteRow::Import(route)) => {
                let place = self.places.entry(route.prefix).or_default();
                place.rows.retain(|(_, row)| *row != id);
                if place.rows.is_empty() {
                    self.standing = self.standing.saturating_sub(1);
                    self.went += usize::from(!place.wanted);
                }
                self.rows = self.rows.saturating_sub(1);
                self.digest = self.digest.wrapping_sub(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Odd) => {
                self.odd.remove(&id);
                self.sent_odd.remove(&id);
            }
            Some(RouteRow::Other(Some(prefix))) => self.other(*prefix, false),
            Some(RouteRow::Other(None)) | None => {}
        }
        match after {
            Some(RouteRow::Import(route)) => {
                let place = self.places.entry(route.prefix).or_default();
                self.standing += usize::from(place.rows.is_empty());
                place.rows.push((route.nexthop, id));
                self.rows += 1;
                self.digest = self.digest.wrapping_add(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Odd) => drop(self.odd.insert(id)),
            Some(RouteRow::Other(Some(prefix))) => self.other(*prefix, true),
            Some(RouteRow::Other(None)) | None => {}
        }
    }

    /// A row of somebody else with this destination came or went.
    fn other(&mut self, prefix: Prefix, came: bool) {
        let count = self.others.entry(prefix).or_default();
        *count = if came {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        let taken = *count > 0;
        if !taken {
            self.others.remove(&prefix);
        }
        let Some(world) = &mut self.world else {
            return;
        };
        let changed = if taken {
            world.taken.insert(prefix)
        } else {
            world.taken.remove(&prefix)
        };
        if changed {
            self.decide(prefix);
        }
    }

    fn rank(&self, prefix: Prefix) -> Rank {
        let pods = self.world.as_ref().map(|w| w.cluster_subnets.as_slice());
        Rank::new(prefix, pods.unwrap_or_default())
    }

    /// The order of importance changed: everything that is kept in it is put in again.
    fn rank_anew(&mut self) {
        let limit = self.budget.limit();
        self.budget = Budget::new(limit);
        self.adds.clear();
        self.removals.clear();
        self.sent.clear();
        let all: Vec<Prefix> = self.places.keys().copied().collect();
        for prefix in all {
            self.touch(prefix);
        }
    }

    fn decide_all(&mut self) {
        let view = self
            .table
            .into_iter()
            .flat_map(|table| self.rib.view(table));
        let routed: Vec<Prefix> = view.map(|route| route.prefix).collect();
        let mut all: BTreeSet<Prefix> = self.places.keys().copied().collect();
        all.extend(routed);
        for prefix in all {
            self.decide(prefix);
        }
    }

    /// Decides over a destination's route as it is now.
    fn decide(&mut self, prefix: Prefix) {
        let Some(world) = &self.world else {
            // Decided as soon as there is one.
            return;
        };
        let route = self.table.and_then(|table| self.rib.best_of(table, prefix));
        let forwards = route.as_ref().is_some_and(|r| !r.legs.is_empty());
        let Decision { hops, reasons } = route
            .map(|route| imports::decide(&route, world))
            .unwrap_or_default();
        let place = self.places.entry(prefix).or_default();
        place.forwards = forwards;
        if place.reasons != reasons {
            for reason in place.reasons.iter().filter(|r| !reasons.contains(r)) {
                unskip(&mut self.skipped, reason, &prefix);
            }
            for reason in &reasons {
                self.skipped.entry(reason).or_default().insert(prefix);
            }
            place.reasons = reasons;
        }
        place.wanted = !hops.is_empty();
        if place.wanted {
            place.hops = hops;
            place.owner = self.owners.longest_match(&prefix).cloned();
            place.held = None;
        }
        self.touch(prefix);
    }

    /// Brings everything that hangs on a destination in step with it.
    fn touch(&mut self, prefix: Prefix) {
        let rank = self.rank(prefix);
        let Some(place) = self.places.get_mut(&prefix) else {
            return;
        };
        if place.is_withdrawn() {
            self.withdrawn.insert(prefix);
        } else {
            self.withdrawn.remove(&prefix);
            place.held = None;
        }
        let moved = if place.eligible().is_empty() {
            let moved = self.budget.remove(&rank);
            unskip(&mut self.skipped, OVER_LIMIT, &prefix);
            moved
        } else {
            self.budget.insert(rank)
        };
        self.check(&rank);
        if let Some(moved) = moved {
            self.check(&moved);
        }
        if self.places.get(&prefix).is_some_and(Place::is_empty) {
            self.places.remove(&prefix);
        }
    }

    /// Notes whether a destination has rows to add or to remove, and whether it is over the limit.
    fn check(&mut self, rank: &Rank) {
        let eligible = self.places.get(&rank.prefix);
        let eligible = eligible.is_some_and(|place| !place.eligible().is_empty());
        if eligible && !self.budget.keeps(rank) {
            self.skipped
                .entry(OVER_LIMIT)
                .or_default()
                .insert(rank.prefix);
        } else {
            unskip(&mut self.skipped, OVER_LIMIT, &rank.prefix);
        }
        self.sent.remove(rank);
        let (add, remove) = self.difference(rank);
        if add.is_empty() {
            self.adds.remove(rank);
        } else {
            self.adds.insert(*rank);
        }
        if add.is_empty() && !remove.is_empty() {
            self.removals.insert(*rank);
        } else {
            self.removals.remove(rank);
        }
    }
}

fn unskip(
    skipped: &mut BTreeMap<&'static str, BTreeSet<Prefix>>,
    reason: &'static str,
    prefix: &Prefix,
) {
    if let Some(of_reason) = skipped.get_mut(reason) {
        of_reason.remove(prefix);
        if of_reason.is_empty() {
            skipped.remove(reason);
        }
    }
}

/// A number that stands for a row; their sum stands for the set.
fn identity(route: &ImportedRoute) -> u64 {
    hash::fnv1a64(&format!("{} {}", route.prefix, route.nexthop))
}

#[cfg(test)]
mod tests;
