//! Database schemas (RFC 7047 section 3.2), as far as a client needs them: names and types.
//!
//! In: the reply to `get_schema`. Out: tables, columns, types, defaults.
//! Invariant: [`ColumnType::admit`] lets a value in only if its kind is the column's; a type has a value that fits it.
//! Not here: enums, ranges and references; the server checks those on writes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::atom::{Atom, Real};
use super::datum::Datum;
use super::uuid::Uuid;

/// What a database holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Schema {
    /// The database's name.
    pub name: Box<str>,
    /// Its version as the schema's file states it, `7.0.0`; empty where the schema has none.
    #[serde(default)]
    pub version: Box<str>,
    /// The tables by name.
    pub tables: BTreeMap<Box<str>, TableSchema>,
}

impl Schema {
    /// The type of a column; nothing where the table or the column is absent.
    #[must_use]
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        self.tables.get(table)?.columns.get(column)
    }

    /// Whether the server knows this column.
    #[must_use]
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.column(table, column).is_some()
    }

    /// Whether the server knows this table.
    #[must_use]
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }
}

/// What a table holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TableSchema {
    /// The types of the columns by name, without `_uuid` and `_version`.
    #[serde(deserialize_with = "columns")]
    pub columns: BTreeMap<Box<str>, ColumnType>,
    /// Whether a row stays without a reference to it.
    #[serde(default, rename = "isRoot")]
    pub is_root: bool,
}

fn columns<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Box<str>, ColumnType>, D::Error> {
    #[derive(Deserialize)]
    struct Column {
        r#type: ColumnType,
    }
    let columns = BTreeMap::<Box<str>, Column>::deserialize(deserializer)?;
    Ok(columns
        .into_iter()
        .map(|(name, column)| (name, column.r#type))
        .collect())
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WireType")]
pub struct ColumnType {
    /// Of the elements, or of a map's keys.
    pub key: AtomicType,
    /// Of a map's values; nothing for a set or scalar.
    pub value: Option<AtomicType>,
    /// The least number of elements, 0 or 1.
    pub min: u32,
    /// The greatest number of elements, at least 1.
    pub max: Max,
}

/// No column can have such a type (RFC 7047 section 3.2 `<type>`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a type with min {min} and max {max:?}; min may be 0 or 1, max 1 or more")]
pub struct BoundsError {
    min: u32,
    max: Max,
}

/// The types of atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicType {
    /// 64 bit signed integer.
    Integer,
    /// Floating point.
    Real,
    /// True or false.
    Boolean,
    /// Text.
    String,
    /// A row's identity.
    Uuid,
}

/// The greatest number of elements of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Max {
    /// This many.
    Bounded(u32),
    /// Any number.
    Unlimited,
}

/// A value does not fit its column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// An atom of another type.
    #[error("expected {expected:?}, found {found}")]
    Atom {
        /// The column's type.
        expected: AtomicType,
        /// What was found.
        found: &'static str,
    },
    /// A map where a set belongs, or the reverse.
    #[error("expected a {expected}, found a {found}")]
    Shape {
        /// The column's shape.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// An element or key that is there twice, once both are what the column holds (`1` and `1.0`).
    #[error("an element or key twice")]
    Repeated,
    /// Too few or too many elements.
    #[error("{found} elements, which the column does not allow")]
    Size {
        /// How many were found.
        found: usize,
    },
}

impl ColumnType {
    /// The value of the column in a row that was inserted without it (RFC 7047 section 5.2.1).
    #[must_use]
    pub fn default_value(&self) -> Datum {
        match (self.value, self.min) {
            (Some(_), _) => Datum::empty_map(),
            (None, 0) => Datum::empty_set(),
            (None, _) => Datum::from(self.key.default_value()),
        }
    }

    /// Whether a monitor's `modify` carries a difference to be toggled; otherwise it carries the new value.
    #[must_use]
    pub fn is_composite(&self) -> bool {
        !matches!(self.max, Max::Bounded(0 | 1))
    }

    /// Lets in a whole value: kind and number of elements fit; integers become reals where the column has reals.
    pub fn admit(&self, datum: Datum) -> Result<Datum, TypeError> {
        let datum = self.admit_part(datum)?;
        let pairs = || datum.as_map().map_or(0, <[_]>::len);
        self.check_size(datum.as_set().map_or_else(pairs, <[_]>::len))?;
        Ok(datum)
    }

    /// Errs where so many elements or pairs are too few or too many.
    pub(crate) fn check_size(&self, found: usize) -> Result<(), TypeError> {
        let few = u32::try_from(found).is_ok_and(|found| found < self.min);
        let many = match self.max {
            Max::Bounded(max) => u32::try_from(found).map_or(true, |found| found > max),
            Max::Unlimited => false,
        };
        if few || many {
            Err(TypeError::Size { found })
        } else {
            Ok(())
        }
    }

    /// Lets in some elements of a value, as a difference has them.
    pub(crate) fn admit_part(&self, mut datum: Datum) -> Result<Datum, TypeError> {
        match (self.value, datum.as_map().is_some()) {
            (Some(_), true) | (None, false) => {}
            (Some(_), false) => {
                return Err(TypeError::Shape {
                    expected: "map",
                    found: datum.kind(),
                });
            }
            (None, true) => {
                return Err(TypeError::Shape {
                    expected: "set",
                    found: "map",
                });
            }
        }
        let value = self.value;
        datum.try_each(
            |atom| self.key.admit(atom),
            |atom| value.map_or(Ok(()), |value| value.admit(atom)),
        )?;
        // Integers that became reals stand where integers are sorted.
        if self.key == AtomicType::Real && !datum.restore_order() {
            return Err(TypeError::Repeated);
        }
        Ok(datum)
    }
}

impl AtomicType {
    fn default_value(self) -> Atom {
        match self {
            Self::Integer => Atom::Integer(0),
            Self::Real => Real::new(0.0).map_or(Atom::Integer(0), Atom::Real),
            Self::Boolean => Atom::Boolean(false),
            Self::String => Atom::String(Box::default()),
            Self::Uuid => Atom::Uuid(Uuid::from_bytes([0; 16])),
        }
    }

    fn admit(self, atom: &mut Atom) -> Result<(), TypeError> {
        match (self, &*atom) {
            (Self::Integer, Atom::Integer(_))
            | (Self::Real, Atom::Real(_))
            | (Self::Boolean, Atom::Boolean(_))
            | (Self::String, Atom::String(_))
            | (Self::Uuid, Atom::Uuid(_)) => Ok(()),
            // The server prints the real 1 as `1`; beyond 2^53 the nearest real is what it holds.
            (Self::Real, Atom::Integer(value)) => {
                match value.to_string().parse().ok().and_then(Real::new) {
                    Some(real) => {
                        *atom = Atom::Real(real);
                        Ok(())
                    }
                    None => Err(TypeError::Atom {
                        expected: self,
                        found: atom.kind(),
                    }),
                }
            }
            (Self::Integer | Self::Real | Self::Boolean | Self::String | Self::Uuid, found) => {
                Err(TypeError::Atom {
                    expected: self,
                    found: found.kind(),
                })
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireType {
    Scalar(AtomicType),
    Full {
        key: WireBase,
        value: Option<WireBase>,
        #[serde(default = "one")]
        min: u32,
        #[serde(default)]
        max: WireMax,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireBase {
    Plain(AtomicType),
    Full { r#type: AtomicType },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireMax {
    Number(u32),
    Word(Unlimited),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unlimited {
    Unlimited,
}

impl Default for WireMax {
    fn default() -> Self {
        Self::Number(1)
    }
}

const fn one() -> u32 {
    1
}

impl TryFrom<WireType> for ColumnType {
    type Error = BoundsError;

    fn try_from(wire: WireType) -> Result<Self, BoundsError> {
        match wire {
            WireType::Scalar(key) => Ok(Self {
                key,
                value: None,
                min: 1,
                max: Max::Bounded(1),
            }),
            WireType::Full {
                key,
                value,
                min,
                max,
            } => {
                let max = match max {
                    WireMax::Number(max) => Max::Bounded(max),
                    WireMax::Word(Unlimited::Unlimited) => Max::Unlimited,
                };
                if min > 1 || max == Max::Bounded(0) {
                    return Err(BoundsError { min, max });
                }
                Ok(Self {
                    key: key.into(),
                    value: value.map(Into::into),
                    min,
                    max,
                })
            }
        }
    }
}

impl From<WireBase> for AtomicType {
    fn from(wire: WireBase) -> Self {
        match wire {
            WireBase::Plain(atomic) | WireBase::Full { r#type: atomic } => atomic,
        }
    }
}

#[cfg(test)]
mod tests;
