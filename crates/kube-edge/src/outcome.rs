//! How writes end, for who counts them.
//! In: what was tried and what came of it. Out: one of a closed set of outcomes.
//! Invariant: every write that was sent has exactly one. Not here: counting.

use std::fmt;
use std::sync::Arc;

use crate::write::WriteError;

/// What came of a write that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Fields of an object were applied.
    Applied,
    /// The object is deleted, or was gone.
    Deleted,
    /// Finalizers or a label were taken away, or the object was gone.
    Released,
    /// A status was applied.
    Status,
    /// The object is another, or of another version, than the write was made from (HTTP 409).
    Conflict,
    /// The API server answered with another error.
    Refused,
    /// It did not answer.
    Unanswered,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Applied,
        Self::Deleted,
        Self::Released,
        Self::Status,
        Self::Conflict,
        Self::Refused,
        Self::Unanswered,
    ];

    /// The word for metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Deleted => "deleted",
            Self::Released => "released",
            Self::Status => "status",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        }
    }

    /// Of a write that ends as `good` where all is well; `None` where nothing was sent.
    pub(crate) fn of(good: Self, result: Result<(), &WriteError>) -> Option<Self> {
        match result {
            Ok(()) => Some(good),
            Err(error) if error.is_not_leading() => None,
            Err(error) if error.is_conflict() => Some(Self::Conflict),
            Err(error) if error.is_answer() => Some(Self::Refused),
            Err(_) => Some(Self::Unanswered),
        }
    }
}

/// Is told the kind of each object that a write was sent for, and what came of it.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Observe>);

type Observe = dyn Fn(&str, Outcome) + Send + Sync;

impl Observer {
    pub(crate) fn new(observe: impl Fn(&str, Outcome) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn tell(&self, kind: &str, outcome: Outcome) {
        (self.0)(kind, outcome);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ObjectKey;

    fn answer(code: u16) -> WriteError {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        WriteError::Api {
            verb: "apply",
            kind: "Node".to_owned(),
            key: ObjectKey::new("", "n1"),
            source: Box::new(kube::Error::Api(status.boxed())),
        }
    }

    #[test]
    fn an_outcome_is_the_servers_answer_and_nothing_where_nothing_was_sent() {
        let (kind, key) = ("Node".to_owned(), ObjectKey::new("", "n1"));
        let verb = "apply";
        let of = |error: &WriteError| Outcome::of(Outcome::Applied, Err(error));
        assert_eq!(
            Outcome::of(Outcome::Deleted, Ok(())),
            Some(Outcome::Deleted)
        );
        assert_eq!(of(&answer(409)), Some(Outcome::Conflict));
        assert_eq!(of(&answer(403)), Some(Outcome::Refused));
        assert_eq!(of(&answer(422)), Some(Outcome::Refused));
        let silent = WriteError::Deadline {
            verb,
            kind: kind.clone(),
            key: key.clone(),
        };
        assert_eq!(of(&silent), Some(Outcome::Unanswered));
        assert_eq!(of(&WriteError::NotLeading { verb, kind, key }), None);
    }
}
