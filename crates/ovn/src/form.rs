//! The columns of OVN_Northbound that we answer for, and their values in both directions.
//! In: records of a replica, or values of a plan. Out: values of `model`, or data for the wire.
//! Invariant: one table of columns serves monitoring, lifting and lowering.
//! Not here: which rows are ours.

use std::collections::{BTreeMap, BTreeSet};

use model::nb::{Columns, RowKey, Table, Value};
use ovsdb::{AccessError, Datum, Record, Replica, Uuid};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Set,
    Entries,
    /// An optional reference to an `Address_Set`.
    AddressSet,
}

/// The columns that plans write (ovn-nb(5)).
pub(crate) fn columns(table: Table) -> &'static [(&'static str, Kind)] {
    match table {
        Table::AddressSet => &[
            ("name", Kind::Text),
            ("addresses", Kind::Set),
            ("external_ids", Kind::Entries),
        ],
        Table::Router => &[
            ("name", Kind::Text),
            ("options", Kind::Entries),
            ("external_ids", Kind::Entries),
        ],
        Table::Switch => &[("name", Kind::Text), ("external_ids", Kind::Entries)],
        Table::RouterPort => &[
            ("name", Kind::Text),
            ("mac", Kind::Text),
            ("networks", Kind::Set),
            ("external_ids", Kind::Entries),
        ],
        Table::SwitchPort => &[
            ("name", Kind::Text),
            ("type", Kind::Text),
            ("addresses", Kind::Set),
            ("options", Kind::Entries),
            ("external_ids", Kind::Entries),
        ],
        Table::StaticRoute => &[
            ("policy", Kind::Set),
            ("ip_prefix", Kind::Text),
            ("nexthop", Kind::Text),
            ("output_port", Kind::Set),
            ("external_ids", Kind::Entries),
        ],
        Table::Policy => &[
            ("priority", Kind::Number),
            ("match", Kind::Text),
            ("action", Kind::Text),
            ("nexthops", Kind::Set),
            ("external_ids", Kind::Entries),
        ],
        Table::Nat => &[
            ("type", Kind::Text),
            ("external_ip", Kind::Text),
            ("logical_ip", Kind::Text),
            ("external_port_range", Kind::Text),
            ("options", Kind::Entries),
            ("exempted_ext_ips", Kind::AddressSet),
            ("allowed_ext_ips", Kind::AddressSet),
            ("external_ids", Kind::Entries),
        ],
    }
}

/// Columns that some servers' schemas lack, of those that plans write where they are there.
pub(crate) fn optional(table: Table) -> &'static [(&'static str, Kind)] {
    match table {
        Table::Nat => &[("match", Kind::Text)],
        Table::AddressSet
        | Table::Router
        | Table::Switch
        | Table::RouterPort
        | Table::SwitchPort
        | Table::StaticRoute
        | Table::Policy => &[],
    }
}

/// The row's columns; references are resolved by `sets`, the names of Address_Set rows.
pub(crate) fn lift(
    table: Table,
    record: &Record,
    sets: &BTreeMap<Uuid, String>,
) -> Result<Columns, AccessError> {
    let always = columns(table).iter();
    let there = optional(table)
        .iter()
        .filter(|(name, _)| record.datum(name).is_some());
    always
        .chain(there)
        .map(|(name, kind)| Ok((*name, value(record, name, *kind, sets)?)))
        .collect()
}

fn value(
    record: &Record,
    column: &str,
    kind: Kind,
    sets: &BTreeMap<Uuid, String>,
) -> Result<Value, AccessError> {
    Ok(match kind {
        Kind::Text => Value::Text(record.get(column)?),
        Kind::Number => Value::Number(record.get(column)?),
        Kind::Set => Value::Set(record.get::<BTreeSet<String>>(column)?),
        Kind::Entries => Value::Entries(record.get::<BTreeMap<String, String>>(column)?),
        Kind::AddressSet => match record.get::<Option<Uuid>>(column)? {
            None => Value::Set(BTreeSet::new()),
            Some(uuid) => match sets.get(&uuid) {
                Some(name) => Value::Ref(RowKey::root(Table::AddressSet, name.as_str())),
                // Somebody's set: no plan wants it, so it is never taken for the right one.
                None => Value::Ref(RowKey::root(Table::AddressSet, uuid.to_string())),
            },
        },
    })
}

/// Names of all Address_Set rows.
pub(crate) fn set_names(replica: &Replica) -> Result<BTreeMap<Uuid, String>, AccessError> {
    replica
        .table(Table::AddressSet.name())?
        .iter()
        .map(|(uuid, record)| Ok((*uuid, record.get("name")?)))
        .collect()
}

/// A value for the wire; `target` finds the row that a reference means.
pub(crate) fn lower<E>(
    value: &Value,
    target: impl FnOnce(&RowKey) -> Result<Uuid, E>,
) -> Result<Datum, E> {
    Ok(match value {
        Value::Text(text) => text.into(),
        Value::Number(number) => (*number).into(),
        Value::Set(items) => Datum::set(items.iter().map(String::as_str)),
        Value::Entries(entries) => {
            Datum::map(entries.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        }
        Value::Ref(key) => target(key)?.into(),
    })
}
