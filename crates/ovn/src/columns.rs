//! Which columns of which table we answer for, and what each holds.
//! In: a column's datum. Out: a model value, and back. Invariant: this table is the only place that knows a column's form.
//! Not here: rows' identities (`north`).

use std::collections::{BTreeMap, BTreeSet};

use model::nb::{Columns, RowKey, Table, Value};
use ovsdb::{AccessError, Datum, Mutation, Record, Uuid};

/// The form of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string that is always there.
    Text,
    /// An integer that is always there.
    Number,
    /// A boolean that is always there.
    Flag,
    /// A set of strings; an optional string is one of none or one.
    Set,
    /// A map of strings.
    Map,
    /// A reference to a row of that table, or none.
    Row(Table),
}

use Form::{Flag, Map, Number, Row, Set, Text};

/// Those of NAT.
const NAT: [(&str, Form); 9] = [
    ("type", Text),
    ("external_ip", Text),
    ("logical_ip", Text),
    ("external_port_range", Text),
    ("exempted_ext_ips", Row(Table::AddressSet)),
    ("allowed_ext_ips", Row(Table::AddressSet)),
    ("logical_port", Set),
    ("options", Map),
    ("external_ids", Map),
];

/// Those of ACL.
const ACL: [(&str, Form); 6] = [
    ("direction", Text),
    ("priority", Number),
    ("match", Text),
    ("action", Text),
    ("options", Map),
    ("external_ids", Map),
];

/// Columns by table, `external_ids` among them.
pub(crate) fn columns(table: Table) -> &'static [(&'static str, Form)] {
    match table {
        Table::AddressSet => &[("name", Text), ("addresses", Set), ("external_ids", Map)],
        Table::GatewayChassis => &[
            ("name", Text),
            ("chassis_name", Text),
            ("priority", Number),
            ("external_ids", Map),
        ],
        Table::Router => &[("name", Text), ("options", Map), ("external_ids", Map)],
        Table::Switch => &[("name", Text), ("other_config", Map), ("external_ids", Map)],
        Table::RouterPort => &[
            ("name", Text),
            ("mac", Text),
            ("networks", Set),
            ("ipv6_ra_configs", Map),
            ("gateway_chassis", Row(Table::GatewayChassis)),
            ("options", Map),
            ("external_ids", Map),
        ],
        Table::SwitchPort => &[
            ("name", Text),
            ("type", Text),
            ("addresses", Set),
            ("port_security", Set),
            ("options", Map),
            ("external_ids", Map),
        ],
        Table::StaticRoute => &[
            ("ip_prefix", Text),
            ("nexthop", Text),
            ("output_port", Set),
            ("policy", Set),
            ("options", Map),
            ("external_ids", Map),
        ],
        Table::Policy => &[
            ("priority", Number),
            ("match", Text),
            ("action", Text),
            ("nexthops", Set),
            ("external_ids", Map),
        ],
        Table::Nat => &NAT,
        Table::StaticMacBinding => &[
            ("logical_port", Text),
            ("ip", Text),
            ("mac", Text),
            ("override_dynamic_mac", Flag),
        ],
        Table::PortGroup => &[
            ("name", Text),
            ("ports", Row(Table::SwitchPort)),
            ("external_ids", Map),
        ],
        Table::Acl | Table::GroupAcl => &ACL,
    }
}

/// Columns that newer schemas have.
pub(crate) fn optional_columns(table: Table) -> &'static [(&'static str, Form)] {
    match table {
        Table::Nat => &[("match", Text), ("priority", Number)],
        Table::AddressSet
        | Table::GatewayChassis
        | Table::Router
        | Table::Switch
        | Table::RouterPort
        | Table::SwitchPort
        | Table::StaticRoute
        | Table::Policy
        | Table::Acl
        | Table::PortGroup
        | Table::GroupAcl
        | Table::StaticMacBinding => &[],
    }
}

/// The reference columns of a parent table, each with its children's table.
pub(crate) fn children(table: Table) -> impl Iterator<Item = (Table, &'static str)> {
    Table::ALL.into_iter().filter_map(move |child| {
        child
            .parent()
            .filter(|(p, _)| *p == table)
            .map(|(_, column)| (child, column))
    })
}

/// Decodes a record's columns; `names` are those of root rows by uuid.
pub(crate) fn decode(
    table: Table,
    record: &Record,
    names: &BTreeMap<Uuid, String>,
) -> Result<Columns, AccessError> {
    let mut out = Columns::new();
    for (name, form) in columns(table) {
        out.insert(name, decode_one(name, *form, record, names)?);
    }
    // A schema without the column holds nothing in it.
    let there = |(name, _): &&(&str, Form)| record.datum(name).is_some();
    for (name, form) in optional_columns(table).iter().filter(there) {
        out.insert(name, decode_one(name, *form, record, names)?);
    }
    Ok(out)
}

fn decode_one(
    name: &str,
    form: Form,
    record: &Record,
    names: &BTreeMap<Uuid, String>,
) -> Result<Value, AccessError> {
    Ok(match form {
        Text => Value::Text(record.get::<String>(name)?),
        Number => Value::Number(record.get::<i64>(name)?),
        Flag => Value::Flag(record.get::<bool>(name)?),
        Set => Value::Set(record.get::<BTreeSet<String>>(name)?),
        Map => Value::Entries(record.get::<BTreeMap<String, String>>(name)?),
        Row(table) => {
            let rows = record.get::<Vec<Uuid>>(name)?;
            let named = |uuid: &Uuid| names.get(uuid).cloned().unwrap_or_else(|| uuid.to_string());
            match rows.as_slice() {
                [row] => Value::Ref(RowKey::root(table, named(row))),
                others => Value::set(others.iter().map(named)),
            }
        }
    })
}

/// Encodes a value; `None` for a reference to a row that nobody knows.
pub(crate) fn encode(
    value: &Value,
    uuid_of: impl FnOnce(&RowKey) -> Option<Uuid>,
) -> Option<Datum> {
    Some(match value {
        Value::Text(text) => text.into(),
        Value::Number(number) => (*number).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::Set(items) => Datum::set(items),
        Value::Entries(map) => Datum::map(map),
        Value::Ref(key) => uuid_of(key)?.into(),
    })
}

/// Mutations that put entries into a map. A key that is there would keep its value, so it is taken out first.
pub(crate) fn entries<'a>(
    column: &'static str,
    pairs: impl Iterator<Item = (&'a String, &'a String)> + Clone,
) -> [Mutation; 2] {
    [
        Mutation::delete(column, Datum::set(pairs.clone().map(|(key, _)| key))),
        Mutation::insert(column, Datum::map(pairs)),
    ]
}
