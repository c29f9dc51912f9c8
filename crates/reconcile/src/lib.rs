//! The one level-triggered loop: requests in, passes out, for every daemon and every kind of key.
//! In: a [`WorkQueue`] that any source may call, and [`Reconciler`]s that know how to bring one key to where it should be.
//! Invariant: a key never passes twice at once; no request is lost; churn on one key cannot starve another or delay itself beyond its rest.
//! Not here: what is right (planners), how it is written (edges).
//!
//! ```text
//!  sources --enqueue(key)--> [set of keys] --due?--> reconcile(key) --Done--> quiet
//!                              ^                        |-------Requeue----> due again, delay doubles
//!    sweep timer, resync ------' (all keys)             '-----AwaitChange--> quiet until enqueued
//! ```

mod backoff;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use backoff::Backoff;
pub use pace::Pace;
use pace::Paced;

/// What came of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The target holds what is wanted.
    Done,
    /// The same, and nothing was there to do: no rest follows.
    NoChange,
    /// The world failed us; the key stays due with a growing delay.
    Requeue,
    /// Only a changed input can help; a request or a sweep brings the next pass.
    AwaitChange,
}

/// The things a loop looks after. The loop owns them: one writer per target, no locks.
pub trait Reconciler {
    /// Identity of what one reconcile is about: an object, a row set, a part of the host.
    type Key: Ord + Clone;

    /// Every key that is wanted or owned, or `None` where the world cannot be read yet (asked again soon).
    fn keys(&mut self) -> impl Future<Output = Option<Vec<Self::Key>>>;

    /// Brings what the key names to where it should be. Must be idempotent; it is never cancelled half way.
    fn reconcile(&mut self, key: &Self::Key) -> impl Future<Output = Action>;
}

/// The loop's times.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How soon a key passes again.
    pub pace: Pace,
    /// An enqueued key waits this long for further requests, each of which puts the pass off; zero: it does not wait.
    /// For targets where one more write costs far more than a short delay.
    pub gather: Duration,
    /// Requests put a pass off until this long after the first of them at most.
    pub gather_most: Duration,
    /// From one sweep of the list of keys to the next.
    pub sweep: Duration,
    /// Delay of the first retry; it doubles.
    pub retry_first: Duration,
    /// The longest delay of a retry.
    pub retry_most: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pace: Pace::Fixed(Duration::from_millis(100)),
            gather: Duration::ZERO,
            gather_most: Duration::ZERO,
            sweep: Duration::from_secs(300),
            retry_first: Duration::from_millis(200),
            retry_most: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
struct Dirty<K> {
    /// How often each was enqueued.
    keys: BTreeMap<K, u32>,
    /// How often everything was.
    everything: u32,
}

#[derive(Debug)]
struct Shared<K> {
    dirty: Mutex<Dirty<K>>,
    wake: Notify,
}

/// The handle that sources call. It carries no state, only which key to look at; memory is bounded by the number of keys.
#[derive(Debug)]
pub struct WorkQueue<K>(Arc<Shared<K>>);

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord> Default for WorkQueue<K> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            dirty: Mutex::new(Dirty {
                keys: BTreeMap::new(),
                everything: 0,
            }),
            wake: Notify::new(),
        }))
    }
}

impl<K: Ord> WorkQueue<K> {
    /// A new handle; clone it for each source.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Look at this key.
    pub fn enqueue(&self, key: K) {
        self.with(|dirty| {
            let requests = dirty.keys.entry(key).or_default();
            *requests = requests.saturating_add(1);
        });
        self.0.wake.notify_one();
    }

    /// Look at everything: after a lost subscription, an overflow, a reconnect.
    pub fn resync(&self) {
        self.with(|dirty| dirty.everything = dirty.everything.saturating_add(1));
        self.0.wake.notify_one();
    }

    fn take(&self) -> (BTreeMap<K, u32>, u32) {
        self.with(|dirty| {
            (
                std::mem::take(&mut dirty.keys),
                std::mem::take(&mut dirty.everything),
            )
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Dirty<K>) -> T) -> T {
        f(&mut self.0.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// When a key is due, and why.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// The first request since the last pass, and when the pass is due for it and those after it.
    enqueued: Option<(Instant, Instant)>,
    /// How often it was enqueued since the last pass.
    requests: u32,
    retry: Option<Instant>,
}

impl Due {
    fn at(&self) -> Option<Instant> {
        let enqueued = self.enqueued.map(|(_, at)| at);
        match (enqueued, self.retry) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

struct Agenda<K> {
    due: BTreeMap<K, Due>,
    delays: BTreeMap<K, Backoff>,
    paces: BTreeMap<K, Paced>,
    sweep_at: Instant,
    sweep_delay: Backoff,
}

impl<K: Ord + Clone> Agenda<K> {
    fn enqueued(&mut self, key: K, requests: u32, now: Instant, timing: &Timing) {
        let rested = self.paces.get(&key).map(Paced::rested);
        let due = self.due.entry(key).or_default();
        let first = due.enqueued.map_or(now, |(first, _)| first);
        let gathered = (now + timing.gather).min(first + timing.gather_most.max(timing.gather));
        let at = rested.map_or(gathered, |rested| gathered.max(rested));
        due.enqueued = Some((first, at));
        due.requests = due.requests.saturating_add(requests);
    }

    fn next(&self) -> Instant {
        let first = self.due.values().filter_map(Due::at).min();
        first.map_or(self.sweep_at, |at| at.min(self.sweep_at))
    }

    /// The key that has waited longest, so that a busy key cannot starve a quiet one.
    fn ready(&self, now: Instant) -> Option<K> {
        let due = self
            .due
            .iter()
            .filter_map(|(key, due)| Some((key, due.at()?)));
        due.filter(|(_, at)| *at <= now)
            .min_by_key(|(_, at)| *at)
            .map(|(key, _)| key.clone())
    }

    /// What came of a pass that began at `began`, after so many requests.
    fn evaluated(
        &mut self,
        key: K,
        action: Action,
        (began, requests): (Instant, u32),
        timing: &Timing,
    ) {
        let now = Instant::now();
        if action != Action::NoChange {
            let paced = self.paces.entry(key.clone());
            let paced = paced.or_insert_with(|| Paced::new(began));
            let failed = action == Action::Requeue;
            paced.passed(timing.pace, (began, now), requests, failed);
        }
        if action == Action::Requeue {
            let delays = self.delays.entry(key.clone());
            let delay = delays
                .or_insert_with(|| Backoff::new(timing.retry_first, timing.retry_most))
                .pause();
            self.due.entry(key).or_default().retry = Some(now + delay);
        } else {
            self.delays.remove(&key);
        }
    }
}

/// Runs until `stop` turns true (or its sender goes); a pass under way is finished first.
///
/// Starts with a sweep. A key that fails does not hold up its neighbours. A sweep that finds the world unreadable is
/// tried again after `retry_first`, then with a doubling delay.
pub async fn run<S: Reconciler>(
    mut reconciler: S,
    queue: WorkQueue<S::Key>,
    timing: Timing,
    mut stop: watch::Receiver<bool>,
) {
    let mut agenda = Agenda {
        due: BTreeMap::new(),
        delays: BTreeMap::new(),
        paces: BTreeMap::new(),
        sweep_at: Instant::now(),
        sweep_delay: Backoff::new(timing.retry_first, timing.retry_most),
    };
    loop {
        if *stop.borrow() {
            return;
        }
        let (keys, everything) = queue.take();
        let now = Instant::now();
        for (key, requests) in keys {
            agenda.enqueued(key, requests, now, &timing);
        }
        if everything > 0 || agenda.sweep_at <= now {
            sweep(&mut reconciler, &mut agenda, &timing, everything.max(1)).await;
        }
        let now = Instant::now();
        let ready = agenda.ready(now);
        if let Some(key) = ready {
            let requests = agenda.due.remove(&key).map_or(0, |due| due.requests);
            let action = reconciler.reconcile(&key).await;
            agenda.evaluated(key, action, (now, requests), &timing);
            continue;
        }
        tokio::select! {
            () = queue.0.wake.notified() => {}
            () = tokio::time::sleep_until(agenda.next()) => {}
            changed = stop.changed() => if changed.is_err() { return; },
        }
    }
}

async fn sweep<S: Reconciler>(
    reconciler: &mut S,
    agenda: &mut Agenda<S::Key>,
    timing: &Timing,
    requests: u32,
) {
    let keys = reconciler.keys().await;
    let now = Instant::now();
    let Some(keys) = keys else {
        agenda.sweep_at = now + agenda.sweep_delay.pause();
        return;
    };
    agenda.sweep_at = now + timing.sweep;
    agenda.sweep_delay.reset();
    let known: BTreeSet<S::Key> = keys.into_iter().collect();
    agenda.paces.retain(|key, _| known.contains(key));
    agenda.delays.retain(|key, _| known.contains(key));
    for key in known {
        agenda.enqueued(key, requests, now, timing);
    }
}

#[cfg(test)]
mod tests;
