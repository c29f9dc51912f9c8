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

    /// The next hop of a row of this prefix (a /24) that changed after generation `from`.
    pub(crate) fn next_hop(&self, prefix: Ipv4Addr, from: u64) -> Option<Ipv4Addr> {
        let text = format!("{prefix}/24");
        let look = |replica: &ovsdb::Replica| {
            let Changes::Rows(tables) = replica.changes_since(from) else {
                return None;
            };
            let table = replica.table(ROUTES).ok()?;
            let mut rows = tables.values().flatten().filter_map(|id| table.get(id));
            let row = rows.find(|row| row.get("ip_prefix") == Ok(text.as_str()))?;
            row.get::<&str>("nexthop").ok()?.parse().ok()
        };
        self.client.with_replica(look).flatten()
    }
}
