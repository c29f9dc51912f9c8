//! Atoms: the scalar values of RFC 7047 section 5.1.
//!
//! In and out: JSON scalars and the two-element arrays `["uuid", ..]` and `["named-uuid", ..]`.
//! Invariant: reals are finite and ordered; a `UuidName` is an `<id>`.
//! Not here: sets and maps.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::tag::{Tag, end_of};
use super::uuid::{Uuid, UuidText};

/// One scalar value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A 64 bit signed integer.
    Integer(i64),
    /// A finite real.
    Real(Real),
    /// A boolean.
    Boolean(bool),
    /// A string.
    String(Box<str>),
    /// The identity of a row.
    Uuid(Uuid),
    /// The identity of a row inserted in the same transaction.
    NamedUuid(UuidName),
}

/// What is left where an atom was taken out.
impl Default for Atom {
    fn default() -> Self {
        Self::Boolean(false)
    }
}

impl Atom {
    /// The word for this kind of atom, as the RFC spells it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Integer(_) => "integer",
            Self::Real(_) => "real",
            Self::Boolean(_) => "boolean",
            Self::String(_) => "string",
            Self::Uuid(_) => "uuid",
            Self::NamedUuid(_) => "named-uuid",
        }
    }
}

/// A finite real number with a total order; negative zero is zero.
#[derive(Debug, Clone, Copy)]
pub struct Real(f64);

impl Real {
    /// The number, or nothing where JSON has no form for it (infinite, not a number).
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// A name for a row inserted in the same transaction: an `<id>` of RFC 7047 section 3.1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UuidName(Box<str>);

/// The text is not an `<id>`; the server would answer with a syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an identifier (a letter or underscore, then letters, digits and underscores)"
)]
pub struct NameError(Box<str>);

impl UuidName {
    /// The name. Errs on anything but a letter or underscore followed by letters, digits and underscores.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let head = bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if head && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            Ok(Self(text.into()))
        } else {
            Err(NameError(text.into()))
        }
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Real(value) => serializer.serialize_f64(value.0),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::String(value) => serializer.serialize_str(value),
            Self::Uuid(value) => ("uuid", format_args!("{value}")).serialize(serializer),
            Self::NamedUuid(value) => ("named-uuid", value.as_str()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AtomVisitor)
    }
}

/// Reads one atom; the scalar half of it is used for data too.
pub(super) struct AtomVisitor;

impl<'de> Visitor<'de> for AtomVisitor {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an atom (number, boolean, string, [\"uuid\", ..])")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Atom, E> {
        Ok(Atom::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Atom, E> {
        Ok(Atom::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Atom, E> {
        i64::try_from(value)
            .map(Atom::Integer)
            .map_err(|_| E::custom("integer beyond 64 bits signed"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Atom, E> {
        Real::new(value)
            .map(Atom::Real)
            .ok_or_else(|| E::custom("real that is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Atom, E> {
        Ok(Atom::String(value.into()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Atom, E> {
        Ok(Atom::String(value.into_boxed_str()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Atom, A::Error> {
        let tag = seq
            .next_element::<Tag>()?
            .ok_or_else(|| A::Error::custom("empty array where an atom belongs"))?;
        let atom = tagged_atom(tag, &mut seq)?;
        end_of(&mut seq)?;
        Ok(atom)
    }
}

/// The atom after `tag`; errs where the tag opens a set or a map.
pub(super) fn tagged_atom<'de, A: SeqAccess<'de>>(tag: Tag, seq: &mut A) -> Result<Atom, A::Error> {
    let missing = || A::Error::custom("array ends after its tag");
    match tag {
        Tag::Uuid => seq
            .next_element::<UuidText>()?
            .map(|text| Atom::Uuid(text.0))
            .ok_or_else(missing),
        Tag::NamedUuid => {
            let name = seq.next_element::<String>()?.ok_or_else(missing)?;
            UuidName::new(&name)
                .map(Atom::NamedUuid)
                .map_err(A::Error::custom)
        }
        Tag::Set => Err(A::Error::custom("a set where an atom belongs")),
        Tag::Map => Err(A::Error::custom("a map where an atom belongs")),
    }
}

#[cfg(test)]
mod tests;
