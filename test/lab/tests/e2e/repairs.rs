//! What others break, the product repairs; what nobody broke, it leaves alone.
//!
//! One lab for all of it, in an order that leaves each part what it needs: at the end
//! of each part everything is as it was before. Read and broken with foreign tools only.

mod daemons;
mod limit;
mod proxy;
mod rows;
mod withdrawals;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{condition, kubectl};
use crate::harness::{Standing, able, call, wait};
use crate::test_node::{Routes, TestNode, pods_ping};

/// How soon what somebody broke by hand is back.
const REPAIR: Duration = Duration::from_secs(2);
/// How soon pods reach each other after a repair: OVN's daemons need a moment too.
const PINGS: Duration = Duration::from_secs(5);

#[test]
fn what_others_break_is_repaired_and_what_nobody_broke_stays() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let part = |what: &str, job: fn(&Standing)| {
        println!("--- {what}");
        let start = Instant::now();
        job(&lab);
        println!("--- {what}: {:.1} s", start.elapsed().as_secs_f64());
    };
    let test_nodes = TestNode::all(&lab);
    let accused = |test_nodes: &[TestNode<'_>]| test_nodes.iter().any(TestNode::accuses);
    assert!(!accused(&test_nodes), "nobody has broken anything yet");
    part("rows broken by hand", rows::broken_by_hand);
    part("kernel broken by hand", kernel_broken_by_hand);
    part("other rows stay", rows::of_others_never_leave);
    part("events of the kernel lost", rows::overrun);
    part("a router of nobody", daemons::a_router_of_nobody);
    part("Northbound DB restarted", rows::database_restarted);
    part(
        "agent starts before the Northbound DB",
        daemons::agent_starts_first,
    );
    part("restart without work", daemons::restart_writes_nothing);
    part("a limit of routes", limit::of_routes);
    part("SIGTERM", daemons::end_when_told);
    part("a malformed annotation", malformed_annotation);
    let whole = wait(Duration::from_secs(20), || call(&["status"]).good);
    assert!(whole, "status is not good in the end, or a daemon has died");
    lab.recovers("1,5");
    assert!(
        !accused(&test_nodes[1..]),
        "only the first node's rows were broken"
    );
}

/// The host's rule, its route to pods and the management port's address are taken away.
fn kernel_broken_by_hand(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let device = "ovn-k8s-mp0";
    let shown = || {
        let rule = test_node.run(&["ip", "rule", "show", "pref", "31"]);
        let route = test_node.run(&["ip", "route", "show", "table", "7"]);
        let address = test_node.run(&["ip", "-br", "-4", "address", "show", "dev", device]);
        [rule, route, address]
    };
    let before = shown();
    assert!(
        before.iter().all(|text| !text.trim().is_empty()),
        "no rule, route or address of ours: {before:?}"
    );
    let address = before[2].split_whitespace().nth(2).unwrap();
    let breakages: [(&str, &[&str]); 4] = [
        ("the rule", &["ip", "rule", "del", "pref", "31"]),
        ("the route", &["ip", "route", "flush", "table", "7"]),
        (
            "the address",
            &["ip", "address", "del", address, "dev", device],
        ),
        ("the link", &["ip", "link", "set", device, "down"]),
    ];
    for (what, words) in breakages {
        let mark = test_node.mark();
        let start = Instant::now();
        test_node.run(words);
        let back = wait(REPAIR, || shown() == before);
        assert!(
            back,
            "{what} is not back after {REPAIR:?}: {:?}, before {before:?}",
            shown()
        );
        println!("{what} was back after {:?}", start.elapsed());
        assert!(
            test_node.logged(mark, &["changed the kernel"]),
            "{what}: not reported in the log"
        );
    }
    let pod = lab.pod(1).to_string();
    let reached = wait(PINGS, || {
        test_node
            .try_run(&["ping", "-q", "-c", "1", "-W", "1", &pod])
            .is_some()
    });
    assert!(reached, "the host does not reach {pod}");
}

/// A node whose subnets cannot be read costs only itself, and is named.
fn malformed_annotation(lab: &Standing) {
    const KEY: &str = "k8s.ovn.org/node-subnets";
    let test_nodes = TestNode::all(lab);
    let bad = &test_nodes[1];
    let node = kubectl(&["get", "node", &bad.node, "-o", "json"]);
    let annotation = format!("/metadata/annotations/{}", KEY.replace('/', "~1"));
    let good = node.pointer(&annotation).and_then(Value::as_str).unwrap();
    let annotate = |text: &str| {
        let pair = format!("{KEY}={text}");
        let said = call(&[
            "kubectl",
            "annotate",
            "--overwrite",
            "node",
            &bad.node,
            &pair,
        ]);
        assert!(said.good, "{}", said.text);
    };
    let holds = || -> Vec<Held> {
        test_nodes
            .iter()
            .map(|test_node| (test_node.rows(), test_node.learned(), test_node.flows()))
            .collect()
    };
    let before = holds();
    annotate("{\"default\":");
    let named = wait(Duration::from_secs(10), || {
        condition("Complete")
            .is_some_and(|(status, message)| status == "False" && message.contains(&bad.node))
    });
    assert!(
        named,
        "Complete does not name {}: {:?}",
        bad.node,
        condition("Complete")
    );
    // Longer than any of our loops waits before it acts.
    std::thread::sleep(Duration::from_secs(4));
    let after = holds();
    annotate(good);
    for (test_node, (was, is)) in test_nodes.iter().zip(before.iter().zip(&after)) {
        unaffected(test_node, bad, was, is);
    }
    let whole = wait(Duration::from_secs(10), || {
        condition("Complete").is_some_and(|(status, _)| status == "True")
    });
    assert!(
        whole,
        "Complete is not True again: {:?}",
        condition("Complete")
    );
    let same = wait(Duration::from_secs(20), || holds() == before);
    assert!(same, "not as before: {:#?}\nbefore: {before:#?}", holds());
    pods_ping(lab, PINGS);
}

type Held = (Option<String>, Routes, String);

/// Rows, learned routes and flows are what they were.
fn unaffected(test_node: &TestNode<'_>, bad: &TestNode<'_>, was: &Held, is: &Held) {
    assert!(
        was == is,
        "{} was changed because {}'s annotation is malformed: {is:#?}\nbefore: {was:#?}",
        test_node.node,
        bad.node
    );
}
