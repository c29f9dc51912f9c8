//! A growing set of Northbound rows of one owner.
//! In: keys and columns. Out: rows. Invariant: every row bears the owner marker.
//! Not here: which rows there are.

use std::collections::BTreeMap;
use std::fmt;

use model::nb::{Columns, OWNER, Owner, RowKey, Rows, Value};

/// Rows of one owner.
pub(crate) struct RowsBuilder {
    owner: Owner,
    rows: Rows,
}

impl RowsBuilder {
    /// An empty one.
    pub(crate) fn new(owner: Owner) -> Self {
        Self {
            owner,
            rows: Rows::new(),
        }
    }

    /// Puts a row; `external_ids` among the columns are kept beside the owner marker.
    pub(crate) fn put(
        &mut self,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let mut columns: Columns = columns.into_iter().collect();
        let ids = columns
            .entry("external_ids")
            .or_insert_with(|| Value::Entries(BTreeMap::new()));
        if let Value::Entries(ids) = ids {
            ids.insert(OWNER.to_owned(), self.owner.marker().to_owned());
        }
        self.rows.insert(key, columns);
    }

    /// The rows.
    pub(crate) fn into_rows(self) -> Rows {
        self.rows
    }
}

/// A text column of whatever can be shown.
pub(crate) fn text(value: impl fmt::Display) -> Value {
    Value::Text(value.to_string())
}

/// A set column of whatever can be shown.
pub(crate) fn texts<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Value {
    Value::set(values.into_iter().map(|value| value.to_string()))
}
