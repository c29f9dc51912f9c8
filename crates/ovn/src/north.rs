//! OVN_Northbound, read: rows of ours by identity, and what a gateway router holds of imported and other routes.
//! In: a replica. Out: [`North`] and [`Imports`]. Invariant: every owned row is here, duplicates too; a row that cannot be
//! read in one of our columns is an error, not a missing row.
//! Not here: writes (`encode`).

mod foreign;
mod imports;
mod quiet;

use std::collections::{BTreeMap, BTreeSet};

use model::NetworkName;
use model::nb::{self, Columns, OWNER, ROUTE_IMPORT, RowKey, Table, Value};
use ovsdb::{AccessError, Atom, Datum, MonitorTable, Record, Replica, Schema, Uuid};

pub use self::foreign::foreign;
pub use self::imports::{Imports, RouteChange, RouteFollower, decode_imports, imported_among};
pub use self::quiet::Quiet;
use crate::columns::{children, columns, decode as decode_columns, optional_columns};

/// Name of the database.
pub const DATABASE: &str = "OVN_Northbound";

/// What to follow: the tables and columns that plans use, and the references from parents to children.
#[must_use]
pub fn monitor() -> Vec<MonitorTable> {
    Table::ALL
        .into_iter()
        .map(|table| {
            let mut names: Vec<&'static str> =
                columns(table).iter().map(|(name, _)| *name).collect();
            names.extend(children(table).map(|(_, column)| column));
            let mut optional: Vec<&'static str> = optional_columns(table)
                .iter()
                .map(|(name, _)| *name)
                .collect();
            if table == Table::StaticRoute {
                optional.extend(imports::ROUTE_EXTRAS);
            }
            MonitorTable::new(table.name(), &names).optional(&optional)
        })
        .collect()
}

/// Whether NAT rows can have a match (OVN 23.03 has no such column).
#[must_use]
pub fn nat_has_match(schema: &Schema) -> bool {
    schema.has_column("NAT", "match")
}

/// Rows of one network of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct North {
    /// Every row with our owner marker but imported routes, by identity. A child that several parents refer to is here under
    /// the key of each.
    pub owned: BTreeMap<RowKey, Vec<(Uuid, Columns)>>,
    /// The root rows that refer to an owned child: one, unless somebody's hand was in it.
    pub(crate) holders: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// Root rows by name, whoever made them; of several with one name the owner's first.
    pub(crate) roots: BTreeMap<(Table, String), Uuid>,
    /// Names of root rows, whoever made them.
    pub(crate) names: BTreeMap<Uuid, String>,
    /// What owned root rows refer to that share their key, by column, whoever made it.
    pub(crate) children: BTreeMap<Uuid, Vec<(&'static str, Uuid)>>,
    /// Address_Sets that a row of somebody else refers to.
    pub(crate) referenced: BTreeSet<Uuid>,
}

impl North {
    fn put(&mut self, key: RowKey, uuid: Uuid, columns: Columns) {
        let rows = self.owned.entry(key).or_default();
        // A child of two parents with one name is one row.
        if !rows.iter().any(|(row, _)| *row == uuid) {
            rows.push((uuid, columns));
        }
    }
}

/// Decodes what bears the owner marker.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn decode(replica: &Replica, owner: &NetworkName) -> Result<North, AccessError> {
    let marker = OwnerMarker::new(owner);
    let mut north = North::default();
    for table in Table::ALL.into_iter().filter(|t| t.parent().is_none()) {
        decode_roots(replica, &marker, table, &mut north)?;
    }
    for table in Table::ALL {
        if let Some(parent) = table.parent() {
            decode_children(replica, &marker, (table, parent), &mut north)?;
        }
    }
    let twins = north.owned.iter().filter(|(_, rows)| rows.len() > 1);
    for (key, rows) in twins.filter(|(key, _)| key.table.parent().is_none()) {
        let records = replica.table(key.table.name())?;
        for (uuid, _) in rows {
            let mut references = Vec::new();
            for (_, column) in children(key.table) {
                let Some(record) = records.get(uuid) else {
                    continue;
                };
                references.extend(
                    record
                        .get::<Vec<Uuid>>(column)?
                        .iter()
                        .map(|c| (column, *c)),
                );
            }
            north.children.insert(*uuid, references);
        }
    }
    for record in replica.table(Table::Nat.name())?.values() {
        for column in ["exempted_ext_ips", "allowed_ext_ips"] {
            if !marker.is_on(record)? {
                north.referenced.extend(record.get::<Option<Uuid>>(column)?);
            }
        }
    }
    Ok(north)
}

fn decode_roots(
    replica: &Replica,
    marker: &OwnerMarker,
    table: Table,
    north: &mut North,
) -> Result<(), AccessError> {
    for (uuid, record) in replica.table(table.name())? {
        let name: String = record.get("name")?;
        north.names.insert(*uuid, name.clone());
        let at = (table, name.clone());
        if !marker.is_on(record)? {
            north.roots.entry(at).or_insert(*uuid);
            continue;
        }
        let key = RowKey::root(table, name);
        if !north.owned.contains_key(&key) {
            north.roots.insert(at, *uuid);
        }
        north.put(key, *uuid, decode_columns(table, record, &north.names)?);
    }
    Ok(())
}

/// A child without parent is not here: the server is about to collect it.
fn decode_children(
    replica: &Replica,
    marker: &OwnerMarker,
    (table, (parent, column)): (Table, (Table, &str)),
    north: &mut North,
) -> Result<(), AccessError> {
    let records = replica.table(table.name())?;
    for (holder, record) in replica.table(parent.name())? {
        let name: &str = record.get("name")?;
        for child in record.get::<Vec<Uuid>>(column)? {
            let Some(record) = records.get(&child) else {
                continue;
            };
            // Imported routes may be thousands: nothing is built for them.
            if !marker.is_on(record)? || marker.is_import(record)? {
                continue;
            }
            let decoded = decode_columns(table, record, &north.names)?;
            let key = RowKey::child(table, name, identity(table, &decoded));
            north.put(key, child, decoded);
            north.holders.entry(child).or_default().insert(*holder);
        }
    }
    Ok(())
}

/// A network's owner marker and that of imports, ready for comparison.
#[derive(Debug)]
struct OwnerMarker {
    key: Atom,
    owner: Atom,
    import_key: Atom,
    import: Atom,
}

impl OwnerMarker {
    fn new(owner: &NetworkName) -> Self {
        Self {
            key: OWNER.into(),
            owner: owner.as_str().into(),
            import_key: ROUTE_IMPORT.0.into(),
            import: ROUTE_IMPORT.1.into(),
        }
    }

    /// One that only tells imports.
    fn any() -> Self {
        Self::new(&NetworkName::default_network())
    }

    /// Whether the row is the network's.
    fn is_on(&self, record: &Record) -> Result<bool, AccessError> {
        Ok(external_id(record, &self.key)? == Some(&self.owner))
    }

    /// Whether the row is an imported route, of whatever network.
    fn is_import(&self, record: &Record) -> Result<bool, AccessError> {
        Ok(external_id(record, &self.import_key)? == Some(&self.import))
    }
}

fn external_id<'a>(record: &'a Record, key: &Atom) -> Result<Option<&'a Atom>, AccessError> {
    Ok(record.get::<&Datum>("external_ids")?.value_of(key))
}

fn text<'a>(columns: &'a Columns, name: &str) -> &'a str {
    match columns.get(name) {
        Some(Value::Text(text)) => text,
        Some(Value::Set(items)) => items.first().map_or("", String::as_str),
        Some(Value::Number(_) | Value::Entries(_) | Value::Ref(_)) | None => "",
    }
}

/// What tells a row from its siblings; the planners use the same functions.
fn identity(table: Table, row: &Columns) -> String {
    match table {
        Table::AddressSet
        | Table::Router
        | Table::Switch
        | Table::RouterPort
        | Table::SwitchPort => text(row, "name").to_owned(),
        Table::StaticRoute => nb::route_id(
            text(row, "policy"),
            text(row, "ip_prefix"),
            text(row, "nexthop"),
            text(row, "output_port"),
        ),
        Table::Policy => {
            let priority = match row.get("priority") {
                Some(Value::Number(n)) => *n,
                Some(Value::Text(_) | Value::Set(_) | Value::Entries(_) | Value::Ref(_)) | None => {
                    0
                }
            };
            nb::policy_id(priority, text(row, "match"))
        }
        Table::Nat => nb::nat_id(text(row, "type"), text(row, "logical_ip")),
    }
}

#[cfg(test)]
mod tests;
