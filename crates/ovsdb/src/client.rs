//! The client: a task that keeps a session to one database, however often it has to start again.
//!
//! In: a configuration, transactions. Out: a replica that stays readable throughout, the state of the connection, and
//! the results of transactions.
//! Invariant: connecting never fails for good; the replica is replaced only by a whole newer one; a transaction ends
//! with exactly one result, also when its caller has gone.
//! Not here: retries of transactions. Only the caller knows what its guards assumed.
//!
//! ```text
//!   Disconnected --connected--> Connecting --initial dump applied--> Synced
//!        ^                          |                                  |
//!        '------ back-off ----------'------- loss, silence, schema ----'
//! ```

mod config;
mod endpoint;
mod error;
mod follow;
mod link;
mod stream;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};

pub use self::config::{ClientConfig, MonitorTable, TlsFiles};
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::error::{LinkError, TlsError};
use crate::cache::Replica;
use crate::notation::{
    Condition, Name, OpKind, Schema, TransactError, TransactReply, Transaction, Uuid,
};
use crate::session::Request;

/// How many transactions may wait for the task before callers wait themselves.
const QUEUE: usize = 64;

/// How the client stands with its database.
#[derive(Debug, Clone)]
pub struct Status {
    /// The connection.
    pub connection: Connection,
    /// The replica's generation; moves whenever a row changed.
    pub generation: u64,
    /// How many sessions reached [`Connection::Synced`] so far.
    pub sessions: u64,
    /// Of a clustered database, whether this server leads; true for a standalone one, and where the server does not say.
    pub leader: bool,
    /// By which conditions the replica has its rows: how often they had been set by then ([`Client::set_conditions`]).
    pub conditions: u64,
}

/// A stage of the connection.
#[derive(Debug, Clone)]
pub enum Connection {
    /// There is no session.
    Disconnected {
        /// Since when (monotonic clock).
        since: Instant,
        /// Why; nothing before the first attempt has ended.
        error: Option<Arc<LinkError>>,
    },
    /// There is a connection, the replica is not current.
    Connecting,
    /// The replica follows the server, transactions are accepted.
    Synced,
}

impl Connection {
    /// Whether the replica follows the server.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        matches!(self, Self::Synced)
    }
}

/// A handle on the client's task. Clones share it; the task ends when the last is dropped.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
}

/// What the task writes and the handles read.
#[derive(Debug)]
struct Shared {
    status: watch::Sender<Status>,
    view: Mutex<View>,
    /// Written by handles, read by the task.
    conditions: watch::Sender<Arc<Conditions>>,
}

/// Which rows of tables are to be followed instead of those that the configuration names.
#[derive(Debug, Default)]
struct Conditions {
    /// How often they were set.
    version: u64,
    by_table: BTreeMap<Name, Vec<Condition>>,
}

impl Conditions {
    /// Those of a table.
    fn of<'a>(&'a self, table: &'a MonitorTable) -> &'a [Condition] {
        let set = self.by_table.get(&table.table);
        set.unwrap_or(&table.conditions)
    }
}

#[derive(Debug, Default)]
struct View {
    replica: Option<Replica>,
    schema: Option<Arc<Schema>>,
}

impl Shared {
    fn view<T>(&self, look: impl FnOnce(&mut View) -> T) -> T {
        // A panic of another reader leaves the view whole: it is only ever changed by complete steps.
        look(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A transaction on its way to the task.
#[derive(Debug)]
struct Command {
    request: Request,
    call: TransactCall,
}

/// What is kept of a transaction while it is in flight.
#[derive(Debug)]
struct TransactCall {
    kinds: Vec<OpKind>,
    reply: oneshot::Sender<Result<TransactReply, TransactError>>,
}

impl Client {
    /// Starts the client's task on the current tokio runtime. An absent server is tried again and again.
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn connect(config: ClientConfig) -> Self {
        let connection = Connection::Disconnected {
            since: clock(),
            error: None,
        };
        let (status, _) = watch::channel(Status {
            connection,
            generation: 0,
            sessions: 0,
            leader: true,
            conditions: 0,
        });
        let shared = Arc::new(Shared {
            status,
            view: Mutex::default(),
            conditions: watch::Sender::default(),
        });
        let (commands, queue) = mpsc::channel(QUEUE);
        tokio::spawn(link::run(config, Arc::clone(&shared), queue));
        Self { shared, commands }
    }

    /// Follows the state of the connection and the generation of the replica.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Looks at the replica; nothing before the first synchronisation.
    ///
    /// The client's task waits meanwhile, so `look` takes out what it needs and returns; it must not block.
    pub fn with_replica<T>(&self, look: impl FnOnce(&Replica) -> T) -> Option<T> {
        self.shared.view(|view| view.replica.as_ref().map(look))
    }

    /// Follows those rows of these tables for which any of a table's conditions holds, all where it has none; of other tables those
    /// that the configuration names. The session goes on, and [`Client::has_conditions`] tells when the replica has followed.
    pub fn set_conditions(&self, by_table: BTreeMap<Name, Vec<Condition>>) {
        self.shared.conditions.send_if_modified(|set| {
            let is_news = set.by_table != by_table;
            if is_news {
                let version = set.version + 1;
                *set = Arc::new(Conditions { version, by_table });
            }
            is_news
        });
    }

    /// Whether the replica holds the rows that were asked for last; what is missing in it before may be in the database.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        let asked = self.shared.conditions.borrow().version;
        self.shared.status.borrow().conditions == asked
    }

    /// The schema of the last server that reported one; nothing before.
    #[must_use]
    pub fn schema(&self) -> Option<Arc<Schema>> {
        self.shared.view(|view| view.schema.clone())
    }

    /// Sends a transaction and waits for its result, at most for the configured call timeout.
    ///
    /// Cancelling the future stops the waiting only: a transaction that was handed over is carried out.
    pub async fn transact(
        &self,
        transaction: &Transaction,
    ) -> Result<TransactReply, TransactError> {
        let request = Request::new("transact", transaction).map_err(TransactError::Encode)?;
        let (reply, result) = oneshot::channel();
        let call = TransactCall {
            kinds: transaction.kinds(),
            reply,
        };
        let sent = self.commands.send(Command { request, call }).await;
        // The task only goes away with the runtime.
        sent.map_err(|_| TransactError::NotConnected)?;
        result.await.unwrap_or(Err(TransactError::MaybeApplied))
    }
}

/// A random version 4 uuid, for rows whose identity nothing else determines.
///
/// Ends the process where the system gives no randomness: rows of two agents with one uuid would be one row.
#[must_use]
pub fn random_uuid() -> Uuid {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    Uuid::version4(bytes)
}

/// So many random uuids, with one call to the system; as [`random_uuid`] where it fails.
#[must_use]
pub fn random_uuids(count: usize) -> Vec<Uuid> {
    let mut bytes = vec![0; count.saturating_mul(16)];
    fill(&mut bytes);
    let (chunks, _) = bytes.as_chunks::<16>();
    chunks.iter().map(|bytes| Uuid::version4(*bytes)).collect()
}

fn fill(bytes: &mut [u8]) {
    fill_from(bytes, |bytes| tls::fill_random(bytes).is_ok());
}

fn fill_from(bytes: &mut [u8], source: impl FnOnce(&mut [u8]) -> bool) {
    if !source(bytes) {
        eprintln!("error: the system gives no randomness, and uuids must not repeat");
        std::process::abort();
    }
}

/// The one place where the crate reads the clock.
fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the process that has no randomness.
    const INSIDE: &str = "NOVERLAY_TEST_NO_RANDOMNESS";

    #[test]
    fn without_randomness_there_is_no_uuid_and_no_process() {
        const NAME: &str = "client::tests::without_randomness_there_is_no_uuid_and_no_process";
        if std::env::var_os(INSIDE).is_some() {
            fill_from(&mut [0; 16], |_| false);
            return;
        }
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        assert!(!ended.status.success());
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("no randomness"), "{said}");
    }
}
