//! OVN_Northbound, read: rows of ours by identity, and what a gateway router holds of imported and other routes.
//! In: a replica. Out: [`North`] and [`Imports`]. Invariant: every owned row is here, duplicates too; a row that cannot be
//! read in one of our columns is an error, not a missing row.
//! Not here: writes (`lower`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::nb::{
    self, Columns, ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, RowKey, Rows, Table, Value,
};
use model::{NetworkName, Prefix, Problem};
use ovsdb::{AccessError, Atom, MonitorTable, Record, Replica, Schema, Uuid};

use crate::columns::{children, columns, lift as lift_columns, optional_columns};

/// Name of the database.
pub const DATABASE: &str = "OVN_Northbound";

/// Columns of routes beside the topology's, so that rows edited by hand are seen.
const ROUTE_EXTRAS: [&str; 2] = ["bfd", "route_table"];

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
                optional.extend(ROUTE_EXTRAS);
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
    /// Every row with our stamp but imported routes, by identity.
    pub owned: BTreeMap<RowKey, Vec<(Uuid, Columns)>>,
    /// The parent of each child row: its table and uuid.
    pub parents: BTreeMap<Uuid, (Table, Uuid)>,
    /// Root rows by name, whoever made them.
    pub roots: BTreeMap<(Table, String), Uuid>,
}

/// Lifts what bears the owner's stamp.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn lift(replica: &Replica, owner: &NetworkName) -> Result<North, AccessError> {
    let mut north = North::default();
    let mut names: BTreeMap<Uuid, String> = BTreeMap::new();
    for table in Table::ALL.into_iter().filter(|t| t.parent().is_none()) {
        for (uuid, record) in replica.table(table.name())? {
            let name: String = record.get("name")?;
            for (_, column) in children(table) {
                for child in record.get::<Vec<Uuid>>(column)? {
                    north.parents.insert(child, (table, *uuid));
                }
            }
            north.roots.entry((table, name.clone())).or_insert(*uuid);
            names.insert(*uuid, name);
        }
    }
    for table in Table::ALL {
        for (uuid, record) in replica.table(table.name())? {
            if stamp(record, OWNER)? != Some(owner.as_str())
                || stamp(record, ROUTE_IMPORT.0)? == Some(ROUTE_IMPORT.1)
            {
                continue;
            }
            let parent = match table.parent() {
                None => String::new(),
                Some(_) => match north.parents.get(uuid).and_then(|(_, p)| names.get(p)) {
                    Some(name) => name.clone(),
                    // A child without parent is about to be collected by the server.
                    None => continue,
                },
            };
            let lifted = lift_columns(table, record, &names)?;
            let key = RowKey {
                id: identity(table, &lifted),
                table,
                parent,
            };
            north.owned.entry(key).or_default().push((*uuid, lifted));
        }
    }
    Ok(north)
}

/// The value of an `external_ids` key.
fn stamp<'a>(record: &'a Record, key: &str) -> Result<Option<&'a str>, AccessError> {
    let Some(datum) = record.datum("external_ids") else {
        return record.get::<&ovsdb::Datum>("external_ids").map(|_| None);
    };
    match datum.value_of(&Atom::from(key)) {
        Some(Atom::String(text)) => Ok(Some(text)),
        Some(
            Atom::Integer(_)
            | Atom::Real(_)
            | Atom::Boolean(_)
            | Atom::Uuid(_)
            | Atom::NamedUuid(_),
        )
        | None => Ok(None),
    }
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

/// Rows that bear a name of ours and are not ours: they stand in the way and are not touched.
#[must_use]
pub fn foreign(replica: &Replica, wanted: &Rows) -> Vec<Problem> {
    let named = [
        Table::AddressSet,
        Table::Router,
        Table::Switch,
        Table::RouterPort,
        Table::SwitchPort,
    ];
    let mut out = Vec::new();
    for table in named {
        let names: BTreeSet<&str> = wanted
            .keys()
            .filter(|k| k.table == table)
            .map(|k| k.id.as_str())
            .collect();
        let rows = replica.table(table.name()).into_iter().flatten();
        for (uuid, record) in rows {
            let Ok(name) = record.get::<&str>("name") else {
                continue;
            };
            if names.contains(name) && matches!(stamp(record, OWNER), Ok(None)) {
                let what = table.name();
                let subject = format!("{what}/{name}");
                let message = format!(
                    "{what} {name} ({uuid}) has no external_ids:{OWNER}: somebody else made it; remove it, or let OVN-Kubernetes build the topology ([ovn] topology = adopt)"
                );
                out.push(Problem::new(subject, "ForeignRow", message));
            }
        }
    }
    out
}

/// The routes of one gateway router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imports {
    /// Imported routes in the form that we write, with every row of each.
    pub rows: BTreeMap<ImportedRoute, Vec<Uuid>>,
    /// Stamped rows in another form: edited by hand, or unreadable. Surplus.
    pub odd: Vec<Uuid>,
    /// Prefixes of rows without the stamp of imports.
    pub taken: BTreeSet<Prefix>,
    /// The router; `None` while it does not exist.
    pub router: Option<Uuid>,
}

/// Lifts the routes of a gateway router.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn lift_imports(replica: &Replica, target: &ImportTarget) -> Result<Imports, AccessError> {
    let mut imports = Imports::default();
    let routes = replica.table(Table::StaticRoute.name())?;
    for (uuid, router) in replica.table(Table::Router.name())? {
        if router.get::<&str>("name")? != target.router.as_str() || imports.router.is_some() {
            continue;
        }
        imports.router = Some(*uuid);
        for child in router.get::<Vec<Uuid>>("static_routes")? {
            let Some(record) = routes.get(&child) else {
                continue;
            };
            let prefix = prefix(record.get("ip_prefix")?);
            if stamp(record, ROUTE_IMPORT.0)? != Some(ROUTE_IMPORT.1) {
                imports.taken.extend(prefix);
                continue;
            }
            match prefix.zip(record.get::<&str>("nexthop")?.parse::<IpAddr>().ok()) {
                Some((prefix, nexthop)) if is_canonical(record, target)? => {
                    imports
                        .rows
                        .entry(ImportedRoute { prefix, nexthop })
                        .or_default()
                        .push(child);
                }
                _ => imports.odd.push(child),
            }
        }
    }
    Ok(imports)
}

/// `ip_prefix` may be an address alone.
fn prefix(text: &str) -> Option<Prefix> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host))
}

fn is_canonical(record: &Record, target: &ImportTarget) -> Result<bool, AccessError> {
    let empty = |column: &str| {
        let datum = record.datum(column);
        datum.is_none_or(|d| {
            d.as_set()
                .is_some_and(|s| s.is_empty() || s == [Atom::from("")])
                || d.as_map().is_some_and(<[_]>::is_empty)
        })
    };
    Ok(
        record.get::<Option<&str>>("output_port")? == Some(target.output_port.as_str())
            && stamp(record, OWNER)? == Some(target.network.as_str())
            && ["policy", "options"]
                .into_iter()
                .chain(ROUTE_EXTRAS)
                .all(empty),
    )
}
