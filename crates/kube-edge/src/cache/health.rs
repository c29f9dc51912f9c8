//! Whether a watch works, and when one that does not is tried again.
//! In: its errors and that it said something. Out: pauses, a line in the log at either end, and whether it is failing.
//! Invariant: silence counts as working only when it is longer than any call.
//! Not here: what objects say.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use reconcile::Backoff;
use tokio::sync::watch as channel;
use tokio::time::Instant;

use super::telling;
use crate::installed::Unserved;

/// Whether a watch works, and what is logged of it.
pub(super) struct Health {
    what: String,
    failing: channel::Sender<bool>,
    /// It was logged that the watch is broken.
    broken: bool,
    pub(super) pauses: Pauses,
}

impl Health {
    pub(super) fn new(what: String, unserved: Unserved, failing: channel::Sender<bool>) -> Self {
        Self {
            what,
            failing,
            broken: false,
            pauses: Pauses::new(unserved),
        }
    }

    /// The next of a stream. A watch that failed and has nothing to tell works when it is silent for long.
    pub(super) async fn next<S: Stream + Unpin>(&mut self, stream: &mut S) -> Option<S::Item> {
        if *self.failing.borrow() {
            match tokio::time::timeout(SOUND_IN_SILENCE, stream.next()).await {
                Ok(event) => return event,
                Err(_) => self.is_sound(),
            }
        }
        stream.next().await
    }

    pub(super) fn fails(&mut self, error: &watcher::Error) {
        self.failing
            .send_if_modified(|now| !std::mem::replace(now, true));
        if refusal(error).is_none() && !std::mem::replace(&mut self.broken, true) {
            let (what, error) = (&self.what, telling(error));
            tracing::warn!(what, error, "watch is broken, trying again");
        }
    }

    pub(super) fn tells_refusal(&self, error: &watcher::Error) {
        let (what, code) = (&self.what, refusal(error));
        tracing::info!(what, code, "not served or not shown, asking again");
    }

    pub(super) fn works(&mut self) {
        self.pauses.works();
        self.is_sound();
    }

    fn is_sound(&mut self) {
        self.failing.send_if_modified(std::mem::take);
        if std::mem::take(&mut self.broken) {
            tracing::info!(what = self.what, "watch works again");
        }
    }
}

/// Pauses between attempts of a broken watch: 0.2 s doubling to 5 s, so that an API server that is back is noticed soon.
/// They begin again only after the watch has worked for a while; that a listing begins says nothing.
#[derive(Debug)]
pub(super) struct Pauses {
    backoff: Backoff,
    /// When the first thing of worth came after the last failure.
    worked: Option<Instant>,
    /// When the last pause was over.
    resumed: Instant,
    /// Of a kind that may not be listed or watched: it may stay so, and a quiet daemon is to ask for little.
    refusals: Backoff,
    unserved: Unserved,
}

pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest between attempts to list a kind that the server does not show.
pub(super) const LONGEST_REFUSED: Duration = Duration::from_secs(30);
/// A watch that has reported something works when so much time has passed without a failure.
pub(super) const SOUND: Duration = Duration::from_secs(10);
/// One without changes works when so much has passed: longer than any call of it.
pub(super) const SOUND_IN_SILENCE: Duration = Duration::from_secs(90);

impl Pauses {
    pub(super) fn new(unserved: Unserved) -> Self {
        Self {
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).with_jitter(),
            worked: None,
            resumed: Instant::now(),
            refusals: Backoff::new(LONGEST_PAUSE, LONGEST_REFUSED).with_jitter(),
            unserved,
        }
    }

    pub(super) fn works(&mut self) {
        self.worked.get_or_insert_with(Instant::now);
        self.unserved.is_over();
    }

    pub(super) async fn after(&mut self, error: &watcher::Error) {
        // A watch that began again and has nothing to tell brings no event that would say so.
        if self.resumed.elapsed() >= SOUND_IN_SILENCE {
            self.backoff.reset();
            self.refusals.reset();
            self.unserved.begins_anew();
        }
        if is_call_with(error, 404) {
            self.unserved.wait().await;
            self.resumed = Instant::now();
        } else if is_call_with(error, 403) {
            tokio::time::sleep(self.refusals.pause()).await;
            self.resumed = Instant::now();
        } else {
            self.after_a_failure().await;
        }
    }

    async fn after_a_failure(&mut self) {
        self.refusals.reset();
        if self.worked.take().is_some_and(|at| at.elapsed() >= SOUND) {
            self.backoff.reset();
        }
        tokio::time::sleep(self.backoff.pause()).await;
        self.resumed = Instant::now();
    }
}

/// The status with which a listing was refused; any other answer says nothing about the kind.
pub(super) fn refusal(error: &watcher::Error) -> Option<u16> {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else {
        return None;
    };
    matches!(status.code, 403 | 404).then_some(status.code)
}

/// Whether a listing or the begin of a watch was answered with this status.
fn is_call_with(error: &watcher::Error, code: u16) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == code)
}
