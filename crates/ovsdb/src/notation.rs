//! The notation of RFC 7047: values, rows, schemas, operations and their results, as typed values with their JSON form.
//!
//! In and out: JSON text by way of serde, streamed; no `serde_json::Value` is built.
//! Invariant: what decodes is canonical (sets sorted, one-element sets are the bare atom), so equality is equality of
//! meaning; what does not fit is an error that names what was found.
//! Not here: connections, and the meaning of any table.

mod access;
mod atom;
mod condition;
mod convert;
mod datum;
mod operation;
mod reply;
mod row;
mod schema;
mod tag;
mod transaction;
mod uuid;

use std::borrow::Cow;

pub use self::access::{AccessError, DatumError};
pub use self::atom::{Atom, NameError, Real, UuidName};
pub use self::condition::{Condition, Function, Mutation, Mutator};
pub use self::convert::{FromAtom, FromDatum};
pub use self::datum::Datum;
pub(crate) use self::datum::Parts;
pub use self::operation::{OpKind, Operation, RowId, Until};
pub use self::reply::{
    CountError, OpResult, OperationError, ReplyError, TransactError, TransactReply, decode_reply,
};
pub use self::row::Row;
pub use self::schema::{AtomicType, BoundsError, ColumnType, Max, Schema, TableSchema, TypeError};
pub use self::transaction::Transaction;
pub(crate) use self::uuid::UuidText;
pub use self::uuid::{Uuid, UuidError};

/// A table, column or database name: a literal costs nothing, anything else is owned.
pub type Name = Cow<'static, str>;
