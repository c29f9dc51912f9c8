//! Which keys of a loop have failed for so long that the process is not ready.
//! In: the outcome of each pass. Out: one condition of `/readyz`. Invariant: ready needs every wanted key to have come to its end
//! once. Not here: retries (`reconcile`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use telemetry::Readiness;
use tokio::time::Instant;

/// For so long nothing may come to its end before the process says that it is not ready.
pub(crate) const UNREADY: Duration = Duration::from_secs(5);

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The target holds what is wanted.
    Well,
    /// It failed, and is tried again.
    Failed,
    /// Only somebody else can help.
    Blocked,
}

/// What is known of a loop's keys.
#[derive(Debug)]
pub(crate) struct Failing<K> {
    condition: &'static str,
    readiness: Readiness,
    well: BTreeSet<K>,
    since: BTreeMap<K, Instant>,
    blocked: BTreeSet<K>,
}

impl<K: Ord + Clone> Failing<K> {
    pub(crate) fn new(condition: &'static str, readiness: Readiness) -> Self {
        Self {
            condition,
            readiness,
            well: BTreeSet::new(),
            since: BTreeMap::new(),
            blocked: BTreeSet::new(),
        }
    }

    /// Keys that only somebody else can help.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Forgets keys that are neither wanted nor owned.
    pub(crate) fn retain(&mut self, all: &BTreeSet<K>) {
        self.blocked.retain(|key| all.contains(key));
    }

    /// Takes notice of a pass; `wanted` are the keys that must be well.
    pub(crate) fn note(&mut self, key: &K, outcome: Outcome, wanted: &BTreeSet<K>) {
        self.blocked.remove(key);
        match outcome {
            Outcome::Well => {
                self.since.remove(key);
                self.well.insert(key.clone());
            }
            Outcome::Failed => {
                self.since.entry(key.clone()).or_insert_with(Instant::now);
            }
            Outcome::Blocked => {
                self.blocked.insert(key.clone());
            }
        }
        self.well.retain(|key| wanted.contains(key));
        self.since.retain(|key, _| wanted.contains(key));
        let failed = self.since.values().any(|since| since.elapsed() >= UNREADY);
        let blocked = self.blocked.iter().any(|key| wanted.contains(key));
        if failed || blocked {
            self.readiness.set(self.condition, false);
        } else if self.since.is_empty() && wanted.is_subset(&self.well) && !wanted.is_empty() {
            self.readiness.set(self.condition, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_keys_are_well_or_the_condition_is_not() {
        let readiness = Readiness::default();
        readiness.set("topology", false);
        let ready = || readiness.missing().is_empty();
        let mut failing = Failing::new("topology", readiness.clone());
        let wanted = BTreeSet::from(["a", "b"]);
        failing.note(&"a", Outcome::Well, &wanted);
        assert!(!ready(), "b was never well");
        failing.note(&"b", Outcome::Well, &wanted);
        assert!(ready());
        failing.note(&"b", Outcome::Failed, &wanted);
        assert!(ready(), "it has just begun to fail");
        tokio::time::advance(UNREADY).await;
        failing.note(&"a", Outcome::Well, &wanted);
        assert!(!ready(), "b fails still");
        // It is not wanted any more.
        failing.note(&"a", Outcome::Well, &BTreeSet::from(["a"]));
        assert!(ready());
        failing.note(&"a", Outcome::Blocked, &BTreeSet::from(["a"]));
        assert!(!ready());
        assert_eq!(failing.blocked(), 1);
        failing.note(&"a", Outcome::Well, &BTreeSet::from(["a"]));
        assert!(ready());
    }
}
