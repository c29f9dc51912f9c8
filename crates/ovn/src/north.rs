//! OVN_Northbound, read: rows of ours by identity, and what a gateway router holds of imported and other routes.
//! In: a replica. Out: [`North`] and [`Imports`]. Invariant: every row of ours is here, whoever its owner is, duplicates too; a row that cannot be
//! read in one of our columns is an error, not a missing row.
//! Not here: writes (`encode`).

mod addresses;
mod beside;
mod bindings;
mod foreign;
mod imports;
mod quiet;
mod signs;

use std::collections::{BTreeMap, BTreeSet};

use model::NetworkName;
use model::nb::{self, Columns, OWNER, Owner, ROUTE_IMPORT, RowKey, Table, Value};
use ovsdb::{AccessError, Atom, Datum, MonitorTable, Record, Replica, Schema, Uuid};

pub use self::addresses::{Changes, addresses, changes};
pub use self::beside::{conditions_beside, monitor_beside, translations};
pub use self::foreign::{Named, OTHER_NODE, bound_elsewhere};
pub use self::imports::{Imports, RouteChange, RouteFollower, decode_imports, imported_among};
pub use self::quiet::Quiet;
pub use self::signs::{Scene, Signs, signs};
use crate::columns::{children, columns, decode as decode_columns, optional_columns};

/// Name of the database.
pub const DATABASE: &str = "OVN_Northbound";

/// What to follow: the tables and columns that plans use, and the references from parents to children.
#[must_use]
pub fn monitor() -> Vec<MonitorTable> {
    // ACLs are one table, whoever holds the reference to them.
    let tables = Table::ALL.into_iter().filter(|t| *t != Table::GroupAcl);
    tables
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
        .chain([crate::global::monitor()])
        .collect()
}

/// Whether NAT rows can have a match (OVN 23.03 has no such column).
#[must_use]
pub fn nat_has_match(schema: &Schema) -> bool {
    schema.has_column("NAT", "match")
}

/// Rows of one owner by identity, duplicates too. A child that several parents refer to is here under the key of each.
pub type Owned = BTreeMap<RowKey, Vec<(Uuid, Columns)>>;

/// A root row, and whose it is.
pub(crate) type Root = (Option<Owner>, Uuid);

/// The rows that bear our owner marker, and what else a transaction about them has to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct North {
    /// Every row with our owner marker but imported routes, by whose it is.
    pub owned: BTreeMap<Owner, Owned>,
    /// The root rows that refer to an owned child: one, unless somebody's hand was in it.
    pub(crate) holders: BTreeMap<Uuid, BTreeSet<Uuid>>,
    /// Root rows by name, with whose they are; `None` for somebody else's. Switch ports too, all of them as somebody else's.
    pub(crate) roots: BTreeMap<(Table, String), Vec<Root>>,
    /// Names of root rows and of switch ports, whoever made them.
    pub(crate) names: BTreeMap<Uuid, String>,
    /// What owned root rows refer to that share their key, by column, whoever made it.
    pub(crate) children: BTreeMap<Uuid, Vec<(&'static str, Uuid)>>,
    /// Whose rows refer to an Address_Set; `None` for somebody else's.
    pub(crate) referenced: BTreeMap<Uuid, BTreeSet<Option<Owner>>>,
}

impl North {
    /// The rows of an owner.
    #[must_use]
    pub fn of(&self, owner: &Owner) -> &Owned {
        static NOTHING: Owned = Owned::new();
        self.owned.get(owner).unwrap_or(&NOTHING)
    }

    /// The root row of a name: of several the owner's first, else the one that was found first.
    pub(crate) fn root(&self, owner: &Owner, table: Table, name: &str) -> Option<Uuid> {
        let rows = self.roots.get(&(table, name.to_owned()))?;
        let own = rows.iter().find(|(of, _)| of.as_ref() == Some(owner));
        own.or(rows.first()).map(|(_, uuid)| *uuid)
    }

    fn put(&mut self, owner: Owner, key: RowKey, uuid: Uuid, columns: Columns) {
        let rows = self.owned.entry(owner).or_default();
        let rows = rows.entry(key).or_default();
        // A child of two parents with one name is one row.
        if !rows.iter().any(|(row, _)| *row == uuid) {
            rows.push((uuid, columns));
        }
    }
}

/// The networks that routers, switches and port groups bear our owner marker for.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn owners(replica: &Replica) -> Result<BTreeSet<NetworkName>, AccessError> {
    let mut owners = BTreeSet::new();
    for table in ["Logical_Router", "Logical_Switch", "Port_Group"] {
        for record in replica.table(table)?.values() {
            let mut ids = record.get::<BTreeMap<String, String>>("external_ids")?;
            owners.extend(ids.remove(OWNER).map(NetworkName::from));
        }
    }
    Ok(owners)
}

/// Decodes what bears our owner marker, of all owners at once.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn decode(replica: &Replica) -> Result<North, AccessError> {
    let keys = OwnerKeys::new();
    let mut north = North::default();
    decode_switch_ports(replica, &mut north)?;
    let is_named = |table: &Table| table.parent().is_none() && *table != Table::StaticMacBinding;
    for table in Table::ALL.into_iter().filter(is_named) {
        decode_roots(replica, &keys, table, &mut north)?;
    }
    for table in Table::ALL {
        if let Some(parent) = table.parent() {
            decode_children(replica, &keys, (table, parent), &mut north)?;
        }
    }
    decode_children_of_twins(replica, &mut north)?;
    bindings::decode(replica, &mut north)?;
    for record in replica.table(Table::Nat.name())?.values() {
        for column in ["exempted_ext_ips", "allowed_ext_ips"] {
            if let Some(set) = record.get::<Option<Uuid>>(column)? {
                let owner = keys.owner_of(record, Table::Nat, "")?;
                north.referenced.entry(set).or_default().insert(owner);
            }
        }
    }
    Ok(north)
}

/// Of root rows that share owner and name: what they refer to, which the one that stays inherits.
fn decode_children_of_twins(replica: &Replica, north: &mut North) -> Result<(), AccessError> {
    let mut twins = Vec::new();
    for (key, rows) in north.owned.values().flatten() {
        if rows.len() > 1 && key.table.parent().is_none() {
            twins.extend(rows.iter().map(|(uuid, _)| (key.table, *uuid)));
        }
    }
    for (table, uuid) in twins {
        let Some(record) = replica.table(table.name())?.get(&uuid) else {
            continue;
        };
        let mut references = Vec::new();
        let followed = |(_, column): &(Table, &'static str)| record.datum(column).is_some();
        for (_, column) in children(table).filter(followed) {
            let children = record.get::<Vec<Uuid>>(column)?;
            references.extend(children.iter().map(|child| (column, *child)));
        }
        north.children.insert(uuid, references);
    }
    Ok(())
}

/// Switch ports by name, whoever made them: port groups refer to them.
fn decode_switch_ports(replica: &Replica, north: &mut North) -> Result<(), AccessError> {
    for (uuid, record) in replica.table(Table::SwitchPort.name())? {
        let name: String = record.get("name")?;
        north.names.insert(*uuid, name.clone());
        let rows = north.roots.entry((Table::SwitchPort, name));
        rows.or_default().push((None, *uuid));
    }
    Ok(())
}

fn decode_roots(
    replica: &Replica,
    keys: &OwnerKeys,
    table: Table,
    north: &mut North,
) -> Result<(), AccessError> {
    for (uuid, record) in replica.table(table.name())? {
        let name: String = record.get("name")?;
        north.names.insert(*uuid, name.clone());
        let owner = keys.owner_of(record, table, &name)?;
        let rows = north.roots.entry((table, name.clone())).or_default();
        rows.push((owner.clone(), *uuid));
        if let Some(owner) = owner {
            let columns = decode_columns(table, record, &north.names)?;
            north.put(owner, RowKey::root(table, name), *uuid, columns);
        }
    }
    Ok(())
}

/// A child without parent is not here: the server is about to collect it.
fn decode_children(
    replica: &Replica,
    keys: &OwnerKeys,
    (table, (parent, column)): (Table, (Table, &str)),
    north: &mut North,
) -> Result<(), AccessError> {
    let records = replica.table(table.name())?;
    let parents = replica.table(parent.name())?.iter();
    // Beside OVN-Kubernetes a switch's references are not followed.
    for (holder, record) in parents.filter(|(_, record)| record.datum(column).is_some()) {
        let name: &str = record.get("name")?;
        for child in record.get::<Vec<Uuid>>(column)? {
            let Some(record) = records.get(&child) else {
                continue;
            };
            // Imported routes may be thousands: nothing is built for them.
            if keys.is_import(record)? {
                continue;
            }
            let Some(owner) = keys.owner_of(record, table, "")? else {
                continue;
            };
            let decoded = decode_columns(table, record, &north.names)?;
            let key = RowKey::child(table, name, identity(table, &decoded));
            north.put(owner, key, child, decoded);
            north.holders.entry(child).or_default().insert(*holder);
        }
    }
    Ok(())
}

/// The keys of `external_ids` by which rows are distinguished, ready for lookups.
#[derive(Debug)]
struct OwnerKeys {
    owner: Atom,
    import_key: Atom,
    import: Atom,
}

impl OwnerKeys {
    fn new() -> Self {
        Self {
            owner: OWNER.into(),
            import_key: ROUTE_IMPORT.0.into(),
            import: ROUTE_IMPORT.1.into(),
        }
    }

    /// Whose the row is, if it is ours.
    fn owner_of(
        &self,
        record: &Record,
        table: Table,
        name: &str,
    ) -> Result<Option<Owner>, AccessError> {
        let marker = external_id(record, &self.owner)?.and_then(string);
        Ok(marker.map(|marker| Owner::of(marker, table, name)))
    }

    /// Whether the row is an imported route, of whatever network.
    fn is_import(&self, record: &Record) -> Result<bool, AccessError> {
        Ok(external_id(record, &self.import_key)? == Some(&self.import))
    }
}

/// A network's owner marker and that of imports, ready for comparison.
#[derive(Debug)]
struct OwnerMarker {
    keys: OwnerKeys,
    owner: Atom,
}

impl OwnerMarker {
    fn new(owner: &NetworkName) -> Self {
        Self {
            keys: OwnerKeys::new(),
            owner: owner.as_str().into(),
        }
    }

    /// Whether the row is the network's.
    fn is_on(&self, record: &Record) -> Result<bool, AccessError> {
        Ok(external_id(record, &self.keys.owner)? == Some(&self.owner))
    }

    /// Whether the row is an imported route, of whatever network.
    fn is_import(&self, record: &Record) -> Result<bool, AccessError> {
        self.keys.is_import(record)
    }
}

fn external_id<'a>(record: &'a Record, key: &Atom) -> Result<Option<&'a Atom>, AccessError> {
    Ok(record.get::<&Datum>("external_ids")?.value_of(key))
}

fn string(atom: &Atom) -> Option<&str> {
    if let Atom::String(text) = atom {
        Some(text)
    } else {
        None
    }
}

fn text<'a>(columns: &'a Columns, name: &str) -> &'a str {
    match columns.get(name) {
        Some(Value::Text(text)) => text,
        Some(Value::Set(items)) => items.first().map_or("", String::as_str),
        Some(Value::Number(_) | Value::Flag(_) | Value::Entries(_) | Value::Ref(_)) | None => "",
    }
}

fn number(columns: &Columns, name: &str) -> i64 {
    match columns.get(name) {
        Some(Value::Number(number)) => *number,
        Some(
            Value::Text(_) | Value::Flag(_) | Value::Set(_) | Value::Entries(_) | Value::Ref(_),
        )
        | None => 0,
    }
}

/// What tells a row from its siblings; the planners use the same functions.
fn identity(table: Table, row: &Columns) -> String {
    match table {
        Table::AddressSet
        | Table::GatewayChassis
        | Table::Router
        | Table::Switch
        | Table::PortGroup
        | Table::RouterPort
        | Table::SwitchPort => text(row, "name").to_owned(),
        Table::StaticRoute => nb::route_id(
            text(row, "policy"),
            text(row, "ip_prefix"),
            text(row, "nexthop"),
            text(row, "output_port"),
        ),
        Table::Policy => nb::policy_id(number(row, "priority"), text(row, "match")),
        Table::Acl | Table::GroupAcl => nb::acl_id(
            text(row, "direction"),
            number(row, "priority"),
            text(row, "match"),
        ),
        Table::Nat => {
            let allowed = match row.get("allowed_ext_ips") {
                Some(Value::Ref(set)) => Some(set.id.as_str()),
                _ => None,
            };
            nb::nat_id(text(row, "type"), text(row, "logical_ip"), allowed)
        }
        Table::StaticMacBinding => nb::mac_binding_id(text(row, "logical_port"), text(row, "ip")),
    }
}

#[cfg(test)]
mod tests;
