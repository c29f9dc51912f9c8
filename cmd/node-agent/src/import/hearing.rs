//! What was heard of the kernel and not yet looked at.
//! In: changes, as the subscription tells them. Out: all of them at once, to the next pass.
//! Invariant: before the first event, and after a loss, everything has to be read. Not here: reading it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use model::route::Hints;
use netlink::Change;

use super::now;

/// What was heard of the kernel since the last pass; filled by whoever follows its events.
#[derive(Debug, Default)]
pub struct Hearing(Mutex<Heard>);

#[derive(Debug)]
pub(super) struct Heard {
    pub(super) hints: Hints,
    pub(super) links: bool,
    pub(super) lost: bool,
    /// When the first of it was heard.
    pub(super) since: Option<Instant>,
}

impl Default for Heard {
    /// Before the first event everything has to be read.
    fn default() -> Self {
        Self {
            hints: Hints::Dump,
            links: true,
            lost: false,
            since: None,
        }
    }
}

impl Hearing {
    fn with<T>(&self, f: impl FnOnce(&mut Heard) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes notice of a change. Returns whether an import has to look at it.
    pub fn note(&self, change: Change) -> bool {
        let matters = change.links || change.lost || change.hints != Hints::default();
        if matters {
            self.with(|heard| {
                heard.links |= change.links || change.lost;
                heard.lost |= change.lost;
                heard.hints.extend(change.hints);
                heard.since.get_or_insert_with(now);
            });
        }
        matters
    }

    /// Everything has to be read anew, links included: a subscription is new, or was lost.
    pub fn note_everything(&self) {
        self.with(|heard| {
            heard.hints = Hints::Dump;
            heard.links = true;
        });
    }

    pub(super) fn take(&self) -> Heard {
        self.with(|heard| {
            let nothing = Heard {
                hints: Hints::default(),
                links: false,
                lost: false,
                since: None,
            };
            std::mem::replace(heard, nothing)
        })
    }
}
