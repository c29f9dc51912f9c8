//! Ways to break lines 6 and 8: nodes and subnets that come and go.

use std::time::Duration;

use super::dropped;
use crate::follow::Follow;
use crate::harness::{Standing, wait};

/// How soon what is waited for is there.
const SOON: Duration = Duration::from_secs(40);

/// Nobody leads: a node that joins gets no subnet.
pub(super) fn node_gets_no_subnet(lab: &Standing) {
    for manager in ["cm-a", "cm-b"] {
        lab.daemon("freeze", "underlay", manager);
    }
    lab.prove(&["--only", "6", "--patience", "5"])
        .assert_fails(6, "object");
    for manager in ["cm-a", "cm-b"] {
        lab.daemon("thaw", "underlay", manager);
    }
    lab.recovers("1,5");
}

/// The objects name the new node, and FRR of one node never hears of it.
pub(super) fn a_neighbor_is_not_taken_up(lab: &Standing) {
    let node = lab.node(0);
    lab.daemon("freeze", &node, "frr-agent");
    let said = lab.prove(&["--only", "6", "--patience", "15"]);
    lab.daemon("thaw", &node, "frr-agent");
    said.assert_fails(6, "FRR");
    lab.recovers("1,5");
}

/// The node that joined leaves, and FRR of one node never hears of it.
pub(super) fn a_node_that_left_stays_a_neighbor(lab: &Standing) {
    let node = lab.node(0);
    let said = lab.meanwhile(
        &["--only", "6", "--patience", "30"],
        "all 4 pods reach each other",
        || lab.freeze_at_once(&node, "frr-agent"),
    );
    lab.daemon("thaw", &node, "frr-agent");
    said.assert_fails(6, "FRR");
    // It had the first index that was free.
    let left = lab.host(4);
    // A session that ends in its first seconds is not watched by BFD yet: then graceful restart keeps its routes, too.
    let kept = [
        format!("bgpd of {node} still has the neighbor {left}"),
        format!("{node} still has a route to "),
    ];
    let named = kept.iter().any(|kept| said.text.contains(kept));
    assert!(named, "none of {kept:?} in\n{}", said.text);
    let folder = lab.dir(&node).join("frr").to_string_lossy().into_owned();
    let show = [
        "vtysh",
        "--vty_socket",
        &folder,
        "-c",
        "show running-config",
    ];
    let neighbor = format!("neighbor {left} ");
    let gone = wait(SOON, || !lab.exec(&node, &show).contains(&neighbor));
    assert!(gone, "bgpd of {node} has {left} for ever");
    lab.recovers("1,5");
}

/// Kernel and FRR obey, OVN of one node does not.
pub(super) fn a_withdrawn_route_is_kept(lab: &Standing) {
    let node = lab.node(1);
    lab.daemon("freeze", &node, "node-agent");
    lab.prove(&["--only", "8"]).assert_fails(8, "OVN");
    lab.daemon("thaw", &node, "node-agent");
    lab.recovers("1,5");
}

/// Somebody else's route lets packets for the withdrawn pod out.
pub(super) fn a_withdrawn_pod_is_reached_another_way(lab: &Standing) {
    let (node, pod) = (lab.node(1), lab.pod(0).to_string());
    let router = format!("GR_{node}");
    let outside = lab.address(0);
    let route = [
        "ovn-nbctl",
        "--wait=hv",
        "lr-route-add",
        &router,
        &pod,
        &outside,
    ];
    lab.exec(&node, &route);
    lab.prove(&["--only", "8"]).assert_fails(8, "packets");
    lab.exec(
        &node,
        &["ovn-nbctl", "--wait=hv", "lr-route-del", &router, &pod],
    );
    lab.recovers("1,5");
}

/// A pod that cannot send anything leaks nothing, and that is no proof.
pub(super) fn a_pod_sends_nothing(lab: &Standing) {
    let pod = format!("{}-pod", lab.node(1));
    lab.exec(&pod, &["ip", "route", "del", "default"]);
    let said = lab.prove(&["--only", "8"]);
    let gateway = lab.gateway(1);
    lab.exec(&pod, &["ip", "route", "add", "default", "via", &gateway]);
    said.assert_fails(8, "packets");
    assert!(
        said.text.contains("echo requests that leave the pod"),
        "the control did not see it:\n{}",
        said.text
    );
    lab.recovers("1,8");
}

/// Where not even what must leave is seen, that nothing else leaves is no proof.
pub(super) fn nothing_reaches_the_outside_host(lab: &Standing) {
    let (node, outside) = (lab.node(1), lab.host(100));
    let what = format!("ip daddr {outside} icmp type echo-request");
    let said = dropped(lab, 1, &what, "8");
    said.assert_fails(8, "packets");
    let control = format!("an echo request of the pod on {node} to {outside} on the underlay");
    assert!(
        said.text.contains(&control),
        "no {control:?} in\n{}",
        said.text
    );
    lab.recovers("1,8");
}

/// Pods reach each other again, over a row of somebody else.
pub(super) fn a_withdrawn_route_comes_back_by_another_hand(lab: &Standing) {
    let (node, subnet, hop) = (lab.node(1), lab.subnet(0), lab.address(0));
    let router = format!("GR_{node}");
    let rows = Follow::rows(lab, &node, std::slice::from_ref(&subnet));
    let said = lab.meanwhile(&["--only", "8"], "", || {
        let gone = wait(SOON, || rows.lacks());
        assert!(gone, "{subnet} was not withdrawn");
        lab.freeze_at_once(&node, "node-agent");
        let show = ["ip", "route", "show", "proto", "bgp", &subnet];
        let back = wait(SOON, || lab.exec(&node, &show).contains(&subnet));
        assert!(back, "{subnet} is not announced again");
        let add = ["ovn-nbctl", "lr-route-add", &router, &subnet, &hop];
        lab.exec(&node, &add);
    });
    drop(rows);
    lab.exec(&node, &["ovn-nbctl", "lr-route-del", &router, &subnet]);
    lab.daemon("thaw", &node, "node-agent");
    said.assert_fails(8, "OVN");
    let before = "every layer as it was before";
    assert!(
        said.text.contains(before),
        "no {before:?} in\n{}",
        said.text
    );
    lab.recovers("1,5");
}
