//! How long to wait before the next attempt.
//!
//! In: the greatest delay, and noise. Out: delays that double, each shortened by up to half.
//! Invariant: never zero, never above the greatest delay.
//! Not here: sleeping.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);

/// The state of the doubling.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) fn new(max: Duration) -> Self {
        Self {
            next: FIRST,
            max: max.max(Duration::from_millis(1)),
        }
    }

    /// The delay before the next attempt: between half of the current step and all of it.
    pub(super) fn step(&mut self, noise: u64) -> Duration {
        let step = self.next.min(self.max);
        self.next = step.saturating_mul(2);
        let part = u32::try_from(noise % 1024).unwrap_or(0);
        step / 2 + (step / 2).saturating_mul(part) / 1024
    }

    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// Numbers that differ between processes and calls; good enough to spread attempts.
pub(super) fn noise() -> u64 {
    // Every `RandomState` has other keys.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
