//! Transactions: what a real server answers, and which error it becomes.
//!
//! In: a real server with the OVN Northbound schema. Out: typed results.
//! Invariant: a transaction that failed changed nothing.
//! Not here: lost connections; see `replica.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use ovsdb::{
    Client, Condition, Datum, Mutation, OpResult, Operation, OperationError, Row, TransactError,
    Transaction, UuidName, random_uuid,
};
use ovsdb_tests::{
    NB, Server, absent, mk_client, mk_route, mk_router, routes_of, until_replica, until_synced,
};

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "setpriv"];
const ROUTER: &str = "Logical_Router";
const ROUTE: &str = "Logical_Router_Static_Route";

async fn mk_session() -> Option<(Server, Client)> {
    if absent(TOOLS) {
        return None;
    }
    let server = Server::start();
    let client = mk_client(&server.socket());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    Some((server, client))
}

fn mk_row(prefix: &str) -> Row {
    Row::new()
        .with("ip_prefix", prefix)
        .with("nexthop", "192.0.2.1")
}

async fn count_routes(client: &Client) -> usize {
    let reply = client
        .transact(&Transaction::new(NB).select(ROUTE, vec![], &["_uuid"]))
        .await
        .unwrap();
    match reply.results.as_slice() {
        [OpResult::Selected(rows)] => rows.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_unknown_database_is_an_error_of_the_call() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    match client
        .transact(&Transaction::new("Nowhere").comment("x"))
        .await
    {
        Err(TransactError::Rpc { error, .. }) => assert_eq!(&*error, "unknown database"),
        other => panic!("{other:?}"),
    }
    client.transact(&mk_router("next")).await.unwrap();
    assert_eq!(client.watch().borrow().sessions, 1);
}

#[tokio::test]
async fn a_failed_operation_names_its_place_and_undoes_the_rest() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let refused = [
        (
            Row::new().with("no_such_column", "x"),
            OperationError::Other("unknown column".into()),
        ),
        (
            mk_row("10.0.0.0/8").with("nexthop", 5_i64),
            OperationError::Syntax,
        ),
        (
            mk_row("10.0.0.0/8").with("policy", "neither"),
            OperationError::ConstraintViolation,
        ),
    ];
    for (row, expected) in refused {
        let transaction = mk_route("gr", 0, 1)
            .insert(ROUTE, random_uuid(), row)
            .comment("after");
        match client.transact(&transaction).await {
            Err(TransactError::Operation {
                index: 3, error, ..
            }) => assert_eq!(error, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count_routes(&client).await, 0);
    let abort = client
        .transact(&mk_route("gr", 0, 1).push(Operation::Abort))
        .await;
    assert!(
        matches!(
            abort,
            Err(TransactError::Operation {
                error: OperationError::Aborted,
                ..
            })
        ),
        "{abort:?}"
    );
    let assert = client
        .transact(&Transaction::new(NB).push(Operation::Assert("lock".into())))
        .await;
    assert!(
        matches!(
            assert,
            Err(TransactError::Operation {
                error: OperationError::NotOwner,
                ..
            })
        ),
        "{assert:?}"
    );
}

#[tokio::test]
async fn deleting_a_referenced_row_fails_at_the_commit() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    client.transact(&mk_route("gr", 0, 1)).await.unwrap();
    match client
        .transact(&Transaction::new(NB).delete(ROUTE, vec![]))
        .await
    {
        Err(TransactError::Commit { error, .. }) => {
            assert_eq!(error, OperationError::ReferentialIntegrity)
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(count_routes(&client).await, 1);
}

#[tokio::test]
async fn a_guard_that_does_not_hold_stops_the_transaction() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let guarded = |router: &'static str, name: &'static str| {
        let row = Row::new()
            .with("name", name)
            .with("static_routes", Datum::empty_set());
        Transaction::new(NB)
            .guard(ROUTER, vec![Condition::equal("name", router)], row)
            .comment("passed")
    };
    assert_eq!(
        client.transact(&guarded("gr", "gr")).await.unwrap().results,
        [OpResult::Done, OpResult::Done]
    );
    for (router, name) in [("gr", "other"), ("absent", "absent")] {
        match client.transact(&guarded(router, name)).await {
            Err(TransactError::Operation {
                index: 0, error, ..
            }) => assert_eq!(error, OperationError::TimedOut),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_insert_that_nothing_references_is_gone_and_the_count_tells() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let reply = client.transact(&mk_route("absent", 0, 3)).await.unwrap();
    assert!(
        matches!(reply.results.last(), Some(OpResult::Mutated(0))),
        "{reply:?}"
    );
    assert!(reply.check_counts().is_err());
    assert_eq!(count_routes(&client).await, 0);
    client
        .transact(&mk_route("gr", 0, 3))
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    assert_eq!(count_routes(&client).await, 3);
    let clear = Row::new().with("static_routes", Datum::empty_set());
    let clear = Transaction::new(NB).update(ROUTER, vec![Condition::equal("name", "gr")], clear);
    client
        .transact(&clear)
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    assert_eq!(
        count_routes(&client).await,
        0,
        "removing the reference is the delete"
    );
}

#[tokio::test]
async fn the_chosen_uuid_is_taken_and_a_second_use_is_refused() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let uuid = random_uuid();
    let transaction = Transaction::new(NB).insert(ROUTER, uuid, Row::new().with("name", "second"));
    assert_eq!(
        client.transact(&transaction).await.unwrap().results,
        [OpResult::Inserted(uuid)]
    );
    match client.transact(&transaction).await {
        Err(TransactError::Operation {
            index: 0, error, ..
        }) => assert_eq!(error, OperationError::DuplicateUuid),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rows_of_one_transaction_refer_to_each_other_by_name() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let name = UuidName::new("route_1").unwrap();
    let by_name = |name: &UuidName| Mutation::insert("static_routes", name.clone());
    let transaction = Transaction::new(NB)
        .insert(ROUTE, name.clone(), mk_row("10.0.0.0/8"))
        .mutate(
            ROUTER,
            vec![Condition::equal("name", "gr")],
            vec![by_name(&name)],
        );
    client
        .transact(&transaction)
        .await
        .unwrap()
        .check_counts()
        .unwrap();
    until_replica(&client, |replica| routes_of(replica) == 1).await;
    let twice = Transaction::new(NB)
        .insert(ROUTE, name.clone(), mk_row("10.0.0.0/8"))
        .insert(ROUTE, name.clone(), mk_row("10.0.0.0/8"));
    match client.transact(&twice).await {
        Err(TransactError::Operation {
            index: 1, error, ..
        }) => assert_eq!(error, OperationError::DuplicateUuidName),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_map_keeps_the_value_of_a_key_unless_it_is_deleted_first() {
    let Some((_server, client)) = mk_session().await else {
        return;
    };
    let router = || vec![Condition::equal("name", "gr")];
    let ids = |value: &'static str| Mutation::insert("external_ids", Datum::map([("k", value)]));
    let change = |mutations| Transaction::new(NB).mutate(ROUTER, router(), mutations);
    let read = Transaction::new(NB).select(ROUTER, router(), &["external_ids"]);
    for (mutations, expected) in [
        (vec![ids("1")], "1"),
        (vec![ids("2")], "1"),
        (
            vec![
                Mutation::delete("external_ids", Datum::set(["k"])),
                ids("3"),
            ],
            "3",
        ),
    ] {
        client
            .transact(&change(mutations))
            .await
            .unwrap()
            .check_counts()
            .unwrap();
        match client.transact(&read).await.unwrap().results.as_slice() {
            [OpResult::Selected(rows)] => assert_eq!(
                rows[0].datum("external_ids"),
                Some(&Datum::map([("k", expected)]))
            ),
            other => panic!("{other:?}"),
        }
    }
}
