//! Values of columns: an atom, a set or a map (RFC 7047 section 5.1 `<value>`).
//!
//! In and out: JSON, streamed. In memory a datum is 24 bytes and what it owns.
//! Invariant: canonical form. Sets and maps are sorted and free of duplicates, and a set of one is the bare atom, as
//! the wire does not tell those two apart.
//! Not here: whether a value fits its column; the schema knows.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::atom::{Atom, AtomVisitor, tagged_atom};
use super::tag::{Tag, end_of};

/// The value of one column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datum(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    One(Atom),
    /// Zero, two or more atoms, sorted.
    Set(Box<[Atom]>),
    /// Sorted by key. Rows by the ten thousand have one map of owner markers: in a replica they share it.
    Map(Arc<[(Atom, Atom)]>),
}

/// What a datum holds.
pub(crate) enum Parts {
    Atoms(Vec<Atom>),
    Pairs(Vec<(Atom, Atom)>),
}

impl Datum {
    /// The set of these atoms; repeats collapse.
    #[must_use]
    pub fn set(atoms: impl IntoIterator<Item = impl Into<Atom>>) -> Self {
        let mut atoms: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        atoms.sort_unstable();
        atoms.dedup();
        Self::from_sorted(atoms)
    }

    /// The map of these pairs; of a repeated key the last pair stays.
    #[must_use]
    pub fn map(pairs: impl IntoIterator<Item = (impl Into<Atom>, impl Into<Atom>)>) -> Self {
        let tree: std::collections::BTreeMap<Atom, Atom> = pairs
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Self::from_sorted_pairs(tree.into_iter().collect())
    }

    /// The set without elements, also the value of an unset optional column.
    #[must_use]
    pub fn empty_set() -> Self {
        Self(Repr::Set(Box::default()))
    }

    /// The map without pairs.
    #[must_use]
    pub fn empty_map() -> Self {
        Self(Repr::Map(Arc::default()))
    }

    /// The elements, one for an atom; nothing for a map.
    #[must_use]
    pub fn as_set(&self) -> Option<&[Atom]> {
        match &self.0 {
            Repr::One(atom) => Some(std::slice::from_ref(atom)),
            Repr::Set(atoms) => Some(atoms),
            Repr::Map(_) => None,
        }
    }

    /// The pairs sorted by key; nothing for an atom or a set.
    #[must_use]
    pub fn as_map(&self) -> Option<&[(Atom, Atom)]> {
        match &self.0 {
            Repr::Map(pairs) => Some(pairs),
            Repr::One(_) | Repr::Set(_) => None,
        }
    }

    /// The value of a map's key; nothing where the key is absent or this is no map.
    #[must_use]
    pub fn value_of(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.as_map()?;
        let at = pairs
            .binary_search_by(|(candidate, _)| candidate.cmp(key))
            .ok()?;
        pairs.get(at).map(|(_, value)| value)
    }

    /// How many values share this map; nothing for an atom or a set.
    pub(crate) fn holders(&self) -> Option<usize> {
        match &self.0 {
            Repr::Map(pairs) => Some(Arc::strong_count(pairs)),
            Repr::One(_) | Repr::Set(_) => None,
        }
    }

    /// What this is, for messages: the kind of an atom, `set` or `map`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.0 {
            Repr::One(atom) => atom.kind(),
            Repr::Set(atoms) if atoms.is_empty() => "empty set",
            Repr::Set(_) => "set",
            Repr::Map(_) => "map",
        }
    }

    /// What it holds, sorted; an atom is a set of one.
    pub(crate) fn into_parts(self) -> Parts {
        match self.0 {
            Repr::One(atom) => Parts::Atoms(vec![atom]),
            Repr::Set(atoms) => Parts::Atoms(atoms.into_vec()),
            Repr::Map(mut pairs) => Parts::Pairs(match Arc::get_mut(&mut pairs) {
                // Nobody else has it: nothing is copied.
                Some(own) => own.iter_mut().map(std::mem::take).collect(),
                None => pairs.to_vec(),
            }),
        }
    }

    /// Atoms that are sorted and distinct already.
    pub(crate) fn from_sorted(mut atoms: Vec<Atom>) -> Self {
        match (atoms.pop(), atoms.is_empty()) {
            (Some(only), true) => Self(Repr::One(only)),
            (Some(last), false) => {
                atoms.push(last);
                Self(Repr::Set(atoms.into_boxed_slice()))
            }
            (None, _) => Self::empty_set(),
        }
    }

    /// Pairs that are sorted by distinct keys already.
    pub(crate) fn from_sorted_pairs(pairs: Vec<(Atom, Atom)>) -> Self {
        Self(Repr::Map(pairs.into()))
    }

    /// Sorts what a change of atoms left unsorted. Returns whether all elements or keys differ.
    pub(super) fn restore_order(&mut self) -> bool {
        match &mut self.0 {
            Repr::One(_) => true,
            Repr::Set(atoms) => {
                atoms.sort_unstable();
                atoms.is_sorted_by(|a, b| a < b)
            }
            Repr::Map(pairs) => {
                let pairs = Arc::make_mut(pairs);
                pairs.sort_unstable();
                pairs.is_sorted_by(|a, b| a.0 < b.0)
            }
        }
    }

    /// Applies `change` to every atom in the place of a key or element, and `value` to the values of a map.
    /// Orders are kept only if the changes keep them.
    pub(super) fn try_each<E>(
        &mut self,
        change: impl Fn(&mut Atom) -> Result<(), E>,
        value: impl Fn(&mut Atom) -> Result<(), E>,
    ) -> Result<(), E> {
        match &mut self.0 {
            Repr::One(atom) => change(atom),
            Repr::Set(atoms) => atoms.iter_mut().try_for_each(change),
            Repr::Map(pairs) => Arc::make_mut(pairs).iter_mut().try_for_each(|pair| {
                change(&mut pair.0)?;
                value(&mut pair.1)
            }),
        }
    }
}

impl From<Atom> for Datum {
    fn from(atom: Atom) -> Self {
        Self(Repr::One(atom))
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::One(atom) => atom.fmt(f),
            Repr::Set(atoms) => f.debug_set().entries(atoms).finish(),
            Repr::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(key, value)| (key, value)))
                .finish(),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Repr::One(atom) => atom.serialize(serializer),
            Repr::Set(atoms) => ("set", atoms).serialize(serializer),
            Repr::Map(pairs) => ("map", &**pairs).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DatumVisitor)
    }
}

struct DatumVisitor;

impl<'de> Visitor<'de> for DatumVisitor {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value (atom, [\"set\", ..] or [\"map\", ..])")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Datum, E> {
        AtomVisitor.visit_bool(value).map(Datum::from)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Datum, E> {
        AtomVisitor.visit_i64(value).map(Datum::from)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Datum, E> {
        AtomVisitor.visit_u64(value).map(Datum::from)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Datum, E> {
        AtomVisitor.visit_f64(value).map(Datum::from)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Datum, E> {
        AtomVisitor.visit_str(value).map(Datum::from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
        let missing = || A::Error::custom("array ends after its tag");
        let tag = seq
            .next_element::<Tag>()?
            .ok_or_else(|| A::Error::custom("empty array where a value belongs"))?;
        let datum = match tag {
            Tag::Uuid | Tag::NamedUuid => Datum::from(tagged_atom(tag, &mut seq)?),
            Tag::Set => {
                let mut atoms = seq.next_element::<Vec<Atom>>()?.ok_or_else(missing)?;
                atoms.sort_unstable();
                if atoms
                    .windows(2)
                    .any(|pair| matches!(pair, [a, b] if a == b))
                {
                    return Err(A::Error::custom("a set names one element twice"));
                }
                Datum::from_sorted(atoms)
            }
            Tag::Map => {
                let mut pairs = seq
                    .next_element::<Vec<(Atom, Atom)>>()?
                    .ok_or_else(missing)?;
                pairs.sort_unstable();
                if pairs
                    .windows(2)
                    .any(|pair| matches!(pair, [a, b] if a.0 == b.0))
                {
                    return Err(A::Error::custom("a map names one key twice"));
                }
                Datum::from_sorted_pairs(pairs)
            }
        };
        end_of(&mut seq)?;
        Ok(datum)
    }
}

#[cfg(test)]
mod tests;
