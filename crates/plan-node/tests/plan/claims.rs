//! What is believed of annotations.

use model::node::{Fact, Node};

use import::decide::decide;
use model::address::Prefix;

use model::names::{NetworkName, NodeName};

use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};
use plan_node::claims::*;
use plan_node::learn;
use testkit::{BRIDGE_LINK, mk_network, mk_node, mk_snapshot, mk_view};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn evaluated(nodes: &[Node]) -> Claims {
    evaluate(&mk_network(), nodes, &[])
}

fn reported(claims: &Claims) -> Vec<(&str, &str)> {
    let problems = claims.problems.iter();
    problems.map(|p| (p.subject.as_str(), p.reason)).collect()
}

/// The destinations that are imported in a scope with these claims.
fn imported(claims: Claims, routes: &[&str]) -> Vec<String> {
    let view = mk_view(1);
    let snapshot = mk_snapshot(&view.node, &[view.share]);
    let mut all = learn::plan(&snapshot);
    let mut scope = all.remove(&NetworkName::default_network()).unwrap().scope;
    scope.other_networks = claims.other_networks;
    let routes = routes.iter().map(|to| KernelRoute {
        table: MAIN_TABLE,
        prefix: prefix(to),
        metric: 20,
        kind: RouteKind::Unicast,
        paths: vec![RoutePath {
            gateway: Some("172.30.0.2".parse().unwrap()),
            oif: BRIDGE_LINK,
        }],
    });
    routes
        .filter(|route| !decide(route, &scope).hops.is_empty())
        .map(|route| route.prefix.to_string())
        .collect()
}

#[test]
fn a_subnet_of_another_network_never_hides_the_networks_own_pods_nor_more_than_itself() {
    let routes = [
        "10.128.2.0/24",
        "10.129.0.0/16",
        "10.200.7.0/24",
        "192.0.2.0/24",
    ];
    for (claim, reason) in [
        ("0.0.0.0/0", SUBNET_TOO_SHORT),
        ("10.0.0.0/8", SUBNET_TOO_SHORT),
        ("192.0.0.0/15", SUBNET_TOO_SHORT),
        ("2001:db8::/47", SUBNET_TOO_SHORT),
        ("10.128.0.0/17", SUBNET_OVERLAPS),
        ("10.128.0.0/16", SUBNET_OVERLAPS),
        ("10.128.2.0/24", SUBNET_OVERLAPS),
        ("100.64.7.0/24", SUBNET_OVERLAPS),
        ("::/0", SUBNET_TOO_SHORT),
    ] {
        let claims = evaluated(&[
            mk_node("n2", &[("default", &["10.128.2.0/24"]), ("x", &[claim])]),
            mk_node("n3", &[("blue", &["10.200.7.0/24"])]),
        ]);
        assert_eq!(reported(&claims), [("Node/n2", reason)], "{claim}");
        let message = claims.problems[0].to_string();
        assert!(
            message.contains(claim) && message.contains("network x"),
            "{message}"
        );
        assert_eq!(
            imported(claims, &routes),
            ["10.128.2.0/24", "10.129.0.0/16", "192.0.2.0/24"],
            "{claim}: what is right of another Node still counts"
        );
    }
}

#[test]
fn one_node_hides_no_outside_route_by_sixteen_twelves() {
    let routes = [
        "11.0.0.0/24",
        "11.17.3.0/24",
        "192.0.2.0/24",
        "203.0.113.0/24",
    ];
    let twelves: Vec<String> = (0..16).map(|n| format!("{}.0.0.0/12", n * 16)).collect();
    let twelves: Vec<&str> = twelves.iter().map(String::as_str).collect();
    let claims = evaluated(&[mk_node("n2", &[("x", &twelves)])]);
    assert!(claims.problems.iter().all(|p| p.reason == SUBNET_TOO_SHORT));
    assert_eq!(claims.problems.len(), 16);
    assert_eq!(imported(claims, &routes), routes);
    // Nor by many that are not too large each: sixteen count, and the Node and network are reported.
    let many: Vec<String> = (0..40).map(|n| format!("11.{n}.0.0/16")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let claims = evaluated(&[
        mk_node("n2", &[("x", &many)]),
        mk_node("n3", &[("x", &many[..16])]),
    ]);
    assert_eq!(reported(&claims), [("Node/n2", SUBNETS_TOO_MANY)]);
    let message = &claims.problems[0].message;
    for part in ["40 subnets", "network x", "allowed: 16"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(imported(claims, &routes), &routes[1..]);
}

/// A node that claims sixteen of these for each of as many networks as it needs.
fn inventor(subnets: &[String]) -> Node {
    let lists: Vec<(String, Vec<&str>)> = subnets
        .chunks(16)
        .enumerate()
        .map(|(at, list)| {
            (
                format!("x{at:02}"),
                list.iter().map(String::as_str).collect(),
            )
        })
        .collect();
    let networks: Vec<(&str, &[&str])> = lists
        .iter()
        .map(|(name, list)| (name.as_str(), list.as_slice()))
        .collect();
    mk_node("n2", &networks)
}

#[test]
fn nor_by_networks_that_it_invents() {
    let sixteens: Vec<String> = (0..320)
        .map(|n| format!("{}.{}.0.0/16", 11 + n / 256, n % 256))
        .collect();
    let claims = evaluated(&[
        inventor(&sixteens),
        mk_node("n3", &[("blue", &["10.200.7.0/24"])]),
    ]);
    assert_eq!(reported(&claims), [("Node/n2", SUBNETS_TOO_MANY)]);
    let message = &claims.problems[0].message;
    assert!(
        message.contains("304 subnets") && message.contains("16 of them"),
        "{message}"
    );
    let routes = [
        "10.200.7.0/24",
        "11.5.0.0/24",
        "11.16.0.0/24",
        "11.200.0.0/24",
        "12.3.0.0/24",
    ];
    assert_eq!(imported(claims, &routes), &routes[2..]);
    // Small ones: so many that all networks of a large cluster fit.
    let small: Vec<String> = (0..1024)
        .map(|n| format!("11.{}.{}.0/24", n / 256, n % 256))
        .collect();
    let claims = evaluated(&[inventor(&small)]);
    assert_eq!(reported(&claims), [("Node/n2", SUBNETS_TOO_MANY)]);
    let routes = ["11.1.255.0/24", "11.2.0.0/24"];
    assert_eq!(imported(claims, &routes), &routes[1..]);
}

#[test]
fn a_claim_over_the_subnets_of_other_nodes_is_nobodys() {
    let of = |name: &str, subnets: &[&str]| mk_node(name, &[("default", subnets)]);
    let claims = evaluated(&[
        of("n1", &["10.128.1.0/24"]),
        of("n2", &["10.128.2.0/24"]),
        // Both claims of the same subnet count: which of them is wrong is not known here.
        of("y", &["10.128.2.0/24"]),
        // Nor who is right where one lies in the other.
        of("n4", &["10.128.4.0/24"]),
        of("x", &["10.128.4.0/25"]),
        of("z", &["10.128.0.0/16", "10.128.9.0/24"]),
    ]);
    assert_eq!(reported(&claims), [("Node/z", SUBNET_COVERS)]);
    let message = &claims.problems[0].message;
    for part in ["10.128.0.0/16", "10.128.1.0/24 of node n1", "of node n2"] {
        assert!(message.contains(part), "{message}");
    }
    let owners: Vec<String> = claims
        .owners
        .pairs()
        .map(|(subnet, node)| format!("{subnet} {node}"))
        .collect();
    assert_eq!(
        owners,
        [
            "10.128.1.0/24 n1",
            "10.128.2.0/24 n2",
            "10.128.2.0/24 y",
            "10.128.4.0/24 n4",
            "10.128.4.0/25 x",
            "10.128.9.0/24 z"
        ]
    );
}

#[test]
fn a_pod_subnet_outside_of_the_network_is_nobodys_and_costs_its_own_node_nothing_else() {
    let claims = evaluated(&[
        mk_node(
            "n2",
            &[("default", &["10.128.2.0/24", "0.0.0.0/0", "fd00:10::/64"])],
        ),
        mk_node("n3", &[("default", &["10.128.3.0/24"])]),
    ]);
    let owner = |text: &str, node: &str| (prefix(text), NodeName::from(node));
    let wanted = [owner("10.128.2.0/24", "n2"), owner("10.128.3.0/24", "n3")];
    assert_eq!(claims.owners, wanted.into_iter().collect());
    let expected = [("Node/n2", SUBNET_OUTSIDE), ("Node/n2", SUBNET_OUTSIDE)];
    assert_eq!(reported(&claims), expected);
}

#[test]
fn a_host_mtu_that_cannot_be_rules_nobody_and_is_reported() {
    let mut nodes = ["n1", "n2", "n3", "n4", "n5", "n6"].map(|name| mk_node(name, &[]));
    let mtus = [
        Fact::Known(9000),
        Fact::Known(0),
        Fact::Known(60),
        Fact::Known(1279),
        Fact::Known(70_000),
        Fact::Absent,
    ];
    for (node, mtu) in nodes.iter_mut().zip(mtus) {
        node.host_mtu = mtu;
    }
    let claims = evaluated(&nodes);
    let names = ["Node/n2", "Node/n3", "Node/n4", "Node/n5"];
    assert_eq!(
        reported(&claims),
        names.map(|name| (name, MTU_OUT_OF_RANGE))
    );
    assert!(claims.problems[1].message.contains("60"));
    nodes[5].host_mtu = Fact::Known(1280);
    assert_eq!(evaluated(&nodes[4..]).problems.len(), 1);
}

#[test]
fn nothing_in_a_world_of_other_networks_hides_the_own_pods() {
    // Even where somebody makes the scope by hand.
    let claims = Claims {
        other_networks: [(prefix("10.128.0.0/14"), ())].into_iter().collect(),
        ..Claims::default()
    };
    let routes = ["10.128.2.0/24", "10.129.0.0/24"];
    assert_eq!(imported(claims, &routes), ["10.128.2.0/24"]);
}
