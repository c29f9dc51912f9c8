//! A mass withdrawal that comes too fast to be believed: one bad policy on a reflector must not take every route away.
//! In: how many destinations stand, how many would go or went, times, the admin's word. Out: whether those that would go are
//! retained. Invariant: nothing is retained longer than the hold time; what passed once is not retained again.
//! Not here: which destinations count (`losses`: not those whose own session went down), asking FRR (the node-agent).
//!
//! ```text
//!   closed --more than the share within the window--> open --all are back--------------> closed
//!                                                       '--hold time over, or released--> released --none is left--> closed
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// How many destinations went, by the next hops that they were reached over.
pub type Went = BTreeMap<Vec<IpAddr>, usize>;

/// When a withdrawal is a mass withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// More than so many of a hundred; 0 never retains. Source: `[limits] mass-withdraw-share`.
    pub share: u8,
    /// Of at least so many destinations. Source: `[limits] mass-withdraw-routes`.
    pub least: usize,
    /// Within this time. Source: `[limits] mass-withdraw-window`.
    pub window: Duration,
    /// Retained this long at most. Source: `[limits] mass-withdraw-hold`.
    pub hold: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open { since: Duration },
    Released,
}

/// The suppression of one network. Times are durations since any fixed moment, never decreasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    threshold: Threshold,
    state: State,
    /// What went at which moment of the window.
    gone: VecDeque<(Duration, Went)>,
}

impl Suppression {
    /// A closed one.
    #[must_use]
    pub fn new(threshold: Threshold) -> Self {
        Self {
            threshold,
            state: State::Closed,
            gone: VecDeque::new(),
        }
    }

    /// Takes another threshold; what is retained now is measured by it too.
    pub fn set_threshold(&mut self, threshold: Threshold) {
        self.threshold = threshold;
    }

    /// True while destinations are retained: whoever looks has to look again soon, sessions included.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// How long destinations will be retained at most; `None` where none are.
    #[must_use]
    pub fn left(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Open { since } => Some((since + self.threshold.hold).saturating_sub(now)),
            State::Closed | State::Released => None,
        }
    }

    /// Destinations went because the kernel lost them.
    pub fn went(&mut self, now: Duration, destinations: Went) {
        if !destinations.is_empty() && self.state == State::Closed {
            self.gone.push_back((now, destinations));
        }
    }

    /// Of what went, only that counts on over whose next hops `believed` says that a session may be up: the rest went with
    /// its session.
    pub fn explain(&mut self, believed: impl Fn(&[IpAddr]) -> bool) {
        for (_, went) in &mut self.gone {
            went.retain(|hops, _| believed(hops));
        }
    }

    /// Whether so many that would go, of so many that stand, are a mass: then sessions have to be asked for.
    pub fn suspects(&mut self, now: Duration, existing: usize, going: usize) -> bool {
        let window = self.threshold.window;
        self.gone.retain(|(at, _)| now.saturating_sub(*at) < window);
        let gone: usize = self.gone.iter().flat_map(|(_, went)| went.values()).sum();
        let before = existing.saturating_add(gone);
        self.threshold.share > 0
            && going > 0
            && before >= self.threshold.least
            && (going.saturating_add(gone)).saturating_mul(100)
                > before.saturating_mul(self.threshold.share.into())
    }

    /// Evaluates `going` destinations of `existing`: those that would go although the session that brought them is up.
    /// Returns whether they are retained.
    pub fn evaluate(&mut self, now: Duration, existing: usize, going: usize) -> bool {
        let mass = self.suspects(now, existing, going);
        self.state = match self.state {
            _ if going == 0 => State::Closed,
            State::Closed if mass => State::Open { since: now },
            State::Open { since } if now.saturating_sub(since) >= self.threshold.hold => {
                State::Released
            }
            same @ (State::Closed | State::Open { .. } | State::Released) => same,
        };
        if self.state == State::Released {
            self.gone.clear();
        }
        self.is_open()
    }

    /// The admin says that the withdrawal is meant.
    pub fn release(&mut self) {
        if self.is_open() {
            self.state = State::Released;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn suppression() -> Suppression {
        Suppression::new(Threshold {
            share: 50,
            least: 10,
            window: Duration::from_secs(2),
            hold: Duration::from_secs(60),
        })
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// So many over one next hop.
    fn over(host: u8, count: usize) -> Went {
        let hop: IpAddr = format!("172.30.0.{host}").parse().unwrap();
        [(vec![hop], count)].into()
    }

    #[test]
    fn what_went_with_its_session_does_not_count() {
        let mut b = suppression();
        b.went(at(0), over(2, 12));
        assert!(b.suspects(at(1), 8, 1));
        b.explain(|hops| hops != over(2, 0).into_keys().next().unwrap());
        assert!(!b.suspects(at(1), 8, 1));
    }

    #[test]
    fn more_than_the_share_at_once_is_retained_for_the_hold_time_and_then_goes_for_good() {
        let mut b = suppression();
        assert!(!b.evaluate(at(0), 20, 10), "half is not more than half");
        assert!(b.evaluate(at(0), 20, 11));
        assert!(b.evaluate(at(59_999), 20, 3), "the rest of it waits too");
        assert_eq!(b.left(at(59_000)), Some(at(1000)));
        assert!(!b.evaluate(at(60_000), 20, 11));
        assert!(
            !b.evaluate(at(60_001), 12, 12),
            "what goes after it goes too"
        );
        assert!(!b.evaluate(at(60_100), 9, 0));
        assert!(
            b.evaluate(at(70_000), 20, 20),
            "a second one is another one"
        );
    }

    #[test]
    fn what_went_in_the_window_counts_and_what_went_before_it_does_not() {
        let mut b = suppression();
        for step in 0..5 {
            assert!(!b.evaluate(at(step * 300), 20 - 2 * usize::try_from(step).unwrap(), 2));
            b.went(at(step * 300), over(2, 2));
        }
        assert!(b.evaluate(at(1600), 10, 2));
        let mut slow = suppression();
        for step in 0..9 {
            let stands = 20 - 2 * usize::try_from(step).unwrap();
            assert!(!slow.evaluate(at(step * 1100), stands, 2), "step {step}");
            slow.went(at(step * 1100), over(2, 2));
        }
    }

    #[test]
    fn few_routes_are_never_retained_and_the_share_nought_holds_nothing() {
        assert!(!suppression().evaluate(at(0), 9, 9));
        let mut off = suppression();
        off.threshold.share = 0;
        assert!(!off.evaluate(at(0), 1000, 1000));
    }

    #[test]
    fn what_comes_back_closes_it_and_the_admin_opens_the_way() {
        let mut b = suppression();
        assert!(b.evaluate(at(0), 10, 10));
        assert!(!b.evaluate(at(10), 10, 0));
        assert!(!b.is_open());
        assert!(b.evaluate(at(20), 10, 10));
        b.release();
        assert!(!b.evaluate(at(30), 10, 10));
        b.went(at(30), over(2, 10));
        assert!(!b.evaluate(at(40), 0, 0));
    }

    proptest! {
        #[test]
        fn nothing_is_retained_longer_than_the_hold_time(
            steps in prop::collection::vec((1_u64..3000, 0_usize..40, 0_usize..40, any::<bool>()), 1..80)
        ) {
            let mut b = suppression();
            let (mut now, mut retained_since) = (0, None);
            for (wait, existing, going, go) in steps {
                now += wait;
                let going = going.min(existing);
                let retained = b.evaluate(at(now), existing, going);
                prop_assert!(!retained || (going > 0 && b.left(at(now)).is_some()));
                match (retained, retained_since) {
                    (true, None) => retained_since = Some(now),
                    (true, Some(since)) => prop_assert!(now - since < 60_000),
                    (false, _) => retained_since = None,
                }
                if !retained && go {
                    b.went(at(now), over(2, going));
                }
            }
        }
    }
}
