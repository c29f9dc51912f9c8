//! Many writes of one subject, none of which waits for another, and what the API server said to each.
//! In: what to apply and delete. Out: how it went; refusals are remembered by subject and object.
//! Invariant: what was refused is tried again after a growing time, or at once where something else is wanted; nothing else waits for it.
//! Not here: what to write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use kube_edge::{Only, WriteError, Writer};
use model::{NodeName, ObjectKey};
use plan_cluster::refused::Refusal;
use reconcile::{Action, Backoff};
use serde_json::Value;
use tokio::time::Instant;

use super::ClusterReconciler;
use crate::key::Key;

/// So many writes are under way at once.
const AT_ONCE: usize = 8;
/// After so many calls without an answer the rest of a pass is left to the next one, which begins with it.
const UNANSWERED: usize = 8;
/// From a refusal to the next attempt: doubling from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// What to do with an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// Apply these fields; to this uid and resource version only, where they are given.
    Apply {
        uid: Option<String>,
        version: Option<String>,
        body: Value,
    },
    /// Delete the object with this uid.
    Delete { uid: String },
    /// Leave this version of the object these finalizers, whoever put the one there that goes.
    Release {
        uid: String,
        version: String,
        finalizers: Vec<String>,
    },
    /// Take this label off this version of the object, whoever put it there.
    Unlabel {
        uid: String,
        version: String,
        label: &'static str,
    },
}

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) key: ObjectKey,
    /// Whose object it is, for the words.
    pub(super) node: Option<NodeName>,
    pub(super) what: What,
}

impl What {
    fn verb(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
            Self::Release { .. } => "release",
            Self::Unlabel { .. } => "unlabel",
        }
    }

    /// Whether the same is wanted; of whichever version.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Apply { body: a, .. }, Self::Apply { body: b, .. }) => a == b,
            (Self::Delete { uid: a }, Self::Delete { uid: b })
            | (Self::Release { uid: a, .. }, Self::Release { uid: b, .. })
            | (Self::Unlabel { uid: a, .. }, Self::Unlabel { uid: b, .. }) => a == b,
            _ => false,
        }
    }

    /// Whether another version of the object is a conflict.
    fn is_versioned(&self) -> bool {
        match self {
            Self::Apply { version, .. } => version.is_some(),
            Self::Delete { .. } => false,
            Self::Release { .. } | Self::Unlabel { .. } => true,
        }
    }
}

/// A refusal, and when the same is tried again.
#[derive(Debug)]
struct Refused {
    refusal: Refusal,
    /// HTTP status; `None`: no answer.
    code: Option<u16>,
    what: What,
    again: Instant,
    backoff: Backoff,
}

/// All refusals, by subject and object.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<Key, BTreeMap<(String, ObjectKey), Refused>>);

impl Refusals {
    /// Those of one subject.
    pub(super) fn of(&self, subject: &Key) -> BTreeSet<Refusal> {
        let all = self.0.get(subject).into_iter().flat_map(BTreeMap::values);
        all.map(|r| r.refusal.clone()).collect()
    }

    /// How many objects there are.
    pub(super) fn count(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Forgets what is no longer wanted of one kind: all but these objects.
    pub(super) fn retain(&mut self, subject: &Key, kind: &str, wanted: &BTreeSet<ObjectKey>) {
        if let Some(map) = self.0.get_mut(subject) {
            map.retain(|(k, key), _| k != kind || wanted.contains(key));
        }
        self.0.retain(|_, map| !map.is_empty());
    }

    /// Forgets everything: another replica leads.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the same was refused, and its time has not come.
    pub(super) fn waits(&self, subject: &Key, target: &(String, ObjectKey), what: &What) -> bool {
        let refused = self.0.get(subject).and_then(|map| map.get(target));
        refused.is_some_and(|r| r.what.same(what) && Instant::now() < r.again)
    }

    fn failed(&self, subject: &Key, target: &(String, ObjectKey)) -> bool {
        self.0
            .get(subject)
            .is_some_and(|map| map.contains_key(target))
    }

    fn written(&mut self, subject: &Key, target: &(String, ObjectKey)) {
        if let Some(map) = self.0.get_mut(subject) {
            map.remove(target);
        }
    }

    /// The words of the first refusal are kept while the same is tried and refused with the same code: some, like those of a
    /// webhook that cannot be reached, are others at each attempt, and would be reported again each time.
    fn refuse(
        &mut self,
        subject: &Key,
        target: (String, ObjectKey),
        job: Job,
        code: Option<u16>,
        words: String,
    ) {
        let object = if target.1.namespace.is_empty() {
            format!("{} {}", target.0, target.1.name)
        } else {
            format!("{} {}", target.0, target.1)
        };
        let map = self.0.entry(subject.clone()).or_default();
        let known = map.get(&target).filter(|r| r.what.same(&job.what));
        let first = known.filter(|r| r.code == code);
        let refusal = Refusal {
            object,
            node: job.node,
            verb: job.what.verb(),
            words: first.map_or(words, |r| r.refusal.words.clone()),
        };
        if known.is_none_or(|r| r.refusal != refusal) {
            tracing::warn!(object = refusal.object, node = ?refusal.node, said = refusal.words, "cannot {}", refusal.verb);
        }
        let mut backoff =
            known.map_or_else(|| Backoff::new(AGAIN.0, AGAIN.1), |r| r.backoff.clone());
        let again = Instant::now() + backoff.pause();
        let refused = Refused {
            refusal,
            code,
            what: job.what,
            again,
            backoff,
        };
        map.insert(target, refused);
    }
}

/// How the writes of one kind went.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Objects whose writes were made.
    pub(super) written: BTreeSet<ObjectKey>,
    /// Writes that have to be tried again: refused now or a moment ago, or not tried.
    pub(super) bad: usize,
    /// Those of `bad` that are applies.
    pub(super) unapplied: usize,
}

impl Done {
    /// `Done` where nothing has to be tried again.
    pub(super) fn action(&self) -> Action {
        if self.bad == 0 {
            Action::Done
        } else {
            Action::Requeue
        }
    }

    fn missed(&mut self, what: &What) {
        self.bad += 1;
        self.unapplied += usize::from(matches!(what, What::Apply { .. }));
    }

    /// Whether none of so many wanted objects stands. Where some stand, all is done that this replica can do.
    pub(super) fn is_nothing_of(&self, wanted: usize) -> bool {
        wanted > 0 && self.unapplied >= wanted
    }

    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.written.extend(other.written);
        self.bad += other.bad;
        self.unapplied += other.unapplied;
        self
    }
}

impl ClusterReconciler {
    /// Does all jobs of a subject for one kind; they are all there are, so refusals of others are forgotten.
    pub(super) async fn write_all<K>(&mut self, subject: &Key, jobs: Vec<Job>) -> Done
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let kind = K::kind(&()).into_owned();
        let wanted = jobs.iter().map(|job| job.key.clone()).collect();
        self.refusals.retain(subject, &kind, &wanted);
        self.write_more::<K>(subject, jobs).await
    }

    /// Does some of the jobs of a subject for a kind; refusals stay remembered until [`Refusals::retain`] forgets them.
    pub(super) async fn write_more<K>(&mut self, subject: &Key, jobs: Vec<Job>) -> Done
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let kind = K::kind(&()).into_owned();
        let mut done = Done::default();
        let due = self.due(subject, &kind, jobs, &mut done);
        for (job, outcome) in self.attempt::<K>(due).await {
            self.evaluate(subject, &kind, job, outcome, &mut done);
        }
        done
    }

    /// The jobs whose time has come; what failed the last time comes last, so that it never holds up what may go well.
    fn due(&self, subject: &Key, kind: &str, jobs: Vec<Job>, done: &mut Done) -> Vec<Job> {
        let target = |job: &Job| (kind.to_owned(), job.key.clone());
        let (waiting, mut due): (Vec<Job>, Vec<Job>) = jobs
            .into_iter()
            .partition(|job| self.refusals.waits(subject, &target(job), &job.what));
        waiting.iter().for_each(|job| done.missed(&job.what));
        due.sort_by_key(|job| self.refusals.failed(subject, &target(job)));
        due
    }

    /// Does the jobs, a few at once; `None` for those that are left to the next pass.
    async fn attempt<K>(&self, due: Vec<Job>) -> Vec<(Job, Option<Result<(), WriteError>>)>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let unanswered = AtomicUsize::new(0);
        let writer = &self.clients.writer;
        futures::stream::iter(due)
            .map(|job| async {
                if unanswered.load(Ordering::Relaxed) >= UNANSWERED {
                    return (job, None);
                }
                let outcome = write::<K>(writer, &job).await;
                if outcome.as_ref().is_err_and(|e| !e.is_answer()) {
                    unanswered.fetch_add(1, Ordering::Relaxed);
                }
                (job, Some(outcome))
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    /// Counts a job, and remembers what the API server said against it.
    fn evaluate(
        &mut self,
        subject: &Key,
        kind: &str,
        job: Job,
        outcome: Option<Result<(), WriteError>>,
        done: &mut Done,
    ) {
        match outcome {
            Some(Ok(())) => {
                let target = (kind.to_owned(), job.key);
                self.refusals.written(subject, &target);
                done.written.insert(target.1);
            }
            Some(Err(error)) if error.is_not_leading() => done.missed(&job.what),
            Some(Err(error)) => {
                done.missed(&job.what);
                if job.what.is_versioned() && error.is_conflict() {
                    tracing::info!(key = %job.key, "it changed meanwhile: reading it again");
                } else {
                    let target = (kind.to_owned(), job.key.clone());
                    let (code, words) = (error.code(), error.words());
                    self.refusals.refuse(subject, target, job, code, words);
                }
            }
            None => done.missed(&job.what),
        }
    }
}

/// Does one job.
async fn write<K>(writer: &Writer, job: &Job) -> Result<(), WriteError>
where
    K: kube::Resource<DynamicType = ()>,
{
    tracing::info!(kind = %K::kind(&()), key = %job.key, "{}", job.what.verb());
    match &job.what {
        What::Apply { uid, version, body } => {
            let only = Only {
                uid: uid.as_deref(),
                version: version.as_deref(),
            };
            let applied = writer.apply_only::<K>(&job.key, only, body.clone());
            applied.await
        }
        What::Delete { uid } => writer.delete::<K>(&job.key, uid).await,
        What::Release {
            uid,
            version,
            finalizers,
        } => {
            let only = Only {
                uid: Some(uid),
                version: Some(version),
            };
            let released = writer.set_finalizers::<K>(&job.key, only, finalizers);
            released.await
        }
        What::Unlabel {
            uid,
            version,
            label,
        } => {
            let only = Only {
                uid: Some(uid),
                version: Some(version),
            };
            writer.remove_label::<K>(&job.key, only, label).await
        }
    }
}

#[cfg(test)]
mod tests;
