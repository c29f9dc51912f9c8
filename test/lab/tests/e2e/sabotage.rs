//! The proof can fail: six ways to break a lab, each seen by its line at its layer.
//!
//! The daemon that would mend the damage is frozen or stopped meanwhile.

use std::io::Write;
use std::process::Stdio;

use crate::harness::{Standing, able, command, seed};

#[test]
fn each_sabotage_fails_its_line_at_its_layer() {
    if !able() {
        return;
    }
    // The neighbouring seed has the other host prefix length.
    let lab = Standing::up(&["--seed", &(seed() ^ 1).to_string()]);
    exemption_set_emptied(&lab);
    flow_104_removed(&lab);
    route_deleted(&lab);
    peer_withdrawn(&lab);
    geneve_on_the_underlay(&lab);
    self_neighbor(&lab);
    lab.recovers("1,2,3,5");
}

/// Pods' packets to other pods are translated: receivers see the node.
fn exemption_set_emptied(lab: &Standing) {
    let node = lab.node(0);
    let cluster = lab.record("/values/cluster_subnet");
    let row = format!("logical_ip=\"{cluster}\"");
    let set = lab.exec(
        &node,
        &[
            "ovn-nbctl",
            "--bare",
            "--columns=exempted_ext_ips",
            "find",
            "nat",
            &row,
        ],
    );
    let set = set.trim();
    let before = lab.exec(
        &node,
        &["ovn-nbctl", "get", "address_set", set, "addresses"],
    );
    lab.daemon("freeze", &node, "node-agent");
    lab.exec(
        &node,
        &[
            "ovn-nbctl",
            "--wait=hv",
            "clear",
            "address_set",
            set,
            "addresses",
        ],
    );
    lab.prove(&["--only", "1"]).assert_fails(1, "OVN");
    let again = format!("addresses={}", before.trim());
    lab.exec(
        &node,
        &["ovn-nbctl", "--wait=hv", "set", "address_set", set, &again],
    );
    lab.daemon("thaw", &node, "node-agent");
    lab.recovers("1");
}

/// Pods' packets to other nodes end at the outer bridge.
fn flow_104_removed(lab: &Standing) {
    let node = lab.node(0);
    lab.daemon("freeze", &node, "node-agent");
    let before = lab.exec(
        &node,
        &[
            "ovs-ofctl",
            "-O",
            "OpenFlow15",
            "--no-stats",
            "dump-flows",
            "br-ex",
        ],
    );
    let without: String = before
        .lines()
        .filter(|line| !line.contains("priority=104,"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_ne!(
        before.lines().count(),
        without.lines().count(),
        "no flow of priority 104:\n{before}"
    );
    replace_flows(&node, &without);
    lab.prove(&["--only", "1"]).assert_fails(1, "packets");
    replace_flows(&node, &before);
    lab.daemon("thaw", &node, "node-agent");
    lab.recovers("1");
}

fn replace_flows(node: &str, flows: &str) {
    let mut command = command(&["exec", node]);
    command.args([
        "ovs-ofctl",
        "-O",
        "OpenFlow15",
        "--bundle",
        "replace-flows",
        "br-ex",
        "-",
    ]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("hack/lab");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(flows.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "replacing flows");
}

/// The kernel has the route, the gateway router has not; the agent mends it later.
fn route_deleted(lab: &Standing) {
    let node = lab.node(0);
    lab.daemon("stop", &node, "node-agent");
    let router = format!("GR_{node}");
    lab.exec(
        &node,
        &[
            "ovn-nbctl",
            "--wait=hv",
            "lr-route-del",
            &router,
            &lab.subnet(1),
        ],
    );
    let said = lab.prove(&["--only", "1,5"]);
    said.assert_fails(5, "OVN");
    said.assert_fails(1, "OVN");
    lab.daemon("start", &node, "node-agent");
    lab.recovers("1,5");
}

/// One session is gone, and with it both ways between two nodes.
fn peer_withdrawn(lab: &Standing) {
    let (node, peer) = (lab.node(0), lab.address(1));
    lab.daemon("freeze", &node, "frr-agent");
    bgp(lab, &[&format!("neighbor {peer} shutdown")]);
    lab.prove(&["--only", "1"]).assert_fails(1, "FRR");
    bgp(lab, &[&format!("no neighbor {peer} shutdown")]);
    lab.daemon("thaw", &node, "frr-agent");
    lab.recovers("1");
}

/// Commands in the first node's `router bgp`.
fn bgp(lab: &Standing, commands: &[&str]) {
    let node = lab.node(0);
    let router = format!("router bgp {}", lab.record("/values/as_number"));
    let sockets = lab.dir(&node).join("frr").to_string_lossy().into_owned();
    let mut words = vec![
        "vtysh",
        "--vty_socket",
        &sockets,
        "-c",
        "configure terminal",
        "-c",
        &router,
    ];
    words.extend(commands.iter().flat_map(|&line| ["-c", line]));
    lab.exec(&node, &words);
}

/// Somebody sends Geneve while the pods ping.
fn geneve_on_the_underlay(lab: &Standing) {
    let peer = lab.address(1);
    let script = format!(
        "import socket, time\nwith socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n for _ in range(300):\n  s.sendto(bytes(40), ('{peer}', 6081)); time.sleep(0.05)"
    );
    let mut sender = lab.start(&lab.node(0), &["python3", "-c", &script]);
    lab.prove(&["--only", "2"]).assert_fails(2, "packets");
    sender.kill().unwrap();
    sender.wait().unwrap();
    lab.recovers("2");
}

/// FRR refuses a neighbor that is itself, but not one that becomes itself.
fn self_neighbor(lab: &Standing) {
    let node = lab.node(0);
    let underlay = lab.record("/values/underlay");
    let itself = format!("{}.77", underlay.rsplit_once('.').unwrap().0);
    let address = format!("{itself}/32");
    let as_number = lab.record("/values/as_number");
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("freeze", &node, agent);
    }
    bgp(lab, &[&format!("neighbor {itself} remote-as {as_number}")]);
    lab.exec(&node, &["ip", "address", "add", &address, "dev", "lo"]);
    lab.prove(&["--only", "7", "--quiet", "1"])
        .assert_fails(7, "FRR");
    lab.exec(&node, &["ip", "address", "del", &address, "dev", "lo"]);
    bgp(lab, &[&format!("no neighbor {itself}")]);
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("thaw", &node, agent);
    }
}
