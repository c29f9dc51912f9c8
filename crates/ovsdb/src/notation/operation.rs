//! The operations of a transaction (RFC 7047 section 5.2). Building one sends nothing.
//!
//! In: tables, conditions, rows. Out: the JSON objects of the RFC.
//! Invariant: only members that the RFC knows are written; an unknown one would end the connection.
//! Not here: `commit` (durable) and locks; nothing of ours uses them.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Condition, Mutation, Name, Row, Uuid, UuidName};

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds a row. A row of a table that is no root and that nothing references in the end is gone again, with success.
    Insert {
        /// The table.
        table: Name,
        /// Who names the row.
        id: RowId,
        /// Its columns; the others take their defaults.
        row: Row,
    },
    /// Reads rows.
    Select {
        /// The table.
        table: Name,
        /// All must hold; none means every row.
        conditions: Vec<Condition>,
        /// The columns to return; none means all.
        columns: Vec<Name>,
    },
    /// Sets columns of rows.
    Update {
        /// The table.
        table: Name,
        /// All must hold; none means every row.
        conditions: Vec<Condition>,
        /// The columns to set.
        row: Row,
    },
    /// Changes columns of rows in place.
    Mutate {
        /// The table.
        table: Name,
        /// All must hold; none means every row.
        conditions: Vec<Condition>,
        /// Applied in order.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows. A row still referenced makes the commit fail.
    Delete {
        /// The table.
        table: Name,
        /// All must hold; none means every row.
        conditions: Vec<Condition>,
    },
    /// Goes on only where the chosen rows are, or are not, these.
    Wait {
        /// The table.
        table: Name,
        /// All must hold; none means every row.
        conditions: Vec<Condition>,
        /// The columns compared.
        columns: Vec<Name>,
        /// Equal or unequal.
        until: Until,
        /// The rows compared with, in any order.
        rows: Vec<Row>,
        /// How long to wait, in milliseconds; 0 checks once. A mismatch is [`OperationError::TimedOut`](super::OperationError::TimedOut).
        timeout: u64,
    },
    /// A text for the server's log of the database.
    Comment(String),
    /// Fails with `not owner` unless this session owns the lock.
    Assert(Name),
    /// Fails the transaction with `aborted`.
    Abort,
}

/// Who chooses the uuid of an inserted row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowId {
    /// The server.
    Server,
    /// The caller. A retry of a transaction that was applied then fails with `duplicate uuid` and adds nothing.
    Uuid(Uuid),
    /// The server; other operations of the transaction refer to the row by this name, which must be used once.
    Name(UuidName),
}

impl From<Uuid> for RowId {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}

impl From<UuidName> for RowId {
    fn from(name: UuidName) -> Self {
        Self::Name(name)
    }
}

/// What a wait waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The rows are these.
    Equal,
    /// The rows are not these.
    NotEqual,
}

/// Which kind of result an operation gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// A uuid.
    Insert,
    /// Rows.
    Select,
    /// A count of rows.
    Update,
    /// A count of rows.
    Mutate,
    /// A count of rows.
    Delete,
    /// An empty object: wait, comment, assert; abort never succeeds.
    Other,
}

impl Operation {
    /// The kind of result to expect.
    #[must_use]
    pub const fn kind(&self) -> OpKind {
        match self {
            Self::Insert { .. } => OpKind::Insert,
            Self::Select { .. } => OpKind::Select,
            Self::Update { .. } => OpKind::Update,
            Self::Mutate { .. } => OpKind::Mutate,
            Self::Delete { .. } => OpKind::Delete,
            Self::Wait { .. } | Self::Comment(_) | Self::Assert(_) | Self::Abort => OpKind::Other,
        }
    }
}

impl Serialize for Operation {
    #[expect(
        clippy::too_many_lines,
        reason = "an arm for each operation of the RFC"
    )]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Insert { table, id, row } => {
                head(&mut map, "insert", table)?;
                match id {
                    RowId::Server => {}
                    RowId::Uuid(uuid) => map.serialize_entry("uuid", &format_args!("{uuid}"))?,
                    RowId::Name(name) => map.serialize_entry("uuid-name", name.as_str())?,
                }
                map.serialize_entry("row", row)?;
            }
            Self::Select {
                table,
                conditions,
                columns,
            } => {
                head(&mut map, "select", table)?;
                map.serialize_entry("where", conditions)?;
                if !columns.is_empty() {
                    map.serialize_entry("columns", columns)?;
                }
            }
            Self::Update {
                table,
                conditions,
                row,
            } => {
                head(&mut map, "update", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("row", row)?;
            }
            Self::Mutate {
                table,
                conditions,
                mutations,
            } => {
                head(&mut map, "mutate", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("mutations", mutations)?;
            }
            Self::Delete { table, conditions } => {
                head(&mut map, "delete", table)?;
                map.serialize_entry("where", conditions)?;
            }
            Self::Wait {
                table,
                conditions,
                columns,
                until,
                rows,
                timeout,
            } => {
                head(&mut map, "wait", table)?;
                map.serialize_entry("timeout", timeout)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("columns", columns)?;
                map.serialize_entry("until", if *until == Until::Equal { "==" } else { "!=" })?;
                map.serialize_entry("rows", rows)?;
            }
            Self::Comment(text) => {
                map.serialize_entry("op", "comment")?;
                map.serialize_entry("comment", text)?;
            }
            Self::Assert(lock) => {
                map.serialize_entry("op", "assert")?;
                map.serialize_entry("lock", lock)?;
            }
            Self::Abort => map.serialize_entry("op", "abort")?,
        }
        map.end()
    }
}

fn head<M: SerializeMap>(map: &mut M, op: &'static str, table: &Name) -> Result<(), M::Error> {
    map.serialize_entry("op", op)?;
    map.serialize_entry("table", table)
}

#[cfg(test)]
mod tests;
