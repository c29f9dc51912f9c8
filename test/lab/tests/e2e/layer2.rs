//! A layer-2 network of users beside the default one, in shared gateway mode.
//!
//! In: two nodes with a pod of it on each. Out: line 9 of the proof: they reach each other over a tunnel, and the outside host by
//! either node with their own addresses, and no pod of the default network; where the kernel makes no VRFs, each node says so.
//! Not here: its VRF, what the host does with it, local gateway mode, all of which need a kernel with VRFs (the tests in the
//! virtual machine).

use std::time::Duration;

use crate::cluster::{self, kubectl};
use crate::harness::{Standing, able, call, command, wait};

#[test]
fn pods_of_a_layer_2_network_reach_each_other_and_are_seen_outside_by_their_own_addresses() {
    if !able() {
        return;
    }
    let network = ["--network", "blue=layer2:10.160.0.0/16"];
    let lab = Standing::up(&[&["--nodes", "2"][..], &network].concat());
    lab.prove(&["--only", "9"]).assert_all_hold();
    if makes_vrfs(&lab) {
        println!("this kernel makes VRFs: that one is refused is not looked at");
    } else {
        the_missing_vrf_is_told(&lab);
    }
    rows_that_cannot_be_written_are_told(&lab);
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

/// A row that is not the agent's any more keeps the network's rows from being written: it says so until the row is its again.
fn rows_that_cannot_be_written_are_told(lab: &Standing) {
    let node = lab.node(0);
    let marker = "external_ids:noverlay.io/owner";
    let owner = ["ovn-nbctl", "get", "logical_switch", &node, marker];
    let owner = lab.exec(&node, &owner).trim().to_owned();
    let set = |value: &str| {
        let pair = format!("{marker}={value}");
        lab.exec(&node, &["ovn-nbctl", "set", "logical_switch", &node, &pair]);
    };
    let built = || cluster::of_network(&node, "default", "Built");
    let is = |wanted: (&str, &str)| {
        wait(Duration::from_secs(20), || {
            built().is_some_and(|(status, reason, _)| (status.as_str(), reason.as_str()) == wanted)
        })
    };
    set("somebody-else");
    assert!(is(("False", "RowsBlocked")), "{:?}", built());
    let (_, _, message) = built().unwrap();
    let what = format!("Logical_Switch {node}");
    assert!(message.contains(&what), "{message}");
    set(&owner);
    assert!(is(("True", "Built")), "{:?}", built());
}

fn makes_vrfs(lab: &Standing) -> bool {
    let run = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        lab.try_exec("n1", &words).good
    };
    let made = run("ip link add probe type vrf table 999");
    run("ip link del probe");
    made
}

/// By the condition of that network and of no other, by an event of each node, and by the admin's command and its status.
fn the_missing_vrf_is_told(lab: &Standing) {
    for number in 0..2 {
        let node = lab.node(number);
        let (status, reason, message) =
            cluster::of_network(&node, "cluster_udn_blue", "Built").expect("the condition");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "VrfRefused"));
        let named = message.contains("VRF device blue") && message.contains("not supported");
        assert!(named, "{message}");
        assert_eq!(cluster::of_network(&node, "default", "Built"), None);
        let field = format!("involvedObject.name={node},reason=NetworkNotBuilt");
        let told = wait(Duration::from_secs(20), || {
            let events = kubectl(&[
                "get",
                "events",
                "-A",
                "-o",
                "json",
                "--field-selector",
                &field,
            ]);
            let events = events.pointer("/items").and_then(|items| items.as_array());
            let mut texts = events
                .into_iter()
                .flatten()
                .filter_map(|event| event.get("message"));
            texts.any(|text| text.as_str() == Some(message.as_str()))
        });
        assert!(told, "no event of {node} says {message:?}");
        let status = command(&["noverlay", "status"]).output().unwrap();
        let table = String::from_utf8_lossy(&[status.stdout, status.stderr].concat()).into_owned();
        assert_eq!(status.status.code(), Some(1), "{table}");
        let line = format!("{node}: VrfRefused: {message}");
        assert!(
            table.lines().any(|told| told == line),
            "no {line:?} in\n{table}"
        );
    }
}
