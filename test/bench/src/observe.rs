//! Who looks at the Northbound database from outside.
//! In: the socket. Out: how many rows there are, when a certain one came or went, how often something changed.
//! Invariant: a session of its own; nothing of the process under test is asked.
//! Not here: what should be there.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ovsdb::{Changes, Client, ClientConfig, Endpoint, MonitorTable};
use ovsdb_tests::{NB, until_synced};

const ROUTES: &str = "Logical_Router_Static_Route";
/// Nothing that is measured takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// The observer.
pub(crate) struct Observer {
    client: Client,
    /// Rows that were there at the start.
    before: usize,
}

impl Observer {
    pub(crate) async fn start(socket: &Path) -> Self {
        let table = MonitorTable::new(ROUTES, &["ip_prefix", "nexthop"]);
        let config = ClientConfig::new(Endpoint::Unix(socket.to_owned()), NB).table(table);
        let client = Client::connect(config);
        until_synced(&client).await;
        let mut observer = Self { client, before: 0 };
        observer.before = observer.rows();
        observer
    }

    /// How many rows there are more than at the start.
    pub(crate) fn rows(&self) -> usize {
        self.client
            .with_replica(|replica| {
                replica
                    .table(ROUTES)
                    .map_or(0, std::collections::BTreeMap::len)
            })
            .unwrap_or(0)
            .saturating_sub(self.before)
    }

    /// How often something changed so far.
    pub(crate) fn generation(&self) -> u64 {
        self.client
            .with_replica(ovsdb::Replica::generation)
            .unwrap_or(0)
    }

    /// Waits until so many rows are there.
    pub(crate) async fn until_rows(&self, count: usize) {
        let mut status = self.client.watch();
        let waiting = status.wait_for(|_| self.rows() == count);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{} rows instead of {count}", self.rows());
    }

    /// Waits until something changed after generation `from`.
    pub(crate) async fn until_after(&self, from: u64) {
        let mut status = self.client.watch();
        let waiting = status.wait_for(|_| self.generation() > from);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "nothing changed any more");
    }

    /// Prefix (a /24) and next hop of each row that changed after generation `from` and is there.
    pub(crate) fn changed(&self, from: u64) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let look = |replica: &ovsdb::Replica| {
            let Changes::Rows(tables) = replica.changes_since(from) else {
                panic!("the replica no longer knows what changed after {from}");
            };
            let table = replica.table(ROUTES).ok()?;
            let rows = tables.values().flatten().filter_map(|id| table.get(id));
            let pair = |row: &ovsdb::Record| {
                let (to, length) = row.get::<&str>("ip_prefix").ok()?.split_once('/')?;
                let hop = row.get::<&str>("nexthop").ok()?.parse().ok()?;
                Some((to.parse().ok().filter(|_| length == "24")?, hop))
            };
            Some(rows.filter_map(pair).collect())
        };
        self.client.with_replica(look).flatten().unwrap_or_default()
    }
}
