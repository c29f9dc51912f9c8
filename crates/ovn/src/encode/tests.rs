//! Operations of transactions, without a server.

use std::collections::{BTreeMap, BTreeSet};

use model::nb::{ImportTarget, ImportedRoute, Rows, satisfies};
use model::{NetworkName, RouterName};
use ovsdb::{Mutation, Mutator};

use super::*;

fn owner() -> Owner {
    Owner::Network(NetworkName::default_network())
}

fn uuid(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

fn mk(columns: &[(&'static str, Value)]) -> Columns {
    columns.iter().cloned().collect()
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn router() -> RowKey {
    RowKey::root(Table::Router, "r")
}

fn port() -> RowKey {
    RowKey::child(Table::RouterPort, "r", "p")
}

fn set() -> RowKey {
    RowKey::root(Table::AddressSet, "a")
}

fn mk_rows() -> Rows {
    let nat = RowKey::child(Table::Nat, "r", "snat|x");
    let wanted = [("exempted_ext_ips", Value::Ref(set()))];
    [
        (set(), mk(&[("name", text("a"))])),
        (router(), mk(&[("name", text("r"))])),
        (port(), mk(&[("name", text("p")), ("mac", text("m"))])),
        (nat, mk(&wanted)),
    ]
    .into()
}

/// A decoded network: rows with their uuids, and who refers to them.
fn mk_north(rows: &[(RowKey, u8, Columns)], references: &[(u8, &'static str, u8)]) -> North {
    let mut north = North::default();
    for (key, number, columns) in rows {
        let owned = north.owned.entry(owner()).or_default();
        let held = owned.entry(key.clone()).or_default();
        held.push((uuid(*number), columns.clone()));
        if key.table.parent().is_none() {
            north.names.insert(uuid(*number), key.id.clone());
            let root = (key.table, key.id.clone());
            let roots = north.roots.entry(root).or_default();
            roots.push((Some(owner()), uuid(*number)));
        }
    }
    for (parent, column, child) in references {
        north
            .holders
            .entry(uuid(*child))
            .or_default()
            .insert(uuid(*parent));
        let children = north.children.entry(uuid(*parent)).or_default();
        children.push((*column, uuid(*child)));
    }
    north
}

fn encode(north: &North, rows: &Rows) -> Vec<Operation> {
    let diff = Diff::between(north.of(&owner()), rows, satisfies);
    let transaction = topology(&diff, north, &owner(), "noverlay test").unwrap();
    transaction.operations().to_vec()
}

/// Mutations of a row, if there are any.
fn mutations(operations: &[Operation], row: Uuid) -> Vec<Mutation> {
    let itself = vec![Condition::uuid(row)];
    let of = operations.iter().filter_map(|operation| {
        if let Operation::Mutate {
            conditions,
            mutations,
            ..
        } = operation
            && *conditions == itself
        {
            return Some(mutations.clone());
        }
        None
    });
    of.flatten().collect()
}

#[test]
fn nothing_to_do_is_nothing_to_send() {
    assert_eq!(encode(&North::default(), &Rows::new()), []);
}

#[test]
fn guards_come_before_whatever_they_guard() {
    let operations = encode(&North::default(), &mk_rows());
    let waits = |o: &&Operation| matches!(o, Operation::Wait { until: Until::Equal, rows, timeout: 0, .. } if rows.is_empty());
    assert_eq!(operations.iter().filter(waits).count(), 2);
    let last = operations
        .iter()
        .rposition(|o| matches!(o, Operation::Wait { .. }));
    let first = operations
        .iter()
        .position(|o| matches!(o, Operation::Insert { .. }));
    assert!(last < first);
}

#[test]
fn what_is_missing_is_an_error_that_names_it() {
    let refused = |without: RowKey| {
        let mut rows = mk_rows();
        rows.remove(&without);
        let diff = Diff::between(&BTreeMap::new(), &rows, satisfies);
        topology(&diff, &North::default(), &owner(), "x")
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(router()),
        "Logical_Router_Port p of r has no parent in the plan or the database"
    );
    assert_eq!(
        refused(set()),
        "column exempted_ext_ips of NAT snat|x of r refers to a row that does not exist"
    );
}

#[test]
fn a_map_takes_only_the_entries_that_differ() {
    let wanted = Value::entries([("a", "1"), ("b", "2"), ("c", "3")]);
    let held = Value::entries([("a", "1"), ("b", "9"), ("theirs", "x")]);
    let name = ("name", text("r"));
    let north = mk_north(
        &[(router(), 1, mk(&[name.clone(), ("options", held)]))],
        &[],
    );
    let rows = [(router(), mk(&[name, ("options", wanted)]))].into();
    let operations = encode(&north, &rows);
    let expected = [
        Mutation::delete("options", Datum::set(["b", "c"])),
        Mutation::insert("options", Datum::map([("b", "2"), ("c", "3")])),
    ];
    assert_eq!(mutations(&operations, uuid(1)), expected);
    assert_eq!(operations.len(), 2);
}

#[test]
fn children_of_a_duplicate_are_handed_over() {
    let name = mk(&[("name", text("r"))]);
    let north = mk_north(
        &[
            (router(), 1, name.clone()),
            (router(), 2, name.clone()),
            (port(), 3, mk(&[("name", text("p"))])),
        ],
        // The duplicate holds our port and somebody's.
        &[(2, "ports", 3), (2, "ports", 9)],
    );
    let rows = [(router(), name), (port(), mk(&[("name", text("p"))]))].into();
    let operations = encode(&north, &rows);
    let expected = Mutation::new("ports", Mutator::Insert, vec![uuid(3), uuid(9)]);
    assert_eq!(mutations(&operations, uuid(1)), [expected]);
    assert_eq!(mutations(&operations, uuid(2)), []);
    let last = operations.last().unwrap();
    assert!(
        matches!(last, Operation::Delete { conditions, .. } if *conditions == [Condition::uuid(uuid(2))])
    );
}

#[test]
fn of_two_parents_only_the_wrong_one_is_changed() {
    let (named, port_row) = (
        |name| mk(&[("name", text(name))]),
        mk(&[("name", text("p"))]),
    );
    let other = RowKey::root(Table::Router, "other");
    let north = mk_north(
        &[
            (router(), 1, named("r")),
            (other.clone(), 2, named("other")),
            (port(), 3, port_row.clone()),
            (
                RowKey::child(Table::RouterPort, "other", "p"),
                3,
                port_row.clone(),
            ),
        ],
        &[(1, "ports", 3), (2, "ports", 3)],
    );
    let rows = [
        (router(), named("r")),
        (other, named("other")),
        (port(), port_row),
    ]
    .into();
    let operations = encode(&north, &rows);
    assert_eq!(
        mutations(&operations, uuid(2)),
        [Mutation::delete("ports", vec![uuid(3)])]
    );
    assert_eq!(mutations(&operations, uuid(1)), []);
}

#[test]
fn a_set_is_released_before_it_goes() {
    let nat = RowKey::child(Table::Nat, "r", "snat|x");
    let north = mk_north(
        &[
            (set(), 1, mk(&[("name", text("a"))])),
            (router(), 2, mk(&[("name", text("r"))])),
            (nat, 3, mk(&[("exempted_ext_ips", Value::Ref(set()))])),
        ],
        &[(2, "nat", 3)],
    );
    let operations = encode(&north, &Rows::new());
    let row = Row::new().with("exempted_ext_ips", Datum::empty_set());
    let update = Operation::Update {
        table: "NAT".into(),
        conditions: vec![Condition::uuid(uuid(3))],
        row,
    };
    assert!(operations.contains(&update), "{operations:?}");
}

#[test]
fn a_set_that_others_refer_to_stays() {
    let mut north = mk_north(&[(set(), 1, mk(&[("name", text("a"))]))], &[]);
    assert_eq!(encode(&north, &Rows::new()).len(), 2);
    north.referenced.insert(uuid(1), BTreeSet::from([None]));
    assert_eq!(encode(&north, &Rows::new()), []);
}

fn mk_batches(add: u8, remove: usize) -> Vec<(usize, usize)> {
    let target = ImportTarget {
        network: NetworkName::default_network(),
        router: RouterName::from("GR_n1".to_owned()),
        output_port: "rtoe-GR_n1".to_owned(),
    };
    let route = |n: u32| ImportedRoute {
        prefix: format!("10.0.{}.{}/32", n / 256, n % 256).parse().unwrap(),
        nexthop: "172.30.0.2".parse().unwrap(),
    };
    let add: Vec<ImportedRoute> = (0..u32::from(add) * 100).map(route).collect();
    let batches = imports(
        &target,
        uuid(1),
        &add,
        &vec![uuid(2); remove],
        &[],
        "noverlay test",
    );
    let counts = batches.iter().map(|transaction| {
        let operations = transaction.operations();
        assert!(matches!(
            operations,
            [Operation::Comment(_), Operation::Wait { .. }, ..]
        ));
        let inserts = operations
            .iter()
            .filter(|o| matches!(o, Operation::Insert { .. }));
        let removed = mutations(operations, uuid(1)).into_iter().filter_map(|m| {
            let removes = m.mutator == Mutator::Delete;
            removes.then(|| m.value.as_set().unwrap().len())
        });
        // A set holds the one uuid once, however often it was given.
        (inserts.count(), removed.sum())
    });
    counts.collect()
}

#[test]
fn batches_add_before_they_remove_and_are_bounded() {
    assert_eq!(mk_batches(0, 0), []);
    assert_eq!(mk_batches(1, 1), [(100, 1)]);
    assert_eq!(
        mk_batches(12, 0),
        [(250, 0), (250, 0), (250, 0), (250, 0), (200, 0)]
    );
    assert_eq!(mk_batches(5, 1), [(250, 0), (250, 0), (0, 1)]);
    assert_eq!(
        mk_batches(6, 700),
        [(250, 0), (250, 0), (100, 1), (0, 1), (0, 1), (0, 1)]
    );
}
