//! Writes: what is wanted is there, what is stale is gone, what is others' stays, and a second time nothing happens.
//!
//! In: wishes. Out: the kernel as `ip` shows it.
//! Invariant: `ip` is right.
//! Not here: who wants it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use model::kernel::{
    Entries, KernelEntry, KernelKey, LAST_METRIC, MAIN_METRIC, POD_RULE_PREFERENCE, POD_RULE_TABLE,
    RouteTarget, RuleSelector, SERVICE_MARK, SERVICE_RULE_PREFERENCE, route_metric,
};
use model::route::MAIN_TABLE;
use model::{Family, InterfaceAddr, Mac, Prefix};
use netlink::WriteError;
use netns_tests::{absent, in_namespace, ip, ip_batch, run};

const DEVICE: &str = "ovn-k8s-mp0";

fn mk_network() -> Entries {
    let networks = [
        ("10.128.0.0/16", "10.128.1.1"),
        ("fd00:10:128::/48", "fd00:10:128:1::1"),
    ];
    let device = || DEVICE.to_owned();
    let mut wanted = Entries::new();
    wanted.insert(
        KernelKey::Link { device: device() },
        KernelEntry::Link {
            up: true,
            vrf: None,
        },
    );
    for address in ["10.128.1.2/24", "fd00:10:128:1::2/64"] {
        let (device, address) = (device(), address.parse().unwrap());
        let entry = KernelEntry::Address { prefix_route: true };
        wanted.insert(KernelKey::Address { device, address }, entry);
    }
    for (to, via) in networks {
        let (to, table) = (to.parse().unwrap(), POD_RULE_TABLE);
        let rule = KernelKey::Rule {
            preference: POD_RULE_PREFERENCE,
            selector: RuleSelector::To(to),
            table,
        };
        wanted.insert(rule, KernelEntry::Rule { local: true });
        let route = KernelEntry::Route(RouteTarget::Device {
            device: Some(device()),
            via: Some(via.parse().unwrap()),
            source: None,
            mtu: Some(1400),
        });
        let metric = route_metric(to.family(), 0);
        wanted.insert(KernelKey::Route { table, to, metric }, route);
    }
    wanted
}

/// What was changed to have all of this and nothing else; nothing may fail.
async fn apply(wanted: &Entries) -> Result<Vec<String>, WriteError> {
    let written = netlink::write::apply(wanted, true).await?;
    match written.failed.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(written.done),
    }
}

/// The device as Open vSwitch would make it: there, and down.
fn mk_device() {
    ip("link set lo up");
    ip(&format!("link add {DEVICE} type veth peer name other"));
    ip("link set other up");
}

/// A line of `ip`'s output without its ends and double spaces.
fn lines(arguments: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    ip(arguments).lines().map(words).collect()
}

/// Fails where the kernel does not hold exactly the network.
fn is_held() {
    let link = ip(&format!("-o link show dev {DEVICE}"));
    assert!(link.contains(",UP"), "{link}");
    for (family, address, gateway, cluster) in [
        ("-4", "10.128.1.2/24", "10.128.1.1", "10.128.0.0/16"),
        (
            "-6",
            "fd00:10:128:1::2/64",
            "fd00:10:128:1::1",
            "fd00:10:128::/48",
        ),
    ] {
        let addresses = lines(&format!("{family} -o addr show dev {DEVICE} scope global"));
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        assert!(
            addresses.iter().all(|a| a.contains(address)),
            "{addresses:?}"
        );
        let rules = lines(&format!("{family} rule show pref 31 table 7"));
        let rule = format!("31: from all to {cluster} iif lo lookup 7");
        assert_eq!(rules, [rule]);
        let routes = lines(&format!("{family} route show table 7 proto 85"));
        assert_eq!(routes.len(), 1, "{routes:?}");
        let route = format!("{cluster} via {gateway} dev {DEVICE} ");
        assert!(
            routes
                .iter()
                .all(|r| r.starts_with(&route) && r.contains("mtu 1400")),
            "{routes:?}"
        );
    }
}

#[test]
fn a_network_is_written_once() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        let done = apply(&mk_network()).await.unwrap();
        is_held();
        assert_eq!(done.len(), 7, "up, and two of each: {done:?}");
        let again = apply(&mk_network()).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
    });
}

/// A route of ours in the pods' table.
fn mk_route(to: &str, via: &str) -> (KernelKey, KernelEntry) {
    let to: Prefix = to.parse().unwrap();
    let metric = route_metric(to.family(), 0);
    let table = POD_RULE_TABLE;
    let target = RouteTarget::Device {
        device: Some(DEVICE.to_owned()),
        via: Some(via.parse().unwrap()),
        source: None,
        mtu: None,
    };
    let key = KernelKey::Route { table, to, metric };
    (key, KernelEntry::Route(target))
}

#[test]
fn a_route_that_takes_the_place_of_ours_in_our_tables_gives_it_back() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip(&format!("link set {DEVICE} up"));
        ip_batch(&format!(
            "addr add 10.128.1.2/24 dev {DEVICE}
             addr add fd00:10:128:1::2/64 dev {DEVICE} nodad"
        ));
        let wanted: Entries = [
            mk_route("192.0.2.0/24", "10.128.1.1"),
            mk_route("2001:db8::/32", "fd00:10:128:1::1"),
        ]
        .into();
        apply(&wanted).await.unwrap();
        let stand = || [lines("route show table 7"), lines("-6 route show table 7")];
        let before = stand();
        for hand in [
            "route replace 192.0.2.0/24 via 10.128.1.9 table 7",
            "route replace blackhole 192.0.2.0/24 table 7 proto 85",
            "-6 route replace 2001:db8::/32 via fd00:10:128:1::9 table 7",
            "-6 route replace blackhole 2001:db8::/32 table 7 proto 85",
        ] {
            ip(hand);
            assert_ne!(stand(), before, "{hand}");
            let written = netlink::write::apply(&wanted, true).await.unwrap();
            assert!(
                written.failed.is_empty() && written.kept.is_empty(),
                "{written:?}"
            );
            assert_eq!(stand(), before, "{hand}");
        }
    });
}

#[test]
fn a_device_that_is_not_there_yet_is_named() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        let error = apply(&mk_network()).await.unwrap_err();
        assert!(
            matches!(&error, WriteError::NoDevice { device } if device == DEVICE),
            "{error:?}"
        );
    });
}

#[test]
fn what_is_stale_goes_and_what_is_others_stays() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip(&format!("link set {DEVICE} up"));
        // Of an earlier subnet, of an earlier cluster subnet, half a rule, a wrong MTU.
        ip_batch(&format!(
            "addr add 10.99.0.2/24 dev {DEVICE}
             addr add 2001:db8:9::2/64 dev {DEVICE} nodad
             rule add pref 31 iif lo to 10.99.0.0/16 lookup 7
             rule add pref 31 to 10.128.0.0/16 lookup 7
             route add 10.99.0.0/16 via 10.99.0.1 dev {DEVICE} proto 85 table 7
             route add 10.128.0.0/16 via 10.99.0.1 dev {DEVICE} proto 85 table 7 mtu 1300
             route add 2001:db8::/32 via 2001:db8:9::1 dev {DEVICE} proto 85 table 7
"
        ));
        ip("-6 rule add pref 31 iif lo to 2001:db8::/32 lookup 7");
        // Of others: another table, another preference, another protocol, another device.
        ip_batch(
            "addr add 192.0.2.1/24 dev other
             rule add pref 31 to 10.128.0.0/16 lookup 8
             rule add pref 32 to 10.128.0.0/16 lookup 7
             rule add pref 2000 to 10.5.0.0/16 lookup 500
             rule add pref 2000 fwmark 7 lookup 500
             route add 10.66.0.0/16 via 192.0.2.2 dev other proto static table 7
             route add 10.77.0.0/16 via 192.0.2.2 dev other proto 85
",
        );
        let done = apply(&mk_network()).await.unwrap();
        is_held();
        let again = apply(&mk_network()).await.unwrap();
        assert!(again.is_empty(), "after {done:?}: {again:?}");
        for (shown, wanted) in [
            ("-4 -o addr show dev other", "192.0.2.1/24"),
            ("-4 rule show pref 31", "lookup 8"),
            ("-4 rule show pref 32", "lookup 7"),
            ("-4 rule show pref 2000", "to 10.5.0.0/16 lookup 500"),
            ("-4 rule show pref 2000", "fwmark 0x7 lookup 500"),
            ("-4 route show table 7", "10.66.0.0/16"),
            ("-4 route show", "10.77.0.0/16"),
            ("-6 -o addr show dev ovn-k8s-mp0 scope link", "fe80::"),
        ] {
            let all = ip(shown);
            assert!(all.contains(wanted), "ip {shown}: {all}");
        }
    });
}

#[test]
fn a_wanted_address_outlives_a_stale_one_of_its_subnet() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip(&format!("link set {DEVICE} up"));
        // What comes second in a subnet is secondary, and goes with the first; the last address takes all routes along.
        ip(&format!("addr add 10.128.1.9/24 dev {DEVICE}"));
        ip(&format!("addr add 10.128.1.10/24 dev {DEVICE}"));
        ip(&format!(
            "route add 10.128.0.0/16 via 10.128.1.1 dev {DEVICE} proto 85 table 7 mtu 1400"
        ));
        apply(&mk_network()).await.unwrap();
        is_held();
        let again = apply(&mk_network()).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
    });
}

#[test]
fn names_that_are_no_text_keep_nothing_from_being_written() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        for (arguments, last) in [
            ("link set other alias", b"Z\xfcrich".as_slice()),
            ("addr add 192.0.2.9/24 dev other label", b"other:\xfc"),
            ("rule add pref 9 lookup 9 iif", b"et\xfch"),
            ("rule add pref 31 to 10.99.0.0/16 lookup 7 iif", b"et\xfch"),
        ] {
            run(Command::new("ip")
                .args(arguments.split_whitespace())
                .arg(OsStr::from_bytes(last)));
        }
        apply(&mk_network()).await.unwrap();
        is_held();
        let again = apply(&mk_network()).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
    });
}

/// The management port of another network, with an address and nothing else.
fn with_another(device: &str, address: &str) -> Entries {
    let mut wanted = mk_network();
    let link = KernelKey::Link {
        device: device.to_owned(),
    };
    let up = KernelEntry::Link {
        up: true,
        vrf: None,
    };
    wanted.insert(link, up);
    let address = KernelKey::Address {
        device: device.to_owned(),
        address: address.parse().unwrap(),
    };
    wanted.insert(address, KernelEntry::Address { prefix_route: true });
    wanted
}

#[test]
fn two_networks_are_one_wish_and_neither_takes_the_others_entries_away() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip("link add ovn-k8s-mp5 type veth peer name other5");
        let both = with_another("ovn-k8s-mp5", "10.200.1.2/24");
        apply(&both).await.unwrap();
        is_held();
        let other = ip("-4 -o addr show dev ovn-k8s-mp5");
        assert!(other.contains("10.200.1.2/24"), "{other}");
        assert_eq!(apply(&both).await.unwrap(), Vec::<String>::new());
        // A device of that name that is nobody's here may be another writer's.
        assert_eq!(apply(&mk_network()).await.unwrap(), Vec::<String>::new());
        is_held();
        let other = ip("-4 -o addr show dev ovn-k8s-mp5");
        assert!(other.contains("10.200.1.2/24"), "{other}");
    });
}

#[test]
fn what_is_left_of_the_last_network_goes_too() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        apply(&mk_network()).await.unwrap();
        apply(&Entries::new()).await.unwrap();
        assert_eq!(ip("-4 rule show pref 31 table 7"), "");
        assert_eq!(ip("-6 rule show pref 31 table 7"), "");
        assert_eq!(ip("-4 route show table 7 proto 85"), "");
        assert_eq!(ip("-6 route show table 7 proto 85"), "");
    });
}

#[test]
fn while_not_all_networks_are_known_nothing_goes() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        apply(&mk_network()).await.unwrap();
        let of_another = "rule add pref 31 iif lo to 10.200.0.0/16 lookup 7";
        ip(of_another);
        let written = netlink::write::apply(&mk_network(), false).await.unwrap();
        assert!(written.done.is_empty() && written.failed.is_empty());
        let rules = ip("-4 rule show pref 31 table 7");
        assert!(rules.contains("10.200.0.0/16"), "{rules}");
        // What is wanted is put right all the same.
        ip("rule del pref 31 iif lo to 10.128.0.0/16 lookup 7");
        let written = netlink::write::apply(&mk_network(), false).await.unwrap();
        assert_eq!(written.done.len(), 1, "{written:?}");
        apply(&mk_network()).await.unwrap();
        is_held();
    });
}

#[test]
fn a_device_that_is_not_there_keeps_no_other_network_from_being_written() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        let both = with_another("ovn-k8s-mp5", "10.200.1.2/24");
        let written = netlink::write::apply(&both, true).await.unwrap();
        is_held();
        let failed: Vec<String> = written.failed.iter().map(ToString::to_string).collect();
        assert_eq!(failed, ["device ovn-k8s-mp5 does not exist"; 2]);
    });
}

#[test]
fn the_last_route_stands_behind_those_of_bgp_and_no_other_goes() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip(&format!("link set {DEVICE} up"));
        ip("addr add 192.0.2.1/24 dev other");
        ip_batch(
            "route add 10.128.0.0/16 via 192.0.2.2 proto bgp metric 20
             route add unreachable 10.9.0.0/16 proto boot metric 4278198272
             route add unreachable 10.129.0.0/16 proto 85 metric 4278198272
",
        );
        let subnets: [Prefix; 2] =
            ["10.128.0.0/16", "fd00:10:128::/48"].map(|t| t.parse().unwrap());
        let key = |to| KernelKey::Route {
            table: MAIN_TABLE,
            to,
            metric: LAST_METRIC,
        };
        let unreachable = || KernelEntry::Route(RouteTarget::Unreachable);
        let wanted: Entries = subnets.map(|to| (key(to), unreachable())).into();
        let done = apply(&wanted).await.unwrap();
        assert_eq!(
            done.len(),
            3,
            "two written, an earlier one removed: {done:?}"
        );
        let routes = lines("-4 route show 10.128.0.0/16");
        let bgp = "10.128.0.0/16 via 192.0.2.2 dev other proto bgp metric 20";
        let last = "unreachable 10.128.0.0/16 proto 85 metric 4278198272";
        assert_eq!(routes, [bgp, last]);
        let foreign = lines("-4 route show 10.9.0.0/16");
        assert_eq!(foreign.len(), 1, "{foreign:?}");
        let six = lines("-6 route show fd00:10:128::/48");
        assert!(six.iter().any(|r| r.starts_with("unreachable")), "{six:?}");
        assert!(apply(&wanted).await.unwrap().is_empty());
        let gone = apply(&Entries::new()).await.unwrap();
        assert_eq!(gone.len(), 2, "{gone:?}");
        assert_eq!(lines("-4 route show 10.128.0.0/16"), [bgp]);
    });
}

/// A network of users whose VRF is called `blue`.
fn mk_blue(address: &str, to: Prefix) -> Entries {
    let (device, vrf, table) = (DEVICE.to_owned(), "blue".to_owned(), 1042);
    let selector = RuleSelector::To(to);
    let link = KernelEntry::Link {
        up: true,
        vrf: Some(vrf.clone()),
    };
    let key = KernelKey::Address {
        device: device.clone(),
        address: address.parse().unwrap(),
    };
    let route = KernelKey::Route {
        table,
        to,
        metric: LAST_METRIC,
    };
    let rule = KernelKey::Rule {
        preference: 2000,
        selector,
        table,
    };
    Entries::from([
        (
            KernelKey::Vrf { device: vrf },
            KernelEntry::Vrf { table, up: true },
        ),
        (KernelKey::Link { device }, link),
        (key, KernelEntry::Address { prefix_route: true }),
        (route, KernelEntry::Route(RouteTarget::Unreachable)),
        (rule, KernelEntry::Rule { local: false }),
    ])
}

#[test]
fn where_a_vrf_cannot_be_made_main_gets_nothing_of_its_network() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        // No VRF can have the name of another device.
        ip("link add blue type veth peer name far");
        let wanted = mk_blue("10.200.1.2/24", "10.200.0.0/16".parse().unwrap());
        let written = netlink::write::apply(&wanted, true).await.unwrap();
        assert!(!written.failed.is_empty());
        let nothing: [&str; 0] = [];
        assert_eq!(lines(&format!("-4 -o addr show dev {DEVICE}")), nothing);
        assert_eq!(lines("-4 rule show pref 2000"), nothing);
        assert_eq!(lines("-4 route show table all proto 85"), nothing);
    });
}

/// What a node has towards OVN beside its networks: addresses, neighbors, routes and rules that are told without a device of ours.
fn mk_services() -> Entries {
    let mut wanted = mk_network();
    for (address, next_hop, range, family) in [
        ("169.254.0.2/17", "169.254.0.4", "172.31.0.0/16", Family::V4),
        ("fd69::2/112", "fd69::4", "fd02::/112", Family::V6),
    ] {
        let (device, address): (_, InterfaceAddr) = (bridge(), address.parse().unwrap());
        let key = KernelKey::Address { device, address };
        wanted.insert(key, KernelEntry::Address { prefix_route: true });
        let (device, ip) = (bridge(), next_hop.parse().unwrap());
        let mac = Mac::of_ip(ip);
        let key = KernelKey::Neighbor { device, ip };
        wanted.insert(key, KernelEntry::Neighbor { mac });
        let key = KernelKey::Route {
            table: MAIN_TABLE,
            to: range.parse().unwrap(),
            metric: MAIN_METRIC,
        };
        let route = KernelEntry::Route(RouteTarget::Device {
            device: Some(bridge()),
            via: Some(ip),
            source: Some(address.ip),
            mtu: Some(1400),
        });
        wanted.insert(key, route);
        let key = KernelKey::Rule {
            preference: SERVICE_RULE_PREFERENCE,
            selector: RuleSelector::Mark(family, SERVICE_MARK),
            table: POD_RULE_TABLE,
        };
        wanted.insert(key, KernelEntry::Rule { local: false });
    }
    wanted
}

fn bridge() -> String {
    "br-ex".to_owned()
}

/// Fails where no line of `ip`'s output has this text.
fn has(arguments: &str, text: &str) {
    let shown = lines(arguments);
    assert!(shown.iter().any(|line| line.contains(text)), "{shown:?}");
}

/// Fails where the kernel lacks something of it.
fn services_are_held() {
    // At once, though another node answers for the same address.
    let address = "inet6 fd69::2/112 scope global nodad";
    has("-6 addr show dev br-ex", address);
    for (of, text) in [
        (
            "neigh show dev br-ex",
            "169.254.0.4 lladdr 0a:58:a9:fe:00:04 PERMANENT",
        ),
        (
            "neigh show dev br-ex",
            "fd69::4 lladdr 0a:58:1b:ac:71:41 PERMANENT",
        ),
        (
            "-4 route show table main",
            "172.31.0.0/16 via 169.254.0.4 dev br-ex proto 85 src 169.254.0.2",
        ),
        (
            "-6 route show table main",
            "fd02::/112 via fd69::4 dev br-ex proto 85 src fd69::2",
        ),
        (
            "-4 rule show pref 30",
            "30: from all fwmark 0x1745ec lookup 7",
        ),
        (
            "-6 rule show pref 30",
            "30: from all fwmark 0x1745ec lookup 7",
        ),
    ] {
        has(of, text);
    }
    let seen = lines("-6 addr show dev br-ex tentative");
    assert!(
        !seen.iter().any(|line| line.contains("fd69::2")),
        "{seen:?}"
    );
}

#[test]
fn the_hosts_way_to_services_is_written_kept_and_removed_and_others_entries_stay() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_device();
        ip("link add br-ex type veth peer name far");
        ip("link set br-ex up");
        ip("link set far up");
        // Somebody else's, of our protocol, of a permanent neighbor's kind.
        ip("addr add 172.18.0.2/24 dev br-ex");
        ip("route add 192.0.2.0/24 dev br-ex proto 85 metric 7");
        ip("neigh add 172.18.0.9 lladdr 02:00:00:00:00:09 nud permanent dev br-ex");
        // As another who runs Services has them.
        ip("neigh add 169.254.0.12 lladdr 0a:58:a9:fe:00:0c nud permanent dev br-ex");
        ip("rule add pref 30 fwmark 0x7 lookup 7");
        let wanted = mk_services();
        assert!(!apply(&wanted).await.unwrap().is_empty());
        assert!(apply(&wanted).await.unwrap().is_empty(), "a second time");
        services_are_held();
        // A neighbor that moved, and one whose network is gone.
        ip("neigh replace 169.254.0.4 lladdr 02:00:00:00:00:04 nud permanent dev br-ex");
        ip("neigh add 169.254.0.11 lladdr 0a:58:a9:fe:00:0b nud permanent dev br-ex protocol 85");
        assert_eq!(apply(&wanted).await.unwrap().len(), 2);
        services_are_held();
        let seen = lines("neigh show dev br-ex");
        assert!(
            !seen.iter().any(|line| line.contains("169.254.0.11")),
            "{seen:?}"
        );
        // Without networks of users.
        assert!(!apply(&mk_network()).await.unwrap().is_empty());
        let main = lines("-4 route show table main proto 85");
        assert_eq!(main, ["192.0.2.0/24 dev br-ex scope link metric 7"]);
        assert!(lines("-6 route show table main proto 85").is_empty());
        let rules = lines("-4 rule show pref 30");
        assert_eq!(rules, ["30: from all fwmark 0x7 lookup 7"]);
        let mut left = lines("neigh show nud permanent dev br-ex");
        left.sort();
        let others = [
            "169.254.0.12 lladdr 0a:58:a9:fe:00:0c PERMANENT",
            "172.18.0.9 lladdr 02:00:00:00:00:09 PERMANENT",
        ];
        assert_eq!(left, others);
    });
}
