//! A hand meddles with single rows; the next pass puts them right.
//!
//! In: edits by a second client. Out: a database as planned. Invariant: what others wrote is as it was.
//! Not here: whole plans (`topology.rs`), imported routes (`imports.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test"
)]

use std::collections::BTreeSet;

use model::nb::{OWNER, RowKey, Rows, Table, Value};
use ovn::north;
use ovn_tests::{Fixture, mk_view, rows_of};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid, random_uuid};

fn mk_rows() -> Rows {
    rows_of(&mk_view())
}

/// A bench with the plan, a pod's port on the node switch, and a foreign route and policy.
async fn mk_fixture(rows: &Rows) -> Option<Fixture> {
    let fixture = Fixture::start().await?;
    fixture.pass(rows).await;
    fixture
        .nbctl(&[
            "--",
            "lsp-add",
            "n1",
            "ns_pod",
            "--",
            "lr-route-add",
            "GR_n1",
            "198.51.100.0/24",
            "172.30.0.7",
            "--",
            "lr-policy-add",
            "ovn_cluster_router",
            "501",
            "ip4.src == 10.9.0.0/16",
            "drop",
            "--",
            "lr-add",
            "theirs",
        ])
        .await;
    Some(fixture)
}

fn tx() -> Transaction {
    Transaction::new(north::DATABASE)
}

fn parent(fixture: &Fixture, key: &RowKey) -> Option<(Table, Uuid, &'static str)> {
    let (table, column) = key.table.parent()?;
    let uuid = fixture.uuid(&RowKey::root(table, key.parent_name().unwrap_or_default()));
    Some((table, uuid, column))
}

/// The same row once more, as data.
fn copy(fixture: &Fixture, key: &RowKey, rows: &Rows) -> Row {
    let mut row = Row::new();
    for (column, value) in &rows[key] {
        let datum: Datum = match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => (*number).into(),
            Value::Flag(flag) => (*flag).into(),
            Value::Set(items) => items.clone().into(),
            Value::Entries(entries) => entries.clone().into(),
            Value::Ref(key) => fixture.uuid(key).into(),
        };
        row.set(*column, datum);
    }
    row
}

/// Values that a column should not hold, and that the schema lets in.
fn wrong(table: Table, column: &str, value: &Value, third_party: Uuid) -> Vec<Datum> {
    match (table, column, value) {
        (Table::Nat, "type", _) => vec!["dnat_and_snat".into()],
        (Table::Acl, "action", _) => vec!["allow".into()],
        (Table::Acl, "direction", _) => vec!["to-lport".into()],
        (Table::Policy, "action", _) => vec!["drop".into()],
        (Table::StaticRoute, "policy", Value::Set(items)) if items.is_empty() => {
            vec!["src-ip".into()]
        }
        (Table::StaticRoute, "policy", _) => vec![Datum::empty_set(), "dst-ip".into()],
        (Table::Nat, "exempted_ext_ips" | "allowed_ext_ips", Value::Set(_)) => {
            vec![third_party.into()]
        }
        (_, _, Value::Ref(_)) => vec![third_party.into(), Datum::empty_set()],
        (_, _, Value::Text(_)) => vec!["edited".into()],
        (_, _, Value::Number(number)) => vec![(number + 1).into()],
        (_, _, Value::Flag(flag)) => vec![(!flag).into()],
        (Table::StaticRoute, _, Value::Set(items)) if items.is_empty() => vec!["edited".into()],
        (Table::StaticRoute, _, Value::Set(_)) => vec!["edited".into(), Datum::empty_set()],
        (_, _, Value::Set(items)) => {
            let more: Vec<&str> = items.iter().map(String::as_str).chain(["edited"]).collect();
            vec!["edited".into(), Datum::set(more)]
        }
        (_, _, Value::Entries(entries)) => {
            let kept = || entries.iter().filter(|(k, _)| *k == OWNER);
            let other = entries.iter().map(|(k, v)| {
                if k == OWNER {
                    (k, v.as_str())
                } else {
                    (k, "edited")
                }
            });
            if kept().count() == entries.len() {
                return Vec::new();
            }
            vec![Datum::map(kept()), Datum::map(other)]
        }
    }
}

#[tokio::test]
async fn an_edited_row_is_put_right() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    fixture
        .nbctl(&["create", "Address_Set", "name=stranger"])
        .await;
    let [third_party] = fixture
        .named(Table::AddressSet, "stranger")
        .into_iter()
        .collect::<Vec<_>>()[..]
    else {
        panic!("no set");
    };
    let mut edits = 0;
    for (key, columns) in &rows {
        for (column, value) in columns {
            // A renamed switch is another switch, and its pods went with the name.
            if *column == "name" && key.table.parent().is_none() && key.table != Table::AddressSet {
                continue;
            }
            for datum in wrong(key.table, column, value, third_party) {
                let uuid = fixture.uuid(key);
                let edit = Fixture::set(key.table, uuid, Row::new().with(*column, datum.clone()));
                fixture.by_hand(edit).await;
                let same = *column == "policy" && datum == Datum::from("dst-ip");
                let touched = fixture.pass(&rows).await;
                assert!(touched > 0 || same, "{key} {column}");
                edits += 1;
            }
        }
    }
    assert!(edits > 150, "{edits}");
}

#[tokio::test]
async fn a_renamed_root_row_is_replaced() {
    let rows = mk_rows();
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.pass(&rows).await;
    for key in rows.keys().filter(|key| key.table.parent().is_none()) {
        let row = Row::new().with("name", "edited");
        fixture
            .by_hand(Fixture::set(key.table, fixture.uuid(key), row))
            .await;
        assert!(fixture.pass(&rows).await > 1, "{key}");
        assert_eq!(fixture.named(key.table, "edited").len(), 0);
    }
}

#[tokio::test]
async fn a_deleted_row_is_made_again() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    for key in rows.keys() {
        let uuid = fixture.uuid(key);
        let mut edit = tx();
        if let Some((table, parent, column)) = parent(&fixture, key) {
            edit = Fixture::refer(table, parent, Mutation::delete(column, uuid));
        } else {
            for column in ["exempted_ext_ips", "allowed_ext_ips"] {
                let who = vec![Condition::includes(column, uuid)];
                let row = Row::new().with(column, Datum::empty_set());
                edit = edit.update("NAT", who, row);
            }
            edit = edit.delete(key.table.name(), vec![Condition::uuid(uuid)]);
        }
        fixture.hand.transact(&edit).await.unwrap();
        fixture.settle().await;
        assert!(fixture.pass(&rows).await > 0, "{key}");
        assert_ne!(fixture.uuid(key), uuid);
    }
}

#[tokio::test]
async fn a_duplicate_goes() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    // Names of ports and sets are unique in the schema.
    let unnamed = |key: &&RowKey| {
        !matches!(
            key.table,
            Table::AddressSet | Table::RouterPort | Table::SwitchPort
        )
    };
    for key in rows.keys().filter(unnamed) {
        let uuid = random_uuid();
        let mut edit = tx();
        if let Some((table, parent, column)) = parent(&fixture, key) {
            edit = Fixture::refer(table, parent, Mutation::insert(column, uuid));
        }
        fixture
            .by_hand(edit.insert(key.table.name(), uuid, copy(&fixture, key, &rows)))
            .await;
        assert_eq!(fixture.pass(&rows).await, 1, "{key}");
    }
}

/// A duplicate root row that holds half of the children and a third party's; it comes before or after the first.
async fn duplicate_root(fixture: &Fixture, rows: &Rows, key: &RowKey, twin: Uuid) {
    let uuid = fixture.uuid(key);
    let mut edit = tx().insert(key.table.name(), twin, copy(fixture, key, rows));
    let mut moved = 0;
    let columns: &[&str] = match key.table {
        Table::Router => &["ports", "static_routes", "policies", "nat"],
        _ => &["ports"],
    };
    for column in columns {
        for (number, child) in fixture
            .children(key.table, uuid, column)
            .into_iter()
            .enumerate()
        {
            if number % 2 == 0 {
                let (from, to) = (vec![Condition::uuid(uuid)], vec![Condition::uuid(twin)]);
                edit = edit
                    .mutate(
                        key.table.name(),
                        from,
                        vec![Mutation::delete(*column, child)],
                    )
                    .mutate(key.table.name(), to, vec![Mutation::insert(*column, child)]);
                moved += 1;
            }
        }
    }
    assert!(moved > 0);
    fixture.by_hand(edit).await;
}

#[tokio::test]
async fn children_of_a_duplicate_come_to_the_row_that_stays() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    let pod: Vec<Uuid> = fixture
        .named(Table::SwitchPort, "ns_pod")
        .into_iter()
        .collect();
    let children = |key: &RowKey| -> BTreeSet<Uuid> {
        let north = fixture.decode();
        let of = north
            .owned
            .values()
            .flatten()
            .filter(|(child, _)| child.parent_name() == Some(key.id.as_str()));
        of.flat_map(|(_, held)| held.iter().map(|(uuid, _)| *uuid))
            .collect()
    };
    let roots = rows
        .keys()
        .filter(|key| matches!(key.table, Table::Router | Table::Switch));
    for (number, key) in (0_u8..).zip(roots) {
        for first in [0x00, 0xff] {
            let before = children(key);
            let mut bytes = [first; 16];
            bytes[15] = number;
            duplicate_root(&fixture, &rows, key, Uuid::version4(bytes)).await;
            assert_eq!(fixture.pass(&rows).await, 1, "{key}");
            assert_eq!(children(key), before, "{key}");
            assert_eq!(fixture.named(key.table, &key.id).len(), 1);
        }
    }
    let switch = fixture.uuid(&RowKey::root(Table::Switch, "n1"));
    assert!(
        fixture
            .children(Table::Switch, switch, "ports")
            .contains(&pod[0])
    );
}

#[tokio::test]
async fn a_duplicate_with_copies_of_the_children_goes_with_them() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    for first in [0x00, 0xff] {
        let (router, twin) = (
            RowKey::root(Table::Router, "GR_n1"),
            Uuid::version4([first; 16]),
        );
        let mut row = copy(&fixture, &router, &rows);
        let mut edit = tx();
        for (table, column) in [(Table::StaticRoute, "static_routes"), (Table::Nat, "nat")] {
            let mut copies = Vec::new();
            let ours = rows
                .keys()
                .filter(|key| key.table == table && key.parent_name() == Some(router.id.as_str()));
            for key in ours {
                let uuid = random_uuid();
                edit = edit.insert(table.name(), uuid, copy(&fixture, key, &rows));
                copies.push(uuid);
            }
            row.set(column, copies);
        }
        fixture
            .by_hand(edit.insert("Logical_Router", twin, row))
            .await;
        assert!(fixture.pass(&rows).await > 5);
        assert_eq!(fixture.named(Table::Router, "GR_n1").len(), 1);
    }
}

#[tokio::test]
async fn of_two_parents_only_the_wrong_one_loses_the_child() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    let theirs = fixture.named(Table::Router, "theirs");
    let ours = fixture.named(Table::Router, "ovn_cluster_router");
    let gateway = rows.keys().filter(|key| key.parent_name() == Some("GR_n1"));
    for key in gateway {
        for wrong in ours.iter().chain(&theirs) {
            let (uuid, before) = (fixture.uuid(key), fixture.others());
            let (table, column) = key.table.parent().unwrap();
            let held = fixture.children(table, *wrong, column);
            fixture
                .by_hand(Fixture::refer(
                    table,
                    *wrong,
                    Mutation::insert(column, uuid),
                ))
                .await;
            assert_eq!(fixture.pass_over(&rows).await, 1, "{key}");
            assert_eq!(fixture.uuid(key), uuid);
            assert_eq!(fixture.children(table, *wrong, column), held);
            assert_eq!(fixture.others(), before);
        }
    }
}

#[tokio::test]
async fn a_child_at_another_parent_comes_back() {
    let rows = mk_rows();
    let Some(fixture) = mk_fixture(&rows).await else {
        return;
    };
    let cluster = fixture.uuid(&RowKey::root(Table::Router, "ovn_cluster_router"));
    for key in rows.keys().filter(|key| key.parent_name() == Some("GR_n1")) {
        let (uuid, (table, right, column)) = (fixture.uuid(key), parent(&fixture, key).unwrap());
        let edit = Fixture::refer(table, right, Mutation::delete(column, uuid)).mutate(
            table.name(),
            vec![Condition::uuid(cluster)],
            vec![Mutation::insert(column, uuid)],
        );
        fixture.by_hand(edit).await;
        assert_eq!(fixture.pass(&rows).await, 2, "{key}");
        assert!(
            fixture
                .children(table, right, column)
                .contains(&fixture.uuid(key))
        );
    }
}
