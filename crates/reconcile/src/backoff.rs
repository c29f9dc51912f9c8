//! Growing delays, for everything that is tried again.
//! In: the first and the longest delay. Out: one delay after the other. Invariant: none is longer than the longest.
//! Not here: waiting.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Delays that double from the first to the longest.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
    /// State of the random numbers; `None` gives each delay in full.
    random: Option<u64>,
}

impl Backoff {
    /// Delays of `first`, twice as much, and so on up to `most`, which is at least `first`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most: most.max(first),
            next: first,
            random: None,
        }
    }

    /// Each delay is cut by chance to between a half and the whole of itself, so that those who failed together do not
    /// come back together.
    #[must_use]
    pub fn with_jitter(mut self) -> Self {
        self.random = Some(RandomState::new().build_hasher().finish() | 1);
        self
    }

    /// The delay to wait now.
    pub fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.most);
        let Some(random) = &mut self.random else {
            return whole;
        };
        // xorshift64: chance enough to spread calls.
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let share = u32::try_from(*random % 1000).unwrap_or(0);
        whole / 2 + whole * share / 2000
    }

    /// The next delay is the first again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_begin_anew_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let delays: Vec<u128> = (0..7).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_millis(200));
    }

    #[test]
    fn jitter_keeps_between_half_and_whole_and_differs_from_one_to_the_next() {
        let delays = || -> Vec<u128> {
            let first = Duration::from_millis(1000);
            let mut backoff = Backoff::new(first, first).with_jitter();
            (0..20).map(|_| backoff.pause().as_millis()).collect()
        };
        let (a, b) = (delays(), delays());
        assert!(
            a.iter().chain(&b).all(|d| (500..=1000).contains(d)),
            "{a:?} {b:?}"
        );
        assert_ne!(a, b);
    }
}
