//! What the installed ovn-northd makes of static routes whose next hop is not of the destination's family (RFC 8950), and of the
//! rows by which networks of users use Services.
//!
//! In: rows, written as an import or a plan would write them. Out: flows of the Southbound database.
//! Invariant: what the import leaves out for its family is what northd makes nothing of; two rows of one subnet translate each
//! towards its own set. Not here: packets (the lab).
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use import::decide;
use model::gateway::{BgpDefault, GatewayMode};
use model::nb::ROUTE_IMPORT;
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};
use model::subnets::Subnets;
use model::{Family, Prefix, Scope};
use ovn_tests::{Fixture, NORTHD_TOOLS, Northd, View, rows_of, shared_rows};
use ovsdb_tests::absent;
use plan_node::Services;
use plan_node::north::{services, shared};
use testkit::mk_user_network;

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

/// Red on n1, which may use one Service.
fn mk_red(mode: GatewayMode, snat: bool) -> View {
    let mut view = testkit::mk_view(1);
    view.node.mode = mode;
    view.node.service_cidrs = vec!["172.31.0.0/16".parse().unwrap()];
    let kubernetes = (
        "default/kubernetes".to_owned(),
        ["172.31.0.1".parse().unwrap()].into(),
    );
    view.node.services = Some(Services {
        allowed: [kubernetes].into(),
    });
    view.share.network = mk_user_network(
        "cluster_udn_red",
        1,
        &["10.150.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    view.share.network.advertised.default_vrf = true;
    view.share.host_subnets = vec!["10.150.1.0/24".parse().unwrap()];
    view.no_overlay(|options| options.outbound_snat = snat);
    view
}

/// Flows that translate pods of red, each by its set.
fn translations(northd: &Northd) -> Vec<String> {
    northd.nbctl(&["sync"]);
    let flows = northd.flows("cluster_udn_red_ovn_cluster_router");
    let of_pods = flows
        .lines()
        .filter(|line| line.contains("ip4.src == 10.150.1.0/24") && line.contains("ct_snat"));
    of_pods.map(|line| line.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rows_of_one_subnet_translate_each_towards_its_set() {
    if absent(NORTHD_TOOLS) {
        return;
    }
    let fixture = Fixture::start().await.unwrap();
    let northd = Northd::over(&fixture.server);
    let nodes = shared::node_ips(Family::V4).id;
    let services = services::allowed(Family::V4).id;
    let both = [
        format!("ip4.dst == ${nodes}"),
        format!("ip4.dst == ${services}"),
    ];
    for (mode, snat) in [
        (GatewayMode::Shared, true),
        (GatewayMode::Local, false),
        (GatewayMode::Local, true),
        (GatewayMode::Shared, false),
    ] {
        let view = mk_red(mode, snat);
        fixture.pass(&shared_rows(&view)).await;
        fixture.pass(&rows_of(&view)).await;
        let found = translations(&northd);
        // Northd makes more than one flow of a row.
        let of = |to: &str| found.iter().filter(|flow| flow.contains(to)).count();
        let [to_nodes, to_services] = both.each_ref().map(|to| of(to));
        let without_set = found.len() - to_nodes - to_services;
        let exempts = mode == GatewayMode::Local && snat;
        let found = format!("{mode:?} {snat}: {found:#?}");
        assert_eq!(to_nodes > 0, !exempts, "{found}");
        assert_eq!(to_services, to_nodes, "{found}");
        assert_eq!(without_set > 0, exempts, "{found}");
    }
    let view = mk_red(GatewayMode::Shared, true);
    fixture.pass(&rows_of(&view)).await;
    northd.nbctl(&["sync"]);
    let cluster = northd.flows("cluster_udn_red_ovn_cluster_router");
    assert!(cluster.contains("ip4.dst == 172.31.0.1/32"), "{cluster}");
    let gateway = northd.flows("GR_cluster_udn_red_n1");
    assert!(gateway.contains("ip4.dst == 169.254.0.0/17"), "{gateway}");
}
