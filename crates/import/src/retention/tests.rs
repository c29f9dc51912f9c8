//! What is retained, for how long, and what never is.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Importer;
use crate::suppression::{Suppression, Threshold};
use model::Scope;
use model::address::Prefix;
use model::gateway::BgpDefault;
use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};

use proptest::prelude::*;
use testkit::{mk_scope_of, mk_view};

const STALE: Duration = Duration::from_secs(120);

/// Nothing is retained.
const NONE: [u8; 0] = [];

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

fn mk_scope() -> Scope {
    mk_scope_of(&mk_view(1), BTreeSet::new(), BgpDefault::Ignore)
}

fn owners(nodes: &[u8]) -> Vec<(Prefix, NodeName)> {
    nodes
        .iter()
        .map(|n| (row(*n).prefix, NodeName::from(format!("n{n}"))))
        .collect()
}

/// Daemons that started just now.
fn running(instance: &str, linked: bool, sessions: Sessions) -> FrrStatus {
    FrrStatus::Up(Running {
        instance: instance.to_owned(),
        age: Duration::ZERO,
        linked: Some(linked),
        sessions,
    })
}

/// Sessions that have just come up, or have not yet.
fn peers<P: Into<Peer>>(peers: impl IntoIterator<Item = (P, bool)>) -> Sessions {
    let of = |(peer, up): (P, bool)| {
        let session = Session {
            up,
            since: Duration::ZERO,
            falls: 0,
        };
        (peer.into(), session)
    };
    Sessions::Peers(peers.into_iter().map(of).collect())
}

fn nodes(of: &[(u8, bool)]) -> Sessions {
    peers(of.iter().map(|(n, up)| (Peer::Address(address(*n)), *up)))
}

fn up(instance: &str, peers: &[(u8, bool)]) -> FrrStatus {
    running(instance, true, nodes(peers))
}

/// The same daemons, which have run for an hour.
fn old(status: FrrStatus) -> FrrStatus {
    let mut status = status;
    if let FrrStatus::Up(running) = &mut status {
        running.age = Duration::from_secs(3600);
    }
    status
}

const BRIDGE: u32 = 3;

/// Holding, and the import that asks it.
struct Import {
    retention: Retention,
    importer: Importer<u32>,
    rows: BTreeMap<ImportedRoute, u32>,
    next: u32,
    /// When the kernel lost what, for who keeps count of it.
    lost: BTreeMap<ImportedRoute, u64>,
}

impl Import {
    fn new() -> Self {
        let mut importer = Importer::new(100);
        importer.set_table(Some(MAIN_TABLE));
        Self {
            retention: Retention::new(STALE, Some("br-ex".to_owned())),
            importer,
            rows: BTreeMap::new(),
            next: 0,
            lost: BTreeMap::new(),
        }
    }

    fn observe(&mut self, now: Duration, status: &FrrStatus) {
        self.retention.observe(now, status);
    }

    fn is_restarting(&self) -> bool {
        self.retention.is_restarting()
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

    /// What is retained while these rows stand and the kernel asks for those.
    fn rows(
        &mut self,
        now: Duration,
        existing: &BTreeSet<ImportedRoute>,
        wanted: &BTreeSet<ImportedRoute>,
        owners: &[(Prefix, NodeName)],
        scope: &Scope,
    ) -> BTreeSet<ImportedRoute> {
        self.importer.set_links([(BRIDGE, true)].into());
        self.importer.set_scope(scope.clone());
        for (at, prefix) in scope.taken.iter().enumerate() {
            let id = 1_000_000 + u32::try_from(at).unwrap();
            self.importer
                .row(id, None, Some(&RouteRow::Other(Some(*prefix))));
        }
        let before: Vec<ImportedRoute> = self.rows.keys().cloned().collect();
        for row in before.iter().filter(|row| !existing.contains(row)) {
            self.stand(row, false);
        }
        for row in existing {
            if !self.rows.contains_key(row) {
                self.stand(row, true);
            }
        }
        let route = |row: &ImportedRoute| KernelRoute {
            table: MAIN_TABLE,
            prefix: row.prefix,
            metric: 20,
            kind: RouteKind::Unicast,
            paths: vec![RoutePath {
                gateway: Some(row.nexthop),
                oif: BRIDGE,
            }],
        };
        self.importer.dump(wanted.iter().map(route).collect());
        self.importer.set_owners(owners.iter().cloned().collect());
        let mut never = Suppression::new(Threshold {
            share: 0,
            least: 0,
            window: Duration::ZERO,
            hold: Duration::ZERO,
        });
        self.importer
            .evaluate_losses(now, &self.retention, &mut never, crate::Sessions::Unknown);
        // What is retained is what stands, is not asked for, and is not to be removed.
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
    let mut retention = Import::new();
    retention.observe(at(0), &old(up("a", &[(2, true), (3, true)])));
    let both = BTreeSet::from([row(2), row(3)]);
    assert_eq!(
        retention.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &mk_scope()),
        BTreeSet::new()
    );
    retention
}

/// What of n2's and n3's rows is retained while the kernel has nothing.
fn retained(retention: &mut Import, now: u64) -> Vec<u8> {
    let both = BTreeSet::from([row(2), row(3)]);
    let retained = retention.rows(
        at(now),
        &both,
        &BTreeSet::new(),
        &owners(&[1, 2, 3]),
        &mk_scope(),
    );
    [2, 3]
        .into_iter()
        .filter(|n| retained.contains(&row(*n)))
        .collect()
}

#[test]
fn what_a_living_frr_takes_away_goes_with_the_next_probe_and_not_with_one_before_it() {
    let mut retention = well();
    let status = up("a", &[(2, true), (3, false)]);
    let milli = Duration::from_millis;
    retention.observe(milli(5000), &status);
    assert_eq!(retained(&mut retention, 5), [2, 3]);
    assert!(!retention.is_restarting());
    retention.observe(milli(5049), &status);
    assert_eq!(
        retained(&mut retention, 6),
        [2, 3],
        "FRR may be on its way down"
    );
    retention.observe(milli(5050), &status);
    assert_eq!(retained(&mut retention, 6), NONE);
}

#[test]
fn an_frr_that_is_gone_at_the_first_probe_holds_for_the_stale_time() {
    let mut retention = Import::new();
    let both = BTreeSet::from([row(2), row(3)]);
    retention.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &mk_scope());
    retention.observe(at(1), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 1), [2, 3]);
    retention.observe(at(120), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 120), [2, 3]);
    retention.observe(at(121), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 121), NONE);
}

#[test]
fn an_frr_that_may_not_be_asked_at_the_first_probe_holds_nothing() {
    let mut retention = Import::new();
    let both = BTreeSet::from([row(2), row(3)]);
    retention.observe(at(0), &FrrStatus::Unseen);
    retention.rows(at(0), &both, &both, &owners(&[1, 2, 3]), &mk_scope());
    retention.observe(at(1), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 1), NONE);
}

#[test]
fn an_frr_that_may_not_be_asked_holds_nothing() {
    let mut retention = well();
    retention.observe(at(1), &up("b", &[]));
    retention.observe(at(2), &FrrStatus::Unseen);
    assert!(!retention.is_restarting());
    assert_eq!(retained(&mut retention, 2), NONE);
}

#[test]
fn the_rows_of_a_dead_frr_are_retained_for_the_stale_time_and_no_second_longer() {
    let mut retention = well();
    for now in [10, 60, 129] {
        retention.observe(at(now), &FrrStatus::Gone);
        assert_eq!(retained(&mut retention, now), [2, 3], "at {now} s");
    }
    retention.observe(at(130), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 130), NONE);
    retention.observe(at(200), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 200), NONE, "no second time begins");
}

#[test]
fn a_new_process_that_finds_an_frr_whose_sessions_are_not_up_yet_holds_for_the_stale_time() {
    for sessions in [
        nodes(&[(2, false), (3, false)]),
        nodes(&[]),
        Sessions::NotAsked,
        Sessions::Silent,
    ] {
        let mut retention = adopted();
        let status = running("a", true, sessions);
        assert_eq!(
            retained(&mut retention, 0),
            [2, 3],
            "there was no probe yet"
        );
        for now in [1, 60, 120] {
            retention.observe(at(now), &status);
            assert_eq!(retained(&mut retention, now), [2, 3], "at {now} s");
        }
        retention.observe(at(121), &status);
        assert_eq!(retained(&mut retention, 121), NONE);
    }
}

#[test]
fn a_new_process_beside_an_frr_that_has_run_for_long_holds_nothing() {
    let mut retention = adopted();
    assert_eq!(
        retained(&mut retention, 0),
        [2, 3],
        "there was no probe yet"
    );
    retention.observe(at(1), &old(up("a", &[(2, true), (3, false)])));
    assert_eq!(retained(&mut retention, 1), NONE);
    let mut retention = adopted();
    assert_eq!(retained(&mut retention, 0), [2, 3]);
    let mut status = up("a", &[(2, false), (3, false)]);
    if let FrrStatus::Up(running) = &mut status {
        running.age = at(100);
    }
    retention.observe(at(1), &status);
    retention.observe(at(20), &status);
    assert_eq!(retained(&mut retention, 20), [2, 3]);
    retention.observe(at(21), &status);
    assert_eq!(
        retained(&mut retention, 21),
        NONE,
        "it began before this process did"
    );
}

#[test]
fn a_new_process_believes_what_bgpd_says_of_the_time_before_it() {
    let mut retention = adopted();
    assert_eq!(retained(&mut retention, 0), [2, 3]);
    let session = |up, since, falls| Session {
        up,
        since: at(since),
        falls,
    };
    let of = |n, session| (Peer::Address(address(n)), session);
    let reported = [
        of(2, session(true, 50, 0)),
        of(3, session(false, 0, 1)),
        of(4, session(false, 0, 0)),
    ];
    retention.observe(at(1), &running("a", true, Sessions::Peers(reported.into())));
    assert_eq!(retained(&mut retention, 5), [2, 3], "it may be its start");
    assert_eq!(
        retained(&mut retention, 6),
        NONE,
        "bgpd has been zebra's client for a while, and the session down"
    );
}

/// A process that found rows of n2 and n3, and nothing in the kernel.
fn adopted() -> Import {
    let mut retention = Import::new();
    let both = BTreeSet::from([row(2), row(3)]);
    let owners = owners(&[1, 2, 3]);
    retention.importer.set_links([(BRIDGE, true)].into());
    retention.importer.set_scope(mk_scope());
    retention
        .importer
        .set_owners(owners.iter().cloned().collect());
    for row in &both {
        retention.stand(row, true);
    }
    retention.importer.adopt();
    retention
}

#[test]
fn a_zebra_that_bgpd_is_no_client_of_is_on_its_way_down_or_up() {
    let mut retention = well();
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    let both = &[(2, true), (3, true)];
    retention.observe(at(11), &running("a", false, nodes(both)));
    assert_eq!(retained(&mut retention, 11), [2, 3]);
    retention.observe(at(12), &FrrStatus::Gone);
    retention.observe(at(13), &running("b", false, nodes(both)));
    assert_eq!(
        retained(&mut retention, 22),
        [2, 3],
        "sessions alone bring no routes"
    );
    retention.observe(at(23), &running("b", true, nodes(both)));
    assert_eq!(retained(&mut retention, 27), [2, 3]);
    retention.observe(at(28), &running("b", true, nodes(both)));
    assert!(!retention.is_restarting());
    assert_eq!(retained(&mut retention, 28), NONE);
}

#[test]
fn a_zebra_that_bgpd_never_comes_back_to_is_waited_for_no_longer_than_the_stale_time() {
    let mut retention = well();
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    let status = running("a", false, nodes(&[(2, true), (3, true)]));
    for now in [10, 100, 129] {
        retention.observe(at(now), &status);
        assert_eq!(retained(&mut retention, now), [2, 3], "at {now} s");
    }
    for now in [130, 131, 300] {
        retention.observe(at(now), &status);
        assert_eq!(retained(&mut retention, now), NONE, "at {now} s");
    }
}

#[test]
fn an_frr_that_is_busy_is_believed_a_second_later() {
    for (linked, sessions) in [
        (None, Sessions::NotAsked),
        (None, Sessions::Silent),
        (Some(true), Sessions::Silent),
    ] {
        let mut retention = well();
        assert_eq!(retained(&mut retention, 10), [2, 3]);
        let mut status = running("a", true, sessions);
        if let FrrStatus::Up(running) = &mut status {
            running.linked = linked;
        }
        retention.observe(Duration::from_millis(10_999), &status);
        assert!(!retention.is_restarting());
        assert_eq!(retained(&mut retention, 11), [2, 3]);
        retention.observe(at(11), &status);
        assert_eq!(retained(&mut retention, 11), NONE);
    }
}

#[test]
fn a_folder_without_sockets_is_another_place_unless_sockets_were_there() {
    let mut retention = adopted();
    retention.observe(at(0), &FrrStatus::Absent);
    assert_eq!(retained(&mut retention, 0), NONE);
    let mut retention = well();
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    retention.observe(at(11), &FrrStatus::Absent);
    assert_eq!(retained(&mut retention, 11), [2, 3]);
    retention.observe(at(131), &FrrStatus::Absent);
    assert_eq!(retained(&mut retention, 131), NONE);
}

#[test]
fn a_link_local_next_hop_is_settled_by_the_peer_of_its_interface() {
    let hop: IpAddr = "fe80::2".parse().unwrap();
    let status = |session| running("b", true, peers([("br-ex", session), ("eth7", false)]));
    let mut retention = well();
    retention.observe(at(10), &status(false));
    assert!(retention.retention.waits_for(at(10), hop));
    retention.observe(at(12), &status(true));
    assert!(retention.retention.waits_for(at(16), hop));
    retention.observe(at(17), &status(true));
    assert!(!retention.retention.waits_for(at(17), hop));
    assert!(retention.is_restarting(), "another one is not there yet");
    let elsewhere: IpAddr = "2001:db8::2".parse().unwrap();
    assert!(retention.retention.waits_for(at(17), elsewhere));
    retention.observe(at(18), &status(false));
    assert!(
        !retention.retention.waits_for(at(18), hop),
        "it was there and went"
    );
}

#[test]
fn a_peer_that_was_down_before_the_restart_is_not_waited_for() {
    let hop: IpAddr = "fe80::2".parse().unwrap();
    for (before, is_over) in [
        (&[(2, true), (9, false)][..], true),
        (&[(2, true), (9, true)], false),
        (&[(2, true)], false),
    ] {
        let mut retention = well();
        retention.observe(at(5), &up("a", before));
        retention.observe(at(6), &running("a", true, Sessions::NotAsked));
        retention.observe(at(10), &FrrStatus::Gone);
        retention.observe(at(15), &up("b", &[(9, false)]));
        retention.observe(at(16), &up("b", &[(2, true), (9, false)]));
        retention.observe(at(20), &up("b", &[(2, true), (9, false)]));
        assert!(retention.retention.waits_for(at(20), hop));
        retention.observe(at(21), &up("b", &[(2, true), (9, false)]));
        assert_eq!(!retention.is_restarting(), is_over, "{before:?}");
        assert_eq!(!retention.retention.waits_for(at(21), hop), is_over);
    }
}

#[test]
fn each_row_is_retained_until_its_own_peer_has_been_up_for_a_while() {
    let mut retention = well();
    retention.observe(at(10), &FrrStatus::Gone);
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    retention.observe(at(15), &up("b", &[]));
    retention.observe(at(16), &up("b", &[(2, false), (3, false)]));
    assert_eq!(retained(&mut retention, 16), [2, 3]);
    retention.observe(at(20), &up("b", &[(2, true), (3, false)]));
    assert_eq!(
        retained(&mut retention, 24),
        [2, 3],
        "its routes are on their way"
    );
    retention.observe(at(25), &up("b", &[(2, true), (3, false)]));
    assert_eq!(retained(&mut retention, 25), [3]);
    retention.observe(at(30), &up("b", &[(2, true), (3, true)]));
    retention.observe(at(35), &up("b", &[(2, true), (3, true)]));
    assert!(!retention.is_restarting());
    assert_eq!(retained(&mut retention, 35), NONE);
}

#[test]
fn a_session_that_comes_and_goes_while_bgpd_gets_its_configuration_is_waited_for() {
    let mut retention = well();
    retention.observe(at(10), &up("b", &[(2, true), (3, false)]));
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    retention.observe(at(11), &up("b", &[(2, false), (3, false)]));
    assert_eq!(retained(&mut retention, 15), [2, 3]);
    let mut again = retention.retention.clone();
    retention.observe(at(16), &up("b", &[(2, false), (3, false)]));
    assert_eq!(retained(&mut retention, 16), [3], "it stays down");
    again.observe(at(15), &up("b", &[(2, true), (3, false)]));
    retention.retention = again;
    assert_eq!(retained(&mut retention, 19), [2, 3], "it is up again");
    retention.observe(at(20), &up("b", &[(2, true), (3, false)]));
    assert_eq!(retained(&mut retention, 20), [3]);
}

#[test]
fn a_session_that_fell_between_two_probes_begins_anew() {
    let mut retention = well();
    let once = |falls| {
        let session = Session {
            up: true,
            since: Duration::ZERO,
            falls,
        };
        let peer = Peer::Address(address(2));
        running("b", true, Sessions::Peers([(peer, session)].into()))
    };
    retention.observe(at(10), &once(0));
    retention.observe(at(13), &once(1));
    assert!(retention.retention.waits_for(at(17), address(2)));
    assert!(
        retention.retention.waits_for(at(18), address(2)),
        "it may have gone down since"
    );
    retention.observe(at(18), &once(1));
    assert!(!retention.retention.waits_for(at(18), address(2)));
}

#[test]
fn a_session_that_went_down_between_the_last_probe_and_the_end_of_its_time_is_waited_for() {
    let mut retention = well();
    let both = |first| up("b", &[(2, first), (3, first)]);
    retention.observe(at(10), &both(true));
    retention.observe(at(14), &both(true));
    // A probe at the sockets alone says nothing of sessions.
    retention.observe(at(15), &running("b", true, Sessions::NotAsked));
    assert_eq!(retained(&mut retention, 15), [2, 3]);
    retention.observe(at(16), &both(false));
    assert_eq!(
        retained(&mut retention, 16),
        [2, 3],
        "nobody saw it up for long enough"
    );
    retention.observe(at(17), &both(true));
    retention.observe(at(21), &both(true));
    assert_eq!(retained(&mut retention, 21), [2, 3]);
    retention.observe(at(22), &both(true));
    assert_eq!(retained(&mut retention, 22), NONE);
}

#[test]
fn a_session_that_goes_down_after_its_routes_had_their_time_is_obeyed_at_once() {
    let mut retention = well();
    retention.observe(at(10), &up("b", &[(2, true), (3, false)]));
    assert_eq!(retained(&mut retention, 10), [2, 3]);
    retention.observe(at(15), &up("b", &[(2, true), (3, false)]));
    retention.observe(at(16), &up("b", &[(2, false), (3, false)]));
    assert_eq!(retained(&mut retention, 16), [3]);
}

#[test]
fn a_next_hop_that_is_no_peer_is_retained_until_every_peer_is_settled() {
    let mut retention = well();
    retention.observe(at(10), &up("b", &[(9, true)]));
    assert_eq!(retained(&mut retention, 14), [2, 3]);
    retention.observe(at(15), &up("b", &[(9, true)]));
    assert_eq!(retained(&mut retention, 15), NONE);
}

#[test]
fn a_subnet_that_another_node_owns_now_or_whose_node_is_gone_is_not_retained() {
    let both = BTreeSet::from([row(2), row(3)]);
    for (now_owned, expected) in [
        (owners(&[1, 2]), vec![row(2)]),
        (
            [owners(&[1, 2]), vec![(row(3).prefix, NodeName::from("n4"))]].concat(),
            vec![row(2)],
        ),
        (owners(&[1, 2, 3]), vec![row(2), row(3)]),
        (
            [
                owners(&[1, 2, 3]),
                vec![
                    (row(3).prefix, NodeName::from("n4")),
                    (row(2).prefix, NodeName::from("a")),
                ],
            ]
            .concat(),
            vec![row(2), row(3)],
        ),
    ] {
        let mut retention = well();
        retention.observe(at(10), &FrrStatus::Gone);
        let retained = retention.rows(at(10), &both, &BTreeSet::new(), &now_owned, &mk_scope());
        assert_eq!(retained, expected.into_iter().collect());
    }
}

#[test]
fn a_prefix_that_the_kernel_has_over_another_way_or_that_is_taken_is_not_retained() {
    let both = BTreeSet::from([row(2), row(3)]);
    let mut retention = well();
    retention.observe(at(10), &FrrStatus::Gone);
    let other = BTreeSet::from([ImportedRoute {
        prefix: row(2).prefix,
        nexthop: address(7),
    }]);
    let mut scope = mk_scope();
    scope.taken.insert(row(3).prefix);
    let retained = retention.rows(at(10), &both, &other, &owners(&[1, 2, 3]), &scope);
    assert_eq!(retained, BTreeSet::new());
}

#[test]
fn a_row_that_the_kernel_never_asked_for_is_not_retained() {
    let mut retention = well();
    retention.observe(at(10), &FrrStatus::Gone);
    let stray = BTreeSet::from([row(4)]);
    let retained = retention.rows(at(10), &stray, &BTreeSet::new(), &owners(&[4]), &mk_scope());
    assert_eq!(retained, BTreeSet::new());
}

fn some_session() -> impl Strategy<Value = Session> {
    (any::<bool>(), 0_u64..10, 0_u64..3).prop_map(|(up, since, falls)| Session {
        up,
        since: if up { at(since) } else { Duration::ZERO },
        falls,
    })
}

fn some_probe() -> impl Strategy<Value = FrrStatus> {
    prop_oneof![
        Just(FrrStatus::Gone),
        Just(FrrStatus::Absent),
        Just(FrrStatus::Unseen),
        (
            prop::sample::select(vec!["a", "b"]),
            0_u64..200,
            prop::option::of(any::<bool>()),
            prop_oneof![
                Just(Sessions::Silent),
                Just(Sessions::NotAsked),
                prop::collection::btree_map(
                    (2_u8..5).prop_map(|n| Peer::Address(address(n))),
                    some_session(),
                    0..3
                )
                .prop_map(Sessions::Peers)
            ]
        )
            .prop_map(|(instance, age, linked, sessions)| FrrStatus::Up(Running {
                instance: instance.to_owned(),
                age: at(age),
                linked,
                sessions
            })),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_no_row_is_retained_longer_than_stale_or_beside_a_route_or_for_a_lost_node(
        steps in prop::collection::vec(
            (1_u64..40, some_probe(), prop::collection::btree_set(2_u8..5, 0..3), prop::collection::btree_set(2_u8..5, 0..4)),
            1..40
        )
    ) {
        let scope = mk_scope();
        let mut retention = Import::new();
        let mut now = 0;
        let mut existing = BTreeSet::new();
        let mut answered = None;
        let mut asked: BTreeMap<ImportedRoute, u64> = BTreeMap::new();
        for (wait, status, kernel, nodes) in steps {
            now += wait;
            retention.observe(at(now), &status);
            if let FrrStatus::Up(Running { linked: Some(_), sessions, .. }) = &status && *sessions != Sessions::Silent {
                answered = Some(now);
            }
            let wanted: BTreeSet<ImportedRoute> = kernel.iter().map(|n| row(*n)).collect();
            let owners = owners(&nodes.iter().copied().collect::<Vec<_>>());
            for row in existing.difference(&wanted) {
                retention.lost.entry(ImportedRoute::clone(row)).or_insert(now);
            }
            let retained = retention.rows(at(now), &existing, &wanted, &owners, &scope);
            prop_assert!(retained.is_disjoint(&wanted) && retained.is_subset(&existing));
            for row in &retained {
                prop_assert!(owners.iter().any(|(subnet, _)| *subnet == row.prefix));
                prop_assert!(asked.contains_key(row));
                // It was lost in this very moment, or FRR has not answered since; else a restart is younger than the stale time.
                let lost = retention.lost[row];
                if retention.retention.explains(at(now), at(lost), false) {
                    prop_assert!(retention.retention.restart.as_ref().unwrap().age(at(now)) < STALE);
                } else {
                    prop_assert!(answered.is_none_or(|at| at <= lost), "{answered:?} {lost}");
                }
            }
            retention.lost.retain(|row, _| retained.contains(row));
            for row in &wanted {
                asked.insert(row.clone(), now);
            }
            existing = wanted.union(&retained).cloned().collect();
        }
    }
}
