//! Table updates as RFC 7047 and ovsdb-server(7) describe them, applied in the plainest way.
//!
//! In: a line and the rows before it. Out: the rows after it, or nothing where it has to be refused.
//! Invariant: shares with the client only the reading of single values.
//! Not here: speed; every row is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use ovsdb::{Atom, ColumnType, Datum, Uuid};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::from_str;
use serde_json::value::RawValue;

use super::{Rows, TABLES};

/// The members of an object in their order, repeated ones too.
struct Members<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

type Columns = Vec<(String, Datum)>;

/// The rows after the line; nothing where it does not suit the rows before it.
pub(super) fn apply(line: &str, before: &Rows) -> Option<Rows> {
    let updates: Members<Members<Members<Box<RawValue>>>> = from_str(line).ok()?;
    let mut after = before.clone();
    let mut seen = BTreeSet::new();
    for (name, rows) in updates.0 {
        let (name, columns) = TABLES.into_iter().find(|(known, _)| *known == name)?;
        if !seen.insert(name) {
            return None;
        }
        let mut named = BTreeSet::new();
        for (uuid, update) in rows.0 {
            let uuid: Uuid = uuid.parse().ok()?;
            let [(kind, value)] = update.0.as_slice() else {
                return None;
            };
            if !named.insert(uuid) {
                return None;
            }
            let old = before[name].get(&uuid);
            let new = row(columns, kind, value.get(), old)?;
            let table = after.get_mut(name)?;
            match new {
                Some(new) => table.insert(uuid, new),
                None => table.remove(&uuid),
            };
        }
    }
    Some(after)
}

/// The row after its update; nothing inside where it is gone.
fn row(
    columns: &[(&str, &str)],
    kind: &str,
    value: &str,
    old: Option<&Columns>,
) -> Option<Option<Columns>> {
    let types: BTreeMap<&str, ColumnType> = columns
        .iter()
        .map(|(name, kind)| (*name, from_str(kind).unwrap()))
        .collect();
    let mut new: BTreeMap<&str, Datum> = match (kind, old) {
        ("initial" | "insert", None) => types
            .iter()
            .map(|(name, kind)| (*name, kind.default_value()))
            .collect(),
        ("modify", Some(old)) => old
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect(),
        ("delete", Some(_)) => return Some(None),
        _ => return None,
    };
    let mut named = BTreeSet::new();
    for (name, value) in from_str::<Members<Datum>>(value).ok()?.0 {
        let (name, kind) = types.get_key_value(name.as_str())?;
        if !named.insert(*name) {
            return None;
        }
        let many = ColumnType {
            max: ovsdb::notation::Max::Unlimited,
            min: 0,
            ..*kind
        };
        let value = if old.is_some() && kind.is_composite() {
            differ(&new[name], &many.admit(value).ok()?)
        } else {
            value
        };
        new.insert(name, kind.admit(value).ok()?);
    }
    Some(Some(
        new.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    ))
}

/// What is in one of both; of a key in both, the new value unless it is the old one.
fn differ(old: &Datum, difference: &Datum) -> Datum {
    if let (Some(old), Some(difference)) = (old.as_map(), difference.as_map()) {
        let mut map: BTreeMap<Atom, Atom> = old.iter().cloned().collect();
        for (key, value) in difference {
            if map.get(key) == Some(value) {
                map.remove(key);
            } else {
                map.insert(key.clone(), value.clone());
            }
        }
        return Datum::map(map);
    }
    let set =
        |datum: &Datum| -> BTreeSet<Atom> { datum.as_set().unwrap().iter().cloned().collect() };
    Datum::set(&set(old) ^ &set(difference))
}
