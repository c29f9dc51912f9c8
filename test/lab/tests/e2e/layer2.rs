//! A layer-2 network of users beside the default one, in shared gateway mode.
//!
//! In: two nodes with a pod of it on each. Out: line 9 of the proof: they reach each other over a tunnel, and the outside host by
//! either node with their own addresses, and no pod of the default network.
//! Not here: its VRF, what the host does with it, local gateway mode, all of which need a kernel with VRFs (the tests in the
//! virtual machine).

use std::time::Duration;

use crate::harness::{Standing, able, call, wait};

#[test]
fn pods_of_a_layer_2_network_reach_each_other_and_are_seen_outside_by_their_own_addresses() {
    if !able() {
        return;
    }
    let network = ["--network", "blue=layer2:10.160.0.0/16"];
    let lab = Standing::up(&[&["--nodes", "2"][..], &network].concat());
    lab.prove(&["--only", "9"]).assert_all_hold();
    // What nobody outside knows is translated: the object that advertises it goes.
    let limits = ["--bare", "--columns=allowed_ext_ips", "find", "NAT"];
    let of_it = ["logical_ip=10.160.0.0/16", "external_ip=169.254.0.11"];
    let words = [&["ovn-nbctl"][..], &limits, &of_it].concat();
    let is_limited = || !lab.exec("n1", &words).trim().is_empty();
    assert!(is_limited());
    let deleted = call(&["kubectl", "delete", "routeadvertisements", "blue"]);
    assert!(deleted.good, "{}", deleted.text);
    assert!(wait(Duration::from_secs(20), || !is_limited()));
    let there = ["ovn-nbctl", "--bare", "--columns=_uuid", "find", "NAT"];
    let rows = lab.exec("n1", &[&there[..], &of_it].concat());
    assert_eq!(
        rows.lines().filter(|line| !line.is_empty()).count(),
        1,
        "the row stands"
    );
}
