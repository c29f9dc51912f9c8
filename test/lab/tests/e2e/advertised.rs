//! A network with an overlay that a RouteAdvertisements advertises: `docs/examples/routing/advertised-overlay`.
//!
//! In: the example in both gateway modes, at first without its RouteAdvertisements. Out: hosts outside reach pods and are seen with
//! their own addresses, by the bridge and by another interface of the node; what pods send bears their own addresses and follows
//! learned routes, or bears an EgressIP; and without the RouteAdvertisements rows, kernel, packet filter and flows are what they were.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::egress_ip;
use crate::harness::{Standing, able, call, wait};
use crate::test_node::{TestNode, pods_ping, tool_in};

const EXAMPLE: &str = "../../docs/examples/routing/advertised-overlay";
/// How long a change may take from an object to packets.
const CHANGE: Duration = Duration::from_secs(60);
/// Behind the router, and announced by it.
const BEHIND: &str = "198.51.100.1";
/// The link between the router and a second interface of the first node: ends of the node and of the router.
const LINK: [&str; 2] = ["203.0.113.1", "203.0.113.2"];

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The example with this gateway mode and without the RouteAdvertisements, which is given beside it.
fn example(mode: &str) -> (Folder, String) {
    let folder = std::env::temp_dir().join(format!("noverlay-e2e-{}-{mode}", std::process::id()));
    let routers = folder.join("routers");
    std::fs::create_dir_all(&routers).unwrap();
    let folder = Folder(folder);
    let read = |file: &str| std::fs::read_to_string(Path::new(EXAMPLE).join(file)).unwrap();
    let config = read("noverlay.conf").replace("mode = shared", &format!("mode = {mode}"));
    std::fs::write(folder.0.join("noverlay.conf"), config).unwrap();
    std::fs::write(routers.join("edge.conf"), read("routers/edge.conf")).unwrap();
    let objects = read("objects.yaml");
    let (neighbors, advertisements) = objects.split_once("---\n").unwrap();
    assert!(advertisements.contains("kind: RouteAdvertisements"));
    std::fs::write(folder.0.join("objects.yaml"), neighbors).unwrap();
    (folder, advertisements.to_owned())
}

/// What of the network's a node holds, without routes that BGP brings and takes away: rows, routes, rules, packet filter, flows.
fn state(node: &TestNode<'_>) -> [String; 5] {
    let without = |shown: &str, marks: &[&str]| {
        let lines = shown
            .lines()
            .filter(|l| !marks.iter().any(|m| l.contains(m)));
        let mut lines: Vec<&str> = lines.map(str::trim_end).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let rows = node.rows().unwrap();
    let routes = node.run(&["ip", "-4", "route", "show", "table", "all"]);
    // In shared gateway mode the kernel has nothing to filter or translate for the default network.
    let nft = node.run(&["nft", "-s", "list", "ruleset"]);
    [
        without(&rows, &["RouteImport"]),
        without(&routes, &[" proto bgp", "nexthop via"]),
        without(&node.run(&["ip", "-4", "rule", "show"]), &[]),
        without(&nft, &[]),
        without(&node.flows(), &[]),
    ]
}

/// Waits until a node's state has been the same for a while, and gives it.
fn settled(node: &TestNode<'_>) -> [String; 5] {
    let mut last = state(node);
    let quiet = wait(CHANGE, || {
        std::thread::sleep(Duration::from_secs(2));
        let before = std::mem::replace(&mut last, state(node));
        before == last
    });
    assert!(quiet, "{} does not come to rest", node.node);
    last
}

/// Which source and destination an echo request has where it arrives, sent to this address; `None` where it does not.
fn seen((from, bind): (&str, Option<&str>), to: &str, at: &str) -> Option<String> {
    let filter = "icmp[icmptype] == icmp-echo";
    let words = [
        "timeout", "4", "tcpdump", "-n", "-l", "-Q", "in", "-c", "1", "-i", "any", filter,
    ];
    let mut capture = tool_in(at, &words);
    let capture = capture
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let bind = bind.map_or_else(Vec::new, |address| vec!["-I", address]);
    let ping = [
        &["ping", "-n", "-q", "-c", "1", "-W", "1"],
        bind.as_slice(),
        &[to],
    ]
    .concat();
    let answered = tool_in(from, &ping).output().unwrap().status.success();
    let output = capture.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once(" IP ")?;
    let (ends, _) = rest.split_once(": ")?;
    answered.then(|| ends.to_owned())
}

/// Waits until an echo request is seen so, and answered.
fn is_seen(from: (&str, Option<&str>), to: &str, at: &str, source: &str) {
    let wanted = format!("{source} > {to}");
    let mut last = None;
    let right = wait(CHANGE, || {
        last = seen(from, to, at);
        last.as_deref() == Some(wanted.as_str())
    });
    assert!(
        right,
        "{} -> {to} at {at}: {last:?} instead of {wanted}",
        from.0
    );
}

/// The router's way to a pod subnet, or none.
fn learned_by_router(lab: &Standing, subnet: &str) -> bool {
    let shown = lab.exec("edge", &["ip", "route", "show", "proto", "bgp"]);
    shown.contains(&format!("{subnet} "))
}

/// A second interface of the first node, to the router.
fn second_interface(lab: &Standing, name: &str) {
    let own = |name: &str| format!("nvl-{}-{name}", crate::harness::name());
    let (node, edge) = (own(name), own("edge"));
    let [near, far] = LINK;
    for words in [
        format!("ip -n {node} link add second type veth peer name second netns {edge}"),
        format!("ip -n {node} addr add {near}/30 dev second"),
        format!("ip -n {node} link set second up"),
        format!("ip -n {edge} addr add {far}/30 dev second"),
        format!("ip -n {edge} link set second up"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let (program, arguments) = words.split_first().unwrap();
        let status = std::process::Command::new(program).args(arguments).status();
        assert!(status.unwrap().success(), "{words:?}");
    }
    // The node forwards between its interfaces. In shared gateway mode the answer leaves by the bridge, to the nodes' next hop
    // (the design document says so), which knows the way to the router.
    for (namespace, setting) in [
        (name, "net.ipv4.ip_forward=1"),
        ("outside", "net.ipv4.ip_forward=1"),
        ("edge", "net.ipv4.conf.all.rp_filter=0"),
    ] {
        lab.exec(namespace, &["sysctl", "-qw", setting]);
    }
}

/// Pods of an advertised network are reached from outside, by both interfaces, and what they send follows a learned route.
fn reached(lab: &Standing, nodes: &[TestNode<'_>]) {
    let pod = lab.pod(0).to_string();
    let pods = format!("{}-pod", lab.node(0));
    let (outside, edge) = (lab.host(100), lab.host(101));
    // By the bridge: the outside host's default router is the one that learns.
    is_seen(("outside", None), &pod, &pods, &outside);
    is_seen((&pods, None), &outside, "outside", &pod);
    // A learned route leads what leaves pods, of every node.
    for node in nodes {
        let from = format!("{}-pod", node.node);
        is_seen(
            (&from, None),
            BEHIND,
            "edge",
            &lab.pod(node.number).to_string(),
        );
        let imported = node.imported();
        let wanted = (format!("{BEHIND}/32"), edge.clone());
        assert!(imported.contains(&wanted), "{}: {imported:?}", node.node);
    }
    // By another interface of the node.
    lab.exec(
        "edge",
        &["ip", "route", "add", &format!("{pod}/32"), "via", LINK[0]],
    );
    is_seen(("edge", Some(LINK[1])), &pod, &pods, LINK[1]);
    lab.exec("edge", &["ip", "route", "del", &format!("{pod}/32")]);
}

fn story(mode: &str) {
    if !able() {
        return;
    }
    let (folder, advertisements) = example(mode);
    let lab = Standing::up(&["--example", &folder.0.to_string_lossy()]);
    let nodes = TestNode::all(&lab);
    let first = nodes.first().unwrap();
    let pod = lab.pod(0).to_string();
    let pods = format!("{}-pod", first.node);
    let outside = lab.host(100);
    second_interface(&lab, &first.node);

    // Not advertised: nobody outside knows the pods, and what they send bears their node's address.
    is_seen((&pods, None), &outside, "outside", &lab.address(0));
    assert_eq!(seen(("outside", None), &pod, &pods), None);
    assert!(!learned_by_router(&lab, &lab.subnet(0)));
    let learns: Vec<_> = nodes.iter().map(TestNode::imported).collect();
    let before: Vec<[String; 5]> = nodes.iter().map(settled).collect();

    let file = folder.0.join("advertisements.yaml");
    std::fs::write(&file, &advertisements).unwrap();
    let file = file.to_string_lossy().into_owned();
    let said = call(&["kubectl", "apply", "-f", &file]);
    assert!(said.good, "{}", said.text);
    let learned = wait(CHANGE, || {
        (0..3).all(|number| learned_by_router(&lab, &lab.subnet(number)))
    });
    assert!(learned, "the router does not learn the pods' subnets");
    reached(&lab, &nodes);
    // Pods reach each other with their own addresses still.
    pods_ping(&lab, CHANGE);
    egress_ip::story(&lab, &nodes, |from, to, at, source| {
        is_seen((from, None), to, at, source);
    });
    let advertised: Vec<[String; 5]> = nodes.iter().map(settled).collect();
    assert_ne!(advertised, before);

    let said = call(&["kubectl", "delete", "routeadvertisements", "outside"]);
    assert!(said.good, "{}", said.text);
    let gone = wait(CHANGE, || {
        (0..3).all(|number| !learned_by_router(&lab, &lab.subnet(number)))
    });
    assert!(gone, "the router keeps the pods' subnets");
    is_seen((&pods, None), &outside, "outside", &lab.address(0));
    assert_eq!(seen(("outside", None), &pod, &pods), None);
    let forgotten = wait(CHANGE, || {
        nodes
            .iter()
            .map(TestNode::imported)
            .eq(learns.iter().cloned())
    });
    assert!(forgotten, "imported routes are not {learns:?} again");
    for (node, before) in nodes.iter().zip(&before) {
        for (now, before) in settled(node).iter().zip(before) {
            assert_eq!(now, before, "{} is not as it was", node.node);
        }
    }
    pods_ping(&lab, CHANGE);
}

#[test]
fn an_advertised_overlay_is_reached_from_outside_and_is_as_before_without_its_advertisement() {
    story("shared");
}

#[test]
fn in_local_gateway_mode_the_kernel_does_the_same_for_an_advertised_overlay() {
    story("local");
}
