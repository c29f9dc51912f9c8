//! A default network with an overlay: tunnels between nodes, and what somebody takes of them.
//!
//! In: both gateway modes. Out: the lines of the proof that an overlay has; rows that were taken away come back, and with them the
//! way to the pods. Not here: networks without an overlay, which most other tests are about.

use std::time::Duration;

use crate::harness::{Standing, able, seed, wait};

/// What is taken away of a node's databases, program and words; and the row that is there anew then: program, table, condition.
type Removal = (
    &'static [&'static str],
    (&'static str, &'static str, &'static str),
);
const REMOVALS: [Removal; 3] = [
    (
        &["ovn-sbctl", "chassis-del", CHASSIS],
        ("ovn-sbctl", "Chassis", "hostname=n2"),
    ),
    (
        &["ovn-nbctl", "lsp-del", "tstor-n2"],
        ("ovn-nbctl", "Logical_Switch_Port", "name=tstor-n2"),
    ),
    (
        &["ovn-nbctl", "ls-del", "transit_switch"],
        ("ovn-nbctl", "Logical_Switch", "name=transit_switch"),
    ),
];
/// What the lab calls n2.
const CHASSIS: &str = "5f0c1ab0-0000-4000-8000-000000000002";

#[test]
fn pods_reach_each_other_over_tunnels_and_what_somebody_takes_of_them_comes_back() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--transport", "geneve"]);
    let said = lab.prove(&["--quiet", "20"]);
    said.assert_all_hold();
    // Lines 1 to 4 and 7: nobody writes, agents and northd do not take turns at the same rows.
    assert_eq!(said.text.matches("  ok ").count(), 5, "{}", said.text);
    let (node, other) = (lab.node(0), lab.pod(1).to_string());
    let reached = || {
        let words = ["ping", "-n", "-c", "1", "-W", "1", &other];
        lab.try_exec(&format!("{node}-pod"), &words).good
    };
    let found = |tool: &str, column: &str, of: &[&str]| {
        let columns = format!("--columns={column}");
        let words = [&[tool, "--bare", &columns, "find"], of].concat();
        lab.exec(&node, &words).trim().to_owned()
    };
    let bound = || {
        !found(
            "ovn-sbctl",
            "chassis",
            &["Port_Binding", "logical_port=tstor-n2"],
        )
        .is_empty()
    };
    for (hand, row) in REMOVALS {
        let (tool, table, which) = row;
        let row = || found(tool, "_uuid", &[table, which]);
        let before = row();
        assert!(!before.is_empty(), "{table} {which}");
        lab.exec(&node, hand);
        // Another one: old flows and rows answer for a moment.
        let back = wait(Duration::from_secs(20), || {
            let now = row();
            !now.is_empty() && now != before && bound() && reached()
        });
        assert!(back, "after {hand:?}");
    }
    lab.daemon("freeze", &node, "node-agent");
    lab.exec(&node, &["ovn-sbctl", "lsp-unbind", "tstor-n2"]);
    assert!(!bound(), "it was unbound");
    lab.daemon("thaw", &node, "node-agent");
    assert!(wait(Duration::from_secs(20), || bound() && reached()));
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
    let said = lab.prove(&["--quiet", "20"]);
    said.assert_all_hold();
    assert!(said.text.contains("6 pairs in 2 families"), "{}", said.text);
}
