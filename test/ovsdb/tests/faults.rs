//! Faults at the worst moment: the server dies between request and reply, in the middle of a dump, has no space left on
//! its disk, or changes its schema.
//!
//! In: a real server behind something that holds back and cuts. Out: what callers get, and what the replica shows.
//! Invariant: the replica shows the old rows until the new ones are whole, and then equals what a new client gets.
//! Not here: slow readers, which measure the whole process; see `slow.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::time::Duration;

use ovsdb::{Client, Condition, Datum, OperationError, Row, TransactError, Transaction};
use ovsdb_tests::{
    FaultProxy, Flow, NB, Rows, Server, Way, absent, chain, mk_client, mk_config, mk_route,
    mk_router, routes_of, rows_of, until, until_equal, until_error, until_replica, until_status,
    until_synced,
};
use serde_json::json;

const TOOLS: &[&str] = &[
    "ovsdb-server",
    "ovsdb-tool",
    "ovsdb-client",
    "setpriv",
    "unshare",
];
const ROUTER: &str = "Logical_Router";
const ROUTE: &str = "Logical_Router_Static_Route";
const ROWS: u32 = 20_000;

/// A client that tries again at once.
fn mk_eager(fault_proxy: &FaultProxy) -> Client {
    let mut config = mk_config(fault_proxy.socket());
    config.max_backoff = Duration::from_millis(10);
    Client::connect(config)
}

/// Fills the server and returns what it holds then.
async fn fill(server: &Server, routes: u32) -> Rows {
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    for first in (0..routes).step_by(1000) {
        let some = mk_route("gr", first, 1000.min(routes - first));
        client
            .transact(&some)
            .await
            .unwrap()
            .check_counts()
            .unwrap();
    }
    let routes = usize::try_from(routes).unwrap();
    until_replica(&client, |replica| routes_of(replica) == routes).await;
    rows_of(&client).unwrap()
}

fn routers(client: &Client) -> usize {
    client
        .with_replica(|replica| replica.table(ROUTER).unwrap().len())
        .unwrap()
}

/// A call on its own, which goes on while the test looks elsewhere.
fn start(
    client: &Client,
    transaction: Transaction,
) -> tokio::task::JoinHandle<Result<ovsdb::TransactReply, TransactError>> {
    let client = client.clone();
    tokio::spawn(async move { client.transact(&transaction).await })
}

#[tokio::test]
async fn a_server_killed_before_its_reply_leaves_open_whether_it_was_applied_and_the_replica_tells()
{
    if absent(TOOLS) {
        return;
    }
    // Part of the request is on its way, or the reply is: the caller cannot tell.
    let bytewise = Flow::Slow(1, Duration::from_secs(1));
    for (way, flow, applied) in [(Way::Up, bytewise, 0), (Way::Down, Flow::Held, 1)] {
        let mut server = Server::start();
        let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
        let (client, onlooker) = (mk_eager(&fault_proxy), mk_client(&server.socket()));
        until_synced(&client).await;
        until_synced(&onlooker).await;
        let before = fault_proxy.relayed(Way::Up);
        fault_proxy.flow(way, flow);
        let call = start(&client, mk_router("gr"));
        until("the request is on its way", || {
            fault_proxy.relayed(Way::Up) > before
        })
        .await;
        until("the server did its part", || routers(&onlooker) == applied).await;
        assert!(!call.is_finished());
        server.crash();
        fault_proxy.cut_now();
        let outcome = call.await.unwrap();
        assert!(
            matches!(outcome, Err(TransactError::MaybeApplied)),
            "{outcome:?}"
        );
        until_error(&client).await;
        fault_proxy.flow(way, Flow::Free);
        server.up();
        until_status(&client, |status| status.sessions == 2).await;
        until_equal(&client, &server).await;
        assert_eq!(routers(&client), applied);
        client.transact(&mk_router("next")).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_killed_before_any_of_many_replies_loses_none_of_them() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
    let client = mk_eager(&fault_proxy);
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    for round in 0..10_u32 {
        let already = fault_proxy.relayed(Way::Down);
        // Somewhere in the replies and notifications of this round.
        fault_proxy.cut_after(Some((
            Way::Down,
            already + 37 * usize::try_from(round).unwrap() + 1,
        )));
        let calls: Vec<_> = (0..20)
            .map(|number| start(&client, mk_route("gr", round * 20 + number, 1)))
            .collect();
        let mut reported = 0;
        for call in calls {
            match call.await.unwrap() {
                Ok(reply) => {
                    reply.check_counts().unwrap();
                    reported += 1;
                }
                Err(TransactError::MaybeApplied | TransactError::NotConnected) => {}
                Err(other) => panic!("{}", chain(&other)),
            }
        }
        let sessions = client.watch().borrow().sessions;
        server.crash();
        fault_proxy.cut_after(None);
        fault_proxy.cut_now();
        server.up();
        until_status(&client, |status| {
            status.connection.is_synced() && status.sessions > sessions
        })
        .await;
        until_equal(&client, &server).await;
        let there = (round * 20..round * 20 + 20)
            .map(|number| format!("{}/32", std::net::Ipv4Addr::from_bits(0x0a00_0000 + number)))
            .filter(|prefix| holds(&client, prefix))
            .count();
        assert!(
            there >= reported,
            "{reported} were confirmed, {there} are there"
        );
    }
}

fn holds(client: &Client, prefix: &str) -> bool {
    let find = |replica: &ovsdb::Replica| {
        let mut rows = replica.table(ROUTE).unwrap().values();
        rows.any(|row| row.get("ip_prefix") == Ok(prefix))
    };
    client.with_replica(find).unwrap()
}

/// Where to cut a dump of so many bytes: its ends, its quarters, and places in between.
fn places(length: usize) -> Vec<usize> {
    let mut places = vec![0, 1, 2, 100, length / 4, length / 2, length - 2, length - 1];
    let mut state = 1_u64;
    places.extend((0..12).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % length
    }));
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_cut_anywhere_is_never_shown_and_the_old_rows_stay() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    let before = fill(&server, ROWS).await;
    let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
    let client = mk_eager(&fault_proxy);
    let generation = until_synced(&client).await.generation;
    assert_eq!(rows_of(&client).as_ref(), Some(&before));
    // Everything up to here was greeting and dump.
    let length = fault_proxy.relayed(Way::Down);
    println!("{length} bytes of greeting and dump");

    fault_proxy.cut_after(Some((Way::Down, 0)));
    fault_proxy.cut_now();
    until_error(&client).await;
    server.crash();
    server.edit(&json!([NB, {"op": "insert", "table": ROUTER, "row": {"name": "new"}}]));
    server.up();
    let newcomer = mk_eager(&fault_proxy);
    for place in places(length) {
        let (cuts, sessions) = (fault_proxy.cuts(), client.watch().borrow().sessions);
        fault_proxy.cut_after(Some((Way::Down, place)));
        // Two clients, each of which may have a connection under the old orders.
        until("cut again and again", || fault_proxy.cuts() >= cuts + 3).await;
        assert_eq!(
            (sessions, client.watch().borrow().sessions),
            (1, 1),
            "cut after {place} of {length}"
        );
        assert_eq!(client.watch().borrow().generation, generation);
        client
            .with_replica(|replica| assert_eq!(routes_of(replica), before.len() - 1))
            .unwrap();
        assert!(
            newcomer.with_replica(|_| ()).is_none(),
            "no dump is not half a dump"
        );
    }
    assert_eq!(rows_of(&client).as_ref(), Some(&before));
    fault_proxy.cut_after(None);
    until_status(&client, |status| status.sessions == 2).await;
    until_equal(&client, &server).await;
    until_synced(&newcomer).await;
    assert_eq!(rows_of(&client).unwrap().len(), before.len() + 1);
    assert_eq!(client.watch().borrow().generation, generation + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_its_dump_leaves_the_old_rows() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    let before = fill(&server, ROWS).await;
    let fault_proxy = FaultProxy::start(server.path("proxy"), server.socket());
    let client = mk_eager(&fault_proxy);
    until_synced(&client).await;
    let length = fault_proxy.relayed(Way::Down);
    // More than the sockets take in, so that the server has the rest of it still to write.
    fault_proxy.flow(Way::Down, Flow::Slow(16 << 10, Duration::from_millis(1)));
    for part in 1..6 {
        let connections = fault_proxy.connections();
        fault_proxy.cut_now();
        until("the dump has begun", || {
            fault_proxy.connections() > connections
                && fault_proxy.relayed(Way::Down) > length * part / 10
        })
        .await;
        server.crash();
        until_error(&client).await;
        assert_eq!(rows_of(&client).as_ref(), Some(&before));
        assert_eq!(client.watch().borrow().sessions, 1);
        server.up();
    }
    fault_proxy.flow(Way::Down, Flow::Free);
    until_status(&client, |status| status.sessions == 2).await;
    until_equal(&client, &server).await;
}

#[tokio::test]
async fn a_call_to_a_hung_server_may_be_applied_and_the_next_session_shows_it() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let mut config = mk_config(&server.socket());
    config.probe_interval = Duration::from_millis(200);
    let client = Client::connect(config);
    until_synced(&client).await;
    server.signal("STOP");
    let call = start(&client, mk_router("gr"));
    let outcome = call.await.unwrap();
    assert!(
        matches!(outcome, Err(TransactError::MaybeApplied)),
        "{outcome:?}"
    );
    let error = until_error(&client).await;
    assert!(error.contains("silent"), "{error}");
    server.signal("CONT");
    until_status(&client, |status| status.sessions == 2).await;
    // What waited in the socket is carried out, though nobody hears of it.
    until_replica(&client, |replica| replica.table(ROUTER).unwrap().len() == 1).await;
    until_equal(&client, &server).await;
}

#[tokio::test]
async fn a_full_disk_fails_transactions_with_the_servers_words_until_there_is_room() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start_on_disk_of(400);
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    until_equal(&client, &server).await;
    let ballast = server.on_disk("ballast");
    let full = std::fs::write(&ballast, vec![1_u8; 400 << 10]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);

    for _ in 0..3 {
        match client.transact(&mk_route("gr", 0, 1000)).await {
            Err(
                TransactError::Operation { error, details, .. }
                | TransactError::Commit { error, details },
            ) => {
                assert_eq!(error, OperationError::Io);
                assert!(details.contains("No space left on device"), "{details}");
            }
            other => panic!("{other:?}"),
        }
        assert!(client.watch().borrow().connection.is_synced());
        until_equal(&client, &server).await;
        assert_eq!(
            client.with_replica(routes_of),
            Some(0),
            "what failed is not shown"
        );
    }
    std::fs::remove_file(&ballast).unwrap();
    client
        .transact(&mk_route("gr", 0, 1000))
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    until_replica(&client, |replica| routes_of(replica) == 1000).await;
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
async fn over_a_conversion_of_the_schema_rows_stay_and_new_columns_come() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let before = fill(&server, 100).await;
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    let version = client.schema().unwrap().version.clone();

    // `mk_config` asks for this column where it is known.
    server.convert(|schema| {
        schema["version"] = json!("99.0.0");
        schema["tables"][ROUTE]["columns"]["no_such_column"] = json!({"type": "integer"});
    });
    until_status(&client, |status| {
        status.sessions == 2 && status.connection.is_synced()
    })
    .await;
    let schema = client.schema().unwrap();
    assert!(*schema.version == *"99.0.0" && schema.has_column(ROUTE, "no_such_column"));
    let after = rows_of(&client).unwrap();
    assert!(before.keys().eq(after.keys()));
    until_equal(&client, &server).await;
    let numbered = Row::new().with("no_such_column", 7);
    let numbered = Transaction::new(NB).update(
        ROUTE,
        vec![Condition::equal("ip_prefix", "10.0.0.3/32")],
        numbered,
    );
    client
        .transact(&numbered)
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    until("the new column is followed", || {
        let rows = rows_of(&client).unwrap();
        rows.values().flatten().any(|(name, value)| {
            name == "no_such_column" && *value == Datum::from(ovsdb::Atom::Integer(7))
        })
    })
    .await;

    // A column that is needed goes: the client says which, shows what it had, and finds back.
    let held = rows_of(&client).unwrap();
    server.convert(|schema| {
        schema["tables"][ROUTE]["columns"]
            .as_object_mut()
            .unwrap()
            .remove("policy");
    });
    let mut error = until_error(&client).await;
    until("the column is named", || {
        if let ovsdb::Connection::Disconnected {
            error: Some(why), ..
        } = &client.watch().borrow().connection
        {
            error = chain(&**why);
        }
        error.contains(
            "table Logical_Router_Static_Route of database OVN_Northbound has no column policy",
        )
    })
    .await;
    assert_eq!(rows_of(&client).unwrap(), held);
    server.convert(|_| {});
    until_status(&client, |status| {
        status.sessions == 3 && status.connection.is_synced()
    })
    .await;
    assert_eq!(client.schema().unwrap().version, version);
    until_equal(&client, &server).await;
    assert_eq!(rows_of(&client).unwrap(), before);
}

#[tokio::test]
async fn a_server_that_answers_echoes_alone_is_given_up_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nb.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(echo_only(stream));
        }
    });
    let mut config = mk_config(&socket);
    config.probe_interval = Duration::from_millis(50);
    config.call_timeout = Duration::from_millis(600);
    let client = Client::connect(config);
    let error = until_error(&client).await;
    assert!(error.contains("neither schema nor rows"), "{error}");
}

/// A server that is alive and no more: every echo is answered, nothing else.
async fn echo_only(stream: tokio::net::UnixStream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut reader, mut writer) = stream.into_split();
    let mut heard = Vec::new();
    while reader
        .read_buf(&mut heard)
        .await
        .is_ok_and(|count| count > 0)
    {
        let mut calls = serde_json::Deserializer::from_slice(&heard).into_iter();
        let mut answers = Vec::new();
        while let Some(Ok(call)) = calls.next() {
            let call: serde_json::Value = call;
            if call["method"] == "echo" {
                let answer = json!({"id": call["id"], "result": call["params"], "error": null});
                answers.extend(answer.to_string().into_bytes());
            }
        }
        let taken = calls.byte_offset();
        heard.drain(..taken);
        if writer.write_all(&answers).await.is_err() {
            return;
        }
    }
}
