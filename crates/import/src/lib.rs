//! The import of one network, step by step: routes, rows and everything between them as a value that is changed only where
//! something changed.
//! In: dumps and events of routes, links, rows as they come and go, the scope, who owns which subnet, looks at FRR.
//! Out: the next few rows to add and to remove. Invariant: after any sequence of inputs the rows that are wanted equal those
//! of a fresh value with the same inputs, retained destinations aside; a destination is never without a row because its next hop
//! changes; pod subnets come first. Not here: reading and writing; what a single route becomes (`decide`).
//!
//! ```text
//!   routes, links --> rib --decide--> Place.hops ---.
//!   rows ------------------------> Place.rows --- differ? --> due --step(n)--> add, remove
//!   FRR, suppression --judge--> retained ---- budget -----'
//! ```

pub mod budget;
mod counts;
pub mod coverage;
pub mod decide;
mod judge;
mod place;
pub mod retention;
mod step;
pub mod suppression;

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::hash;
use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, RouteEvent, RouteKind, TableId};
use rib::Rib;

pub use self::counts::Pods;
pub use self::judge::Sessions;
use self::place::Place;
pub use self::place::Retained;
use self::step::Difference;
pub use self::step::Step;
use crate::budget::{Budget, OVER_LIMIT, Rank};
use crate::decide::Decision;
use crate::suppression::Went;
use model::Scope;
use model::subnets::Subnets;

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
    owners: Subnets<BTreeSet<NodeName>>,
    places: BTreeMap<Prefix, Place<R>>,
    odd: BTreeSet<R>,
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
    /// Destinations and odd rows that a step has taken and whose rows have not changed since.
    sent: BTreeSet<Rank>,
    sent_odd: BTreeSet<R>,
    withdrawn: BTreeSet<Prefix>,
    skipped: BTreeMap<&'static str, BTreeSet<Prefix>>,
    /// How many destinations have rows.
    standing: usize,
    /// Those that lost their rows since the last judgement because the kernel had lost them, and for no other reason.
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
            odd: BTreeSet::new(),
            others: BTreeMap::new(),
            topology: BTreeMap::new(),
            bare: BTreeSet::new(),
            budget: Budget::new(limit),
            adds: BTreeSet::new(),
            removals: BTreeSet::new(),
            sent: BTreeSet::new(),
            sent_odd: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            skipped: BTreeMap::new(),
            standing: 0,
            went: Went::new(),
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
    pub fn set_owners(&mut self, owners: impl IntoIterator<Item = (Prefix, NodeName)>) {
        let mut by_subnet: BTreeMap<Prefix, BTreeSet<NodeName>> = BTreeMap::new();
        for (subnet, node) in owners {
            by_subnet.entry(subnet).or_default().insert(node);
        }
        let owners: Subnets<BTreeSet<NodeName>> = by_subnet.into_iter().collect();
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

    /// Takes a row of the gateway router that came, went or is another one now.
    pub fn row(&mut self, id: R, before: Option<&RouteRow>, after: Option<&RouteRow>) {
        match before {
            Some(RouteRow::Import(route)) => {
                let last = self
                    .places
                    .get(&route.prefix)
                    .filter(|place| !place.wanted && place.rows.iter().all(|(_, row)| *row == id));
                let lost = last.map(|place| self.retainable(route.prefix, place));
                let place = self.places.entry(route.prefix).or_default();
                place.rows.retain(|(_, row)| *row != id);
                if place.rows.is_empty() {
                    self.standing = self.standing.saturating_sub(1);
                    if let Some(hops) = lost.filter(|hops| !hops.is_empty()) {
                        *self.went.entry(hops).or_default() += 1;
                    }
                }
                self.rows = self.rows.saturating_sub(1);
                self.digest = self.digest.wrapping_sub(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Odd) => {
                self.odd.remove(&id);
                self.sent_odd.remove(&id);
            }
            Some(RouteRow::Other(Some(prefix))) => {
                self.other(*prefix, |others| &mut others.forward, false);
            }
            Some(RouteRow::Discard(prefix)) => {
                self.other(*prefix, |others| &mut others.discard, false);
            }
            Some(RouteRow::Topology { prefix, .. }) => {
                let rows = self.topology.entry(*prefix).or_default();
                rows.remove(&id);
                if rows.is_empty() {
                    self.topology.remove(prefix);
                }
                self.retake(*prefix);
            }
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
            Some(RouteRow::Other(Some(prefix))) => {
                self.other(*prefix, |others| &mut others.forward, true);
            }
            Some(RouteRow::Discard(prefix)) => {
                self.other(*prefix, |others| &mut others.discard, true);
            }
            Some(RouteRow::Topology { prefix, discards }) => {
                let rows = self.topology.entry(*prefix).or_default();
                rows.insert(id, *discards);
                self.retake(*prefix);
            }
            Some(RouteRow::Other(None)) | None => {}
        }
        for prefix in [before, after].into_iter().flatten().filter_map(of_row) {
            self.note_bare(prefix);
        }
    }

    /// Notes whether a destination has a fallback and neither that nor an imported row.
    fn note_bare(&mut self, prefix: Prefix) {
        let scope = self.scope.as_ref();
        let falls_back = scope.is_some_and(|w| w.fallbacks.contains_key(&prefix));
        let imported = self.places.get(&prefix).is_some_and(|p| !p.rows.is_empty());
        if falls_back && !imported && !self.topology.contains_key(&prefix) {
            self.bare.insert(prefix);
        } else {
            self.bare.remove(&prefix);
        }
    }

    /// Notes it of all destinations: an edited row does not say which one it was of, and what was on its way may not arrive.
    fn recompute_bare(&mut self) {
        self.bare.clear();
        let scope = self.scope.as_ref();
        let all: Vec<Prefix> =
            scope.map_or_else(Vec::new, |w| w.fallbacks.keys().copied().collect());
        for prefix in all {
            self.note_bare(prefix);
        }
    }

    /// A row of somebody else with this destination came or went.
    fn other(&mut self, prefix: Prefix, which: fn(&mut Others) -> &mut usize, came: bool) {
        let others = self.others.entry(prefix).or_default();
        let count = which(others);
        *count = if came {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        if others.forward + others.discard == 0 {
            self.others.remove(&prefix);
        }
        self.retake(prefix);
    }

    /// Another row than an imported one came to this destination, or went.
    fn retake(&mut self, prefix: Prefix) {
        let Some(scope) = &mut self.scope else {
            return;
        };
        let ours = self.topology.contains_key(&prefix) && !scope.fallbacks.contains_key(&prefix);
        let changed = if ours || self.others.contains_key(&prefix) {
            scope.taken.insert(prefix)
        } else {
            scope.taken.remove(&prefix)
        };
        if changed {
            self.decide(prefix);
        } else {
            self.touch(prefix);
        }
    }

    fn rank(&self, prefix: Prefix) -> Rank {
        let owned = self.owners.longest_match(&prefix).is_some();
        Rank::new(prefix, self.subnets(), owned)
    }

    /// The order of importance changed: everything that is kept in it is put in again.
    fn recompute_ranks(&mut self) {
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

    /// Decides over all routes where nothing is known of any destination yet: one way through them, instead of a search in
    /// each index for each of them.
    fn lay_out(&mut self) {
        let (Some(scope), Some(table)) = (&self.scope, self.table) else {
            return;
        };
        let mut places = Vec::new();
        for route in self.rib.view(table) {
            let Decision { hops, reasons } = crate::decide::decide(&route, scope);
            for reason in &reasons {
                let of_reason = self.skipped.entry(reason).or_default();
                of_reason.insert(route.prefix);
            }
            let wanted = !hops.is_empty();
            let owners = self.owners.longest_match(&route.prefix);
            let place = Place {
                kernel: Some(route.kind == RouteKind::Unicast),
                owners: owners.filter(|_| wanted).cloned().unwrap_or_default(),
                wanted,
                hops,
                reasons,
                ..Place::default()
            };
            places.push((route.prefix, place));
        }
        self.places = places.into_iter().collect();
        let wanted = self.places.iter().filter(|(_, place)| place.wanted);
        let ranks: BTreeSet<Rank> = wanted.map(|(prefix, _)| self.rank(*prefix)).collect();
        self.sent.retain(|rank| !ranks.contains(rank));
        self.budget = Budget::laid_out(self.budget.limit(), ranks);
        self.adds.extend(self.budget.kept());
        let over: BTreeSet<Prefix> = self.budget.cut().map(|rank| rank.prefix).collect();
        if !over.is_empty() {
            self.skipped.entry(OVER_LIMIT).or_default().extend(over);
        }
    }

    fn decide_all(&mut self) {
        if self.places.is_empty() {
            return self.lay_out();
        }
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
        let Some(scope) = &self.scope else {
            // Decided as soon as there is one.
            return;
        };
        let route = self.table.and_then(|table| self.rib.best_of(table, prefix));
        let kernel = route.as_ref().map(|r| r.kind == RouteKind::Unicast);
        let Decision { hops, reasons } = route
            .map(|route| crate::decide::decide(&route, scope))
            .unwrap_or_default();
        let place = self.places.entry(prefix).or_default();
        place.kernel = kernel;
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
            place.owners = self
                .owners
                .longest_match(&prefix)
                .cloned()
                .unwrap_or_default();
            place.retained = None;
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
            place.retained = None;
            place.lost = None;
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
        let Difference { add, remove, .. } = self.difference(rank);
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

/// The destination of a row, where it is known.
fn of_row(row: &RouteRow) -> Option<Prefix> {
    match row {
        RouteRow::Import(route) => Some(route.prefix),
        RouteRow::Discard(prefix) | RouteRow::Topology { prefix, .. } => Some(*prefix),
        RouteRow::Other(prefix) => *prefix,
        RouteRow::Odd => None,
    }
}

/// A number that stands for a row; their sum stands for the set.
fn identity(route: &ImportedRoute) -> u64 {
    hash::fnv1a64(&format!("{} {}", route.prefix, route.nexthop))
}

#[cfg(test)]
mod tests;
