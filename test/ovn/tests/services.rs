//! Rows of Services on a real ovsdb-server: the table without owner marker, and two NAT rows of one subnet.
//!
//! In: plans, and edits by hand. Out: rows. Invariant: bindings that somebody else made stay.
//! Not here: what northd makes of them (`northd.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use model::Family;
use model::diff::Diff;
use model::nb::{self, RowKey, Rows, Table, Value};
use ovn::encode;
use ovn_tests::{Fixture, mk_view, rows_of, shared_rows};
use plan_node::Services;
use plan_node::north::services;
use testkit::mk_user_network;

/// The default network's rows, red's, and the node's.
fn mk_rows() -> [Rows; 3] {
    let mut default = mk_view();
    let addresses = ["172.31.0.1", "fd02::1"].map(|ip| ip.parse().unwrap());
    default.node.services = Some(Services {
        allowed: [("default/kubernetes".to_owned(), addresses.into())].into(),
    });
    let mut red = default.clone();
    red.share.network = mk_user_network(
        "cluster_udn_red",
        1,
        &["10.150.0.0/16/24", "fd50::/48/64"],
        &["100.65.0.0/16", "fd99::/64"],
    );
    let subnets = ["10.150.1.0/24", "fd50:0:0:1::/64"];
    red.share.host_subnets = subnets.map(|s| s.parse().unwrap()).into();
    [rows_of(&default), rows_of(&red), shared_rows(&red)]
}

fn bindings(rows: &Rows) -> Vec<RowKey> {
    let of_table = rows
        .keys()
        .filter(|key| key.table == Table::StaticMacBinding);
    of_table.cloned().collect()
}

/// A binding that somebody writes by hand.
async fn bind(fixture: &Fixture, port: &str, ip: &str, mac: &str) {
    let row = [
        format!("logical_port={port}"),
        format!("ip=\"{ip}\""),
        format!("mac=\"{mac}\""),
    ];
    let row = row.iter().map(String::as_str);
    let words = ["create", "Static_MAC_Binding"].into_iter().chain(row);
    fixture.nbctl(&words.collect::<Vec<&str>>()).await;
}

/// Ports of all bindings.
fn bound(fixture: &Fixture) -> Vec<String> {
    let ports = fixture.client.with_replica(|replica| {
        let rows = replica.table("Static_MAC_Binding").unwrap().values();
        let ports = rows.map(|row| row.get::<String>("logical_port").unwrap());
        ports.collect::<Vec<String>>()
    });
    let mut ports = ports.unwrap();
    ports.sort();
    ports
}

const PORT: &str = "rtoe-GR_cluster_udn_red_n1";

#[tokio::test]
async fn bindings_are_written_put_right_and_go_with_their_network() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let [default, red, node] = mk_rows();
    for rows in [&node, &default, &red] {
        assert!(fixture.pass(rows).await > 0);
        assert_eq!(fixture.pass(rows).await, 0);
    }
    assert_eq!((bindings(&default).len(), bindings(&red).len()), (2, 4));
    // Somebody else's on the same port, and on a port of somebody else's.
    bind(&fixture, PORT, "172.30.0.100", "02:00:00:00:00:64").await;
    bind(&fixture, "theirs", "169.254.0.4", "0a:58:a9:fe:00:04").await;
    for set in ["mac=\"02:00:00:00:00:04\"", "override_dynamic_mac=false"] {
        let key = nb::mac_binding(PORT, "169.254.0.4".parse().unwrap());
        let uuid = fixture.uuid(&key).to_string();
        let words = ["set", "Static_MAC_Binding", &uuid, set];
        fixture.nbctl(&words).await;
        assert_eq!(fixture.pass(&red).await, 1, "{set}");
    }
    let uuid = fixture.uuid(&bindings(&red)[3]).to_string();
    let destroy = ["destroy", "Static_MAC_Binding", &uuid];
    fixture.nbctl(&destroy).await;
    assert_eq!(fixture.pass(&red).await, 1);
    // One of ours that is not wanted any more.
    bind(&fixture, PORT, "169.254.0.9", "0a:58:a9:fe:00:09").await;
    assert_eq!(fixture.pass(&red).await, 1);
    let owned = nb::Owner::Network("cluster_udn_red".into());
    let north = fixture.decode();
    let diff = Diff::between(north.of(&owned), &Rows::new(), nb::satisfies);
    let transaction = encode::topology(&diff, &north, &owned, "noverlay test").unwrap();
    fixture.client.transact(&transaction).await.unwrap();
    fixture.settle().await;
    let left = [PORT, "rtoe-GR_n1", "rtoe-GR_n1", "theirs"];
    assert_eq!(bound(&fixture), left, "that of somebody else stays");
}

/// Writes rows, also where bindings that look like somebody else's are in the way.
async fn write(fixture: &Fixture, owner: &str, rows: &Rows) {
    let owner = nb::Owner::Network(owner.into());
    let north = fixture.decode();
    let diff = Diff::between(north.of(&owner), rows, nb::satisfies);
    let transaction = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
    let reply = fixture.client.transact(&transaction).await.unwrap();
    reply.check_counts().unwrap();
    fixture.settle().await;
}

#[tokio::test]
async fn bindings_that_a_lost_port_or_a_hand_left_behind_are_in_nobodys_way() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let [default, red, node] = mk_rows();
    for rows in [&node, &default, &red] {
        fixture.pass(rows).await;
    }
    let (of_default, of_red) = ("default", "cluster_udn_red");
    for (owner, rows, words) in [
        (of_red, &red, vec!["lrp-del", PORT]),
        (of_default, &default, vec!["lrp-del", "rtoe-GR_n1"]),
        (of_red, &red, vec!["lr-del", "GR_cluster_udn_red_n1"]),
        (of_default, &default, vec!["lr-del", "GR_n1"]),
    ] {
        fixture.nbctl(&words).await;
        write(&fixture, owner, rows).await;
        assert_eq!(fixture.pass(rows).await, 0, "{words:?}");
    }
    // An address of IPv6 whose MAC does not tell any more that it is ours.
    let key = nb::mac_binding(PORT, "fd69::4".parse().unwrap());
    let uuid = fixture.uuid(&key).to_string();
    let edit = [
        "set",
        "Static_MAC_Binding",
        &uuid,
        "mac=\"02:00:00:00:00:04\"",
    ];
    fixture.nbctl(&edit).await;
    write(&fixture, of_red, &red).await;
    assert_eq!(fixture.pass(&red).await, 0);
    assert_eq!(bound(&fixture).len(), 6);
}

#[tokio::test]
async fn a_subnet_has_a_row_for_nodes_and_one_for_services() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let [_, red, node] = mk_rows();
    fixture.pass(&node).await;
    fixture.pass(&red).await;
    let set = services::allowed(Family::V4);
    let id = nb::nat_id("snat", "10.150.1.0/24", Some(&set.id));
    let key = RowKey::child(Table::Nat, "cluster_udn_red_ovn_cluster_router", id);
    let found = fixture.rows(&key);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1["allowed_ext_ips"], Value::Ref(set));
    // Without its set it looks like the other one: there is one of each again.
    let uuid = fixture.uuid(&key).to_string();
    fixture
        .nbctl(&["clear", "NAT", &uuid, "allowed_ext_ips"])
        .await;
    assert!(fixture.pass(&red).await > 0);
    assert_eq!(fixture.rows(&key).len(), 1);
}
