//! A row of the replica.
//!
//! In: the values the server sent; what it omitted has the column's default. Out: typed access by column name.
//! Invariant: has a value for every monitored column; those that are the column's default are not stored: most columns of most
//! rows are, and of rows there are tens of thousands.
//! Not here: the row's uuid; it is the key under which the record is found.

use std::cmp::Ordering;
use std::sync::Arc;

use super::layout::TableLayout;
use super::updates::SharedMaps;
use crate::notation::{AccessError, Atom, Datum, FromDatum, Parts, TypeError};

/// The monitored columns of one row.
#[derive(Debug, Clone)]
pub struct Record {
    layout: Arc<TableLayout>,
    values: Values,
}

/// Values that are not their column's default, by its position in the layout, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Values(Box<[(u16, Datum)]>);

impl Values {
    /// What a row of this layout has where it was told these columns, each once.
    pub(super) fn of(layout: &TableLayout, mut columns: Vec<(u16, Datum)>) -> Self {
        columns.retain(|(at, value)| layout.default_at(*at) != Some(value));
        columns.sort_unstable_by_key(|(at, _)| *at);
        Self(columns.into())
    }

    fn get(&self, at: u16) -> Option<&Datum> {
        let found = self.0.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        self.0.get(found).map(|(_, value)| value)
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
            && (Arc::ptr_eq(&self.layout, &other.layout) || self.layout == other.layout)
    }
}

impl Eq for Record {}

impl Record {
    pub(super) fn new(layout: Arc<TableLayout>, values: Values) -> Self {
        Self { layout, values }
    }

    fn value(&self, at: u16) -> Option<&Datum> {
        self.values.get(at).or_else(|| self.layout.default_at(at))
    }

    /// Whether the values agree; the columns must.
    pub(super) fn same_values(&self, other: &Self) -> bool {
        self.values == other.values
    }

    /// The value of `column` as it is; nothing where the column is not monitored.
    #[must_use]
    pub fn datum(&self, column: &str) -> Option<&Datum> {
        let (at, _) = self.layout.column(column)?;
        self.value(at)
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
        let named = (0..).zip(self.layout.names());
        named.filter_map(|(at, name)| Some((name, self.value(at)?)))
    }

    /// Errs with the first column whose value would not fit after a `modify` with these columns.
    pub(super) fn check(&self, columns: &[(u16, Datum)]) -> Result<(), (Box<str>, TypeError)> {
        for (at, difference) in columns {
            if let Some((name, kind)) = self.layout.at(*at)
                && let Some(value) = self.value(*at)
                && kind.is_composite()
            {
                kind.check_size(toggled_size(value, difference))
                    .map_err(|error| (name.into(), error))?;
            }
        }
        Ok(())
    }

    /// Applies the columns of a `modify`.
    pub(super) fn modify(&mut self, columns: Vec<(u16, Datum)>, maps: &mut SharedMaps) {
        let layout = &self.layout;
        let mut values = std::mem::take(&mut self.values.0).into_vec();
        for (at, difference) in columns {
            let (Some((_, kind)), Some(default)) = (layout.at(at), layout.default_at(at)) else {
                continue;
            };
            let found = values.iter_mut().find(|(other, _)| *other == at);
            let old = found.map(|(_, value)| std::mem::replace(value, Datum::empty_set()));
            let mut value = if kind.is_composite() {
                toggled(old.unwrap_or_else(|| default.clone()), difference)
            } else {
                difference
            };
            maps.share(&mut value);
            match values.iter_mut().find(|(other, _)| *other == at) {
                Some((_, place)) => *place = value,
                None => values.push((at, value)),
            }
        }
        self.values = Values::of(layout, values);
    }
}

/// How many elements or pairs [`toggled`] gives. Nothing is built: most differences are small and most values are not.
fn toggled_size(old: &Datum, difference: &Datum) -> usize {
    if let (Some(old), Some(difference)) = (old.as_map(), difference.as_map()) {
        let step = |size: usize, (key, value): &(Atom, Atom)| match old
            .binary_search_by(|(candidate, _)| candidate.cmp(key))
        {
            Ok(at) if old.get(at).is_some_and(|(_, had)| had == value) => size - 1,
            Ok(_) => size,
            Err(_) => size + 1,
        };
        return difference.iter().fold(old.len(), step);
    }
    let (old, difference) = (old.as_set(), difference.as_set().unwrap_or_default());
    let old = old.unwrap_or_default();
    difference
        .iter()
        .fold(old.len(), |size, atom| match old.binary_search(atom) {
            Ok(_) => size - 1,
            Err(_) => size + 1,
        })
}

/// `old` with every element or pair of `difference` toggled (ovsdb-server(7), Update2 Notification).
///
/// An element in both is removed, one in `difference` only is added. A key in both with the same value is removed,
/// with another value it takes the new one.
fn toggled(old: Datum, difference: Datum) -> Datum {
    match (old.into_parts(), difference.into_parts()) {
        (Parts::Pairs(old), Parts::Pairs(difference)) => Datum::from_sorted_pairs(merge(
            old,
            difference,
            |a, b| a.0.cmp(&b.0),
            |old, new| (old.1 != new.1).then_some(new),
        )),
        (Parts::Atoms(old), Parts::Atoms(difference)) => {
            Datum::from_sorted(merge(old, difference, Atom::cmp, |_, _| None))
        }
        // The types were checked when both were let in.
        (_, Parts::Atoms(difference)) => Datum::from_sorted(difference),
        (_, Parts::Pairs(difference)) => Datum::from_sorted_pairs(difference),
    }
}

/// Merges two sorted lists; `both` says what becomes of items that are in both.
///
/// Nothing is copied: of thousands of references in a row a few change at a time.
fn merge<T>(
    left: Vec<T>,
    right: Vec<T>,
    order: impl Fn(&T, &T) -> Ordering,
    both: impl Fn(T, T) -> Option<T>,
) -> Vec<T> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut left = left.into_iter();
    for new in right {
        let before = left
            .as_slice()
            .partition_point(|old| order(old, &new) == Ordering::Less);
        merged.extend(left.by_ref().take(before));
        let same = left.as_slice().first();
        if same.is_some_and(|old| order(old, &new) == Ordering::Equal) {
            merged.extend(left.next().and_then(|old| both(old, new)));
        } else {
            merged.push(new);
        }
    }
    merged.extend(left);
    merged
}
