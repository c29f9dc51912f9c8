//! What a transaction says: guards, new rows, references; real servers answer in `ovn-tests`.

use std::collections::BTreeSet;

use model::Diff;
use model::nb::{self, Columns, ImportTarget, ImportedRoute, Rows, Table, Value};
use ovsdb::{Condition, Operation, Uuid};

use super::*;
use crate::north::Imports;

const GR: &str = "GR_n1";

fn mk_uuid(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

fn mk_columns(pairs: &[(&'static str, Value)]) -> Columns {
    pairs.iter().cloned().collect()
}

fn named(name: &str) -> Columns {
    mk_columns(&[("name", Value::Text(name.to_owned()))])
}

fn mk_route(nexthop: &str) -> (RowKey, Columns) {
    let key = RowKey::child(
        Table::StaticRoute,
        GR,
        nb::route_id("", "10.0.0.0/8", nexthop, ""),
    );
    let columns = mk_columns(&[
        ("ip_prefix", Value::Text("10.0.0.0/8".to_owned())),
        ("nexthop", Value::Text(nexthop.to_owned())),
    ]);
    (key, columns)
}

/// A router (uuid 1) with one route (uuid 2).
fn mk_standing() -> Standing {
    let mut standing = Standing::default();
    let router = (mk_uuid(1), named(GR));
    standing
        .owned
        .insert(RowKey::root(Table::Router, GR), vec![router]);
    let (key, columns) = mk_route("192.0.2.1");
    standing.owned.insert(key, vec![(mk_uuid(2), columns)]);
    standing.parents.insert(mk_uuid(2), mk_uuid(1));
    standing
}

fn operations(standing: &Standing, wanted: &Rows) -> Result<Vec<Operation>, LowerError> {
    let diff = Diff::between(&standing.owned, wanted, nb::satisfies);
    let transaction = topology(standing, &diff, &NetworkName::default_network())?;
    Ok(transaction.operations().to_vec())
}

/// A short text of each operation: its kind, table and row.
fn said(operations: &[Operation]) -> Vec<String> {
    let at = |conditions: &[Condition]| format!("{:?}", conditions[0].value);
    operations
        .iter()
        .map(|operation| match operation {
            Operation::Comment(text) => format!("comment {text}"),
            Operation::Wait {
                table,
                rows,
                columns,
                ..
            } => {
                let kind = if rows.is_empty() { "absent" } else { "guard" };
                format!("{kind} {table} {}", columns.join(","))
            }
            Operation::Insert { table, row, .. } => {
                let columns: Vec<&str> = row.columns().map(|(name, _)| name).collect();
                format!("insert {table} {}", columns.join(","))
            }
            Operation::Update { table, row, .. } => {
                let columns: Vec<&str> = row.columns().map(|(name, _)| name).collect();
                format!("update {table} {}", columns.join(","))
            }
            Operation::Mutate {
                table, mutations, ..
            } => {
                let parts: Vec<String> = mutations
                    .iter()
                    .map(|m| format!("{:?} {}", m.mutator, m.column))
                    .collect();
                format!("mutate {table} {}", parts.join(","))
            }
            Operation::Delete { table, conditions } => {
                format!("delete {table} {}", at(conditions))
            }
            Operation::Select { .. } | Operation::Assert(_) | Operation::Abort => {
                panic!("{operation:?}")
            }
        })
        .collect()
}

const COMMENT: &str = "comment noverlay node-agent topology default";

#[test]
fn a_new_child_is_referred_to_by_mutation_and_the_old_one_loses_its_reference() {
    let wanted: Rows = [
        (RowKey::root(Table::Router, GR), named(GR)),
        mk_route("192.0.2.9"),
    ]
    .into();
    assert_eq!(
        said(&operations(&mk_standing(), &wanted).unwrap()),
        [
            COMMENT,
            "guard Logical_Router name",
            "insert Logical_Router_Static_Route ip_prefix,nexthop",
            "mutate Logical_Router Delete static_routes,Insert static_routes",
        ]
    );
}

#[test]
fn children_of_a_new_row_stand_in_its_insert() {
    let wanted: Rows = [
        (RowKey::root(Table::Router, GR), named(GR)),
        mk_route("192.0.2.9"),
    ]
    .into();
    assert_eq!(
        said(&operations(&Standing::default(), &wanted).unwrap()),
        [
            COMMENT,
            "absent Logical_Router name",
            "insert Logical_Router name,static_routes",
            "insert Logical_Router_Static_Route ip_prefix,nexthop",
        ]
    );
}

#[test]
fn an_update_names_only_what_differs_and_guards_what_it_replaces() {
    let key = RowKey::root(Table::Router, GR);
    let mut standing = mk_standing();
    let have = mk_columns(&[
        ("name", Value::Text(GR.to_owned())),
        ("options", Value::entries([("a", "1"), ("b", "2")])),
    ]);
    standing.owned.insert(key.clone(), vec![(mk_uuid(1), have)]);
    let want = mk_columns(&[
        ("name", Value::Text(GR.to_owned())),
        ("options", Value::entries([("a", "1"), ("b", "3")])),
    ]);
    let mut wanted: Rows = [(key, want), mk_route("192.0.2.1")].into();
    let operations_of = |wanted: &Rows| operations(&standing, wanted).unwrap();
    let lowered = operations_of(&wanted);
    assert_eq!(
        said(&lowered),
        [
            COMMENT,
            "guard Logical_Router name",
            "mutate Logical_Router Delete options,Insert options",
        ]
    );
    let text = format!("{:?}", lowered.last());
    assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");

    let route = wanted.keys().nth(1).cloned().unwrap();
    if let Some(columns) = wanted.get_mut(&route) {
        columns.insert("policy", Value::set(["dst-ip"]));
        columns.insert("nexthop", Value::Text("192.0.2.1".to_owned()));
    }
    let lowered = said(&operations_of(&wanted));
    assert!(
        lowered.contains(&"update Logical_Router_Static_Route policy".to_owned()),
        "{lowered:?}"
    );
    assert!(
        lowered.contains(&"guard Logical_Router_Static_Route ip_prefix".to_owned()),
        "the row has to be there: {lowered:?}"
    );
}

#[test]
fn a_root_row_that_goes_takes_its_children_along() {
    let lowered = said(&operations(&mk_standing(), &Rows::new()).unwrap());
    assert_eq!(lowered.len(), 2, "{lowered:?}");
    assert!(lowered[1].starts_with("delete Logical_Router "));
}

#[test]
fn a_twin_that_goes_is_never_referred_to() {
    let mut standing = mk_standing();
    if let Some(rows) = standing.owned.get_mut(&RowKey::root(Table::Router, GR)) {
        rows.push((mk_uuid(9), named(GR)));
    }
    let wanted: Rows = [
        (RowKey::root(Table::Router, GR), named(GR)),
        mk_route("192.0.2.9"),
    ]
    .into();
    let lowered = operations(&standing, &wanted).unwrap();
    for operation in &lowered {
        if let Operation::Mutate { conditions, .. } = operation {
            assert_eq!(conditions[0].value, mk_uuid(1).into());
        }
        if let Operation::Delete { conditions, .. } = operation {
            assert_eq!(conditions[0].value, mk_uuid(9).into());
        }
    }
    assert_eq!(lowered.len(), 5, "{lowered:?}");
}

#[test]
fn a_row_without_its_parent_or_its_set_is_refused() {
    let wanted: Rows = [mk_route("192.0.2.9")].into();
    assert!(matches!(
        operations(&Standing::default(), &wanted),
        Err(LowerError::NoTarget { .. })
    ));
    let nat = mk_columns(&[(
        "exempted_ext_ips",
        Value::Ref(RowKey::root(Table::AddressSet, "a1")),
    )]);
    let wanted: Rows = [
        (RowKey::root(Table::Router, GR), named(GR)),
        (RowKey::child(Table::Nat, GR, "snat|10.0.0.0/8"), nat),
    ]
    .into();
    let error = operations(&Standing::default(), &wanted).unwrap_err();
    assert!(error.to_string().contains("Address_Set a1"), "{error}");
}

#[test]
fn batches_keep_the_rows_of_a_prefix_together() {
    let target = ImportTarget {
        network: NetworkName::default_network(),
        router: GR.into(),
        output_port: "rtoe-GR_n1".to_owned(),
    };
    let route = |number: u32, via: &str| ImportedRoute {
        prefix: format!("10.{}.{}.0/24", number / 256, number % 256)
            .parse()
            .unwrap(),
        nexthop: via.parse().unwrap(),
    };
    let mut standing = Imports {
        router: mk_uuid(1),
        rows: [].into(),
        unreadable: vec![mk_uuid(7)],
        foreign: BTreeSet::new(),
    };
    let old = (0..600).map(|n| (route(n, "192.0.2.1"), vec![(mk_uuid(2), true)]));
    standing.rows.extend(old);
    let wanted = (0..600).map(|n| route(n, "192.0.2.2")).collect();
    let transactions = imports(&standing, &standing.diff(&wanted), &target);
    let inserts: Vec<usize> = transactions
        .iter()
        .map(|t| {
            let inserts = t.operations().iter();
            inserts
                .filter(|o| matches!(o, Operation::Insert { .. }))
                .count()
        })
        .collect();
    // 1200 changes, two of each prefix, and the unreadable row by itself.
    assert_eq!(inserts, [250, 250, 100, 0]);
    assert!(imports(&standing, &Diff::default(), &target).len() == 1);
    standing.unreadable.clear();
    assert!(imports(&standing, &Diff::default(), &target).is_empty());
}
