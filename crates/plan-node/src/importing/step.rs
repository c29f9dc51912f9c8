//! The next few rows to write.
//! In: what differs. Out: rows to add and to remove, the most important first; what is on its way.
//! Invariant: nothing is in two steps at once; what takes the place of a row is in the same step.
//! Not here: writing.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::nb::ImportedRoute;

use super::Importer;
use crate::budget::Rank;

/// Rows to write in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<R> {
    /// Routes to add.
    pub add: Vec<ImportedRoute>,
    /// Rows to remove.
    pub remove: Vec<R>,
}

impl<R> Step<R> {
    /// True where there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
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
        };
        let mut taken = Vec::new();
        let empty = BTreeSet::new();
        let removals = if removals { &self.removals } else { &empty };
        for rank in self.adds.iter().chain(removals) {
            let (add, remove) = self.difference(rank);
            let size = step.add.len() + step.remove.len();
            if size > 0 && size + add.len() + remove.len() > most {
                break;
            }
            let prefix = rank.prefix;
            let route = |nexthop| ImportedRoute { prefix, nexthop };
            step.add.extend(add.into_iter().map(route));
            step.remove.extend(remove);
            taken.push(*rank);
        }
        let whole = taken.len() == self.adds.len() + removals.len();
        if whole && (!removals.is_empty() || self.adds.is_empty()) {
            let room = most.saturating_sub(step.add.len() + step.remove.len());
            let odd: Vec<R> = self.odd.iter().take(room).copied().collect();
            step.remove.extend(&odd);
            for id in odd {
                self.odd.remove(&id);
                self.sent_odd.insert(id);
            }
        }
        for rank in taken {
            self.adds.remove(&rank);
            self.removals.remove(&rank);
            self.sent.insert(rank);
        }
        step
    }

    /// How many destinations and odd rows a step has taken and whose rows have not changed since.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.sent.len() + self.sent_odd.len()
    }

    /// Nothing is on its way any more: what did not arrive is due again.
    pub fn resume(&mut self) {
        self.odd.append(&mut self.sent_odd);
        for rank in std::mem::take(&mut self.sent) {
            self.check(&rank);
        }
    }

    /// Next hops without a row, and rows that are surplus: over another next hop, or a second one.
    pub(super) fn difference(&self, rank: &Rank) -> (Vec<IpAddr>, Vec<R>) {
        let Some(place) = self.places.get(&rank.prefix) else {
            return (Vec::new(), Vec::new());
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
        (add, remove.collect())
    }
}
