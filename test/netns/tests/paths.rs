//! Ways between nodes that are narrower than both ends: found, told, and told no more.
//!
//! In: two namespaces with 9000 bytes, and a third one between them with less. Out: what the node-agent reports.
//! Invariant: the kernel between them decides what passes.
//! Not here: which ways there are (`plan-node`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::echo::{Answer, EchoError, ask};
use model::{NetworkName, NodeName};
use netns_tests::{absent, in_namespace, ip, ip_batch, run};
use node_agent::metrics::PathMetrics;
use node_agent::paths::{PathReport, Pathfinder};
use plan_node::paths::{self, Load, PathKey, Paths};
use prometheus::{Registry, TextEncoder};
use tokio::sync::watch;

const TOOLS: &[&str] = &["ip", "sysctl", "setpriv"];
/// A narrow way is known within half of it on an idle machine.
const PATIENCE: Duration = Duration::from_secs(40);
const SECOND: Duration = Duration::from_secs(1);
/// A veth link lets packets through that exceed its MTU by a VLAN tag.
const BRIDGE_MTU: u32 = 1496;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The namespaces beside the test's own, which has device `a0` with 192.0.2.1 and 2001:db8::1.
struct Others {
    middle: String,
    far: String,
}

impl Others {
    fn add() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |what| format!("nvl-{what}-{}-{number}", std::process::id());
        let others = Self {
            middle: name("mid"),
            far: name("far"),
        };
        for name in [&others.middle, &others.far] {
            ip(&format!("netns add {name}"));
        }
        let Self { middle, far } = &others;
        ip_batch(&format!(
            "link set lo up
             link add a0 mtu 9000 type veth peer name m0 netns {middle} mtu 9000
             link set a0 up
             addr add 192.0.2.1/24 dev a0
             addr add 2001:db8::1/64 dev a0 nodad"
        ));
        ip(&format!(
            "-n {middle} link add m1 mtu 9000 type veth peer name b0 netns {far} mtu 9000"
        ));
        ip(&format!("-n {far} link set b0 up"));
        for device in ["m0", "m1"] {
            ip(&format!("-n {middle} link set {device} up"));
        }
        others
    }

    /// A bridge between them, which carries so much.
    fn bridged(mtu: u32) -> Self {
        let others = Self::add();
        let Self { middle, far } = &others;
        ip(&format!(
            "-n {middle} link add br0 type bridge mcast_snooping 0"
        ));
        for device in ["m0", "m1"] {
            ip(&format!("-n {middle} link set {device} master br0"));
        }
        ip(&format!("-n {middle} link set br0 up"));
        for address in ["addr add 192.0.2.2/24", "-6 addr add 2001:db8::2/64 nodad"] {
            ip(&format!("-n {far} {address} dev b0"));
        }
        // A packet filter that looks at bridges has an MTU of its own.
        for family in ["ip", "ip6"] {
            let key = format!("net.bridge.bridge-nf-call-{family}tables");
            if Path::new("/proc/sys").join(key.replace('.', "/")).exists() {
                sysctl(Some(middle), &format!("{key}=0"));
            }
        }
        others.carry(mtu);
        others
    }

    fn carry(&self, mtu: u32) {
        for device in ["m0", "m1"] {
            ip(&format!("-n {} link set {device} mtu {mtu}", self.middle));
        }
    }

    /// A router between them, whose link to the far one carries so much.
    fn routed(mtu: u32) -> Self {
        let others = Self::add();
        let Self { middle, far } = &others;
        for (device, v4, v6) in [
            ("m0", "192.0.2.254/24", "2001:db8::254/64"),
            ("m1", "198.51.100.254/24", "2001:db8:1::254/64"),
        ] {
            ip(&format!("-n {middle} addr add {v4} dev {device}"));
            ip(&format!("-n {middle} -6 addr add {v6} dev {device} nodad"));
        }
        for forwarding in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            sysctl(Some(middle), forwarding);
        }
        ip(&format!("-n {far} addr add 198.51.100.2/24 dev b0"));
        ip(&format!(
            "-n {far} -6 addr add 2001:db8:1::2/64 dev b0 nodad"
        ));
        ip(&format!("-n {far} route add default via 198.51.100.254"));
        ip(&format!(
            "-n {far} -6 route add default via 2001:db8:1::254"
        ));
        ip("route add default via 192.0.2.254");
        ip("-6 route add default via 2001:db8::254");
        ip(&format!("-n {middle} link set m1 mtu {mtu}"));
        others
    }

    /// Whether the far one answers echo requests.
    fn answer(&self, answers: bool) {
        let ignores = u8::from(!answers);
        for key in [
            "net.ipv4.icmp_echo_ignore_all",
            "net.ipv6.icmp.echo_ignore_all",
        ] {
            sysctl(Some(&self.far), &format!("{key}={ignores}"));
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for name in [&self.middle, &self.far] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn sysctl(namespace: Option<&str>, setting: &str) {
    let mut command = Command::new(namespace.map_or("sysctl", |_| "ip"));
    if let Some(namespace) = namespace {
        command.args(["netns", "exec", namespace, "sysctl"]);
    }
    run(command.args(["-q", "-w", setting]));
}

/// Lets the test's own group use ping sockets; a new namespace lets nobody, so that raw ones are used.
fn permit_ping() {
    sysctl(None, "net.ipv4.ping_group_range=0 0");
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Ways of the default network to node n2.
fn ways(ends: &[(&str, &str)], mtu: u32) -> Paths {
    let load = Load { mtu, overhead: 0 };
    let one = |(source, to): &(&str, &str)| {
        let key = PathKey {
            node: NodeName::from("n2"),
            to: address(to),
        };
        let path = paths::Path {
            source: address(source),
            loads: BTreeMap::from([(NetworkName::default_network(), load)]).into(),
            ends: 65_535,
        };
        (key, path)
    };
    ends.iter().map(one).collect()
}

const BOTH: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

/// What a node-agent finds, and its metrics.
struct Found {
    paths: watch::Sender<Option<Paths>>,
    reports: watch::Receiver<PathReport>,
    registry: Registry,
}

impl Found {
    fn start(ways: Paths) -> Self {
        let registry = Registry::new();
        let (paths, ways) = watch::channel(Some(ways));
        let (tell, reports) = watch::channel(PathReport::default());
        let pathfinder = Pathfinder {
            node: NodeName::from("n1"),
            interval: SECOND / 2,
            paths: ways,
            metrics: PathMetrics::new(&registry).unwrap(),
            tell,
            changed: || (),
        };
        tokio::spawn(pathfinder.run());
        Self {
            paths,
            reports,
            registry,
        }
    }

    fn metrics(&self) -> String {
        let families = self.registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap()
    }

    /// Waits until metrics and report are as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&PathReport, &str) -> bool) {
        let wait = async {
            while !wanted(&self.reports.borrow(), &self.metrics()) {
                tokio::time::sleep(SECOND / 20).await;
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let report = self.reports.borrow().clone();
            panic!("not {what}: {report:#?}\n{}", self.metrics());
        }
    }

    async fn until_all_are(&self, state: &str, count: usize) {
        let line = format!("noverlay_path_mtu_peers{{state=\"{state}\"}} {count}\n");
        self.until(&line, |_, metrics| metrics.contains(&line))
            .await;
    }

    fn narrow(&self) -> Option<String> {
        let report = self.reports.borrow();
        report.narrow.get(&NetworkName::default_network()).cloned()
    }
}

/// A narrow way appears and goes, whichever sockets are used.
async fn narrow_and_wide(namespaces: &Others) {
    let found = Found::start(ways(&BOTH, 9000));
    found.until_all_are("narrow", 2).await;
    assert!(found.reports.borrow().settled);
    let text = found.narrow().expect("a report");
    for words in [
        "from node n1",
        "node n2 (IPv4, 192.0.2.1 to 192.0.2.2): 9000 bytes do not pass, 1500 do",
        "node n2 (IPv6, 2001:db8::1 to 2001:db8::2): 9000 bytes do not pass, 1500 do",
        "[default] mtu on all nodes at 1500 or less",
    ] {
        assert!(text.contains(words), "{text}");
    }
    for family in ["ipv4", "ipv6"] {
        let line = format!("noverlay_path_mtu_bytes{{family=\"{family}\",peer=\"n2\"}} 1500\n");
        assert!(found.metrics().contains(&line), "{}", found.metrics());
    }
    // Another MTU of pods, as one of both remedies says.
    found.paths.send_replace(Some(ways(&BOTH, 1500)));
    found.until_all_are("wide", 2).await;
    assert_eq!(found.narrow(), None);
    found.paths.send_replace(Some(ways(&BOTH, 9000)));
    found.until_all_are("narrow", 2).await;
    // A wider underlay, as the other one says; and a narrower one again, by less.
    namespaces.carry(9000);
    found.until_all_are("wide", 2).await;
    assert_eq!(found.narrow(), None);
    assert!(!found.metrics().contains("noverlay_path_mtu_bytes{"));
    namespaces.carry(4000);
    found.until_all_are("narrow", 2).await;
    let text = found.narrow().expect("a report");
    assert_eq!(
        text.matches("9000 bytes do not pass, 4004 do").count(),
        2,
        "{text}"
    );
    // A node that is gone has no way.
    found.paths.send_replace(Some(Paths::new()));
    found.until_all_are("narrow", 0).await;
    assert_eq!(found.narrow(), None);
}

#[test]
fn a_way_narrower_than_both_ends_is_told_until_it_is_wide_with_raw_sockets() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(async || narrow_and_wide(&Others::bridged(BRIDGE_MTU)).await);
}

#[test]
fn a_way_narrower_than_both_ends_is_told_until_it_is_wide_with_ping_sockets() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(async || {
        permit_ping();
        narrow_and_wide(&Others::bridged(BRIDGE_MTU)).await;
    });
}

#[test]
fn who_answers_nothing_or_is_not_there_is_no_problem() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(async || {
        let namespaces = Others::bridged(BRIDGE_MTU);
        namespaces.answer(false);
        // The last two are nobody's.
        let ends = [
            &BOTH[..],
            &[("192.0.2.1", "192.0.2.9"), ("2001:db8::1", "2001:db8::9")],
        ]
        .concat();
        let found = Found::start(ways(&ends, 9000));
        found.until_all_are("unanswered", 4).await;
        assert_eq!(found.narrow(), None);
        // An address that this node does not have costs its own way only.
        let mut all = ways(&BOTH, 9000);
        all.extend(ways(&[("192.0.2.77", "192.0.2.9")], 9000));
        found.paths.send_replace(Some(all));
        namespaces.answer(true);
        found.until_all_are("narrow", 2).await;
        found.until_all_are("unknown", 1).await;
        // One that answers no more is no narrow way for long.
        namespaces.answer(false);
        found.until_all_are("unanswered", 2).await;
        assert_eq!(found.narrow(), None);
    });
}

#[test]
fn a_routers_word_is_heard_and_neither_its_nor_the_kernels_memory_answers_for_the_way() {
    if absent(TOOLS) {
        return;
    }
    for ping in [false, true] {
        in_namespace(async move || {
            if ping {
                permit_ping();
            }
            let namespaces = Others::routed(1500);
            let ends = [
                ("192.0.2.1", "198.51.100.2"),
                ("2001:db8::1", "2001:db8:1::2"),
            ];
            for (from, to) in ends.map(|(from, to)| (address(from), address(to))) {
                for (size, wanted) in [
                    (1500, Answer::Answered),
                    (9000, Answer::Lost { mtu: Some(1500) }),
                    (1501, Answer::Lost { mtu: Some(1500) }),
                ] {
                    let answer = ask(from, to, size, SECOND * 5).await.unwrap();
                    assert_eq!(answer, wanted, "{size} bytes to {to}, ping {ping}");
                }
                // What the own link does not carry says nothing about the way.
                let error = ask(from, to, 9001, SECOND * 5).await.unwrap_err();
                assert!(matches!(error, EchoError::Socket { .. }), "{error}");
            }
            let found = Found::start(ways(&ends, 9000));
            found.until_all_are("narrow", 2).await;
            let text = found.narrow().expect("a report");
            assert_eq!(
                text.matches("9000 bytes do not pass, 1500 do").count(),
                2,
                "{text}"
            );
            // The kernel has noted 1500 for minutes.
            ip(&format!("-n {} link set m1 mtu 9000", namespaces.middle));
            found.until_all_are("wide", 2).await;
        });
    }
}

/// Set where this test runs itself without the right.
const WITHOUT_RIGHT: &str = "NOVERLAY_WITHOUT_NET_RAW";

#[test]
fn where_no_echo_request_may_be_sent_the_reason_is_told_and_nothing_else() {
    if std::env::var_os(WITHOUT_RIGHT).is_some() {
        without_the_right();
        return;
    }
    if absent(TOOLS) {
        return;
    }
    in_namespace(async || {
        let _namespaces = Others::bridged(BRIDGE_MTU);
        let own = std::env::current_exe().unwrap();
        let said = run(Command::new("setpriv")
            .args(["--bounding-set", "-net_raw"])
            .arg(own)
            .args([
                "--exact",
                "where_no_echo_request_may_be_sent_the_reason_is_told_and_nothing_else",
                "--nocapture",
            ])
            .env(WITHOUT_RIGHT, "1"));
        assert!(said.contains("1 passed"), "{said}");
    });
}

/// What the test before it runs in its namespace and without `CAP_NET_RAW`.
fn without_the_right() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        for (from, to) in BOTH.map(|(from, to)| (address(from), address(to))) {
            let error = ask(from, to, 1500, SECOND).await.unwrap_err();
            assert!(matches!(error, EchoError::Forbidden(_)), "{error}");
        }
        let found = Found::start(ways(&BOTH, 9000));
        let forbidden = |report: &PathReport, _: &str| {
            let why = report.forbidden.as_deref().unwrap_or_default();
            [
                "net.ipv4.ping_group_range",
                "CAP_NET_RAW",
                "Operation not permitted",
            ]
            .iter()
            .all(|word| why.contains(word))
        };
        found.until("forbidden", forbidden).await;
        assert!(found.reports.borrow().narrow.is_empty());
        // What was denied may be allowed later.
        let permit = run(Command::new("sysctl").args(["-w", "net.ipv4.ping_group_range=0 0"]));
        println!("{permit}");
        found.until_all_are("narrow", 2).await;
        assert_eq!(found.reports.borrow().forbidden, None);
    });
}
