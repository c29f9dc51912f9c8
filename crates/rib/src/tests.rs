//! Tables and properties of the RIB.

use super::*;
use model::route::MAIN_TABLE;
use proptest::prelude::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn path(gateway: &str, oif: u32) -> RoutePath {
    RoutePath {
        gateway: Some(gateway.parse().unwrap()),
        oif,
    }
}

fn route(to: &str, metric: u32, paths: &[RoutePath]) -> KernelRoute {
    KernelRoute {
        table: MAIN_TABLE,
        prefix: prefix(to),
        metric,
        kind: RouteKind::Unicast,
        paths: paths.to_vec(),
    }
}

fn rib(links: &[(u32, bool)], routes: Vec<KernelRoute>) -> Rib {
    let mut rib = Rib::default();
    rib.set_links(links.iter().copied().collect());
    rib.replace(routes);
    rib
}

#[test]
fn a_first_dump_changes_every_destination_once() {
    let mut rib = Rib::default();
    let dump = vec![
        route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)]),
        route("10.1.0.0/24", 30, &[path("172.30.0.3", 3)]),
    ];
    let key = (MAIN_TABLE, prefix("10.1.0.0/24"));
    assert_eq!(rib.replace(dump.clone()), BTreeSet::from([key]));
    assert_eq!(rib.replace(dump), BTreeSet::new());
    assert_eq!(rib.len(), 2);
    assert_eq!(rib.replace(Vec::new()), BTreeSet::from([key]));
    assert!(rib.is_empty());
}

#[test]
fn order_and_repetition_in_a_dump_are_no_change() {
    let one = route(
        "10.1.0.0/24",
        20,
        &[path("172.30.0.2", 3), path("172.30.0.3", 3)],
    );
    let two = route("10.2.0.0/24", 20, &[path("172.30.0.4", 3)]);
    let mut turned = one.clone();
    turned.paths.reverse();
    let mut rib = rib(&[(3, true)], vec![one, two.clone()]);
    assert_eq!(rib.replace(vec![two.clone(), turned, two]), BTreeSet::new());
    assert_eq!(rib.len(), 2);
}

#[test]
fn the_lowest_metric_is_what_the_kernel_uses() {
    let rib = rib(
        &[(3, true)],
        vec![
            route("10.1.0.0/24", 30, &[path("172.30.0.3", 3)]),
            route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)]),
        ],
    );
    let view: Vec<KernelRoute> = rib.view(MAIN_TABLE).collect();
    assert_eq!(view, [route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)])]);
}

#[test]
fn a_route_over_a_dead_link_gives_way_to_the_next_metric() {
    let best = path("172.30.0.2", 3);
    let next = path("172.31.0.2", 4);
    let mut rib = rib(
        &[(3, false), (4, true)],
        vec![
            route("10.1.0.0/24", 20, &[best]),
            route("10.1.0.0/24", 30, &[next]),
        ],
    );
    let view: Vec<KernelRoute> = rib.view(MAIN_TABLE).collect();
    assert_eq!(view, [route("10.1.0.0/24", 30, &[next])]);
    let changed = rib.set_links(BTreeMap::from([(3, true), (4, true)]));
    assert_eq!(
        changed,
        BTreeSet::from([(MAIN_TABLE, prefix("10.1.0.0/24"))])
    );
    let view: Vec<KernelRoute> = rib.view(MAIN_TABLE).collect();
    assert_eq!(view, [route("10.1.0.0/24", 20, &[best])]);
}

#[test]
fn of_a_multipath_route_only_paths_over_live_links_count() {
    let alive = path("172.30.0.2", 3);
    let rib = rib(
        &[(3, true), (4, false)],
        vec![route(
            "10.1.0.0/24",
            20,
            &[
                alive,
                path("172.31.0.2", 4),
                path("172.32.0.2", 5),
                path("172.33.0.2", 0),
            ],
        )],
    );
    let view: Vec<KernelRoute> = rib.view(MAIN_TABLE).collect();
    assert_eq!(view, [route("10.1.0.0/24", 20, &[alive])]);
}

#[test]
fn without_a_live_leg_nothing_is_shown() {
    let rib = rib(
        &[],
        vec![
            route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)]),
            route("10.2.0.0/24", 20, &[]),
        ],
    );
    assert_eq!(rib.view(MAIN_TABLE).count(), 0);
}

#[test]
fn a_blackhole_hides_worse_routes() {
    let mut hole = route("10.1.0.0/24", 10, &[]);
    hole.kind = RouteKind::Other;
    let rib = rib(
        &[(3, true)],
        vec![
            hole.clone(),
            route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)]),
        ],
    );
    assert_eq!(rib.view(MAIN_TABLE).collect::<Vec<_>>(), [hole]);
}

#[test]
fn tables_do_not_see_each_other() {
    let mut other = route("10.1.0.0/24", 10, &[path("172.30.0.2", 3)]);
    other.table = 7;
    let rib = rib(&[(3, true)], vec![other.clone()]);
    assert_eq!(rib.view(MAIN_TABLE).count(), 0);
    assert_eq!(rib.view(7).collect::<Vec<_>>(), [other]);
}

#[test]
fn a_link_nobody_routes_over_changes_nothing() {
    let mut rib = rib(
        &[(3, true)],
        vec![route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)])],
    );
    let links = BTreeMap::from([(3, true), (9, true)]);
    assert_eq!(rib.set_links(links), BTreeSet::new());
}

fn some_route() -> impl Strategy<Value = KernelRoute> {
    (
        0_u8..6,
        prop::sample::select(vec![7_u32, MAIN_TABLE]),
        0_u32..3,
        prop::bool::weighted(0.2),
        prop::collection::btree_set((0_u8..3, 0_u32..4), 0..3),
    )
        .prop_map(|(net, table, metric, other, paths)| KernelRoute {
            table,
            prefix: prefix(&format!("10.{net}.0.0/16")),
            metric,
            kind: if other {
                RouteKind::Other
            } else {
                RouteKind::Unicast
            },
            paths: paths
                .into_iter()
                .map(|(host, oif)| path(&format!("172.30.0.{host}"), oif))
                .collect(),
        })
}

proptest! {
    #[test]
    fn changed_keys_are_those_of_the_symmetric_difference(
        dumps in prop::collection::vec(prop::collection::vec(some_route(), 0..20), 1..6)
    ) {
        let mut rib = Rib::default();
        let mut before: BTreeSet<KernelRoute> = BTreeSet::new();
        for dump in dumps {
            let after: BTreeSet<KernelRoute> = dump.iter().cloned().collect();
            let expected: BTreeSet<RouteKey> = before
                .symmetric_difference(&after)
                .map(|route| (route.table, route.prefix))
                .collect();
            prop_assert_eq!(rib.replace(dump), expected);
            prop_assert_eq!(rib.len(), after.len());
            before = after;
        }
    }

    #[test]
    fn a_view_depends_on_the_last_dump_and_links_only(
        first in prop::collection::vec(some_route(), 0..20),
        last in prop::collection::vec(some_route(), 0..20),
        up in prop::collection::btree_map(0_u32..4, any::<bool>(), 0..4),
    ) {
        let mut travelled = Rib::default();
        travelled.replace(first);
        travelled.set_links(up.clone());
        travelled.replace(last.clone());
        let mut fresh = Rib::default();
        fresh.replace(last.into_iter().rev().collect());
        fresh.set_links(up.clone());
        let shown: Vec<KernelRoute> = fresh.view(MAIN_TABLE).collect();
        prop_assert_eq!(&travelled.view(MAIN_TABLE).collect::<Vec<_>>(), &shown);
        for pair in shown.windows(2) {
            prop_assert!(pair[0].prefix < pair[1].prefix);
        }
        for route in &shown {
            prop_assert!(route.paths.iter().all(|path| up.get(&path.oif) == Some(&true)));
            prop_assert_eq!(route.kind == RouteKind::Other, route.paths.is_empty());
        }
    }
}

fn event(change: RouteChange, route: KernelRoute) -> RouteEvent {
    RouteEvent {
        change,
        protocol: 186,
        route,
    }
}

#[test]
fn events_that_could_mean_two_things_ask_for_a_dump_and_change_nothing() {
    let here = path("172.30.0.2", 3);
    let there = path("172.30.0.3", 3);
    let one = route("10.1.0.0/24", 20, &[here]);
    let two = route("10.1.0.0/24", 20, &[there]);
    let mut rib = rib(&[(3, true)], vec![one.clone()]);
    let shown = |rib: &Rib| rib.view(MAIN_TABLE).collect::<Vec<_>>();
    let mut foreign = event(RouteChange::Replaced, two.clone());
    foreign.protocol = 4;
    for events in [
        vec![event(RouteChange::Gone, two.clone())],
        vec![foreign],
        vec![
            event(RouteChange::Added, two.clone()),
            event(RouteChange::Replaced, two.clone()),
        ],
    ] {
        assert_eq!(rib.apply(186, MAIN_TABLE, events), None);
        assert_eq!(shown(&rib), std::slice::from_ref(&one));
    }
    let mut other = event(RouteChange::Added, route("10.9.0.0/24", 20, &[here]));
    other.protocol = 4;
    let mut elsewhere = event(RouteChange::Gone, one.clone());
    elsewhere.route.table = 7;
    let unknown = event(RouteChange::Gone, route("10.8.0.0/24", 20, &[here]));
    let changed = rib.apply(186, MAIN_TABLE, vec![other, elsewhere, unknown]);
    assert_eq!(changed, Some(BTreeSet::new()));
    let changed = rib.apply(
        186,
        MAIN_TABLE,
        vec![event(RouteChange::Replaced, two.clone())],
    );
    let key = (MAIN_TABLE, prefix("10.1.0.0/24"));
    assert_eq!(changed, Some(BTreeSet::from([key])));
    assert_eq!(shown(&rib), [two]);
    assert_eq!(rib.best_of(MAIN_TABLE, key.1).unwrap().paths, [there]);
}

/// A kernel's main table that tells what happens to it, as IPv4 does: one route per destination and metric.
#[derive(Default)]
struct Kernel(BTreeMap<(Prefix, u32), KernelRoute>);

impl Kernel {
    fn replace(&mut self, route: KernelRoute) -> Option<RouteEvent> {
        let key = (route.prefix, route.metric);
        let before = self.0.insert(key, route.clone());
        let change = match before {
            None => RouteChange::Added,
            Some(_) => RouteChange::Replaced,
        };
        Some(event(change, route))
    }

    fn delete(&mut self, route: &KernelRoute) -> Option<RouteEvent> {
        let gone = self.0.remove(&(route.prefix, route.metric))?;
        Some(event(RouteChange::Gone, gone))
    }
}

proptest! {
    #[test]
    fn a_dump_and_the_events_around_it_end_as_a_dump_at_the_end_would(
        routes in prop::collection::vec((some_route(), any::<bool>()), 0..60),
        cut in 0_usize..60,
        late in 0_usize..20,
        batch in 1_usize..20,
    ) {
        let mut kernel = Kernel::default();
        let mut reported = Vec::new();
        let mut dump = Vec::new();
        let count = routes.len();
        let dumped_at = cut.min(count);
        for (at, (mut route, delete)) in routes.into_iter().enumerate() {
            if at == dumped_at {
                dump = kernel.0.values().cloned().collect();
            }
            route.table = MAIN_TABLE;
            let happened = if delete { kernel.delete(&route) } else { kernel.replace(route) };
            // Events are heard from a little before the dump on.
            if at + late >= dumped_at {
                reported.extend(happened);
            }
        }
        if dumped_at == count {
            dump = kernel.0.values().cloned().collect();
        }
        let links = BTreeMap::from([(0, true), (1, true), (2, false), (3, true)]);
        let mut rib = Rib::default();
        rib.set_links(links.clone());
        rib.replace(dump);
        for events in reported.chunks(batch) {
            if rib.apply(186, MAIN_TABLE, events.to_vec()).is_none() {
                rib.replace(kernel.0.values().cloned().collect());
            }
        }
        let mut fresh = Rib::default();
        fresh.set_links(links);
        let end: Vec<KernelRoute> = kernel.0.into_values().collect();
        prop_assert_eq!(rib.replace(end.clone()), BTreeSet::new());
        fresh.replace(end);
        prop_assert_eq!(rib.view(MAIN_TABLE).collect::<Vec<_>>(), fresh.view(MAIN_TABLE).collect::<Vec<_>>());
    }
}

#[test]
fn one_encapsulated_path_among_equal_ones_is_reported_of_the_destination() {
    let plain = route("10.1.0.0/24", 20, &[path("172.30.0.2", 3)]);
    let mut labelled = route("10.1.0.0/24", 20, &[path("172.30.0.3", 3)]);
    labelled.kind = RouteKind::Encapsulated;
    let rib = rib(&[(3, true)], vec![plain, labelled]);
    let best = rib.best_of(MAIN_TABLE, prefix("10.1.0.0/24")).unwrap();
    assert_eq!(best.kind, RouteKind::Encapsulated);
    assert_eq!(best.paths.len(), 2);
}
