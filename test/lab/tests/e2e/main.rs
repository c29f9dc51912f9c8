//! The lab from one end to the other, with real parts.
//!
//! In: `hack/lab`, root, and the tools of `hack/tools`. Out: the proof is green with
//! drawn values, turns red at the right line and layer for each sabotage and for each
//! daemon left out, and the lab leaves nothing behind. To be run with
//! `--test-threads=1`: each test brings a lab up and takes it down.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests of a whole program: they tell what they do, and stop at the first surprise"
)]

mod advertised;
mod beside;
mod cluster;
mod egress_ip;
mod failover;
mod failures;
mod families;
mod follow;
mod frr_k8s;
mod harness;
mod layer2;
mod local_gateway;
mod one_lab;
mod overlay;
mod policies;
mod repairs;
mod routing;
mod sabotage;
mod test_node;
mod traces;

use harness::{Standing, able, seed};

#[test]
fn a_lab_with_drawn_values_proves_all_its_lines() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--seed", &seed().to_string()]);
    northbound_over_tls(&lab);
    lab.prove(&[]).assert_all_hold();
}

/// The third node's Northbound database listens for TLS only at this port; its node-agent is there, under whatever name
/// the node has.
fn northbound_over_tls(lab: &Standing) {
    let node = lab.node(2);
    let words = ["ss", "-Htnp", "state", "established", "dport = :6641"];
    let shown = lab.exec(&node, &words);
    let pid = lab.daemon_record(&node, "node-agent").get("pid").cloned();
    let agent = format!("\"node-agent\",pid={},", pid.unwrap_or_default());
    assert!(
        shown.contains(&agent),
        "no connection of node-agent of {node} to port 6641: {shown:?}"
    );
}

#[test]
fn each_daemon_that_is_left_out_fails_line_1_at_its_own_layer() {
    if !able() {
        return;
    }
    let expected = [
        ("cluster-manager", "object"),
        ("node-agent", "OVN"),
        ("frr-agent", "FRR"),
    ];
    for (daemon, layer) in expected {
        let lab = Standing::up_red(&["--without", daemon, "--wait", "12"]);
        lab.prove(&["--only", "1"]).assert_fails(1, layer);
    }
}
