//! What an import can say of itself, for reports and metrics.
//! In: the import. Out: counts, names, a digest. Invariant: nothing is computed over all routes.
//! Not here: reports.

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::hash;

use super::Importer;
use super::judge::Held;
use crate::imports::{self, Skipped};

impl<R: Copy + Ord> Importer<R> {
    /// How many destinations stand that the kernel has lost, held ones among them.
    #[must_use]
    pub fn withdrawn(&self) -> usize {
        self.withdrawn.len()
    }

    /// How many destinations have rows.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.standing
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

    /// How many destinations should have rows, held ones among them, those over the limit too.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.budget.len()
    }

    /// How many destinations have rows to add or to remove.
    #[must_use]
    pub fn due(&self) -> usize {
        self.adds.len() + self.removals.len() + self.odd.len()
    }

    /// Ten characters that change with the set of imported rows.
    #[must_use]
    pub fn digest(&self) -> String {
        hash::short(&self.digest.to_string())
    }

    /// The destinations that are held, and why.
    pub fn held(&self) -> impl Iterator<Item = (Prefix, Held)> + '_ {
        let of = |prefix: &Prefix| Some((*prefix, self.places.get(prefix)?.held.as_ref()?.0));
        self.withdrawn.iter().filter_map(of)
    }

    /// What is left out, by reason.
    #[must_use]
    pub fn skipped(&self) -> BTreeMap<&'static str, Skipped> {
        let of = |prefixes: &BTreeSet<Prefix>| Skipped {
            count: prefixes.len(),
            first: prefixes.iter().take(imports::NAMED).copied().collect(),
        };
        let skipped = self.skipped.iter();
        skipped.map(|(reason, all)| (*reason, of(all))).collect()
    }

    /// Whether the kernel forwards this very destination.
    #[must_use]
    pub fn kernel_has(&self, prefix: &Prefix) -> bool {
        self.places.get(prefix).is_some_and(|place| place.forwards)
    }

    /// Whether the gateway router has an imported row for this very destination.
    #[must_use]
    pub fn is_imported(&self, prefix: &Prefix) -> bool {
        self.places.get(prefix).is_some_and(|p| !p.rows.is_empty())
    }

    /// Whether the gateway router has a row for this very destination that is not an imported one.
    #[must_use]
    pub fn is_taken(&self, prefix: &Prefix) -> bool {
        self.others.contains_key(prefix)
    }
}
