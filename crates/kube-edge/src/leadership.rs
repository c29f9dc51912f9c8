//! Until when we lead, asked by the clock at each write.
//! In: when renewals of the lease were sent. Out: yes or no, at the moment of asking.
//! Invariant: nobody has to be awake for leadership to end; once closed, nothing may be written any more; who leads again after
//! an end, however short, leads in another term.
//! Not here: the lease itself (`lease`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::lease::RENEW_DEADLINE;

/// One time of leading, counted from 1 since the start of this process.
pub type Term = u64;

#[derive(Debug, Clone, Copy, Default)]
struct State {
    until: Option<Instant>,
    /// The last term that began.
    term: Term,
}

impl State {
    fn leads(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn term(&self) -> Option<Term> {
        self.leads().then_some(self.term)
    }
}

/// Whether this process leads; cheap to clone. At first it does not.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: Arc<watch::Sender<State>>,
    closed: Arc<AtomicBool>,
}

impl Default for Leadership {
    fn default() -> Self {
        Self {
            state: Arc::new(watch::channel(State::default()).0),
            closed: Arc::default(),
        }
    }
}

impl Leadership {
    /// Nobody's yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True while the last renewal was sent less than [`RENEW_DEADLINE`] ago.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.state.borrow().leads()
    }

    /// The term in which we lead; `None` while we do not.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.state.borrow().term()
    }

    /// True while we lead and are not about to end: to be asked right before each write.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && self.leads()
    }

    /// From now on nothing may be written, for good. The lease can be given back once the writes under way are done.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Waits until [`Self::term`] is no longer `from`, and gives what it is then. An end that was over before anybody looked
    /// is seen by its new term.
    pub async fn changed(&self, from: Option<Term>) -> Option<Term> {
        let mut news = self.state.subscribe();
        loop {
            let state = *news.borrow_and_update();
            let term = state.term();
            if term != from {
                return term;
            }
            let end = async {
                match state.until.filter(|_| term.is_some()) {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = news.changed() => {}
                () = end => {}
            }
        }
    }

    /// The lease was renewed by a call that was sent at `sent`. A term begins where we did not lead until now.
    pub fn renewed(&self, sent: Instant) {
        self.state.send_modify(|state| {
            if !state.leads() {
                state.term += 1;
            }
            state.until = Some(sent + RENEW_DEADLINE);
        });
    }

    /// Somebody else holds the lease, or nobody.
    pub fn lost(&self) {
        self.state.send_modify(|state| state.until = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_loss_that_nobody_saw_is_reported_by_the_new_term() {
        let leadership = Leadership::new();
        assert_eq!(leadership.term(), None);
        leadership.renewed(Instant::now());
        let first = leadership.changed(None).await;
        assert_eq!(first, Some(1));
        // Renewed in time it is the same term.
        tokio::time::advance(RENEW_DEADLINE / 2).await;
        leadership.renewed(Instant::now());
        assert_eq!(leadership.term(), first);
        // Lost to somebody, or by the clock, and won back before the follower woke.
        leadership.lost();
        leadership.renewed(Instant::now());
        let second = leadership.changed(first).await;
        assert_eq!(second, Some(2));
        tokio::time::advance(RENEW_DEADLINE).await;
        leadership.renewed(Instant::now());
        let third = leadership.changed(second).await;
        assert_eq!(third, Some(3));
        // An end that lasts is seen when it begins.
        let begun = Instant::now();
        assert_eq!(leadership.changed(third).await, None);
        assert_eq!(begun.elapsed().as_secs(), RENEW_DEADLINE.as_secs());
        // A renewal that was answered too late does not lead, and the next one does.
        leadership.renewed(begun);
        assert_eq!(leadership.term(), None);
        let waits = tokio::time::timeout(Duration::from_secs(60), leadership.changed(None));
        assert!(waits.await.is_err());
        leadership.renewed(Instant::now());
        assert!(leadership.changed(None).await > third);
    }
}
