//! Many writes of session objects, none of which waits for another.
//! In: what to write and delete. Out: done, each reported at once; refusals are remembered by object.
//! Invariant: what was refused costs its own object only, and is tried again after a growing time, or at once where something
//! else is wanted.
//! Not here: what to write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::frr_state::{BGPSessionState, BGPSessionStateStatus, LABEL_NODE, LABEL_PEER, LABEL_VRF};
use futures::StreamExt;
use kube_edge::{WriteError, Writer};
use model::{NodeName, ObjectKey};
use reconcile::{Action, Backoff};
use serde_json::json;
use telemetry::Chain;
use tokio::time::Instant;

use crate::report::MANAGED_BY;

/// Writes that are under way together.
const AT_ONCE: usize = 8;
/// After so many calls without an answer the rest is left to the next pass, which begins with it.
const UNANSWERED: usize = 8;
/// From a refusal to the next attempt: doubling from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What to do with an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// Write its status; `new`: it is to be made first.
    Write {
        status: BGPSessionStateStatus,
        new: bool,
    },
    /// Delete the object with this uid.
    Delete { uid: String },
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) key: ObjectKey,
    pub(super) what: What,
}

/// Where writes go.
pub(super) trait ObjectWriter {
    async fn send(&self, job: &Job) -> Result<(), WriteError>;
}

/// The objects on the API server.
pub(super) struct Objects {
    pub(super) writer: Writer,
    pub(super) node: NodeName,
}

impl ObjectWriter for Objects {
    async fn send(&self, job: &Job) -> Result<(), WriteError> {
        let (status, new) = match &job.what {
            What::Delete { uid } => {
                return self.writer.delete::<BGPSessionState>(&job.key, uid).await;
            }
            What::Write { status, new } => (status, *new),
        };
        if new {
            let labels = json!({
                LABEL_NODE: self.node.as_str(),
                LABEL_PEER: status.peer,
                LABEL_VRF: status.vrf,
                MANAGED_BY.0: MANAGED_BY.1,
            });
            let body = json!({"metadata": {"labels": labels}, "spec": {}});
            self.writer
                .apply::<BGPSessionState>(&job.key, None, body)
                .await?;
        }
        let json = serde_json::to_value(status).unwrap_or_default();
        self.writer
            .apply_status::<BGPSessionState>(&job.key, json)
            .await
    }
}

/// A refusal, and when the same is tried again.
#[derive(Debug)]
struct Refused {
    what: What,
    again: Instant,
    backoff: Backoff,
}

/// What was refused or not answered, by object.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<ObjectKey, Refused>);

impl Refusals {
    /// Does all jobs; they are all there are, so refusals of others are forgotten. Each that was done is passed to `done`.
    /// `Done` where nothing has to be tried before the next look: what was refused waits for its own time.
    pub(super) async fn write(
        &mut self,
        writer: &impl ObjectWriter,
        jobs: Vec<Job>,
        now: Instant,
        mut done: impl FnMut(Job),
    ) -> Action {
        let wanted: BTreeSet<&ObjectKey> = jobs.iter().map(|job| &job.key).collect();
        self.0.retain(|key, _| wanted.contains(key));
        let mut due: Vec<Job> = jobs
            .into_iter()
            .filter(|job| !self.waits(job, now))
            .collect();
        // What failed the last time comes last, so that it never holds up what may go well.
        due.sort_by_key(|job| self.0.contains_key(&job.key));
        let unanswered = AtomicUsize::new(0);
        let mut outcomes = futures::stream::iter(due)
            .map(|job| async {
                if unanswered.load(Ordering::Relaxed) >= UNANSWERED {
                    return (job, None);
                }
                let outcome = writer.send(&job).await;
                if outcome.as_ref().is_err_and(|e| !e.is_answer()) {
                    unanswered.fetch_add(1, Ordering::Relaxed);
                }
                (job, Some(outcome))
            })
            .buffer_unordered(AT_ONCE);
        let mut state = Action::Done;
        while let Some((job, outcome)) = outcomes.next().await {
            match outcome {
                Some(Ok(())) => {
                    self.0.remove(&job.key);
                    done(job);
                }
                Some(Err(error)) => self.refuse(job, &error, Instant::now()),
                None => state = Action::Requeue,
            }
        }
        state
    }

    fn waits(&self, job: &Job, now: Instant) -> bool {
        let refused = self.0.get(&job.key);
        refused.is_some_and(|r| r.what == job.what && now < r.again)
    }

    fn refuse(&mut self, job: Job, error: &WriteError, now: Instant) {
        let known = self.0.get(&job.key).filter(|r| r.what == job.what);
        if known.is_none() {
            tracing::warn!(key = %job.key, error = %Chain(error), "cannot write a BGPSessionState; it is tried again less and less often");
        }
        let mut backoff = known.map_or_else(
            || Backoff::new(AGAIN.0, AGAIN.1),
            |refused| refused.backoff.clone(),
        );
        let again = now + backoff.pause();
        let refused = Refused {
            what: job.what,
            again,
            backoff,
        };
        self.0.insert(job.key, refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Refuses these names, and takes all others.
    struct Fake {
        refused: Vec<String>,
        asked: Mutex<Vec<String>>,
    }

    impl ObjectWriter for Fake {
        async fn send(&self, job: &Job) -> Result<(), WriteError> {
            self.asked.lock().unwrap().push(job.key.name.clone());
            if self.refused.contains(&job.key.name) {
                return Err(WriteError::Deadline {
                    verb: "apply",
                    kind: "BGPSessionState".to_owned(),
                    key: job.key.clone(),
                });
            }
            Ok(())
        }
    }

    fn job(n: usize, state: &str) -> Job {
        let status = BGPSessionStateStatus {
            bgp_status: Some(state.to_owned()),
            ..BGPSessionStateStatus::default()
        };
        Job {
            key: ObjectKey::new("ns", format!("s{n:02}")),
            what: What::Write { status, new: true },
        }
    }

    fn pass(
        refusals: &mut Refusals,
        writer: &Fake,
        jobs: Vec<Job>,
        now: Instant,
    ) -> (Vec<String>, Action) {
        let mut done = Vec::new();
        let writes = refusals.write(writer, jobs, now, |job| done.push(job.key.name));
        let state = futures::executor::block_on(writes);
        done.sort();
        (done, state)
    }

    fn asked(writer: &Fake) -> Vec<String> {
        let mut all = std::mem::take(&mut *writer.asked.lock().unwrap());
        all.sort();
        all
    }

    #[test]
    fn a_refused_session_object_costs_itself_only() {
        let mut refusals = Refusals::default();
        let writer = Fake {
            refused: vec!["s00".to_owned()],
            asked: Mutex::default(),
        };
        let now = Instant::now();
        let jobs = (0..20).map(|n| job(n, "Idle")).collect();
        let (done, state) = pass(&mut refusals, &writer, jobs, now);
        let others: Vec<String> = (1..20).map(|n| format!("s{n:02}")).collect();
        assert_eq!((done, state), (others, Action::Done));
        assert_eq!(asked(&writer).len(), 20);
        // It is not tried again at once, unless something else is wanted of it.
        pass(&mut refusals, &writer, vec![job(0, "Idle")], now);
        assert_eq!(asked(&writer), [""; 0]);
        pass(&mut refusals, &writer, vec![job(0, "Established")], now);
        assert_eq!(asked(&writer), ["s00"]);
        // One that is no longer wanted is forgotten.
        pass(&mut refusals, &writer, Vec::new(), now);
        assert!(refusals.0.is_empty());
    }

    #[test]
    fn attempts_of_the_same_are_further_and_further_apart() {
        let mut refusals = Refusals::default();
        let error = WriteError::NotLeading {
            verb: "apply",
            kind: "BGPSessionState".to_owned(),
            key: ObjectKey::new("ns", "s00"),
        };
        let start = Instant::now();
        let mut attempts = Vec::new();
        for second in 0..120 {
            let now = start + Duration::from_secs(second);
            if !refusals.waits(&job(0, "Idle"), now) {
                attempts.push(second);
                refusals.refuse(job(0, "Idle"), &error, now);
            }
        }
        assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn where_nothing_is_answered_the_rest_is_left_and_comes_first_the_next_time() {
        let mut refusals = Refusals::default();
        let names: Vec<String> = (0..30).map(|n| format!("s{n:02}")).collect();
        let writer = Fake {
            refused: names.clone(),
            asked: Mutex::default(),
        };
        let jobs = || (0..30).map(|n| job(n, "Idle")).collect::<Vec<_>>();
        let now = Instant::now();
        let (done, state) = pass(&mut refusals, &writer, jobs(), now);
        assert_eq!((done, state), (Vec::new(), Action::Requeue));
        let first = asked(&writer);
        assert!(first.len() < 20, "{first:?}");
        pass(&mut refusals, &writer, jobs(), now);
        let second = asked(&writer);
        assert!(
            second.iter().all(|name| !first.contains(name)),
            "{second:?}"
        );
    }
}
