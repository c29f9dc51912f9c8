//! Labs of IPv6 alone and of both families, from one end to the other.
//!
//! In: drawn values. Out: every line of the proof, for each family; what the kernel takes with a link comes back; MACs and router
//! ids are as they must be where there is no IPv4. Not here: IPv4 alone, which most other tests are about.

use std::time::Duration;

use crate::harness::{Standing, able, seed, wait};
use crate::test_node::TestNode;

/// What our management port is called.
const DEVICE: &str = "ovn-k8s-mp0";

fn standing(families: &str, snat: &str) -> Standing {
    let seed = seed().to_string();
    let drawn = ["--families", families, "--seed", &seed];
    Standing::up(&[&drawn[..], &["--outbound-snat", snat]].concat())
}

#[test]
fn a_lab_of_both_families_proves_all_its_lines_for_each() {
    if !able() {
        return;
    }
    let lab = standing("dual", "enabled");
    let said = lab.prove(&["--quiet", "30"]);
    said.assert_all_hold();
    // A line that looks at one family only would hold just as well.
    for phrase in [
        "6 pairs in 2 families, 36 pings",
        "4 imported routes on each",
    ] {
        assert!(said.text.contains(phrase), "{phrase}: {}", said.text);
    }
    comes_back_after_a_flap(&lab);
    lab.recovers("1,3");
}

#[test]
fn a_lab_of_ipv6_alone_that_translates_towards_nodes_only_proves_all_its_lines() {
    if !able() {
        return;
    }
    let lab = standing("ipv6", "disabled");
    let shown = lab.exec(
        &lab.node(0),
        &["ip", "-4", "address", "show", "scope", "global"],
    );
    assert!(shown.trim().is_empty(), "a node has IPv4: {shown}");
    lab.prove(&["--quiet", "30"]).assert_all_hold();
    router_ids_differ(&lab);
    comes_back_after_a_flap(&lab);
    lab.recovers("1,3");
}

/// FRR has none by itself without IPv4.
fn router_ids_differ(lab: &Standing) {
    let id = |number: usize| {
        let node = TestNode::of(lab, number);
        let shown = node.vtysh(&["show running-config"]);
        let line = shown.lines().find_map(|line| {
            let id = line.trim().strip_prefix("bgp router-id ")?;
            Some(id.to_owned())
        });
        assert!(line.is_some(), "no router id on {}: {shown}", node.node);
        line
    };
    let ids: std::collections::BTreeSet<Option<String>> = (0..3).map(id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

/// With a link that goes down the kernel takes its IPv6 addresses and routes, and does not bring them back.
fn comes_back_after_a_flap(lab: &Standing) {
    let node = lab.node(0);
    let held = || {
        let addresses = lab.exec(
            &node,
            &["ip", "-6", "-br", "address", "show", "dev", DEVICE],
        );
        let rule = lab.exec(&node, &["ip", "-6", "rule", "show", "pref", "31"]);
        let routes = lab.exec(&node, &["ip", "-6", "route", "show", "table", "7"]);
        [addresses, rule, routes]
    };
    let before = held();
    assert!(
        before.iter().all(|text| !text.trim().is_empty()),
        "{before:?}"
    );
    lab.exec(&node, &["ip", "link", "set", DEVICE, "down"]);
    let mut now = before.clone();
    let back = wait(Duration::from_secs(20), || {
        now = held();
        now == before
    });
    assert!(back, "{before:?}\nbecame\n{now:?}");
}
