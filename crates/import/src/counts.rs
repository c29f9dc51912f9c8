//! What an import can say of itself, for reports and metrics.
//! In: the import. Out: counts, names, a digest. Invariant: nothing is computed over all routes.
//! Not here: reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::address::Prefix;
use model::hash;

use crate::Importer;
use crate::decide::{self, Skipped};
use crate::place::Retained;

/// What is imported of the network itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pods {
    /// Rows.
    pub rows: usize,
    /// Destinations that the kernel has lost and that are retained.
    pub retained: usize,
}

impl<R: Copy + Ord> Importer<R> {
    /// How many destinations stand that the kernel has lost, retained ones among them.
    #[must_use]
    pub fn withdrawn(&self) -> usize {
        self.withdrawn.len()
    }

    /// How many destinations have rows.
    #[must_use]
    pub fn existing(&self) -> usize {
        self.existing
    }

    /// How many imported rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many routes the kernel has, of the protocol and table that were dumped.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.rib.len()
    }

    /// How many destinations should have rows, retained ones among them, those over the limit too.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.budget.len()
    }

    /// How many destinations have rows to add or to remove.
    #[must_use]
    pub fn due(&self) -> usize {
        self.adds.len() + self.removals.len() + self.malformed.len()
    }

    /// Ten characters that change with the set of imported rows.
    #[must_use]
    pub fn digest(&self) -> String {
        hash::short(&self.digest.to_string())
    }

    /// The destinations that are retained, and why. Those whose loss is not explained yet are not among them: mostly they go
    /// a moment later.
    pub fn retained(&self) -> impl Iterator<Item = (Prefix, Retained)> + '_ {
        let of = |prefix: &Prefix| Some((*prefix, self.places.get(prefix)?.retained.as_ref()?.0));
        let all = self.withdrawn.iter().filter_map(of);
        all.filter(|(_, why)| *why != Retained::Unexplained)
    }

    /// Of destinations whose loss is not explained yet: when the first and the last were lost.
    #[must_use]
    pub fn unexplained(&self) -> Option<(Duration, Duration)> {
        let lost = self.withdrawn.iter().filter_map(|prefix| {
            let place = self.places.get(prefix)?;
            let (why, _) = place.retained.as_deref()?;
            place.lost.filter(|_| *why == Retained::Unexplained)
        });
        lost.fold(None, |span, at| match span {
            None => Some((at, at)),
            Some((first, last)) => Some((at.min(first), at.max(last))),
        })
    }

    /// What is left out, by reason.
    #[must_use]
    pub fn skipped(&self) -> BTreeMap<&'static str, Skipped> {
        let of = |prefixes: &BTreeSet<Prefix>| Skipped {
            count: prefixes.len(),
            first: prefixes.iter().take(decide::NAMED).copied().collect(),
        };
        let skipped = self.skipped.iter();
        skipped.map(|(reason, all)| (*reason, of(all))).collect()
    }

    /// What the kernel does with this very destination: forwards (true) or drops it; nothing where it has no learned route.
    #[must_use]
    pub fn in_kernel(&self, prefix: &Prefix) -> Option<bool> {
        self.places.get(prefix)?.kernel
    }

    /// What the gateway router does with this very destination towards other nodes: forwards (true) or drops it; nothing
    /// where no row says so. The topology's own routes to this node's pods are no way to other nodes.
    #[must_use]
    pub fn in_gateway(&self, prefix: &Prefix) -> Option<bool> {
        let imported = self.places.get(prefix).is_some_and(|p| !p.rows.is_empty());
        if imported {
            return Some(true);
        }
        if let Some(others) = self.others.get(prefix) {
            return Some(others.forward > 0);
        }
        let mut own = self.topology.get(prefix)?.values();
        own.any(|discards| *discards).then_some(false)
    }

    /// How many destinations are left out for a reason.
    #[must_use]
    pub fn skipped_for(&self, reason: &str) -> usize {
        self.skipped.get(reason).map_or(0, BTreeSet::len)
    }

    /// What is imported of the network itself.
    #[must_use]
    pub fn pods(&self) -> Pods {
        let mut pods = Pods::default();
        for subnet in self.subnets() {
            let inside = self.places.range(*subnet..);
            for (_, place) in inside.take_while(|(prefix, _)| subnet.contains(prefix)) {
                pods.rows += place.rows.len();
                let why = place.retained.as_deref().map(|(why, _)| *why);
                let retained = why.is_some_and(|why| why != Retained::Unexplained);
                pods.retained += usize::from(retained && place.is_withdrawn());
            }
        }
        pods
    }

    /// What is left out inside the network, by reason.
    #[must_use]
    pub fn skipped_pods(&self) -> BTreeMap<&'static str, Skipped> {
        let Some(scope) = &self.scope else {
            return BTreeMap::new();
        };
        let mut found = BTreeMap::new();
        for (reason, all) in &self.skipped {
            // In the order of prefixes, those of a subnet stand together.
            let of = |subnet: &Prefix| {
                let (from, subnet) = (*subnet, *subnet);
                all.range(from..).take_while(move |p| subnet.contains(p))
            };
            let inside = || scope.cluster_subnets.iter().flat_map(of);
            let skipped = Skipped {
                count: inside().count(),
                first: inside().take(decide::NAMED).copied().collect(),
            };
            if skipped.count > 0 {
                found.insert(*reason, skipped);
            }
        }
        found
    }
}
