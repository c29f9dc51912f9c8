//! A row of the replica.
//!
//! In: the values the server sent; what it omitted has the column's default. Out: typed access by column name.
//! Invariant: holds a value for every monitored column.
//! Not here: the row's uuid; it is the key under which the record is found.

use std::cmp::Ordering;
use std::sync::Arc;

use super::layout::TableLayout;
use crate::notation::{AccessError, Atom, Datum, FromDatum, TypeError};

/// The monitored columns of one row.
#[derive(Debug, Clone)]
pub struct Record {
    layout: Arc<TableLayout>,
    values: Box<[Datum]>,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
            && (Arc::ptr_eq(&self.layout, &other.layout) || self.layout == other.layout)
    }
}

impl Eq for Record {}

impl Record {
    pub(super) fn new(layout: Arc<TableLayout>, values: Box<[Datum]>) -> Self {
        Self { layout, values }
    }

    /// Whether the values agree; the columns must.
    pub(super) fn same_values(&self, other: &Self) -> bool {
        self.values == other.values
    }

    /// The value of `column` as it is; nothing where the column is not monitored.
    #[must_use]
    pub fn datum(&self, column: &str) -> Option<&Datum> {
        let (at, _) = self.layout.column(column)?;
        self.values.get(at)
    }

    /// The value of `column` as a `T`. Errs where the column is not monitored or holds something else.
    pub fn get<'a, T: FromDatum<'a>>(&'a self, column: &str) -> Result<T, AccessError> {
        let datum = self.datum(column).ok_or_else(|| AccessError::Column {
            column: column.into(),
        })?;
        T::from_datum(datum).map_err(|source| AccessError::Value {
            column: column.into(),
            source,
        })
    }

    /// The columns in order of their names.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.layout.names().zip(&self.values)
    }

    /// Turns the differences of a `modify` into the new values. Errs with the column whose value would not fit.
    pub(super) fn settle(
        &self,
        columns: &mut [(usize, Datum)],
    ) -> Result<(), (Box<str>, TypeError)> {
        for (at, difference) in columns {
            if let Some((name, kind)) = self.layout.at(*at)
                && let Some(value) = self.values.get(*at)
                && kind.is_composite()
            {
                *difference = toggled(value, difference);
                kind.check_size(difference)
                    .map_err(|error| (name.into(), error))?;
            }
        }
        Ok(())
    }

    /// Takes over new values.
    pub(super) fn replace(&mut self, columns: Vec<(usize, Datum)>) {
        for (at, new) in columns {
            if let Some(value) = self.values.get_mut(at) {
                *value = new;
            }
        }
    }
}

/// `old` with every element or pair of `difference` toggled (ovsdb-server(7), Update2 Notification).
///
/// An element in both is removed, one in `difference` only is added. A key in both with the same value is removed,
/// with another value it takes the new one.
fn toggled(old: &Datum, difference: &Datum) -> Datum {
    if let (Some(old), Some(difference)) = (old.as_map(), difference.as_map()) {
        let merged = merge(
            old,
            difference,
            |a, b| a.0.cmp(&b.0),
            |old, new| (old.1 != new.1).then(|| new.clone()),
        );
        return Datum::from_sorted_pairs(merged);
    }
    match (old.as_set(), difference.as_set()) {
        (Some(old), Some(difference)) => {
            Datum::from_sorted(merge(old, difference, Atom::cmp, |_, _| None))
        }
        // The types were checked when both were let in.
        (_, _) => difference.clone(),
    }
}

/// Merges two sorted slices; `both` says what becomes of items that are in both.
fn merge<T: Clone>(
    mut left: &[T],
    mut right: &[T],
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some((a, left_rest)), Some((b, right_rest))) =
        (left.split_first(), right.split_first())
    {
        match order(a, b) {
            Ordering::Less => {
                merged.push(a.clone());
                left = left_rest;
            }
            Ordering::Greater => {
                merged.push(b.clone());
                right = right_rest;
            }
            Ordering::Equal => {
                merged.extend(both(a, b));
                (left, right) = (left_rest, right_rest);
            }
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    merged
}
