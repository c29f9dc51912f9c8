//! What is wrong with somebody's input: found by a planner, reported by a binary.
//! In: a subject and a reason. Out: text for conditions, events and logs. Invariant: `message` names object, field and value.
//! Not here: faults of the world (those are errors with a retry), and logging.

use std::fmt;

/// One thing that only a changed input can fix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What it is about, for example `Node/w1` or `FRRConfiguration/frr-k8s-system/ext`.
    pub subject: String,
    /// CamelCase reason, stable: conditions, events and metric labels use it.
    pub reason: &'static str,
    /// One sentence for a person, with the value and what is allowed.
    pub message: String,
}

impl Problem {
    /// A problem of a subject.
    #[must_use]
    pub fn new(
        subject: impl Into<String>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            reason,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}
