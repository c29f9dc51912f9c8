//! What a client is configured with.
//!
//! In: values a binary parsed. Out: the same, with the defaults written down once.
//! Invariant: nothing here is read again later, except for the TLS files, which are read at every connection.
//! Not here: parsing of configuration files.

use std::path::PathBuf;
use std::time::Duration;

use super::endpoint::Endpoint;
use crate::frame::DEFAULT_MAX_FRAME;
use crate::notation::{Condition, Name};

/// Which server, which database, which tables.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// The database to follow.
    pub database: Name,
    /// The tables of the replica, each once.
    pub tables: Vec<MonitorTable>,
    /// Silence after which an echo is sent; after twice that the connection is given up. Zero: never.
    pub probe_interval: Duration,
    /// How long a transaction may take, and how long connecting may.
    pub call_timeout: Duration,
    /// The greatest delay between two attempts to connect.
    pub max_backoff: Duration,
    /// The greatest size of a message from the server, bytes.
    pub max_frame: usize,
    /// Key and certificates, needed by `ssl:` endpoints.
    pub tls: Option<TlsFiles>,
}

impl ClientConfig {
    /// A configuration without tables; probe 10 s, calls 30 s, back-off up to 2 s, messages up to 512 MiB, no TLS.
    #[must_use]
    pub fn new(endpoint: Endpoint, database: impl Into<Name>) -> Self {
        Self {
            endpoint,
            database: database.into(),
            tables: Vec::new(),
            probe_interval: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            max_backoff: Duration::from_secs(2),
            max_frame: DEFAULT_MAX_FRAME,
            tls: None,
        }
    }

    /// This configuration with one more table.
    #[must_use]
    pub fn table(mut self, table: MonitorTable) -> Self {
        self.tables.push(table);
        self
    }
}

/// A table to monitor.
#[derive(Debug, Clone)]
pub struct MonitorTable {
    /// The table.
    pub table: Name,
    /// Columns that the server must know; the connection is refused otherwise.
    pub columns: Vec<Name>,
    /// Columns that are left out where the server's schema lacks them; see `Schema::has_column`.
    pub optional: Vec<Name>,
    /// The rows to monitor: those for which **any** of these holds; none means all rows.
    pub conditions: Vec<Condition>,
}

impl MonitorTable {
    /// These columns of all rows of a table.
    #[must_use]
    pub fn new(table: impl Into<Name>, columns: &[&'static str]) -> Self {
        let columns = columns.iter().map(|&column| column.into()).collect();
        Self {
            table: table.into(),
            columns,
            optional: Vec::new(),
            conditions: Vec::new(),
        }
    }

    /// With these columns too, where the server knows them.
    #[must_use]
    pub fn optional(mut self, columns: &[&'static str]) -> Self {
        self.optional
            .extend(columns.iter().map(|&column| Name::from(column)));
        self
    }

    /// With the rows for which this holds, besides those chosen by other conditions.
    #[must_use]
    pub fn or(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }
}

/// Files in PEM form, as `ovs-vsctl set-ssl` takes them. Read at every connection, so they may be renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The client's private key.
    pub private_key: PathBuf,
    /// The client's certificate, with intermediate ones after it.
    pub certificate: PathBuf,
    /// The certificates of the authorities that may have signed the server's.
    pub ca_certificate: PathBuf,
}
