//! A list of operations that succeed or fail together (RFC 7047 section 4.1.3).
//!
//! In: operations, in order. Out: the parameters of `transact`.
//! Invariant: a value; it can be built, compared and kept without a connection.
//! Not here: sending it; see `client::Client::transact`.

use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::{Condition, Mutation, Name, OpKind, Operation, Row, RowId, Until};

/// Operations on one database, all or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    database: Name,
    operations: Vec<Operation>,
}

impl Transaction {
    /// A transaction without operations.
    #[must_use]
    pub fn new(database: impl Into<Name>) -> Self {
        Self {
            database: database.into(),
            operations: Vec::new(),
        }
    }

    /// Adds any operation.
    #[must_use]
    pub fn push(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Adds a text for the server's log of the database.
    #[must_use]
    pub fn comment(self, text: impl Into<String>) -> Self {
        self.push(Operation::Comment(text.into()))
    }

    /// Adds the insertion of a row under a uuid of the caller's or a name.
    #[must_use]
    pub fn insert(self, table: impl Into<Name>, id: impl Into<RowId>, row: Row) -> Self {
        self.push(Operation::Insert {
            table: table.into(),
            id: id.into(),
            row,
        })
    }

    /// Adds the reading of rows: `columns` (none: all) of those for which all `conditions` hold.
    #[must_use]
    pub fn select(
        self,
        table: impl Into<Name>,
        conditions: Vec<Condition>,
        columns: &[&'static str],
    ) -> Self {
        let columns = columns.iter().map(|&column| column.into()).collect();
        self.push(Operation::Select {
            table: table.into(),
            conditions,
            columns,
        })
    }

    /// Adds the setting of columns of the rows for which all `conditions` hold.
    #[must_use]
    pub fn update(self, table: impl Into<Name>, conditions: Vec<Condition>, row: Row) -> Self {
        self.push(Operation::Update {
            table: table.into(),
            conditions,
            row,
        })
    }

    /// Adds changes in place of the rows for which all `conditions` hold.
    #[must_use]
    pub fn mutate(
        self,
        table: impl Into<Name>,
        conditions: Vec<Condition>,
        mutations: Vec<Mutation>,
    ) -> Self {
        self.push(Operation::Mutate {
            table: table.into(),
            conditions,
            mutations,
        })
    }

    /// Adds the deletion of the rows for which all `conditions` hold.
    #[must_use]
    pub fn delete(self, table: impl Into<Name>, conditions: Vec<Condition>) -> Self {
        self.push(Operation::Delete {
            table: table.into(),
            conditions,
        })
    }

    /// Adds a guard: the columns named in `row` of the one row chosen by `conditions` have these values now.
    ///
    /// A mismatch, also by a row that is absent, fails the transaction with
    /// [`OperationError::TimedOut`](super::OperationError::TimedOut).
    #[must_use]
    pub fn guard(self, table: impl Into<Name>, conditions: Vec<Condition>, row: Row) -> Self {
        let columns = row
            .columns()
            .map(|(name, _)| Name::Owned(name.to_owned()))
            .collect();
        let (until, rows) = (Until::Equal, vec![row]);
        self.push(Operation::Wait {
            table: table.into(),
            conditions,
            columns,
            until,
            rows,
            timeout: 0,
        })
    }

    /// The operations so far.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The kinds of results to expect, for decoding the reply.
    #[must_use]
    pub fn kinds(&self) -> Vec<OpKind> {
        self.operations.iter().map(Operation::kind).collect()
    }
}

impl Serialize for Transaction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&self.database)?;
        for operation in &self.operations {
            seq.serialize_element(operation)?;
        }
        seq.end()
    }
}
