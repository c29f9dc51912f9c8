//! What each destination becomes, and what hangs on that: the order of importance, the limit, what is to be written.
//! In: destinations whose route, rows or rank changed. Out: their places, and the sets of those with work to do.
//! Invariant: every set is a function of the places. Not here: what a single route becomes (`decide`).

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::route::RouteKind;

use crate::Importer;
use crate::budget::{Budget, OVER_LIMIT, Rank};
use crate::decide::Decision;
use crate::place::Place;
use crate::step::Difference;

impl<R: Copy + Ord> Importer<R> {
    pub(super) fn rank(&self, prefix: Prefix) -> Rank {
        let owned = self.owners.longest_match(&prefix).is_some();
        Rank::new(prefix, self.subnets(), owned)
    }

    /// The order of importance changed: everything that is kept in it is put in again.
    pub(super) fn recompute_ranks(&mut self) {
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
    pub(super) fn lay_out(&mut self) {
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
                hops: hops.into(),
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

    pub(super) fn decide_all(&mut self) {
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
    pub(super) fn decide(&mut self, prefix: Prefix) {
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
            place.hops = hops.into();
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
    pub(super) fn touch(&mut self, prefix: Prefix) {
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
    pub(super) fn check(&mut self, rank: &Rank) {
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
