//! The proof can fail: for each of its lines at least two ways to break a lab, each seen by
//! the line at the layer that was broken.
//!
//! One lab for all, and what was broken is corrected after each. The daemon that would repair
//! the damage is frozen or stopped meanwhile.

mod life;
mod quiet;

use std::io::Write;
use std::process::Stdio;

use crate::harness::{Said, Standing, able, command, seed};

#[test]
fn each_line_of_the_proof_fails_at_the_layer_that_was_broken() {
    if !able() {
        return;
    }
    // The neighbouring seed has the other host prefix length.
    let lab = Standing::up(&["--seed", &(seed() ^ 1).to_string()]);
    // Line 7.
    quiet::self_neighbor(&lab);
    quiet::object_written_by_somebody(&lab);
    quiet::written_below_the_api(&lab);
    quiet::reload_of_the_same(&lab);
    quiet::a_daemon_tells_of_a_panic(&lab);
    quiet::sessions_cleared(&lab);
    // Lines 1 to 5.
    exemption_set_emptied(&lab);
    flow_104_removed(&lab);
    route_deleted(&lab);
    peer_withdrawn(&lab);
    geneve_on_the_underlay(&lab);
    host_rule_removed(&lab);
    large_packets_dropped(&lab);
    transit_switch_made(&lab);
    // Lines 6 and 8.
    life::node_gets_no_subnet(&lab);
    life::a_neighbor_is_not_taken_up(&lab);
    life::a_node_that_left_stays_a_neighbor(&lab);
    life::a_withdrawn_route_is_kept(&lab);
    life::a_withdrawn_pod_is_reached_another_way(&lab);
    life::a_pod_sends_nothing(&lab);
    life::nothing_reaches_the_outside_host(&lab);
    life::a_withdrawn_route_comes_back_by_another_hand(&lab);
    lab.recovers("1,2,3,5");
}

/// Pods' packets to other pods are translated: receivers see the node.
fn exemption_set_emptied(lab: &Standing) {
    let node = lab.node(0);
    let cluster = lab.record("/values/networks/default/ranges/0/subnet");
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
    let said = lab.prove(&["--only", "1,2,3,5"]);
    for line in [1, 2, 3, 5] {
        said.assert_fails(line, "OVN");
    }
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

/// The kernel has the route, the gateway router has not; the agent repairs it later.
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
    let said = lab.prove(&["--only", "1,4,5"]);
    for line in [1, 4, 5] {
        said.assert_fails(line, "FRR");
    }
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
    let said = lab.prove(&["--only", "2"]);
    said.assert_fails(2, "packets");
    assert!(
        said.text.contains(&format!(" > {peer}.6081: ")),
        "the packets are not shown:\n{}",
        said.text
    );
    sender.kill().unwrap();
    sender.wait().unwrap();
    lab.recovers("2");
}

/// A host's packets to pods leave with another source, or not at all.
fn host_rule_removed(lab: &Standing) {
    let node = lab.node(0);
    lab.daemon("freeze", &node, "node-agent");
    let rule = lab.exec(&node, &["ip", "rule", "show", "pref", "31"]);
    let (_, words) = rule.trim().split_once(':').expect("a rule");
    lab.exec(&node, &["ip", "rule", "del", "pref", "31"]);
    lab.prove(&["--only", "3"]).assert_fails(3, "kernel");
    let add = [
        &["ip", "rule", "add", "pref", "31"],
        &words.split_whitespace().collect::<Vec<_>>()[..],
    ];
    lab.exec(&node, &add.concat());
    lab.daemon("thaw", &node, "node-agent");
    lab.recovers("3");
}

/// What is small arrives, what is large does not.
fn large_packets_dropped(lab: &Standing) {
    let said = dropped(lab, 0, "ip length > 1000", "1,4");
    said.assert_fails(4, "packets");
    assert!(said.text.contains("line 1  ok"), "{}", said.text);
    lab.recovers("4");
}

/// Proves lines while packets of one node are dropped where they enter the underlay.
fn dropped(lab: &Standing, number: usize, what: &str, lines: &str) -> Said {
    let port = format!("up{}", lab.record(&format!("/nodes/{number}/index")));
    let chain = format!(
        "add chain netdev sabotage some {{ type filter hook ingress device \"{port}\" priority 0; }}"
    );
    lab.exec("underlay", &["nft", "add table netdev sabotage"]);
    lab.exec("underlay", &["nft", &chain]);
    let rule = format!("add rule netdev sabotage some {what} drop");
    lab.exec("underlay", &["nft", &rule]);
    let said = lab.prove(&["--only", lines]);
    lab.exec("underlay", &["nft", "delete table netdev sabotage"]);
    said
}

/// A network of tunnels beside the routed one.
fn transit_switch_made(lab: &Standing) {
    let node = lab.node(0);
    lab.exec(&node, &["ovn-nbctl", "ls-add", "transit_switch"]);
    lab.prove(&["--only", "5"]).assert_fails(5, "OVN");
    lab.exec(&node, &["ovn-nbctl", "ls-del", "transit_switch"]);
    lab.recovers("5");
}
