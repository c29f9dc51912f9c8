//! Rows of the gateway router as they come and go: imported ones, the topology's, and others'.
//! In: a row before and after. Out: changed places. Invariant: what was counted for a row that goes is taken back whole.
//! Not here: what is to be written (`step`).

use model::address::Prefix;
use model::hash;
use model::nb::{ImportedRoute, RouteRow};

use crate::{Importer, Others};

impl<R: Copy + Ord> Importer<R> {
    /// Takes a row of the gateway router that came, went or is another one now.
    pub fn row(&mut self, id: R, before: Option<&RouteRow>, after: Option<&RouteRow>) {
        self.forget_row(id, before);
        self.note_row(id, after);
        for prefix in [before, after].into_iter().flatten().filter_map(of_row) {
            self.note_bare(prefix);
        }
    }

    fn forget_row(&mut self, id: R, before: Option<&RouteRow>) {
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
                    self.existing = self.existing.saturating_sub(1);
                    if let Some(hops) = lost.filter(|hops| !hops.is_empty()) {
                        *self.went.entry(hops).or_default() += 1;
                    }
                }
                self.rows = self.rows.saturating_sub(1);
                self.digest = self.digest.wrapping_sub(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Malformed) => {
                self.malformed.remove(&id);
                self.sent_malformed.remove(&id);
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
    }

    fn note_row(&mut self, id: R, after: Option<&RouteRow>) {
        match after {
            Some(RouteRow::Import(route)) => {
                let place = self.places.entry(route.prefix).or_default();
                self.existing += usize::from(place.rows.is_empty());
                if place.rows.is_empty() {
                    // Most have one: a vector that grows by itself has capacity for four.
                    place.rows.reserve_exact(1);
                }
                place.rows.push((route.nexthop, id));
                self.rows += 1;
                self.digest = self.digest.wrapping_add(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Malformed) => drop(self.malformed.insert(id)),
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
    }

    /// Notes whether a destination has a fallback and neither that nor an imported row.
    pub(super) fn note_bare(&mut self, prefix: Prefix) {
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
    pub(super) fn recompute_bare(&mut self) {
        self.bare.clear();
        let scope = self.scope.as_ref();
        let all: Vec<Prefix> =
            scope.map_or_else(Vec::new, |w| w.fallbacks.keys().copied().collect());
        for prefix in all {
            self.note_bare(prefix);
        }
    }

    /// A row of somebody else with this destination came or went.
    pub(super) fn other(
        &mut self,
        prefix: Prefix,
        which: fn(&mut Others) -> &mut usize,
        came: bool,
    ) {
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
    pub(super) fn retake(&mut self, prefix: Prefix) {
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
}

/// The destination of a row, where it is known.
fn of_row(row: &RouteRow) -> Option<Prefix> {
    match row {
        RouteRow::Import(route) => Some(route.prefix),
        RouteRow::Discard(prefix) | RouteRow::Topology { prefix, .. } => Some(*prefix),
        RouteRow::Other(prefix) => *prefix,
        RouteRow::Malformed => None,
    }
}

/// A number that stands for a row; their sum stands for the set.
fn identity(route: &ImportedRoute) -> u64 {
    hash::fnv1a64(&format!("{} {}", route.prefix, route.nexthop))
}
