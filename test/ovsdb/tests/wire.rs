//! The wire: cuts of the stream, load, probes, garbage.
//!
//! In: a real server, in part behind a proxy. Out: proof that the session survives, or ends with a reason.
//! Invariant: no test depends on how long something takes, only on that it happens.
//! Not here: what transactions and replicas mean.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::time::{Duration, Instant};

use ovsdb::{Client, ClientConfig, MonitorTable, TransactError, Transaction};
use ovsdb_tests::{
    NB, Proxy, Relay, Server, absent, free_port, mk_client, mk_config, mk_route, mk_router,
    routes_of, until_error, until_replica, until_status, until_synced,
};

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "setpriv"];

/// Sends all at once and waits for all.
async fn all(client: &Client, transactions: Vec<Transaction>) {
    let calls: Vec<_> = transactions
        .into_iter()
        .map(|transaction| {
            let client = client.clone();
            tokio::spawn(async move { client.transact(&transaction).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap().check_counts().unwrap();
    }
}

async fn work(client: &Client) {
    until_synced(client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    all(client, (0..50).map(|n| mk_route("gr", n, 1)).collect()).await;
    until_replica(client, |replica| routes_of(replica) == 50).await;
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_pipelined_calls_all_end_well() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    work(&mk_client(&server.socket())).await;
}

#[tokio::test]
async fn messages_cut_into_single_bytes_are_put_together() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let proxy = Proxy::start(server.path("proxy"), server.socket(), Relay::Bytewise);
    work(&mk_client(proxy.socket())).await;
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn many_messages_in_one_read_are_taken_apart() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let hold = Duration::from_millis(100);
    let proxy = Proxy::start(server.path("proxy"), server.socket(), Relay::Gathered(hold));
    work(&mk_client(proxy.socket())).await;
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_first_dump_over_a_slow_path_may_take_longer_than_a_call() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    client.transact(&mk_route("gr", 0, 2000)).await.unwrap();
    // A segment of TCP at a time: less than what a single read must bring to be progress.
    let slow = Relay::Slowly(1400, Duration::from_millis(10));
    let proxy = Proxy::start(server.path("proxy"), server.socket(), slow);
    let mut config = mk_config(proxy.socket());
    config.call_timeout = Duration::from_secs(1);
    let start = Instant::now();
    let client = Client::connect(config);
    until_synced(&client).await;
    assert!(
        start.elapsed() > Duration::from_secs(2),
        "it was meant to be slow"
    );
    assert_eq!(proxy.connections(), 1);
    assert_eq!(client.with_replica(routes_of), Some(2000));
}

#[tokio::test]
async fn writing_much_before_reading_does_not_lock_up() {
    if absent(TOOLS) {
        return;
    }
    // More than all queues between caller and socket hold, so that some of it must wait for the server.
    const LOAD: u32 = 300;
    let server = Server::start();
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    all(
        &client,
        (0..LOAD).map(|n| mk_route("gr", n * 100, 100)).collect(),
    )
    .await;
    until_replica(&client, |replica| routes_of(replica) == 30_000).await;
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn an_idle_tcp_client_answers_the_probes_of_the_server() {
    if absent(TOOLS) {
        return;
    }
    let port = free_port();
    let server = Server::start_with(&[format!("--remote=ptcp:{port}:127.0.0.1")]);
    let mut config = mk_config(&server.socket());
    config.endpoint = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    config.probe_interval = Duration::ZERO;
    let client = Client::connect(config);
    until_synced(&client).await;
    // The server probes after 5 s and would hang up after 10.
    tokio::time::sleep(Duration::from_secs(12)).await;
    client.transact(&mk_router("gr")).await.unwrap();
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn a_hung_server_is_noticed_by_our_own_probe() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let mut config = mk_config(&server.socket());
    config.probe_interval = Duration::from_millis(300);
    let client = Client::connect(config);
    until_synced(&client).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        client.watch().borrow().sessions,
        1,
        "an idle server answers our probes"
    );
    server.signal("STOP");
    let error = until_error(&client).await;
    assert!(error.contains("silent"), "{error}");
    server.signal("CONT");
    until_status(&client, |status| status.sessions == 2).await;
}

#[tokio::test]
async fn a_cancelled_call_leaves_the_session_alone() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    server.signal("STOP");
    let (cancelled, other) = (mk_router("cancelled"), mk_router("other"));
    let call = client.transact(&cancelled);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), call)
            .await
            .is_err()
    );
    server.signal("CONT");
    client.transact(&other).await.unwrap();
    // It was in flight, so it is carried out.
    until_replica(&client, |replica| {
        replica.table("Logical_Router").unwrap().len() == 2
    })
    .await;
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn a_call_without_reply_times_out_and_its_late_reply_harms_nobody() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let mut config = mk_config(&server.socket());
    config.call_timeout = Duration::from_millis(200);
    let client = Client::connect(config);
    until_synced(&client).await;
    server.signal("STOP");
    let outcome = client.transact(&mk_router("late")).await;
    assert!(
        matches!(outcome, Err(TransactError::TimedOut)),
        "{outcome:?}"
    );
    server.signal("CONT");
    until_replica(&client, |replica| {
        replica.table("Logical_Router").unwrap().len() == 1
    })
    .await;
    client.transact(&mk_router("next")).await.unwrap();
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn garbage_ends_the_session_with_a_reason_and_the_next_one_works() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    for (number, garbage) in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"{\"id\":}",
        b"{\"a\":[}}",
    ]
    .into_iter()
    .enumerate()
    {
        let socket = server.path(&format!("proxy{number}"));
        let proxy = Proxy::start(socket, server.socket(), Relay::GarbageFirst(garbage));
        let client = mk_client(proxy.socket());
        let error = until_error(&client).await;
        assert!(
            error.contains("not OVSDB") || error.contains("not understood"),
            "{error}"
        );
        until_synced(&client).await;
        assert_eq!(proxy.connections(), 2);
    }
}

#[tokio::test]
async fn a_message_above_the_cap_is_refused() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let mut config = mk_config(&server.socket());
    config.max_frame = 1000;
    let error = until_error(&Client::connect(config)).await;
    assert!(error.contains("frame larger than 1000 bytes"), "{error}");
}

#[tokio::test]
async fn what_the_server_lacks_is_reported_by_name() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let endpoint = || {
        format!("unix:{}", server.socket().display())
            .parse()
            .unwrap()
    };
    let twice = MonitorTable::new("NB_Global", &["name"]);
    for (config, expected) in [
        (
            ClientConfig::new(endpoint(), "Nowhere"),
            "server refused get_schema: ",
        ),
        (
            ClientConfig::new(endpoint(), NB).table(MonitorTable::new("Nothing", &[])),
            "has no table Nothing",
        ),
        (
            ClientConfig::new(endpoint(), NB).table(MonitorTable::new("NB_Global", &["nought"])),
            "table NB_Global of database OVN_Northbound has no column nought",
        ),
        (
            ClientConfig::new(endpoint(), NB)
                .table(twice.clone())
                .table(twice),
            "table NB_Global is asked for twice",
        ),
    ] {
        let error = until_error(&Client::connect(config)).await;
        assert!(error.contains(expected), "{error}");
    }
}
