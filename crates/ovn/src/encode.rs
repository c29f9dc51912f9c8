//! Diffs into transactions.
//! In: a diff and what was decoded. Out: one transaction for a topology, batches for imports.
//! Invariant: references are changed by mutate, never set; every root row that is not made here is guarded to be there
//! still, and one is made only where none of its name is.
//! Not here: sending. The replica has to show the result before the next diff is taken.

mod addresses;
mod imports;
mod rows_builder;

use model::diff::Diff;
use model::nb::{Columns, Owner, RowKey, Table, Value};
use ovsdb::{AccessError, Condition, Datum, Operation, Row, Transaction, Until, Uuid};

pub use self::addresses::addresses;
pub use self::imports::{BATCH, imports};
use self::rows_builder::RowsBuilder;
use crate::columns::{self, entries};
use crate::north::{DATABASE, North};

/// Why a transaction cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A row's parent is neither in the plan nor in the database.
    #[error("{key} has no parent in the plan or the database")]
    NoParent {
        /// The row.
        key: RowKey,
    },
    /// A row refers to one that is neither in the plan nor in the database.
    #[error("column {column} of {key} refers to a row that does not exist")]
    NoReferent {
        /// The row.
        key: RowKey,
        /// The column.
        column: &'static str,
    },
    /// The bridge of a port does not exist.
    #[error("there is no bridge {bridge} for port {port}")]
    NoBridge {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// Another port holds the interface.
    #[error("interface {interface} belongs to port {port}; remove it from there")]
    InterfaceTaken {
        /// The interface.
        interface: String,
        /// The port that holds it.
        port: String,
    },
    /// The database could not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// The transaction that brings an owner's rows to where the diff says; without operations where there is nothing to do.
///
/// A root row that goes takes its children along, unless another of the same key stays: then that one gets them.
/// A guard that does not hold fails the transaction with `timed out`: the database has moved on, decode again.
///
/// # Errors
/// When a row's parent or referent is neither in the plan nor in the database.
pub fn topology(
    diff: &Diff<RowKey, Columns, Uuid>,
    north: &North,
    owner: &Owner,
    comment: &str,
) -> Result<Transaction, EncodeError> {
    let mut rows_builder = RowsBuilder::new(diff, north, owner);
    let mut writes = Vec::new();
    for (key, wanted) in &diff.create {
        writes.push(create(&mut rows_builder, key, wanted)?);
    }
    for (uuid, key, wanted) in &diff.update {
        writes.extend(update(&mut rows_builder, *uuid, key, wanted)?);
    }
    rows_builder.detach();
    rows_builder.adopt();
    let to_delete: Vec<(Table, Uuid)> = rows_builder.to_delete().collect();
    let released = release(&rows_builder, diff);

    let mut transaction = Transaction::new(DATABASE);
    if !(writes.is_empty() && to_delete.is_empty() && rows_builder.is_idle()) {
        transaction = transaction.comment(comment);
    }
    for (table, uuid, name) in rows_builder.guards() {
        let row = Row::new().with("name", name);
        transaction = transaction.guard(table.name(), vec![Condition::uuid(uuid)], row);
    }
    for (key, _) in &diff.create {
        // Of bindings the schema's index allows one for each port and address.
        if key.table.parent().is_none() && key.table != Table::StaticMacBinding {
            transaction = transaction.push(absent(key));
        }
    }
    for (key, columns) in &diff.create {
        // One that does not look like ours may be in the way: left behind by a port of this name, or edited.
        if key.table == Table::StaticMacBinding {
            transaction = transaction.delete(key.table.name(), same_binding(columns));
        }
    }
    for write in released.into_iter().chain(writes) {
        transaction = transaction.push(write);
    }
    for (table, uuid, mutations) in rows_builder.edits() {
        transaction = transaction.mutate(table.name(), vec![Condition::uuid(uuid)], mutations);
    }
    for (table, uuid) in to_delete {
        transaction = transaction.delete(table.name(), vec![Condition::uuid(uuid)]);
    }
    Ok(transaction)
}

/// The binding of this port and address, of which the schema's index allows one.
fn same_binding(columns: &Columns) -> Vec<Condition> {
    let text = |name| match columns.get(name) {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    let of = |name| Condition::equal(name, text(name));
    vec![of("logical_port"), of("ip")]
}

/// A guard: no row bears this name. A replica that lags behind must not lead to a second router.
fn absent(key: &RowKey) -> Operation {
    Operation::Wait {
        table: key.table.name().into(),
        conditions: vec![Condition::equal("name", key.id.as_str())],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: Vec::new(),
        timeout: 0,
    }
}

/// Empties references to Address_Sets that go, in rows that go too: the server counts references before it collects rows.
fn release(rows_builder: &RowsBuilder<'_>, diff: &Diff<RowKey, Columns, Uuid>) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (uuid, key) in &diff.delete {
        let mut row = Row::new();
        for (column, value) in rows_builder.existing(*uuid, key).into_iter().flatten() {
            if matches!(value, Value::Ref(set) if rows_builder.is_deleted(set)) {
                row.set(*column, Datum::empty_set());
            }
        }
        if row.columns().next().is_some() {
            operations.push(Operation::Update {
                table: key.table.name().into(),
                conditions: vec![Condition::uuid(*uuid)],
                row,
            });
        }
    }
    operations
}

fn create(
    rows_builder: &mut RowsBuilder<'_>,
    key: &RowKey,
    wanted: &Columns,
) -> Result<Operation, EncodeError> {
    let uuid = rows_builder.create(key)?;
    let mut row = Row::new();
    for (column, value) in wanted {
        row.set(*column, datum(rows_builder, key, column, value)?);
    }
    Ok(Operation::Insert {
        table: key.table.name().into(),
        id: uuid.into(),
        row,
    })
}

/// Columns that differ: maps entry by entry, since others write into them too; everything else whole.
fn update(
    rows_builder: &mut RowsBuilder<'_>,
    uuid: Uuid,
    key: &RowKey,
    wanted: &Columns,
) -> Result<Vec<Operation>, EncodeError> {
    let existing = rows_builder.existing(uuid, key);
    let (mut row, mut mutations) = (Row::new(), Vec::new());
    for (column, value) in wanted {
        let have = existing.and_then(|columns| columns.get(column));
        if have.is_some_and(|have| have.satisfies(value)) {
            continue;
        }
        if let Value::Entries(wanted) = value {
            let holds = |k: &String, v: &String| matches!(have, Some(Value::Entries(have)) if have.get(k) == Some(v));
            mutations.extend(entries(column, wanted.iter().filter(|(k, v)| !holds(k, v))));
        } else {
            let datum = datum(rows_builder, key, column, value)?;
            let is_empty = |have: &Value| matches!(have, Value::Set(items) if items.is_empty());
            // A port that is not there yet: the group has none, and nothing to be changed.
            if !(datum == Datum::empty_set() && have.is_some_and(is_empty)) {
                row.set(*column, datum);
            }
        }
    }
    let (table, itself) = (key.table.name(), || vec![Condition::uuid(uuid)]);
    let mut operations = Vec::new();
    if row.columns().next().is_some() {
        operations.push(Operation::Update {
            table: table.into(),
            conditions: itself(),
            row,
        });
    }
    if !mutations.is_empty() {
        operations.push(Operation::Mutate {
            table: table.into(),
            conditions: itself(),
            mutations,
        });
    }
    Ok(operations)
}

fn datum(
    rows_builder: &mut RowsBuilder<'_>,
    key: &RowKey,
    column: &'static str,
    value: &Value,
) -> Result<Datum, EncodeError> {
    match columns::encode(value, |referent| rows_builder.refer(referent)) {
        Some(datum) => Ok(datum),
        // Ports are somebody else's and come and go: without one the group's other rows, and what is to go, do not wait for it.
        None if key.table == Table::PortGroup => Ok(Datum::empty_set()),
        None => Err(EncodeError::NoReferent {
            key: key.clone(),
            column,
        }),
    }
}

#[cfg(test)]
mod tests;
