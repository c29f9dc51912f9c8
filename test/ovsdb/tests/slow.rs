//! A reader far slower than the server's changes: neither side piles them up.
//!
//! In: a real server whose rows change again and again, and a way to it that lets a few bytes through. Out: the memory
//! of this process, and the replica in the end.
//! Invariant: alone in its process, so that its peak is the client's.
//! Not here: connections that end; see `faults.rs`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::time::Duration;

use ovsdb::{Client, Datum, Row, Transaction};
use ovsdb_tests::{
    FaultProxy, Flow, NB, Server, Way, absent, mk_client, mk_config, mk_route, mk_router,
    routes_of, until_equal, until_replica, until_status, until_synced,
};

const ROWS: u32 = 1000;
const CHANGES: usize = 100;
/// Bytes that each change puts into each row.
const WIDTH: usize = 1024;
/// What the process may grow by, KiB: enough for a few dumps, a sixth of all changes.
const BOUND: u64 = 16 << 10;

/// The most memory this process ever had, KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_slow_reader_stays_small_and_comes_into_step() {
    if absent(&["ovsdb-server", "ovsdb-tool", "setpriv"]) {
        return;
    }
    let server = Server::start();
    // It follows nothing, so that what it causes does not come back to it.
    let mut config = mk_config(&server.socket());
    config.tables.clear();
    let filler = Client::connect(config);
    until_synced(&filler).await;
    filler.transact(&mk_router("gr")).await.unwrap();
    filler.transact(&mk_route("gr", 0, ROWS)).await.unwrap();
    let widened = |number: usize| {
        let value = format!("{number}-{}", "x".repeat(WIDTH));
        let row = Row::new().with("external_ids", Datum::map([("owner", value)]));
        Transaction::new(NB).update("Logical_Router_Static_Route", vec![], row)
    };
    filler.transact(&widened(0)).await.unwrap();

    let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
    let client = mk_client(fault_proxy.socket());
    until_synced(&client).await;
    let (before, relayed) = (peak(), fault_proxy.relayed(Way::Down));
    fault_proxy.flow(Way::Down, Flow::Slow(16, Duration::from_millis(50)));
    for number in 1..=CHANGES {
        filler.transact(&widened(number)).await.unwrap();
    }
    let (during, slowly) = (peak(), fault_proxy.relayed(Way::Down) - relayed);
    assert_eq!(
        client.with_replica(routes_of),
        Some(1000),
        "the old rows are shown"
    );
    assert!(slowly < 1 << 20, "it was slow: {slowly} bytes");

    fault_proxy.flow(Way::Down, Flow::Free);
    until_status(&client, |status| status.connection.is_synced()).await;
    let last = format!("{CHANGES}-{}", "x".repeat(WIDTH));
    until_replica(&client, |replica| {
        let rows = replica.table("Logical_Router_Static_Route").unwrap();
        let wanted = Datum::map([("owner", &*last)]);
        rows.values()
            .all(|row| row.datum("external_ids") == Some(&wanted))
    })
    .await;
    let after = peak();
    let whole = u64::from(ROWS) * u64::try_from(CHANGES * WIDTH / 1024).unwrap();
    println!("peak {before} KiB, slow {during}, caught up {after}; all changes {whole}");
    println!("{} sessions", client.watch().borrow().sessions);
    assert!(whole > 5 * BOUND);
    assert!(after - before < BOUND, "grew by {} KiB", after - before);
    until_equal(&client, &server).await;
}
