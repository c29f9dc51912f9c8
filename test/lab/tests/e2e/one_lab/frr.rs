//! zebra that hangs, is killed or stopped, and bgpd that does not listen.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::{condition, sessions};
use crate::follow::Follow;
use crate::harness::{Standing, call, wait};

/// How long zebra is away.
const AWAY: Duration = Duration::from_secs(5);
/// How soon FRR is whole again.
const BACK: Duration = Duration::from_secs(60);

pub(super) fn zebra_hangs(lab: &Standing) {
    without_zebra(lab, "freeze", "thaw", true);
}

pub(super) fn zebra_is_killed(lab: &Standing) {
    without_zebra(lab, "stop", "start", false);
}

pub(super) fn zebra_is_stopped(lab: &Standing) {
    without_zebra(lab, "end", "start", false);
}

/// Rows of the node stay all the time, from before zebra goes until FRR is whole again. Its pod reaches the next one's all
/// the time too where the other nodes notice nothing: the end of zebra ends its BFD sessions, and then they take their
/// routes to this node away.
fn without_zebra(lab: &Standing, away: &str, back: &str, unnoticed: bool) {
    let (node, target) = (lab.node(0), lab.pod(1).to_string());
    let rows = Follow::rows(lab, &node, &[lab.subnet(1), lab.subnet(2)]);
    let pod = format!("{node}-pod");
    let ping = [
        "ping", "-n", "-q", "-i", "0.1", "-c", "100", "-W", "1", &target,
    ];
    let ping = lab.start(&pod, &ping);
    lab.daemon(away, &node, "zebra");
    std::thread::sleep(AWAY);
    lab.daemon(back, &node, "zebra");
    if !unnoticed {
        // As watchfrr does after a zebra that ended: bgpd does not tell a new one what it sent to the old one.
        lab.daemon("stop", &node, "bgpd");
        lab.daemon("start", &node, "bgpd");
    }
    let whole = wait(BACK, || call(&["status"]).good);
    let pinged = ping.wait_with_output().unwrap();
    let summary = String::from_utf8_lossy(&pinged.stdout).into_owned();
    assert!(whole, "not whole again after zebra's {back}");
    let missing = rows.stop();
    assert!(
        missing.is_empty(),
        "{away}, {back}: rows were missing from {missing:?}"
    );
    let all = summary.contains(" 0% packet loss");
    assert!(all || !unnoticed, "{away}: {summary}");
    let answers = wait(BACK, || {
        let once = ["ping", "-n", "-q", "-c", "1", "-W", "1", &target];
        lab.try_exec(&pod, &once).good
    });
    assert!(answers, "{target} does not answer after zebra's {back}");
}

/// What is deleted by hand and put back by the agent is seen to have been missing, however soon it is back.
pub(super) fn a_row_that_goes_is_seen(lab: &Standing) {
    let (node, subnet) = (lab.node(0), lab.subnet(1));
    let rows = Follow::rows(lab, &node, std::slice::from_ref(&subnet));
    lab.exec(
        &node,
        &["ovn-nbctl", "lr-route-del", &format!("GR_{node}"), &subnet],
    );
    let back = wait(BACK, || rows.changes() >= 2 && !rows.lacks());
    let missing = rows.stop();
    assert!(back, "{subnet} is not back: {missing:?}");
    assert_eq!(missing.len(), 2, "gone and back: {missing:?}");
}

/// Two bgpd as frr-k8s starts them: neither listens, so neither reaches the other; the third reaches both.
pub(super) fn bgp_listen_disabled(lab: &Standing) {
    let nodes = [lab.node(0), lab.node(1)];
    for node in &nodes {
        restarted(lab, node, "0");
    }
    let mut last = None;
    let reported = wait(Duration::from_secs(120), || {
        last = condition("SessionsUp");
        let named = |message: &str| nodes.iter().all(|n| message.contains(n.as_str()));
        last.as_ref().is_some_and(|(status, message)| {
            status == "False" && message.contains("-p 0") && named(message)
        })
    });
    assert!(reported, "SessionsUp does not tell of it: {last:?}");
    println!("{last:?}");
    let third = lab.node(2);
    assert!(!last.unwrap().1.contains(&third), "{third} reaches both");
    assert_eq!(sessions(lab, &nodes[0]), 1, "sessions of {}", nodes[0]);
    for node in &nodes {
        restarted(lab, node, "179");
    }
    let up = wait(BACK, || {
        condition("SessionsUp").is_some_and(|(status, _)| status == "True")
    });
    assert!(
        up,
        "SessionsUp is not True again: {:?}",
        condition("SessionsUp")
    );
    lab.recovers("1,5");
}

/// bgpd with another `-p`, by the lab's own record of how it is started.
fn restarted(lab: &Standing, node: &str, port: &str) {
    lab.daemon("stop", node, "bgpd");
    let mut record = lab.daemon_record(node, "bgpd");
    let argv = record
        .pointer_mut("/start/argv")
        .and_then(Value::as_array_mut);
    let argv = argv.unwrap();
    let at = argv.iter().position(|word| word == "-p").expect("-p");
    *argv.get_mut(at + 1).expect("a port") = port.into();
    std::fs::write(lab.daemon_file(node, "bgpd"), record.to_string()).unwrap();
    lab.daemon("start", node, "bgpd");
}
