//! What the loops have in common: saying things once, counting passes, and transactions.
//! In: outcomes. Out: log lines, metrics, verdicts. Invariant: a complaint is logged when it changes, not when it repeats.
//! Not here: what the outcomes mean for a subject.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ovsdb::{Client, OperationError, TransactError, Transaction};
use reconcile::Verdict;
use telemetry::{Chain, Readiness};

use crate::metrics::Metrics;
use crate::sources::ReadError;
use crate::view::NoView;

/// Remembers the last complaint of one subject.
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
    pub(crate) fn say(&mut self, text: String) {
        if self.last != text {
            tracing::warn!(subject = self.subject, "{text}");
            self.last = text;
        }
    }

    /// Nothing is wrong (any more).
    pub(crate) fn clear(&mut self) {
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

    /// Counts a pass and hands its verdict on.
    pub(crate) fn pass(&self, subject: &'static str, verdict: Verdict) -> Verdict {
        let word = match verdict {
            Verdict::Settled => "settled",
            Verdict::Retry => "retry",
            Verdict::Blocked => "blocked",
        };
        self.metrics
            .passes
            .with_label_values(&[subject, word])
            .inc();
        let problems = self.metrics.problems.with_label_values(&[subject]);
        problems.set(i64::from(verdict != Verdict::Settled));
        if verdict == Verdict::Settled {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.remove(subject) && open.is_empty() {
                tracing::info!("the first pass of everything is done");
                self.readiness.set("first pass", true);
            }
        }
        verdict
    }

    /// Sends a transaction; `true` where it was applied as meant.
    pub(crate) async fn transact(
        &self,
        client: &Client,
        database: &'static str,
        transaction: &Transaction,
        complaint: &mut Complaint,
    ) -> bool {
        let count = |result| {
            let labels = [database, result];
            self.metrics.transactions.with_label_values(&labels).inc();
        };
        match client.transact(transaction).await {
            Ok(reply) => match reply.check_counts() {
                Ok(()) => {
                    count("success");
                    true
                }
                Err(error) => {
                    count("guard");
                    complaint.say(format!("{database} changed meanwhile: {error}"));
                    false
                }
            },
            // Somebody changed what was assumed: the next pass reads it anew.
            Err(TransactError::Operation {
                error: OperationError::TimedOut,
                ..
            }) => {
                count("guard");
                tracing::debug!(database, "a guard failed, reading anew");
                false
            }
            Err(error) => {
                count("failure");
                complaint.say(format!("{database}: {}", Chain(&error)));
                false
            }
        }
    }
}

/// Says why something could not be read, and gives the pass its verdict.
pub(crate) fn unread(complaint: &mut Complaint, why: &ReadError) -> Verdict {
    if !why.is_early() {
        complaint.say(Chain(why).to_string());
    }
    why.verdict()
}

/// Says why there is no view, and gives the pass its verdict.
pub(crate) fn without_view(complaint: &mut Complaint, why: &NoView) -> Verdict {
    match why {
        NoView::NotHeard | NoView::NoNetwork => {}
        NoView::Read(why) => return unread(complaint, why),
        NoView::Problems(_) => complaint.say(format!("{why}; what stands is kept")),
    }
    why.verdict()
}
