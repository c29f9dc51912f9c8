//! The difference between what we own in a target and what is wanted there.
//! In: owned rows (all of them, duplicates too) and wanted ones, both by key. Out: a value to encode into one transaction.
//! Invariant: it looks at wanted keys and *owned* keys only; what does not bear our owner marker cannot appear, hence cannot be deleted.
//! Not here: how to apply it.

use std::collections::BTreeMap;

/// What to create, update and delete. `I` is the target's own id of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff<K, V, I> {
    /// Wanted keys that have no row.
    pub create: Vec<(K, V)>,
    /// Rows whose content differs, with what they should hold.
    pub update: Vec<(I, K, V)>,
    /// Rows to remove: keys no longer wanted, and duplicates.
    pub delete: Vec<(I, K)>,
}

impl<K, V, I> Default for Diff<K, V, I> {
    fn default() -> Self {
        Self {
            create: Vec::new(),
            update: Vec::new(),
            delete: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, V: Clone, I: Clone> Diff<K, V, I> {
    /// The only constructor. `same(owned, wanted)` says whether a row may stay as it is; of several rows with one key
    /// the first that is the same stays (else the first), the others are deleted.
    #[must_use]
    pub fn between(
        owned: &BTreeMap<K, Vec<(I, V)>>,
        wanted: &BTreeMap<K, V>,
        same: impl Fn(&V, &V) -> bool,
    ) -> Self {
        let mut diff = Self::default();
        for (key, value) in wanted {
            let rows = owned.get(key).map(Vec::as_slice).unwrap_or_default();
            let keep = rows.iter().position(|(_, row)| same(row, value));
            match (keep, rows.first()) {
                (None, None) => diff.create.push((key.clone(), value.clone())),
                (None, Some((id, _))) => diff.update.push((id.clone(), key.clone(), value.clone())),
                (Some(_), _) => {}
            }
            let keep = keep.unwrap_or(0);
            for (at, (id, _)) in rows.iter().enumerate() {
                if at != keep {
                    diff.delete.push((id.clone(), key.clone()));
                }
            }
        }
        for (key, rows) in owned {
            if !wanted.contains_key(key) {
                diff.delete
                    .extend(rows.iter().map(|(id, _)| (id.clone(), key.clone())));
            }
        }
        diff
    }

    /// True where nothing has to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// How many rows it touches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.create.len() + self.update.len() + self.delete.len()
    }
}

#[cfg(test)]
mod tests;
