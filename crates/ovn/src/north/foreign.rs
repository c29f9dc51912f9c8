//! Rows that stand in a plan's way.
//! In: a replica and the rows wanted. Out: problems, which name the row and what to do.
//! Invariant: a named row that is wanted and bears another owner marker than the wanted one, or none, is reported here before its
//! insertion could fail for ever. Not here: rows without names; two of those do not collide.

use std::collections::{BTreeMap, BTreeSet};

use model::Problem;
use model::names::RouterName;
use model::nb::{Columns, OWNER, Rows, Table, Value};
use ovsdb::{Atom, Datum, Replica, Uuid};

use super::{Owned, external_id, string};

const NAMED: [Table; 6] = [
    Table::AddressSet,
    Table::GatewayChassis,
    Table::Router,
    Table::Switch,
    Table::RouterPort,
    Table::SwitchPort,
];

/// Reason of a problem: another node's agent writes to this database.
pub const OTHER_NODE: &str = "OtherNode";

/// Rows that bear a name of ours and are not ours (`ForeignRow`): they stand in the way and are not touched. And gateway
/// routers of another node (`OtherNode`). `routers` are the names of all Nodes' gateway routers, `None` while the Nodes have
/// not been listed: then any may be one.
///
/// A table that is not followed counts as empty; `decode` tells it.
#[must_use]
pub fn foreign(
    replica: &Replica,
    wanted: &Rows,
    routers: Option<&BTreeSet<RouterName>>,
) -> Vec<Problem> {
    let mut out = Vec::new();
    let marker = Atom::from(OWNER);
    for table in NAMED {
        let names: BTreeMap<&str, Option<&str>> = wanted
            .iter()
            .filter(|(key, _)| key.table == table)
            .map(|(key, columns)| (key.id.as_str(), owner(columns)))
            .collect();
        for (uuid, record) in replica.table(table.name()).into_iter().flatten() {
            let Ok(name) = record.get::<&str>("name") else {
                continue;
            };
            let (Some(owner), Ok(found)) = (names.get(name), external_id(record, &marker)) else {
                continue;
            };
            let found = found.map(|atom| match atom {
                Atom::String(text) => &**text,
                Atom::Integer(_)
                | Atom::Real(_)
                | Atom::Boolean(_)
                | Atom::Uuid(_)
                | Atom::NamedUuid(_) => "",
            });
            if found != *owner {
                let subject = format!("{}/{name}", table.name());
                let message = describe(table, name, *uuid, found, owner.unwrap_or_default());
                out.push(Problem::new(subject, "ForeignRow", message));
            }
        }
    }
    out.extend(other_nodes(replica, wanted, routers));
    out
}

/// Gateway routers of the same owner that are bound to another chassis (`OtherNode`): another node's agent works on this
/// database, and each of the two would delete what the other makes. One bound to the own chassis is this node's, of an
/// earlier name; one of no Node is a leftover, of a node that is no more or of the machine that this one is a copy of.
fn other_nodes(
    replica: &Replica,
    wanted: &Rows,
    routers: Option<&BTreeSet<RouterName>>,
) -> Vec<Problem> {
    let is_of_a_node = |name: &str| {
        routers.is_none_or(|routers| routers.iter().any(|router| router.as_str() == name))
    };
    let routers = wanted.iter().filter(|(key, _)| key.table == Table::Router);
    let ours: BTreeMap<&str, (Option<&str>, &str)> = routers
        .filter_map(|(key, columns)| {
            let bound = entry(columns, "options", "chassis")?;
            Some((key.id.as_str(), (owner(columns), bound)))
        })
        .collect();
    let (marker, chassis) = (Atom::from(OWNER), Atom::from("chassis"));
    let mut out = Vec::new();
    for (uuid, record) in replica.table(Table::Router.name()).into_iter().flatten() {
        let (Ok(name), Ok(found), Ok(options)) = (
            record.get::<&str>("name"),
            external_id(record, &marker),
            record.get::<&Datum>("options"),
        ) else {
            continue;
        };
        let Some(bound) = options.value_of(&chassis).and_then(string) else {
            continue;
        };
        let found = found.and_then(string);
        let rival = ours
            .iter()
            .find(|(own, (owner, chassis))| **own != name && *owner == found && *chassis != bound);
        let is_other = !ours.contains_key(name) && is_of_a_node(name);
        if let (Some((own, (_, chassis))), true) = (rival, is_other) {
            let subject = format!("{}/{name}", Table::Router.name());
            let message = format!(
                "Logical_Router {name} ({uuid}) of the same network is bound to chassis {bound}, {own} to {chassis}: another node's agent writes to this Northbound database, and each node needs one of its own ([ovnnorth] address); if that node is no more, delete its Node"
            );
            out.push(Problem::new(subject, OTHER_NODE, message));
        }
    }
    out
}

/// Of an owner's rows, a router that is bound to a chassis that is not this node's; `chassis` is this node's, `None` while it is
/// not known: then any may be another's.
#[must_use]
pub fn bound_elsewhere<'a>(owned: &'a Owned, chassis: Option<&str>) -> Option<&'a str> {
    let mut routers = owned.iter().filter(|(key, _)| key.table == Table::Router);
    let found = routers.find(|(_, rows)| {
        let mut bound = rows
            .iter()
            .filter_map(|(_, columns)| entry(columns, "options", "chassis"));
        bound.any(|bound| chassis != Some(bound))
    });
    found.map(|(key, _)| key.id.as_str())
}

fn describe(table: Table, name: &str, uuid: Uuid, found: Option<&str>, owner: &str) -> String {
    let what = table.name();
    let bears = found.map_or_else(
        || format!("has no external_ids:{OWNER}"),
        |found| format!("has external_ids:{OWNER}={found}"),
    );
    format!(
        "{what} {name} ({uuid}) {bears}, not {owner}: somebody else made or changed it; remove it, or set that id"
    )
}

fn owner(columns: &Columns) -> Option<&str> {
    entry(columns, "external_ids", OWNER)
}

fn entry<'a>(columns: &'a Columns, column: &str, key: &str) -> Option<&'a str> {
    match columns.get(column)? {
        Value::Entries(entries) => entries.get(key).map(String::as_str),
        Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Set(_) | Value::Ref(_) => None,
    }
}
