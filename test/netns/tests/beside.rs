//! Packets through the host's side beside OVN-Kubernetes: between pods of two nodes, from hosts, from outside.
//!
//! In: a node's host with the rules and translations that OVN-Kubernetes has there in local gateway mode, and the plan's. Out: which
//! address the receiver of a datagram sees, and whether the answer comes back. Invariant: the kernel decides.
//! Not here: OVN (`ovn-tests`), which plays no part but as a namespace that owns the pod's address.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use host::nft;
use model::gateway::GatewayMode;
use model::nft::{Ruleset, Table};
use model::steering;
use netns_tests::{absent, in_namespace, in_namespace_of, ip, ip_batch, run};
use plan_node::beside::host::{entries, ruleset};
use testkit::mk_dual_view;

const TOOLS: &[&str] = &["ip", "nft", "sysctl"];
const PORT: u16 = 5000;
const PATIENCE: Duration = Duration::from_millis(700);
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Addresses of one family.
struct Family {
    pod: &'static str,
    management: &'static str,
    node: &'static str,
    remote_pod: &'static str,
    peer: &'static str,
    outside: &'static str,
    remote_subnet: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        pod: "10.128.1.5",
        management: "10.128.1.2",
        node: "172.30.0.1",
        remote_pod: "10.128.2.5",
        peer: "172.30.0.2",
        outside: "172.30.0.100",
        remote_subnet: "10.128.2.0/24",
    },
    Family {
        pod: "fd01:0:0:1::5",
        management: "fd01:0:0:1::2",
        node: "fd00:30::1",
        remote_pod: "fd01:0:0:2::5",
        peer: "fd00:30::2",
        outside: "fd00:30::100",
        remote_subnet: "fd01:0:0:2::/64",
    },
];

/// What OVN-Kubernetes' local gateway mode translates: whatever leaves pods, and whatever enters the management port.
const TRANSLATIONS: &str = "
    table inet ovn-kubernetes {
        chain mgmtport-snat {
            type nat hook postrouting priority 100; policy accept;
            oifname \"ovn-k8s-mp0\" meta nfproto ipv4 snat ip to 10.128.1.2
            oifname \"ovn-k8s-mp0\" meta nfproto ipv6 snat ip6 to fd01:0:0:1::2
        }
        chain ovn-kube-local-gw-masq {
            type nat hook postrouting priority 101; policy accept;
            ip saddr 10.128.1.0/24 masquerade
            ip6 saddr fd01:0:0:1::/64 masquerade
        }
    }";

/// Whoever is beside the host: pods, and the physical network with another node and an outside host. Gone with this.
struct Others {
    pods: String,
    wire: String,
}

impl Others {
    fn add() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |what| format!("nvl-{what}-{}-{number}", std::process::id());
        let others = Self {
            pods: name("pods"),
            wire: name("wire"),
        };
        let Self { pods, wire } = &others;
        ip(&format!("netns add {pods}"));
        ip(&format!("netns add {wire}"));
        ip_batch(&format!(
            "link set lo up
             link add ovn-k8s-mp0 type veth peer name eth0 netns {pods}
             link add br-ex type veth peer name eth0 netns {wire}
             link set ovn-k8s-mp0 up
             link set br-ex up
             addr add 10.128.1.2/24 dev ovn-k8s-mp0
             addr add fd01:0:0:1::2/64 dev ovn-k8s-mp0 nodad
             addr add 172.30.0.1/24 dev br-ex
             addr add fd00:30::1/64 dev br-ex nodad"
        ));
        let of_pods = [
            "10.128.1.1/24",
            "10.128.1.5/24",
            "fd01:0:0:1::1/64",
            "fd01:0:0:1::5/64",
        ];
        let of_wire = [
            "172.30.0.2/24",
            "172.30.0.100/24",
            "10.128.2.5/32",
            "fd00:30::2/64",
            "fd00:30::100/64",
            "fd01:0:0:2::5/128",
        ];
        for (name, addresses) in [(pods, &of_pods[..]), (wire, &of_wire[..])] {
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set eth0 up"));
            for address in addresses {
                let nodad = if address.contains(':') { "nodad" } else { "" };
                ip(&format!("-n {name} addr add {address} dev eth0 {nodad}"));
            }
        }
        // The policy of the cluster router, and what the other node's BGP brought.
        ip(&format!("-n {pods} route add default via 10.128.1.2"));
        ip(&format!("-n {pods} -6 route add default via fd01:0:0:1::2"));
        ip(&format!("-n {wire} route add 10.128.1.0/24 via 172.30.0.1"));
        ip(&format!(
            "-n {wire} -6 route add fd01:0:0:1::/64 via fd00:30::1"
        ));
        as_ovn_kubernetes_has_it();
        nft_script(TRANSLATIONS);
        others
    }
}

/// Routes, rules and settings of the host: what pods of other nodes are reached by, and what egress steers, here to nowhere.
fn as_ovn_kubernetes_has_it() {
    for rule in [
        "rule add pref 5000 from 10.128.1.5 lookup 1002",
        "rule add pref 5000 iif lo to 10.128.0.0/16 lookup 1002",
        "-6 rule add pref 5000 from fd01:0:0:1::5 lookup 1002",
        "-6 rule add pref 5000 iif lo to fd01::/48 lookup 1002",
        "route add unreachable 10.128.2.0/24 table 1002",
        "-6 route add unreachable fd01:0:0:2::/64 table 1002",
    ] {
        ip(rule);
    }
    ip("route add 10.128.0.0/16 via 10.128.1.1 dev ovn-k8s-mp0");
    ip("-6 route add fd01::/48 via fd01:0:0:1::1 dev ovn-k8s-mp0");
    for setting in [
        "net.ipv4.ip_forward=1",
        "net.ipv6.conf.all.forwarding=1",
        "net.ipv4.conf.all.rp_filter=1",
    ] {
        run(Command::new("sysctl").args(["-q", "-w", setting]));
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for name in [&self.pods, &self.wire] {
            drop(Command::new("ip").args(["netns", "del", name]).status());
        }
    }
}

fn nft_script(text: &str) {
    run(Command::new("nft").arg(text));
}

/// A socket in a namespace (in the test's own where it has no name).
fn socket(namespace: Option<&str>, ip: &str, port: u16) -> UdpSocket {
    let address = (ip.parse::<IpAddr>().unwrap(), port);
    // A process that another test is just starting holds what was open here until it runs its program.
    let bind = move || {
        let socket = (0..50).find_map(|_| {
            let socket = UdpSocket::bind(address).ok();
            if socket.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            socket
        });
        socket.unwrap_or_else(|| UdpSocket::bind(address).unwrap())
    };
    let Some(name) = namespace else {
        return bind();
    };
    let (tell, bound) = mpsc::channel();
    in_namespace_of(name, move || async move {
        tell.send(bind()).unwrap();
    });
    bound.recv().unwrap()
}

/// Whom the receiver of a datagram sees, where both it and the answer arrive, the answer from whom the sender asked.
fn seen(from: (Option<&str>, &str), to: (&str, &str)) -> Option<IpAddr> {
    let receiver = socket(Some(to.0), to.1, PORT);
    let sender = socket(from.0, from.1, 0);
    for one in [&receiver, &sender] {
        one.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let asked: IpAddr = to.1.parse().unwrap();
    // What cannot be sent is not seen.
    sender.send_to(b"question", (asked, PORT)).ok()?;
    let mut buffer = [0; 16];
    let (_, peer) = receiver.recv_from(&mut buffer).ok()?;
    receiver.send_to(b"answer", peer).ok()?;
    let (_, who) = sender.recv_from(&mut buffer).ok()?;
    (who.ip() == asked).then_some(peer.ip())
}

async fn put(rules: &steering::Entries, wanted: &Ruleset) {
    let held = nft::read(wanted.table).await.unwrap();
    nft::apply(&held, wanted, true).await.unwrap();
    let steered = netlink::steering::apply(rules, true).await.unwrap();
    assert!(steered.taken.is_empty());
}

/// No table at all.
fn no_table() -> Ruleset {
    Ruleset {
        table: Table::Own,
        ..Ruleset::default()
    }
}

fn bgp(verb: &str) {
    for family in &FAMILIES {
        let Family {
            remote_subnet,
            peer,
            ..
        } = family;
        ip(&format!(
            "route {verb} {remote_subnet} via {peer} dev br-ex proto bgp"
        ));
    }
}

/// How many packets have come out of the management port to pods.
fn arrived(pods: &str) -> u64 {
    let words = [
        "netns",
        "exec",
        pods,
        "cat",
        "/sys/class/net/eth0/statistics/rx_packets",
    ];
    run(Command::new("ip").args(words)).trim().parse().unwrap()
}

/// Of twenty packets for a pod of another node, how many come back to this node's pods; two or three of neighbor discovery among them.
fn went_back(pods: &str, f: &Family) -> u64 {
    let before = arrived(pods);
    let sender = socket(Some(pods), f.pod, 0);
    for _ in 0..20 {
        sender.send_to(b"question", (f.remote_pod, PORT)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    arrived(pods) - before
}

/// Whom the receiver of a datagram sees; an answer is not asked for.
fn seen_one_way(from: (&str, &str), to: (&str, &str)) -> Option<IpAddr> {
    let receiver = socket(Some(to.0), to.1, PORT);
    let sender = socket(Some(from.0), from.1, 0);
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    // Links have just come up: neighbors of IPv6 are not asked before their own addresses are known to be nobody else's.
    (0..5).find_map(|_| {
        sender.send_to(b"question", (to.1, PORT)).ok()?;
        let (_, peer) = receiver.recv_from(&mut [0; 16]).ok()?;
        Some(peer.ip())
    })
}

/// The answers for both families, each compared with what is expected of it.
fn expect(what: &str, of: impl Fn(&Family) -> (Option<IpAddr>, Option<&'static str>)) {
    for family in &FAMILIES {
        let (found, expected) = of(family);
        let expected = expected.map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(found, expected, "{what}, {}", family.pod);
    }
}

#[test]
fn pods_see_each_others_addresses_and_outsiders_reach_none() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let others = Others::add();
        let (pods, wire) = (others.pods.as_str(), others.wire.as_str());
        let to_remote = |f: &Family| seen((Some(pods), f.pod), (wire, f.remote_pod));
        let to_own = |f: &Family| seen((Some(wire), f.remote_pod), (pods, f.pod));
        let intruder = |f: &Family| seen((Some(wire), f.outside), (pods, f.pod));
        let host = |f: &Family| seen((None, f.node), (wire, f.remote_pod));
        let out = |f: &Family| seen((Some(pods), f.pod), (wire, f.outside));
        bgp("add");
        // Without ours: somewhere else, or translated on the way out and in, and anybody comes in as the node itself.
        expect("pod to pod, plain", |f| (to_remote(f), None));
        expect("host to pod of another node, plain", |f| (host(f), None));
        expect("outside to pod, plain", |f| {
            (intruder(f), Some(f.management))
        });
        let view = mk_dual_view(1);
        let nothing = no_table();
        put(&entries(view.get()), &nothing).await;
        expect("pod to pod, rules alone", |f| (to_remote(f), Some(f.node)));
        put(
            &steering::Entries::default(),
            &ruleset(view.get(), &[], true),
        )
        .await;
        expect("pod to pod, table alone", |f| (to_remote(f), None));

        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        expect("pod to pod", |f| (to_remote(f), Some(f.pod)));
        expect("the other way", |f| (to_own(f), Some(f.remote_pod)));
        expect("host to pod of another node", |f| {
            (host(f), Some(f.management))
        });
        expect("outside to pod", |f| (intruder(f), None));
        expect("pod to outside", |f| (out(f), Some(f.node)));

        put(&steering::Entries::default(), &nothing).await;
        expect("pod to pod, plain again", |f| (to_remote(f), None));
    });
}

#[test]
fn pods_that_keep_their_addresses_are_seen_by_them_outside_and_by_the_nodes_at_nodes() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let others = Others::add();
        let (pods, wire) = (others.pods.as_str(), others.wire.as_str());
        let mut view = mk_dual_view(1);
        view.node.mode = GatewayMode::Local;
        view.no_overlay(|options| options.outbound_snat = false);
        let peers = FAMILIES.iter().map(|f| f.peer.parse::<IpAddr>().unwrap());
        view.node.node_addresses.extend(peers);
        bgp("add");
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        // Links have just come up, and neighbors of IPv6 are asked late.
        let to =
            |f: &Family, whom: &str| (0..5).find_map(|_| seen((Some(pods), f.pod), (wire, whom)));
        expect("pod to outside", |f| (to(f, f.outside), Some(f.pod)));
        expect("pod to a node", |f| (to(f, f.peer), Some(f.node)));
        expect("pod to pod", |f| (to(f, f.remote_pod), Some(f.pod)));
        let intruder = |f: &Family| seen((Some(wire), f.outside), (pods, f.pod));
        expect("outside to pod", |f| (intruder(f), None));
        // Where it is not wanted any more, new connections are translated as before.
        view.no_overlay(|options| options.outbound_snat = true);
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        expect("pod to outside, again", |f| {
            (to(f, f.outside), Some(f.node))
        });
    });
}

/// Ports of the host that others lead to pods: a pod may ask for one that leads to another pod of its node.
#[test]
fn a_pod_reaches_another_one_of_its_node_by_a_port_of_the_host() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let others = Others::add();
        let view = mk_dual_view(1);
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        let pods = others.pods.as_str();
        nft_script(
            "table inet host-ports {
                chain prerouting {
                    type nat hook prerouting priority -100; policy accept;
                    ip daddr 172.30.0.1 udp dport 8080 dnat ip to 10.128.1.5:5000
                    ip6 daddr fd00:30::1 udp dport 8080 dnat ip6 to [fd01:0:0:1::5]:5000
                }
            }",
        );
        for (f, asks) in FAMILIES.iter().zip(["10.128.1.6/32", "fd01:0:0:1::6/128"]) {
            let nodad = if asks.contains(':') { "nodad" } else { "" };
            ip(&format!("-n {pods} addr add {asks} dev eth0 {nodad}"));
            let (asks, _) = asks.split_once('/').unwrap();
            let receiver = socket(Some(pods), f.pod, PORT);
            let sender = socket(Some(pods), asks, 0);
            for one in [&receiver, &sender] {
                one.set_read_timeout(Some(PATIENCE * 3)).unwrap();
            }
            let to = (f.node.parse::<IpAddr>().unwrap(), 8080);
            sender.send_to(b"question", to).unwrap();
            let mut buffer = [0; 16];
            let (_, peer) = receiver.recv_from(&mut buffer).expect(f.pod);
            assert_eq!(peer.ip(), f.management.parse::<IpAddr>().unwrap());
            receiver.send_to(b"answer", peer).unwrap();
            let (_, who) = sender.recv_from(&mut buffer).expect(asks);
            assert_eq!((who.ip(), who.port()), to);
        }
    });
}

#[test]
fn what_a_peer_sends_arrives_while_this_node_has_no_route_back() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let others = Others::add();
        let view = mk_dual_view(1);
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        // As most systems come; what is stricter is refused in words (`plan_node::beside::signs`).
        for setting in ["0", "2"] {
            for device in ["all", "br-ex", "ovn-k8s-mp0"] {
                let setting = format!("net.ipv4.conf.{device}.rp_filter={setting}");
                run(Command::new("sysctl").args(["-q", "-w", &setting]));
            }
            let of = |f: &Family| {
                let (wire, pods) = (others.wire.as_str(), others.pods.as_str());
                let seen = seen_one_way((wire, f.remote_pod), (pods, f.pod));
                (seen, Some(f.remote_pod))
            };
            expect(&format!("rp_filter {setting}"), of);
        }
        // What would drop it: a rule that refuses what comes out of the management port, met by the check of sources.
        ip("rule add pref 2900 to 10.128.0.0/16 iif ovn-k8s-mp0 unreachable");
        let [v4, _] = &FAMILIES;
        let seen = seen_one_way((&others.wire, v4.remote_pod), (&others.pods, v4.pod));
        assert_eq!(seen, None, "the check of sources is not what was tried");
    });
}

#[test]
fn what_has_no_route_goes_by_ovn_and_what_came_from_there_not_back() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let others = Others::add();
        let view = mk_dual_view(1);
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        let way = |to: &str, from: &str, device: &str| {
            let words = format!("route get {to} from {from} iif {device}");
            let said = Command::new("ip")
                .args(words.split_whitespace())
                .output()
                .unwrap();
            let (out, err) = (
                String::from_utf8_lossy(&said.stdout),
                String::from_utf8_lossy(&said.stderr),
            );
            format!("{out}{err}")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        // By OVN: what came for a pod elsewhere came by the tunnel, and so goes on.
        let by_ovn = |f: &Family| {
            let answer = way(f.remote_pod, f.outside, "br-ex");
            assert!(
                answer.contains("dev ovn-k8s-mp0") && answer.contains("table 2900000000"),
                "{answer}"
            );
            // Straight to the pod, not by way of the router's address in between.
            let own = way(f.pod, f.outside, "br-ex");
            assert!(
                own.contains("dev ovn-k8s-mp0") && !own.contains("via") && !own.contains("table"),
                "{own}"
            );
        };
        let went_back = |f: &Family| went_back(&others.pods, f);
        for f in &FAMILIES {
            let back = went_back(f);
            // Neighbors of IPv6 are asked, three times at most.
            assert!(back <= 3, "{}: {back} packets went back into OVN", f.pod);
            by_ovn(f);
        }
        // It is the packet filter that keeps them from circling.
        let nothing = no_table();
        put(&entries(view.get()), &nothing).await;
        for f in &FAMILIES {
            let back = went_back(f);
            assert!(
                back >= 20,
                "{}: {back} packets went back without the filter",
                f.pod
            );
        }
        put(&entries(view.get()), &ruleset(view.get(), &[], true)).await;
        bgp("add");
        for f in &FAMILIES {
            let routed = way(f.remote_pod, f.pod, "ovn-k8s-mp0");
            assert!(routed.contains("dev br-ex"), "{routed}");
            by_ovn(f);
        }
    });
}
