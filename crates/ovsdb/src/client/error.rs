//! Why a session did not come about, or ended.
//!
//! In: what the socket, TLS, the server or the replica said. Out: one error with its sources.
//! Invariant: every one of these is followed by another attempt.
//! Not here: errors of transactions.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::endpoint::Endpoint;
use crate::cache::CacheError;
use crate::session::{RpcError, SessionError};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server cannot be reached, or the TLS handshake failed.
    #[error("cannot connect to {endpoint}")]
    Connect {
        /// Where to.
        endpoint: Endpoint,
        /// Why not.
        source: io::Error,
    },
    /// Connecting took too long.
    #[error("cannot connect to {endpoint} within {limit:?}")]
    ConnectTimeout {
        /// Where to.
        endpoint: Endpoint,
        /// The call timeout.
        limit: Duration,
    },
    /// The server is connected and says neither schema nor rows, be it that it answers echoes.
    #[error("{endpoint} has sent neither schema nor rows for {limit:?}")]
    SyncTimeout {
        /// The server.
        endpoint: Endpoint,
        /// The call timeout.
        limit: Duration,
    },
    /// Key or certificates are unusable.
    #[error("cannot prepare TLS")]
    Tls(#[source] TlsError),
    /// The server closed the connection.
    #[error("server closed the connection")]
    Closed,
    /// Reading failed; with TLS 1.3 also where the server refused our certificate.
    #[error("cannot read from the server")]
    Read(#[source] io::Error),
    /// Writing failed, and the server neither closed the connection nor said why.
    #[error("cannot write to the server")]
    Write,
    /// The conversation broke.
    #[error(transparent)]
    Session(SessionError),
    /// The server refused a call that the replica needs.
    #[error("server refused {method}")]
    Refused {
        /// The call.
        method: &'static str,
        /// What the server said.
        source: RpcError,
    },
    /// A call has no JSON form, or its reply not the one it should have.
    #[error("reply to {method} not understood")]
    Reply {
        /// The call.
        method: &'static str,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// The configuration names a table twice.
    #[error("table {table} is asked for twice")]
    TableTwice {
        /// The table.
        table: Box<str>,
    },
    /// The server's schema lacks a table.
    #[error("database {database} has no table {table}")]
    NoTable {
        /// The database.
        database: Box<str>,
        /// The table.
        table: Box<str>,
    },
    /// The server's schema lacks a column.
    #[error("table {table} of database {database} has no column {column}")]
    NoColumn {
        /// The database.
        database: Box<str>,
        /// The table.
        table: Box<str>,
        /// The column.
        column: Box<str>,
    },
    /// A notification contradicts the replica.
    #[error("replica out of step")]
    Cache(#[source] CacheError),
    /// The server gave up our monitor, or its schema changed.
    #[error("schema of the database changed")]
    SchemaChanged,
    /// The server of a clustered database has lost its cluster.
    #[error("server is not connected to its cluster")]
    ClusterLost,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The endpoint is `ssl:` but no files are configured.
    #[error("ssl endpoint without private key and certificates")]
    NoFiles,
    /// A file cannot be read, or is not PEM of the right kind.
    #[error("cannot use {what} {path}")]
    File {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: tokio_rustls::rustls::pki_types::pem::Error,
    },
    /// Key and certificates do not make a client.
    #[error("private key and certificates do not fit")]
    Client(#[source] tokio_rustls::rustls::Error),
    /// The authorities' certificates do not make a verifier.
    #[error("certificates of the authorities are unusable")]
    Verifier(#[source] tokio_rustls::rustls::server::VerifierBuilderError),
    /// The host is neither a DNS name nor an address.
    #[error("{host} is no name for TLS")]
    Name {
        /// The host.
        host: Box<str>,
    },
}
