//! Rows by which others steer what leaves pods: EgressIP, egress firewall, NetworkPolicy, QoS, as OVN-Kubernetes writes them into
//! the routers and switches of the plan.
//!
//! In: plans on a real ovsdb-server, with such rows among theirs. Out: every one of these is as it was, whatever becomes of ours.
//! Not here: other foreign rows (`topology.rs`).
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use model::nb::Rows;
use ovn_tests::{Fixture, mk_view, rows_of, shared_rows};

/// What the rows bear, and no others.
const MARK: &str = "external_ids:owner-of-test=egress";
const ID: &str = "k8s.ovn.org/id";

/// Each row is created and put into a column of its parent: what it is, and where it goes.
const ROWS: [(&str, &[&str], [&str; 3]); 6] = [
    (
        "Logical_Router_Policy",
        &[
            "priority=100",
            "action=reroute",
            "match=\"ip4.src == 10.128.0.3\"",
            "nexthops=100.64.0.4",
        ],
        ["Logical_Router", "ovn_cluster_router", "policies"],
    ),
    (
        "Logical_Router_Policy",
        &[
            "priority=102",
            "action=allow",
            "match=\"ip4.src == 10.128.0.0/16 && ip4.dst == 100.64.0.0/16\"",
        ],
        ["Logical_Router", "ovn_cluster_router", "policies"],
    ),
    (
        "NAT",
        &[
            "type=snat",
            "external_ip=172.30.0.201",
            "logical_ip=10.128.1.3",
            "logical_port=k8s-n1",
            "external_port_range=\"32768-60999\"",
            "options:stateless=false",
        ],
        ["Logical_Router", "GR_n1", "nat"],
    ),
    (
        "QoS",
        &[
            "direction=from-lport",
            "priority=103",
            "action:dscp=42",
            "match=\"ip4.src == $a8519615025667110816\"",
        ],
        ["Logical_Switch", "n1", "qos_rules"],
    ),
    (
        "ACL",
        &[
            "direction=to-lport",
            "priority=10000",
            "action=drop",
            "match=\"ip4.dst == 203.0.113.0/24 && ip4.src == $a8519615025667110816\"",
        ],
        ["Logical_Switch", "n1", "acls"],
    ),
    (
        "ACL",
        &[
            "direction=from-lport",
            "priority=1001",
            "action=allow-related",
            "match=\"inport == @a1\"",
            "options:apply-after-lb=true",
        ],
        ["Logical_Switch", "n1", "acls"],
    ),
];

/// All of it, with the rows' ids: a row that was made anew is not the same.
fn shown(fixture: &Fixture) -> String {
    let mut all = String::new();
    for table in ["Logical_Router_Policy", "NAT", "QoS", "ACL", "Address_Set"] {
        let output = Command::new("ovn-nbctl")
            .arg(format!("--db=unix:{}", fixture.server.socket().display()))
            .args(["--format=csv", "--no-headings", "find", table, MARK])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        all.push_str(&String::from_utf8(output.stdout).unwrap());
    }
    all
}

/// Rows of the network and those that several share, with outbound SNAT or without.
fn plans(snat: bool) -> [Rows; 2] {
    let mut view = mk_view();
    view.no_overlay(|options| options.outbound_snat = snat);
    [shared_rows(&view), rows_of(&view)]
}

async fn pass(fixture: &Fixture, plans: &[Rows; 2]) -> usize {
    let [shared, own] = plans;
    fixture.pass(shared).await + fixture.pass(own).await
}

#[tokio::test]
async fn rows_that_steer_what_leaves_pods_stay_whole_whatever_becomes_of_ours() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = plans(true);
    pass(&fixture, &rows).await;
    for (number, (table, columns, [parent, name, column])) in ROWS.iter().enumerate() {
        let id = format!("external_ids:\"{ID}\"=\"default-network-controller:EgressIP:{number}\"");
        let mut words = vec!["--id=@row", "create", table, MARK, &id];
        words.extend(*columns);
        words.extend(["--", "add", parent, name, column, "@row"]);
        fixture.nbctl(&words).await;
    }
    let set = [
        "create",
        "Address_Set",
        "name=a8519615025667110816",
        "addresses=10.128.1.3",
        MARK,
    ];
    fixture.nbctl(&set).await;
    let before = shown(&fixture);
    assert_eq!(before.lines().count(), ROWS.len() + 1, "{before}");

    assert_eq!(
        pass(&fixture, &rows).await,
        0,
        "they are no reason to write"
    );
    assert_eq!(shown(&fixture), before);
    for rows in [&plans(false), &rows] {
        assert!(pass(&fixture, rows).await > 0);
        assert_eq!(shown(&fixture), before);
    }
    // A gateway router that is made anew takes along what others had in it; the rest stays.
    fixture.nbctl(&["lr-del", "GR_n1"]).await;
    assert!(pass(&fixture, &rows).await > 0);
    let after = shown(&fixture);
    assert_eq!(after.lines().count(), ROWS.len(), "{after}");
    assert!(after.lines().all(|line| before.contains(line)), "{after}");
}
