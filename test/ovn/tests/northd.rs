//! What the installed ovn-northd makes of static routes whose next hop is not of the destination's family (RFC 8950).
//!
//! In: rows, written as an import would write them. Out: flows of the Southbound database.
//! Invariant: what the import leaves out for its family is what northd makes nothing of. Not here: packets (the lab).
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use import::decide;
use model::gateway::BgpDefault;
use model::nb::ROUTE_IMPORT;
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};
use model::subnets::Subnets;
use model::{Prefix, Scope};
use ovn_tests::{NORTHD_TOOLS, Northd};
use ovsdb_tests::absent;

const BRIDGE: u32 = 3;
/// Destination and next hop; whether they are of one family.
const ROUTES: [(&str, &str, bool); 4] = [
    ("10.9.0.0/24", "172.30.0.2", true),
    ("fd00:9::/64", "fe80::2", true),
    ("10.8.0.0/24", "fe80::2", false),
    ("10.7.0.0/24", "fd00:30::2", false),
];

/// What the import decides about a route over the gateway bridge.
fn decided(to: &str, via: &str) -> decide::Decision {
    let scope = Scope {
        gateway_link: Some(BRIDGE),
        cluster_subnets: Vec::new(),
        host_subnets: Vec::new(),
        join_subnets: Vec::new(),
        other_networks: Subnets::default(),
        own_addresses: BTreeSet::new(),
        no_overlay: true,
        taken: BTreeSet::new(),
        fallbacks: BTreeMap::new(),
        fallbacks_known: true,
        bgp_default: BgpDefault::Ignore,
    };
    let prefix: Prefix = to.parse().unwrap();
    let route = KernelRoute {
        table: MAIN_TABLE,
        prefix,
        metric: 20,
        kind: RouteKind::Unicast,
        paths: vec![RoutePath {
            gateway: Some(via.parse().unwrap()),
            oif: BRIDGE,
        }],
    };
    decide::decide(&route, &scope)
}

#[test]
fn northd_makes_nothing_of_a_next_hop_of_another_family_and_so_it_is_left_out_by_reason() {
    if absent(NORTHD_TOOLS) {
        return;
    }
    let northd = Northd::start();
    northd.nbctl(&["lr-add", "GR_n1"]);
    let port = ["lrp-add", "GR_n1", "rtoe-GR_n1", "0a:58:ac:1e:00:01"];
    northd.nbctl(&[&port[..], &["172.30.0.1/24", "fd00:30::1/64"]].concat());
    for (to, via, _) in ROUTES {
        // As rows: ovn-nbctl's own command has an opinion of what it is given.
        let quoted = |column: &str, value: &str| format!("{column}=\"{value}\"");
        let (to, via) = (quoted("ip_prefix", to), quoted("nexthop", via));
        let port = quoted("output_port", "rtoe-GR_n1");
        let ids = format!("external_ids:{}={}", ROUTE_IMPORT.0, ROUTE_IMPORT.1);
        let create = ["--", "--id=@r", "create", "Logical_Router_Static_Route"];
        let refer = [
            "--",
            "add",
            "Logical_Router",
            "GR_n1",
            "static_routes",
            "@r",
        ];
        northd.nbctl(&[&create[1..], &[&to, &via, &port, &ids], &refer].concat());
    }
    northd.nbctl(&["sync"]);
    let flows = northd.flows("GR_n1");
    for (to, via, same) in ROUTES {
        let has_flow = flows.contains(&format!(".dst == {to}"));
        assert_eq!(has_flow, same, "{to} via {via}:\n{flows}");
        let decision = decided(to, via);
        if same {
            assert_eq!(decision.hops, [via.parse::<std::net::IpAddr>().unwrap()]);
        } else {
            assert!(decision.hops.is_empty(), "{decision:?}");
            assert_eq!(
                decision.reasons,
                [decide::FAMILY_MISMATCH],
                "{to} via {via}"
            );
        }
    }
}
