//! The import as a value: whatever happens in whatever order, it ends where a fresh one ends.

use std::net::IpAddr;
use std::time::Duration;

use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};

use super::*;
use crate::budget::OVER_LIMIT;
use crate::retention::{self, FrrStatus, Peer, Retention};
use crate::suppression::{Suppression, Threshold};
use model::gateway::BgpDefault;
use model::nb::{self, Columns, Value};
use model::route::{MAIN_TABLE, PROTOCOL_BGP, RouteChange, RouteKind, RoutePath};
use plan_node::{learn, north};
use proptest::prelude::*;
use testkit::{mk_scope_of, mk_view};

const BRIDGE: u32 = 3;
const OTHER: u32 = 4;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn address(host: u8) -> IpAddr {
    format!("172.30.0.{host}").parse().unwrap()
}

fn peer(host: u8) -> Peer {
    Peer::Address(address(host))
}

fn route(to: Prefix, hops: &[(u8, u32)]) -> KernelRoute {
    let path = |(host, oif): &(u8, u32)| RoutePath {
        gateway: Some(address(*host)),
        oif: *oif,
    };
    let mut paths: Vec<RoutePath> = hops.iter().map(path).collect();
    paths.sort_unstable();
    KernelRoute {
        table: MAIN_TABLE,
        prefix: to,
        metric: 20,
        kind: if hops.is_empty() {
            RouteKind::Other
        } else {
            RouteKind::Unicast
        },
        paths,
    }
}

fn mk_scope() -> Scope {
    let view = mk_view(1);
    mk_scope_of(&view, BTreeSet::new(), BgpDefault::Ignore)
}

fn never() -> Suppression {
    Suppression::new(Threshold {
        share: 0,
        least: 0,
        window: Duration::ZERO,
        hold: Duration::ZERO,
    })
}

/// The suppression with the defaults of `[limits]`.
fn usual() -> Suppression {
    Suppression::new(Threshold {
        share: 50,
        least: 10,
        window: Duration::from_secs(2),
        hold: Duration::from_secs(60),
    })
}

/// A database with the rows of one router, and an import that follows it.
struct Fixture {
    importer: Importer<u32>,
    rows: BTreeMap<u32, RouteRow>,
    next: u32,
    retention: Retention,
    suppression: Suppression,
    now: Duration,
    peers: Option<BTreeMap<Peer, bool>>,
    /// What is said where there are no peers.
    unasked: Sessions<'static>,
}

impl Fixture {
    fn new(limit: usize, suppression: Suppression) -> Self {
        let mut importer = Importer::new(limit);
        importer.set_table(Some(MAIN_TABLE));
        // Nothing waits for a probe of FRR but where a test says so.
        let mut retention = Retention::new(Duration::from_secs(120), None);
        retention.observe(Duration::ZERO, &FrrStatus::Unseen);
        Self {
            importer,
            rows: BTreeMap::new(),
            next: 0,
            retention,
            suppression,
            now: Duration::ZERO,
            peers: None,
            unasked: Sessions::Unknown,
        }
    }

    /// A row comes, by whoever's hand.
    fn add(&mut self, row: RouteRow) -> u32 {
        self.next += 1;
        self.importer.row(self.next, None, Some(&row));
        self.rows.insert(self.next, row);
        self.next
    }

    fn remove(&mut self, id: u32) {
        if let Some(row) = self.rows.remove(&id) {
            self.importer.row(id, Some(&row), None);
        }
    }

    fn evaluate(&mut self) {
        let sessions = match &self.peers {
            Some(peers) => Sessions::Peers {
                peers,
                interface: "br-ex",
            },
            None => self.unasked,
        };
        self.importer
            .evaluate_losses(self.now, &self.retention, &mut self.suppression, sessions);
    }

    fn destinations(&self) -> BTreeSet<Prefix> {
        let of = |row: &RouteRow| match row {
            RouteRow::Import(route) => Some(route.prefix),
            RouteRow::Malformed
            | RouteRow::Other(_)
            | RouteRow::Discard(_)
            | RouteRow::Topology { .. } => None,
        };
        self.rows.values().filter_map(of).collect()
    }

    /// Writes one step, as one transaction does.
    fn write(&mut self, most: usize) -> bool {
        self.evaluate();
        let step = self.importer.step(most, true);
        let before = self.destinations();
        let leaving: BTreeSet<Prefix> = step
            .remove
            .iter()
            .filter_map(|id| match &self.rows[id] {
                RouteRow::Import(route) => Some(route.prefix),
                RouteRow::Malformed
                | RouteRow::Other(_)
                | RouteRow::Discard(_)
                | RouteRow::Topology { .. } => None,
            })
            .collect();
        for id in &step.remove {
            self.remove(*id);
        }
        for route in &step.add {
            self.add(RouteRow::Import(route.clone()));
        }
        for columns in &step.restore {
            self.add(own_row(columns));
        }
        let after = self.destinations();
        let mut lost = before.difference(&after).filter(|p| leaving.contains(p));
        let kept = |prefix: &Prefix| {
            let rank = self.importer.rank(*prefix);
            let place = self.importer.places.get(prefix);
            place.is_some_and(|place| place.wanted) && self.importer.budget.keeps(&rank)
        };
        assert!(!lost.any(kept), "a wanted destination lost its rows");
        if step.is_empty() {
            return false;
        }
        assert_eq!(self.importer.on_their_way(), 0, "what was written shows");
        true
    }

    fn settle(&mut self, most: usize) {
        let mut steps = 0;
        while self.write(most) {
            steps += 1;
            assert!(steps < 10_000, "it never ends");
        }
        assert_eq!((self.importer.due(), self.importer.on_their_way()), (0, 0));
    }

    fn imported(&self) -> Vec<ImportedRoute> {
        let of = |row: &RouteRow| match row {
            RouteRow::Import(route) => Some(route.clone()),
            RouteRow::Malformed => panic!("a malformed row stands"),
            RouteRow::Other(_) | RouteRow::Discard(_) | RouteRow::Topology { .. } => None,
        };
        let mut rows: Vec<ImportedRoute> = self.rows.values().filter_map(of).collect();
        rows.sort();
        rows
    }
}

/// A row of the topology as the import sees it.
fn own_row(columns: &Columns) -> RouteRow {
    let text = |column: &str| match &columns[column] {
        Value::Text(text) => text.clone(),
        other @ (Value::Number(_)
        | Value::Flag(_)
        | Value::Set(_)
        | Value::Entries(_)
        | Value::Ref(_)) => {
            panic!("{column}: {other:?}")
        }
    };
    RouteRow::Topology {
        prefix: prefix(&text("ip_prefix")),
        discards: text("nexthop") == nb::DISCARD,
    }
}

impl Fixture {
    /// Destinations of the topology's rows.
    fn own(&self) -> Vec<Prefix> {
        let of = |row: &RouteRow| match row {
            RouteRow::Topology { prefix, .. } => Some(*prefix),
            RouteRow::Import(_)
            | RouteRow::Malformed
            | RouteRow::Other(_)
            | RouteRow::Discard(_) => None,
        };
        let mut all: Vec<Prefix> = self.rows.values().filter_map(of).collect();
        all.sort();
        all
    }

    /// The row that drops what has no route.
    fn add_discard(&mut self) {
        for columns in mk_scope().fallbacks.values().flatten() {
            self.add(own_row(columns));
        }
    }
}

fn ready(limit: usize, suppression: Suppression, routes: Vec<KernelRoute>) -> Fixture {
    let mut fixture = Fixture::new(limit, suppression);
    fixture.importer.set_links([(BRIDGE, true)].into());
    fixture.importer.set_scope(mk_scope());
    fixture.add_discard();
    fixture.importer.dump(routes);
    fixture.settle(1000);
    fixture
}

fn nets(count: u8) -> Vec<KernelRoute> {
    let to = |n: u8| route(prefix(&format!("192.0.{n}.0/24")), &[(2 + n % 2, BRIDGE)]);
    (0..count).map(to).collect()
}

#[test]
fn pod_subnets_are_added_first_and_removals_come_last() {
    let old = [route(prefix("192.0.2.0/23"), &[(2, BRIDGE)])];
    let mut fixture = ready(100, never(), old.to_vec());
    fixture.importer.dump(vec![
        route(prefix("10.0.0.0/8"), &[(2, BRIDGE)]),
        route(prefix("192.0.2.0/24"), &[(2, BRIDGE)]),
        route(prefix("10.128.7.0/24"), &[(7, BRIDGE)]),
        route(prefix("192.0.3.0/24"), &[(2, BRIDGE)]),
    ]);
    fixture.evaluate();
    let step = fixture.importer.step(3, true);
    let order: Vec<String> = step.add.iter().map(|r| r.prefix.to_string()).collect();
    assert_eq!(order, ["10.128.7.0/24", "10.0.0.0/8", "192.0.2.0/24"]);
    assert!(
        step.remove.is_empty(),
        "what covers them stays until they are there"
    );
    assert_eq!(fixture.importer.on_their_way(), 3);
    let rest = fixture.importer.step(3, false);
    assert_eq!((rest.add.len(), rest.remove.len()), (1, 0));
    assert!(
        fixture.importer.step(3, false).is_empty(),
        "all is on its way"
    );
    fixture.importer.resume();
    assert_eq!(fixture.importer.step(9, false).add.len(), 4);
    fixture.importer.resume();
    fixture.settle(3);
    assert_eq!(fixture.imported().len(), 4);
}

#[test]
fn a_next_hop_is_exchanged_in_one_step() {
    let to = prefix("192.0.2.0/24");
    let mut fixture = ready(100, never(), vec![route(to, &[(2, BRIDGE), (3, BRIDGE)])]);
    fixture.importer.dump(vec![route(to, &[(4, BRIDGE)])]);
    fixture.evaluate();
    let step = fixture.importer.step(1, true);
    assert_eq!((step.add.len(), step.remove.len()), (1, 2));
}

#[test]
fn a_mass_withdrawal_is_retained_while_its_sessions_are_up_and_no_longer() {
    let both = |a, b| Some(BTreeMap::from([(peer(2), a), (peer(3), b)]));
    for (peers, retained) in [
        (both(true, true), 20),
        // What came over the session that is down goes; the other half is no more than half.
        (both(true, false), 0),
        (both(false, false), 0),
        // Not asked, or not answered; and a configuration without peers, which is the admin's own doing.
        (None, 0),
        (Some(BTreeMap::new()), 0),
        // Reflected routes: the reflector's session stands for all.
        (Some(BTreeMap::from([(peer(9), true)])), 20),
        (Some(BTreeMap::from([(peer(9), false)])), 0),
    ] {
        let mut fixture = ready(100, usual(), nets(20));
        fixture.peers = peers.clone();
        fixture.importer.dump(Vec::new());
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), retained, "{peers:?}");
        assert_eq!(fixture.importer.retained().count(), retained);
        assert_eq!(fixture.suppression.is_open(), retained > 0);
    }
    let mut fixture = ready(100, usual(), nets(20));
    fixture.peers = both(true, true);
    fixture.importer.dump(nets(3));
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20);
    fixture.importer.dump(nets(12));
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20, "the rest waits still");
    fixture.peers = both(true, false);
    fixture.now = Duration::from_secs(1);
    fixture.settle(1000);
    assert_eq!(
        fixture.imported().len(),
        16,
        "its session went down meanwhile"
    );
    fixture.now = Duration::from_secs(60);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 12);
    assert!(!fixture.suppression.is_open());
}

/// FRR as it is when all is well.
fn calm(sessions: retention::Sessions) -> FrrStatus {
    FrrStatus::Up(retention::Running {
        instance: "a".to_owned(),
        age: Duration::from_secs(3600),
        linked: Some(true),
        sessions,
    })
}

#[test]
fn what_is_lost_goes_after_a_probe_that_was_taken_later_and_what_is_new_comes_at_once() {
    let mut fixture = ready(100, usual(), nets(20));
    fixture.retention = Retention::new(Duration::from_secs(120), None);
    let at = Duration::from_millis;
    fixture.now = at(1000);
    fixture
        .retention
        .observe(at(1000), &calm(retention::Sessions::NotAsked));
    let mut others = nets(22);
    others.drain(..3);
    fixture.importer.dump(others);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 22, "two more, and the three wait");
    assert_eq!(
        fixture.importer.retained().count(),
        0,
        "nobody reports them"
    );
    assert_eq!(fixture.importer.unexplained(), Some((at(1000), at(1000))));
    for (probe, left) in [(1049, 22), (1050, 19)] {
        fixture.now = at(probe + 3);
        fixture
            .retention
            .observe(at(probe), &calm(retention::Sessions::NotAsked));
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), left, "a probe at {probe} ms");
    }
    assert_eq!(fixture.importer.unexplained(), None);
}

#[test]
fn what_has_another_reason_to_go_waits_for_no_probe() {
    let mut fixture = ready(100, usual(), nets(5));
    fixture.retention = Retention::new(Duration::from_secs(120), None);
    fixture.importer.set_links([(BRIDGE, false)].into());
    fixture.settle(1000);
    assert_eq!(fixture.imported(), [], "its link is down");
}

#[test]
fn of_a_mass_withdrawal_nothing_goes_before_sessions_were_asked_for_and_all_of_it_counts() {
    let up = BTreeMap::from([(peer(2), true), (peer(3), true)]);
    let session = retention::Session {
        up: true,
        since: Duration::from_secs(3600),
        falls: 0,
    };
    let reported = up.keys().map(|peer| (peer.clone(), session));
    let reported = calm(retention::Sessions::Peers(reported.collect()));
    let at = Duration::from_millis;
    let mut fixture = ready(100, usual(), nets(20));
    fixture.retention = Retention::new(Duration::from_secs(120), None);
    fixture.peers = Some(up);
    fixture.retention.observe(at(0), &reported);
    fixture.now = at(1000);
    let left = |from: usize| nets(20).into_iter().skip(from).collect();
    fixture.importer.dump(left(8));
    fixture.settle(1000);
    assert!(!fixture.suppression.is_open());
    fixture.now = at(1040);
    fixture.importer.dump(left(16));
    fixture.settle(1000);
    assert_eq!(fixture.importer.unexplained(), Some((at(1000), at(1040))));
    assert!(!fixture.suppression.is_open(), "it may be FRR's end");
    fixture.now = at(1055);
    fixture
        .retention
        .observe(at(1050), &calm(retention::Sessions::NotAsked));
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20, "sessions were not asked for");
    fixture.now = at(1065);
    fixture.retention.observe(at(1060), &reported);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20);
    assert!(fixture.suppression.is_open(), "eight and eight of twenty");
}

#[test]
fn a_bgpd_that_does_not_answer_may_have_every_session_up() {
    let mut fixture = ready(100, usual(), nets(20));
    fixture.unasked = Sessions::NoAnswer;
    fixture.importer.dump(Vec::new());
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20);
    fixture.now = Duration::from_secs(60);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 0, "not for ever");
}

#[test]
fn a_new_process_holds_on_to_what_it_finds_if_that_is_retained_at_all() {
    for (adopt, retained) in [(true, 20), (false, 0)] {
        let mut fixture = Fixture::new(100, usual());
        fixture.peers = Some(BTreeMap::from([(peer(9), true)]));
        fixture.importer.set_links([(BRIDGE, true)].into());
        fixture.importer.set_scope(mk_scope());
        for route in nets(20) {
            let prefix = route.prefix;
            let nexthop = route.paths[0].gateway.unwrap();
            fixture.add(RouteRow::Import(ImportedRoute { prefix, nexthop }));
        }
        // A pod subnet whose node is gone is nobody's to hold.
        let prefix = prefix("10.128.77.0/24");
        let nexthop = address(7);
        fixture.add(RouteRow::Import(ImportedRoute { prefix, nexthop }));
        fixture.importer.dump(Vec::new());
        if adopt {
            fixture.importer.adopt();
        }
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), retained);
    }
}

#[test]
fn a_mass_withdrawal_of_nodes_that_are_gone_or_of_a_link_that_is_down_is_obeyed() {
    let pods: Vec<KernelRoute> = (2..22)
        .map(|n| route(prefix(&format!("10.128.{n}.0/24")), &[(n, BRIDGE)]))
        .collect();
    let owners = |count: usize| -> Subnets<Owners> {
        let of = |r: &KernelRoute| (r.prefix, NodeName::from(r.prefix.to_string()));
        pods.iter().take(count).map(of).collect()
    };
    let up: BTreeMap<Peer, bool> = (2..22).map(|n| (peer(n), true)).collect();
    let start = || {
        let mut fixture = ready(100, usual(), Vec::new());
        fixture.importer.set_owners(owners(20));
        fixture.importer.dump(pods.clone());
        fixture.settle(1000);
        fixture.peers = Some(up.clone());
        fixture
    };
    let mut fixture = start();
    fixture.importer.set_owners(owners(5));
    fixture.importer.dump(Vec::new());
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 0, "five of twenty are no mass");
    let mut fixture = start();
    fixture.importer.dump(Vec::new());
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20);
    fixture.importer.set_owners(owners(12));
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 12, "their nodes are gone");
    let mut fixture = start();
    fixture.importer.set_links([(BRIDGE, false)].into());
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 0);
}

#[test]
fn what_went_with_its_session_does_not_count_as_withdrawn() {
    let both = |a, b| Some(BTreeMap::from([(peer(2), a), (peer(3), b)]));
    let over = |n: u8| if n < 12 { 2 } else { 3 };
    let all: Vec<KernelRoute> = (0..20)
        .map(|n| route(prefix(&format!("192.0.{n}.0/24")), &[(over(n), BRIDGE)]))
        .collect();
    // The losses come in portions, as they do from a slow kernel; nobody asks for the first one.
    for portions in [vec![0], vec![7, 0]] {
        let mut fixture = ready(100, usual(), all.clone());
        fixture.peers = both(true, true);
        for left in portions {
            if left == 0 {
                fixture.peers = both(false, true);
            }
            let lost = |at: usize| at >= 12 || at < left;
            let stay = all.iter().enumerate().filter(|(at, _)| lost(*at));
            fixture
                .importer
                .dump(stay.map(|(_, r)| r.clone()).collect());
            if left > 0 {
                let asked = fixture.peers.take();
                fixture.settle(1000);
                fixture.peers = asked;
            } else {
                fixture.settle(1000);
            }
        }
        assert_eq!(fixture.imported().len(), 8);
        fixture.now = Duration::from_secs(1);
        fixture.importer.dump(all[13..].to_vec());
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), 7, "an ordinary withdrawal");
        assert!(!fixture.suppression.is_open());
    }
}

#[test]
fn a_link_local_next_hop_is_explained_by_a_neighbor_whose_session_is_down() {
    let all = |count: u8| -> Vec<KernelRoute> {
        let to = |n: u8| {
            let mut route = route(prefix(&format!("2001:db8:{n}::/48")), &[(2, BRIDGE)]);
            let tor = if n < 12 { "fe80::2" } else { "fe80::3" };
            route.paths[0].gateway = Some(tor.parse().unwrap());
            route
        };
        (0..count).map(to).collect()
    };
    let peer = |text: &str, up| (Peer::from(text), up);
    for (peers, retained) in [
        (
            [peer("2001:db8:30::2", true), peer("2001:db8:30::3", true)],
            20,
        ),
        (
            [peer("2001:db8:30::2", false), peer("2001:db8:30::3", true)],
            8,
        ),
        // A neighbor of the other family brings none of them.
        (
            [peer("172.30.0.2", false), peer("2001:db8:30::3", true)],
            20,
        ),
        ([peer("fe80::2", false), peer("fe80::3", true)], 8),
        // One that is named by the link brings what is over it, whatever the others do.
        ([peer("br-ex", true), peer("2001:db8:30::3", false)], 20),
        ([peer("br-ex", false), peer("2001:db8:30::3", true)], 8),
        ([peer("br-ex", true), peer("fe80::2", false)], 8),
        ([peer("br-ex", false), peer("fe80::2", true)], 20),
        // One of another link is a session as any other.
        ([peer("eth1", true), peer("172.30.0.2", false)], 20),
        ([peer("eth1", false), peer("172.30.0.2", false)], 8),
    ] {
        let mut fixture = ready(100, usual(), all(20));
        fixture.peers = Some(peers.clone().into());
        fixture.importer.dump(all(20)[12..].to_vec());
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), retained, "{peers:?}");
    }
}

#[test]
fn a_next_hop_that_is_no_peer_may_come_from_a_peer_that_is_named_by_its_interface() {
    for (up, retained) in [(true, 20), (false, 8)] {
        let mut fixture = ready(100, usual(), nets(20));
        fixture.peers = Some([(Peer::Interface("br-ex".to_owned()), up)].into());
        fixture.importer.dump(nets(20)[12..].to_vec());
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), retained, "up: {up}");
    }
}

#[test]
fn what_went_for_another_reason_does_not_count_as_withdrawn() {
    let mut fixture = ready(100, usual(), nets(20));
    fixture.peers = Some(BTreeMap::from([(peer(2), true), (peer(3), true)]));
    let mut other = mk_scope();
    other.other_networks = (0..11)
        .map(|n| (prefix(&format!("192.0.{n}.0/24")), ()))
        .collect();
    fixture.importer.set_scope(other);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 9);
    fixture.importer.dump(nets(19));
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 8);
    assert!(!fixture.suppression.is_open());
}

#[test]
fn where_the_kernel_has_another_route_it_is_followed_at_once() {
    let other_way = |n: u8| {
        let to = prefix(&format!("192.0.{n}.0/24"));
        let mut other = match n % 3 {
            0 => route(to, &[(2, OTHER)]),
            1 => route(to, &[]),
            _ => route(to, &[(2, BRIDGE)]),
        };
        if n % 3 == 2 {
            other.paths[0].gateway = Some("fe80::2".parse().unwrap());
        }
        other
    };
    let mut fixture = ready(100, usual(), nets(20));
    fixture
        .importer
        .set_links([(BRIDGE, true), (OTHER, true)].into());
    fixture.peers = Some(BTreeMap::from([(peer(2), true), (peer(3), true)]));
    fixture.importer.dump((0..20).map(other_way).collect());
    fixture.settle(1000);
    assert_eq!(fixture.imported(), []);
    assert!(!fixture.suppression.is_open());
}

#[test]
fn an_aggregate_of_nodes_that_are_there_is_retained_and_one_of_nobody_is_not() {
    for (owner, retained) in [("10.128.66.0/24", 20), ("10.128.99.0/24", 19)] {
        let mut all = nets(19);
        all.push(route(prefix("10.128.64.0/20"), &[(2, BRIDGE)]));
        let mut fixture = ready(100, usual(), Vec::new());
        fixture
            .importer
            .set_owners(Subnets::from_iter([(prefix(owner), NodeName::from("n7"))]));
        fixture.importer.dump(all);
        fixture.settle(1000);
        fixture.peers = Some(BTreeMap::from([(peer(2), true), (peer(3), true)]));
        fixture.importer.dump(Vec::new());
        fixture.settle(1000);
        assert_eq!(fixture.imported().len(), retained, "{owner}");
    }
}

#[test]
fn over_the_limit_the_subnets_of_known_nodes_stay_and_follow_their_owners() {
    let all = [
        "10.128.0.0/17",
        "10.128.64.0/20",
        "10.128.7.0/24",
        "10.128.8.0/24",
    ];
    let routes = all.map(|to| route(prefix(to), &[(2, BRIDGE)]));
    let mut fixture = ready(2, never(), routes.to_vec());
    let there = |fixture: &Fixture| -> Vec<String> {
        fixture
            .destinations()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(there(&fixture), ["10.128.0.0/17", "10.128.64.0/20"]);
    let n7 = (prefix("10.128.7.0/24"), NodeName::from("n7"));
    let n8 = (prefix("10.128.8.0/24"), NodeName::from("n8"));
    fixture
        .importer
        .set_owners(Subnets::from_iter([n7.clone(), n8]));
    fixture.settle(1000);
    assert_eq!(there(&fixture), ["10.128.7.0/24", "10.128.8.0/24"]);
    assert_eq!(fixture.importer.skipped()[OVER_LIMIT].count, 2);
    fixture.importer.set_owners(Subnets::from_iter([n7]));
    fixture.settle(1000);
    assert_eq!(there(&fixture), ["10.128.0.0/17", "10.128.7.0/24"]);
    assert_eq!(fixture.importer.eligible(), 4);
}

#[test]
fn another_limit_lets_the_least_important_go_and_come_back() {
    // The most important first.
    let all = ["10.128.0.0/17", "10.128.64.0/20", "10.128.7.0/24"];
    let routes = all.map(|to| route(prefix(to), &[(2, BRIDGE)]));
    let mut fixture = ready(3, never(), routes.to_vec());
    let there = Fixture::destinations;
    let first = |count: usize| -> BTreeSet<Prefix> {
        all.iter().take(count).map(|text| prefix(text)).collect()
    };
    assert_eq!(there(&fixture), first(3));
    for (limit, over) in [(1, 2), (2, 1), (0, 3), (3, 0), (100, 0)] {
        fixture.importer.set_limit(limit);
        fixture.settle(1000);
        assert_eq!(there(&fixture), first(limit), "limit {limit}");
        let skipped = fixture.importer.skipped();
        let skipped = skipped.get(OVER_LIMIT).map_or(0, |skipped| skipped.count);
        assert_eq!(skipped, over, "limit {limit}");
    }
}

#[test]
fn an_aggregate_equal_to_the_networks_subnet_takes_the_place_of_the_row_that_drops_and_gives_it_back()
 {
    let subnet = prefix("10.128.0.0/16");
    let aggregate = vec![route(subnet, &[(2, BRIDGE), (3, BRIDGE)])];
    let mut fixture = ready(100, never(), Vec::new());
    fixture.settle(1000);
    assert_eq!(fixture.own(), [subnet]);
    assert_eq!(fixture.importer.in_gateway(&subnet), Some(false));
    fixture.importer.dump(aggregate.clone());
    fixture.evaluate();
    let step = fixture.importer.step(1000, false);
    assert_eq!(
        (step.add.len(), step.remove.len(), step.restore.len()),
        (2, 1, 0),
        "in one transaction"
    );
    fixture.importer.resume();
    fixture.settle(1000);
    assert_eq!((fixture.own().len(), fixture.imported().len()), (0, 2));
    assert_eq!(fixture.importer.in_gateway(&subnet), Some(true));
    assert!(fixture.importer.skipped().is_empty());
    fixture.importer.dump(Vec::new());
    fixture.evaluate();
    let step = fixture.importer.step(1000, true);
    assert_eq!(
        (step.add.len(), step.remove.len(), step.restore.len()),
        (0, 2, 1),
        "in one transaction"
    );
    fixture.importer.resume();
    fixture.settle(1000);
    assert_eq!((fixture.own(), fixture.imported().len()), (vec![subnet], 0));
    // Somebody else's row keeps its prefix.
    fixture.importer.dump(aggregate);
    fixture.settle(1000);
    fixture.add(RouteRow::Other(Some(subnet)));
    fixture.settle(1000);
    assert_eq!((fixture.own(), fixture.imported().len()), (vec![subnet], 0));
    assert_eq!(fixture.importer.skipped()[decide::PREFIX_TAKEN].count, 1);
}

/// A scope in which a learned default route takes the configured one's place.
fn replacing() -> Scope {
    let view = mk_view(1);
    mk_scope_of(&view, BTreeSet::new(), BgpDefault::Replace)
}

/// A scope of a process that has never seen the whole view.
fn unseen() -> Scope {
    Scope {
        fallbacks: BTreeMap::new(),
        fallbacks_known: false,
        ..replacing()
    }
}

fn learned(to: Prefix) -> RouteRow {
    RouteRow::Import(ImportedRoute {
        prefix: to,
        nexthop: address(2),
    })
}

/// An import that has just started, before its rows are read.
fn started(scope: Scope) -> Fixture {
    let mut fixture = Fixture::new(100, never());
    fixture.importer.set_links([(BRIDGE, true)].into());
    fixture.importer.set_scope(scope);
    fixture
}

#[test]
fn without_a_view_at_the_start_the_fallback_comes_back() {
    let (default, subnet) = (prefix("0.0.0.0/0"), prefix("10.128.0.0/16"));
    let mut fixture = started(unseen());
    // From the process before; meanwhile the kernel has lost them.
    for to in [default, subnet, prefix("192.0.2.0/24")] {
        fixture.add(learned(to));
    }
    fixture.add(RouteRow::Malformed);
    for _ in 0..3 {
        fixture.write(1000);
    }
    assert_eq!(
        fixture.destinations(),
        [default, subnet].into(),
        "nobody knows what comes in their place"
    );
    assert!(
        fixture.rows.values().any(|row| *row == RouteRow::Malformed),
        "nor which destination an edited row is of"
    );
    fixture.importer.set_scope(replacing());
    fixture.settle(1000);
    assert_eq!(fixture.own(), [default, subnet]);
    assert_eq!(fixture.imported(), []);
}

#[test]
fn without_a_view_what_the_kernel_asks_for_is_followed() {
    let default = prefix("0.0.0.0/0");
    let mut fixture = started(unseen());
    fixture.add(learned(default));
    fixture.importer.dump(vec![route(default, &[(3, BRIDGE)])]);
    fixture.settle(1000);
    let nexthop = address(3);
    assert_eq!(
        fixture.imported(),
        [ImportedRoute {
            prefix: default,
            nexthop
        }]
    );
}

#[test]
fn the_default_is_back_when_another_importers_row_goes() {
    let default = prefix("0.0.0.0/0");
    let mut fixture = started(replacing());
    fixture.add_discard();
    let other = fixture.add(RouteRow::Other(Some(default)));
    // The topology's gave way to it once.
    fixture.remove(other);
    fixture.settle(1000);
    assert!(fixture.own().contains(&default), "{:?}", fixture.own());
}

#[test]
fn a_malformed_default_that_goes_brings_the_fallback() {
    let default = prefix("0.0.0.0/0");
    let mut fixture = started(replacing());
    fixture.add_discard();
    // The learned default of the process before, edited by hand since; the kernel has none now.
    fixture.add(RouteRow::Malformed);
    fixture.settle(1000);
    assert_eq!(fixture.own(), [default, prefix("10.128.0.0/16")]);
    assert_eq!(fixture.imported(), []);
}

#[test]
fn a_fallback_whose_transaction_failed_is_tried_again() {
    let default = prefix("0.0.0.0/0");
    let mut fixture = started(replacing());
    fixture.add_discard();
    fixture.evaluate();
    let lost = fixture.importer.step(1000, true);
    assert_eq!(lost.restore.len(), 1);
    assert!(
        fixture.importer.step(1000, true).is_empty(),
        "it is on its way"
    );
    fixture.importer.resume();
    fixture.settle(1000);
    assert_eq!(fixture.own(), [default, prefix("10.128.0.0/16")]);
}

#[test]
fn a_learned_default_over_the_limit_leaves_the_configured_one() {
    let default = prefix("0.0.0.0/0");
    let mut fixture = Fixture::new(0, never());
    fixture.importer.set_links([(BRIDGE, true)].into());
    fixture.importer.set_scope(replacing());
    fixture.importer.dump(vec![route(default, &[(2, BRIDGE)])]);
    fixture.settle(1000);
    assert!(fixture.own().contains(&default), "{:?}", fixture.own());
}

#[test]
fn what_drops_is_reported_apart_from_what_forwards() {
    let mut fixture = ready(
        100,
        never(),
        vec![
            route(prefix("192.0.1.0/24"), &[(2, BRIDGE)]),
            route(prefix("192.0.2.0/24"), &[]),
            route(prefix("192.0.3.0/24"), &[(2, OTHER)]),
        ],
    );
    fixture
        .importer
        .set_links([(BRIDGE, true), (OTHER, true)].into());
    fixture.add(RouteRow::Topology {
        prefix: prefix("10.128.1.0/24"),
        discards: false,
    });
    fixture.add(RouteRow::Other(Some(prefix("192.0.4.0/24"))));
    fixture.add(RouteRow::Discard(prefix("192.0.5.0/24")));
    fixture.settle(1000);
    for (asked, kernel, gateway) in [
        ("192.0.1.0/24", Some(true), Some(true)),
        ("192.0.2.0/24", Some(false), None),
        ("192.0.3.0/24", Some(true), None),
        ("192.0.4.0/24", None, Some(true)),
        ("192.0.5.0/24", None, Some(false)),
        ("192.0.6.0/24", None, None),
        ("10.128.0.0/16", None, Some(false)),
        ("10.128.1.0/24", None, None),
    ] {
        let asked = prefix(asked);
        let found = (
            fixture.importer.in_kernel(&asked),
            fixture.importer.in_gateway(&asked),
        );
        assert_eq!(found, (kernel, gateway), "{asked}");
    }
}

#[test]
fn what_is_left_out_of_the_network_is_reported_apart_from_the_rest() {
    let mut all = nets(30);
    all.truncate(7);
    for to in [
        "10.128.1.0/24",
        "10.128.1.7/32",
        "100.64.3.0/24",
        "10.127.0.0/16",
    ] {
        all.push(route(prefix(to), &[(2, OTHER)]));
    }
    let mut fixture = ready(5, never(), all);
    fixture
        .importer
        .set_links([(BRIDGE, true), (OTHER, true)].into());
    fixture.settle(1000);
    let found: Vec<(&str, usize)> = fixture
        .importer
        .skipped_pods()
        .iter()
        .map(|(reason, skipped)| (*reason, skipped.count))
        .collect();
    assert_eq!(found, [(decide::OWN_SUBNET, 2)]);
    assert!(fixture.importer.skipped().len() > 1);
}

#[test]
fn the_rows_of_a_network_go_with_its_table_and_no_suppression_holds_them() {
    let mut fixture = ready(100, usual(), nets(20));
    fixture.peers = Some(BTreeMap::from([(peer(2), true), (peer(3), true)]));
    fixture.importer.set_table(None);
    fixture.settle(1000);
    assert_eq!(fixture.imported(), []);
    fixture.importer.set_table(Some(1010));
    fixture.importer.dump(nets(20));
    fixture.settle(1000);
    assert_eq!(fixture.imported(), [], "these are another table's");
    let mut other = nets(20);
    for route in &mut other {
        route.table = 1010;
    }
    fixture.importer.dump(other);
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20);
}

#[derive(Debug, Clone)]
enum Happening {
    Replace(Prefix, Vec<(u8, u32)>),
    Delete(Prefix),
    Link(u32, bool),
    World(Option<u32>, bool),
    Foreign(Prefix, bool),
    /// Somebody adds a copy of one of our rows, a malformed one, or removes one.
    Copy(usize),
    Malformed,
    Lose(usize),
    Step(usize),
    Dump,
}

fn some_prefix() -> impl Strategy<Value = Prefix> {
    let texts = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.128.0.0/16",
        "10.128.1.0/24",
        "10.128.1.7/32",
        "10.128.2.0/24",
        "10.128.3.0/24",
        "10.128.4.0/23",
        "192.0.2.0/24",
        "192.0.2.0/25",
        "198.51.100.0/24",
        "100.64.0.0/16",
    ];
    prop::sample::select(texts.map(prefix).to_vec())
}

fn some_happening() -> impl Strategy<Value = Happening> {
    let hops = || prop::collection::vec((1_u8..5, prop::sample::select(vec![BRIDGE, OTHER])), 0..4);
    prop_oneof![
        6 => (some_prefix(), hops()).prop_map(|(p, hops)| Happening::Replace(p, hops)),
        3 => some_prefix().prop_map(Happening::Delete),
        1 => (prop::sample::select(vec![BRIDGE, OTHER]), any::<bool>()).prop_map(|(l, up)| Happening::Link(l, up)),
        1 => (prop::option::weighted(0.8, Just(BRIDGE)), any::<bool>()).prop_map(|(l, b)| Happening::World(l, b)),
        1 => (some_prefix(), any::<bool>()).prop_map(|(p, b)| Happening::Foreign(p, b)),
        1 => (0_usize..20).prop_map(Happening::Copy),
        1 => Just(Happening::Malformed),
        1 => (0_usize..20).prop_map(Happening::Lose),
        3 => (1_usize..6).prop_map(Happening::Step),
        1 => Just(Happening::Dump),
    ]
}

/// What a fresh look at everything says.
fn reference(
    kernel: &BTreeMap<Prefix, KernelRoute>,
    links: &BTreeMap<u32, bool>,
    scope: &Scope,
    limit: usize,
) -> Vec<ImportedRoute> {
    let mut rib = Rib::default();
    rib.set_links(links.clone());
    rib.replace(kernel.values().cloned().collect());
    let plan = crate::decide::tests::plan(rib.view(MAIN_TABLE), scope);
    let rank = |row: &ImportedRoute| Rank::new(row.prefix, &scope.cluster_subnets, false);
    let all: BTreeSet<Rank> = plan.desired.iter().map(rank).collect();
    let kept: BTreeSet<Rank> = all.into_iter().take(limit).collect();
    let rows = plan.desired.into_iter();
    rows.filter(|row| kept.contains(&rank(row))).collect()
}

proptest! {
    #[test]
    fn whatever_happens_in_whatever_order_it_ends_where_a_fresh_one_ends(
        happenings in prop::collection::vec(some_happening(), 0..60),
        limit in prop_oneof![Just(100_usize), 0_usize..6],
        most in 1_usize..8,
    ) {
        let mut fixture = Fixture::new(limit, never());
        let mut kernel: BTreeMap<Prefix, KernelRoute> = BTreeMap::new();
        let mut links = BTreeMap::from([(BRIDGE, true), (OTHER, true)]);
        let mut scope = mk_scope();
        fixture.importer.set_links(links.clone());
        fixture.importer.set_scope(scope.clone());
        let mut foreign: BTreeMap<Prefix, u32> = BTreeMap::new();
        fixture.add_discard();
        for happening in happenings {
            let mut event = |change, route| {
                let event = RouteEvent { change, protocol: PROTOCOL_BGP, route };
                fixture.importer.events(PROTOCOL_BGP, vec![event])
            };
            match happening {
                Happening::Replace(to, hops) => {
                    let new = route(to, &hops);
                    let change = match kernel.insert(to, new.clone()) {
                        Some(_) => RouteChange::Replaced,
                        None => RouteChange::Added,
                    };
                    prop_assert!(event(change, new));
                }
                Happening::Delete(to) => {
                    if let Some(old) = kernel.remove(&to) {
                        prop_assert!(event(RouteChange::Gone, old));
                    }
                }
                Happening::Link(link, up) => {
                    links.insert(link, up);
                    fixture.importer.set_links(links.clone());
                }
                Happening::World(link, replace) => {
                    scope.gateway_link = link;
                    scope.bgp_default = if replace { BgpDefault::Replace } else { BgpDefault::Ignore };
                    fixture.importer.set_scope(scope.clone());
                }
                Happening::Foreign(to, there) => {
                    if there && !foreign.contains_key(&to) {
                        let id = fixture.add(RouteRow::Other(Some(to)));
                        foreign.insert(to, id);
                    } else if !there && let Some(id) = foreign.remove(&to) {
                        fixture.remove(id);
                    }
                }
                Happening::Copy(at) => {
                    let rows: Vec<RouteRow> = fixture.rows.values().filter(|r| matches!(r, RouteRow::Import(_))).cloned().collect();
                    if let Some(row) = rows.get(at % rows.len().max(1)) {
                        fixture.add(row.clone());
                    }
                }
                Happening::Malformed => drop(fixture.add(RouteRow::Malformed)),
                Happening::Lose(at) => {
                    let rows = fixture.rows.iter().filter(|(_, r)| matches!(r, RouteRow::Import(_)));
                    let ids: Vec<u32> = rows.map(|(id, _)| *id).collect();
                    if let Some(id) = ids.get(at % ids.len().max(1)) {
                        fixture.remove(*id);
                    }
                }
                Happening::Step(most) => drop(fixture.write(most)),
                Happening::Dump => {
                    let changed = fixture.importer.dump(kernel.values().cloned().collect());
                    prop_assert_eq!(changed, 0, "events reported everything");
                }
            }
        }
        fixture.settle(most);
        scope.taken = foreign.keys().copied().collect();
        let expected = reference(&kernel, &links, &scope, limit);
        prop_assert_eq!(fixture.imported(), expected);
        // One of the two is there, never both.
        let subnet = prefix("10.128.0.0/16");
        let own = if fixture.destinations().contains(&subnet) { vec![] } else { vec![subnet] };
        prop_assert_eq!(fixture.own(), own);

        let mut fresh = Fixture::new(limit, never());
        for row in fixture.rows.values() {
            fresh.add(row.clone());
        }
        fresh.importer.dump(kernel.into_values().collect());
        fresh.importer.set_scope(scope);
        fresh.importer.set_links(links);
        prop_assert!(!fresh.write(most), "a restart has nothing to do");
        let reported = |i: &Importer<u32>| (i.skipped(), i.digest(), i.rows(), i.existing(), i.eligible(), i.seen(), i.withdrawn());
        prop_assert_eq!(reported(&fresh.importer), reported(&fixture.importer));
    }

    #[test]
    fn a_first_dump_gives_what_one_route_after_the_other_gives(
        nets in prop::collection::btree_map((0_u32..=u32::MAX, 0_u8..33), 0_u8..4, 0..40),
        limit in 0_usize..20,
    ) {
        // Half of them near the pods; some without a way, over another link, or by way of the node itself.
        let mut routes: BTreeMap<Prefix, KernelRoute> = BTreeMap::new();
        for ((bits, length), kind) in nets {
            let near = if bits % 2 == 0 { bits } else { 0x0a80_0000 | (bits >> 16) };
            let ip = std::net::Ipv4Addr::from_bits(near);
            let to = Prefix::new(ip.into(), length).unwrap();
            let hops: &[(u8, u32)] = match kind {
                0 => &[],
                1 => &[(2, BRIDGE), (3, BRIDGE)],
                2 => &[(2, OTHER), (3, BRIDGE)],
                _ => &[(1, BRIDGE)],
            };
            routes.insert(to, route(to, hops));
        }
        let fresh = || {
            let mut importer: Importer<u32> = Importer::new(limit);
            importer.set_table(Some(MAIN_TABLE));
            importer.set_links([(BRIDGE, true), (OTHER, true)].into());
            importer.set_owners(Subnets::from_iter([(prefix("10.128.2.0/24"), NodeName::from("n2"))]));
            importer
        };
        let (mut at_once, mut late, mut one_by_one) = (fresh(), fresh(), fresh());
        at_once.set_scope(mk_scope());
        one_by_one.set_scope(mk_scope());
        // One that is there already: nothing is laid out at once.
        let first = route(prefix("203.0.113.0/24"), &[(2, BRIDGE)]);
        one_by_one.dump(vec![first]);
        let all: Vec<KernelRoute> = routes.values().cloned().collect();
        let mut some = vec![route(prefix("203.0.113.0/24"), &[(2, BRIDGE)])];
        for route in &all {
            some.push(route.clone());
            one_by_one.dump(some.clone());
        }
        one_by_one.dump(all.clone());
        at_once.dump(all.clone());
        late.dump(all);
        late.set_scope(mk_scope());
        let text = |importer: &Importer<u32>| format!("{importer:#?}");
        prop_assert_eq!(text(&at_once), text(&one_by_one));
        prop_assert_eq!(text(&late), text(&one_by_one));
    }

    #[test]
    fn no_route_whatever_it_is_takes_local_traffic_away(
        nets in prop::collection::btree_set((0_u32..=u32::MAX, 0_u8..33), 0..30),
    ) {
        // Longest prefix match over all rows of the gateway router, our topology's and imported ones.
        let view = mk_view(1);
        let topology = learn::topology_prefixes(&north::plan(view.get()), &view.get().gateway_router());
        let mut routes: Vec<KernelRoute> = Vec::new();
        for (bits, length) in nets {
            // Half of them near the pods: around, equal to and inside the own subnet.
            let near = if bits % 2 == 0 { bits } else { 0x0a80_0100 | (bits >> 20 & 0x1ff) };
            let ip = std::net::Ipv4Addr::from_bits(near);
            routes.push(route(Prefix::new(ip.into(), length).unwrap(), &[(2, BRIDGE)]));
        }
        let mut fixture = Fixture::new(100, never());
        for prefix in &topology {
            let discards = prefix.bits() == 16;
            fixture.add(RouteRow::Topology { prefix: *prefix, discards });
        }
        fixture.importer.set_links([(BRIDGE, true)].into());
        fixture.importer.set_scope(mk_scope());
        fixture.importer.dump(routes);
        fixture.settle(100);
        let imported = fixture.destinations();
        for host in [1_u128, 2, 5, 77, 254] {
            let pod = Prefix::host(view.share.host_subnets[0].nth(host).unwrap());
            let longest = |all: &BTreeSet<Prefix>| all.iter().filter(|p| p.contains(&pod)).map(Prefix::bits).max();
            prop_assert!(longest(&imported) < longest(&topology), "{pod}");
        }
    }
}

#[test]
fn the_kernel_forwards_what_its_longest_usable_route_covers() {
    let mut importer: Importer<u32> = Importer::new(100);
    importer.set_table(Some(MAIN_TABLE));
    importer.set_links([(BRIDGE, true), (OTHER, true)].into());
    importer.set_scope(mk_scope());
    let forwards = |importer: &Importer<u32>, subnet: &str| importer.forwards(&prefix(subnet), 16);
    importer.dump(vec![
        // As long as the network: beside OVN-Kubernetes' own route it is not looked at.
        route(prefix("10.128.0.0/16"), &[(9, BRIDGE)]),
        route(prefix("10.128.2.0/24"), &[(2, BRIDGE)]),
        // An aggregate, with one subnet in it that is dropped and one by another link.
        route(prefix("10.128.8.0/22"), &[(3, BRIDGE)]),
        route(prefix("10.128.9.0/24"), &[]),
        route(prefix("10.128.10.0/24"), &[(4, OTHER)]),
        // Half a subnet is no way to all of it, nor is the whole with a half that is dropped.
        route(prefix("10.128.5.0/25"), &[(5, BRIDGE)]),
        route(prefix("10.128.6.0/24"), &[(6, BRIDGE)]),
        route(prefix("10.128.6.128/25"), &[]),
        route(prefix("10.128.12.0/24"), &[(6, BRIDGE)]),
        route(prefix("10.128.12.128/25"), &[(7, BRIDGE)]),
    ]);
    for (subnet, expected) in [
        ("10.128.2.0/24", true),
        ("10.128.8.0/24", true),
        ("10.128.9.0/24", false),
        ("10.128.10.0/24", false),
        ("10.128.5.0/24", false),
        ("10.128.6.0/24", false),
        ("10.128.12.0/24", true),
        ("10.128.7.0/24", false),
    ] {
        assert_eq!(forwards(&importer, subnet), expected, "{subnet}");
    }
}

#[test]
fn what_is_over_the_limit_is_not_steered() {
    let mut importer: Importer<u32> = Importer::new(1);
    importer.set_table(Some(MAIN_TABLE));
    importer.set_links([(BRIDGE, true)].into());
    importer.set_scope(mk_scope());
    let two = ["10.128.2.0/24", "10.128.3.0/24"].map(prefix);
    importer.dump(two.map(|to| route(to, &[(2, BRIDGE)])).into());
    assert_eq!(
        two.map(|subnet| importer.forwards(&subnet, 16)),
        [true, false]
    );
    importer.set_limit(2);
    assert_eq!(
        two.map(|subnet| importer.forwards(&subnet, 16)),
        [true, true]
    );
}

#[test]
fn what_is_retained_for_a_gateway_router_is_not_forwarded_by_the_kernel() {
    let mut fixture = ready(100, usual(), nets(20));
    fixture.unasked = Sessions::NoAnswer;
    let forwarded = |fixture: &Fixture| {
        let all = nets(20).into_iter();
        all.filter(|route| fixture.importer.forwards(&route.prefix, 16))
            .count()
    };
    assert_eq!(forwarded(&fixture), 20);
    fixture.importer.dump(Vec::new());
    fixture.settle(1000);
    assert_eq!(fixture.imported().len(), 20, "retained");
    assert_eq!(forwarded(&fixture), 0);
}
