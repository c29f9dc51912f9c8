//! The cluster-manager's subjects: read the world, plan, diff, write, report.
//! In: keys from the loop. Out: objects on the API server. Invariant: one pass per key at a time; each pass may be repeated at any time.
//! Not here: decisions; every `if` here is about what stands there already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daemon::Configuration;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::leadership::Term;
use kube_edge::{Leadership, Writer, events};
use model::intent::Event;
use model::{NodeName, ObjectKey, Problem};
use plan_cluster::advertise::{self, Planner};
use plan_cluster::transport::DefaultNetwork;
use plan_cluster::unsupported::Feature;
use reconcile::{Action, Reconciler, WorkQueue};
use settings::{OvnNetworks, Settings};
use telemetry::Readiness;
use tokio::time::Instant;

use crate::caches::{Caches, Snapshots, Worlds};
use crate::key::Key;
use crate::metrics::Metrics;

mod advertisement;
mod attachment;
mod configuration;
mod fabric_objects;
mod features;
mod frr;
mod leftovers;
mod networks;
mod operator;
mod others;
mod problems;
mod sessions;
mod user_networks;
mod writes;

/// What the passes write to and report by.
pub(crate) struct Clients {
    pub(crate) client: kube::Client,
    pub(crate) writer: Writer,
    pub(crate) events: events::Queue,
    pub(crate) leadership: Leadership,
    pub(crate) queue: WorkQueue<Key>,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
}

/// All of the daemon's keys; one loop, one writer.
pub(crate) struct ClusterReconciler {
    caches: Caches,
    worlds: Worlds,
    settings: Settings,
    in_force: configuration::InForce,
    /// Of the last pass.
    term: Option<Term>,
    clients: Clients,
    state: Option<DefaultNetwork>,
    swept: Option<BTreeSet<NodeName>>,
    reported: BTreeMap<&'static str, Vec<Problem>>,
    watched: sessions::Watched,
    planner: Planner,
    refusals: writes::Refusals,
    /// RouteAdvertisements whose last pass came to nothing.
    failing: BTreeSet<String>,
    /// By RouteAdvertisements: the objects whose refusal its status names, so that events tell each once.
    refused_before: BTreeMap<String, BTreeSet<String>>,
    /// NetworkAttachmentDefinitions that are to go and that pods use.
    holding: user_networks::Holding,
    /// ClusterUserDefinedNetworks that series are told of.
    networks_told: BTreeSet<String>,
    /// What objects were told of features that have no effect.
    unsupported: BTreeMap<(Feature, ObjectKey), String>,
    /// Kinds that are counted as empty.
    missing: BTreeSet<&'static str>,
    /// What is wrong with objects.
    problems: problems::Problems,
    /// What was written to Nodes.
    written: networks::Written,
    /// The AS number of the fabric that was told last, until the caches have it.
    renumbered: Option<fabric_objects::Renumbered>,
    /// Why what is announced is left to OVN-Kubernetes, as it was told.
    others: Option<Problem>,
}

impl ClusterReconciler {
    pub(crate) fn new(caches: Caches, configuration: Configuration, clients: Clients) -> Self {
        Self {
            caches,
            worlds: Worlds::default(),
            settings: configuration.now().settings.clone(),
            in_force: configuration::InForce::new(configuration),
            term: None,
            clients,
            state: None,
            swept: None,
            reported: BTreeMap::new(),
            watched: sessions::Watched::new(),
            planner: Planner::default(),
            refusals: writes::Refusals::default(),
            failing: BTreeSet::new(),
            refused_before: BTreeMap::new(),
            holding: user_networks::Holding::default(),
            networks_told: BTreeSet::new(),
            unsupported: BTreeMap::new(),
            missing: BTreeSet::new(),
            problems: problems::Problems::default(),
            written: networks::Written::default(),
            renumbered: None,
            others: None,
        }
    }

    /// A pass in this term: between two of them another replica may have led, whether or not a pass was there to see it.
    fn begin(&mut self, term: Option<Term>) {
        if self.term.is_some() && self.term != term {
            self.follows();
        }
        self.term = term;
    }

    /// OVN-Kubernetes gives out ids and subnets, and makes the networks' objects.
    fn observes(&self) -> bool {
        self.settings.ovn.networks == OvnNetworks::Observe
    }

    /// Another replica leads: it is the one who tells and remembers.
    fn follows(&mut self) {
        self.refusals.clear();
        self.failing.clear();
        self.refused_before.clear();
        self.holding.clear();
        self.networks_told.clear();
        self.unsupported.clear();
        self.problems = problems::Problems::default();
        self.worlds.follows();
        self.watched.follows();
        self.written = networks::Written::default();
        self.renumbered = None;
        self.others = None;
        self.clients.metrics.follows();
        self.clients.readiness.set("first pass", true);
        self.clients.readiness.set("route advertisements", true);
    }

    /// Events on nodes, when what is to be reported of a subject changed. The first time after a start those are left out
    /// that a condition already there names: the leader before us reported them.
    pub(super) fn report_on_nodes(&mut self, subject: &'static str, problems: Vec<Problem>) {
        let before = self.reported.get(subject);
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
                || (first && self.is_reported(name))
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
            self.clients.events.publish::<KubeNode>(&key, &uid, &event);
        }
        self.reported.insert(subject, problems);
    }

    /// Kinds that the API server does not have, or does not show, cost only themselves; somebody has to know.
    fn tell_missing(&mut self) {
        let missing = self.caches.missing();
        for (kind, code) in &missing {
            if self.missing.insert(*kind) {
                tracing::warn!(kind, code, "cannot be listed, and is asked for again");
            }
        }
        for kind in &self.missing {
            let is_missing = i64::from(missing.contains_key(kind));
            let series = &self.clients.metrics.kinds_missing;
            series.with_label_values(&[kind]).set(is_missing);
        }
        self.missing.retain(|kind| missing.contains_key(kind));
    }

    /// Counts a pass; `before` is the number of writes before it.
    fn count(&self, key: &Key, action: Action, before: u64, took: Duration) {
        let metrics = &self.clients.metrics;
        metrics.writes.inc_by(self.clients.writer.count() - before);
        let refused = i64::try_from(self.refusals.count()).unwrap_or(i64::MAX);
        metrics.objects_refused.set(refused);
        metrics.reconciled(key.reconciler(), word(action), took);
    }

    /// What a key's pass does with this moment's world.
    async fn pass(&mut self, key: &Key, snapshots: Snapshots) -> Action {
        let Snapshots {
            world,
            complete,
            fabric,
            generations,
        } = snapshots;
        if self.is_left_to_others(key, &world) {
            return Action::Done;
        }
        match key {
            Key::Operator => self.operator().await,
            Key::Networks => self.networks(&world, &complete).await,
            Key::Fabric => self.fabric(&fabric).await,
            Key::Sessions => self.sessions(&complete, &fabric).await,
            Key::UserNetworks => {
                self.user_networks(&complete, &fabric.labelled, &generations)
                    .await
            }
            Key::Advertisement(name) => {
                let generation = generations.advertisements.get(name);
                self.advertisement(&complete, name, generation).await
            }
            Key::Attachment => self.attachment(&complete).await,
            Key::Features => self.features(&complete),
            Key::Leftovers => self.leftovers(&world).await,
        }
    }

    fn is_reported(&self, node: &str) -> bool {
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

/// What came of a pass, for metrics.
fn word(action: Action) -> &'static str {
    match action {
        Action::Done | Action::NoChange => "done",
        Action::Requeue => "requeue",
        Action::AwaitChange => "await_change",
    }
}

impl Reconciler for ClusterReconciler {
    type Key = Key;

    async fn keys(&mut self) -> Option<Vec<Key>> {
        // Also of one that is waited for: else nobody knows why nothing is done.
        self.tell_missing();
        let waiting = self.caches.waiting();
        self.clients.readiness.set("caches", waiting.is_empty());
        if !waiting.is_empty() {
            tracing::debug!(?waiting, "caches are not filled yet");
            return None;
        }
        self.configure();
        let (worlds, caches) = (&mut self.worlds, &self.caches);
        let world = planned(|| worlds.now(caches, &self.settings)).world;
        let mut keys = vec![
            Key::Operator,
            Key::Networks,
            Key::Fabric,
            Key::Sessions,
            Key::UserNetworks,
        ];
        keys.extend(advertise::names(&world).into_iter().map(Key::Advertisement));
        keys.extend([Key::Attachment, Key::Features, Key::Leftovers]);
        // What the default network is made from is others'.
        let is_observed = self.observes();
        keys.retain(|key| !(is_observed && *key == Key::Attachment));
        Some(keys)
    }

    /// Never cancelled: the loop finishes it before it stops.
    async fn reconcile(&mut self, key: &Key) -> Action {
        if self.observes() && *key == Key::Attachment {
            return Action::Done;
        }
        // A pass before the caches are complete would take for deleted what has not been listed yet.
        if !self.caches.waiting().is_empty() {
            return Action::Requeue;
        }
        if !self.clients.leadership.may_write() {
            self.follows();
            return Action::Done;
        }
        self.begin(self.clients.leadership.term());
        self.configure();
        let (before, began) = (self.clients.writer.count(), Instant::now());
        let (worlds, caches) = (&mut self.worlds, &self.caches);
        let snapshots = planned(|| worlds.now(caches, &self.settings));
        // What is planned now would tell of nodes that wait for what they have; their change brings the next pass.
        if *key != Key::Networks && self.written.awaited(&snapshots.world, began) {
            return Action::Requeue;
        }
        let action = self.pass(key, snapshots).await;
        self.count(key, action, before, began.elapsed());
        if !self.clients.leadership.leads() {
            // What this pass reported of itself belongs to another replica by now.
            self.follows();
            return Action::Done;
        }
        let all_fail = !self.failing.is_empty()
            && self
                .caches
                .advertisements
                .with(|map| map.keys().all(|k| self.failing.contains(&k.name)));
        self.clients
            .readiness
            .set("route advertisements", !all_fail);
        // The last of what matters; what is left tells only.
        if action != Action::Requeue && *key == Key::Features {
            self.clients.readiness.set("first pass", true);
        }
        action
    }
}
