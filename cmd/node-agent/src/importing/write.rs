//! Writing what differs, a few transactions on their way at a time.
//! In: steps of the importer. Out: transactions, in their order; the replica read after each.
//! Invariant: rows that nothing takes the place of go only when no addition is on its way; after a failure what is on its way
//! comes to its end before anything else. Not here: which rows.

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use import::Step;
use ovsdb::Uuid;
use plan_node::check;

use super::{Import, ImportError, Inputs, LONGEST, SLICE, now};
use crate::transact::{TransactionFailed, transact};

/// Rows of one transaction.
const BATCH: usize = ovn::encode::BATCH;
/// So many transactions are on their way at a time: one that the server works on, one that it has next.
const IN_FLIGHT: usize = 3;

impl Import {
    /// Writes until rows and routes agree or the pass has lasted too long, a few transactions on their way at a time. Returns
    /// how many rows were added and removed; `None` where the replica went away.
    pub(super) async fn write(
        &mut self,
        router: Uuid,
        inputs: &Inputs,
    ) -> Result<Option<(usize, usize)>, ImportError> {
        let comment = format!("noverlay node-agent import {}", self.config.target.router);
        // After a pass that failed nobody knows what arrived; the replica has reported by now.
        self.kernel.importer.resume();
        let (mut wrote, began) = ((0, 0), now());
        let mut slice = began;
        let mut flying = FuturesOrdered::new();
        let mut adding = 0_usize;
        let mut failed: Option<ImportError> = None;
        loop {
            // Nothing is on its way when the kernel is heard: the importer evaluates what stands, not what is about to.
            let late = slice.elapsed() > SLICE;
            while failed.is_none() && !late && flying.len() < IN_FLIGHT {
                match self.next_step(inputs, adding == 0) {
                    Ok(step) if step.is_empty() => break,
                    Ok(step) => {
                        adding += usize::from(!step.add.is_empty());
                        flying.push_back(self.send(router, &step, &comment));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let Some(outcome) = flying.next().await else {
                match failed {
                    Some(error) => return Err(error),
                    None if !late => return Ok(Some(wrote)),
                    None if began.elapsed() > LONGEST => {
                        self.unfinished = true;
                        return Ok(Some(wrote));
                    }
                    None => {}
                }
                self.hear_kernel(inputs).await?;
                slice = now();
                continue;
            };
            match outcome {
                Ok((add, remove)) => {
                    adding = adding.saturating_sub(usize::from(add > 0));
                    wrote = (wrote.0 + add, wrote.1 + remove);
                }
                // What else is on its way comes to its end first.
                Err(error) => failed = failed.or(Some(error.into())),
            }
            if self.read_rows()?.is_none() {
                return Ok(None);
            }
            if flying.is_empty() && failed.is_none() && self.kernel.importer.on_their_way() > 0 {
                return Err(ImportError::NoProgress);
            }
        }
    }

    /// The rows to write next, none where all is written or on its way.
    fn next_step(&mut self, inputs: &Inputs, removals: bool) -> Result<Step<Uuid>, ImportError> {
        let step = self.kernel.importer.step(BATCH, removals);
        let own = &inputs.scope.own_addresses;
        let violations = check::imports(&self.config.target, &step.add, own);
        match violations.into_iter().next() {
            None => Ok(step),
            Some(violation) => {
                debug_assert!(false, "{violation}");
                Err(ImportError::Unsound(Box::new(violation)))
            }
        }
    }

    /// Encodes a step now, and sends it when polled. Resolves to how many rows it adds and removes.
    fn send(
        &self,
        router: Uuid,
        step: &Step<Uuid>,
        comment: &str,
    ) -> impl Future<Output = Result<(usize, usize), TransactionFailed>> + use<> {
        let Step {
            add,
            remove,
            restore,
        } = step;
        let target = &self.config.target;
        let transactions = ovn::encode::imports(target, router, add, remove, restore, comment);
        let size = (add.len(), remove.len());
        let (north, counter) = (self.north.clone(), self.metrics.transactions.clone());
        async move {
            for transaction in transactions {
                transact("north", &north, &transaction, &counter).await?;
            }
            Ok(size)
        }
    }

    /// Takes in what the kernel changed while it was written.
    async fn hear_kernel(&mut self, inputs: &Inputs) -> Result<(), ImportError> {
        self.kernel.hear_again().await?;
        self.evaluate_losses(inputs);
        Ok(())
    }
}
