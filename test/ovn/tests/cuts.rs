//! Imported routes over a connection that ends after any byte: the next difference repairs what is half done.
//!
//! In: batches to a real ovsdb-server, cut at every end of a transaction and at places in between, both ways.
//! Out: rows, as a second client sees them all the while.
//! Invariant: in the end each route has one row; a prefix that is wanted before and after is never without one.
//! Not here: what the client makes of a cut; see the tests of `ovsdb`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use model::nb::{ImportTarget, ImportedRoute};
use ovn_tests::{Fixture, TOOLS, mk_routes, mk_view, rows_of};
use ovsdb::{Changes, Client, Replica, TransactError, Transaction, Uuid};
use ovsdb_tests::{FaultProxy, PATIENCE, Server, Way, absent, until, until_status, until_synced};

const ROUTE: &str = "Logical_Router_Static_Route";
const HOPS: [&str; 2] = ["172.30.0.2", "172.30.0.3"];
/// Routes that change their hop in each round: five transactions.
const CHANGING: u32 = 600;
const STAYING: u32 = 100;
/// Cuts at random places, each way.
const RANDOM: usize = 12;

type Routes = BTreeSet<ImportedRoute>;

/// Routes that stay, and the others by way of a hop.
fn mk_desired(hop: usize) -> Routes {
    let hop = HOPS.get(hop % 2).unwrap();
    let staying = mk_routes(5000, STAYING, HOPS.first().unwrap());
    staying
        .into_iter()
        .chain(mk_routes(0, CHANGING, hop))
        .collect()
}

fn routes(replica: &Replica) -> &std::collections::BTreeMap<Uuid, ovsdb::Record> {
    replica.table(ROUTE).unwrap()
}

/// Prefixes that have a row.
fn prefixes(replica: &Replica) -> BTreeSet<String> {
    let rows = routes(replica).values();
    rows.map(|row| row.get("ip_prefix").unwrap()).collect()
}

/// Sends what is missing; true where nothing was. An error says that the connection went.
async fn attempt(
    fixture: &Fixture,
    target: &ImportTarget,
    desired: &Routes,
) -> Result<bool, TransactError> {
    let transactions = fixture.encode_imports(target, desired);
    for transaction in &transactions {
        fixture
            .client
            .transact(transaction)
            .await?
            .check_counts()
            .unwrap();
    }
    look(fixture).await?;
    Ok(transactions.is_empty())
}

/// Changes nothing; after its reply the replica has what came before.
async fn look(fixture: &Fixture) -> Result<(), TransactError> {
    let nothing = Transaction::new(ovn::north::DATABASE).comment("noverlay test");
    fixture.client.transact(&nothing).await.map(|_| ())
}

/// Passes until one finds nothing to do; how many that took. After so many cuts in all there are no more.
async fn settle(
    fixture: &Fixture,
    (fault_proxy, most): (&FaultProxy, usize),
    target: &ImportTarget,
    desired: &Routes,
) -> usize {
    let mut passes = 0;
    let passing = async {
        loop {
            if fault_proxy.cuts() >= most {
                fault_proxy.cut_after(None);
            }
            if !fixture.client.watch().borrow().connection.is_synced() {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            passes += 1;
            match attempt(fixture, target, desired).await {
                Ok(true) => return,
                Ok(false) | Err(TransactError::MaybeApplied | TransactError::NotConnected) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, passing).await.unwrap();
    passes
}

/// A new connection, so that bytes count from its beginning; how many went each way until it was in step.
async fn renew(fixture: &Fixture, fault_proxy: &FaultProxy) -> [usize; 2] {
    let sessions = fixture.client.watch().borrow().sessions;
    fault_proxy.cut_now();
    until_status(&fixture.client, |status| {
        status.sessions > sessions && status.connection.is_synced()
    })
    .await;
    look(fixture).await.unwrap();
    relayed(fault_proxy)
}

fn relayed(fault_proxy: &FaultProxy) -> [usize; 2] {
    [fault_proxy.relayed(Way::Up), fault_proxy.relayed(Way::Down)]
}

/// After how many bytes to cut, each way: the ends of transactions and their neighbours, and places in between.
async fn places(
    fixture: &Fixture,
    fault_proxy: &FaultProxy,
    target: &ImportTarget,
    desired: &Routes,
) -> Vec<(Way, usize)> {
    let [up, down] = renew(fixture, fault_proxy).await;
    let transactions = fixture.encode_imports(target, desired);
    assert_eq!(transactions.len(), 5);
    let mut places = Vec::new();
    let mut ends = [0; 2];
    for transaction in &transactions {
        fixture.client.transact(transaction).await.unwrap();
        let [upto, downto] = relayed(fault_proxy);
        ends = [upto - up, downto - down];
        for (way, end) in [Way::Up, Way::Down].into_iter().zip(ends) {
            places.extend([end - 1, end, end + 1].map(|place| (way, place)));
        }
    }
    // Beyond the last end nothing comes.
    places.retain(|(way, place)| *place <= if *way == Way::Up { ends[0] } else { ends[1] });
    let mut state = 1_u64;
    for _ in 0..RANDOM {
        for (way, end) in [Way::Up, Way::Down].into_iter().zip(ends) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            places.push((way, usize::try_from(state >> 33).unwrap() % end));
        }
    }
    places
}

/// Looks on with a connection of its own until it is aborted; panics where a wanted prefix is without a row.
fn look_on(fixture: &Fixture) -> tokio::task::JoinHandle<()> {
    let hand = fixture.hand.clone();
    let wanted: BTreeSet<String> = mk_desired(0)
        .iter()
        .map(|route| route.prefix.to_string())
        .collect();
    tokio::spawn(async move {
        let mut status = hand.watch();
        loop {
            let there = hand.with_replica(prefixes).unwrap();
            assert!(
                wanted.is_subset(&there),
                "without a row: {:?}",
                wanted.difference(&there).next()
            );
            status.changed().await.unwrap();
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
async fn a_connection_cut_after_any_byte_leaves_no_route_twice_and_none_out() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
    let socket = fault_proxy.socket().to_owned();
    let fixture = Fixture::by_way_of(server, socket).await;
    let view = mk_view();
    fixture.pass(&rows_of(&view)).await;
    let target = ImportTarget::of(view.get().name(), &view.node.name);
    fixture.import(&target, &mk_desired(0)).await;
    let places = places(&fixture, &fault_proxy, &target, &mk_desired(1)).await;
    fixture.import(&target, &mk_desired(1)).await;
    let kept = uuids(
        &fixture,
        &target,
        &mk_routes(5000, STAYING, HOPS.first().unwrap()),
    );
    assert_eq!(kept.len(), usize::try_from(STAYING).unwrap());

    let onlooker = look_on(&fixture);
    let mut passes = 0;
    for (round, (way, place)) in places.iter().enumerate() {
        let desired = mk_desired(round);
        let since = fixture.hand.with_replica(Replica::generation).unwrap();
        let [up, down] = renew(&fixture, &fault_proxy).await;
        let base = if *way == Way::Up { up } else { down };
        let cuts = fault_proxy.cuts();
        fault_proxy.cut_after(Some((*way, base + place)));
        passes += settle(
            &fixture,
            (&fault_proxy, cuts + 1 + round % 3),
            &target,
            &desired,
        )
        .await;
        fault_proxy.cut_after(None);
        assert!(
            fault_proxy.cuts() > cuts,
            "round {round}: not cut at {way:?} {place}"
        );

        until_synced(&fixture.client).await;
        assert_eq!(fixture.import(&target, &desired).await, 0, "settled");
        assert_eq!(
            uuids(
                &fixture,
                &target,
                &mk_routes(5000, STAYING, HOPS.first().unwrap())
            ),
            kept
        );
        match fixture
            .hand
            .with_replica(|replica| replica.changes_since(since))
            .unwrap()
        {
            Changes::Rows(rows) => {
                assert!(
                    rows.get(ROUTE).is_none_or(|rows| rows.is_disjoint(&kept)),
                    "round {round}"
                );
            }
            Changes::Everything => panic!("more changed than a round changes"),
        }
        assert!(!onlooker.is_finished(), "{:?}", onlooker.await);
    }
    onlooker.abort();
    println!(
        "{} rounds, {} cuts, {passes} passes",
        places.len(),
        fault_proxy.cuts()
    );

    let fresh = Fixture::connect(fixture.server.socket());
    until_synced(&fresh).await;
    let held = |client: &Client| client.with_replica(|r| routes(r).clone()).unwrap();
    assert_eq!(held(&fixture.client), held(&fresh));
    until("the onlooker has the same rows", || {
        held(&fixture.hand) == held(&fresh)
    })
    .await;
}

/// The rows of these routes.
fn uuids(fixture: &Fixture, target: &ImportTarget, of: &[ImportedRoute]) -> BTreeSet<Uuid> {
    let rows = fixture.imports(target).rows;
    of.iter()
        .flat_map(|route| rows.get(route))
        .flatten()
        .copied()
        .collect()
}
