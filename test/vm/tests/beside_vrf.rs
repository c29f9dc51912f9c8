//! Packets through the host's side beside OVN-Kubernetes for a network of users, on a kernel that has VRFs.
//!
//! In: a node's host with a VRF, its rules and its table as OVN-Kubernetes has them there, and the plan's. Out: which address the receiver
//! of a datagram sees, and whether the answer comes back. Invariant: the kernel decides.
//! Not here: OVN (`ovn-tests`), which plays no part but as a namespace that owns the pod's address.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use host::nft;
use model::nft::{Ruleset, Table};
use model::steering;
use netns_tests::{in_namespace, in_namespace_of, ip, ip_batch, run};
use plan_node::Vrf;
use plan_node::beside::host::{entries, ruleset};
use testkit::{View, mk_user_network, mk_view};
use vm_tests::with_vrf;

const PORT: u16 = 5000;
/// Emulated, a packet may take long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Namespaces of pods, and of the two wires: behind the bridge, and behind a device of the VRF.
const PODS: &str = "nvl-vrf-pods";
const WIRE: &str = "nvl-vrf-wire";
const UPLINK: &str = "nvl-vrf-uplink";

const POD: &str = "10.150.1.5";
const REMOTE_POD: &str = "10.150.2.5";
const OUTSIDE: &str = "172.30.0.100";
const BEHIND_UPLINK: &str = "10.150.3.5";

/// What OVN-Kubernetes' local gateway mode translates: what comes with masquerade addresses, and here whatever leaves pods.
const TRANSLATIONS: &str = "
    table inet ovn-kubernetes {
        chain ovn-kube-local-gw-masq {
            type nat hook postrouting priority 101; policy accept;
            ip saddr 10.150.1.0/24 masquerade
        }
    }";

fn mk_red() -> View {
    let mut view = mk_view(1);
    let join = ["100.65.0.0/16"];
    view.share.network = mk_user_network("cluster_udn_red", 1, &["10.150.0.0/16/24"], &join);
    view.share.host_subnets = vec!["10.150.1.0/24".parse().unwrap()];
    view.share.vrf = Some(Vrf {
        device: "red".to_owned(),
        table: 1008,
    });
    view
}

/// The host as OVN-Kubernetes has it, with BGP's routes in the VRF's table; gone with this.
struct Others;

impl Others {
    fn add() -> Self {
        for name in [PODS, WIRE, UPLINK] {
            ip(&format!("netns add {name}"));
        }
        ip_batch(&format!(
            "link set lo up
             link add red type vrf table 1008
             link set red up
             link add ovn-k8s-mp1 type veth peer name eth0 netns {PODS}
             link add br-ex type veth peer name eth0 netns {WIRE}
             link add eth1 type veth peer name eth0 netns {UPLINK}
             link set ovn-k8s-mp1 master red
             link set eth1 master red
             link set ovn-k8s-mp1 up
             link set br-ex up
             link set eth1 up
             addr add 10.150.1.2/24 dev ovn-k8s-mp1
             addr add 172.30.0.1/24 dev br-ex
             addr add 192.168.7.1/24 dev eth1"
        ));
        for (name, addresses, back) in [
            (
                PODS,
                &["10.150.1.1/24", "10.150.1.5/24"][..],
                "default via 10.150.1.2",
            ),
            (
                WIRE,
                &["172.30.0.2/24", "172.30.0.100/24", "10.150.2.5/32"],
                "10.150.1.0/24 via 172.30.0.1",
            ),
            (
                UPLINK,
                &["192.168.7.2/24", "192.168.7.100/24", "10.150.3.5/32"],
                "10.150.1.0/24 via 192.168.7.1",
            ),
        ] {
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set eth0 up"));
            for address in addresses {
                ip(&format!("-n {name} addr add {address} dev eth0"));
            }
            ip(&format!("-n {name} route add {back}"));
        }
        for route in [
            "10.150.0.0/16 via 10.150.1.1 dev ovn-k8s-mp1 proto 85",
            "default via 172.30.0.100 dev br-ex proto 85",
            "10.150.2.0/24 via 172.30.0.2 dev br-ex proto bgp",
            "10.150.3.0/24 via 192.168.7.2 dev eth1 proto bgp",
        ] {
            ip(&format!("route add {route} table 1008"));
        }
        for setting in ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"] {
            run(Command::new("sysctl").args(["-q", "-w", setting]));
        }
        run(Command::new("nft").arg(TRANSLATIONS));
        Self
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for name in [PODS, WIRE, UPLINK] {
            drop(Command::new("ip").args(["netns", "del", name]).status());
        }
    }
}

fn socket(namespace: &str, ip: &str, port: u16) -> UdpSocket {
    let address = (ip.parse::<IpAddr>().unwrap(), port);
    let (tell, bound) = mpsc::channel();
    in_namespace_of(namespace, move || async move {
        tell.send(UdpSocket::bind(address).unwrap()).unwrap();
    });
    bound.recv().unwrap()
}

/// Whom the receiver of a datagram sees, where both it and the answer arrive.
fn seen(from: (&str, &str), to: (&str, &str)) -> Option<IpAddr> {
    let receiver = socket(to.0, to.1, PORT);
    let sender = socket(from.0, from.1, 0);
    for one in [&receiver, &sender] {
        one.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    sender.send_to(b"question", (to.1, PORT)).ok()?;
    let mut buffer = [0; 16];
    let (_, peer) = receiver.recv_from(&mut buffer).ok()?;
    receiver.send_to(b"answer", peer).ok()?;
    sender.recv_from(&mut buffer).ok()?;
    Some(peer.ip())
}

/// How many of twenty packets for a pod of another node come back to this node's pods.
fn went_back() -> u64 {
    let arrived = || -> u64 {
        let file = "/sys/class/net/eth0/statistics/rx_packets";
        let words = ["netns", "exec", PODS, "cat", file];
        run(Command::new("ip").args(words)).trim().parse().unwrap()
    };
    let before = arrived();
    let sender = socket(PODS, POD, 0);
    for _ in 0..20 {
        sender.send_to(b"question", (REMOTE_POD, PORT)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    arrived() - before
}

async fn put(rules: &steering::Entries, wanted: &Ruleset) {
    let held = nft::read(wanted.table).await.unwrap();
    nft::apply(&held, wanted, true).await.unwrap();
    netlink::steering::apply(rules, true).await.unwrap();
}

/// The same without a rule of the packet filter that has these words.
fn without(ruleset: &Ruleset, words: &str) -> Ruleset {
    let mut other = ruleset.clone();
    for chain in other.chains.values_mut() {
        chain.rules.retain(|rule| !rule.contains(words));
    }
    assert_ne!(other, *ruleset, "{words}");
    other
}

#[test]
fn pods_of_a_vrf_see_each_others_addresses_and_outsiders_reach_none() {
    with_vrf(
        "pods_of_a_vrf_see_each_others_addresses_and_outsiders_reach_none",
        || {
            in_namespace(packets);
        },
    );
}

async fn packets() {
    let _others = Others::add();
    let pod = (PODS, POD);
    let to_remote = || seen(pod, (WIRE, REMOTE_POD));
    let to_own = || seen((WIRE, REMOTE_POD), pod);
    let by_uplink = || {
        [
            seen(pod, (UPLINK, BEHIND_UPLINK)),
            seen((UPLINK, BEHIND_UPLINK), pod),
        ]
    };
    let intruders = || {
        [
            seen((WIRE, OUTSIDE), pod),
            seen((UPLINK, "192.168.7.100"), pod),
        ]
    };
    let is = |ip: &str| Some(ip.parse::<IpAddr>().unwrap());
    let red = mk_red();
    let none = Ruleset {
        table: Table::Own,
        ..Ruleset::default()
    };
    // Without ours: from the wire there is no way in, nor for an answer.
    assert_eq!([to_remote(), to_own()], [None, None], "plain");
    put(&entries(red.get()), &none).await;
    assert_eq!(to_remote(), is("172.30.0.1"), "rules alone");
    assert!(intruders().iter().all(Option::is_some), "rules alone");

    let uplinks = ["eth1".to_owned()];
    let whole = ruleset(red.get(), &uplinks, true);
    put(&entries(red.get()), &whole).await;
    assert_eq!(to_remote(), is(POD));
    assert_eq!(to_own(), is(REMOTE_POD));
    assert_eq!(by_uplink(), [is(POD), is(BEHIND_UPLINK)]);
    assert_eq!(intruders(), [None, None]);
    // Answers to what a pod opened itself pass.
    assert_eq!(seen(pod, (WIRE, OUTSIDE)), is("172.30.0.1"));
    // Each rule by itself: without it what it is for is not so.
    for device in ["ovn-k8s-mp1", "red"] {
        let words = format!("iifname \"{device}\"");
        put(&entries(red.get()), &without(&whole, &words)).await;
        let left = to_remote();
        let is_needed = device == "ovn-k8s-mp1";
        assert_eq!(left == is("172.30.0.1"), is_needed, "{device}: {left:?}");
    }
    put(&entries(red.get()), &without(&whole, "ct state new drop")).await;
    assert!(intruders().iter().all(Option::is_some), "without the guard");
    // The route has gone, and the set has not followed yet.
    ip("route del 10.150.2.0/24 proto bgp table 1008");
    put(&entries(red.get()), &whole).await;
    assert!(went_back() < 5, "it circles");
    put(
        &entries(red.get()),
        &without(&whole, "ct state untracked drop"),
    )
    .await;
    assert!(went_back() >= 20, "the control");
}
