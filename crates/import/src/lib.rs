//! The import of one network, step by step: routes, rows and everything between them as a value that is changed only where
//! something changed.
//! In: dumps and events of routes, links, rows as they come and go, the scope, who owns which subnet, probes of FRR.
//! Out: the next few rows to add and to remove. Invariant: after any sequence of inputs the rows that are wanted equal those
//! of a fresh value with the same inputs, retained destinations aside; a destination is never without a row because its next hop
//! changes; pod subnets come first. Not here: reading and writing; what a single route becomes (`decide`).
//!
//! ```text
//!   routes, links --> rib --decide--> Place.hops ---.
//!   rows ------------------------> Place.rows --- differ? --> due --step(n)--> add, remove
//!   FRR, suppression --losses--> retained ---- budget -----'
//! ```

pub mod budget;
mod counts;
pub mod coverage;
pub mod decide;
mod destinations;
mod forwarding;
mod losses;
mod place;
pub mod retention;
mod rows;
mod step;
pub mod suppression;

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::route::{KernelRoute, RouteEvent, TableId};
use rib::Rib;

pub use self::counts::Pods;
pub use self::losses::Sessions;
use self::place::Place;
pub use self::place::Retained;
pub use self::step::Step;
use crate::budget::{Budget, Rank};
use crate::suppression::Went;
use model::Scope;
use model::subnets::{Owners, Subnets};

/// How many rows of others a destination has.
#[derive(Debug, Clone, Copy, Default)]
struct Others {
    forward: usize,
    discard: usize,
}

/// The import of one network.
#[derive(Debug, Clone)]
pub struct Importer<R> {
    /// `None`: the network has no table, and so no routes.
    table: Option<TableId>,
    rib: Rib,
    scope: Option<Scope>,
    owners: Subnets<Owners>,
    places: BTreeMap<Prefix, Place<R>>,
    malformed: BTreeSet<R>,
    /// Rows of others by destination.
    others: BTreeMap<Prefix, Others>,
    /// Rows of our topology by destination, and whether each drops.
    topology: BTreeMap<Prefix, BTreeMap<R, bool>>,
    /// Destinations with a fallback that have neither it nor an imported row, and nothing of it on its way.
    bare: BTreeSet<Prefix>,
    budget: Budget,
    /// Destinations with rows to add, or to exchange.
    adds: BTreeSet<Rank>,
    /// Destinations with rows to remove and none to add.
    removals: BTreeSet<Rank>,
    /// Destinations and malformed rows that a step has taken and whose rows have not changed since.
    sent: BTreeSet<Rank>,
    sent_malformed: BTreeSet<R>,
    withdrawn: BTreeSet<Prefix>,
    skipped: BTreeMap<&'static str, BTreeSet<Prefix>>,
    /// How many destinations have rows.
    existing: usize,
    /// Those that lost their rows since the last evaluation because the kernel had lost them, and for no other reason.
    went: Went,
    rows: usize,
    digest: u64,
}

impl<R: Copy + Ord> Importer<R> {
    /// An empty one: no table, no routes, no links, no rows, no scope. `limit` in destinations.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            table: None,
            rib: Rib::default(),
            scope: None,
            owners: Subnets::default(),
            places: BTreeMap::new(),
            malformed: BTreeSet::new(),
            others: BTreeMap::new(),
            topology: BTreeMap::new(),
            bare: BTreeSet::new(),
            budget: Budget::new(limit),
            adds: BTreeSet::new(),
            removals: BTreeSet::new(),
            sent: BTreeSet::new(),
            sent_malformed: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            skipped: BTreeMap::new(),
            existing: 0,
            went: Went::new(),
            rows: 0,
            digest: 0,
        }
    }

    /// Takes another limit, in destinations: what goes over it goes, what is no longer over it comes.
    /// Source: `[limits] max-imported-routes`.
    pub fn set_limit(&mut self, limit: usize) {
        for rank in self.budget.set_limit(limit) {
            self.check(&rank);
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

    /// Takes the scope, but for what other rows take: that is reported row by row. Everything is decided again where it changed.
    pub fn set_scope(&mut self, mut scope: Scope) {
        let ours = self.topology.keys();
        let ours = ours.filter(|prefix| !scope.fallbacks.contains_key(prefix));
        scope.taken = self.others.keys().chain(ours).copied().collect();
        if self.scope.as_ref() == Some(&scope) {
            return;
        }
        let pods = self.scope.as_ref().map(|w| w.cluster_subnets.as_slice());
        let other_pods = pods != Some(scope.cluster_subnets.as_slice());
        self.scope = Some(scope);
        if other_pods {
            self.recompute_ranks();
        }
        self.recompute_bare();
        self.decide_all();
    }

    /// Takes who owns which subnet of the network now; one subnet may have several owners, of whom all but one are wrong.
    pub fn set_owners(&mut self, owners: Subnets<Owners>) {
        if owners == self.owners {
            return;
        }
        let before = std::mem::replace(&mut self.owners, owners);
        let mut ranked = Vec::new();
        for (prefix, place) in &mut self.places {
            let owner = self.owners.longest_match(prefix);
            let was_owned = before.longest_match(prefix).is_some();
            if was_owned != owner.is_some() {
                ranked.push((*prefix, was_owned));
            }
            // What the kernel has lost keeps the owner of its time: another one now is why it is not retained.
            if place.wanted {
                place.owners = owner.cloned().unwrap_or_default();
            }
        }
        for (prefix, was_owned) in ranked {
            let rank = Rank::new(prefix, self.subnets(), was_owned);
            self.forget(&rank);
            self.touch(prefix);
        }
    }

    /// A destination has another rank now: what is known under the old one goes.
    fn forget(&mut self, rank: &Rank) {
        self.adds.remove(rank);
        self.removals.remove(rank);
        self.sent.remove(rank);
        if let Some(moved) = self.budget.remove(rank) {
            self.check(&moved);
        }
    }

    fn subnets(&self) -> &[Prefix] {
        let pods = self.scope.as_ref().map(|w| w.cluster_subnets.as_slice());
        pods.unwrap_or_default()
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
        let ours = |(table, _): &(TableId, Prefix)| Some(*table) == self.table;
        let changed: Vec<Prefix> = changed.into_iter().filter(ours).map(|(_, p)| p).collect();
        let count = changed.len();
        if self.places.is_empty() {
            self.lay_out();
        } else {
            for prefix in changed {
                self.decide(prefix);
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
}

#[cfg(test)]
mod tests;
