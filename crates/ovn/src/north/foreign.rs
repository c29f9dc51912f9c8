//! Rows that stand in a plan's way.
//! In: a replica and the rows wanted. Out: problems, which name the row and what to do.
//! Invariant: a named row that is wanted and bears another owner marker than the wanted one, or none, is reported here before its
//! insertion could fail for ever. Not here: rows without names; two of those do not collide.

use std::collections::{BTreeMap, HashMap};

use model::Problem;
use model::nb::{Columns, OWNER, Rows, Table, Value};
use ovsdb::{Atom, Datum, Replica, Uuid};

use super::{Owned, external_id, string};

const NAMED: [Table; 7] = [
    Table::AddressSet,
    Table::GatewayChassis,
    Table::Router,
    Table::Switch,
    Table::RouterPort,
    Table::SwitchPort,
    Table::PortGroup,
];

/// Reason of a problem: another node's agent writes to this database.
pub const OTHER_NODE: &str = "OtherNode";

/// Rows with names, whoever made them: what rows that are wanted may collide with.
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// By table and name.
    rows: BTreeMap<Table, HashMap<String, Vec<Marked>>>,
    /// Routers that are bound to a chassis.
    bound: Vec<Bound>,
}

/// A row, and the owner marker that it bears.
type Marked = (Uuid, Option<String>);

#[derive(Debug, Clone)]
struct Bound {
    row: Uuid,
    name: String,
    owner: Option<String>,
    chassis: String,
}

impl Named {
    /// What a replica has. A table that is not followed counts as empty; `decode` tells it.
    #[must_use]
    pub fn of(replica: &Replica) -> Self {
        let mut out = Self::default();
        let (marker, chassis) = (Atom::from(OWNER), Atom::from("chassis"));
        for table in NAMED {
            let rows = out.rows.entry(table).or_default();
            for (uuid, record) in replica.table(table.name()).into_iter().flatten() {
                let (Ok(name), Ok(found)) =
                    (record.get::<&str>("name"), external_id(record, &marker))
                else {
                    continue;
                };
                // One that is no text is nobody's marker.
                let owner = found.map(|atom| string(atom).unwrap_or_default().to_owned());
                let same = rows.entry(name.to_owned()).or_default();
                same.push((*uuid, owner.clone()));
                let options = (table == Table::Router).then(|| record.get::<&Datum>("options"));
                let bound = options.and_then(Result::ok);
                let bound = bound.and_then(|options| options.value_of(&chassis));
                if let Some(chassis) = bound.and_then(string) {
                    out.bound.push(Bound {
                        row: *uuid,
                        name: name.to_owned(),
                        owner,
                        chassis: chassis.to_owned(),
                    });
                }
            }
        }
        out
    }

    /// Rows that bear a name of ours and are not ours (`ForeignRow`): they stand in the way and are not touched. And gateway
    /// routers of another node ([`OTHER_NODE`]); `is_of_a_node` says whether a name is that of a Node's gateway router, and holds
    /// of any while the Nodes have not been listed.
    #[must_use]
    pub fn foreign(&self, wanted: &Rows, is_of_a_node: impl Fn(&str) -> bool) -> Vec<Problem> {
        let mut out = Vec::new();
        for (key, columns) in wanted {
            let rows = self.rows.get(&key.table);
            let (name, owner) = (key.id.as_str(), owner(columns));
            for (row, found) in rows.and_then(|rows| rows.get(name)).into_iter().flatten() {
                if found.as_deref() != owner {
                    let subject = format!("{}/{name}", key.table.name());
                    let (found, owner) = (found.as_deref(), owner.unwrap_or_default());
                    let message = describe(key.table, name, *row, found, owner);
                    out.push(Problem::new(subject, "ForeignRow", message));
                }
            }
        }
        out.extend(self.other_nodes(wanted, is_of_a_node));
        out
    }

    /// Gateway routers of the same owner that are bound to another chassis ([`OTHER_NODE`]): another node's agent works on this
    /// database, and each of the two would delete what the other makes. One bound to the own chassis is this node's, of an
    /// earlier name; one of no Node is a leftover, of a node that is no more or of the machine that this one is a copy of.
    #[must_use]
    pub fn other_nodes(&self, wanted: &Rows, is_of_a_node: impl Fn(&str) -> bool) -> Vec<Problem> {
        let routers = wanted.iter().filter(|(key, _)| key.table == Table::Router);
        let ours: BTreeMap<&str, (Option<&str>, &str)> = routers
            .filter_map(|(key, columns)| {
                let bound = entry(columns, "options", "chassis")?;
                Some((key.id.as_str(), (owner(columns), bound)))
            })
            .collect();
        let mut out = Vec::new();
        for router in &self.bound {
            let (name, bound) = (router.name.as_str(), router.chassis.as_str());
            let rival = ours.iter().find(|(own, (owner, chassis))| {
                **own != name && *owner == router.owner.as_deref() && *chassis != bound
            });
            let Some((own, (_, chassis))) = rival else {
                continue;
            };
            if !ours.contains_key(name) && is_of_a_node(name) {
                let subject = format!("{}/{name}", Table::Router.name());
                let row = router.row;
                let message = format!(
                    "Logical_Router {name} ({row}) of the same network is bound to chassis {bound}, {own} to {chassis}: another node's agent writes to this Northbound database, and each node needs one of its own ([ovnnorth] address); if that node is no more, delete its Node"
                );
                out.push(Problem::new(subject, OTHER_NODE, message));
            }
        }
        out
    }
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
