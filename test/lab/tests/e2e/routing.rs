//! The physical networks of `docs/examples/routing`: routers beside the nodes, and what an administrator writes.
//!
//! In: an example's folder. Out: what its README promises, seen in packets, kernel, FRR and Northbound rows. What a router
//! announces is changed with vtysh, what the administrator writes with kubectl.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{self, condition};
use crate::harness::{Standing, able, call, wait};
use crate::test_node::TestNode;

/// How long it may take until a path that is asked every ten seconds is known to the byte: each request without an answer is a
/// second.
const PROBED: Duration = Duration::from_secs(120);
/// How long a change may take from an object, or a line of a router, to rows.
const CHANGE: Duration = Duration::from_secs(60);

/// A lab of an example, in which all pods reach each other.
fn standing(example: &str) -> Standing {
    Standing::up(&[
        "--example",
        &format!("../../docs/examples/routing/{example}"),
    ])
}

/// Lines in a router's `router bgp`.
fn configure(lab: &Standing, router: &str, bgp: &str, lines: &[&str]) {
    let sockets = lab.dir(router).join("frr").to_string_lossy().into_owned();
    let mut words = vec!["vtysh", "--vty_socket", &sockets];
    for line in [&["configure terminal", bgp], lines].concat() {
        words.extend(["-c", line]);
    }
    lab.exec(router, &words);
}

const IPV4: &str = "address-family ipv4 unicast";

/// Imported rows of each node are these next hops for each other node's subnet, and nothing else.
fn rows_lead_over(lab: &Standing, hops: impl Fn(usize) -> Vec<String>) {
    let wanted = |number: usize| -> BTreeSet<(String, String)> {
        let others = (0..3).filter(|other| *other != number);
        others
            .flat_map(|other| {
                let subnet = lab.subnet(other);
                hops(other)
                    .into_iter()
                    .map(move |hop| (subnet.clone(), hop))
            })
            .collect()
    };
    for node in TestNode::all(lab) {
        let wanted = wanted(node.number);
        let mut seen = Vec::new();
        let right = wait(CHANGE, || {
            seen = node.imported();
            seen.len() == wanted.len() && seen.iter().cloned().collect::<BTreeSet<_>>() == wanted
        });
        assert!(right, "{}: {seen:?} instead of {wanted:?}", node.node);
    }
}

/// Waits for a condition of the only RouteAdvertisements.
fn accepted(wanted: &str, why: &str) {
    let mut seen = None;
    let right = wait(CHANGE, || {
        seen = condition("Accepted");
        seen.as_ref()
            .is_some_and(|(status, message)| status == wanted && message.contains(why))
    });
    assert!(
        right,
        "Accepted is {seen:?} instead of {wanted} with {why:?}"
    );
}

fn patch(name: &str, patch: &str) {
    let words = [
        "kubectl",
        "patch",
        "routeadvertisements",
        name,
        "--type=merge",
        "-p",
        patch,
    ];
    let said = call(&words);
    assert!(said.good, "{}", said.text);
}

/// Does the pod of a node get an answer from this address?
fn pod_reaches(node: &TestNode<'_>, address: &str) -> bool {
    let pod = format!("{}-pod", node.node);
    let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", address];
    node.lab.try_exec(&pod, &words).good
}

#[test]
fn an_external_route_reflector_and_a_route_advertisements_that_is_rejected_and_mended() {
    if !able() {
        return;
    }
    let lab = standing("external-reflector");
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    accepted("True", "");

    // What is wrong with it takes nothing away.
    let selecting = |label: &str| {
        format!(
            r#"{{"spec": {{"frrConfigurationSelector": {{"matchLabels": {{"network": "{label}"}}}}}}}}"#
        )
    };
    patch("default", &selecting("nothing"));
    accepted("False", "no FRRConfigurations selected");
    std::thread::sleep(Duration::from_secs(3));
    rows_lead_over(&lab, |other| vec![lab.address(other)]);
    lab.prove(&["--only", "1,5"]).assert_all_hold();
    patch("default", &selecting("default"));
    accepted("True", "");

    // The reflector takes itself as next hop: all packets go over it.
    let reflector = lab.host(101);
    let force = "neighbor NODES next-hop-self force";
    configure(&lab, "rr", "router bgp 64512", &[IPV4, force]);
    rows_lead_over(&lab, |_| vec![reflector.clone()]);
    lab.prove(&["--only", "1,2,3"]).assert_all_hold();
    let counted = lab.exec("rr", &["nstat", "-asz", "IpForwDatagrams"]);
    let forwarded = counted.lines().find_map(|line| {
        let count = line.strip_prefix("IpForwDatagrams")?;
        count.split_whitespace().next()?.parse::<u64>().ok()
    });
    assert!(forwarded.is_some_and(|count| count > 0), "{counted}");
}

#[test]
fn two_routers_share_the_load_and_one_of_them_may_lose_its_link() {
    if !able() {
        return;
    }
    let lab = standing("two-routers");
    rows_lead_over(&lab, |_| vec![lab.host(101), lab.host(102)]);
    lab.prove(&["--only", "1,2,3"]).assert_all_hold();
    let said = call(&["failover", "--only", "router"]);
    assert!(said.good, "{}", said.text);
    rows_lead_over(&lab, |_| vec![lab.host(101), lab.host(102)]);
    lab.recovers("1,2");
}

#[test]
fn a_mesh_that_an_administrator_writes_may_name_every_node_to_every_node() {
    if !able() {
        return;
    }
    let lab = standing("own-mesh");
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    for node in TestNode::all(&lab) {
        let own = format!("neighbor {} ", lab.address(node.number));
        let config = node.vtysh(&["show running-config"]);
        assert!(
            config.contains("neighbor ") && !config.contains(&own),
            "{config}"
        );
    }
}

#[test]
fn a_managed_network_is_advertised_to_a_router_outside_too() {
    if !able() {
        return;
    }
    let lab = standing("managed-and-external");
    lab.prove(&["--only", "1,2,3"]).assert_all_hold();
    let (edge, behind) = (lab.host(101), "198.51.100.1");
    for node in TestNode::all(&lab) {
        let mut wanted: Vec<(String, String)> = (0..3)
            .filter(|other| *other != node.number)
            .map(|other| (lab.subnet(other), lab.address(other)))
            .collect();
        wanted.push((format!("{behind}/32"), edge.clone()));
        wanted.sort();
        let mut seen = Vec::new();
        let right = wait(CHANGE, || {
            seen = node.imported();
            seen == wanted
        });
        assert!(right, "{}: {seen:?} instead of {wanted:?}", node.node);
        assert!(pod_reaches(&node, behind), "{}", node.node);
    }
    let learned = |count: usize| {
        let subnets: Vec<String> = (0..3).map(|number| lab.subnet(number)).collect();
        let mut shown = String::new();
        let right = wait(CHANGE, || {
            shown = lab.exec("edge", &["ip", "route", "show", "proto", "bgp"]);
            let there = |number: &usize| {
                let (subnet, via) = (subnets.get(*number).unwrap(), lab.address(*number));
                shown.contains(&format!("{subnet} ")) && shown.contains(&format!("via {via} "))
            };
            (0..3).filter(there).count() == count
        });
        assert!(right, "the router has not {count} pod subnets: {shown}");
    };
    learned(3);

    // Taken back, it is the router that forgets; the nodes do not need it.
    let said = call(&["kubectl", "delete", "routeadvertisements", "outside"]);
    assert!(said.good, "{}", said.text);
    learned(0);
    lab.prove(&["--only", "1,2"]).assert_all_hold();
}

#[test]
fn pods_that_the_physical_network_routes_keep_their_addresses_and_take_its_default_route() {
    if !able() {
        return;
    }
    let lab = standing("routable-pods");
    lab.prove(&["--only", "1,2"]).assert_all_hold();
    let nodes = TestNode::all(&lab);
    let [first, second, _] = &nodes;
    let (pod, outside) = (lab.pod(0).to_string(), lab.host(100));
    let behind = "203.0.113.1";

    // No SNAT: the outside host sees the pod.
    let filter = format!("icmp[icmptype] == icmp-echo and src host {pod}");
    let words = [
        "timeout", "20", "tcpdump", "-l", "-nn", "-c", "1", "-i", "eth0", &filter,
    ];
    let mut capture = lab.start("outside", &words);
    let ended = wait(Duration::from_secs(20), || {
        pod_reaches(first, &outside);
        capture.try_wait().unwrap().is_some()
    });
    let saw = ended && capture.wait().unwrap().success();
    assert!(saw, "{outside} never saw {pod}");
    let back = lab.try_exec("outside", &["ping", "-n", "-q", "-c", "1", "-W", "1", &pod]);
    assert!(back.good, "{}", back.text);

    // The learned default route has taken the place of the configured one.
    let edge = lab.host(101);
    default_route(&nodes, &edge);
    assert!(
        pod_reaches(first, behind),
        "the default route leads to {edge}"
    );

    // A subnet that nobody announces to a node goes the way of everything else.
    let deny = format!("ip prefix-list WITHHELD seq 5 deny {}", lab.subnet(1));
    let permit = "ip prefix-list WITHHELD seq 10 permit any";
    configure(&lab, "edge", &deny, &[permit]);
    let neighbor = "neighbor NODES prefix-list WITHHELD out";
    configure(&lab, "edge", "router bgp 64512", &[IPV4, neighbor]);
    let withheld = lab.subnet(1);
    let gone = wait(CHANGE, || {
        let rows = first.imported();
        !rows.iter().any(|(prefix, _)| *prefix == withheld)
    });
    assert!(gone, "{:?}", first.imported());
    let there = lab.pod(1).to_string();
    assert!(
        pod_reaches(first, &there),
        "{} by the default route",
        second.node
    );

    // Without it the configured one is back.
    let no = "no neighbor NODES default-originate";
    let announced = "no neighbor NODES prefix-list WITHHELD out";
    configure(&lab, "edge", "router bgp 64512", &[IPV4, no, announced]);
    default_route(&nodes, &outside);
    let there = wait(CHANGE, || first.imported().len() == 2);
    assert!(there, "{:?}", first.imported());
    follows_its_file(&lab, first);
    keeps_its_network_over_a_start(&lab, first);
    too_large_packets_are_told(&lab, first);
    a_narrow_path_is_told(&lab, first);
}

/// A port of the physical network that carries less than the links of nodes: who cannot be reached with what is told, until it
/// carries as much.
fn a_narrow_path_is_told(lab: &Standing, node: &TestNode<'_>) {
    let file = lab.config(&node.node, "node-agent");
    let text = std::fs::read_to_string(&file).unwrap();
    let often = text.replace("\nmtu = 1500\n", "\nmtu = 1500\nmtu-probe-interval = 10\n");
    assert_ne!(often, text);
    let again = |text: &str| {
        lab.daemon("end", &node.node, "node-agent");
        std::fs::write(&file, text).unwrap();
        lab.daemon("start", &node.node, "node-agent");
    };
    let other = lab.node(1);
    let carries = |mtu: &str| {
        let port = format!("up{}", lab.record("/nodes/1/index"));
        lab.exec("underlay", &["ip", "link", "set", &port, "mtu", mtu]);
    };
    let passes = || cluster::of_network(&node.node, "default", "PathsCarryMtu");
    assert_eq!(passes(), None);
    carries("1400");
    again(&often);
    let told = wait(PROBED, || {
        passes().is_some_and(|(status, reason, message)| {
            (status.as_str(), reason.as_str()) == ("False", "PathTooNarrow")
                && [node.node.as_str(), other.as_str(), "1500", "1400"]
                    .iter()
                    .all(|word| message.contains(word))
        })
    });
    assert!(told, "{:?}", passes());
    carries("1500");
    let told = wait(PROBED, || {
        passes().is_some_and(|(status, ..)| status == "True")
    });
    assert!(told, "{:?}", passes());
    again(&text);
}

/// An MTU in the file that the bridge does not carry: what stands stays, the condition says what is allowed.
fn too_large_packets_are_told(lab: &Standing, node: &TestNode<'_>) {
    let file = lab.config(&node.node, "node-agent");
    let text = std::fs::read_to_string(&file).unwrap();
    let other = text.replace("\nmtu = 1500\n", "\nmtu = 1501\n");
    assert_ne!(other, text);
    let before = node.rows();
    let built = || cluster::of_network(&node.node, "default", "Built");
    assert_eq!(built(), None);
    lab.daemon("end", &node.node, "node-agent");
    std::fs::write(&file, &other).unwrap();
    lab.daemon("start", &node.node, "node-agent");
    let told = wait(CHANGE, || {
        built().is_some_and(|(status, reason, message)| {
            (status.as_str(), reason.as_str()) == ("False", "MtuTooLarge")
                && message.ends_with(
                    "mtu 1501 is more than 1500, the MTU of the bridge; allowed: 1500 at most",
                )
        })
    });
    assert!(told, "{:?}", built());
    assert_eq!(node.rows(), before);
    lab.daemon("end", &node.node, "node-agent");
    std::fs::write(&file, &text).unwrap();
    lab.daemon("start", &node.node, "node-agent");
    let again = wait(CHANGE, || {
        built().is_some_and(|(status, ..)| status == "True")
    });
    assert!(again, "{:?}", built());
    assert_eq!(node.rows(), before);
}

/// Transport and routing are what all nodes run with, whatever the file of one says when its agent starts.
fn keeps_its_network_over_a_start(lab: &Standing, node: &TestNode<'_>) {
    let file = lab.config(&node.node, "node-agent");
    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [
        ("transport = no-overlay", "transport = geneve"),
        (
            "routing = unmanaged",
            "routing = managed\n[bgp-managed]\ntopology = full-mesh\n[no-overlay]",
        ),
    ] {
        let before = node.rows();
        lab.daemon("end", &node.node, "node-agent");
        let other = text.replace(from, to);
        assert_ne!(other, text);
        std::fs::write(&file, other).unwrap();
        let mark = node.mark();
        lab.daemon("start", &node.node, "node-agent");
        let told = wait(CHANGE, || {
            let log = node.log();
            let new = log.get(mark..).unwrap_or_default();
            new.contains("that stays in force")
        });
        assert!(told, "{to}: {}", node.log());
        // Whatever it would take away is gone by then.
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(node.rows(), before, "{to}");
        lab.daemon("end", &node.node, "node-agent");
        std::fs::write(&file, &text).unwrap();
        lab.daemon("start", &node.node, "node-agent");
    }
}

/// What may change while the node-agent runs, changed in its file and back: rows follow, and it is the same process.
fn follows_its_file(lab: &Standing, node: &TestNode<'_>) {
    let process = || {
        lab.daemon_record(&node.node, "node-agent")
            .get("pid")
            .cloned()
    };
    // Of rows that went and came the ids are others.
    let rows = || node.rows().map(|rows| rows.lines().count());
    let before = (process(), rows());
    let file = lab.config(&node.node, "node-agent");
    let text = std::fs::read_to_string(&file).unwrap();
    let router = node.router();
    // Where everything but what is exempted is translated; else it is the other way round.
    let translated = || {
        let find = ["--bare", "--columns=exempted_ext_ips", "find", "NAT"];
        let of_pods = "logical_ip=\"10.128.0.0/16\"";
        !node
            .nbctl(&[&find[..], &[of_pods]].concat())
            .trim()
            .is_empty()
    };
    let drops = || node.nbctl(&["lr-route-list", &router]).contains("discard");
    assert!(
        !translated() && !drops(),
        "{}",
        node.nbctl(&["show", &router])
    );
    let imported = node.imported().len();
    assert!(imported > 1, "{:?}", node.imported());

    let changed = text
        .replace("outbound-snat = disabled", "outbound-snat = enabled")
        .replace("missing-route = forward", "missing-route = discard");
    assert_ne!(changed, text);
    std::fs::write(
        &file,
        format!("{changed}\n[limits]\nmax-imported-routes = 1\n"),
    )
    .unwrap();
    let all = wait(CHANGE, || {
        translated() && drops() && node.imported().len() == 1
    });
    assert!(
        all,
        "{}\n{:?}",
        node.nbctl(&["lr-nat-list", &router]),
        node.imported()
    );

    std::fs::write(&file, &text).unwrap();
    let back = wait(CHANGE, || {
        !translated() && !drops() && node.imported().len() == imported && rows() == before.1
    });
    assert!(back, "{}", node.nbctl(&["show", &router]));
    assert_eq!(process(), before.0, "nothing was restarted");
}

/// The only default route of each gateway router leads over this address.
fn default_route(nodes: &[TestNode<'_>], over: &str) {
    for node in nodes {
        let find = [
            "--format=json",
            "--columns=nexthop",
            "find",
            "Logical_Router_Static_Route",
        ];
        let port = format!("output_port=rtoe-{}", node.router());
        let words = [&find[..], &["ip_prefix=\"0.0.0.0/0\"", &port]].concat();
        let mut seen = Value::Null;
        let right = wait(CHANGE, || {
            let shown: Value = serde_json::from_str(&node.nbctl(&words)).unwrap();
            seen = shown.get("data").cloned().unwrap_or_default();
            seen == serde_json::json!([[over]])
        });
        assert!(right, "{}: {seen} instead of {over}", node.node);
    }
}
