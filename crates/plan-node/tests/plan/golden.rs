//! Whole plans as text, compared with `tests/golden/<case>/NN-plan.txt`; `UPDATE_GOLDEN=1` writes them again.
//! In: snapshots of `testkit`. Out: a failed test with both texts. Invariant: every plan that is compared is also checked.
//! Not here: why a plan is as it is (each case's `why.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use import::decide::decide;
use model::address::{Family, Prefix};
use model::gateway::GatewayMode;
use model::names::NetworkName;
use model::nb::{ImportTarget, ImportedRoute, Owner};
use model::network::Transport;
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath, TableId};
use plan_node::{
    NetworkShare, Plan, RemoteNode, Services, Share, Snapshot, UnknownShare, check, learn,
};
use testkit::{
    BRIDGE_LINK, View, mk_layer2_network, mk_layer2_share, mk_snapshot, mk_user_network, mk_view,
};

use crate::{render, services};

/// What each network makes of the other nodes' subnets, a default route and the own subnet, all over the gateway bridge.
fn learned(snapshot: &Snapshot, plan: &Plan) -> String {
    let mut out = String::from("# Imports\n");
    for (name, view) in snapshot.here() {
        let Some(inputs) = plan.learn.get(name) else {
            writeln!(out, "network {name}: nothing is learned").unwrap();
            continue;
        };
        if plan.learn.len() > 1 {
            writeln!(out, "network {name}, table {:?}", inputs.table).unwrap();
        }
        if !inputs.learns {
            out.push_str("learns nothing\n");
            continue;
        }
        let mut scope = inputs.scope.clone();
        let owner = Owner::Network(name.clone());
        let target = ImportTarget::of(name, &view.node.name);
        // What a gateway router holds of its own is known from the database.
        scope.taken = learn::topology_prefixes(&plan.north[&owner], &target.router);
        let table = inputs.table.unwrap_or(MAIN_TABLE);
        let mut dump = vec![kernel_route(table, "0.0.0.0/0", "172.30.0.100")];
        for own in &view.share.host_subnets {
            let gateway = gateway_of(own, 100);
            dump.push(kernel_route(table, &own.to_string(), &gateway));
            for number in (1..=3).filter(|n| format!("n{n}") != view.node.name.as_str()) {
                let other =
                    own.to_string()
                        .replacen(&third(own, view.node.id - 1), &third(own, number), 1);
                dump.push(kernel_route(table, &other, &gateway_of(own, number)));
            }
        }
        let mut rows = BTreeSet::new();
        let mut skipped: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        dump.sort_by_key(|route| route.prefix);
        for route in dump {
            let decision = decide(&route, &scope);
            let prefix = route.prefix;
            let row = |nexthop| ImportedRoute { prefix, nexthop };
            rows.extend(decision.hops.into_iter().map(row));
            for reason in decision.reasons {
                skipped.entry(reason).or_default().push(prefix.to_string());
            }
        }
        assert_eq!(check::imports(&target, &rows, &scope.own_addresses), []);
        for row in &rows {
            writeln!(out, "{} via {}", row.prefix, row.nexthop).unwrap();
        }
        for (reason, prefixes) in &skipped {
            writeln!(
                out,
                "skipped {} {reason}: {}",
                prefixes.len(),
                prefixes.join(", ")
            )
            .unwrap();
        }
    }
    out
}

/// The part of a node's subnet that is the node's: `.N.` or `:N:`.
fn third(subnet: &Prefix, number: u32) -> String {
    match subnet.family() {
        Family::V4 => format!(".{number}."),
        Family::V6 => format!(":{number}:"),
    }
}

/// Node or router `number` on the underlay.
fn gateway_of(subnet: &Prefix, number: u32) -> String {
    match subnet.family() {
        Family::V4 => format!("172.30.0.{number}"),
        Family::V6 => format!("fd00:30::{number}"),
    }
}

fn kernel_route(table: TableId, to: &str, gateway: &str) -> KernelRoute {
    KernelRoute {
        table,
        prefix: to.parse().unwrap(),
        metric: 20,
        kind: RouteKind::Unicast,
        paths: vec![RoutePath {
            gateway: Some(gateway.parse().unwrap()),
            oif: BRIDGE_LINK,
        }],
    }
}

/// The whole plan of a snapshot, which breaks no invariant.
fn whole(snapshot: &Snapshot) -> String {
    let plan = plan_node::plan(snapshot);
    let said: String = check::plan(snapshot, &plan)
        .iter()
        .map(|(owner, violation)| format!("# {owner}: {violation}\n"))
        .collect();
    let unknown: Vec<&str> = plan.unknown.iter().map(|name| name.as_str()).collect();
    let unknown = match unknown.as_slice() {
        [] => String::new(),
        names => format!("# Not known yet: {}\n", names.join(", ")),
    };
    [
        unknown,
        said,
        render::global(&plan),
        render::northbound(&render::rows(&plan)),
        render::kernel(&plan),
        render::filter(&plan),
        render::flows(&plan),
        learned(snapshot, &plan),
        render::published(&plan),
    ]
    .concat()
}

fn compare(case: &str, number: u8, snapshot: &Snapshot) {
    testkit::golden::compare(case, &format!("{number:02}-plan.txt"), &whole(snapshot));
}

fn mk_default(view: &View) -> Snapshot {
    assert_eq!(view.get().problems(), []);
    mk_snapshot(&view.node, std::slice::from_ref(&view.share))
}

#[test]
fn default_three_nodes() {
    for number in 1..=3 {
        compare("default-three-nodes", number, &mk_default(&mk_view(number)));
    }
}

#[test]
fn snat_disabled_without_and_with_the_match_column() {
    let mut view = mk_view(1);
    view.no_overlay(|options| options.outbound_snat = false);
    compare("snat-disabled", 1, &mk_default(&view));
    view.node.nat_has_match = true;
    compare("snat-disabled", 2, &mk_default(&view));
}

#[test]
fn local_gateway_mode() {
    let mut view = with_ipv6(true);
    view.node.mode = GatewayMode::Local;
    compare("local-gateway", 1, &mk_default(&view));
    view.no_overlay(|options| options.outbound_snat = false);
    view.node.nat_has_match = true;
    compare("local-gateway", 2, &mk_default(&view));
    let (mut view, mut shares) = two_of_one_subnet();
    view.node.mode = GatewayMode::Local;
    shares[1].network.advertised.default_vrf = true;
    shares[2].network.advertised.own_vrf = true;
    compare("local-gateway", 3, &mk_snapshot(&view.node, &shares));
}

#[test]
fn a_layer_2_network_in_both_gateway_modes() {
    let mut view = with_ipv6(true);
    view.node.nat_has_match = true;
    let mut network = mk_layer2_network("cluster_udn_gray", 4, &["10.153.0.0/16", "fd53::/64"]);
    network.advertised.default_vrf = true;
    let remote = RemoteNode {
        id: 3,
        chassis: "n2".to_owned(),
        encap_ips: ["172.30.0.2".parse().unwrap()].into(),
    };
    view.node.remotes.insert("n2".into(), remote);
    let shares = [view.share.clone(), mk_layer2_share(network)];
    compare("layer2", 1, &mk_snapshot(&view.node, &shares));
    view.node.mode = GatewayMode::Local;
    compare("layer2", 2, &mk_snapshot(&view.node, &shares));
}

#[test]
fn services_that_a_network_of_users_may_use_in_both_gateway_modes() {
    for (number, mode) in [(1, GatewayMode::Shared), (2, GatewayMode::Local)] {
        compare("users-services", number, &services::mk(mode, true));
    }
}

/// Default network and network of users with an overlay, neither advertised, on node n1 of two.
#[test]
fn an_overlay_of_users_that_is_not_advertised_in_both_gateway_modes() {
    let mut view = mk_view(1);
    view.node.nat_has_match = true;
    view.node.service_cidrs = vec!["172.31.0.0/16".parse().unwrap()];
    let kubernetes = ["172.31.0.1".parse().unwrap()].into();
    let allowed = [("default/kubernetes".to_owned(), kubernetes)].into();
    view.node.services = Some(Services { allowed });
    let remote = RemoteNode {
        id: 3,
        chassis: "n2".to_owned(),
        encap_ips: ["172.30.0.2".parse().unwrap()].into(),
    };
    view.node.remotes.insert("n2".into(), remote);
    let mut users = view.share.clone();
    users.network = mk_user_network(
        "cluster_udn_plain",
        5,
        &["10.154.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    users.host_subnets = vec!["10.154.1.0/24".parse().unwrap()];
    let mut shares = [view.share.clone(), users];
    for (share, other) in shares.iter_mut().zip(["10.128.2.0/24", "10.154.2.0/24"]) {
        share.network.transport = Transport::Geneve;
        share.mtu = 1442;
        share.remote_subnets = vec![(other.parse().unwrap(), "n2".into())];
    }
    for (number, mode) in [(1, GatewayMode::Shared), (2, GatewayMode::Local)] {
        view.node.mode = mode;
        let snapshot = mk_snapshot(&view.node, &shares);
        compare("users-not-advertised", number, &snapshot);
    }
}

#[test]
fn two_cluster_subnets() {
    let mut view = mk_view(1);
    view.add_subnet("10.132.0.0/16/25");
    compare("two-cluster-subnets", 1, &mk_default(&view));
}

/// Node n1 with the default network, and two networks of users that have one subnet.
fn two_of_one_subnet() -> (View, [NetworkShare; 3]) {
    let view = mk_view(1);
    let share = |name, id| NetworkShare {
        network: mk_user_network(name, id, &["10.200.0.0/16/24"], &["100.65.0.0/16"]),
        host_subnets: vec!["10.200.1.0/24".parse().unwrap()],
        remote_subnets: Vec::new(),
        mtu: 1500,
        vrf: None,
    };
    let blue = share("cluster_udn_blue", 1);
    let red = share("cluster_udn_red", 2);
    let default = view.share.clone();
    (view, [default, blue, red])
}

#[test]
fn two_networks_of_one_subnet_in_two_vrfs() {
    let (view, shares) = two_of_one_subnet();
    compare("two-vrfs-one-subnet", 1, &mk_snapshot(&view.node, &shares));
}

#[test]
fn a_network_that_is_removed_leaves_the_others_as_they_are() {
    let (view, [default, blue, _]) = two_of_one_subnet();
    let snapshot = mk_snapshot(&view.node, &[default, blue]);
    compare("two-vrfs-one-subnet", 2, &snapshot);
}

#[test]
fn a_network_that_is_not_known_yet_stands_beside_two_that_are() {
    let (view, shares) = two_of_one_subnet();
    let mut snapshot = mk_snapshot(&view.node, &shares);
    let red = NetworkName::from("cluster_udn_red");
    let unknown = UnknownShare {
        network: Some(shares[2].network.clone()),
        host_subnets: Vec::new(),
    };
    snapshot
        .networks
        .insert(red.clone(), Share::Unknown(unknown));
    compare("two-vrfs-one-subnet", 3, &snapshot);
}

/// The default network with IPv6 alone, or with both families.
fn with_ipv6(also_ipv4: bool) -> View {
    let mut view = mk_view(1);
    if !also_ipv4 {
        view.share.network.subnets.clear();
        view.share.network.join_subnets.clear();
        view.share.host_subnets.clear();
        view.node.gateway.addresses.clear();
        view.node.gateway.next_hops.clear();
        view.node.host_addresses.clear();
        view.node.node_addresses.clear();
    }
    view.add_subnet("fd00:10:128::/48/64");
    let network = &mut view.share.network;
    network.join_subnets.push("fd98::/64".parse().unwrap());
    view.share
        .host_subnets
        .push("fd00:10:128:1::/64".parse().unwrap());
    let gateway = &mut view.node.gateway;
    gateway.addresses.push("fd00:30::1/64".parse().unwrap());
    gateway.next_hops.push("fd00:30::100".parse().unwrap());
    let own = "fd00:30::1".parse().unwrap();
    view.node.host_addresses.insert(own);
    for number in 1..=3 {
        let address = format!("fd00:30::{number}").parse().unwrap();
        view.node.node_addresses.insert(address);
    }
    view
}

#[test]
fn ipv6_alone_and_both_families() {
    compare("ipv6", 1, &mk_default(&with_ipv6(false)));
    compare("ipv6", 2, &mk_default(&with_ipv6(true)));
}
