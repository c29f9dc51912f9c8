//! What the loops have in common: outcomes of passes, saying things once, transactions.
//! In: outcomes. Out: log lines, metrics, verdicts. Invariant: a complaint is logged when it changes, not when it repeats.
//! Not here: what the outcomes mean for a subject.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use kube_edge::WriteError;
use model::Problem;
use ovsdb::{Client, OperationError, TransactError, Transaction};
use reconcile::Verdict;
use telemetry::{Chain, Readiness};

use crate::metrics::Metrics;
use crate::sources::ReadError;
use crate::view::NoView;

/// Why a pass did not settle, and when the next one is due.
#[derive(Debug)]
pub(crate) struct Unsettled {
    verdict: Verdict,
    /// Nothing where somebody else says it, or nothing is wrong.
    why: Option<String>,
}

impl Unsettled {
    /// Something that will change by itself or by a poke; nothing to say.
    pub(crate) fn quietly(verdict: Verdict) -> Self {
        Self { verdict, why: None }
    }

    /// The world's fault, tried again.
    pub(crate) fn retry(why: impl ToString) -> Self {
        Self {
            verdict: Verdict::Retry,
            why: Some(why.to_string()),
        }
    }

    /// Only a changed input helps.
    pub(crate) fn blocked(why: impl ToString) -> Self {
        Self {
            verdict: Verdict::Blocked,
            why: Some(why.to_string()),
        }
    }

    /// The same without a word.
    pub(crate) fn hushed(self) -> Self {
        Self::quietly(self.verdict)
    }
}

impl From<ReadError> for Unsettled {
    fn from(error: ReadError) -> Self {
        match error {
            // The first session is on its way, and pokes whoever waits for it.
            ReadError::NotYet(_) => Self::quietly(Verdict::Blocked),
            ReadError::Access(_) | ReadError::Dump(_) | ReadError::Thread => {
                Self::retry(Chain(&error))
            }
        }
    }
}

impl From<NoView> for Unsettled {
    fn from(why: NoView) -> Self {
        match why {
            NoView::Read(error) => error.into(),
            NoView::NotHeard | NoView::NoNetwork => Self::quietly(Verdict::Blocked),
            NoView::Problems(_) => Self::blocked(format!("{why}; what stands is kept")),
        }
    }
}

impl From<Problem> for Unsettled {
    fn from(problem: Problem) -> Self {
        Self::blocked(problem)
    }
}

impl From<WriteError> for Unsettled {
    fn from(error: WriteError) -> Self {
        Self::retry(Chain(&error))
    }
}

/// The last complaint of one subject.
#[derive(Debug)]
pub(crate) struct Complaint {
    subject: &'static str,
    last: String,
}

impl Complaint {
    pub(crate) fn of(subject: &'static str) -> Self {
        Self {
            subject,
            last: String::new(),
        }
    }

    /// Says it, unless it was the last thing said.
    fn say(&mut self, text: String) {
        if self.last != text {
            tracing::warn!(subject = self.subject, "{text}");
            self.last = text;
        }
    }

    /// Nothing is wrong (any more).
    fn clear(&mut self) {
        if !std::mem::take(&mut self.last).is_empty() {
            tracing::info!(subject = self.subject, "all is well again");
        }
    }
}

/// What every loop reports to. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) metrics: Metrics,
    readiness: Readiness,
    open: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Ledger {
    /// `subjects` have to settle once before the daemon is ready.
    pub(crate) fn new(metrics: Metrics, readiness: Readiness, subjects: &[&'static str]) -> Self {
        readiness.set("first pass", subjects.is_empty());
        Self {
            metrics,
            readiness,
            open: Arc::new(Mutex::new(subjects.iter().copied().collect())),
        }
    }

    /// Counts a pass, says what is new, and gives the verdict for the loop.
    pub(crate) fn pass(
        &self,
        complaint: &mut Complaint,
        outcome: Result<(), Unsettled>,
    ) -> Verdict {
        let subject = complaint.subject;
        let verdict = match outcome {
            Ok(()) => {
                complaint.clear();
                self.settled(subject);
                Verdict::Settled
            }
            Err(Unsettled { verdict, why }) => {
                why.into_iter().for_each(|why| complaint.say(why));
                verdict
            }
        };
        let word = match verdict {
            Verdict::Settled => "settled",
            Verdict::Retry => "retry",
            Verdict::Blocked => "blocked",
        };
        let labels = [subject, word];
        self.metrics.passes.with_label_values(&labels).inc();
        let problems = self.metrics.problems.with_label_values(&[subject]);
        problems.set(i64::from(verdict != Verdict::Settled));
        verdict
    }

    fn settled(&self, subject: &'static str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.remove(subject) && open.is_empty() {
            tracing::info!("the first pass of everything is done");
            self.readiness.set("first pass", true);
        }
    }

    /// Sends a transaction and checks what it changed.
    pub(crate) async fn transact(
        &self,
        client: &Client,
        database: &'static str,
        transaction: &Transaction,
    ) -> Result<(), Unsettled> {
        let (result, outcome) = match client.transact(transaction).await {
            Ok(reply) => match reply.check_counts() {
                Ok(()) => ("success", Ok(())),
                Err(error) => {
                    let why = format!("{database} changed meanwhile: {error}");
                    ("guard", Err(Unsettled::retry(why)))
                }
            },
            // Somebody changed what was assumed: the next pass reads it anew.
            Err(TransactError::Operation {
                error: OperationError::TimedOut,
                ..
            }) => ("guard", Err(Unsettled::quietly(Verdict::Retry))),
            Err(error) => {
                let why = format!("{database}: {}", Chain(&error));
                ("failure", Err(Unsettled::retry(why)))
            }
        };
        let labels = [database, result];
        self.metrics.transactions.with_label_values(&labels).inc();
        outcome
    }
}

#[cfg(test)]
mod tests;
