//! Choices that can be made again: a seed, and numbers from it.
//! In: `NOVERLAY_SEED`, or the clock. Out: numbers. Invariant: the seed is printed. Not here: what is chosen.

use std::time::SystemTime;

/// A generator of numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// With the seed of this run, which is printed.
    #[must_use]
    pub fn of_this_run() -> Self {
        let given = std::env::var("NOVERLAY_SEED").ok();
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| u64::from(clock.unwrap_or_default().subsec_micros()));
        println!("seed of this run: NOVERLAY_SEED={seed}");
        Self::new(seed)
    }

    /// With a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another one that goes its own way from here.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Yes in so many of a hundred cases.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of these; there is at least one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64);
        &of[usize::try_from(at).unwrap()]
    }
}
