//! Which columns of which tables a replica holds, with their types.
//!
//! In: a schema and the columns asked for. Out: a position for every column, shared by all rows of a table.
//! Invariant: columns are sorted by name; values of a row stand at the same positions.
//! Not here: values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::notation::{ColumnType, Datum};

/// The columns of one table of a replica.
#[derive(Debug, PartialEq, Eq)]
pub struct TableLayout {
    /// The table's name.
    pub(super) name: Box<str>,
    columns: Box<[(Box<str>, ColumnType)]>,
    defaults: Box<[Datum]>,
}

impl TableLayout {
    /// The layout of table `name` with these columns; of a repeated column the last type stays.
    #[must_use]
    pub fn new(name: &str, columns: impl IntoIterator<Item = (Box<str>, ColumnType)>) -> Self {
        let columns: BTreeMap<Box<str>, ColumnType> = columns.into_iter().collect();
        let defaults = columns.values().map(ColumnType::default_value).collect();
        Self {
            name: name.into(),
            columns: columns.into_iter().collect(),
            defaults,
        }
    }

    /// The position of a column, and its type.
    pub(super) fn column(&self, name: &str) -> Option<(u16, &ColumnType)> {
        let at = self
            .columns
            .binary_search_by(|(candidate, _)| candidate.as_ref().cmp(name))
            .ok()?;
        let (_, kind) = self.columns.get(at)?;
        Some((u16::try_from(at).ok()?, kind))
    }

    /// The name and type of the column at this position.
    pub(super) fn at(&self, at: u16) -> Option<(&str, &ColumnType)> {
        let (name, kind) = self.columns.get(usize::from(at))?;
        Some((name, kind))
    }

    /// The names in the order of the values.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_ref())
    }

    /// The value of the column at this position in a row of which nothing was said.
    pub(super) fn default_at(&self, at: u16) -> Option<&Datum> {
        self.defaults.get(usize::from(at))
    }
}

/// The tables of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables(BTreeMap<Box<str>, Arc<TableLayout>>);

impl Tables {
    /// These tables; of a repeated name the last stays.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = TableLayout>) -> Self {
        Self(
            tables
                .into_iter()
                .map(|table| (table.name.clone(), Arc::new(table)))
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<TableLayout>> {
        self.0.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }
}
