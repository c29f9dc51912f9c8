//! Whether flows have followed the Northbound database: `NB_Global.nb_cfg` and `hv_cfg`.
//! In: a transaction, a replica. Out: the transaction with the counter in it, whether chassis are as far as the database.
//! Invariant: the counter is only added to, as each of its users does (`ovn-nb(5)`, `NB_Global`: `nb_cfg`).
//! Not here: what was written.

use ovsdb::{AccessError, Condition, Datum, Mutation, Mutator, Replica, Transaction};

use crate::global::TABLE;

/// Columns that tell it.
pub(crate) const COLUMNS: [&str; 2] = ["nb_cfg", "hv_cfg"];

/// How far the database has been written, and how far every chassis has made flows of it. Remote chassis are not counted by northd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configured {
    /// `NB_Global.nb_cfg`.
    pub written: i64,
    /// `NB_Global.hv_cfg`.
    pub in_force: i64,
}

/// Reads both; `None` while there is no row, which northd makes.
///
/// # Errors
/// When the columns are not followed.
pub fn configured(replica: &Replica) -> Result<Option<Configured>, AccessError> {
    let Some((_, record)) = replica.table(TABLE)?.iter().next() else {
        return Ok(None);
    };
    Ok(Some(Configured {
        written: record.get("nb_cfg")?,
        in_force: record.get("hv_cfg")?,
    }))
}

/// The transaction with the counter added to, so that its being in force can be told. Without a row it is as it was.
///
/// # Errors
/// When the table is not followed.
pub fn counted(replica: &Replica, transaction: Transaction) -> Result<Transaction, AccessError> {
    let Some((row, _)) = replica.table(TABLE)?.iter().next() else {
        return Ok(transaction);
    };
    let one = Mutation::new("nb_cfg", Mutator::Add, Datum::from(1_i64));
    Ok(transaction.mutate(TABLE, vec![Condition::uuid(*row)], vec![one]))
}
