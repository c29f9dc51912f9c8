//! What became of a transaction.
//!
//! In: the `result` of `transact` and the kinds of the operations sent. Out: one result per operation, or one error.
//! Invariant: success means that every slot was read, had the form of its operation, and that there were no others.
//! Not here: errors of the call as a whole, which the session reports; they share the type.
//!
//! ```text
//!   [ {..}, {..}, {..} ]                    all done
//!   [ {..}, {"error"}, null ]               operation 1 failed, nothing done
//!   [ {..}, {..}, {..}, {"error"} ]         the commit failed, nothing done
//! ```

use serde::Deserialize;

use super::{Atom, OpKind, Row, Uuid};

/// The results of a transaction that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactReply {
    /// One per operation, in order.
    pub results: Vec<OpResult>,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// The identity of the inserted row.
    Inserted(Uuid),
    /// The rows read.
    Selected(Vec<Row>),
    /// How many rows were updated.
    Updated(u64),
    /// How many rows were mutated.
    Mutated(u64),
    /// How many rows were deleted.
    Deleted(u64),
    /// Wait, comment or assert passed.
    Done,
}

/// An update or mutation did not find exactly one row, although it succeeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} changed {count} rows instead of one")]
pub struct CountError {
    /// Which operation, from 0.
    pub index: usize,
    /// How many rows it changed.
    pub count: u64,
}

impl TransactReply {
    /// Errs on the first update or mutation that did not change exactly one row.
    ///
    /// A mutation of a row that is gone succeeds with 0, and the rows it should have referenced are collected at once.
    pub fn check_counts(&self) -> Result<(), CountError> {
        for (index, result) in self.results.iter().enumerate() {
            match *result {
                OpResult::Updated(count) | OpResult::Mutated(count) if count != 1 => {
                    return Err(CountError { index, count });
                }
                OpResult::Updated(_)
                | OpResult::Mutated(_)
                | OpResult::Inserted(_)
                | OpResult::Selected(_)
                | OpResult::Deleted(_)
                | OpResult::Done => {}
            }
        }
        Ok(())
    }
}

/// Why a transaction has no results.
#[derive(Debug, thiserror::Error)]
pub enum TransactError {
    /// There is no synchronised session; nothing was sent.
    #[error("not connected to the database")]
    NotConnected,
    /// The connection was lost after sending: the transaction was applied, or it was not.
    #[error("connection lost before the reply, the transaction may be applied")]
    MaybeApplied,
    /// No reply within the call's time. It may still be applied.
    #[error("no reply in time, the transaction may be applied")]
    TimedOut,
    /// The server refused the call as a whole.
    #[error("server refused the call: {error}: {details}")]
    Rpc {
        /// The server's word for it.
        error: Box<str>,
        /// Its explanation, may be empty.
        details: Box<str>,
    },
    /// One operation failed; nothing was applied.
    #[error("operation {index} failed: {error}: {details}")]
    Operation {
        /// Which, from 0.
        index: usize,
        /// Why.
        error: OperationError,
        /// The server's explanation, may be empty.
        details: Box<str>,
    },
    /// Every operation passed but the whole did not; nothing was applied.
    #[error("commit failed: {error}: {details}")]
    Commit {
        /// Why.
        error: OperationError,
        /// The server's explanation, may be empty.
        details: Box<str>,
    },
    /// The reply is not one to this transaction. It may be applied.
    #[error("reply not understood, the transaction may be applied")]
    Reply(#[source] ReplyError),
    /// The transaction has no JSON form; nothing was sent.
    #[error("transaction not encodable")]
    Encode(#[source] serde_json::Error),
}

/// How a reply differs from what the RFC says.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// Not the JSON of a result.
    #[error("result not decodable")]
    Json(#[source] serde_json::Error),
    /// Too few or too many results, without an error among them.
    #[error("{found} results for {expected} operations")]
    Length {
        /// Operations sent.
        expected: usize,
        /// Results received.
        found: usize,
    },
    /// The result of an operation lacks what its kind has.
    #[error("result {index} does not suit its operation")]
    Shape {
        /// Which, from 0.
        index: usize,
    },
}

/// The error strings of RFC 7047 sections 4.1.3 and 5.2, and those ovsdb-server adds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// A column's constraint, a table's `maxRows` or an index would be violated.
    #[error("constraint violation")]
    ConstraintViolation,
    /// A strong reference would dangle.
    #[error("referential integrity violation")]
    ReferentialIntegrity,
    /// Two inserts bear one name.
    #[error("duplicate uuid-name")]
    DuplicateUuidName,
    /// A row with this uuid exists, or did within this transaction.
    #[error("duplicate uuid")]
    DuplicateUuid,
    /// Division by zero.
    #[error("domain error")]
    DomainError,
    /// A number became too large.
    #[error("range error")]
    RangeError,
    /// A wait did not come true in its time.
    #[error("timed out")]
    TimedOut,
    /// The asserted lock is not ours.
    #[error("not owner")]
    NotOwner,
    /// The transaction aborts itself.
    #[error("aborted")]
    Aborted,
    /// The server ran out of something.
    #[error("resources exhausted")]
    ResourcesExhausted,
    /// The server cannot write its file.
    #[error("I/O error")]
    Io,
    /// The operation is not offered.
    #[error("not supported")]
    NotSupported,
    /// The operation is not of the RFC's form, or names an unknown table or column.
    #[error("syntax error")]
    Syntax,
    /// The role of this client may not do it.
    #[error("permission error")]
    Permission,
    /// A string this crate does not know.
    #[error("{0}")]
    Other(Box<str>),
}

impl From<&str> for OperationError {
    fn from(text: &str) -> Self {
        match text {
            "constraint violation" => Self::ConstraintViolation,
            "referential integrity violation" => Self::ReferentialIntegrity,
            "duplicate uuid-name" => Self::DuplicateUuidName,
            "duplicate uuid" => Self::DuplicateUuid,
            "domain error" => Self::DomainError,
            "range error" => Self::RangeError,
            "timed out" => Self::TimedOut,
            "not owner" => Self::NotOwner,
            "aborted" => Self::Aborted,
            "resources exhausted" => Self::ResourcesExhausted,
            "I/O error" => Self::Io,
            "not supported" => Self::NotSupported,
            "syntax error" => Self::Syntax,
            "permission error" => Self::Permission,
            other => Self::Other(other.into()),
        }
    }
}

#[derive(Deserialize)]
struct Slot {
    count: Option<u64>,
    uuid: Option<Atom>,
    rows: Option<Vec<Row>>,
    error: Option<Box<str>>,
    details: Option<Box<str>>,
    /// The system's word for it, beside `details` that only name the file (ovsdb-server).
    #[serde(rename = "io-error")]
    io_error: Option<Box<str>>,
}

/// Reads the `result` of a `transact` whose operations were of these kinds.
///
/// Errs with [`TransactError::Operation`], [`TransactError::Commit`] or [`TransactError::Reply`].
pub fn decode_reply(result: &str, kinds: &[OpKind]) -> Result<TransactReply, TransactError> {
    let slots: Vec<Option<Slot>> = serde_json::from_str(result)
        .map_err(|source| TransactError::Reply(ReplyError::Json(source)))?;
    let found = slots.len();
    let mut results = Vec::with_capacity(kinds.len());
    for (index, slot) in slots.into_iter().enumerate() {
        if let Some(Slot {
            error: Some(error),
            details,
            io_error,
            ..
        }) = &slot
        {
            let said: Vec<&str> = details.iter().chain(io_error).map(AsRef::as_ref).collect();
            let (error, details) = (OperationError::from(&**error), said.join(": ").into());
            return Err(if index < kinds.len() {
                TransactError::Operation {
                    index,
                    error,
                    details,
                }
            } else {
                TransactError::Commit { error, details }
            });
        }
        // A slot beyond the last operation is reported by the count below; an empty one before an error is passed over.
        if let Some(kind) = kinds.get(index) {
            results.push(slot.and_then(|slot| decode(*kind, slot)).ok_or(index));
        }
    }
    if found != kinds.len() {
        return Err(TransactError::Reply(ReplyError::Length {
            expected: kinds.len(),
            found,
        }));
    }
    let results: Result<Vec<OpResult>, usize> = results.into_iter().collect();
    match results {
        Ok(results) => Ok(TransactReply { results }),
        Err(index) => Err(TransactError::Reply(ReplyError::Shape { index })),
    }
}

fn decode(kind: OpKind, slot: Slot) -> Option<OpResult> {
    match kind {
        OpKind::Insert => match slot.uuid {
            Some(Atom::Uuid(uuid)) => Some(OpResult::Inserted(uuid)),
            _ => None,
        },
        OpKind::Select => slot.rows.map(OpResult::Selected),
        OpKind::Update => slot.count.map(OpResult::Updated),
        OpKind::Mutate => slot.count.map(OpResult::Mutated),
        OpKind::Delete => slot.count.map(OpResult::Deleted),
        OpKind::Other => Some(OpResult::Done),
    }
}

#[cfg(test)]
mod tests;
