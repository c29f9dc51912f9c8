//! Ways to break lines 6 and 8: nodes and subnets that come and go.

use crate::harness::Standing;

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
