//! What the integration tests of the OVSDB client need: a real ovsdb-server, and something that stands in between.
//!
//! In: a schema that the OVN packages bring. Out: servers on temporary sockets that die with the test.
//! Invariant: nothing is left behind, also when a test panics or is killed.
//! Not here: the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "what serves tests fails by panicking"
)]

mod fault_proxy;
mod nb;
pub mod pki;
mod proxy;
mod server;

use std::path::Path;
use std::time::Duration;

use ovsdb::{Client, Connection, Replica, Status};

pub use crate::fault_proxy::{FaultProxy, Flow, Way};
pub use crate::nb::{NB, mk_client, mk_config, mk_route, mk_router, routes_of};
pub use crate::proxy::{Proxy, Relay};
pub use crate::server::{Server, run};
pub use testkit::port::free as free_port;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a tool is absent, so that the test is to be left.
///
/// Panics instead where `REQUIRE_TOOLS=1` is set.
#[must_use]
pub fn absent(tools: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let mut missing: Vec<&str> = tools.iter().filter(|tool| !found(tool)).copied().collect();
    if !Path::new(server::SCHEMA).is_file() {
        missing.push(server::SCHEMA);
    }
    if missing.is_empty() {
        return false;
    }
    assert!(
        std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
        "missing: {missing:?}"
    );
    println!("skipped: missing {missing:?}");
    true
}

/// Waits until the status is as wanted. Panics after [`PATIENCE`].
pub async fn until_status(client: &Client, wanted: impl FnMut(&Status) -> bool) -> Status {
    let mut status = client.watch();
    let waited = tokio::time::timeout(PATIENCE, status.wait_for(wanted)).await;
    let status = waited.unwrap_or_else(|_| panic!("stays {:?}", client.watch().borrow().clone()));
    status.expect("the client runs").clone()
}

/// Waits until the replica follows the server.
pub async fn until_synced(client: &Client) -> Status {
    until_status(client, |status| status.connection.is_synced()).await
}

/// Waits until the connection is down and returns the reason with all its sources.
pub async fn until_error(client: &Client) -> String {
    let mut reason = None;
    until_status(client, |status| match &status.connection {
        Connection::Disconnected {
            error: Some(error), ..
        } => {
            reason = Some(chain(&**error));
            true
        }
        Connection::Disconnected { error: None, .. }
        | Connection::Connecting
        | Connection::Synced => false,
    })
    .await;
    reason.expect("waited for it")
}

/// Waits until the replica is as wanted. Panics after [`PATIENCE`].
pub async fn until_replica(client: &Client, mut wanted: impl FnMut(&Replica) -> bool) {
    let mut status = client.watch();
    let waiting = async {
        while !client.with_replica(&mut wanted).unwrap_or(false) {
            status.changed().await.expect("the client runs");
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("replica never came to be as wanted");
}

/// Waits until `what` holds, looking again and again. Panics after [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

/// Every row of every table that [`mk_config`] follows, as the replica has it; nothing before the first dump.
#[must_use]
pub fn rows_of(client: &Client) -> Option<Rows> {
    client.with_replica(|replica| {
        let tables = ["Logical_Router", "Logical_Router_Static_Route"];
        let rows = tables
            .iter()
            .flat_map(|table| replica.table(table).expect("monitored"));
        rows.map(|(uuid, record)| {
            let columns = record.columns();
            let columns = columns.map(|(name, value)| (name.to_owned(), value.clone()));
            (*uuid, columns.collect())
        })
        .collect()
    })
}

/// Rows with their columns.
pub type Rows = std::collections::BTreeMap<ovsdb::Uuid, Vec<(String, ovsdb::Datum)>>;

/// Waits until the replica equals what the server sends to a new client. Panics after [`PATIENCE`].
pub async fn until_equal(client: &Client, server: &Server) {
    let fresh = mk_client(&server.socket());
    until_synced(&fresh).await;
    let wanted = rows_of(&fresh);
    until("the replica equals a fresh one", || {
        rows_of(client) == wanted
    })
    .await;
}

/// An error and its sources in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
