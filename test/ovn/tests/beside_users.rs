//! Rows beside OVN-Kubernetes' for a network of users, and what the installed ovn-northd makes of them.
//!
//! In: the network's switch and cluster router as OVN-Kubernetes makes them, and the plan's rows. Out: where packets go by `ovn-trace`,
//! and with which address. Invariant: what is somebody else's is the same after as before. Not here: OVN-Kubernetes itself, packets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;

use model::nb::{Columns, Owner, Rows, Table};
use model::{Family, NodeName};
use ovn_tests::{Fixture, NORTHD_TOOLS, Northd, View};
use ovsdb_tests::{absent, until_status};
use plan_node::beside::north::{keys, plan, routed};
use testkit::mk_user_network;

const ROUTER: &str = "cluster_udn_red_ovn_cluster_router";
const SWITCH: &str = "cluster_udn_red_n1";
const LEAVES_BY: &str = "rtos-cluster_udn_red_n1";
const PORT: &str = "k8s-cluster_udn_red_n1";

/// Red on n1: pods 10.150.1.0/24 of 10.150.0.0/16.
fn mk_red() -> View {
    let mut view = testkit::mk_view(1);
    view.share.network = mk_user_network(
        "cluster_udn_red",
        1,
        &["10.150.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    view.share.host_subnets = vec!["10.150.1.0/24".parse().unwrap()];
    view
}

/// The node's switch with a port of pods and the management port, the cluster router, its way to another node, and the row that translates what
/// leaves for the management port.
async fn mk_topology(fixture: &Fixture, northd: &Northd) {
    northd.sbctl(&["chassis-add", "n1", "geneve", "172.30.0.1"]);
    for words in [
        "lr-add ROUTER -- lrp-add ROUTER LEAVES 0a:58:0a:96:01:01 10.150.1.1/24 -- lrp-set-gateway-chassis LEAVES n1",
        "lrp-add ROUTER rtots-red 0a:58:64:58:00:02 100.88.0.2/16",
        "ls-add SWITCH -- lsp-add SWITCH stor-red -- lsp-set-type stor-red router -- lsp-set-options stor-red router-port=LEAVES",
        "lsp-set-addresses stor-red router -- lsp-add SWITCH PORT -- lsp-add SWITCH red_pod",
        "ls-add red_transit -- lsp-add red_transit tstor-red -- lsp-set-type tstor-red router",
        "lsp-set-options tstor-red router-port=rtots-red -- lsp-set-addresses tstor-red router",
        "lsp-add red_transit tstor-n2",
        "lr-route-add ROUTER 10.150.2.0/24 100.88.0.3",
        "--policy=src-ip lr-route-add ROUTER 10.150.0.0/16 100.88.0.9",
        // Nodes are reached by the host.
        "lr-policy-add ROUTER 1004 inport==\"LEAVES\"&&ip4.dst==172.30.0.1 reroute 10.150.1.2",
        "lr-nat-add ROUTER snat 169.254.0.12 10.150.1.0/24",
    ] {
        let words = words.replace("ROUTER", ROUTER).replace("SWITCH", SWITCH);
        let words = words.replace("LEAVES", LEAVES_BY).replace("PORT", PORT);
        northd.nbctl(&words.split_whitespace().collect::<Vec<_>>());
    }
    for (port, addresses) in [
        (PORT, "0a:58:0a:96:01:02 10.150.1.2"),
        ("red_pod", "0a:58:0a:96:01:05 10.150.1.5 10.150.1.200"),
        ("tstor-n2", "0a:58:64:58:00:03 100.88.0.3"),
    ] {
        northd.nbctl(&["lsp-set-addresses", port, addresses]);
    }
    let row = northd.nbctl(&["--bare", "--columns=_uuid", "find", "NAT", "type=snat"]);
    let port = format!("logical_port={LEAVES_BY}");
    northd.nbctl(&[
        "set",
        "NAT",
        row.trim(),
        &port,
        "external_port_range=32768-60999",
        "options:stateless=false",
    ]);
    for port in [PORT, "red_pod", "tstor-n2"] {
        northd.sbctl(&["lsp-bind", port, "n1"]);
    }
    northd.nbctl(&["sync"]);
    fixture.settle().await;
}

/// Pods in both halves of the node's subnet.
const PODS: [&str; 2] = ["10.150.1.5", "10.150.1.200"];

/// Where a packet of either pod leaves, and whether it is translated; the same for both.
fn seen(northd: &Northd, to: &str) -> (String, bool) {
    northd.nbctl(&["sync"]);
    let [first, second] = PODS.map(|from| seen_from(northd, from, to));
    assert_eq!(first, second, "both halves");
    first
}

fn seen_from(northd: &Northd, from: &str, to: &str) -> (String, bool) {
    let packet = format!(
        "inport == \"red_pod\" && eth.src == 0a:58:0a:96:01:05 && eth.dst == 0a:58:0a:96:01:01 && ip4.src == {from} && ip4.dst == {to} && ip.ttl == 64 && tcp"
    );
    let said = northd.trace(SWITCH, &packet);
    let outputs = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("output(\""));
    let out: Vec<&str> = outputs.filter_map(|rest| rest.split('"').next()).collect();
    (out.join(","), said.contains("169.254.0.12"))
}

/// As the node-agent follows the database once it knows of the network.
async fn mk_fixture() -> Option<(Fixture, Northd)> {
    if absent(NORTHD_TOOLS) {
        return None;
    }
    let node = NodeName::from("n1");
    let default = keys(&model::NetworkName::default_network(), &node);
    let fixture = Fixture::following(ovn::north::monitor_beside(&default)).await;
    let northd = Northd::over(&fixture.server);
    mk_topology(&fixture, &northd).await;
    assert_eq!(translated(&fixture), None, "it is not followed yet");
    let both: Vec<_> = default
        .into_iter()
        .chain(keys(mk_red().get().name(), &node))
        .collect();
    let client = &fixture.client;
    client.set_conditions(ovn::north::conditions_beside(&both));
    until_status(client, |_| client.has_conditions()).await;
    Some((fixture, northd))
}

/// What OVN-Kubernetes translates of the network on its way to the host.
fn translated(fixture: &Fixture) -> Option<Vec<Columns>> {
    let read = fixture.client.with_replica(ovn::north::translations);
    read.unwrap().unwrap().remove(LEAVES_BY)
}

fn rows(fixture: &Fixture, steers: bool) -> Rows {
    let translated = translated(fixture).unwrap();
    assert_eq!(translated.len(), 1, "{translated:?}");
    plan(mk_red().get(), steers, &translated)
}

const NEAR: (&str, bool) = (PORT, false);
const NODE: (&str, bool) = (PORT, true);

fn owned((port, translated): (&str, bool)) -> (String, bool) {
    (port.to_owned(), translated)
}

#[tokio::test]
async fn what_goes_between_pods_is_not_translated_on_its_way_to_the_host_and_what_goes_to_a_node_is()
 {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let (peer, node) = ("10.150.2.9", "172.30.0.1");
    assert_eq!(seen(&northd, peer), owned(("tstor-n2", false)));
    assert_eq!(seen(&northd, node), owned(NODE), "the topology of the test");
    let before = fixture.others();
    let steers = rows(&fixture, true);
    assert_eq!(fixture.pass_over(&steers).await, steers.len());
    assert_eq!(fixture.pass(&steers).await, 0);
    assert_eq!(
        seen(&northd, peer),
        owned(("tstor-n2", false)),
        "the set is empty"
    );
    let name = routed(mk_red().get().name(), Family::V4).id;
    northd.nbctl(&["set", "Address_Set", &name, "addresses=\"10.150.2.0/24\""]);
    assert_eq!(seen(&northd, peer), owned(NEAR));
    assert_eq!(seen(&northd, node), owned(NODE));
    // The control: without what is ours the packet is translated.
    let mut without = steers.clone();
    without.retain(|key, _| key.table != Table::Nat);
    fixture.pass_over(&without).await;
    assert_eq!(seen(&northd, peer), owned(NODE));
    let owner = Owner::Network(mk_red().share.network.name);
    fixture.remove(&owner).await;
    assert_eq!(seen(&northd, peer), owned(("tstor-n2", false)));
    assert_eq!(fixture.others(), before);
}

#[tokio::test]
async fn a_row_that_others_change_is_followed_and_ours_are_none_of_theirs() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let steers = rows(&fixture, true);
    fixture.pass_over(&steers).await;
    let theirs = translated(&fixture).unwrap();
    assert_eq!(theirs.len(), 1, "ours are not taken for theirs: {theirs:?}");
    // The management port was made anew, with another address.
    let row = northd.nbctl(&[
        "--bare",
        "--columns=_uuid",
        "find",
        "NAT",
        "logical_ip=\"10.150.1.0/24\"",
    ]);
    northd.nbctl(&["set", "NAT", row.trim(), "external_ip=169.254.0.14"]);
    fixture.settle().await;
    assert_eq!(fixture.pass(&rows(&fixture, true)).await, 2, "both halves");
    // One that exempts something, or translates towards some only, is another matter.
    let set = routed(mk_red().get().name(), Family::V4).id;
    let set = northd.nbctl(&["get", "Address_Set", &set, "_uuid"]);
    for column in ["allowed_ext_ips", "exempted_ext_ips"] {
        northd.nbctl(&[
            "set",
            "NAT",
            row.trim(),
            &format!("{column}={}", set.trim()),
        ]);
        fixture.settle().await;
        assert_eq!(translated(&fixture), None, "{column}");
        northd.nbctl(&["clear", "NAT", row.trim(), column]);
    }
    fixture.settle().await;
    assert!(translated(&fixture).is_some());
}

#[tokio::test]
async fn rows_of_a_network_that_nobody_knows_any_more_are_found_by_whoever_begins() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    fixture.pass_over(&rows(&fixture, true)).await;
    let default = keys(
        &model::NetworkName::default_network(),
        &NodeName::from("n1"),
    );
    let client = Fixture::connect_beside(fixture.server.socket(), &default);
    ovsdb_tests::until_synced(&client).await;
    let owners = client.with_replica(ovn::north::owners).unwrap().unwrap();
    assert_eq!(owners, [mk_red().share.network.name].into());
    let north = client.with_replica(ovn::north::decode).unwrap().unwrap();
    let count: usize = north.owned.values().map(BTreeMap::len).sum();
    assert_eq!(
        count, 8,
        "a group, two lists, two sets, a policy, two of NAT"
    );
    drop(northd);
}
