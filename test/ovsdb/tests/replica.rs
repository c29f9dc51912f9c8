//! The replica: equal to the server, and never empty by accident.
//!
//! In: a real server that is filled, restarted, absent. Out: what the client shows meanwhile.
//! Invariant: rows that the server keeps never leave the replica.
//! Not here: the wire.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test, and it measures real time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ovsdb::{
    Changes, Client, Condition, Datum, MonitorTable, Mutation, OpResult, Replica, Row,
    TransactError, Transaction, Uuid,
};
use ovsdb_tests::{
    NB, Server, absent, mk_client, mk_config, mk_route, mk_router, routes_of, until_error,
    until_replica, until_status, until_synced,
};
use serde_json::json;

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "setpriv"];
const ROUTER: &str = "Logical_Router";
const ROUTE: &str = "Logical_Router_Static_Route";

async fn mk_filled(server: &Server, routes: u32) -> Client {
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    for first in (0..routes).step_by(500) {
        client
            .transact(&mk_route("gr", first, 500.min(routes - first)))
            .await
            .unwrap()
            .check_counts()
            .unwrap();
    }
    let routes = usize::try_from(routes).unwrap();
    until_replica(&client, |replica| routes_of(replica) == routes).await;
    client
}

#[tokio::test]
async fn the_schema_is_known() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let client = mk_client(&server.socket());
    assert!(client.schema().is_none());
    until_synced(&client).await;
    let schema = client.schema().unwrap();
    assert!(schema.has_column(ROUTE, "ip_prefix") && !schema.has_column(ROUTE, "no_such_column"));
    assert!(!schema.tables[ROUTE].is_root && schema.version.contains('.'));
}

#[tokio::test]
async fn a_huge_dump_arrives_whole() {
    if absent(TOOLS) {
        return;
    }
    let rows: u32 = std::env::var("OVSDB_TEST_ROWS").map_or(20_000, |rows| rows.parse().unwrap());
    let server = Server::start();
    let start = Instant::now();
    let filler = mk_filled(&server, rows).await;
    println!("{rows} rows written in {:?}", start.elapsed());
    drop(filler);
    let start = Instant::now();
    let client = mk_client(&server.socket());
    let status = until_synced(&client).await;
    println!("{rows} rows read in {:?}", start.elapsed());
    assert_eq!(
        client.with_replica(routes_of),
        Some(usize::try_from(rows).unwrap())
    );
    assert_eq!(status.generation, 1);
}

/// Every row of the replica against a select of the same columns.
async fn assert_equals_server(client: &Client) {
    let seen: BTreeMap<Uuid, Vec<(String, Datum)>> = client
        .with_replica(|replica| {
            let columns = |record: &ovsdb::Record| {
                record
                    .columns()
                    .map(|(name, value)| (name.to_owned(), value.clone()))
                    .collect::<Vec<_>>()
            };
            replica
                .table(ROUTER)
                .unwrap()
                .iter()
                .map(|(uuid, record)| (*uuid, columns(record)))
                .collect()
        })
        .unwrap();
    let columns = [
        "_uuid",
        "enabled",
        "external_ids",
        "name",
        "options",
        "static_routes",
    ];
    let reply = client
        .transact(&Transaction::new(NB).select(ROUTER, vec![], &columns))
        .await
        .unwrap();
    let [OpResult::Selected(rows)] = reply.results.as_slice() else {
        panic!("{reply:?}")
    };
    let held: BTreeMap<Uuid, Vec<(String, Datum)>> = rows
        .iter()
        .map(|row| {
            let columns = row.columns().filter(|(name, _)| *name != "_uuid");
            (
                row.get("_uuid").unwrap(),
                columns
                    .map(|(name, value)| (name.to_owned(), value.clone()))
                    .collect(),
            )
        })
        .collect();
    assert_eq!(seen, held);
}

#[tokio::test]
async fn after_every_kind_of_change_the_replica_equals_the_server() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let client = mk_filled(&server, 5).await;
    let router = || vec![Condition::equal("name", "gr")];
    let update = |row| Transaction::new(NB).update(ROUTER, router(), row);
    let mutate = |mutations| Transaction::new(NB).mutate(ROUTER, router(), mutations);
    let routes: Vec<Uuid> = client
        .with_replica(|replica| replica.table(ROUTE).unwrap().keys().copied().collect())
        .unwrap();
    for change in [
        update(Row::new().with("enabled", true)),
        update(Row::new().with("enabled", false)),
        update(Row::new().with("enabled", Datum::empty_set())),
        update(Row::new().with("external_ids", Datum::map([("a", "1"), ("b", "2")]))),
        update(Row::new().with("external_ids", Datum::map([("b", "3"), ("c", "4")]))),
        mutate(vec![
            Mutation::delete("external_ids", Datum::set(["b"])),
            Mutation::insert("external_ids", Datum::map([("b", "9")])),
        ]),
        mutate(vec![Mutation::delete(
            "external_ids",
            Datum::set(["b", "c"]),
        )]),
        mutate(vec![Mutation::delete(
            "static_routes",
            Datum::set(routes[..2].to_vec()),
        )]),
        mk_route("gr", 100, 2),
        mutate(vec![Mutation::delete(
            "static_routes",
            Datum::set(routes[2..].to_vec()),
        )]),
        update(Row::new().with("static_routes", Datum::empty_set())),
        mk_router("second"),
        Transaction::new(NB).delete(ROUTER, vec![Condition::equal("name", "second")]),
        update(
            Row::new()
                .with("name", "other")
                .with("options", Datum::map([("chassis", "x")])),
        ),
    ] {
        let before = client.watch().borrow().generation;
        client.transact(&change).await.unwrap();
        // The notification may come after the reply.
        until_status(&client, |status| status.generation > before).await;
        assert_equals_server(&client).await;
    }
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn conditions_choose_the_rows() {
    if absent(TOOLS) {
        return;
    }
    let server = Server::start();
    let filler = mk_filled(&server, 10).await;
    let mut config = mk_config(&server.socket());
    let chosen = Condition::includes("external_ids", Datum::map([("owner", "nobody")]));
    let named = Condition::equal("ip_prefix", "10.0.0.3/32");
    config.tables = vec![
        MonitorTable::new(ROUTE, &["ip_prefix"])
            .or(chosen)
            .or(named),
    ];
    let client = Client::connect(config);
    until_synced(&client).await;
    assert_eq!(
        client.with_replica(routes_of),
        Some(1),
        "any condition suffices"
    );
    let ids = Row::new().with("external_ids", Datum::map([("owner", "nobody")]));
    filler
        .transact(&Transaction::new(NB).update(
            ROUTE,
            vec![Condition::equal("ip_prefix", "10.0.0.4/32")],
            ids,
        ))
        .await
        .unwrap();
    until_replica(&client, |replica| routes_of(replica) == 2).await;
}

/// The destinations of the routes that a replica holds.
fn prefixes(replica: &Replica) -> BTreeSet<String> {
    let rows = replica.table(ROUTE).unwrap().values();
    rows.map(|row| row.get("ip_prefix").unwrap()).collect()
}

#[tokio::test]
async fn other_conditions_bring_other_rows_into_the_same_session_and_outlast_it() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    drop(mk_filled(&server, 10).await);
    let prefix = |n: u8| format!("10.0.0.{n}/32");
    let named = |n: u8| Condition::equal("ip_prefix", prefix(n));
    let mut config = mk_config(&server.socket());
    config.tables = vec![MonitorTable::new(ROUTE, &["ip_prefix"]).or(named(3))];
    let client = Client::connect(config);
    until_synced(&client).await;
    assert!(client.has_conditions(), "those of the configuration");
    assert_eq!(client.with_replica(prefixes), Some([prefix(3)].into()));
    let set =
        |conditions: Vec<Condition>| client.set_conditions([(ROUTE.into(), conditions)].into());
    let two = || BTreeSet::from([prefix(3), prefix(4)]);
    for (conditions, wanted) in [
        (vec![named(3), named(4)], two()),
        // The row of both is the same one.
        (vec![named(4)], [prefix(4)].into()),
        (vec![named(3), named(4)], two()),
    ] {
        set(conditions);
        assert!(!client.has_conditions(), "before the server has answered");
        until_status(&client, |_| client.has_conditions()).await;
        assert_eq!(client.with_replica(prefixes), Some(wanted));
    }
    let generation = client.watch().borrow().generation;
    set(vec![named(3), named(4)]);
    assert!(client.has_conditions(), "the same ones are no news");
    assert_eq!(client.watch().borrow().sessions, 1);
    // They are those of the next session, too, and of one that was away.
    server.crash();
    until_error(&client).await;
    set(vec![named(3), named(4), named(5)]);
    server.up();
    until_status(&client, |status| {
        status.connection.is_synced() && client.has_conditions()
    })
    .await;
    let three = [prefix(3), prefix(4), prefix(5)];
    assert_eq!(client.with_replica(prefixes), Some(three.into()));
    assert!(client.watch().borrow().generation > generation);
    // A table without conditions has all rows.
    set(Vec::new());
    until_status(&client, |_| client.has_conditions()).await;
    assert!(client.with_replica(routes_of) >= Some(10));
}

#[tokio::test]
async fn over_a_restart_the_replica_stays_and_only_differences_count() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    let client = mk_filled(&server, 1000).await;
    let before = client.watch().borrow().generation;

    server.crash();
    until_error(&client).await;
    assert_eq!(client.with_replica(routes_of), Some(1000), "still served");
    assert!(matches!(
        client.transact(&mk_router("x")).await,
        Err(TransactError::NotConnected)
    ));
    server.up();
    let status = until_status(&client, |status| status.sessions == 2).await;
    assert_eq!(status.generation, before, "nothing differs");

    server.crash();
    until_error(&client).await;
    server.edit(&json!([NB, {"op": "insert", "table": ROUTER, "row": {"name": "new"}}]));
    server.up();
    until_status(&client, |status| status.sessions == 3).await;
    let changes = client.with_replica(|replica| {
        assert_eq!(routes_of(replica), 1000);
        assert!(replica.generation() > before);
        replica.changes_since(before)
    });
    match changes.unwrap() {
        Changes::Rows(rows) => assert_eq!(
            rows.values()
                .map(std::collections::BTreeSet::len)
                .sum::<usize>(),
            1
        ),
        Changes::Everything => panic!("one row differs"),
    }
    client
        .transact(&mk_route("new", 0, 1))
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    until_replica(&client, |replica| routes_of(replica) == 1001).await;
}

#[tokio::test]
async fn a_call_lost_in_flight_may_be_applied() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::start();
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    server.signal("STOP");
    let call = {
        let client = client.clone();
        tokio::spawn(async move { client.transact(&mk_router("gr")).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.crash();
    let outcome = call.await.unwrap();
    assert!(
        matches!(outcome, Err(TransactError::MaybeApplied)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_server_that_comes_later_is_found() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::prepared(&[]);
    let client = mk_client(&server.socket());
    let error = until_error(&client).await;
    assert!(
        error.contains("cannot connect to unix:") && error.contains("No such file"),
        "{error}"
    );
    assert!(
        client.with_replica(|_| ()).is_none(),
        "no replica is not an empty replica"
    );
    assert!(matches!(
        client.transact(&mk_router("gr")).await,
        Err(TransactError::NotConnected)
    ));
    server.up();
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
}
