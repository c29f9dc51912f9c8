//! Our daemons beside an imitation of OVN-Kubernetes.
//!
//! In: both gateway modes, both families. Out: pods past the tunnels with every line of the proof that holds there, no more lost by
//! what comes and goes than the demonstration tolerates, and nothing of ours when the network goes back. Not here: real
//! OVN-Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::{Standing, able, call, name, wait};

#[test]
fn pods_are_led_past_the_tunnels_and_keep_their_ways_whatever_comes_and_goes() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--adopt"]);
    let said = lab.prove(&["--quiet", "10"]);
    said.assert_all_hold();
    // Lines 1 to 5 and 7.
    assert_eq!(said.text.matches("  ok ").count(), 6, "{}", said.text);
    let found = held(&lab, &lab.node(0));
    // On a machine with other labs a ping may be late for other reasons; translated is never late.
    let mut turns = 0;
    loop {
        let said = call(&["failover", "--only", "beside"]);
        turns += 1;
        let fails = said.text.lines().filter(|line| line.contains("FAIL"));
        let mut fails = fails.peekable();
        let is_late = fails.peek().is_some() && fails.all(|line| line.contains("pings were lost"));
        assert!(said.good || (is_late && turns < 3), "{}", said.text);
        if said.good {
            break;
        }
    }
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    // Half done: the drained node has BGP's routes to the others' pods, and what its host sends takes the tunnels all the same.
    let node = lab.node(1);
    call(&["kubectl", "cordon", &node]);
    call(&[
        "kubectl",
        "annotate",
        "node",
        &node,
        "noverlay.io/drain=maintenance",
    ]);
    let rules = || lab.exec(&node, &["ip", "rule", "show"]);
    let is_back = || !rules().contains("2898:") && rules().contains("2901:");
    assert!(wait(Duration::from_secs(40), is_back), "{}", rules());
    assert!(
        lab.exec(&node, &["ip", "route"]).contains("proto bgp"),
        "there is no route to be kept from"
    );
    lab.prove(&["--only", "1,3"]).assert_all_hold();
    call(&["kubectl", "uncordon", &node]);
    call(&["kubectl", "annotate", "node", &node, "noverlay.io/drain-"]);
    leave_nothing_and_say_so(&lab, &found);
}

#[test]
fn local_gateway_mode_and_both_families_are_the_same() {
    if !able() {
        return;
    }
    let words = ["--adopt", "--gateway-mode", "local", "--families", "dual"];
    let lab = Standing::up(&words);
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    // What would drop what is forwarded takes the node back to the tunnels, in words, and is a way again when it is gone.
    let node = lab.node(0);
    let steered = || {
        let words = [
            "ovn-nbctl",
            "--bare",
            "--columns=_uuid",
            "find",
            "logical_router_policy",
            "priority=1010",
        ];
        !lab.exec(&node, &words).trim().is_empty()
    };
    assert!(steered());
    let drop = "add table ip docker; add chain ip docker FORWARD { type filter hook forward priority 0; policy drop; }";
    // Every packet that the host forwards is lost from here on.
    lab.exec(&node, &["nft", drop]);
    assert!(
        wait(Duration::from_secs(20), || !steered()),
        "it is steered still"
    );
    let told = || {
        let routes = call(&["kubectl", "get", "noderoutes", &node, "-o", "json"]).text;
        routes.contains("ip docker FORWARD") && routes.contains("NotSteered")
    };
    assert!(wait(Duration::from_secs(20), told), "nobody is told");
    let says_ready = || {
        let object = call(&["kubectl", "get", "node", &node, "-o", "json"]).text;
        object.contains("underlay-ready")
    };
    assert!(
        wait(Duration::from_secs(20), || !says_ready()),
        "peers are told that it takes packets from the wire"
    );
    lab.prove(&["--only", "1"]).assert_all_hold();
    lab.exec(&node, &["nft", "delete table ip docker"]);
    assert!(
        wait(Duration::from_secs(30), steered),
        "it is not steered again"
    );
    // A host that does not forward is noticed without any event.
    lab.exec(
        &node,
        &["sysctl", "-qw", "net.ipv4.conf.br-ex.forwarding=0"],
    );
    assert!(
        wait(Duration::from_secs(30), || !steered()),
        "it is steered still"
    );
    lab.exec(
        &node,
        &["sysctl", "-qw", "net.ipv4.conf.br-ex.forwarding=1"],
    );
    assert!(
        wait(Duration::from_secs(30), steered),
        "it is not steered again"
    );
}

/// What a node holds, ours among it, and how it is shown.
const HELD: [(&str, &str); 9] = [
    (
        "policies",
        "ovn-nbctl --bare --columns=priority,match,action,nexthops list logical_router_policy",
    ),
    (
        "nat",
        "ovn-nbctl --bare --columns=type,logical_ip,external_ip,exempted_ext_ips list nat",
    ),
    (
        "acls",
        "ovn-nbctl --bare --columns=priority,match,action list acl",
    ),
    (
        "routes",
        "ovn-nbctl --bare --columns=ip_prefix,nexthop,external_ids list logical_router_static_route",
    ),
    (
        "groups",
        "ovn-nbctl --bare --columns=name,ports list port_group",
    ),
    (
        "sets",
        "ovn-nbctl --bare --columns=name,addresses list address_set",
    ),
    ("rules", "ip rule show"),
    ("nft", "nft list tables"),
    (
        "flows",
        "ovs-ofctl -O OpenFlow15 --no-stats dump-flows br-ex | sed 's/cookie=[^,]*, //'",
    ),
];

/// Among which of them ours are.
const OURS: [&str; 6] = ["policies", "acls", "groups", "sets", "rules", "nft"];

fn held(lab: &Standing, node: &str) -> BTreeMap<&'static str, String> {
    let show = |command: &str| {
        let said = lab.exec(node, &["sh", "-c", command]);
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    HELD.map(|(what, command)| (what, show(command))).into()
}

/// Agents that are told to leave take away what their nodes have, are ready then, and pods have the tunnels. `found`: what the
/// first node held while pods were past them.
fn leave_nothing_and_say_so(lab: &Standing, found: &BTreeMap<&'static str, String>) {
    let nodes = [0, 1, 2].map(|index| lab.node(index));
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || leaves(lab, node));
        }
    });
    for node in &nodes {
        assert_nothing_of_ours(&held(lab, node));
        let object = call(&["kubectl", "get", "node", node, "-o", "json"]).text;
        assert!(!object.contains("underlay-ready"), "{object}");
    }
    let after = held(lab, &nodes[0]);
    for (what, before) in found {
        let now = after.get(what).unwrap();
        let is_same = before == now;
        assert_eq!(
            !OURS.contains(what),
            is_same,
            "{what}:\n{before}\n---\n{now}"
        );
    }
    lab.prove(&["--only", "1,3"]).assert_all_hold();
}

fn leaves(lab: &Standing, node: &str) {
    call(&["daemon", "end", node, "node-agent"]);
    let folder = format!("/run/noverlay-lab/{}", name());
    let text = format!("{folder}/{node}/node-agent/config/noverlay.conf");
    let text = std::fs::read_to_string(text).unwrap();
    // What the container has there.
    let text = text.replace(
        "/etc/noverlay/",
        &format!("{folder}/{node}/node-agent/config/"),
    );
    let ovs = format!("{folder}/{node}/ovs");
    // The third node's has an address already.
    let north = if text.contains("[ovnnorth]") {
        String::new()
    } else {
        format!("[ovnnorth]\naddress = unix:{ovs}/ovnnb_db.sock\n")
    };
    let own = format!(
        "{text}\n{north}[ovs]\nrundir = {ovs}\n[kubernetes]\nkubeconfig = {folder}/underlay/admin.kubeconfig\n"
    );
    let conf = format!("{folder}/{node}/leave.conf");
    std::fs::write(&conf, own).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.parent().and_then(|deps| deps.parent()).unwrap();
    let script = format!(
        r#"{}/node-agent --config {conf} --node {node} --leave & agent=$!
        for try in $(seq 60); do
            sleep 1
            answer=$({{ exec 3<>/dev/tcp/127.0.0.1/9101 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3; }} 2>/dev/null)
            case $answer in *' 200 '*) echo nothing is left after $try s; break ;; esac
        done
        kill $agent; wait $agent; true"#,
        program.display(),
    );
    let said = lab.exec(node, &["bash", "-c", &script]);
    assert!(said.contains("nothing is left"), "{said}");
}

fn assert_nothing_of_ours(held: &BTreeMap<&'static str, String>) {
    let priorities = |line: &str| ["1010", "1200"].contains(&line.trim());
    for (what, held) in held.iter().filter(|(what, _)| OURS.contains(what)) {
        let words = ["noverlay", "proto 78"];
        let is_ours = |line: &str| priorities(line) || words.iter().any(|word| line.contains(word));
        assert!(!held.lines().any(is_ours), "{what}: {held}");
    }
}
