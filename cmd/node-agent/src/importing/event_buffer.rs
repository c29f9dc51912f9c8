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
pub struct EventBuffer(Mutex<PendingEvents>);

#[derive(Debug)]
pub(super) struct PendingEvents {
    pub(super) hints: Hints,
    pub(super) links: bool,
    pub(super) lost: bool,
    /// When the first of it was heard.
    pub(super) since: Option<Instant>,
}

impl Default for PendingEvents {
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

impl EventBuffer {
    fn with<T>(&self, f: impl FnOnce(&mut PendingEvents) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes notice of a change, of which `hints` are the ones that this import follows. Returns whether it has to look.
    pub fn note(&self, change: &Change, hints: Hints) -> bool {
        let matters = change.links || change.lost || hints != Hints::default();
        if matters {
            self.with(|pending| {
                pending.links |= change.links || change.lost;
                pending.lost |= change.lost;
                pending.hints.extend(hints);
                pending.since.get_or_insert_with(now);
            });
        }
        matters
    }

    /// Everything has to be read again, links included: a subscription is new, or was lost.
    pub fn note_everything(&self) {
        self.with(|pending| {
            pending.hints = Hints::Dump;
            pending.links = true;
        });
    }

    pub(super) fn take(&self) -> PendingEvents {
        self.with(|pending| {
            let nothing = PendingEvents {
                hints: Hints::default(),
                links: false,
                lost: false,
                since: None,
            };
            std::mem::replace(pending, nothing)
        })
    }
}
