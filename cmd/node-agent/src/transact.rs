//! Sending a transaction, and waiting until it can be seen.
//! In: a client, a transaction. Out: success when every count is as it should be and the replica shows it.
//! Invariant: the next look at the replica does not miss what was written. Not here: what is written, and retries.

use std::time::Duration;

use ovsdb::{Client, Transaction};
use prometheus::IntCounterVec;

/// Why a transaction failed.
#[derive(Debug, thiserror::Error)]
pub enum TransactionFailed {
    /// The database refused it, or nobody knows what became of it.
    #[error("the transaction failed")]
    Transact(#[from] ovsdb::TransactError),
    /// A row that should be changed was not there.
    #[error("the transaction did not change what it should have")]
    Count(#[from] ovsdb::notation::CountError),
}

/// Sends, checks every count, and waits until the replica shows it, so that the next pass does not repeat it.
/// `counter` has the labels database and result.
///
/// # Errors
/// When the database refuses it, the connection is lost, or a count is not one.
pub async fn transact(
    database: &str,
    client: &Client,
    transaction: &Transaction,
    counter: &IntCounterVec,
) -> Result<(), TransactionFailed> {
    let mut status = client.watch();
    let before = status.borrow_and_update().generation;
    let outcome = match client.transact(transaction).await {
        Ok(reply) => reply.check_counts().map_err(TransactionFailed::from),
        Err(error) => Err(error.into()),
    };
    let result = match &outcome {
        Ok(()) => "success",
        Err(_) => "failure",
    };
    counter.with_label_values(&[database, result]).inc();
    outcome?;
    let shown = status.wait_for(|now| now.generation > before);
    // A replica that shows nothing within a second is reported by the next pass's diff.
    drop(tokio::time::timeout(Duration::from_secs(1), shown).await);
    Ok(())
}
