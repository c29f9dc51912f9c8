//! What the node-agent must put right: rows spoilt by hand, databases that go and come, a kernel that told too much.
//!
//! Everything is looked at with OVN's own tools; the record of a monitor shows which rows ever left.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Standing, able, wait};

/// How long a repair may take.
const SOON: Duration = Duration::from_secs(1);
const ROUTE: &str = "logical_router_static_route";
const IMPORTED: &str = "external_ids:k8s.ovn.org/owner-controller=RouteImport";
const OURS: &str = "external_ids:noverlay.io/owner=default";

#[test]
fn rows_spoilt_by_hand_are_repaired_and_told() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let router = format!("GR_{node}");
    let before = imported(&lab, &node);
    assert_eq!(before.len(), 2, "{before:?}");
    let whole = |what: &str| {
        let back = wait(SOON, || imported(&lab, &node) == before);
        assert!(
            back,
            "{what}: {:?} and not {before:?}",
            imported(&lab, &node)
        );
    };

    nb(&lab, &node, &["lr-del", &router]);
    whole("the gateway router deleted");
    lab.recovers("1,3,5");

    let first = uuids(&lab, &node)[0].clone();
    nb(&lab, &node, &["set", ROUTE, &first, "nexthop=10.9.9.9"]);
    whole("a next hop edited");
    let first = uuids(&lab, &node)[0].clone();
    nb(
        &lab,
        &node,
        &["set", ROUTE, &first, "output_port=elsewhere"],
    );
    whole("an output port edited");

    let (prefix, nexthop) = before[0].split_once(' ').unwrap();
    let (prefix, nexthop) = (format!("ip_prefix={prefix}"), format!("nexthop={nexthop}"));
    let port = format!("output_port=rtoe-{router}");
    let create = [
        "--id=@r", "create", ROUTE, &prefix, &nexthop, &port, IMPORTED, OURS,
    ];
    let add = [
        "--",
        "add",
        "logical_router",
        &router,
        "static_routes",
        "@r",
    ];
    nb(&lab, &node, &[&create[..], &add[..]].concat());
    whole("a row doubled");

    nb(
        &lab,
        &node,
        &["--if-exists", "lsp-del", &format!("etor-{router}")],
    );
    lab.recovers("1,3");
    let log = std::fs::read_to_string(lab.dir(&node).join("node-agent.log")).unwrap();
    let told = log.matches("changed by somebody").count();
    assert!(told >= 4, "told {told} times of five repairs");
}

#[test]
fn a_northbound_database_that_goes_and_comes_loses_nothing() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let before = (imported(&lab, &node), uuids(&lab, &node));
    lab.daemon("stop", &node, "ovsdb-ovnnb");
    lab.daemon("start", &node, "ovsdb-ovnnb");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((imported(&lab, &node), uuids(&lab, &node)), before);

    // The agent starts while it is away, and a route goes meanwhile.
    let via = before.0[0].split_once(' ').unwrap().1;
    let route = ["10.77.0.0/16", "via", via, "dev", "br-ex", "proto", "bgp"];
    let change = |verb: &str| {
        lab.exec(&node, &[&["ip", "route", verb], &route[..]].concat());
    };
    change("add");
    assert!(wait(SOON, || imported(&lab, &node).len() == 3));
    lab.daemon("stop", &node, "ovsdb-ovnnb");
    lab.daemon("stop", &node, "node-agent");
    change("del");
    lab.daemon("start", &node, "node-agent");
    std::thread::sleep(Duration::from_secs(2));
    lab.daemon("start", &node, "ovsdb-ovnnb");
    let caught_up = wait(Duration::from_secs(3), || imported(&lab, &node) == before.0);
    assert!(caught_up, "{:?}", imported(&lab, &node));
    assert_eq!(uuids(&lab, &node), before.1);
}

#[test]
fn after_an_overrun_and_a_link_flap_rows_and_kernel_agree_within_a_second() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let before = (imported(&lab, &node), uuids(&lab, &node));
    let record = Record::start(&lab, &node);

    // More events than the agent's socket can hold, and among them one that counts.
    lab.daemon("freeze", &node, "node-agent");
    let flood = lab.dir(&node).join("flood");
    for verb in ["add", "del"] {
        let lines: String = (0..60_000)
            .map(|n: u32| {
                format!(
                    "route {verb} blackhole 10.{}.{}.{} table 4000\n",
                    200 + n / 65_536,
                    n / 256 % 256,
                    n % 256
                )
            })
            .collect();
        std::fs::write(&flood, lines).unwrap();
        lab.exec(&node, &["ip", "-batch", flood.to_str().unwrap()]);
    }
    let via = before.0[0].split_once(' ').unwrap().1.to_owned();
    lab.exec(
        &node,
        &[
            "ip",
            "route",
            "add",
            "10.77.0.0/16",
            "via",
            &via,
            "dev",
            "br-ex",
            "proto",
            "bgp",
        ],
    );
    lab.daemon("thaw", &node, "node-agent");
    let extra = format!("10.77.0.0/16 {via}");
    let seen = wait(SOON, || imported(&lab, &node).contains(&extra));
    assert!(seen, "{:?}", imported(&lab, &node));
    lab.exec(&node, &["ip", "route", "del", "10.77.0.0/16"]);
    assert!(wait(SOON, || imported(&lab, &node) == before.0));
    let log = std::fs::read_to_string(lab.dir(&node).join("node-agent.log")).unwrap();
    assert!(log.contains("events of the kernel were lost"), "no overrun");
    assert_eq!(uuids(&lab, &node), before.1);
    let left = record.deleted();
    assert!(before.1.iter().all(|uuid| !left.contains(uuid)), "{left}");

    lab.exec(&node, &["ip", "link", "set", "br-ex", "down"]);
    assert!(wait(SOON, || imported(&lab, &node).is_empty()));
    lab.exec(&node, &["ip", "link", "set", "br-ex", "up"]);
    let kernel = || {
        lab.exec(&node, &["ip", "route", "show", "proto", "bgp"])
            .lines()
            .count()
    };
    assert!(wait(Duration::from_secs(10), || kernel() == before.0.len()));
    assert!(wait(SOON, || imported(&lab, &node) == before.0));
    lab.recovers("1,5");
}

#[test]
fn a_restarted_agent_makes_no_transaction() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let (dir, ovs) = (lab.dir(&node), lab.dir(&node).join("ovs"));
    let north = Tap::start(&dir.join("nb.tap"), &ovs.join("ovnnb_db.sock"));
    // The switch's folder as the agent sees it, but for the database's socket.
    let folder = dir.join("tapped");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(ovs.join("br-ex.mgmt"), folder.join("br-ex.mgmt")).unwrap();
    let switch = Tap::start(&folder.join("db.sock"), &ovs.join("db.sock"));
    let file = dir.join("node-agent.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let tapped = config
        .replace(
            &ovs.join("ovnnb_db.sock").display().to_string(),
            &dir.join("nb.tap").display().to_string(),
        )
        .replace(
            &format!("rundir = \"{}\"", ovs.display()),
            &format!("rundir = \"{}\"", folder.display()),
        );
    std::fs::write(&file, tapped).unwrap();
    let ready = || {
        let log = std::fs::read_to_string(dir.join("node-agent.log")).unwrap();
        log.matches("the first pass of everything is done").count()
    };
    let before = ready();
    lab.daemon("stop", &node, "node-agent");
    lab.daemon("start", &node, "node-agent");
    assert!(wait(Duration::from_secs(20), || ready() > before));
    std::thread::sleep(Duration::from_secs(5));
    assert!(
        north.connections() > 0 && switch.connections() > 0,
        "the taps are not used"
    );
    assert_eq!((north.transactions(), switch.transactions()), (0, 0));

    // The taps do see transactions.
    let first = uuids(&lab, &node)[0].clone();
    nb(&lab, &node, &["set", ROUTE, &first, "nexthop=10.9.9.9"]);
    let words = [
        "ovs-vsctl",
        "set",
        "interface",
        "ovn-k8s-mp0",
        "external_ids:iface-id=x",
    ];
    lab.exec(&node, &words);
    let seen = wait(SOON, || {
        north.transactions() == 1 && switch.transactions() == 1
    });
    assert!(
        seen,
        "{} and {}",
        north.transactions(),
        switch.transactions()
    );
    std::fs::write(&file, config).unwrap();
}

fn nb(lab: &Standing, node: &str, words: &[&str]) -> String {
    lab.exec(node, &[&["ovn-nbctl"], words].concat())
}

/// Prefix and next hop of each imported row, sorted.
fn imported(lab: &Standing, node: &str) -> Vec<String> {
    let find = [
        "--bare",
        "--columns=ip_prefix,nexthop",
        "find",
        ROUTE,
        IMPORTED,
    ];
    let said = nb(lab, node, &find);
    let mut rows: Vec<String> = said
        .split("\n\n")
        .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|row| !row.is_empty())
        .collect();
    rows.sort();
    rows
}

/// Uuids of the imported rows, sorted.
fn uuids(lab: &Standing, node: &str) -> Vec<String> {
    let said = nb(
        lab,
        node,
        &["--bare", "--columns=_uuid", "find", ROUTE, IMPORTED],
    );
    let mut rows: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// A monitor of all static routes, from its start on.
struct Record(Child);

impl Record {
    fn start(lab: &Standing, node: &str) -> Self {
        let socket = format!("unix:{}", lab.dir(node).join("ovs/ovnnb_db.sock").display());
        let table = "Logical_Router_Static_Route";
        let words = [
            "ovsdb-client",
            "monitor",
            &socket,
            "OVN_Northbound",
            table,
            "ip_prefix",
        ];
        Self(lab.start(node, &words))
    }

    /// What was deleted so far, as text.
    fn deleted(mut self) -> String {
        self.0.kill().unwrap();
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        self.0.wait().unwrap();
        let gone: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("delete"))
            .collect();
        gone.join("\n")
    }
}

/// Stands between the agent and a database, and counts.
struct Tap {
    connections: Arc<AtomicUsize>,
    transactions: Arc<AtomicUsize>,
}

impl Tap {
    fn start(socket: &Path, server: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let server = server.to_owned();
        let tap = Self {
            connections: Arc::default(),
            transactions: Arc::default(),
        };
        let (connections, transactions) =
            (Arc::clone(&tap.connections), Arc::clone(&tap.transactions));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::Relaxed);
                relay(client, &server, &transactions);
            }
        });
        tap
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn transactions(&self) -> usize {
        self.transactions.load(Ordering::Relaxed)
    }
}

fn relay(mut client: UnixStream, server: &PathBuf, transactions: &Arc<AtomicUsize>) {
    let Ok(mut server) = UnixStream::connect(server) else {
        return;
    };
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        std::io::copy(&mut answers, &mut back).ok();
        back.shutdown(std::net::Shutdown::Both).ok();
    });
    let transactions = Arc::clone(transactions);
    std::thread::spawn(move || {
        // The word may be cut by a read, so the end of the one before is kept.
        const WORD: &[u8] = b"\"transact\"";
        let (mut buffer, mut seen) = (vec![0; 65_536], Vec::new());
        while let Ok(size @ 1..) = client.read(&mut buffer) {
            let part = buffer.get(..size).unwrap_or_default();
            seen.extend_from_slice(part);
            let found = seen.windows(WORD.len()).filter(|w| *w == WORD).count();
            transactions.fetch_add(found, Ordering::Relaxed);
            let keep = seen.len().saturating_sub(WORD.len() - 1);
            seen.drain(..keep);
            if server.write_all(part).is_err() {
                break;
            }
        }
        server.shutdown(std::net::Shutdown::Both).ok();
    });
}
