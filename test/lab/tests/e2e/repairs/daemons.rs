//! Starts and ends of our daemons: nothing is written that stands there, and nothing
//! stops forwarding.
//!
//! In: a lab in which all is well. Out: the same. The restarted agent finds both its
//! databases behind proxies that remember what it says.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::proxy::Proxy;
use super::{PINGS, REPAIR};
use crate::harness::{Standing, wait};
use crate::test_node::{TestNode, pods_ping, readyz};

/// Where the node-agent serves `/readyz`.
const AGENT: u16 = 9101;
/// How soon a daemon ends that is asked to.
const END: Duration = Duration::from_secs(2);
/// How soon a daemon is ready.
const READY: Duration = Duration::from_secs(10);
/// How long a restarted agent is listened to after it is ready.
const QUIET: Duration = Duration::from_secs(8);

fn ready(namespace: &str, port: u16, limit: Duration) {
    let is = wait(limit, || readyz(namespace, port).0 == 200);
    assert!(
        is,
        "port {port} of {namespace} is not ready after {limit:?}: {:?}",
        readyz(namespace, port)
    );
}

/// The agent is there before its database: it waits, says so, and then does its work.
pub(super) fn agent_starts_first(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let before = test_node.rows().unwrap();
    lab.daemon("stop", &test_node.node, "node-agent");
    lab.daemon("stop", &test_node.node, "ovsdb-ovnnb");
    let mark = test_node.mark();
    lab.daemon("start", &test_node.node, "node-agent");
    std::thread::sleep(Duration::from_secs(2));
    let (status, answer) = readyz(&test_node.node, AGENT);
    assert!(
        status == 503 && answer.contains("ovn"),
        "/readyz without the Northbound DB: {answer}"
    );
    assert!(
        test_node.logged(mark, &["WARN", "not in step", "north"]),
        "not reported"
    );
    pods_ping(lab, PINGS);
    lab.daemon("start", &test_node.node, "ovsdb-ovnnb");
    let start = Instant::now();
    ready(&test_node.node, AGENT, Duration::from_secs(5));
    println!("ready {:?} after its database", start.elapsed());
    assert_eq!(test_node.rows().unwrap(), before);
    pods_ping(lab, PINGS);
}

/// A router that bears no owner any more is nobody's to change: it stays, pods reach each other, and the agent is not ready.
pub(super) fn a_router_of_nobody(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let (router, before) = (test_node.router(), test_node.rows().unwrap());
    let ids = test_node.nbctl(&[
        "get",
        "Logical_Router",
        &router,
        "external_ids:noverlay.io/owner",
    ]);
    let owner = ids.trim().trim_matches('"');
    assert!(!owner.is_empty(), "{router} has no owner to begin with");
    test_node.nbctl(&[
        "remove",
        "Logical_Router",
        &router,
        "external_ids",
        "noverlay.io/owner",
    ]);
    let mut last = (0, String::new());
    let reported = wait(READY, || {
        last = readyz(&test_node.node, AGENT);
        last.0 == 503 && last.1.contains("topology")
    });
    pods_ping(lab, PINGS);
    let back = format!("external_ids:noverlay.io/owner={owner}");
    test_node.nbctl(&["set", "Logical_Router", &router, &back]);
    assert!(
        reported,
        "/readyz of an agent whose router is another's: {last:?}"
    );
    ready(&test_node.node, AGENT, READY);
    assert_eq!(test_node.rows().unwrap(), before);
}

/// A restarted agent that finds all as it should be sends no transaction at all.
pub(super) fn restart_writes_nothing(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let before = test_node.rows().unwrap();
    lab.daemon("stop", &test_node.node, "node-agent");
    let folder = behind(&test_node);
    let proxies = ["ovnnb_db.sock", "db.sock"]
        .map(|socket| Proxy::start(&folder.join(socket), &test_node.sockets().join(socket)));
    let audit = written(lab);
    assert!(!audit.is_empty(), "the audit log names no agent");
    let (mut agent, log) = start_proxied(&test_node, &folder);
    ready(&test_node.node, AGENT, READY);
    std::thread::sleep(QUIET);
    for (proxy, database) in proxies.iter().zip(["Northbound", "conf"]) {
        let methods = proxy.methods();
        println!("{database} DB: {methods:?}");
        assert!(
            methods.iter().any(|method| method.starts_with("monitor")),
            "{database} DB: the agent did not come through the proxy: {methods:?}"
        );
        assert!(
            !methods.iter().any(|method| method == "transact"),
            "{database} DB: a transaction although nothing changed: {methods:?}"
        );
    }
    let said = std::fs::read_to_string(log).unwrap();
    for word in ["changed the kernel", "wrote the bridge's flows"] {
        assert!(!said.contains(word), "the restarted agent {word}:\n{said}");
    }
    assert_eq!(written(lab), audit, "writes to the API server");
    assert_eq!(test_node.rows().unwrap(), before);
    repairs_through(&test_node, &proxies[0], &before);
    let start = Instant::now();
    kill(
        Pid::from_raw(i32::try_from(agent.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    let status = agent.wait().unwrap();
    assert!(
        status.success() && start.elapsed() < END,
        "SIGTERM: {status} after {:?}",
        start.elapsed()
    );
    drop(proxies);
    lab.daemon("start", &test_node.node, "node-agent");
    ready(&test_node.node, AGENT, READY);
}

/// The proxy does see transactions: here is one.
fn repairs_through(test_node: &TestNode<'_>, proxy: &Proxy, before: &str) {
    let (prefix, _) = test_node.imported().first().unwrap().clone();
    test_node.nbctl(&["lr-route-del", &test_node.router(), &prefix]);
    let back = wait(REPAIR, || test_node.rows().as_deref() == Some(before));
    let methods = proxy.methods();
    assert!(
        back && methods.iter().any(|method| method == "transact"),
        "{prefix} deleted by hand: {methods:?}"
    );
}

/// A folder like the node's own of Open vSwitch and OVN, without the databases' sockets.
fn behind(test_node: &TestNode<'_>) -> PathBuf {
    let folder = test_node.lab.dir(&test_node.node).join("proxied");
    std::fs::create_dir(&folder).unwrap();
    let bridge = "br-ex.mgmt";
    std::fs::hard_link(test_node.sockets().join(bridge), folder.join(bridge)).unwrap();
    folder
}

/// The node-agent as the lab starts it, but for its databases.
fn start_proxied(test_node: &TestNode<'_>, folder: &Path) -> (Child, PathBuf) {
    let own = test_node.lab.dir(&test_node.node);
    let container =
        std::fs::read_to_string(test_node.lab.container(&test_node.node, "node-agent")).unwrap();
    let ovs = format!("\"{}\"", test_node.sockets().display());
    assert_eq!(container.matches(&ovs).count(), 2, "{container}");
    let file = own.join("proxied.json");
    let proxied = format!("\"{}\"", folder.display());
    std::fs::write(&file, container.replace(&ovs, &proxied)).unwrap();
    let record = test_node.lab.daemon_record(&test_node.node, "node-agent");
    let program = record.pointer("/start/argv/0").and_then(Value::as_str);
    let log = own.join("proxied.log");
    let output = std::fs::File::create(&log).unwrap();
    let words = [program.unwrap(), "container", &file.to_string_lossy()];
    let mut command = test_node.tool(&words);
    // `ip netns exec` becomes the program: the child is the agent itself.
    let child = command
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn();
    (child.unwrap(), log)
}

/// Writes of all node-agents in the audit log.
fn written(lab: &Standing) -> Vec<String> {
    let log = std::fs::read(lab.dir("underlay").join("audit.log")).unwrap();
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&log).lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let word = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("");
        let reads = ["get", "list", "watch"].contains(&word("/verb"));
        if word("/user/username").ends_with(":node-agent") && !reads {
            found.push(format!(
                "{} {} {} at {}",
                word("/verb"),
                word("/objectRef/resource"),
                word("/objectRef/name"),
                word("/requestReceivedTimestamp")
            ));
        }
    }
    found
}

/// Each daemon is ready while it runs, ends within two seconds of SIGTERM, and what
/// it wrote keeps forwarding.
pub(super) fn end_when_told(lab: &Standing) {
    let node = lab.node(0);
    let daemons = [
        (node.as_str(), "node-agent", AGENT),
        (node.as_str(), "frr-agent", 9102),
        ("underlay", "cm-a", 9103),
        ("underlay", "cm-b", 9104),
    ];
    for (place, daemon, port) in daemons {
        ready(place, port, READY);
        let start = Instant::now();
        lab.daemon("end", place, daemon);
        let took = start.elapsed();
        println!("{daemon} of {place} ended {took:?} after SIGTERM");
        assert!(took < END, "{daemon} of {place} took {took:?} to end");
    }
    pods_ping(lab, Duration::from_secs(1));
    for (place, daemon, port) in daemons {
        lab.daemon("start", place, daemon);
        ready(place, port, READY);
    }
}
