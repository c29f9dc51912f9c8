//! Diffs into transactions on OVN_Northbound.
//! In: what stands there and what differs. Out: one transaction for a plan's rows; batches for imported routes.
//! Invariant: the rows that are assumed to stand, or not to, are guarded; sets that others write into are only ever
//! mutated; children are deleted by taking away the reference; a new row has a uuid of ours, so a repeat adds nothing.
//! Not here: sending, and what a failed guard means (read anew).

mod draft;
mod imports;

use model::NetworkName;
use model::nb::RowKey;
use ovsdb::Transaction;

pub use self::imports::{BATCH, imports};
use crate::lower::draft::Draft;
use crate::north::{RowDiff, Standing};

/// A diff that cannot be lowered: the plan it came from is not whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// A row's parent or reference is neither planned nor among our rows.
    #[error("{row}: {target} is neither planned nor there")]
    NoTarget {
        /// The row.
        row: RowKey,
        /// What it needs.
        target: RowKey,
    },
}

/// One transaction that makes the rows as planned. A guard that does not hold fails it with `timed out`;
/// the reply is to pass `TransactReply::check_counts`.
///
/// # Errors
/// When a row's parent or reference is missing.
pub fn topology(
    standing: &Standing,
    diff: &RowDiff,
    network: &NetworkName,
) -> Result<Transaction, LowerError> {
    let mut draft = Draft::new(standing, diff);
    for (key, columns) in &diff.create {
        draft.create(key, columns)?;
    }
    for (uuid, key, columns) in &diff.update {
        draft.update(*uuid, key, columns)?;
    }
    for (uuid, key) in &diff.delete {
        draft.delete(*uuid, key);
    }
    Ok(draft.finish(&format!("noverlay node-agent topology {network}")))
}

#[cfg(test)]
mod tests;
