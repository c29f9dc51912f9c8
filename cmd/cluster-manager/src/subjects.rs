//! The cluster-manager's subjects: read the world, plan, diff, write, judge.
//! In: keys from the loop. Out: objects on the API server. Invariant: one pass per key at a time; each pass may be repeated at any time.
//! Not here: decisions; every `if` here is about what stands there already.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::{Leadership, Writer, events};
use model::intent::Event;
use model::{NodeName, ObjectKey, Problem};
use plan_cluster::advertise::Planner;
use plan_cluster::verdicts::DefaultNetwork;
use plan_cluster::{fabric, generated};
use reconcile::{Poker, Subjects, Verdict};
use settings::Settings;
use telemetry::Readiness;

use crate::caches::Caches;
use crate::key::Key;
use crate::metrics::Metrics;

mod advertisement;
mod attachment;
#[path = "subjects/fabric.rs"]
mod fabric_objects;
mod frr;
mod leftovers;
mod networks;
mod sessions;
mod writes;

/// What the passes write to and report by.
pub(crate) struct Doors {
    pub(crate) client: kube::Client,
    pub(crate) writer: Writer,
    pub(crate) events: events::Queue,
    pub(crate) leadership: Leadership,
    pub(crate) poker: Poker<Key>,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
}

/// The loop's subjects.
pub(crate) struct ClusterSubjects {
    caches: Caches,
    settings: Settings,
    doors: Doors,
    verdict: Option<DefaultNetwork>,
    swept: Option<BTreeSet<NodeName>>,
    told: BTreeMap<&'static str, Vec<Problem>>,
    watched: sessions::Watched,
    planner: Planner,
    refusals: writes::Refusals,
    /// RouteAdvertisements whose last pass came to nothing.
    failing: BTreeSet<String>,
    /// By RouteAdvertisements: the objects whose refusal its status names, so that events tell each once.
    refused_before: BTreeMap<String, BTreeSet<String>>,
}

impl ClusterSubjects {
    pub(crate) fn new(caches: Caches, settings: Settings, doors: Doors) -> Self {
        Self {
            caches,
            settings,
            doors,
            verdict: None,
            swept: None,
            told: BTreeMap::new(),
            watched: sessions::Watched::new(),
            planner: Planner::default(),
            refusals: writes::Refusals::default(),
            failing: BTreeSet::new(),
            refused_before: BTreeMap::new(),
        }
    }

    /// Another replica leads: it is the one who tells and remembers.
    fn follows(&mut self) {
        self.refusals.clear();
        self.failing.clear();
        self.refused_before.clear();
        self.doors.metrics.follows();
        self.doors.readiness.set("first pass", true);
        self.doors.readiness.set("route advertisements", true);
    }

    /// Events on nodes, when what is to be told of a subject changed. The first time after a start those are left out
    /// that a standing condition names: the leader before us told them.
    pub(super) fn tell_nodes(&mut self, subject: &'static str, problems: Vec<Problem>) {
        let before = self.told.get(subject);
        if before == Some(&problems) {
            return;
        }
        let first = before.is_none();
        for problem in &problems {
            tracing::warn!(reason = problem.reason, "{problem}");
            let Some(name) = problem.subject.strip_prefix("Node/") else {
                continue;
            };
            if before.is_some_and(|list| list.contains(problem))
                || (first && self.stands_told(name))
            {
                continue;
            }
            let key = ObjectKey::new("", name);
            let uid = self
                .caches
                .nodes
                .get(&key)
                .map(|e| e.uid)
                .unwrap_or_default();
            let event = Event {
                warning: true,
                reason: problem.reason,
                message: problem.message.clone(),
            };
            self.doors.events.publish::<KubeNode>(&key, &uid, &event);
        }
        self.told.insert(subject, problems);
    }

    fn stands_told(&self, node: &str) -> bool {
        let words = format!("node {node}: ");
        self.caches.advertisements.with(|map| {
            let mut conditions = map.values().flat_map(|e| e.value.conditions.iter());
            conditions.any(|c| c.message.contains(&words))
        })
    }
}

/// Plans of large clusters take a while: meanwhile other threads go on with what waits here, above all renewals of the lease.
fn planned<T>(plan: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(plan)
}

impl Subjects for ClusterSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        let waiting = self.caches.waiting();
        self.doors.readiness.set("caches", waiting.is_empty());
        if !waiting.is_empty() {
            tracing::debug!(?waiting, "caches are not filled yet");
            return None;
        }
        let world = self.caches.world(&self.settings);
        let mut keys = vec![Key::Networks, Key::Fabric, Key::Sessions];
        let left_behind = generated::left_behind(&world);
        keys.extend(
            world
                .ras
                .keys()
                .cloned()
                .chain(left_behind)
                .map(Key::Advertisement),
        );
        keys.extend([Key::Attachment, Key::Leftovers]);
        Some(keys)
    }

    /// Never cancelled: the loop finishes it before it stops.
    async fn pass(&mut self, key: &Key) -> Verdict {
        // A pass before the caches are complete would take for deleted what has not been listed yet.
        if !self.caches.waiting().is_empty() {
            return Verdict::Retry;
        }
        if !self.doors.leadership.may_write() {
            self.follows();
            return Verdict::Settled;
        }
        let before = self.doors.writer.count();
        let world = planned(|| self.caches.world(&self.settings));
        let verdict = match key {
            Key::Networks => self.networks(&world).await,
            Key::Fabric => self.fabric(&world).await,
            Key::Sessions => self.sessions(&world),
            Key::Advertisement(name) => self.advertisement(&fabric::complete(world), name).await,
            Key::Attachment => self.attachment(&fabric::complete(world)).await,
            Key::Leftovers => self.leftovers(&world).await,
        };
        let metrics = &self.doors.metrics;
        metrics.writes.inc_by(self.doors.writer.count() - before);
        let refused = i64::try_from(self.refusals.count()).unwrap_or(i64::MAX);
        metrics.objects_refused.set(refused);
        let word = match verdict {
            Verdict::Settled | Verdict::Idle => "settled",
            Verdict::Retry => "retry",
            Verdict::Blocked => "blocked",
        };
        metrics
            .passes
            .with_label_values(&[key.subject(), word])
            .inc();
        if !self.doors.leadership.leads() {
            // What this pass told of itself belongs to another replica by now.
            self.follows();
            return Verdict::Settled;
        }
        let all_fail = !self.failing.is_empty()
            && self
                .caches
                .advertisements
                .with(|map| map.keys().all(|k| self.failing.contains(&k.name)));
        self.doors.readiness.set("route advertisements", !all_fail);
        if verdict != Verdict::Retry && *key == Key::Attachment {
            self.doors.readiness.set("first pass", true);
        }
        verdict
    }
}
