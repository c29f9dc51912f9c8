//! The next few rows to write.
//! In: what differs. Out: rows to add and to remove, the most important first; what is on its way.
//! Invariant: nothing is in two steps at once; what takes the place of a row is in the same step.
//! Not here: writing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::nb::{Columns, ImportedRoute};

use model::address::Prefix;

use crate::Importer;
use crate::budget::Rank;
use crate::place::Place;

/// Rows to write in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<R> {
    /// Routes to add.
    pub add: Vec<ImportedRoute>,
    /// Rows to remove: imported ones, and the topology's where an imported one takes their place.
    pub remove: Vec<R>,
    /// Rows of the topology that come back because the imported ones of their prefix go.
    pub restore: Vec<Columns>,
}

/// What differs at a destination.
#[derive(Debug)]
pub(super) struct Difference<R> {
    /// Next hops without a row.
    pub(super) add: Vec<IpAddr>,
    /// Rows that are surplus: over another next hop, or a second one, or the topology's where it gives way.
    pub(super) remove: Vec<R>,
    /// Whether the topology's rows come back.
    restore: bool,
}

impl<R> Step<R> {
    /// True where there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty() && self.restore.is_empty()
    }
}

impl<R: Copy + Ord> Importer<R> {
    /// The next rows to write, at most `most` unless one destination alone has more, in the order of importance; empty
    /// where rows and routes agree, or all that differs is on its way. With `removals`, and when there is nothing left to
    /// add, rows that nothing takes the place of are among them: not to be asked for while additions are on their way.
    /// What a step holds is not in another one until its rows change, or [`Self::resume`].
    pub fn step(&mut self, most: usize, removals: bool) -> Step<R> {
        let mut step = Step {
            add: Vec::new(),
            remove: Vec::new(),
            restore: Vec::new(),
        };
        let mut taken = Vec::new();
        let empty = BTreeSet::new();
        let removals = if removals { &self.removals } else { &empty };
        for rank in self.adds.iter().chain(removals) {
            let Difference {
                add,
                remove,
                restore,
            } = self.difference(rank);
            let size = step.add.len() + step.remove.len();
            if size > 0 && size + add.len() + remove.len() > most {
                break;
            }
            let prefix = rank.prefix;
            let route = |nexthop| ImportedRoute { prefix, nexthop };
            step.add.extend(add.into_iter().map(route));
            step.remove.extend(remove);
            if restore {
                let fallback = self.fallback(&prefix).into_iter().flatten();
                step.restore.extend(fallback.cloned());
            }
            taken.push(*rank);
        }
        let whole = taken.len() == self.adds.len() + removals.len();
        if whole && (!removals.is_empty() || self.adds.is_empty()) {
            let left = most.saturating_sub(step.add.len() + step.remove.len());
            // An edited row does not say whose destination it stands for.
            let known = self.scope.as_ref().is_some_and(|w| w.fallbacks_known);
            let left = if known { left } else { 0 };
            let malformed: Vec<R> = self.malformed.iter().take(left).copied().collect();
            step.remove.extend(&malformed);
            for id in malformed {
                self.malformed.remove(&id);
                self.sent_malformed.insert(id);
            }
            // Nothing else brings the topology's back at once where it gave way to a row that is gone or has been edited.
            let is_wanted = |prefix: &&Prefix| {
                let place = self.places.get(*prefix);
                place.is_some_and(Place::is_wanted) && self.budget.keeps(&self.rank(**prefix))
            };
            let bare = self.bare.iter().filter(|prefix| !is_wanted(prefix));
            let bare: Vec<Prefix> = bare.copied().collect();
            for prefix in bare {
                let fallback = self.fallback(&prefix).into_iter().flatten();
                step.restore.extend(fallback.cloned());
                self.bare.remove(&prefix);
            }
        }
        for rank in taken {
            self.adds.remove(&rank);
            self.removals.remove(&rank);
            self.sent.insert(rank);
        }
        step
    }

    /// How many destinations and malformed rows a step has taken and whose rows have not changed since.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.sent.len() + self.sent_malformed.len()
    }

    /// Nothing is on its way any more: what did not arrive is due again.
    pub fn resume(&mut self) {
        self.malformed.append(&mut self.sent_malformed);
        self.recompute_bare();
        for rank in std::mem::take(&mut self.sent) {
            self.check(&rank);
        }
    }

    /// What differs at a destination.
    pub(super) fn difference(&self, rank: &Rank) -> Difference<R> {
        let Some(place) = self.places.get(&rank.prefix) else {
            return Difference {
                add: Vec::new(),
                remove: Vec::new(),
                restore: false,
            };
        };
        let wanted = if self.budget.keeps(rank) {
            place.eligible()
        } else {
            &[]
        };
        let stands = |hop: &&IpAddr| place.rows.iter().any(|(row, _)| row == *hop);
        let add = wanted.iter().filter(|hop| !stands(hop)).copied().collect();
        let mut seen = BTreeSet::new();
        let surplus = |(hop, _): &&(IpAddr, R)| !wanted.contains(hop) || !seen.insert(*hop);
        let remove = place.rows.iter().filter(surplus).map(|(_, id)| *id);
        let mut remove: Vec<R> = remove.collect();
        let mut restore = false;
        if wanted.is_empty() && self.may_fall_back(&rank.prefix) {
            remove.clear();
        }
        if self.fallback(&rank.prefix).is_some() {
            let own = self.topology.get(&rank.prefix);
            if wanted.is_empty() {
                restore = !remove.is_empty() && own.is_none();
            } else {
                remove.extend(own.into_iter().flat_map(BTreeMap::keys));
            }
        }
        Difference {
            add,
            remove,
            restore,
        }
    }

    /// Whether a fallback may belong in the place of this destination's rows, and it is not known which: they stay until it is.
    fn may_fall_back(&self, prefix: &Prefix) -> bool {
        self.scope.as_ref().is_some_and(|scope| {
            !scope.fallbacks_known
                && (prefix.is_default() || scope.cluster_subnets.contains(prefix))
        })
    }

    /// The topology's rows that give way to an imported route of this prefix.
    fn fallback(&self, prefix: &Prefix) -> Option<&Vec<Columns>> {
        self.scope.as_ref()?.fallbacks.get(prefix)
    }
}
