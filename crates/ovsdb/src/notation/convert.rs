//! Between data and Rust's own types, both ways.
//!
//! In: a datum. Out: a scalar, `Option`, `Vec`, `BTreeSet` or `BTreeMap`; and back.
//! Invariant: reading never loses: a set of two is not an `Option`, an empty set is not a string.
//! Not here: column names; rows and records add them to errors.

use std::collections::{BTreeMap, BTreeSet};

use super::access::DatumError;
use super::atom::{Atom, UuidName};
use super::datum::Datum;
use super::uuid::Uuid;

/// A type that one atom can be read as.
pub trait FromAtom<'a>: Sized {
    /// Reads the atom. Errs where it is of another kind.
    fn from_atom(atom: &'a Atom) -> Result<Self, DatumError>;
}

/// A type that a column's value can be read as.
pub trait FromDatum<'a>: Sized {
    /// Reads the value. Errs where it is of another kind or size.
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError>;
}

fn other(expected: &'static str, found: &'static str) -> DatumError {
    DatumError::Kind { expected, found }
}

macro_rules! scalar {
    ($($type:ty, $word:literal, $pattern:pat => $value:expr;)*) => {$(
        impl<'a> FromAtom<'a> for $type {
            fn from_atom(atom: &'a Atom) -> Result<Self, DatumError> {
                if let $pattern = atom { Ok($value) } else { Err(other($word, atom.kind())) }
            }
        }

        impl<'a> FromDatum<'a> for $type {
            fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
                match datum.as_set() {
                    Some([atom]) => Self::from_atom(atom),
                    Some(_) | None => Err(other($word, datum.kind())),
                }
            }
        }
    )*};
}

scalar! {
    i64, "integer", Atom::Integer(value) => *value;
    f64, "real", Atom::Real(value) => value.get();
    bool, "boolean", Atom::Boolean(value) => *value;
    &'a str, "string", Atom::String(value) => value;
    String, "string", Atom::String(value) => value.to_string();
    Box<str>, "string", Atom::String(value) => value.clone();
    Uuid, "uuid", Atom::Uuid(value) => *value;
}

impl<'a> FromDatum<'a> for &'a Datum {
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
        Ok(datum)
    }
}

impl<'a, T: FromAtom<'a>> FromDatum<'a> for Option<T> {
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
        match datum.as_set() {
            Some([]) => Ok(None),
            Some([atom]) => T::from_atom(atom).map(Some),
            Some(atoms) => Err(DatumError::Size {
                expected: "at most one",
                found: atoms.len(),
            }),
            None => Err(other("optional value", datum.kind())),
        }
    }
}

impl<'a, T: FromAtom<'a>> FromDatum<'a> for Vec<T> {
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
        let atoms = datum.as_set().ok_or_else(|| other("set", datum.kind()))?;
        atoms.iter().map(T::from_atom).collect()
    }
}

impl<'a, T: FromAtom<'a> + Ord> FromDatum<'a> for BTreeSet<T> {
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
        let atoms = datum.as_set().ok_or_else(|| other("set", datum.kind()))?;
        atoms.iter().map(T::from_atom).collect()
    }
}

impl<'a, K: FromAtom<'a> + Ord, V: FromAtom<'a>> FromDatum<'a> for BTreeMap<K, V> {
    fn from_datum(datum: &'a Datum) -> Result<Self, DatumError> {
        let pairs = datum.as_map().ok_or_else(|| other("map", datum.kind()))?;
        pairs
            .iter()
            .map(|(key, value)| Ok((K::from_atom(key)?, V::from_atom(value)?)))
            .collect()
    }
}

macro_rules! into {
    ($($type:ty, $name:ident => $atom:expr;)*) => {$(
        impl From<$type> for Atom {
            fn from($name: $type) -> Self {
                $atom
            }
        }

        impl From<$type> for Datum {
            fn from(value: $type) -> Self {
                Datum::from(Atom::from(value))
            }
        }
    )*};
}

into! {
    i64, value => Atom::Integer(value);
    i32, value => Atom::Integer(value.into());
    u32, value => Atom::Integer(value.into());
    u16, value => Atom::Integer(value.into());
    bool, value => Atom::Boolean(value);
    &str, value => Atom::String(value.into());
    &String, value => Atom::String(value.as_str().into());
    String, value => Atom::String(value.into_boxed_str());
    Box<str>, value => Atom::String(value);
    Uuid, value => Atom::Uuid(value);
    UuidName, value => Atom::NamedUuid(value);
}

impl<T: Into<Atom>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        Datum::set(value)
    }
}

impl<T: Into<Atom>> From<Vec<T>> for Datum {
    fn from(values: Vec<T>) -> Self {
        Datum::set(values)
    }
}

impl<T: Into<Atom>> From<BTreeSet<T>> for Datum {
    fn from(values: BTreeSet<T>) -> Self {
        Datum::set(values)
    }
}

impl<K: Into<Atom>, V: Into<Atom>> From<BTreeMap<K, V>> for Datum {
    fn from(pairs: BTreeMap<K, V>) -> Self {
        Datum::map(pairs)
    }
}

#[cfg(test)]
mod tests;
