//! In which order a network is led past the tunnels on a node, and back.
//! In: whether it is to be, what was seen of each part, how long a step has lasted. Out: the step that is due.
//! Invariant: a node steers only while its host and its management port are seen to be whole; rules stand only where the packet filter
//! does; peers are told that it takes packets from the wire before the first can come, and that it does not a while before the host's
//! part goes; a start of the process takes nothing away; a part that cannot be put right is not told of for long.
//! Not here: what stands at each step (`north`, `host`), who looks.
//!
//! ```text
//!  Absent -- Untracked -- Filtered -- Host -- Ready -- Steering
//!            ACLs         nft table   rules   peers    policy
//!                                             are told and set
//! ```

use std::time::Duration;

/// What is seen to be gone is gone for so long before the next step: packets that were on their way have arrived.
const SETTLED: Duration = Duration::from_secs(1);
/// So long after peers were told they send nothing more by the wire: they hear of it over the API server.
const TOLD: Duration = Duration::from_secs(10);
/// For so long peers are not told that a part is broken: mostly it is put right at once; meanwhile what they send may be lost.
const REPAIR: Duration = Duration::from_secs(2);

/// How far a network is led past the tunnels. Each step has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Nothing of ours.
    Absent,
    /// The management port tracks no connection between pods.
    Untracked,
    /// The packet filter lets pods' packets be, and keeps others from pods.
    Filtered,
    /// The host takes pods' packets from the wire and would send them there.
    Host,
    /// Peers are told so.
    Ready,
    /// This node's pods' packets leave by the wire where there is a route.
    Steering,
}

/// How much of a part stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it, in force.
    Whole,
    /// Some of it, or all of it and perhaps not in force yet or still.
    Partial,
    /// Nothing.
    Gone,
}

/// What was seen of each part; `None`: nobody has looked since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The ACLs, in force where ovn-controller has made flows of them.
    pub untracked: Option<Part>,
    /// The packet filter's table.
    pub filter: Option<Part>,
    /// Rules and route.
    pub rules: Option<Part>,
    /// Whether the own Node tells peers that it is ready.
    pub announced: Option<bool>,
    /// The policy.
    pub steering: Option<Part>,
}

impl Seen {
    /// Whether the parts below steering are known to be whole.
    fn carries(self) -> bool {
        let mut parts = [self.untracked, self.filter, self.rules].into_iter();
        parts.all(|part| part == Some(Part::Whole))
    }

    /// Whether one of them is known not to be.
    fn is_broken(self) -> bool {
        let mut parts = [self.untracked, self.filter, self.rules].into_iter();
        parts.any(is_broken)
    }

    /// Whether everything was looked at, and nothing of it is there.
    #[must_use]
    pub fn is_gone(self) -> bool {
        let parts = [self.untracked, self.filter, self.rules, self.steering];
        parts.into_iter().all(is_gone) && self.announced == Some(false)
    }

    /// The step at which another process left the network, by what stands.
    #[must_use]
    pub fn step(self) -> Step {
        let stands = |part: Option<Part>| part.is_some_and(|part| part != Part::Gone);
        // Rows and annotations outlive a boot, rules and tables do not.
        let booted = self.filter == Some(Part::Gone) && self.rules == Some(Part::Gone);
        if !booted && stands(self.steering) {
            Step::Steering
        } else if !booted && self.announced == Some(true) {
            Step::Ready
        } else if stands(self.filter) && stands(self.rules) {
            Step::Host
        } else if stands(self.filter) {
            Step::Filtered
        } else if stands(self.untracked) {
            Step::Untracked
        } else {
            Step::Absent
        }
    }
}

fn is_broken(part: Option<Part>) -> bool {
    part.is_some_and(|part| part != Part::Whole)
}

fn is_gone(part: Option<Part>) -> bool {
    part == Some(Part::Gone)
}

/// The step that a network is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The step.
    pub step: Step,
    /// When what the next step waits for was first seen, on the caller's clock.
    since: Option<Duration>,
    /// Which way it went then.
    wanted: bool,
}

impl Progress {
    /// At the step at which another process left the network.
    #[must_use]
    pub fn at(step: Step) -> Self {
        Self {
            step,
            since: None,
            wanted: false,
        }
    }

    /// Goes on by at most one step. Returns after which time it has to be called again although nothing is seen.
    pub fn advance(&mut self, now: Duration, wanted: bool, seen: Seen) -> Option<Duration> {
        if self.wanted != wanted {
            (self.wanted, self.since) = (wanted, None);
        }
        let (next, wait) = if wanted {
            self.further(seen)
        } else {
            self.back(seen)
        };
        let Some(wait) = wait else {
            // Nothing to wait for has been seen.
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let left = wait.saturating_sub(now.saturating_sub(since));
        if left > Duration::ZERO {
            return Some(left);
        }
        (self.step, self.since) = (next, None);
        Some(Duration::ZERO)
    }

    /// The next step where the network is wanted, and for how long what it waits for has to be seen; no time: it is not.
    fn further(self, seen: Seen) -> (Step, Option<Duration>) {
        let now = |is_due: bool| is_due.then_some(Duration::ZERO);
        match self.step {
            Step::Absent => (Step::Untracked, now(true)),
            Step::Untracked => (Step::Filtered, now(seen.untracked == Some(Part::Whole))),
            Step::Filtered => (Step::Host, now(seen.filter == Some(Part::Whole))),
            Step::Host if seen.carries() => (Step::Ready, now(true)),
            // By rules without the table the host's own packets to pods of other nodes would bear an address that lets nobody in.
            Step::Host => (Step::Filtered, is_broken(seen.filter).then_some(REPAIR)),
            Step::Ready if seen.carries() => (Step::Steering, now(true)),
            Step::Ready => (Step::Host, seen.is_broken().then_some(REPAIR)),
            // First nothing is sent there, then it is put right.
            Step::Steering => (Step::Ready, now(seen.is_broken())),
        }
    }

    /// The same where it is not.
    fn back(self, seen: Seen) -> (Step, Option<Duration>) {
        let gone = |part: Option<Part>| is_gone(part).then_some(SETTLED);
        match self.step {
            Step::Absent => (Step::Absent, None),
            Step::Steering => (Step::Ready, Some(Duration::ZERO)),
            // Peers are told although OVN may not have followed: what this node still sends by the wire arrives all the same, and
            // what made it go back may lose what they send.
            Step::Ready => (Step::Host, Some(SETTLED)),
            Step::Host => {
                let is_due = seen.announced == Some(false) && is_gone(seen.steering);
                (Step::Filtered, is_due.then_some(TOLD))
            }
            Step::Filtered => (Step::Untracked, gone(seen.rules)),
            Step::Untracked => (Step::Absent, gone(seen.filter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Step; 6] = [
        Step::Absent,
        Step::Untracked,
        Step::Filtered,
        Step::Host,
        Step::Ready,
        Step::Steering,
    ];

    /// Everything that a step has stands, and nothing else.
    fn standing(step: Step) -> Seen {
        let part = |is: bool| Some(if is { Part::Whole } else { Part::Gone });
        Seen {
            untracked: part(step >= Step::Untracked),
            filter: part(step >= Step::Filtered),
            rules: part(step >= Step::Host),
            announced: Some(step >= Step::Ready),
            steering: part(step >= Step::Steering),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Steps that follow, each with its second, where what is asked for stands at once.
    fn walk(from: Step, wanted: bool) -> Vec<(Step, u64)> {
        let mut progress = Progress::at(from);
        let mut steps = vec![(from, 0)];
        for millis in 0..60_000_u64 {
            let at = progress.step;
            progress.advance(Duration::from_millis(millis), wanted, standing(at));
            if progress.step != at {
                steps.push((progress.step, millis / 1000));
            }
        }
        steps
    }

    #[test]
    fn in_and_out_every_step_is_passed() {
        use Step::{Absent, Filtered, Host, Ready, Steering, Untracked};
        let order = |steps: Vec<(Step, u64)>| -> Vec<Step> {
            steps.into_iter().map(|(step, _)| step).collect()
        };
        assert_eq!(order(walk(Absent, true)), ALL);
        assert_eq!(
            walk(Steering, false),
            [
                (Steering, 0),
                (Ready, 0),
                (Host, 1),
                (Filtered, 11),
                (Untracked, 12),
                (Absent, 13)
            ]
        );
    }

    #[test]
    fn a_step_waits_for_what_it_needs() {
        let mut progress = Progress::at(Step::Absent);
        let with = |untracked, filter, rules| Seen {
            untracked: Some(untracked),
            filter: Some(filter),
            rules: Some(rules),
            ..standing(Step::Absent)
        };
        use Part::{Gone, Partial, Whole};
        for (second, what, step) in [
            (0, Seen::default(), Step::Untracked),
            (1, Seen::default(), Step::Untracked),
            (2, with(Partial, Gone, Gone), Step::Untracked),
            (3, with(Whole, Gone, Gone), Step::Filtered),
            (4, with(Whole, Partial, Gone), Step::Filtered),
            (5, with(Whole, Whole, Gone), Step::Host),
            (6, with(Whole, Whole, Partial), Step::Host),
            (7, with(Partial, Whole, Whole), Step::Host),
            (8, with(Whole, Whole, Whole), Step::Ready),
            (9, with(Whole, Whole, Whole), Step::Steering),
            // Any part broken: nothing is steered.
            (10, with(Whole, Whole, Partial), Step::Ready),
            (11, with(Whole, Whole, Whole), Step::Steering),
            (12, with(Whole, Partial, Whole), Step::Ready),
            (13, with(Whole, Whole, Whole), Step::Steering),
            (14, with(Partial, Whole, Whole), Step::Ready),
            (15, with(Partial, Whole, Whole), Step::Ready),
            (16, with(Partial, Whole, Whole), Step::Ready),
            (17, with(Whole, Whole, Whole), Step::Steering),
        ] {
            progress.advance(seconds(second), true, what);
            assert_eq!(progress.step, step, "at {second} s");
        }
    }

    #[test]
    fn peers_are_not_told_for_long_of_a_node_that_cannot_be_put_right() {
        for (rules, filter, after) in [
            (Part::Partial, Part::Whole, Step::Host),
            // Rules do not stand for long without the table.
            (Part::Whole, Part::Partial, Step::Filtered),
        ] {
            let mut progress = Progress::at(Step::Ready);
            let broken = Seen {
                rules: Some(rules),
                filter: Some(filter),
                ..standing(Step::Ready)
            };
            for (second, step) in [
                (0, Step::Ready),
                (1, Step::Ready),
                (2, Step::Host),
                (3, Step::Host),
                (5, after),
                (600, after),
            ] {
                progress.advance(seconds(second), true, broken);
                assert_eq!(progress.step, step, "at {second} s");
            }
        }
    }

    #[test]
    fn a_process_that_ends_at_any_step_leaves_the_next_one_at_that_step() {
        for step in ALL {
            assert_eq!(standing(step).step(), step);
            let mut progress = Progress::at(step);
            progress.advance(seconds(100), true, Seen::default());
            assert!(progress.step >= step, "nothing was looked at yet");
        }
        // On the way out, right after peers were told: the ten seconds are another process's.
        let mut progress = Progress::at(standing(Step::Host).step());
        for (second, step) in [(0, Step::Host), (9, Step::Host), (10, Step::Filtered)] {
            progress.advance(seconds(second), false, standing(Step::Host));
            assert_eq!(progress.step, step, "at {second} s");
        }
    }

    #[test]
    fn after_a_boot_nothing_is_told_or_steered_before_the_host_is_whole_again() {
        for step in [Step::Ready, Step::Steering] {
            let booted = Seen {
                filter: Some(Part::Gone),
                rules: Some(Part::Gone),
                ..standing(step)
            };
            assert_eq!(booted.step(), Step::Untracked, "{step:?}");
            let without_lists = Seen {
                untracked: Some(Part::Gone),
                ..booted
            };
            assert_eq!(without_lists.step(), Step::Absent, "{step:?}");
        }
        // Rules that keep the host's packets in the tunnels stand where nothing else does.
        let kept = Seen {
            rules: Some(Part::Partial),
            ..standing(Step::Untracked)
        };
        assert_eq!(kept.step(), Step::Untracked);
        // Somebody flushed the packet filter: it is put right, nothing else goes.
        let flushed = Seen {
            filter: Some(Part::Gone),
            ..standing(Step::Steering)
        };
        assert_eq!(flushed.step(), Step::Steering);
    }

    #[test]
    fn what_was_waited_for_on_one_way_does_not_count_on_the_other() {
        let mut progress = Progress::at(Step::Ready);
        let broken = Seen {
            rules: Some(Part::Partial),
            steering: Some(Part::Gone),
            ..standing(Step::Ready)
        };
        progress.advance(seconds(0), true, broken);
        progress.advance(seconds(1), true, broken);
        let left = progress.advance(Duration::from_millis(1900), false, broken);
        assert_eq!((progress.step, left), (Step::Ready, Some(SETTLED)));
    }

    #[test]
    fn on_the_way_out_what_still_stands_is_waited_for() {
        let still = |step: Step, seen: Seen| {
            let mut progress = Progress::at(step);
            for second in 0..100 {
                progress.advance(seconds(second), false, seen);
            }
            progress.step == step
        };
        let seen = Seen {
            announced: Some(false),
            ..standing(Step::Host)
        };
        assert!(!still(Step::Host, seen));
        for (step, what, seen) in [
            (
                Step::Host,
                "flows of the policy",
                Seen {
                    steering: Some(Part::Partial),
                    ..seen
                },
            ),
            (
                Step::Host,
                "the API server refuses",
                Seen {
                    announced: Some(true),
                    ..seen
                },
            ),
            (
                Step::Host,
                "nobody knows what peers are told",
                Seen {
                    announced: None,
                    ..seen
                },
            ),
            (
                Step::Filtered,
                "a rule",
                Seen {
                    rules: Some(Part::Partial),
                    ..seen
                },
            ),
            (
                Step::Untracked,
                "the table",
                Seen {
                    filter: Some(Part::Partial),
                    ..seen
                },
            ),
        ] {
            assert!(still(step, seen), "{what}");
        }
    }

    #[test]
    fn peers_are_told_although_ovn_does_not_follow() {
        let mut progress = Progress::at(Step::Steering);
        let hangs = Seen {
            steering: Some(Part::Partial),
            ..standing(Step::Steering)
        };
        for (second, step) in [(0, Step::Ready), (1, Step::Ready), (2, Step::Host)] {
            progress.advance(seconds(second), false, hangs);
            assert_eq!(progress.step, step, "at {second} s");
        }
    }

    #[test]
    fn the_time_begins_when_it_is_seen_to_be_gone_and_again_when_it_comes_back() {
        let mut progress = Progress::at(Step::Filtered);
        for (millis, rules, step) in [
            (0, Part::Whole, Step::Filtered),
            (50_000, Part::Gone, Step::Filtered),
            (50_900, Part::Partial, Step::Filtered),
            (51_100, Part::Gone, Step::Filtered),
            (52_000, Part::Gone, Step::Filtered),
            (52_100, Part::Gone, Step::Untracked),
        ] {
            let seen = Seen {
                rules: Some(rules),
                ..standing(Step::Filtered)
            };
            progress.advance(Duration::from_millis(millis), false, seen);
            assert_eq!(progress.step, step, "at {millis} ms");
        }
    }

    fn some_part() -> impl Strategy<Value = Option<Part>> {
        proptest::option::of(prop_oneof![
            Just(Part::Whole),
            Just(Part::Partial),
            Just(Part::Gone)
        ])
    }

    proptest! {
        #[test]
        fn one_step_at_a_time_and_none_up_on_a_broken_host(
            begin in 0_usize..6,
            events in proptest::collection::vec((0_u64..5_000, any::<bool>(), [some_part(), some_part(), some_part(), some_part()], proptest::option::of(any::<bool>())), 0..60),
        ) {
            let place = |step: Step| ALL.iter().position(|s| *s == step).unwrap();
            let mut now = Duration::ZERO;
            let mut progress = Progress::at(ALL[begin]);
            for (millis, wanted, [untracked, filter, rules, steering], announced) in events {
                now += Duration::from_millis(millis);
                let seen = Seen { untracked, filter, rules, announced, steering };
                let before = progress.step;
                progress.advance(now, wanted, seen);
                let after = progress.step;
                prop_assert!(place(before).abs_diff(place(after)) <= 1);
                let whole = [untracked, filter, rules].iter().all(|part| *part == Some(Part::Whole));
                let broken = [untracked, filter, rules].iter().any(|part| matches!(part, Some(Part::Partial | Part::Gone)));
                if after > before {
                    prop_assert!(wanted);
                    prop_assert!(after < Step::Ready || whole);
                    prop_assert!(after != Step::Host || filter == Some(Part::Whole), "rules without the table");
                }
                if after < before {
                    prop_assert!(!wanted || (broken && before >= Step::Host));
                    // The host's part goes only where peers are told otherwise and nothing is steered, the table only where rules are gone,
                    // the ports' only where the table is.
                    let is_over = announced == Some(false) && steering == Some(Part::Gone);
                    prop_assert!(wanted || before != Step::Host || is_over);
                    prop_assert!(before != Step::Filtered || rules == Some(Part::Gone));
                    prop_assert!(before != Step::Untracked || filter == Some(Part::Gone));
                }
                if before == Step::Steering && broken {
                    prop_assert_eq!(after, Step::Ready);
                }
            }
        }
    }
}
