//! Northbound rows: broken by hand, their database restarted, their neighbours' routes gone.
//!
//! In: a lab in which all is well. Out: the same. Peers' routes are withdrawn with
//! vtysh while frr-agent, which would repair it, is frozen.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{PINGS, REPAIR};
use crate::harness::{Standing, wait};
use crate::test_node::{Routes, TestNode, pods_ping};

/// How soon rows and kernel agree after an event.
const AGREED: Duration = Duration::from_secs(1);
/// How soon the agent is in step with a database that is back.
const IN_STEP: Duration = Duration::from_secs(5);
/// How long BGP may take.
const BGP: Duration = Duration::from_secs(20);

/// Each breakage is corrected, and the log says what somebody else did.
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
pub(super) fn broken_by_hand(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let before = test_node.rows().unwrap();
    let routes = "somebody else changed imported routes";
    let topology = "somebody else changed the topology's rows";

    let (prefix, nexthop) = test_node.imported().first().unwrap().clone();
    let router = test_node.router();
    let (prefix, nexthop) = (
        format!("ip_prefix=\"{prefix}\""),
        format!("nexthop=\"{nexthop}\""),
    );
    let port = format!("output_port=rtoe-{router}");
    let owner = "external_ids:\"noverlay.io/owner\"=default";
    let marker = "external_ids:\"k8s.ovn.org/owner-controller\"=RouteImport";
    let twin = [
        "--id=@twin",
        "create",
        "Logical_Router_Static_Route",
        &prefix,
        &nexthop,
        &port,
        owner,
        marker,
        "--",
        "add",
        "Logical_Router",
        &router,
        "static_routes",
        "@twin",
    ];
    repaired(
        &test_node,
        &before,
        "an imported route twice",
        &twin,
        routes,
    );

    let route = id(
        &test_node,
        "Logical_Router_Static_Route",
        &[&prefix, marker],
    );
    let edit = [
        "clear",
        "Logical_Router_Static_Route",
        &route,
        "output_port",
    ];
    repaired(
        &test_node,
        &before,
        "an imported route edited",
        &edit,
        routes,
    );

    let cluster = format!(
        "logical_ip=\"{}\"",
        lab.record("/values/networks/default/ranges/0/subnet")
    );
    let nat = id(&test_node, "NAT", &[&cluster]);
    let clear = ["clear", "NAT", &nat, "exempted_ext_ips"];
    repaired(
        &test_node,
        &before,
        "SNAT without exemption",
        &clear,
        topology,
    );

    let delete = ["lr-del", &router];
    repaired(
        &test_node,
        &before,
        "the gateway router deleted",
        &delete,
        topology,
    );
}

fn id(test_node: &TestNode<'_>, table: &str, conditions: &[&str]) -> String {
    let words = [&["--bare", "--columns=_uuid", "find", table], conditions].concat();
    let found = test_node.nbctl(&words).trim().to_owned();
    assert_eq!(found.lines().count(), 1, "{table} {conditions:?}: {found}");
    found
}

fn repaired(test_node: &TestNode<'_>, before: &str, what: &str, breakage: &[&str], reported: &str) {
    let mark = test_node.mark();
    let start = Instant::now();
    test_node.nbctl(breakage);
    let back = wait(REPAIR, || test_node.rows().as_deref() == Some(before));
    assert!(
        back,
        "{what}: not repaired after {REPAIR:?}:\n{}\nbefore:\n{before}",
        test_node.rows().unwrap_or_default()
    );
    println!("{what}: repaired after {:?}", start.elapsed());
    assert!(
        test_node.logged(mark, &["WARN", reported]),
        "{what}: the log does not say {reported:?}"
    );
    pods_ping(test_node.lab, PINGS);
}

/// `ovsdb-client monitor` of the static routes, with what it printed so far.
struct Monitor {
    child: Child,
    file: std::path::PathBuf,
}

impl Monitor {
    fn start(test_node: &TestNode<'_>) -> Self {
        let file = test_node.lab.dir(&test_node.node).join("monitor.csv");
        let output = std::fs::File::create(&file).unwrap();
        let child = test_node
            .tool(&[
                "ovsdb-client",
                "--format=csv",
                "--no-headings",
                "monitor",
                &test_node.northbound(),
                "OVN_Northbound",
                "Logical_Router_Static_Route",
                "ip_prefix,nexthop",
            ])
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let monitor = Self { child, file };
        let begun = wait(IN_STEP, || monitor.seen(",initial,").len() > 2);
        assert!(begun, "ovsdb-client shows no routes");
        monitor
    }

    fn seen(&self, word: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let lines = text.lines().filter(|line| line.contains(word));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Links and one peer's session flap: only that peer's row goes, and comes back.
pub(super) fn of_others_never_leave(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let whole = test_node.imported();
    let (peer, subnet) = (lab.address(1), lab.subnet(1));
    let monitor = Monitor::start(&test_node);
    for words in [
        "ip link add flap0 type veth peer name flap1",
        "ip link set flap0 up",
        "ip link set flap1 up",
        "ip link set flap0 down",
        "ip link set veth-pod down",
        "ip link set veth-pod up",
        "ip link del flap0",
    ] {
        test_node.run(&words.split(' ').collect::<Vec<_>>());
    }
    agreed(&test_node, "flapping links", &whole);
    assert_eq!(monitor.seen(",delete,"), Vec::<String>::new());
    // A node-agent that was started beside a young FRR waits five seconds for what it may not have found yet.
    std::thread::sleep(Duration::from_secs(7));
    lab.daemon("freeze", &test_node.node, "frr-agent");
    let without: Routes = whole
        .iter()
        .filter(|(prefix, _)| *prefix != subnet)
        .cloned()
        .collect();
    for flap in 0..2 {
        test_node.bgp(&[&format!("neighbor {peer} shutdown")]);
        agreed(&test_node, &format!("session {flap} down"), &without);
        test_node.bgp(&[&format!("no neighbor {peer} shutdown")]);
        agreed(&test_node, &format!("session {flap} up"), &whole);
    }
    lab.daemon("thaw", &test_node.node, "frr-agent");
    let gone = monitor.seen(",delete,");
    assert_eq!(gone.len(), 2, "deleted rows: {gone:#?}");
    assert!(
        gone.iter().all(|row| row.contains(&subnet)),
        "not only rows of {subnet} were deleted: {gone:#?}"
    );
    assert_eq!(monitor.seen(",new,"), Vec::<String>::new(), "changed rows");
    pods_ping(lab, PINGS);
}

/// The agent sleeps through more events than its socket holds: it reads everything again,
/// finds the one change that counts, and touches no other row.
pub(super) fn overrun(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let whole = test_node.imported();
    let monitor = Monitor::start(&test_node);
    let mark = test_node.mark();
    lab.daemon("freeze", &test_node.node, "node-agent");
    let flood = lab.dir(&test_node.node).join("flood");
    for verb in ["add", "del"] {
        let lines: String = (0..60_000_u32)
            .map(|n| {
                let (a, b) = (n / 256, n % 256);
                format!("route {verb} blackhole 10.200.{a}.{b} table 4000\n")
            })
            .collect();
        std::fs::write(&flood, lines).unwrap();
        test_node.run(&["ip", "-batch", &flood.display().to_string()]);
    }
    let extra = "10.77.0.0/16".to_owned();
    let via = whole.first().unwrap().1.clone();
    let route = |verb: &str| {
        let words = format!("ip route {verb} {extra} via {via} dev br-ex proto bgp");
        test_node.run(&words.split(' ').collect::<Vec<_>>());
    };
    route("add");
    let mut with: Routes = whole.clone();
    with.push((extra.clone(), via.clone()));
    with.sort();
    // On a busy machine FRR loses its sessions in the flood: routes that went and came are none of the agent's affair.
    let settled = wait(BGP, || {
        let held = test_node.learned() == with;
        std::thread::sleep(Duration::from_secs(2));
        held && test_node.learned() == with
    });
    assert!(settled, "the kernel has {:?}", test_node.learned());
    lab.daemon("thaw", &test_node.node, "node-agent");
    agreed(&test_node, "events lost", &with);
    assert!(
        wait(IN_STEP, || test_node
            .logged(mark, &["WARN", "events of the kernel were lost"])),
        "the flood was no overrun: {}",
        test_node.log().get(mark..).unwrap_or_default()
    );
    route("del");
    agreed(&test_node, "a route taken back", &whole);
    let gone = monitor.seen(",delete,");
    assert!(
        gone.len() == 1 && gone.iter().all(|row| row.contains(&extra)),
        "deleted rows: {gone:#?}"
    );
    pods_ping(lab, PINGS);
}

/// As soon as the kernel has these routes, the rows follow.
fn agreed(test_node: &TestNode<'_>, event: &str, routes: &Routes) {
    let learned = wait(BGP, || test_node.learned() == *routes);
    assert!(
        learned,
        "{event}: the kernel has {:?}, not {routes:?}",
        test_node.learned()
    );
    let start = Instant::now();
    let same = wait(AGREED, || test_node.imported() == *routes);
    assert!(
        same,
        "{event}: the rows are {:?}, not {routes:?}",
        test_node.imported()
    );
    println!(
        "{event}: rows and kernel agreed after {:?}",
        start.elapsed()
    );
}

/// The database is away for three seconds, in which one route goes and another comes.
pub(super) fn database_restarted(lab: &Standing) {
    let test_nodes = TestNode::all(lab);
    let test_node = &test_nodes[0];
    let before = test_node.rows().unwrap();
    let whole = test_node.imported();
    let only = |number: usize| -> Routes {
        let subnet = lab.subnet(number);
        let found = whole.iter().filter(|(prefix, _)| *prefix == subnet);
        found.cloned().collect()
    };
    for peer in &test_nodes[1..] {
        lab.daemon("freeze", &peer.node, "frr-agent");
    }
    announce(&test_nodes[2], false);
    agreed(test_node, "a route withdrawn before", &only(1));
    lab.daemon("stop", &test_node.node, "ovsdb-ovnnb");
    let stopped = Instant::now();
    announce(&test_nodes[1], false);
    announce(&test_nodes[2], true);
    let changed = wait(BGP, || test_node.learned() == only(2));
    assert!(changed, "the kernel has {:?}", test_node.learned());
    std::thread::sleep(Duration::from_secs(3).saturating_sub(stopped.elapsed()));
    let mark = test_node.mark();
    lab.daemon("start", &test_node.node, "ovsdb-ovnnb");
    let start = Instant::now();
    let gone = lab.subnet(1);
    let lines = before.lines().filter(|line| !line.contains(&gone));
    let expected = lines.collect::<Vec<_>>().join("\n");
    let right = wait(IN_STEP, || {
        test_node.rows().as_deref() == Some(expected.as_str())
    });
    assert!(
        right,
        "after {IN_STEP:?} the rows are\n{}\nnot\n{expected}",
        test_node.rows().unwrap_or_default()
    );
    println!("in step, and right, after {:?}", start.elapsed());
    assert!(
        test_node.logged(mark, &["in step", "north"]),
        "not reported"
    );
    announce(&test_nodes[1], true);
    agreed(test_node, "the route is back", &whole);
    for peer in &test_nodes[1..] {
        lab.daemon("thaw", &peer.node, "frr-agent");
    }
    assert_eq!(test_node.rows().unwrap(), before);
    pods_ping(lab, PINGS);
}

/// A node's FRR announces its subnet, or withdraws it.
fn announce(test_node: &TestNode<'_>, yes: bool) {
    let word = if yes { "network" } else { "no network" };
    let statement = format!("{word} {}", test_node.lab.subnet(test_node.number));
    test_node.bgp(&["address-family ipv4 unicast", &statement]);
}
