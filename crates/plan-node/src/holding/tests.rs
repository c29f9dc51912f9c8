//! What is held, for how long, and what never is.

use std::collections::BTreeSet;

use super::*;
use crate::breaker::{Breaker, Threshold};
use crate::importing::{Importer, Sessions};
use crate::imports::{BgpDefault, ImportWorld};
use crate::samples;
use model::address::Prefix;
use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, Leg, MAIN_TABLE, RouteKind};
use proptest::prelude::*;

const STALE: Duration = Duration::from_secs(120);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn row(node: u8) -> ImportedRoute {
    ImportedRoute {
        prefix: format!("10.128.{node}.0/24").parse().unwrap(),
        nexthop: address(node),
    }
}

fn address(node: u8) -> IpAddr {
    format!("172.30.0.{node}").parse().unwrap()
}

fn world() -> ImportWorld {
    ImportWorld::of(
        &samples::view(1),
        Some(3),
        BTreeSet::new(),
        BgpDefault::Ignore,
    )
}

fn owners(nodes: &[u8]) -> Vec<(Prefix, NodeName)> {
    nodes
        .iter()
        .map(|n| (row(*n).prefix, NodeName::from(format!("n{n}"))))
        .collect()
}

fn up(instance: &str, peers: &[(u8, bool)]) -> Look {
    Look::Up {
        instance: instance.to_owned(),
        peers: Some(peers.iter().map(|(n, up)| (address(*n), *up)).collect()),
    }
}

const BRIDGE: u32 = 3;

/// Holding, and the import that asks it.
struct Import {
    holding: Holding,
    importer: Importer<u32>,
    rows: BTreeMap<ImportedRoute, u32>,
    next: u32,
}

impl Import {
    fn new() -> Self {
        let mut importer = Importer::new(100);
        importer.set_table(Some(MAIN_TABLE));
        Self {
            holding: Holding::new(STALE),
            importer,
            rows: BTreeMap::new(),
            next: 0,
        }
    }

    fn look(&mut self, now: Duration, look: &Look) {
        self.holding.look(now, look);
    }

    fn is_restarting(&self) -> bool {
        self.holding.is_restarting()
    }

    fn stand(&mut self, route: &ImportedRoute, stands: bool) {
        let row = RouteRow::Import(route.clone());
        if let Some(id) = self.rows.remove(route) {
            self.importer.row(id, Some(&row), None);
        }
        if stands {
            self.next += 1;
            self.importer.row(self.next, None, Some(&row));
            self.rows.insert(route.clone(), self.next);
        }
    }

    /// What is held while these rows stand and the kernel asks for those.
    fn rows(
        &mut self,
        now: Duration,
        standing: &BTreeSet<ImportedRoute>,
        wanted: &BTreeSet<ImportedRoute>,
        owners: &[(Prefix, NodeName)],
        world: &ImportWorld,
    ) -> BTreeSet<ImportedRoute> {
        self.importer.set_links([(BRIDGE, true)].into());
        self.importer.set_world(world.clone());
        for (at, prefix) in world.taken.iter().enumerate() {
            let id = 1_000_000 + u32::try_from(at).unwrap();
            self.importer
                .row(id, None, Some(&RouteRow::Other(Some(*prefix))));
        }
        let before: Vec<ImportedRoute> = self.rows.keys().cloned().collect();
        for row in before.iter().filter(|row| !standing.contains(row)) {
            self.stand(row, false);
        }
        for row in standing {
            if !self.rows.contains_key(row) {
                self.stand(row, true);
            }
        }
        let route = |row: &ImportedRoute| KernelRoute {
            table: MAIN_TABLE,
            prefix: row.prefix,
            metric: 20,
            kind: RouteKind::Unicast,
            legs: vec![Leg {
                gateway: Some(row.nexthop),
                oif: BRIDGE,
            }],
        };
        self.importer.dump(wanted.iter().map(route).collect());
        self.importer.set_owners(owners.iter().cloned());
        let mut never = Breaker::new(Threshold {
            share: 0,
            least: 0,
            window: Duration::ZERO,
            hold: Duration::ZERO,
        });
        self.importer
            .judge(now, &self.holding, &mut never, Sessions::Unknown);
        // What is held is what stands, is not asked for, and is not to be removed.
        let step = self.importer.step(usize::MAX, true);
        self.importer.resume();
        let stays = |id: &u32| !step.remove.contains(id);
        let rows = self.rows.iter().filter(|(_, id)| stays(id));
        let rows = rows.map(|(row, _)| row.clone());
        rows.filter(|row| !wanted.contains(row)).collect()
    }
}

/// FRR ran well with routes to n2 and n3.
fn well() -> Import {
    let mut holding = Import::new();
    holding.look(at(0), &up("a", &[(2, true), (3, true)]));
    let both = BTreeSet::from([row(2), row(3)]);
    assert_eq!(
        holding.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &world()),
        BTreeSet::new()
    );
    holding
}

/// What of n2's and n3's rows is held while the kernel has nothing.
fn held(holding: &mut Import, now: u64) -> Vec<u8> {
    let both = BTreeSet::from([row(2), row(3)]);
    let held = holding.rows(
        at(now),
        &both,
        &BTreeSet::new(),
        &owners(&[1, 2, 3]),
        &world(),
    );
    [2, 3]
        .into_iter()
        .filter(|n| held.contains(&row(*n)))
        .collect()
}

#[test]
fn what_a_living_frr_takes_away_is_not_held() {
    let mut holding = well();
    holding.look(at(5), &up("a", &[(2, true), (3, false)]));
    assert!(!holding.is_restarting());
    assert_eq!(held(&mut holding, 5), []);
}

#[test]
fn an_frr_that_is_gone_at_the_first_look_holds_for_the_stale_time() {
    let mut holding = Import::new();
    let both = BTreeSet::from([row(2), row(3)]);
    holding.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &world());
    holding.look(at(1), &Look::Gone);
    assert_eq!(held(&mut holding, 1), [2, 3]);
    holding.look(at(120), &Look::Gone);
    assert_eq!(held(&mut holding, 120), [2, 3]);
    holding.look(at(121), &Look::Gone);
    assert_eq!(held(&mut holding, 121), []);
}

#[test]
fn an_frr_that_may_not_be_asked_at_the_first_look_holds_nothing() {
    let mut holding = Import::new();
    let both = BTreeSet::from([row(2), row(3)]);
    holding.look(at(0), &Look::Unseen);
    holding.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &world());
    holding.look(at(1), &Look::Gone);
    assert_eq!(held(&mut holding, 1), []);
}

#[test]
fn an_frr_that_may_not_be_asked_holds_nothing() {
    let mut holding = well();
    holding.look(at(1), &up("b", &[]));
    holding.look(at(2), &Look::Unseen);
    assert!(!holding.is_restarting());
    assert_eq!(held(&mut holding, 2), []);
}

#[test]
fn the_rows_of_a_dead_frr_are_held_for_the_stale_time_and_no_second_longer() {
    let mut holding = well();
    for now in [10, 60, 129] {
        holding.look(at(now), &Look::Gone);
        assert_eq!(held(&mut holding, now), [2, 3], "at {now} s");
    }
    holding.look(at(130), &Look::Gone);
    assert_eq!(held(&mut holding, 130), []);
    holding.look(at(200), &Look::Gone);
    assert_eq!(held(&mut holding, 200), [], "no second time begins");
}

#[test]
fn each_row_is_held_until_its_own_peer_has_been_up_for_a_while() {
    let mut holding = well();
    holding.look(at(10), &Look::Gone);
    assert_eq!(held(&mut holding, 10), [2, 3]);
    holding.look(at(15), &up("b", &[]));
    holding.look(at(16), &up("b", &[(2, false), (3, false)]));
    assert_eq!(held(&mut holding, 16), [2, 3]);
    holding.look(at(20), &up("b", &[(2, true), (3, false)]));
    assert_eq!(
        held(&mut holding, 24),
        [2, 3],
        "its routes are on their way"
    );
    holding.look(at(25), &up("b", &[(2, true), (3, false)]));
    assert_eq!(held(&mut holding, 25), [3]);
    holding.look(at(30), &up("b", &[(2, true), (3, true)]));
    holding.look(at(35), &up("b", &[(2, true), (3, true)]));
    assert!(!holding.is_restarting());
    assert_eq!(held(&mut holding, 35), []);
}

#[test]
fn a_session_that_goes_down_after_the_restart_is_obeyed_at_once() {
    let mut holding = well();
    holding.look(at(10), &up("b", &[(2, true), (3, false)]));
    assert_eq!(held(&mut holding, 10), [2, 3]);
    holding.look(at(11), &up("b", &[(2, false), (3, false)]));
    assert_eq!(held(&mut holding, 11), [3]);
}

#[test]
fn a_next_hop_that_is_no_peer_is_held_until_every_peer_is_judged() {
    let mut holding = well();
    holding.look(at(10), &up("b", &[(9, true)]));
    assert_eq!(held(&mut holding, 14), [2, 3]);
    holding.look(at(15), &up("b", &[(9, true)]));
    assert_eq!(held(&mut holding, 15), []);
}

#[test]
fn a_subnet_that_another_node_owns_now_or_whose_node_is_gone_is_not_held() {
    let both = BTreeSet::from([row(2), row(3)]);
    for (now_owned, expected) in [
        (owners(&[1, 2]), vec![row(2)]),
        (
            [owners(&[1, 2]), vec![(row(3).prefix, NodeName::from("n4"))]].concat(),
            vec![row(2)],
        ),
        (owners(&[1, 2, 3]), vec![row(2), row(3)]),
    ] {
        let mut holding = well();
        holding.look(at(10), &Look::Gone);
        let held = holding.rows(at(10), &both, &BTreeSet::new(), &now_owned, &world());
        assert_eq!(held, expected.into_iter().collect());
    }
}

#[test]
fn a_prefix_that_the_kernel_has_over_another_way_or_that_is_taken_is_not_held() {
    let both = BTreeSet::from([row(2), row(3)]);
    let mut holding = well();
    holding.look(at(10), &Look::Gone);
    let other = BTreeSet::from([ImportedRoute {
        prefix: row(2).prefix,
        nexthop: address(7),
    }]);
    let mut world = world();
    world.taken.insert(row(3).prefix);
    let held = holding.rows(at(10), &both, &other, &owners(&[1, 2, 3]), &world);
    assert_eq!(held, BTreeSet::new());
}

#[test]
fn a_row_that_the_kernel_never_asked_for_is_not_held() {
    let mut holding = well();
    holding.look(at(10), &Look::Gone);
    let stray = BTreeSet::from([row(4)]);
    let held = holding.rows(at(10), &stray, &BTreeSet::new(), &owners(&[4]), &world());
    assert_eq!(held, BTreeSet::new());
}

fn some_look() -> impl Strategy<Value = Look> {
    prop_oneof![
        Just(Look::Gone),
        Just(Look::Unseen),
        (
            prop::sample::select(vec!["a", "b"]),
            prop::option::of(prop::collection::btree_map(
                (2_u8..5).prop_map(address),
                any::<bool>(),
                0..3
            ))
        )
            .prop_map(|(instance, peers)| Look::Up {
                instance: instance.to_owned(),
                peers
            }),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_no_row_is_held_longer_than_stale_or_beside_a_route_or_for_a_lost_node(
        steps in prop::collection::vec(
            (1_u64..40, some_look(), prop::collection::btree_set(2_u8..5, 0..3), prop::collection::btree_set(2_u8..5, 0..4)),
            1..40
        )
    ) {
        let world = world();
        let mut holding = Import::new();
        let mut now = 0;
        let mut standing = BTreeSet::new();
        let mut asked: BTreeMap<ImportedRoute, u64> = BTreeMap::new();
        for (wait, look, kernel, nodes) in steps {
            now += wait;
            holding.look(at(now), &look);
            let wanted: BTreeSet<ImportedRoute> = kernel.iter().map(|n| row(*n)).collect();
            let owners = owners(&nodes.iter().copied().collect::<Vec<_>>());
            let held = holding.rows(at(now), &standing, &wanted, &owners, &world);
            prop_assert!(held.is_disjoint(&wanted) && held.is_subset(&standing));
            for row in &held {
                prop_assert!(owners.iter().any(|(subnet, _)| *subnet == row.prefix));
                // The kernel had it, and a restart that began after that is younger than the stale time.
                prop_assert!(holding.is_restarting());
                let since = holding.holding.restart.as_ref().unwrap().since;
                prop_assert!(at(now) - since < STALE);
                prop_assert!(asked.contains_key(row));
            }
            for row in &wanted {
                asked.insert(row.clone(), now);
            }
            standing = wanted.union(&held).cloned().collect();
        }
    }
}
