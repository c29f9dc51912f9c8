//! Decoding of `<table-updates2>` (ovsdb-server(7), Monitor_Cond and Update2), streamed into typed values.
//!
//! In: JSON text and the tables it may speak of. Out: one entry per row.
//! Invariant: every value fits its column; an unknown table, column or kind of update is an error, and so is a table,
//! row or column that is named twice.
//! Not here: applying them.
//!
//! ```text
//!   { table: { uuid: { "initial"|"insert": {column: value} | "modify": {column: difference} | "delete": null } } }
//! ```

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::layout::{TableLayout, Tables};
use super::record::Values;
use crate::notation::{Atom, ColumnType, Datum, Uuid, UuidText};

/// The changed rows of one table.
pub(super) struct TableUpdate {
    pub(super) layout: Arc<TableLayout>,
    pub(super) rows: Vec<(Uuid, RowUpdate)>,
}

/// What happened to a row.
pub(super) enum RowUpdate {
    /// It is there now, with these values.
    Whole(Values),
    /// These columns differ.
    Modify(Vec<(u16, Datum)>),
    /// It is gone.
    Delete,
}

/// Reads an update; `maps` are known from earlier ones.
pub(super) fn decode(
    text: &str,
    tables: &Tables,
    maps: &mut SharedMaps,
) -> Result<Vec<TableUpdate>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let maps = RefCell::new(maps);
    let rule = TablesRule {
        tables,
        maps: &maps,
    };
    let updates = Object(rule).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(updates)
}

/// How to read the members of one kind of object.
trait Rule<'de>: Sized {
    type Output;
    const WHAT: &'static str;

    fn read<A: MapAccess<'de>>(self, map: A) -> Result<Self::Output, A::Error>;
}

/// A seed and visitor for an object read by a rule.
struct Object<R>(R);

impl<'de, R: Rule<'de>> DeserializeSeed<'de> for Object<R> {
    type Value = R::Output;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R::Output, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: Rule<'de>> Visitor<'de> for Object<R> {
    type Value = R::Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<R::Output, A::Error> {
        self.0.read(map)
    }
}

/// Small maps of rows, each once: owner markers are the same in all rows of an owner.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMaps(HashSet<Datum>);

/// So many different maps are remembered at most.
const SHARED_MAPS: usize = 256;
/// Larger ones are remembered by nobody but their rows: pairs, and bytes of all texts.
const SMALL: (usize, usize) = (8, 1024);

impl SharedMaps {
    /// Lets a value have the map that an equal one has.
    pub(super) fn share(&mut self, value: &mut Datum) {
        if !value.as_map().is_some_and(is_small) {
            return;
        }
        if let Some(known) = self.0.get(value) {
            *value = known.clone();
            return;
        }
        if self.0.len() >= SHARED_MAPS {
            // Those that no row has any more; where all are in use, the next rows are shared anew.
            self.0.retain(|map| map.holders() > Some(1));
            if self.0.len() >= SHARED_MAPS {
                self.0.clear();
            }
        }
        self.0.insert(value.clone());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn is_small(pairs: &[(Atom, Atom)]) -> bool {
    let bytes = |atom: &Atom| match atom {
        Atom::String(text) => text.len(),
        Atom::Integer(_)
        | Atom::Real(_)
        | Atom::Boolean(_)
        | Atom::Uuid(_)
        | Atom::NamedUuid(_) => 0,
    };
    let all = || pairs.iter().map(|(key, value)| bytes(key) + bytes(value));
    !pairs.is_empty() && pairs.len() <= SMALL.0 && all().sum::<usize>() <= SMALL.1
}

type Maps<'a> = &'a RefCell<&'a mut SharedMaps>;

struct TablesRule<'a> {
    tables: &'a Tables,
    maps: Maps<'a>,
}

impl<'de> Rule<'de> for TablesRule<'_> {
    type Output = Vec<TableUpdate>;
    const WHAT: &'static str = "table updates";

    fn read<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Output, A::Error> {
        let mut updates: Vec<TableUpdate> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let layout = self.tables.get(&name);
            let layout = layout.ok_or_else(|| {
                A::Error::custom(format_args!("update of table {name}, not monitored"))
            })?;
            if updates
                .iter()
                .any(|update| update.layout.name == layout.name)
            {
                return Err(A::Error::custom(format_args!("table {name} twice")));
            }
            let rows = map.next_value_seed(Object(RowsRule {
                layout,
                maps: self.maps,
            }))?;
            updates.push(TableUpdate {
                layout: Arc::clone(layout),
                rows,
            });
        }
        Ok(updates)
    }
}

struct RowsRule<'a> {
    layout: &'a TableLayout,
    maps: Maps<'a>,
}

impl<'de> Rule<'de> for RowsRule<'_> {
    type Output = Vec<(Uuid, RowUpdate)>;
    const WHAT: &'static str = "row updates by uuid";

    fn read<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Output, A::Error> {
        let mut rows = Vec::new();
        while let Some(UuidText(uuid)) = map.next_key::<UuidText>()? {
            let rule = RowRule {
                layout: self.layout,
                maps: self.maps,
            };
            rows.push((uuid, map.next_value_seed(Object(rule))?));
        }
        let mut uuids: Vec<Uuid> = rows.iter().map(|(uuid, _)| *uuid).collect();
        uuids.sort_unstable();
        match uuids.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(_) => Err(A::Error::custom("one row twice")),
            None => Ok(rows),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Initial,
    Insert,
    Modify,
    Delete,
}

struct RowRule<'a> {
    layout: &'a TableLayout,
    maps: Maps<'a>,
}

impl<'de> Rule<'de> for RowRule<'_> {
    type Output = RowUpdate;
    const WHAT: &'static str = "a row update";

    fn read<A: MapAccess<'de>>(self, mut map: A) -> Result<RowUpdate, A::Error> {
        let kind = map
            .next_key::<Kind>()?
            .ok_or_else(|| A::Error::custom("empty row update"))?;
        let update = match kind {
            Kind::Initial | Kind::Insert => {
                let rule = ColumnsRule {
                    layout: self.layout,
                    admit: ColumnType::admit,
                };
                let mut columns = map.next_value_seed(Object(rule))?;
                let mut maps = self.maps.borrow_mut();
                for (_, value) in &mut columns {
                    maps.share(value);
                }
                RowUpdate::Whole(Values::of(self.layout, columns))
            }
            Kind::Modify => {
                // A column that is no set or map carries its whole new value.
                let admit = |kind: &ColumnType, value| {
                    if kind.is_composite() {
                        kind.admit_part(value)
                    } else {
                        kind.admit(value)
                    }
                };
                RowUpdate::Modify(map.next_value_seed(Object(ColumnsRule {
                    layout: self.layout,
                    admit,
                }))?)
            }
            Kind::Delete => {
                map.next_value::<IgnoredAny>()?;
                RowUpdate::Delete
            }
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(update),
            Some(IgnoredAny) => Err(A::Error::custom("two updates of one row")),
        }
    }
}

struct ColumnsRule<'a, F> {
    layout: &'a TableLayout,
    admit: F,
}

impl<'de, F> Rule<'de> for ColumnsRule<'_, F>
where
    F: Fn(&ColumnType, Datum) -> Result<Datum, crate::notation::TypeError>,
{
    type Output = Vec<(u16, Datum)>;
    const WHAT: &'static str = "columns of a row";

    fn read<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Output, A::Error> {
        let mut columns: Vec<(u16, Datum)> = Vec::new();
        while let Some((at, kind)) = map.next_key_seed(ColumnKey(self.layout))? {
            if columns.iter().any(|(other, _)| *other == at) {
                let name = self.layout.at(at).map_or("", |(name, _)| name);
                return Err(A::Error::custom(format_args!("column {name} twice")));
            }
            let value = map.next_value::<Datum>()?;
            let value = (self.admit)(kind, value).map_err(|error| {
                let name = self.layout.at(at).map_or("", |(name, _)| name);
                A::Error::custom(format_args!("column {name}: {error}"))
            })?;
            columns.push((at, value));
        }
        Ok(columns)
    }
}

/// Reads a column's name as its position and type.
struct ColumnKey<'a>(&'a TableLayout);

impl<'de, 'a> DeserializeSeed<'de> for ColumnKey<'a> {
    type Value = (u16, &'a ColumnType);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for ColumnKey<'a> {
    type Value = (u16, &'a ColumnType);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.0
            .column(name)
            .ok_or_else(|| E::custom(format_args!("column {name}, not monitored")))
    }
}
