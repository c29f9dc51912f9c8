//! What of the topology depends on what.

use model::nb;
use model::nb::RowKey;
use model::nb::Rows;
use model::nb::Table;
use model::nb::Value;
use model::network::MissingRoute;
use plan_node::check;
use plan_node::north::topology::*;
use testkit::{View, mk_view};

fn ids(rows: &Rows, table: Table, parent: &str) -> Vec<String> {
    rows.keys()
        .filter(|key| key.table == table && key.parent_name().unwrap_or_default() == parent)
        .map(|key| key.id.clone())
        .collect()
}

fn checked(view: &View) -> Rows {
    let rows = plan(view.get());
    assert_eq!(check::rows(&rows, None), []);
    rows
}

#[test]
fn there_is_no_transit_switch() {
    let rows = checked(&mk_view(1));
    assert_eq!(ids(&rows, Table::Switch, ""), ["ext_n1", "join", "n1"]);
    assert_eq!(
        ids(&rows, Table::Router, ""),
        ["GR_n1", "ovn_cluster_router"]
    );
}

#[test]
fn the_gateway_router_knows_local_pods_default_and_nothing_else() {
    let rows = checked(&mk_view(2));
    assert_eq!(
        ids(&rows, Table::StaticRoute, "GR_n2"),
        [
            "|0.0.0.0/0|172.30.0.100|rtoe-GR_n2",
            "|10.128.0.0/16|discard|",
            "|10.128.2.0/24|100.64.0.1|",
        ]
    );
}

#[test]
fn forward_leaves_the_discard_route_out() {
    let mut view = mk_view(2);
    view.no_overlay(|options| options.missing_route = MissingRoute::Forward);
    let routes = ids(&checked(&view), Table::StaticRoute, "GR_n2");
    assert!(!routes.iter().any(|id| id.contains(nb::DISCARD)));
}

#[test]
fn without_default_routers_there_is_no_default_route() {
    let mut view = mk_view(2);
    view.node.gateway.next_hops.clear();
    let routes = ids(&checked(&view), Table::StaticRoute, "GR_n2");
    assert!(!routes.iter().any(|id| id.contains("0.0.0.0/0")));
}

#[test]
fn several_default_routers_are_several_rows() {
    let mut view = mk_view(2);
    view.node
        .gateway
        .next_hops
        .push("172.30.0.101".parse().unwrap());
    // No IPv6 address on the bridge, so this one cannot be reached.
    view.node.gateway.next_hops.push("fe80::1".parse().unwrap());
    let routes = ids(&checked(&view), Table::StaticRoute, "GR_n2");
    assert_eq!(routes.iter().filter(|id| id.contains("rtoe-")).count(), 2);
}

#[test]
fn every_own_address_outside_the_pods_has_a_policy() {
    let mut view = mk_view(1);
    view.node
        .host_addresses
        .insert("192.0.2.1".parse().unwrap());
    view.node
        .host_addresses
        .insert("10.128.1.2".parse().unwrap());
    view.node
        .host_addresses
        .insert("2001:db8::1".parse().unwrap());
    assert_eq!(
        ids(&checked(&view), Table::Policy, "ovn_cluster_router"),
        [
            "1004|inport == \"rtos-n1\" && ip4.dst == 172.30.0.1 /* n1 */",
            "1004|inport == \"rtos-n1\" && ip4.dst == 192.0.2.1 /* n1 */",
        ]
    );
}

#[test]
fn a_node_without_subnet_has_routers_but_no_ports_for_pods() {
    let mut view = mk_view(1);
    view.share.host_subnets.clear();
    let rows = checked(&view);
    assert!(ids(&rows, Table::SwitchPort, "n1").is_empty());
    assert!(ids(&rows, Table::Policy, "ovn_cluster_router").is_empty());
    assert_eq!(
        ids(&rows, Table::StaticRoute, "ovn_cluster_router"),
        ["|100.64.0.2|100.64.0.2|"]
    );
}

#[test]
fn two_families_share_ports_and_have_routes_each() {
    let mut view = mk_view(1);
    view.share
        .host_subnets
        .push("fd00:10:0:1::/64".parse().unwrap());
    view.add_subnet("fd00:10::/48/64");
    view.share
        .network
        .join_subnets
        .push("fd98::/64".parse().unwrap());
    view.node
        .gateway
        .addresses
        .push("fd01::1/64".parse().unwrap());
    view.node.host_addresses.insert("fd01::1".parse().unwrap());
    let rows = checked(&view);
    assert_eq!(
        ids(&rows, Table::StaticRoute, "ovn_cluster_router"),
        [
            "src-ip|10.128.1.0/24|100.64.0.2|",
            "src-ip|fd00:10:0:1::/64|fd98::2|",
            "|100.64.0.2|100.64.0.2|",
            "|fd98::2|fd98::2|",
        ]
    );
    let key = RowKey::child(Table::SwitchPort, "n1", "k8s-n1");
    assert_eq!(
        rows[&key]["addresses"],
        Value::set(["0a:58:0a:80:01:02 10.128.1.2 fd00:10:0:1::2"])
    );
}

#[test]
fn a_network_shares_only_the_gateways_addresses_of_its_families() {
    let mut view = mk_view(1);
    let expected = checked(&view);
    // Another network of the node has both families.
    view.node
        .gateway
        .addresses
        .push("fd01::1/64".parse().unwrap());
    view.node.host_addresses.insert("fd01::1".parse().unwrap());
    assert_eq!(checked(&view), expected);
}

#[test]
fn every_row_bears_the_owner() {
    for (key, columns) in checked(&mk_view(3)) {
        assert!(
            columns["external_ids"].satisfies(&Value::entries([(nb::OWNER, "default")])),
            "{key}"
        );
    }
}
