//! One visit of a way to another node: which echo requests are sent, and what their answers mean.
//! In: what was known of the way, for each request whether it was answered. Out: the next request's size, then a [`Verdict`].
//! Invariant: a way is narrow only where the large packet was lost [`LOSSES`] times in a row while a small one was answered
//! each time, where a size that passes was found that networks can have, and where the large packet was lost again after that;
//! one answer to the large packet makes it wide.
//! Not here: sockets, and time.

use crate::claims::MTU;

/// So often in a row the large packet has to be lost, while small ones are answered.
pub const LOSSES: u8 = 3;
/// So often in a row a size that is tried has to be lost.
const LOSSES_OF_A_GUESS: u8 = 2;
/// In a row so many visits without any answer, or such as could not be made: nothing is known of the way any more.
const SILENT_VISITS: u8 = 3;
/// The small packet, bytes of IP: as `ping` sends it, with the longer header of IPv6.
pub const SMALL: u32 = 104;
/// What most links carry, bytes.
const ETHERNET: u32 = 1500;

/// What became of an echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It was answered.
    Answered,
    /// It was not; `hint` is the MTU, bytes, that a router has said.
    Lost {
        /// Bytes.
        hint: Option<u32>,
    },
    /// It could not be sent for want of something of our own: it says nothing about the way.
    Failed,
}

/// What is known of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Unknown,
    /// The largest packets of pods pass.
    Wide,
    /// They do not.
    Narrow {
        /// The largest IP packet that passes, bytes.
        passes: u32,
    },
    /// Nobody answers.
    Unanswered,
    /// Small requests are answered, and none of a size that every network must carry: somebody filters large ones.
    Filtered,
}

/// What is known of a way, over all visits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    verdict: Verdict,
    /// Visits without an answer since the last one with.
    silent: u8,
    /// Visits that could not be made since the last one that could.
    failed: u8,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            verdict: Verdict::Unknown,
            silent: 0,
            failed: 0,
        }
    }
}

impl Known {
    /// What is known now.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes the end of a visit; `None` where it says nothing.
    pub fn note(&mut self, verdict: Option<Verdict>) {
        match verdict.unwrap_or(Verdict::Unknown) {
            Verdict::Unknown => {
                self.failed = self.failed.saturating_add(1);
                // What was found long ago is said of no way that nobody looks at.
                if self.failed >= SILENT_VISITS {
                    self.verdict = Verdict::Unknown;
                }
            }
            Verdict::Unanswered => {
                self.failed = 0;
                self.silent = self.silent.saturating_add(1);
                // A busy moment is no end of what was found.
                let is_narrow = matches!(self.verdict, Verdict::Narrow { .. });
                if !is_narrow || self.silent >= SILENT_VISITS {
                    self.verdict = Verdict::Unanswered;
                }
            }
            said @ (Verdict::Wide | Verdict::Narrow { .. } | Verdict::Filtered) => {
                (self.silent, self.failed) = (0, 0);
                self.verdict = said;
            }
        }
    }

    /// Pods' packets are of another size now, bytes.
    pub fn resize(&mut self, size: u32) {
        if let Verdict::Narrow { passes } = self.verdict
            && passes < size
        {
            return;
        }
        *self = Self::default();
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Large,
    Small,
    /// Whether what passed before does so still.
    Before(u32),
    /// Whether one byte more passes now.
    More(u32),
    /// Sizes between one that passes and one that does not.
    Search {
        passes: u32,
        fails: u32,
        lost: u8,
    },
    /// What was found, once more.
    Confirm {
        passes: u32,
        lost: u8,
    },
    /// The large packet, once more: what was lost first may have been lost by chance.
    Again {
        passes: u32,
        lost: u8,
    },
    Done(Option<Verdict>),
}

/// A visit of a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    size: u32,
    before: Option<u32>,
    lost: u8,
    hint: Option<u32>,
    step: Step,
}

impl Visit {
    /// A visit of a way on which pods' packets have `size` bytes of IP.
    #[must_use]
    pub fn new(size: u32, known: &Known) -> Self {
        let (before, step) = match known.verdict {
            Verdict::Narrow { passes } => (Some(passes), Step::Large),
            // One that is not there costs one request.
            Verdict::Unanswered => (None, Step::Small),
            Verdict::Unknown | Verdict::Wide | Verdict::Filtered => (None, Step::Large),
        };
        let step = if size > SMALL { step } else { Step::Done(None) };
        Self {
            size,
            before,
            lost: 0,
            hint: None,
            step,
        }
    }

    /// The IP packet to send now, bytes; `None` where the visit has ended.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.step {
            Step::Large | Step::Again { .. } => Some(self.size),
            Step::Small => Some(SMALL),
            Step::Before(size) | Step::More(size) => Some(size),
            Step::Search { passes, fails, .. } => Some(self.guess(passes, fails)),
            Step::Confirm { passes, .. } => Some(passes),
            Step::Done(_) => None,
        }
    }

    /// What the visit has found; `None` before its end, and where it says nothing.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self.step {
            Step::Done(verdict) => verdict,
            Step::Large
            | Step::Small
            | Step::Before(_)
            | Step::More(_)
            | Step::Search { .. }
            | Step::Confirm { .. }
            | Step::Again { .. } => None,
        }
    }

    /// Takes what became of the request of [`Self::next`].
    pub fn heard(&mut self, reply: Reply) {
        self.step = match reply {
            Reply::Answered => self.answered(),
            Reply::Lost { hint } => {
                self.hint = hint.or(self.hint);
                self.lost()
            }
            Reply::Failed => Step::Done(None),
        };
    }

    fn answered(&self) -> Step {
        match self.step {
            Step::Large | Step::Again { .. } => Step::Done(Some(Verdict::Wide)),
            Step::Small if self.lost < LOSSES => Step::Large,
            Step::Small => self.search(SMALL, self.size),
            Step::Before(passes) if passes.saturating_add(1) >= self.size => {
                Step::Again { passes, lost: 0 }
            }
            Step::Before(passes) => Step::More(passes.saturating_add(1)),
            Step::More(size) => self.search(size, self.size),
            Step::Search { passes, fails, .. } => self.search(self.guess(passes, fails), fails),
            Step::Confirm { passes, .. } => Step::Again { passes, lost: 0 },
            done @ Step::Done(_) => done,
        }
    }

    fn lost(&mut self) -> Step {
        match self.step {
            Step::Large => {
                self.lost = self.lost.saturating_add(1);
                let before = self.before.filter(|before| *before < self.size);
                match (self.lost, before) {
                    (1, Some(before)) => Step::Before(before),
                    _ => Step::Small,
                }
            }
            Step::Small => Step::Done(Some(Verdict::Unanswered)),
            Step::Before(_) => Step::Small,
            Step::More(size) => Step::Done(Some(Verdict::Narrow {
                passes: size.saturating_sub(1),
            })),
            Step::Search {
                passes,
                fails,
                lost,
            } => match lost.saturating_add(1) {
                lost if lost < LOSSES_OF_A_GUESS => Step::Search {
                    passes,
                    fails,
                    lost,
                },
                _ => self.search(passes, self.guess(passes, fails)),
            },
            Step::Confirm { passes, lost } => match lost.saturating_add(1) {
                lost if lost < LOSSES_OF_A_GUESS => Step::Confirm { passes, lost },
                _ => Step::Done(Some(Verdict::Unanswered)),
            },
            Step::Again { passes, lost } => match lost.saturating_add(1) {
                lost if lost < LOSSES_OF_A_GUESS => Step::Again { passes, lost },
                _ => Step::Done(Some(Verdict::Narrow { passes })),
            },
            done @ Step::Done(_) => done,
        }
    }

    fn search(&self, passes: u32, fails: u32) -> Step {
        if passes.saturating_add(1) < fails {
            let lost = 0;
            return Step::Search {
                passes,
                fails,
                lost,
            };
        }
        if passes < *MTU.start() {
            return Step::Done(Some(Verdict::Filtered));
        }
        Step::Confirm { passes, lost: 0 }
    }

    /// A size between the two: first what was said and what is usual, and whether one byte more passes, too.
    fn guess(&self, passes: u32, fails: u32) -> u32 {
        let likely = [self.hint, Some(ETHERNET)].into_iter().flatten();
        let mut likely = likely.flat_map(|size| [size, size.saturating_add(1)]);
        let between = likely.find(|size| passes < *size && *size < fails);
        between.unwrap_or(passes.saturating_add(fails.saturating_sub(passes) / 2))
    }
}
