//! Rows that stand in a plan's way.
//! In: a replica and the rows wanted. Out: problems, which name the row and what to do.
//! Invariant: a named row that is wanted and bears another stamp than the wanted one, or none, is told here before its
//! insertion could fail for ever. Not here: rows without names; two of those do not collide.

use std::collections::BTreeMap;

use model::Problem;
use model::nb::{Columns, OWNER, Rows, Table, Value};
use ovsdb::{Atom, Replica, Uuid};

use super::external_id;

const NAMED: [Table; 5] = [
    Table::AddressSet,
    Table::Router,
    Table::Switch,
    Table::RouterPort,
    Table::SwitchPort,
];

/// Rows that bear a name of ours and are not ours (`ForeignRow`): they stand in the way and are not touched.
///
/// A table that is not followed counts as empty; `lift` tells it.
#[must_use]
pub fn foreign(replica: &Replica, wanted: &Rows) -> Vec<Problem> {
    let mut out = Vec::new();
    let stamp = Atom::from(OWNER);
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
            let (Some(owner), Ok(found)) = (names.get(name), external_id(record, &stamp)) else {
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
    out
}

fn describe(table: Table, name: &str, uuid: Uuid, found: Option<&str>, owner: &str) -> String {
    let what = table.name();
    let bears = found.map_or_else(
        || format!("has no external_ids:{OWNER}"),
        |found| format!("has external_ids:{OWNER}={found}"),
    );
    format!(
        "{what} {name} ({uuid}) {bears}, not {owner}: somebody else made or changed it; remove it, set that id, or let OVN-Kubernetes build the topology ([ovn] topology = adopt)"
    )
}

fn owner(columns: &Columns) -> Option<&str> {
    match columns.get("external_ids")? {
        Value::Entries(ids) => ids.get(OWNER).map(String::as_str),
        Value::Text(_) | Value::Number(_) | Value::Set(_) | Value::Ref(_) => None,
    }
}
