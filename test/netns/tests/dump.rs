//! Dumps: whole, in every form the kernel gives, and never empty by mistake.
//!
//! In: routes that `ip` makes. Out: what the crate reads.
//! Invariant: `ip` is right.
//! Not here: events.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::ffi::OsStr;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use model::address::{InterfaceAddr, Prefix};
use model::kernel::LinkFact;
use model::route::{KernelRoute, MAIN_TABLE, PROTOCOL_BGP, RouteKind, RoutePath, TableId};
use netlink::DumpError;
use netlink::dump;
use netns_tests::{absent, in_namespace, ip, ip_batch, mk_link, route_lines, run};

fn bgp(table: Option<TableId>) -> Vec<KernelRoute> {
    let mut routes = dump::routes(table, PROTOCOL_BGP).unwrap();
    routes.sort();
    routes
}

fn link(name: &str) -> LinkFact {
    let mut links = dump::links().unwrap();
    links.retain(|link| link.name == name);
    links.pop().unwrap_or_else(|| panic!("{name} is missing"))
}

fn route<'a>(routes: &'a [KernelRoute], prefix: &str) -> &'a KernelRoute {
    let prefix: Prefix = prefix.parse().unwrap();
    let found: Vec<&KernelRoute> = routes.iter().filter(|r| r.prefix == prefix).collect();
    assert_eq!(found.len(), 1, "{prefix}: {found:?}");
    found[0]
}

fn paths(gateways: &str, oif: u32) -> Vec<RoutePath> {
    let path = |gateway: &str| RoutePath {
        gateway: Some(gateway.parse::<IpAddr>().unwrap()),
        oif,
    };
    gateways.split_whitespace().map(path).collect()
}

fn mk_routes() {
    mk_link("d0");
    ip_batch(
        "route add 10.1.0.0/24 via 192.0.2.2 proto bgp metric 20
         route add 10.1.0.0/24 via 192.0.2.3 proto static metric 30
         route add 10.2.0.0/24 proto bgp metric 20 nexthop via 192.0.2.3 nexthop via 192.0.2.2
         nexthop add id 7 via 192.0.2.4 dev d0
         nexthop add id 8 via 192.0.2.5 dev d0
         nexthop add id 9 group 7/8
         nexthop add id 10 via 2001:db8::4 dev d0
         route add 10.3.0.0/24 nhid 7 proto bgp metric 20
         route add 10.4.0.0/24 nhid 9 proto bgp metric 20
         route add 10.10.0.0/24 nhid 10 proto bgp metric 20
         route add blackhole 10.5.0.0/24 proto bgp metric 20
         route add 10.6.0.0/24 via inet6 fe80::2 dev d0 proto bgp metric 20
         route add 10.7.0.0/24 via 192.0.2.2 proto bgp table 1000
         route add 10.8.0.0/24 via 192.0.2.2 proto static
         route add 10.9.0.0/24 dev d0 proto bgp
         route add default via 192.0.2.2 proto bgp metric 20
         route add 2001:db8:1::/64 via 2001:db8::2 proto bgp metric 20
         route add 2001:db8:2::/64 proto bgp metric 20 nexthop via 2001:db8::3 nexthop via 2001:db8::2
         route add 2001:db8:3::/64 nhid 10 proto bgp metric 20
",
    );
}

#[test]
fn every_form_of_a_route_is_read() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_routes();
        let oif = link("d0").index;
        let routes = bgp(Some(MAIN_TABLE));
        for (prefix, gateways) in [
            ("10.1.0.0/24", "192.0.2.2"),
            ("10.2.0.0/24", "192.0.2.2 192.0.2.3"),
            ("10.3.0.0/24", "192.0.2.4"),
            ("10.4.0.0/24", "192.0.2.4 192.0.2.5"),
            ("10.6.0.0/24", "fe80::2"),
            ("10.10.0.0/24", "2001:db8::4"),
            ("0.0.0.0/0", "192.0.2.2"),
            ("2001:db8:1::/64", "2001:db8::2"),
            ("2001:db8:2::/64", "2001:db8::2 2001:db8::3"),
            ("2001:db8:3::/64", "2001:db8::4"),
        ] {
            let found = route(&routes, prefix);
            assert_eq!(found.paths, paths(gateways, oif), "{prefix}");
            assert_eq!(found.kind, RouteKind::Unicast, "{prefix}");
            assert_eq!((found.table, found.metric), (MAIN_TABLE, 20), "{prefix}");
        }
        assert_eq!(route(&routes, "10.5.0.0/24").kind, RouteKind::Other);
        let on_link = route(&routes, "10.9.0.0/24");
        assert_eq!(on_link.paths, [RoutePath { gateway: None, oif }]);
        assert_eq!(on_link.metric, 0);
        assert_eq!(routes.len(), 12, "one table and one protocol: {routes:?}");

        let other = bgp(Some(1000));
        assert_eq!(other.len(), 1);
        assert_eq!(route(&other, "10.7.0.0/24").table, 1000);
        assert_eq!(bgp(None).len(), 13, "all tables");
    });
}

#[test]
fn routes_that_name_only_a_nexthop_object_are_resolved() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_routes();
        let both = bgp(Some(MAIN_TABLE));
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
        assert_eq!(
            bgp(Some(MAIN_TABLE)),
            both,
            "ids alone say the same as ids and gateways"
        );
        ip("nexthop add id 20 blackhole");
        ip("route add 10.20.0.0/24 nhid 20 proto bgp");
        let hole = bgp(Some(MAIN_TABLE));
        assert_eq!(route(&hole, "10.20.0.0/24").kind, RouteKind::Other);
    });
}

#[test]
fn a_missing_table_is_empty_but_a_missing_main_table_is_an_error() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        // Before the first address a namespace has no IPv4 table at all.
        let early = dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP);
        assert!(matches!(early, Err(DumpError::Refused { .. })), "{early:?}");
        ip("link set lo up");
        for table in [7, 777, MAIN_TABLE] {
            assert!(bgp(Some(table)).is_empty(), "{table}");
        }
        assert!(bgp(None).is_empty());
    });
}

#[test]
fn twenty_thousand_routes_arrive_whole() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        ip_batch(&route_lines("add", 20_000));
        let routes = bgp(Some(MAIN_TABLE));
        assert_eq!(routes.len(), 20_000);
        let mut prefixes: Vec<_> = routes.iter().map(|route| route.prefix).collect();
        prefixes.dedup();
        assert_eq!(prefixes.len(), 20_000, "each once");
        let expected = paths("192.0.2.2", link("d0").index);
        assert!(routes.iter().all(|route| route.paths == expected));
    });
}

#[test]
fn a_link_is_read_with_its_addresses() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        ip("link add d0 type veth peer name d0-peer");
        ip("link set d0 address 0a:58:0a:80:01:02 mtu 1400");
        ip("addr add 10.128.1.2/24 dev d0");
        let down = link("d0");
        assert!(!down.up && down.index > 0, "{down:?}");
        assert_eq!(down.mac, Some("0a:58:0a:80:01:02".parse().unwrap()));
        assert_eq!(down.mtu, 1400);
        let first: InterfaceAddr = "10.128.1.2/24".parse().unwrap();
        assert_eq!(down.addresses, [first]);
        ip("addr add 192.0.2.7 peer 192.0.2.8/32 dev d0");
        ip("link set d0 up");
        let up = link("d0");
        assert!(up.up);
        let ours: InterfaceAddr = "192.0.2.7/32".parse().unwrap();
        assert!(up.addresses.contains(&ours), "ours, not the peer's: {up:?}");
        assert!(link("lo").addresses.is_empty());
        assert_eq!((up.master, up.vrf_table), (None, None));
        ip("link add b0 type bridge");
        ip("link set d0 master b0");
        assert_eq!(link("d0").master, Some(link("b0").index));
        assert_eq!(link("b0").vrf_table, None, "a bridge is no VRF");
        ip("link set d0 nomaster");
        assert_eq!(link("d0").master, None);
    });
}

/// `ip` with a last argument that is no text.
fn ip_bytes(arguments: &str, last: &[u8]) {
    run(Command::new("ip")
        .args(arguments.split_whitespace())
        .arg(OsStr::from_bytes(last)));
}

#[test]
fn a_link_with_an_alias_that_is_no_text_is_a_link_all_the_same() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        ip_bytes("link set d0 alias", b"Z\xfcrich");
        ip_bytes("addr add 192.0.2.9/24 dev d0 label", b"d0:\xfc");
        ip("link set d0-peer down");
        ip_bytes("link set d0-peer name", b"p\xfcer");
        let d0 = link("d0");
        assert!(d0.up && d0.mac.is_some(), "{d0:?}");
        let labelled: InterfaceAddr = "192.0.2.9/24".parse().unwrap();
        assert!(d0.addresses.contains(&labelled), "{d0:?}");
        assert_eq!(dump::links().unwrap().len(), 3, "lo, d0, its peer");
    });
}

#[test]
fn a_link_is_read_with_its_alternative_names() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        assert!(link("d0").alternative_names.is_empty());
        ip("link property add dev d0 altname uplink0 altname blue");
        let mut names = link("d0").alternative_names;
        names.sort();
        assert_eq!(names, ["blue", "uplink0"]);
    });
}

#[test]
fn a_route_with_labels_or_a_tunnel_is_reported_as_such() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        // The kernels of some machines have no MPLS: encap ip is the same attribute.
        ip_batch(
            "route add 20.1.1.0/24 encap ip id 100 dst 198.51.100.1 via 192.0.2.2 dev d0 proto bgp
             route add 20.1.2.0/24 proto bgp nexthop via 192.0.2.2 dev d0 nexthop encap ip id 100 dst 198.51.100.1 via 192.0.2.3 dev d0
             route add 20.1.3.0/24 via 192.0.2.2 proto bgp
             nexthop add id 7 encap ip id 100 dst 198.51.100.1 via 192.0.2.4 dev d0
             route add 20.1.4.0/24 nhid 7 proto bgp
             route add 2001:db8:20::/64 encap ip6 id 100 dst 2001:db8::9 via 2001:db8::2 dev d0 proto bgp
",
        );
        for compat in ["1", "0"] {
            std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", compat).unwrap();
            let routes = bgp(Some(MAIN_TABLE));
            for prefix in [
                "20.1.1.0/24",
                "20.1.2.0/24",
                "20.1.4.0/24",
                "2001:db8:20::/64",
            ] {
                let found = route(&routes, prefix);
                assert_eq!(found.kind, RouteKind::Encapsulated, "{prefix} {compat}");
            }
            assert_eq!(route(&routes, "20.1.3.0/24").kind, RouteKind::Unicast);
        }
    });
}

/// `ip -batch` over these lines, beside the test.
fn churn(lines: &str) -> Child {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    Command::new("ip")
        .args(["-batch", "-"])
        .stdin(file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_route_whose_nexthop_object_is_exchanged_is_never_without_paths() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
        // As zebra does it: a new object, the route moved to it, the old object removed.
        let mut lines = String::new();
        ip("nexthop add id 1000 via 192.0.2.2 dev d0");
        ip("route add 10.50.0.0/24 nhid 1000 proto bgp metric 20");
        ip("nexthop add id 501000 via 2001:db8::2 dev d0");
        ip("route add 2001:db8:50::/64 nhid 501000 proto bgp metric 20");
        for id in 1001..16_000 {
            let before = id - 1;
            lines += &format!(
                "nexthop add id {id} via 192.0.2.2 dev d0
                 route replace 10.50.0.0/24 nhid {id} proto bgp metric 20
                 nexthop del id {before}
                 nexthop add id 50{id} via 2001:db8::2 dev d0
                 route replace 2001:db8:50::/64 nhid 50{id} proto bgp metric 20
                 nexthop del id 50{before}
"
            );
        }
        let mut churning = churn(&lines);
        let (mut read, mut interrupted) = (0, 0);
        while churning.try_wait().unwrap().is_none() {
            let routes = match dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP) {
                Ok(routes) => routes,
                Err(DumpError::Interrupted { .. }) => {
                    interrupted += 1;
                    continue;
                }
                Err(other) => panic!("{other}"),
            };
            read += 1;
            let empty = routes.iter().find(|route| route.paths.is_empty());
            assert_eq!(empty, None, "after {read} dumps");
        }
        println!("{read} dumps, {interrupted} interrupted again and again");
        assert!(read > 100, "{read} dumps, {interrupted} interrupted");
        assert_eq!(bgp(Some(MAIN_TABLE)).len(), 2);
    });
}
