//! The replica: what the server holds of the monitored tables, kept up to date by its notifications.
//!
//! In: table updates of `monitor_cond` (initial, insert, modify, delete). Out: rows by table and uuid, a generation
//! that moves with every change, and which rows changed since an earlier generation.
//! Invariant: an update is applied wholly or not at all, and one that contradicts the replica is an error; a new dump
//! is compared with the old rows, so only what differs counts as changed.
//! Not here: what the tables mean, and indexes over columns.

mod layout;
mod record;
mod updates;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use self::layout::{TableLayout, Tables};
pub use self::record::Record;
use self::updates::{RowUpdate, SharedMaps, TableUpdate};
use crate::notation::{AccessError, TypeError, Uuid};

/// How many changed rows are remembered; who asks about older ones is asked to look at everything.
const REMEMBERED: usize = 1 << 16;

/// A notification does not suit the replica. The session has to start again.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Not a `<table-updates2>` of the monitored tables, or a value that its column cannot hold.
    #[error("table updates not understood")]
    Decode(#[source] serde_json::Error),
    /// A change of a row that is not there.
    #[error("row {uuid} of {table} changed but is not in the replica")]
    Absent {
        /// The table.
        table: Box<str>,
        /// The row.
        uuid: Uuid,
    },
    /// A difference that leaves more or fewer elements than the column may have.
    #[error("row {uuid} of {table}: column {column} would not fit")]
    Misfit {
        /// The table.
        table: Box<str>,
        /// The row.
        uuid: Uuid,
        /// The column.
        column: Box<str>,
        /// What would not fit.
        source: TypeError,
    },
    /// A new row that is there already.
    #[error("row {uuid} of {table} added but is in the replica")]
    Present {
        /// The table.
        table: Box<str>,
        /// The row.
        uuid: Uuid,
    },
}

/// The rows of the monitored tables.
#[derive(Debug)]
pub struct Replica {
    layouts: Tables,
    rows: BTreeMap<Box<str>, BTreeMap<Uuid, Record>>,
    generation: u64,
    /// The generation from which on `changes` is complete.
    complete_from: u64,
    changes: VecDeque<(u64, Arc<TableLayout>, Uuid)>,
    maps: SharedMaps,
}

/// What differs from an earlier generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// These rows were added, modified or removed; by table, each once.
    Rows(BTreeMap<Box<str>, std::collections::BTreeSet<Uuid>>),
    /// Too much or too long ago to tell.
    Everything,
}

impl Replica {
    /// An empty replica of these tables, generation 0.
    #[must_use]
    pub fn new(layouts: Tables) -> Self {
        let rows = layouts
            .names()
            .map(|name| (name.into(), BTreeMap::new()))
            .collect();
        Self {
            layouts,
            rows,
            generation: 0,
            complete_from: 0,
            changes: VecDeque::new(),
            maps: SharedMaps::default(),
        }
    }

    /// The rows of a table by identity. Errs where the table is not monitored.
    pub fn table(&self, name: &str) -> Result<&BTreeMap<Uuid, Record>, AccessError> {
        self.rows
            .get(name)
            .ok_or_else(|| AccessError::Table { table: name.into() })
    }

    /// Moves by one with every notification or resynchronisation that changed a row; never goes back.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The rows that changed after `generation` was current.
    #[must_use]
    pub fn changes_since(&self, generation: u64) -> Changes {
        if generation < self.complete_from {
            return Changes::Everything;
        }
        let mut rows: BTreeMap<Box<str>, std::collections::BTreeSet<Uuid>> = BTreeMap::new();
        for (_, table, uuid) in self
            .changes
            .iter()
            .rev()
            .take_while(|(at, ..)| *at > generation)
        {
            rows.entry(table.name.clone()).or_default().insert(*uuid);
        }
        Changes::Rows(rows)
    }

    /// Applies a `<table-updates2>` (the reply to `monitor_cond`, or a notification). Returns whether a row changed.
    pub fn apply(&mut self, updates: &str) -> Result<bool, CacheError> {
        let updates =
            updates::decode(updates, &self.layouts, &mut self.maps).map_err(CacheError::Decode)?;
        // From here on nothing can fail.
        self.check(&updates)?;
        let mut changed = Vec::new();
        for TableUpdate { layout, rows } in updates {
            let Some(table) = self.rows.get_mut(&layout.name) else {
                continue;
            };
            for (uuid, update) in rows {
                changed.push((Arc::clone(&layout), uuid));
                match update {
                    RowUpdate::Whole(values) => {
                        table.insert(uuid, Record::new(Arc::clone(&layout), values));
                    }
                    RowUpdate::Modify(columns) => {
                        if let Some(record) = table.get_mut(&uuid) {
                            record.modify(columns, &mut self.maps);
                        }
                    }
                    RowUpdate::Delete => {
                        table.remove(&uuid);
                    }
                }
            }
        }
        Ok(self.remember(changed))
    }

    /// Takes over the rows of a fresh dump of the same tables. Returns whether a row changed.
    ///
    /// Generation and the memory of changes go on, so a follower sees only what differs; where the columns are other
    /// ones than before, everything differs.
    pub fn resync(&mut self, fresh: Self) -> bool {
        if self.layouts != fresh.layouts {
            self.layouts = fresh.layouts;
            self.rows = fresh.rows;
            self.maps = fresh.maps;
            self.generation += 1;
            self.complete_from = self.generation;
            self.changes.clear();
            return true;
        }
        let mut changed = Vec::new();
        for (name, new) in &fresh.rows {
            let (Some(old), Some(layout)) = (self.rows.get(name), self.layouts.get(name)) else {
                continue;
            };
            let gone = old.keys().filter(|uuid| !new.contains_key(uuid));
            let other = new
                .iter()
                .filter(|(uuid, record)| !old.get(uuid).is_some_and(|old| old.same_values(record)))
                .map(|(uuid, _)| uuid);
            changed.extend(gone.chain(other).map(|uuid| (Arc::clone(layout), *uuid)));
        }
        self.layouts = fresh.layouts;
        self.rows = fresh.rows;
        self.maps = fresh.maps;
        self.remember(changed)
    }

    /// Errs where an update contradicts the replica, or a difference would leave a value that does not fit.
    fn check(&self, updates: &[TableUpdate]) -> Result<(), CacheError> {
        for TableUpdate { layout, rows } in updates {
            let table = || layout.name.clone();
            for (uuid, update) in rows {
                let old = self.rows.get(&layout.name).and_then(|rows| rows.get(uuid));
                match (update, old) {
                    (RowUpdate::Whole(_), Some(_)) => {
                        return Err(CacheError::Present {
                            table: table(),
                            uuid: *uuid,
                        });
                    }
                    (RowUpdate::Modify(_) | RowUpdate::Delete, None) => {
                        return Err(CacheError::Absent {
                            table: table(),
                            uuid: *uuid,
                        });
                    }
                    (RowUpdate::Modify(columns), Some(old)) => {
                        old.check(columns)
                            .map_err(|(column, source)| CacheError::Misfit {
                                table: table(),
                                uuid: *uuid,
                                column,
                                source,
                            })?;
                    }
                    (RowUpdate::Whole(_), None) | (RowUpdate::Delete, Some(_)) => {}
                }
            }
        }
        Ok(())
    }

    fn remember(&mut self, changed: Vec<(Arc<TableLayout>, Uuid)>) -> bool {
        if changed.is_empty() {
            return false;
        }
        self.generation += 1;
        if changed.len() > REMEMBERED {
            self.changes.clear();
            self.complete_from = self.generation;
            return true;
        }
        let generation = self.generation;
        self.changes.extend(
            changed
                .into_iter()
                .map(|(layout, uuid)| (generation, layout, uuid)),
        );
        while self.changes.len() > REMEMBERED
            && let Some((generation, ..)) = self.changes.pop_front()
        {
            self.complete_from = generation;
        }
        true
    }
}

#[cfg(test)]
mod tests;
