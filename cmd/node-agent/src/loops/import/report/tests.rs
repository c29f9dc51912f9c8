//! What the report says of what drops.

use super::*;
use model::Scope;
use model::gateway::BgpDefault;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};
use testkit::{mk_network, mk_node};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(to: &str, kind: RouteKind) -> KernelRoute {
    let path = RoutePath {
        gateway: Some("172.30.0.2".parse().unwrap()),
        oif: 3,
    };
    KernelRoute {
        table: MAIN_TABLE,
        prefix: prefix(to),
        metric: 20,
        kind,
        paths: if kind == RouteKind::Unicast {
            vec![path]
        } else {
            Vec::new()
        },
    }
}

fn mk_scope() -> Scope {
    Scope {
        gateway_link: Some(3),
        cluster_subnets: vec![prefix("10.128.0.0/14")],
        host_subnets: vec![prefix("10.128.0.0/23")],
        join_subnets: Vec::new(),
        other_networks: model::subnets::Subnets::default(),
        own_addresses: std::collections::BTreeSet::new(),
        no_overlay: true,
        taken: std::collections::BTreeSet::new(),
        fallbacks: BTreeMap::new(),
        fallbacks_known: true,
        bgp_default: BgpDefault::Ignore,
    }
}

fn importer(routes: Vec<KernelRoute>, rows: &[RouteRow]) -> Importer<Uuid> {
    let mut importer = Importer::new(100);
    importer.set_table(Some(MAIN_TABLE));
    importer.set_links([(3, true)].into());
    importer.set_scope(mk_scope());
    importer.dump(routes);
    for row in rows {
        importer.row(ovsdb::random_uuid(), None, Some(row));
    }
    importer
}

fn imported(to: &str) -> RouteRow {
    RouteRow::Import(ImportedRoute {
        prefix: prefix(to),
        nexthop: "172.30.0.2".parse().unwrap(),
    })
}

/// Kernel and OVN have so many of one subnet of n2.
fn counts(importer: &Importer<Uuid>) -> (usize, usize) {
    let expected = [(NodeName::from("n2"), vec![prefix("10.128.2.0/23")])].into();
    let coverage = evaluate(&expected, importer, None);
    assert_eq!(coverage.missing.len(), usize::from(!coverage.is_complete()));
    (coverage.in_kernel, coverage.in_ovn)
}

#[test]
fn what_drops_hides_a_shorter_route_and_the_report_names_the_subnet() {
    let leaked = || vec![route("10.0.0.0/8", RouteKind::Unicast)];
    let ours = RouteRow::Topology {
        prefix: prefix("10.128.0.0/14"),
        discards: true,
    };
    let leaked_row = imported("10.0.0.0/8");
    let (kernel, ovn) = (1, 1);
    // The topology's row that drops, between the aggregate and the subnet that nobody announces.
    let seen = importer(leaked(), &[leaked_row.clone(), ours.clone()]);
    assert_eq!(counts(&seen), (kernel, 0));
    let seen = importer(leaked(), std::slice::from_ref(&leaked_row));
    assert_eq!(counts(&seen), (kernel, ovn));
    // The subnet itself is there.
    let mut routes = leaked();
    routes.push(route("10.128.2.0/23", RouteKind::Unicast));
    let rows = [leaked_row.clone(), ours, imported("10.128.2.0/23")];
    assert_eq!(counts(&importer(routes, &rows)), (kernel, ovn));
    // A learned blackhole in the kernel, a foreign row that drops in OVN.
    let mut routes = leaked();
    routes.push(route("10.128.0.0/16", RouteKind::Other));
    let foreign = RouteRow::Discard(prefix("10.128.2.0/23"));
    let rows = [
        leaked_row,
        foreign,
        RouteRow::Other(Some(prefix("10.128.0.0/14"))),
    ];
    assert_eq!(counts(&importer(routes, &rows)), (0, 0));
}

#[test]
fn a_claim_that_is_not_believed_is_not_expected() {
    let mut network = mk_network();
    network.subnets = vec!["10.128.0.0/14/23".parse().unwrap()];
    let nodes = [
        mk_node("n1", &[("default", &["10.128.0.0/23"])]),
        mk_node("n2", &[("default", &["10.128.2.0/23", "0.0.0.0/0"])]),
        // The own subnet, to which there is never a route.
        mk_node("n3", &[("default", &["::/0", "10.128.0.0/23"])]),
    ];
    let claims = plan_node::claims::evaluate(&network, &nodes, &[]);
    let expected = expected(&NodeName::from("n1"), &claims.owners);
    let wanted = [(NodeName::from("n2"), vec![prefix("10.128.2.0/23")])];
    assert_eq!(expected, wanted.into());
}

#[test]
fn a_route_outside_of_the_network_that_comes_and_goes_changes_nothing_that_is_written() {
    let inputs = Inputs {
        learns: true,
        table: Some(MAIN_TABLE),
        scope: mk_scope(),
        owners: Subnets::from_iter([(prefix("10.128.2.0/23"), NodeName::from("n2"))]),
        release: None,
        sets: None,
    };
    let pods = || {
        vec![
            route("10.128.2.0/23", RouteKind::Unicast),
            route("10.128.0.0/24", RouteKind::Unicast),
        ]
    };
    let reported = |routes: Vec<KernelRoute>, rows: &[RouteRow]| {
        let (network, own) = (NetworkName::default_network(), NodeName::from("n1"));
        ImportReport::of(&network, &own, (&importer(routes, rows), None), &inputs).routes
    };
    let quiet = reported(pods(), &[imported("10.128.2.0/23")]);
    assert_eq!((quiet.imported, quiet.in_kernel, quiet.in_ovn), (1, 1, 1));
    assert_eq!(
        quiet.skipped.len(),
        1,
        "the own subnet is left out, and that is reported"
    );
    for outside in ["192.0.2.0/24", "10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"] {
        for kind in [RouteKind::Unicast, RouteKind::Other] {
            let mut routes = pods();
            routes.push(route(outside, kind));
            let rows = [imported("10.128.2.0/23"), imported(outside)];
            // It has come to the kernel, to OVN too, and has gone from the kernel again.
            assert_eq!(reported(routes.clone(), &rows[..1]), quiet, "{outside}");
            assert_eq!(reported(routes, &rows), quiet, "{outside}");
            assert_eq!(reported(pods(), &rows), quiet, "{outside}");
        }
    }
    assert_ne!(reported(pods(), &[]), quiet);
    assert_ne!(reported(Vec::new(), &[imported("10.128.2.0/23")]), quiet);
}
