//! A default network with an overlay: tunnels between nodes, and what somebody takes of them.
//!
//! In: both gateway modes. Out: the lines of the proof that an overlay has; rows that were taken away come back, and with them the
//! way to the pods. Not here: networks without an overlay, which all other tests are about.

use std::time::Duration;

use crate::harness::{Standing, able, seed, wait};

/// What is taken away of a node's databases: program and words.
const HANDS: [&[&str]; 4] = [
    &["ovn-sbctl", "chassis-del", CHASSIS],
    &["ovn-nbctl", "lsp-del", "tstor-n2"],
    &["ovn-nbctl", "ls-del", "transit_switch"],
    &["ovn-sbctl", "lsp-unbind", "tstor-n2"],
];
/// What the lab calls n2.
const CHASSIS: &str = "5f0c1ab0-0000-4000-8000-000000000002";

#[test]
fn pods_reach_each_other_over_tunnels_and_what_somebody_takes_of_them_comes_back() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--transport", "geneve"]);
    lab.prove(&[]).assert_all_hold();
    let reached = || {
        let words = ["ping", "-n", "-c", "1", "-W", "1", "10.128.1.5"];
        lab.try_exec("n1-pod", &words).good
    };
    for hand in HANDS {
        lab.exec("n1", hand);
        // It shows in rows first: packets may still find the flows.
        let row = ["ovn-sbctl", "--bare", "--columns=chassis", "find"];
        let of_port = ["Port_Binding", "logical_port=tstor-n2"];
        let bound = || {
            let shown = lab.exec("n1", &[&row[..], &of_port].concat());
            !shown.trim().is_empty()
        };
        let back = wait(Duration::from_secs(20), || bound() && reached());
        assert!(back, "after {hand:?}");
    }
    lab.prove(&["--only", "1,2,3"]).assert_all_hold();
}

#[test]
fn in_local_gateway_mode_and_both_families_an_overlay_is_proven_too() {
    if !able() {
        return;
    }
    let seed = seed().to_string();
    let words = ["--transport", "geneve", "--gateway-mode", "local"];
    let drawn = ["--families", "dual", "--seed", &seed];
    let lab = Standing::up(&[&words[..], &drawn].concat());
    let said = lab.prove(&[]);
    said.assert_all_hold();
    assert!(said.text.contains("6 pairs in 2 families"), "{}", said.text);
}
