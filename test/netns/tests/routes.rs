//! Routes in every form that the kernel has for them, and what becomes of them on the way to the gateway router.
//!
//! In: routes that `ip` makes. Out: what the crate reads, as lines; rows and reasons that `rib` and `plan_node` make of it.
//! Invariant: what is said does not depend on how the kernel stores a route (`nexthop_compat_mode` 0 or 1).
//! Not here: links, sizes and errors of dumps (`dump.rs`), events (`watch.rs`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use import::decide::decide;
use model::Scope;
use model::gateway::BgpDefault;
use model::route::{KernelRoute, MAIN_TABLE, PROTOCOL_BGP, RouteKind, RoutePath, TableId};
use netlink::dump;
use netns_tests::{absent, in_namespace, ip, ip_batch, mk_link};

fn names() -> BTreeMap<u32, String> {
    let links = dump::links().unwrap();
    links.into_iter().map(|l| (l.index, l.name)).collect()
}

fn path_text(path: &RoutePath, names: &BTreeMap<u32, String>) -> String {
    let gateway = path.gateway.map_or("-".to_owned(), |ip| ip.to_string());
    format!(" {gateway}@{}", names[&path.oif])
}

/// One line a route: destination, metric, paths or `no unicast`.
fn text(route: &KernelRoute, names: &BTreeMap<u32, String>) -> String {
    let paths: String = match route.kind {
        RouteKind::Unicast => route
            .paths
            .iter()
            .map(|path| path_text(path, names))
            .collect(),
        RouteKind::Encapsulated => " encapsulated".to_owned(),
        RouteKind::Other => " no unicast".to_owned(),
    };
    format!("{} {}{paths}", route.prefix, route.metric)
}

fn lines(table: Option<TableId>) -> Vec<String> {
    let names = names();
    let mut routes = dump::routes(table, PROTOCOL_BGP).unwrap();
    routes.sort();
    routes.iter().map(|route| text(route, &names)).collect()
}

/// Two links, d0 as `mk_link` has it and d1 with 198.51.100.1/24 and 2001:db8:d1::1/64.
fn mk_links() {
    mk_link("d0");
    ip_batch(
        "link add d1 type veth peer name d1-peer
         addr add 198.51.100.1/24 dev d1
         addr add 2001:db8:d1::1/64 dev d1 nodad
         link set d1-peer up
         link set d1 up
",
    );
}

/// What main holds of BGP after these commands; reported alike with gateways beside nexthop ids and with ids alone.
fn main_after(commands: &'static str, wanted: &'static [&'static str]) {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(move || async move {
        mk_links();
        commands.lines().for_each(|command| drop(ip(command)));
        for mode in ["1", "0"] {
            std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", mode).unwrap();
            assert_eq!(lines(Some(MAIN_TABLE)), wanted, "compat mode {mode}");
        }
    });
}

#[test]
fn multipath_routes_are_read_with_all_paths() {
    main_after(
        "route add 10.1.0.0/24 proto bgp metric 20 nexthop via 192.0.2.3 nexthop via 192.0.2.2
         route add 10.2.0.0/24 proto bgp metric 20 nexthop via 198.51.100.2 weight 7 nexthop via 192.0.2.2
         route add 10.3.0.0/24 proto bgp metric 20 nexthop dev d0 nexthop via 198.51.100.2
         route add 10.4.0.0/24 proto bgp metric 20 nexthop via 192.0.2.2 weight 2 nexthop via 192.0.2.2
         route add 10.5.0.0/24 proto bgp metric 20 via 203.0.113.9 dev d1 onlink",
        &[
            "10.1.0.0/24 20 192.0.2.2@d0 192.0.2.3@d0",
            "10.2.0.0/24 20 192.0.2.2@d0 198.51.100.2@d1",
            "10.3.0.0/24 20 -@d0 198.51.100.2@d1",
            "10.4.0.0/24 20 192.0.2.2@d0",
            "10.5.0.0/24 20 203.0.113.9@d1",
        ],
    );
}

#[test]
fn nexthop_objects_and_groups_are_resolved_to_paths() {
    main_after(
        "nexthop add id 1 via 192.0.2.2 dev d0 proto zebra
         nexthop add id 2 via 192.0.2.3 dev d0 proto zebra
         nexthop add id 3 via 198.51.100.2 dev d1 proto zebra
         nexthop add id 4 dev d0 proto zebra
         nexthop add id 10 group 1/3 proto zebra
         nexthop add id 11 group 3,5/2,1 proto zebra
         nexthop add id 12 group 1 proto zebra
         route add 10.1.0.0/24 nhid 1 proto bgp metric 20
         route add 10.2.0.0/24 nhid 10 proto bgp metric 20
         route add 10.3.0.0/24 nhid 11 proto bgp metric 20
         route add 10.4.0.0/24 nhid 12 proto bgp metric 20
         route add 10.5.0.0/24 nhid 4 proto bgp metric 20
         route add 10.6.0.0/24 nhid 10 proto bgp metric 20
         nexthop replace id 10 group 1/2 proto zebra",
        &[
            "10.1.0.0/24 20 192.0.2.2@d0",
            "10.2.0.0/24 20 192.0.2.2@d0 192.0.2.3@d0",
            "10.3.0.0/24 20 192.0.2.3@d0 198.51.100.2@d1",
            "10.4.0.0/24 20 192.0.2.2@d0",
            "10.5.0.0/24 20 -@d0",
            "10.6.0.0/24 20 192.0.2.2@d0 192.0.2.3@d0",
        ],
    );
}

#[test]
fn ipv6_routes_are_read_with_link_local_gateways_and_equal_paths() {
    main_after(
        "nexthop add id 1 via fe80::3 dev d0
         nexthop add id 2 via 2001:db8:d1::2 dev d1
         nexthop add id 10 group 1/2
         route add 2001:db8:1::/64 via fe80::2 dev d0 proto bgp metric 20
         route add 2001:db8:2::/64 proto bgp metric 20 nexthop via fe80::2 dev d0 nexthop via fe80::2 dev d1
         route add 2001:db8:3::/64 via fe80::2 dev d0 proto bgp metric 20
         route append 2001:db8:3::/64 via 2001:db8:d1::2 proto bgp metric 20
         route add 2001:db8:4::/64 dev d1 proto bgp metric 20
         route add 2001:db8:5::/64 nhid 1 proto bgp metric 20
         route add 2001:db8:6::/64 nhid 10 proto bgp metric 20
         route add 2001:db8:7::7/128 via fe80::2 dev d0 proto bgp metric 20
         route add default via fe80::2 dev d0 proto bgp metric 20",
        &[
            "::/0 20 fe80::2@d0",
            "2001:db8:1::/64 20 fe80::2@d0",
            "2001:db8:2::/64 20 fe80::2@d0 fe80::2@d1",
            "2001:db8:3::/64 20 2001:db8:d1::2@d1 fe80::2@d0",
            "2001:db8:4::/64 20 -@d1",
            "2001:db8:5::/64 20 fe80::3@d0",
            "2001:db8:6::/64 20 2001:db8:d1::2@d1 fe80::3@d0",
            "2001:db8:7::7/128 20 fe80::2@d0",
        ],
    );
}

/// RFC 8950.
#[test]
fn an_ipv4_route_over_an_ipv6_next_hop_names_it_in_every_form() {
    main_after(
        "nexthop add id 1 via fe80::3 dev d0
         nexthop add id 2 via fe80::3 dev d1
         nexthop add id 3 via 192.0.2.2 dev d0
         nexthop add id 10 group 1/2
         nexthop add id 11 group 1/3
         route add 10.1.0.0/24 via inet6 fe80::1 dev d0 proto bgp
         route add 10.2.0.0/24 proto bgp metric 20 nexthop via inet6 fe80::2 dev d0 nexthop via 198.51.100.2
         route add 10.3.0.0/24 proto bgp metric 20 nexthop via inet6 fe80::2 dev d1 nexthop via inet6 fe80::2 dev d0
         route add 10.4.0.0/24 nhid 1 proto bgp metric 20
         route add 10.5.0.0/24 nhid 10 proto bgp metric 20
         route add 10.6.0.0/24 nhid 11 proto bgp metric 20",
        &[
            "10.1.0.0/24 0 fe80::1@d0",
            "10.2.0.0/24 20 198.51.100.2@d1 fe80::2@d0",
            "10.3.0.0/24 20 fe80::2@d0 fe80::2@d1",
            "10.4.0.0/24 20 fe80::3@d0",
            "10.5.0.0/24 20 fe80::3@d0 fe80::3@d1",
            "10.6.0.0/24 20 192.0.2.2@d0 fe80::3@d0",
        ],
    );
}

#[test]
fn what_forwards_nothing_is_no_unicast_route() {
    main_after(
        "nexthop add id 1 blackhole
         nexthop add id 2 group 1
         route add blackhole 10.1.0.0/24 proto bgp metric 20
         route add unreachable 10.2.0.0/24 proto bgp metric 20
         route add prohibit 10.3.0.0/24 proto bgp metric 20
         route add throw 10.4.0.0/24 proto bgp metric 20
         route add 10.5.0.0/24 nhid 1 proto bgp metric 20
         route add 10.6.0.0/24 nhid 2 proto bgp metric 20
         route add blackhole 2001:db8:1::/64 proto bgp metric 20
         route add unreachable 2001:db8:2::/64 proto bgp metric 20
         route add prohibit 2001:db8:3::/64 proto bgp metric 20
         -6 nexthop add id 4 blackhole
         -6 route add 2001:db8:4::/64 nhid 4 proto bgp metric 20",
        &[
            "10.1.0.0/24 20 no unicast",
            "10.2.0.0/24 20 no unicast",
            "10.3.0.0/24 20 no unicast",
            "10.4.0.0/24 20 no unicast",
            "10.5.0.0/24 20 no unicast",
            "10.6.0.0/24 20 no unicast",
            "2001:db8:1::/64 20 no unicast",
            "2001:db8:2::/64 20 no unicast",
            "2001:db8:3::/64 20 no unicast",
            "2001:db8:4::/64 20 no unicast",
        ],
    );
}

#[test]
fn a_destination_with_several_metrics_is_several_routes() {
    main_after(
        "route add 10.1.0.0/24 via 192.0.2.2 proto bgp metric 20
         route add 10.1.0.0/24 via 192.0.2.3 proto bgp metric 30
         route add 10.1.0.0/24 via 192.0.2.4 proto static metric 10
         route add blackhole 10.1.0.0/24 proto bgp metric 4294967295
         route add 10.1.0.0/16 via 192.0.2.2 proto bgp metric 20
         route add 2001:db8:1::/64 via fe80::2 dev d0 proto bgp metric 20
         route add 2001:db8:1::/64 via fe80::3 dev d0 proto bgp metric 30",
        &[
            "10.1.0.0/16 20 192.0.2.2@d0",
            "10.1.0.0/24 20 192.0.2.2@d0",
            "10.1.0.0/24 30 192.0.2.3@d0",
            "10.1.0.0/24 4294967295 no unicast",
            "2001:db8:1::/64 20 fe80::2@d0",
            "2001:db8:1::/64 30 fe80::3@d0",
        ],
    );
}

#[test]
fn other_protocols_and_other_tables_are_left_out() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_links();
        for (number, protocol) in ["kernel", "boot", "static", "zebra", "ospf", "85", "187"]
            .iter()
            .enumerate()
        {
            ip(&format!(
                "route add 10.{number}.0.0/24 via 192.0.2.2 proto {protocol}"
            ));
            ip(&format!(
                "route add 2001:db8:{number}::/64 via fe80::2 dev d0 proto {protocol}"
            ));
        }
        assert!(lines(None).is_empty());
        // 1010 is beyond what the header of a message can name, and 242 is 1010 cut to its eight bits.
        for table in [253_u32, 242, 1010, 1_000_001] {
            ip(&format!(
                "route add 10.100.0.0/24 via 192.0.2.2 proto bgp metric {table} table {table}"
            ));
            ip(&format!(
                "route add 2001:db8:100::/64 via fe80::2 dev d0 proto bgp metric {table} table {table}"
            ));
        }
        assert!(lines(Some(MAIN_TABLE)).is_empty());
        for table in [253_u32, 242, 1010, 1_000_001] {
            let routes = dump::routes(Some(table), PROTOCOL_BGP).unwrap();
            assert!(
                routes.iter().all(|route| route.table == table),
                "{routes:?}"
            );
            let wanted = [
                format!("10.100.0.0/24 {table} 192.0.2.2@d0"),
                format!("2001:db8:100::/64 {table} fe80::2@d0"),
            ];
            assert_eq!(lines(Some(table)), wanted);
        }
        assert_eq!(lines(None).len(), 8, "every table");
        // A table that lost its last route is as one that never was.
        ip("route flush table 1010");
        ip("-6 route flush table 1010");
        assert!(lines(Some(1010)).is_empty());
        assert!(lines(Some(4_000_000_000)).is_empty());
    });
}

#[test]
fn a_node_without_ipv6_still_tells_its_ipv4_routes() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        ip("link set lo up");
        for place in ["all", "default", "lo"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{place}/disable_ipv6"), "1").unwrap();
        }
        ip("link add d0 type veth peer name d0-peer");
        ip("addr add 192.0.2.1/24 dev d0");
        ip("link set d0 up");
        ip("route add 10.1.0.0/24 via 192.0.2.2 proto bgp metric 20");
        assert_eq!(lines(Some(MAIN_TABLE)), ["10.1.0.0/24 20 192.0.2.2@d0"]);
    });
}

#[test]
fn a_link_without_carrier_counts_as_long_as_the_kernel_uses_it() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_links();
        ip_batch(
            "route add 10.1.0.0/24 via 192.0.2.2 proto bgp metric 20
             route add 10.2.0.0/24 proto bgp metric 20 nexthop via 192.0.2.2 nexthop via 192.0.2.3
             route add 10.3.0.0/24 proto bgp metric 20 nexthop via 192.0.2.2 nexthop via 198.51.100.2
             route add 2001:db8:1::/64 via fe80::2 dev d0 proto bgp metric 20
             route add 2001:db8:2::/64 proto bgp metric 20 nexthop via fe80::2 dev d0 nexthop via fe80::3 dev d0
",
        );
        let before = lines(Some(MAIN_TABLE));
        ip("link set d0-peer down");
        let off = (0..500).any(|_| ip("link show d0").contains("NO-CARRIER"));
        assert!(off, "the carrier stays");
        assert_eq!(
            lines(Some(MAIN_TABLE)),
            before,
            "one path as well as several"
        );
        for family in ["ipv4", "ipv6"] {
            for place in ["all", "d0"] {
                let knob =
                    format!("/proc/sys/net/{family}/conf/{place}/ignore_routes_with_linkdown");
                std::fs::write(knob, "1").unwrap();
            }
        }
        let (rows, _) = imported();
        assert!(rows.is_empty(), "the kernel passes them over: {rows:?}");
        assert_eq!(
            lines(Some(MAIN_TABLE)),
            [
                "10.1.0.0/24 20",
                "10.2.0.0/24 20",
                "10.3.0.0/24 20 198.51.100.2@d1",
                "2001:db8:1::/64 20",
                "2001:db8:2::/64 20",
            ]
        );
    });
}

/// The scope of a node whose external bridge is d0 and whose pods are 10.128.1.0/24 of 10.128.0.0/16.
fn mk_scope() -> Scope {
    let prefixes = |texts: &str| texts.split(' ').map(|t| t.parse().unwrap()).collect();
    let links = dump::links().unwrap();
    Scope {
        gateway_link: links.iter().find(|l| l.name == "d0").map(|l| l.index),
        cluster_subnets: prefixes("10.128.0.0/16 fd00:10::/48"),
        host_subnets: prefixes("10.128.1.0/24 fd00:10:0:1::/64"),
        join_subnets: prefixes("100.64.0.0/16 fd98::/64"),
        fallbacks: std::collections::BTreeMap::new(),
        fallbacks_known: true,
        other_networks: [("10.77.0.0/16".parse().unwrap(), ())]
            .into_iter()
            .collect(),
        own_addresses: links
            .iter()
            .flat_map(|l| l.addresses.iter().map(|a| a.ip))
            .collect(),
        no_overlay: true,
        taken: BTreeSet::from(["10.99.0.0/24".parse().unwrap()]),
        bgp_default: BgpDefault::Ignore,
    }
}

/// Kernel, dump, RIB and plan in one: the rows, and the destinations left out by reason.
fn imported() -> (Vec<String>, Vec<String>) {
    let mut rib = rib::Rib::default();
    rib.replace(dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP).unwrap());
    let links = dump::links().unwrap();
    rib.set_links(links.iter().map(|l| (l.index, l.up)).collect());
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for route in rib.view(MAIN_TABLE) {
        let decision = decide(&route, &mk_scope());
        let (to, hops) = (route.prefix, decision.hops.into_iter());
        rows.extend(hops.map(|hop| (to, hop)));
        skipped.extend(decision.reasons.into_iter().map(|reason| (reason, to)));
    }
    rows.sort_unstable();
    skipped.sort_unstable();
    (
        rows.iter()
            .map(|(to, hop)| format!("{to} via {hop}"))
            .collect(),
        skipped
            .iter()
            .map(|(reason, to)| format!("{reason} {to}"))
            .collect(),
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn the_kernels_routes_become_the_right_rows_and_reasons() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_links();
        ip_batch(
            "nexthop add id 1 via 192.0.2.2 dev d0
             nexthop add id 2 via 192.0.2.3 dev d0
             nexthop add id 3 via fe80::3 dev d0
             nexthop add id 4 blackhole
             nexthop add id 10 group 1/2
             nexthop add id 11 group 1/3
             route add 10.128.2.0/24 nhid 1 proto bgp metric 20
             route add 10.128.3.0/24 nhid 10 proto bgp metric 20
             route add 10.128.4.0/24 proto bgp metric 20 nexthop via 192.0.2.2 nexthop via 198.51.100.2
             route add 10.128.5.0/24 nhid 11 proto bgp metric 20
             route add 10.128.6.0/24 via 192.0.2.3 proto bgp metric 30
             route add 10.128.6.0/24 via 192.0.2.2 proto bgp metric 20
             route add 10.128.7.0/24 via 192.0.2.2 proto bgp metric 20
             route add 10.128.7.0/24 via 198.51.100.2 proto bgp metric 10
             route add 10.128.8.0/24 via 192.0.2.2 proto static metric 20
             route add 10.128.9.0/24 via 192.0.2.2 proto bgp table 1010
             route add 10.128.1.0/24 via 192.0.2.2 proto bgp metric 20
             route add 10.99.0.0/24 via 192.0.2.2 proto bgp metric 20
             route add 10.77.5.0/24 via 192.0.2.2 proto bgp metric 20
             route add 100.64.0.0/16 via 192.0.2.2 proto bgp metric 20
             route add default via 192.0.2.2 proto bgp metric 20
             route add blackhole 10.200.0.0/24 proto bgp metric 20
             route add 10.200.1.0/24 nhid 4 proto bgp metric 20
             route add 10.201.0.0/24 via inet6 fe80::2 dev d0 proto bgp metric 20
             route add 10.202.0.0/24 dev d0 proto bgp metric 20
             route add 10.203.0.0/24 via 198.51.100.2 proto bgp metric 20
             route add fd00:10:0:2::/64 via fe80::2 dev d0 proto bgp metric 20
             route add fd00:10:0:3::/64 proto bgp metric 20 nexthop via 2001:db8::2 nexthop via 2001:db8::3
             route add fd00:10:0:1::/64 via fe80::2 dev d0 proto bgp metric 20
",
        );
        let wanted_rows = [
            "10.128.2.0/24 via 192.0.2.2",
            "10.128.3.0/24 via 192.0.2.2",
            "10.128.3.0/24 via 192.0.2.3",
            "10.128.4.0/24 via 192.0.2.2",
            "10.128.5.0/24 via 192.0.2.2",
            "10.128.6.0/24 via 192.0.2.2",
            "fd00:10:0:2::/64 via fe80::2",
            "fd00:10:0:3::/64 via 2001:db8::2",
            "fd00:10:0:3::/64 via 2001:db8::3",
        ];
        let wanted_reasons = [
            "default_route 0.0.0.0/0",
            "family_mismatch 10.128.5.0/24",
            "family_mismatch 10.201.0.0/24",
            "join_subnet 100.64.0.0/16",
            "no_gateway 10.202.0.0/24",
            "not_unicast 10.200.0.0/24",
            "not_unicast 10.200.1.0/24",
            "other_link 10.128.4.0/24",
            "other_link 10.128.7.0/24",
            "other_link 10.203.0.0/24",
            "other_network 10.77.5.0/24",
            "own_subnet 10.128.1.0/24",
            "own_subnet fd00:10:0:1::/64",
            "prefix_taken 10.99.0.0/24",
        ];
        for mode in ["1", "0"] {
            std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", mode).unwrap();
            let (rows, reasons) = imported();
            assert_eq!(rows, wanted_rows, "compat mode {mode}");
            assert_eq!(reasons, wanted_reasons, "compat mode {mode}");
        }
        // The other link goes: what it carried gives way to the next metric or is gone.
        ip("link set d1 down");
        let (rows, reasons) = imported();
        assert!(rows.contains(&"10.128.7.0/24 via 192.0.2.2".to_owned()));
        assert!(
            !reasons.iter().any(|r| r.starts_with("other_link")),
            "{reasons:?}"
        );
        // The bridge goes: nothing is left, and that is no error.
        ip("link set d0 down");
        let (rows, reasons) = imported();
        assert!(rows.is_empty(), "{rows:?}");
        assert_eq!(
            reasons,
            ["not_unicast 10.200.0.0/24", "not_unicast 10.200.1.0/24"]
        );
    });
}
