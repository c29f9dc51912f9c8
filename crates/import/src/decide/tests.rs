//! Every rule of the import, and that order does not matter.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use model::nb::{ImportTarget, ImportedRoute};
use model::route::MAIN_TABLE;
use plan_node::{check, learn, north};
use proptest::prelude::*;
use rib::Rib;
use testkit::{mk_scope_of, mk_view};

const BRIDGE: u32 = 3;

/// What the gateway router should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImportPlan {
    /// The rows, one per prefix and next hop.
    pub(crate) desired: BTreeSet<ImportedRoute>,
    /// By reason: one of the constants of this module.
    pub(crate) skipped: BTreeMap<&'static str, Skipped>,
}

impl ImportPlan {
    fn skip(&mut self, reason: &'static str, prefix: Prefix) {
        let skipped = self.skipped.entry(reason).or_default();
        skipped.count += 1;
        if skipped.first.len() < NAMED {
            skipped.first.push(prefix);
        }
    }
}

/// Decides over the best routes of the network's table (`rib::Rib::view`), in the order of prefixes: all at once what
/// [`crate::Importer`] does step by step.
pub(crate) fn plan(routes: impl IntoIterator<Item = KernelRoute>, scope: &Scope) -> ImportPlan {
    let mut plan = ImportPlan::default();
    for route in routes {
        let prefix = route.prefix;
        let decision = decide(&route, scope);
        let row = |nexthop| ImportedRoute { prefix, nexthop };
        plan.desired.extend(decision.hops.into_iter().map(row));
        for reason in decision.reasons {
            plan.skip(reason, prefix);
        }
    }
    plan
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(to: &str, paths: &[(&str, u32)]) -> KernelRoute {
    KernelRoute {
        table: MAIN_TABLE,
        prefix: prefix(to),
        metric: 20,
        kind: RouteKind::Unicast,
        paths: paths
            .iter()
            .map(|(gateway, oif)| RoutePath {
                gateway: (!gateway.is_empty()).then(|| gateway.parse().unwrap()),
                oif: *oif,
            })
            .collect(),
    }
}

fn mk_scope() -> Scope {
    let view = mk_view(1);
    let mut taken =
        learn::topology_prefixes(&north::plan(view.get()), &view.get().gateway_router());
    let giving_way = learn::fallbacks(view.get(), BgpDefault::Ignore);
    taken.retain(|prefix| !giving_way.contains_key(prefix));
    mk_scope_of(&view, taken, BgpDefault::Ignore)
}

fn checked(routes: Vec<KernelRoute>, scope: &Scope) -> ImportPlan {
    let plan = plan(routes, scope);
    let view = mk_view(1);
    assert_eq!(
        check::imports(
            &ImportTarget::of(view.get().name(), &view.node.name),
            &plan.desired,
            &scope.own_addresses
        ),
        []
    );
    plan
}

/// The one reason for which a single route is left out.
fn refused(route: KernelRoute, scope: &Scope) -> &'static str {
    let to = route.prefix;
    let plan = checked(vec![route], scope);
    assert_eq!(plan.desired, BTreeSet::new());
    assert_eq!(plan.skipped.len(), 1);
    let (reason, skipped) = plan.skipped.first_key_value().unwrap();
    assert_eq!(skipped.count, 1);
    assert_eq!(skipped.first, [to]);
    reason
}

fn rows(plan: &ImportPlan) -> Vec<String> {
    plan.desired
        .iter()
        .map(|row| format!("{} via {}", row.prefix, row.nexthop))
        .collect()
}

#[test]
fn a_remote_subnet_over_the_gateway_bridge_is_imported() {
    let plan = checked(
        vec![route("10.128.2.0/24", &[("172.30.0.2", BRIDGE)])],
        &mk_scope(),
    );
    assert_eq!(rows(&plan), ["10.128.2.0/24 via 172.30.0.2"]);
    assert!(plan.skipped.is_empty());
}

#[test]
fn equal_paths_are_one_row_each() {
    let paths = [("172.30.0.2", BRIDGE), ("172.30.0.3", BRIDGE)];
    let plan = checked(vec![route("192.0.2.0/24", &paths)], &mk_scope());
    assert_eq!(
        rows(&plan),
        ["192.0.2.0/24 via 172.30.0.2", "192.0.2.0/24 via 172.30.0.3"]
    );
}

#[test]
fn of_several_paths_only_those_over_the_bridge_count_and_the_rest_is_reported() {
    let paths = [("172.30.0.2", BRIDGE), ("172.31.0.2", 9), ("172.32.0.2", 8)];
    let plan = checked(vec![route("192.0.2.0/24", &paths)], &mk_scope());
    assert_eq!(rows(&plan), ["192.0.2.0/24 via 172.30.0.2"]);
    assert_eq!(plan.skipped[OTHER_LINK].count, 1);
}

#[test]
fn each_rule_has_its_reason() {
    let mut scope = mk_scope();
    scope.other_networks = [(prefix("10.200.7.0/24"), ())].into_iter().collect();
    let good = [("172.30.0.2", BRIDGE)];
    let mut hole = route("192.0.2.0/24", &[]);
    hole.kind = RouteKind::Other;
    for (route, reason) in [
        (hole, NOT_UNICAST),
        (route("0.0.0.0/0", &good), DEFAULT_ROUTE),
        (route("10.128.1.0/24", &good), OWN_SUBNET),
        (route("10.128.1.5/32", &good), OWN_SUBNET),
        (route("10.200.7.0/24", &good), OTHER_NETWORK),
        (route("10.200.7.9/32", &good), OTHER_NETWORK),
        (route("100.64.0.0/16", &good), JOIN_SUBNET),
        (route("100.64.0.7/32", &good), JOIN_SUBNET),
        (route("192.0.2.0/24", &[("172.30.0.2", 9)]), OTHER_LINK),
        (route("192.0.2.0/24", &[("", BRIDGE)]), NO_GATEWAY),
        (
            route("192.0.2.0/24", &[("fe80::2", BRIDGE)]),
            FAMILY_MISMATCH,
        ),
        (
            route("192.0.2.0/24", &[("172.30.0.1", BRIDGE)]),
            SELF_NEXT_HOP,
        ),
    ] {
        assert_eq!(refused(route, &scope), reason);
    }
}

#[test]
fn a_route_that_covers_the_own_subnet_is_imported() {
    let plan = checked(
        vec![route("10.0.0.0/8", &[("172.30.0.2", BRIDGE)])],
        &mk_scope(),
    );
    assert_eq!(rows(&plan), ["10.0.0.0/8 via 172.30.0.2"]);
}

#[test]
fn a_foreign_row_keeps_its_prefix() {
    let mut scope = mk_scope();
    scope.taken.insert(prefix("192.0.2.0/24"));
    let learned = route("192.0.2.0/24", &[("172.30.0.2", BRIDGE)]);
    assert_eq!(refused(learned, &scope), PREFIX_TAKEN);
}

#[test]
fn a_default_route_is_imported_where_it_may_replace_ours() {
    let view = mk_view(1);
    let scope = mk_scope_of(&view, BTreeSet::new(), BgpDefault::Replace);
    let plan = checked(
        vec![route("0.0.0.0/0", &[("172.30.0.100", BRIDGE)])],
        &scope,
    );
    assert_eq!(rows(&plan), ["0.0.0.0/0 via 172.30.0.100"]);
}

#[test]
fn an_overlay_network_keeps_its_own_subnets_for_the_overlay() {
    let mut scope = mk_scope();
    scope.no_overlay = false;
    let remote = route("10.128.2.0/24", &[("172.30.0.2", BRIDGE)]);
    assert_eq!(refused(remote, &scope), OVERLAY_SUBNET);
    let other = route("10.200.2.0/24", &[("172.30.0.2", BRIDGE)]);
    assert_eq!(checked(vec![other], &scope).desired.len(), 1);
}

#[test]
fn without_the_bridge_nothing_is_imported() {
    let mut scope = mk_scope();
    scope.gateway_link = None;
    let learned = route("10.128.2.0/24", &[("172.30.0.2", BRIDGE)]);
    assert_eq!(refused(learned, &scope), OTHER_LINK);
}

#[test]
fn an_ipv6_link_local_next_hop_is_taken_as_it_is() {
    let plan = checked(
        vec![route("fd00:10:0:2::/64", &[("fe80::2", BRIDGE)])],
        &mk_scope(),
    );
    assert_eq!(rows(&plan), ["fd00:10:0:2::/64 via fe80::2"]);
}

#[test]
fn many_skipped_routes_are_counted_and_five_are_named() {
    let routes = (0..20)
        .map(|n| route(&format!("192.0.{n}.0/24"), &[("172.30.0.2", 9)]))
        .collect();
    let plan = checked(routes, &mk_scope());
    let skipped = &plan.skipped[OTHER_LINK];
    assert_eq!(skipped.count, 20);
    assert_eq!(skipped.first.len(), 5);
    assert_eq!(skipped.first[0], prefix("192.0.0.0/24"));
}

fn some_route() -> impl Strategy<Value = KernelRoute> {
    (
        prop::sample::select(vec![
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.128.1.0/24",
            "10.128.2.0/24",
            "10.128.1.128/25",
            "100.64.0.0/16",
            "192.0.2.0/24",
        ]),
        prop::collection::btree_set(
            (
                prop::sample::select(vec!["172.30.0.1", "172.30.0.2", "fe80::2", ""]),
                2_u32..5,
            ),
            0..3,
        ),
    )
        .prop_map(|(to, paths)| route(to, &paths.into_iter().collect::<Vec<_>>()))
}

proptest! {
    #[test]
    fn the_order_of_a_dump_does_not_change_the_plan(
        routes in prop::collection::vec(some_route(), 0..12)
    ) {
        let scope = mk_scope();
        let mut rib = Rib::default();
        rib.set_links(BTreeMap::from([(2, true), (BRIDGE, true), (4, false)]));
        rib.replace(routes.clone());
        let one = checked(rib.view(MAIN_TABLE).collect(), &scope);
        rib.replace(routes.into_iter().rev().collect());
        let two = checked(rib.view(MAIN_TABLE).collect(), &scope);
        prop_assert_eq!(&one, &two);
        for row in &one.desired {
            prop_assert!(!scope.taken.contains(&row.prefix));
            prop_assert!(!scope.host_subnets.iter().any(|s| s.contains(&row.prefix)));
        }
    }
}

#[test]
fn a_path_that_a_row_cannot_say_is_left_out_and_reported() {
    let mut labelled = route("192.0.2.0/24", &[("172.30.0.2", BRIDGE)]);
    labelled.kind = RouteKind::Encapsulated;
    assert_eq!(refused(labelled, &mk_scope()), ENCAPSULATED);
}
