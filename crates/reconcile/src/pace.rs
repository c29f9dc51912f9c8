//! How soon a key passes again.
//! In: when passes began and ended, how often the key was enqueued between them. Out: the earliest time of the next.
//! Invariant: a key that was quiet passes at once. Not here: retries.

use std::time::Duration;

use tokio::time::Instant;

/// How long a key rests after a pass.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This long.
    Fixed(Duration),
    /// Not at all while a pass for every request takes less than a share of the time; else requests are gathered.
    ByCost {
        /// The share, in percent of the time; 1 to 100.
        share: u32,
        /// A pass counts as this long at least: others work on what it wrote, too.
        least: Duration,
        /// The rest while requests are gathered. Passes may take this much more than their share before they are.
        gather: Duration,
    },
}

/// One key's pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paced {
    rested: Instant,
    /// When the last pass began.
    began: Instant,
    /// What passes took beyond their share of the time.
    debt: Duration,
    /// What a pass takes when nothing is gathered, smoothed.
    single: Duration,
    gathers: bool,
}

impl Paced {
    /// The pace of a key whose first pass began then.
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            rested: began,
            began,
            debt: Duration::ZERO,
            single: Duration::ZERO,
            gathers: false,
        }
    }

    /// No pass for requests before.
    pub(crate) fn rested(&self) -> Instant {
        self.rested
    }

    /// A pass came to its end, after so many requests since the one before; `failed`: it has to be tried again.
    pub(crate) fn passed(
        &mut self,
        pace: Pace,
        (began, ended): (Instant, Instant),
        requests: u32,
        failed: bool,
    ) {
        let (share, least, gather) = match pace {
            Pace::Fixed(rest) => {
                self.rested = ended + rest;
                return;
            }
            Pace::ByCost {
                share,
                least,
                gather,
            } => (share.clamp(1, 100), least, gather),
        };
        let took = ended.saturating_duration_since(began).max(least);
        let allowed = began.saturating_duration_since(self.began) * share / 100;
        self.began = began;
        if self.gathers {
            // What a pass of many takes, one of a single request takes at most.
            self.single = self.single.min(took);
            if self.single.saturating_mul(requests.max(1)) <= allowed {
                // Each of these requests could have had a pass of its own.
                self.gathers = false;
                self.debt = took.saturating_sub(allowed);
            }
        } else {
            self.debt = self.debt.saturating_sub(allowed) + took;
            self.single = if self.single.is_zero() {
                took
            } else {
                (self.single * 7 + took) / 8
            };
            self.gathers = self.debt > gather;
        }
        // What fails is not tried faster because somebody asks for it.
        let rests = self.gathers || failed;
        self.rested = ended + if rests { gather } else { Duration::ZERO };
    }
}
