//! What is remembered of a text that FRR did not take.
//! In: digests, reasons. Out: an outcome, and when to try again. Invariant: the time grows with each attempt, up to five minutes.
//! Not here: trying.

use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(300);

/// A text that FRR did not take.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) daemons: String,
    why: String,
    delay: Duration,
    /// Not to be tried again before; `None`: not at all.
    until: Option<Instant>,
}

impl Failure {
    pub(super) fn is(&self, text: &str, daemons: &str) -> bool {
        self.text == text && self.daemons == daemons
    }

    /// What is to be said as long as it is not to be tried again.
    pub(super) fn stands(&self) -> Option<Outcome> {
        let again = match self.until {
            None => None,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                Some((!left.is_zero()).then_some(left)?)
            }
        };
        Some(Outcome::Failed {
            why: self.why.clone(),
            again,
        })
    }
}

/// Remembers a failure; reported once for each reason.
pub(super) fn remember(
    slot: &mut Option<Failure>,
    text: String,
    daemons: String,
    why: String,
    hopeless: bool,
) -> Outcome {
    let before = slot.take().filter(|f| f.is(&text, &daemons));
    if before.as_ref().is_none_or(|f| f.why != why) {
        tracing::error!("FRR did not take its configuration: {why}");
    }
    let delay = before.map_or(RETRY_FIRST, |f| (f.delay * 2).min(RETRY_MOST));
    let again = (!hopeless).then_some(delay);
    *slot = Some(Failure {
        text,
        daemons,
        why: why.clone(),
        delay,
        until: again.map(|delay| Instant::now() + delay),
    });
    Outcome::Failed { why, again }
}
