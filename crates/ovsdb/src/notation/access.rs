//! Why a value could not be read as the type that was asked for.
//!
//! In: a table, a column, a value. Out: an error that names them.
//! Invariant: a wrong type is never read as a default.
//! Not here: errors of decoding JSON; those come from serde.

/// A value is not of the type that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatumError {
    /// Another kind of value.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A set of another size.
    #[error("expected {expected}, found {found} elements")]
    Size {
        /// What was asked for.
        expected: &'static str,
        /// How many elements there are.
        found: usize,
    },
}

/// A table, column or value of a replica or row cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The table is not among those monitored.
    #[error("table {table} is not monitored")]
    Table {
        /// Its name.
        table: Box<str>,
    },
    /// The column is not there: not monitored, not selected, or absent from the server's schema.
    #[error("no column {column}")]
    Column {
        /// Its name.
        column: Box<str>,
    },
    /// The column holds something else than what was asked for.
    #[error("cannot read column {column}")]
    Value {
        /// Its name.
        column: Box<str>,
        /// How it differs.
        source: DatumError,
    },
}
