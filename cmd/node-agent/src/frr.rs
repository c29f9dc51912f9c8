//! FRR as the node-agent sees it: are its daemons there, are they new, do they work together, which sessions are up.
//! In: FRR's vty sockets, what the import wants to know. Out: [`FrrStatus`]s with the moment each began, and a call when there is
//! a new one.
//! Invariant: FRR is only asked; a daemon that cannot be reached counts as gone, one that is slow does not; who imports
//! waits for no answer; one question at a time is on its way.
//! Not here: what follows (`import::retention`).

mod probe;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frr_edge::Frr;
use import::retention::{FrrStatus, Running, Sessions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Between two probes while something is retained, and between two checks of the sockets: new daemons must be noticed before
/// their sessions are up.
pub(crate) const PACE: Duration = Duration::from_millis(500);

/// Between two questions for sessions while something is retained: the answer is a third of a kilobyte for each peer.
const SESSIONS: Duration = Duration::from_secs(1);
/// They take a twentieth of bgpd's time at most.
const SESSIONS_SHARE: u32 = 20;
/// Between two questions for sessions while all is well: which of them were up before a restart is asked for later.
const SESSIONS_CALM: Duration = Duration::from_secs(15);

/// What the import wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Want {
    /// A probe that begins at this moment or later.
    pub(crate) at: Option<Instant>,
    /// That probe has to ask for sessions.
    pub(crate) sessions: bool,
    /// Looks again and again: something is retained.
    pub(crate) steady: bool,
}

/// A probe, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) began: Instant,
    pub(crate) status: FrrStatus,
}

/// What several imports want to know of one FRR, by the number of each.
type Wants = BTreeMap<u64, Want>;

/// An import's way to ask for FRR. One task probes for all of them, until the last is dropped.
#[derive(Debug)]
pub struct FrrProbe {
    number: u64,
    want: watch::Sender<Wants>,
    seen: watch::Receiver<Option<Seen>>,
    task: Arc<Task>,
}

/// The task that probes, and how many probes there were.
#[derive(Debug)]
struct Task {
    handle: JoinHandle<()>,
    probes: AtomicU64,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl FrrProbe {
    /// Begins to probe; has to be called in a runtime. `changed` is called after each probe that tells something new or was
    /// wanted.
    #[must_use]
    pub fn start(frr: Frr, changed: impl Fn() + Send + Sync + 'static) -> Self {
        let (want, wanted) = watch::channel(Wants::new());
        let (tell, seen) = watch::channel(None);
        let prober = Prober {
            frr,
            wanted,
            tell,
            began: None,
            sessions_at: Instant::now(),
            asked: None,
        };
        let task = Task {
            handle: tokio::spawn(prober.run(changed)),
            probes: AtomicU64::new(1),
        };
        Self {
            number: 0,
            want,
            seen,
            task: Arc::new(task),
        }
    }

    /// Another import's probe of the same FRR.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            number: self.task.probes.fetch_add(1, Ordering::Relaxed),
            want: self.want.clone(),
            seen: self.seen.clone(),
            task: Arc::clone(&self.task),
        }
    }

    /// Says what has to be known; replaces what was said before.
    pub(crate) fn want(&self, want: Want) {
        self.want
            .send_if_modified(|wants| wants.insert(self.number, want) != Some(want));
    }

    /// The last probe, if it has not been taken yet.
    pub(crate) fn take(&mut self) -> Option<Seen> {
        if self.seen.has_changed().unwrap_or(false) {
            self.seen.borrow_and_update().clone()
        } else {
            None
        }
    }
}

impl Drop for FrrProbe {
    fn drop(&mut self) {
        self.want
            .send_if_modified(|wants| wants.remove(&self.number).is_some());
    }
}

struct Prober {
    frr: Frr,
    wanted: watch::Receiver<Wants>,
    tell: watch::Sender<Option<Seen>>,
    /// When the last probe began.
    began: Option<Instant>,
    /// When sessions may be asked for again.
    sessions_at: Instant,
    /// When they were asked for last.
    asked: Option<Instant>,
}

impl Prober {
    async fn run(mut self, changed: impl Fn() + Sync) {
        loop {
            let wants = self.wanted.borrow_and_update().clone();
            let due = self.due(&wants);
            let now = Instant::now();
            if due > now {
                // A check of the sockets costs nothing, so it is taken where no probe is due.
                let check_at = (now + PACE).min(due);
                tokio::select! {
                    changed = self.wanted.changed() => if changed.is_err() { return; },
                    () = tokio::time::sleep_until(check_at) => {}
                }
                if !self.is_other() {
                    continue;
                }
            }
            self.probe(&wants, &changed).await;
        }
    }

    /// When to probe next.
    fn due(&self, wants: &Wants) -> Instant {
        let Some(began) = self.began else {
            return Instant::now();
        };
        let calm = self.asked.unwrap_or(began) + SESSIONS_CALM;
        let wanted = wants.values().flat_map(|want| {
            let asked = want.at.filter(|at| *at > began);
            let steady = want.steady.then(|| began + PACE);
            [asked, steady].into_iter().flatten()
        });
        wanted.fold(calm, Instant::min)
    }

    /// Whether the daemons are others than those of the last probe.
    fn is_other(&self) -> bool {
        match &*self.tell.borrow() {
            Some(Seen {
                status: FrrStatus::Up(Running { instance, .. }),
                ..
            }) => *instance != self.frr.instance(),
            Some(Seen {
                status: FrrStatus::Absent,
                ..
            }) => !self.frr.instance().is_empty(),
            // Sockets of the dead stay behind; and what may not be asked may be asked one day.
            Some(_) | None => true,
        }
    }

    async fn probe(&mut self, wants: &Wants, changed: &(impl Fn() + Sync)) {
        let began = Instant::now();
        let is_due = |want: &&Want| want.at.is_some_and(|at| at <= began);
        let wanted = wants.values().any(|want| is_due(&want));
        let asks = wants.values().filter(is_due).any(|want| want.sessions);
        let steady = wants.values().any(|want| want.steady);
        let calm = self.asked.is_none_or(|at| began >= at + SESSIONS_CALM);
        let sessions = asks || calm || self.is_other() || (steady && began >= self.sessions_at);
        let seen = Seen {
            began,
            status: probe::probe(&self.frr, sessions).await,
        };
        if sessions {
            let cost = began.elapsed();
            self.asked = Some(began);
            self.sessions_at = Instant::now() + SESSIONS.max(cost * SESSIONS_SHARE);
        }
        self.began = Some(began);
        let mut news = wanted || steady;
        self.tell.send_modify(|last| {
            news |= last
                .as_ref()
                .is_none_or(|last| says_more(&last.status, &seen.status));
            *last = Some(seen);
        });
        if news {
            changed();
        }
    }
}

/// Whether a probe tells what the one before it did not, times aside.
fn says_more(before: &FrrStatus, now: &FrrStatus) -> bool {
    match (before, now) {
        (FrrStatus::Up(before), FrrStatus::Up(now)) => {
            before.instance != now.instance || before.linked != now.linked || {
                let silent = |seen: &Running| seen.sessions == Sessions::Silent;
                silent(before) != silent(now)
            }
        }
        (before, now) => before != now,
    }
}

#[cfg(test)]
mod tests;
