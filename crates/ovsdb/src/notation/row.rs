//! Rows as they travel: some columns with their values (RFC 7047 section 3.1 `<row>`).
//!
//! In and out: a JSON object from column to value.
//! Invariant: ordered by column, each column once.
//! Not here: rows of a replica, which share their column names; see `cache::Record`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{AccessError, Datum, FromDatum, Name};

/// Columns and their values, for inserts, updates, waits and the results of selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row(Vec<(Name, Datum)>);

impl Row {
    /// A row without columns: on insert every column takes its default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// This row with `column` set; replaces an earlier value.
    #[must_use]
    pub fn with(mut self, column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        self.set(column, value);
        self
    }

    /// Sets `column`; replaces an earlier value.
    pub fn set(&mut self, column: impl Into<Name>, value: impl Into<Datum>) {
        let (column, value) = (column.into(), value.into());
        match self.0.binary_search_by(|(name, _)| name.cmp(&column)) {
            Ok(at) => {
                if let Some(slot) = self.0.get_mut(at) {
                    slot.1 = value;
                }
            }
            Err(at) => self.0.insert(at, (column, value)),
        }
    }

    /// The value of `column` as it is; nothing where the row does not hold the column.
    #[must_use]
    pub fn datum(&self, column: &str) -> Option<&Datum> {
        let at = self
            .0
            .binary_search_by(|(name, _)| name.as_ref().cmp(column))
            .ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The value of `column` as a `T`. Errs where the column is absent or holds something else.
    pub fn get<'a, T: FromDatum<'a>>(&'a self, column: &str) -> Result<T, AccessError> {
        let datum = self.datum(column).ok_or_else(|| AccessError::Column {
            column: column.into(),
        })?;
        T::from_datum(datum).map_err(|source| AccessError::Value {
            column: column.into(),
            source,
        })
    }

    /// The columns in order.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Columns;
        impl<'de> Visitor<'de> for Columns {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a row")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut row = Row::new();
                while let Some((column, value)) = map.next_entry::<String, Datum>()? {
                    row.set(column, value);
                }
                Ok(row)
            }
        }
        deserializer.deserialize_map(Columns)
    }
}
