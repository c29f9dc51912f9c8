//! Each violation is found in a plan that was sound before.

use model::names::{NetworkName, NodeName};
use model::nb::ImportTarget;
use model::nb::ImportedRoute;
use model::nb::RowKey;
use model::nb::Rows;
use model::nb::Table;
use model::nb::Value;
use plan_node::check::{Violation, imports};
use plan_node::north;
use std::collections::BTreeSet;
use testkit::mk_view;

fn sound() -> Rows {
    let plan = north::plan(mk_view(1).get());
    assert_eq!(rows(&plan), []);
    plan
}

fn rows(plan: &Rows) -> Vec<Violation> {
    plan_node::check::rows(plan, None)
}

fn key_of(plan: &Rows, table: Table, id: &str) -> RowKey {
    plan.keys()
        .find(|key| key.table == table && key.id.starts_with(id))
        .unwrap()
        .clone()
}

#[test]
fn a_child_without_parent_is_found() {
    let mut plan = sound();
    plan.remove(&RowKey::root(Table::Switch, "join"));
    let found = rows(&plan);
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0].to_string(),
        "Logical_Switch_Port jtor-GR_n1 of join: its parent is not in the plan"
    );
}

#[test]
fn a_missing_exemption_set_is_found_as_reference_and_as_gap() {
    let mut plan = sound();
    let set = key_of(&plan, Table::AddressSet, "a2173161212401639980");
    plan.remove(&set);
    let row = key_of(&plan, Table::Nat, "snat|10.128.0.0/16");
    assert_eq!(
        rows(&plan),
        [
            Violation::Dangling {
                row: row.clone(),
                column: "exempted_ext_ips",
                target: set.clone(),
            },
            Violation::NotExempt {
                row,
                set,
                subnet: "10.128.0.0/16".to_owned(),
            },
        ]
    );
}

#[test]
fn an_emptied_exemption_set_is_found() {
    let mut plan = sound();
    let set = key_of(&plan, Table::AddressSet, "a2173161212401639980");
    plan.get_mut(&set)
        .unwrap()
        .insert("addresses", Value::Set(BTreeSet::new()));
    assert!(matches!(
        rows(&plan).as_slice(),
        [Violation::NotExempt { .. }]
    ));
}

#[test]
fn a_router_that_is_its_own_next_hop_is_found() {
    let mut plan = sound();
    let key = key_of(&plan, Table::StaticRoute, "|10.128.1.0/24");
    plan.get_mut(&key)
        .unwrap()
        .insert("nexthop", Value::Text("100.64.0.2".to_owned()));
    assert_eq!(
        rows(&plan),
        [Violation::SelfNextHop {
            row: key,
            nexthop: "100.64.0.2".parse().unwrap(),
        }]
    );
}

#[test]
fn two_families_in_a_row_are_found() {
    let mut plan = sound();
    let key = key_of(&plan, Table::StaticRoute, "|10.128.1.0/24");
    plan.get_mut(&key)
        .unwrap()
        .insert("nexthop", Value::Text("fd98::1".to_owned()));
    assert!(matches!(
        rows(&plan).as_slice(),
        [Violation::MixedFamilies { .. }]
    ));
}

#[test]
fn a_row_without_owner_is_found() {
    let mut plan = sound();
    let key = RowKey::root(Table::Router, "GR_n1");
    plan.get_mut(&key).unwrap().remove("external_ids");
    assert_eq!(rows(&plan), [Violation::NoOwner { row: key }]);
}

#[test]
fn an_imported_route_to_oneself_or_of_two_families_is_found() {
    let target = ImportTarget::of(&NetworkName::default_network(), &NodeName::from("n1"));
    let own = BTreeSet::from(["172.30.0.1".parse().unwrap()]);
    let route = |nexthop: &str| ImportedRoute {
        prefix: "10.128.2.0/24".parse().unwrap(),
        nexthop: nexthop.parse().unwrap(),
    };
    let check = |nexthop: &str| imports(&target, &BTreeSet::from([route(nexthop)]), &own);
    assert_eq!(check("172.30.0.2"), []);
    assert!(matches!(
        check("172.30.0.1").as_slice(),
        [Violation::SelfNextHop { .. }]
    ));
    assert!(matches!(
        check("fe80::1").as_slice(),
        [Violation::MixedFamilies { .. }]
    ));
}
