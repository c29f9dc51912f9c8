//! An OVSDB client: RFC 7047 and the extensions of ovsdb-server(7) that a follower of a database needs.
//!
//! In: an endpoint, a database name and the tables to follow. Out: a replica that is always whole, and transactions
//! with typed results.
//! Invariant: what the replica shows is a state the server once had; a lost connection never empties it, and a value
//! that cannot be is an error, never an empty set.
//! Not here: any knowledge of a schema. Table and column names come from the caller; types come from the server.
//!
//! ```text
//!   caller -- Transaction --> Client --.                       .--> writer task --> socket
//!                                      |--> client task -------|
//!   caller <-- Replica, Status --------'    Session (sans-I/O) '<-- socket
//!                                           Framer, cache::Replica
//! ```

pub mod cache;
pub mod client;
pub mod frame;
pub mod notation;
pub mod session;

pub use cache::{Changes, Record, Replica};
pub use client::{
    Client, ClientConfig, Connection, Endpoint, EndpointError, LinkError, MonitorTable, Status,
    TlsFiles, random_uuid, random_uuids,
};
pub use notation::{
    AccessError, Atom, ColumnType, Condition, Datum, FromDatum, Function, Mutation, Mutator, Name,
    OpResult, Operation, OperationError, Row, Schema, TransactError, TransactReply, Transaction,
    Until, Uuid, UuidName,
};
