//! Who is translated, and by which column.

use model::address::Family;
use model::gateway::GatewayMode;
use model::hash;
use model::names::NetworkName;
use model::nb;
use model::nb::RowKey;
use model::nb::Rows;
use model::nb::Table;
use model::nb::Value;
use model::nb::node_ips_id;
use plan_node::check;
use plan_node::nft;
use plan_node::north;
use plan_node::north::shared;
use plan_node::north::snat::*;
use std::collections::BTreeSet;
use std::net::IpAddr;
use testkit::{View, mk_snapshot, mk_view};

fn checked(view: &View) -> Rows {
    let rows = north::plan(view.get());
    let shared = shared::plan(&view.node, [view.get()].into_iter());
    assert_eq!(check::rows(&rows, Some(&shared)), []);
    let mut all = plan(view.get());
    all.extend(shared);
    all
}

fn nat<'a>(rows: &'a Rows, logical: &str) -> &'a nb::Columns {
    &rows[&RowKey::child(Table::Nat, "GR_n1", nb::nat_id("snat", logical, None))]
}

fn set_key(id: &str) -> RowKey {
    RowKey::root(Table::AddressSet, hash::row_name(id))
}

fn nothing() -> Value {
    Value::Set(BTreeSet::new())
}

#[test]
fn set_names_are_those_of_ovn_kubernetes() {
    let network = NetworkName::default_network();
    let name = |id: &str| hash::row_name(id);
    assert_eq!(
        name(&exemption_id(&network, Family::V4)),
        "a2173161212401639980"
    );
    assert_eq!(
        name(&exemption_id(&network, Family::V6)),
        "a1600907987790248794"
    );
    assert_eq!(
        name(&exemption_id(
            &NetworkName::from("cluster_udn_blue"),
            Family::V4
        )),
        "a13515812601267266428"
    );
    assert_eq!(name(&node_ips_id(Family::V4)), "a1042611113178530741");
}

#[test]
fn enabled_exempts_pods_and_own_addresses() {
    let view = mk_view(1);
    let rows = checked(&view);
    let set = set_key(&exemption_id(&view.share.network.name, Family::V4));
    assert_eq!(
        rows[&set]["addresses"],
        Value::set(["10.128.0.0/16", "172.30.0.1"])
    );
    let row = nat(&rows, "10.128.0.0/16");
    assert_eq!(row["exempted_ext_ips"], Value::Ref(set));
    assert_eq!(row["allowed_ext_ips"], nothing());
    assert!(!row.contains_key("match"));
    assert!(row["external_ids"].satisfies(&Value::entries([
        (
            "k8s.ovn.org/id",
            "default-network-controller:NoOverlayClusterSubnetSNAT:n1:10.128.0.0/16:ip4:default"
        ),
        ("k8s.ovn.org/cidr", "10.128.0.0/16"),
    ])));
}

#[test]
fn disabled_without_match_column_translates_only_towards_nodes() {
    let mut view = mk_view(1);
    view.no_overlay(|options| options.outbound_snat = false);
    let rows = checked(&view);
    let nodes = set_key(&node_ips_id(Family::V4));
    assert_eq!(
        rows[&nodes]["addresses"],
        Value::set(["172.30.0.1", "172.30.0.2", "172.30.0.3"])
    );
    let row = nat(&rows, "10.128.0.0/16");
    assert_eq!(row["allowed_ext_ips"], Value::Ref(nodes));
    assert_eq!(row["exempted_ext_ips"], nothing());
    assert!(!rows.contains_key(&set_key(&exemption_id(
        &view.share.network.name,
        Family::V4
    ))));
}

#[test]
fn disabled_translates_towards_the_api_server_in_both_modes() {
    let mut view = mk_view(1);
    view.no_overlay(|options| options.outbound_snat = false);
    let server: IpAddr = "192.0.2.7".parse().unwrap();
    view.node.api_servers.insert(server);
    let nodes = &checked(&view)[&set_key(&node_ips_id(Family::V4))]["addresses"];
    let all = ["172.30.0.1", "172.30.0.2", "172.30.0.3", "192.0.2.7"];
    assert_eq!(*nodes, Value::set(all));
    view.node.mode = GatewayMode::Local;
    let snapshot = mk_snapshot(&view.node, &[view.share.clone()]);
    let set = &nft::plan(&snapshot).sets["remote-node-ips-v4"];
    let elements: Vec<String> = set.elements.iter().map(ToString::to_string).collect();
    assert_eq!(elements, ["172.30.0.2/32", "172.30.0.3/32", "192.0.2.7/32"]);
}

#[test]
fn disabled_with_match_column_uses_the_match() {
    let mut view = mk_view(1);
    view.no_overlay(|options| options.outbound_snat = false);
    view.node.nat_has_match = true;
    let rows = checked(&view);
    let row = nat(&rows, "10.128.0.0/16");
    assert_eq!(
        row["match"],
        Value::Text("ip4.dst == $a1042611113178530741".to_owned())
    );
    assert_eq!(row["allowed_ext_ips"], nothing());
    assert_eq!(row["exempted_ext_ips"], nothing());
    assert_eq!(
        nat(&rows, "100.64.0.2")["match"],
        Value::Text(String::new())
    );
}

#[test]
fn a_match_left_from_the_disabled_form_is_emptied_when_enabled() {
    let mut view = mk_view(1);
    view.node.nat_has_match = true;
    assert_eq!(
        nat(&checked(&view), "10.128.0.0/16")["match"],
        Value::Text(String::new())
    );
}

#[test]
fn the_join_address_is_translated_in_both_forms() {
    for outbound_snat in [true, false] {
        let mut view = mk_view(1);
        view.no_overlay(|options| options.outbound_snat = outbound_snat);
        let rows = checked(&view);
        let row = nat(&rows, "100.64.0.2");
        assert_eq!(row["external_ip"], Value::Text("172.30.0.1".to_owned()));
        assert_eq!(row["exempted_ext_ips"], nothing());
        assert_eq!(row["allowed_ext_ips"], nothing());
    }
}

#[test]
fn a_family_without_node_address_is_not_translated() {
    let mut view = mk_view(1);
    view.add_subnet("fd00:10::/48/64");
    let rows = checked(&view);
    let rows: Vec<&str> = rows
        .keys()
        .filter(|key| key.table == Table::Nat)
        .map(|key| key.id.as_str())
        .collect();
    assert_eq!(rows, ["snat|10.128.0.0/16", "snat|100.64.0.2"]);
}
