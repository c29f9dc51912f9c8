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

mod failover;
mod failures;
mod follow;
mod frr_k8s;
mod harness;
mod one_lab;
mod repairs;
mod sabotage;
mod traces;

use harness::{Standing, able, seed};

#[test]
fn a_lab_with_drawn_values_proves_all_its_lines() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--seed", &seed().to_string()]);
    lab.prove(&[]).assert_all_hold();
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
