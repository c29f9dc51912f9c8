//! The cluster-manager's subjects: read the world, plan, diff, write, judge.
//! In: keys from the loop. Out: objects on the API server. Invariant: one pass per key at a time; each pass may be repeated at any time.
//! Not here: decisions; every `if` here is about what stands there already.

use std::collections::{BTreeMap, BTreeSet};

use api::frr_configuration::FRRConfiguration;
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::jiff::Timestamp;
use kube_edge::events::Publisher;
use kube_edge::{WriteError, Writer};
use model::frr::FrrConfiguration;
use model::intent::{Condition, Event};
use model::node::annotation;
use model::{NodeName, ObjectKey, Problem};
use plan_cluster::verdicts::{self, DefaultNetwork};
use plan_cluster::{MANAGED_BY, RA_KEY, World, advertise, fabric, generated, networks};
use reconcile::{Poker, Subjects, Verdict};
use serde_json::{Value, json};
use settings::{OvnNetworks, Settings};
use telemetry::{Chain, Readiness};
use tokio::sync::watch;

use crate::caches::{Advertisement, Caches};
use crate::key::Key;
use crate::metrics::Metrics;

mod leftovers;
mod sessions;

/// What the passes write to and report by.
pub(crate) struct Doors {
    pub(crate) client: kube::Client,
    pub(crate) writer: Writer,
    pub(crate) publisher: Publisher,
    pub(crate) leads: watch::Receiver<bool>,
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
        }
    }

    async fn networks(&mut self, world: &World) -> Result<Verdict, WriteError> {
        if self.settings.ovn_networks != OvnNetworks::Own {
            return Ok(Verdict::Settled);
        }
        let plan = networks::plan(world);
        for (name, allocation) in &plan.allocations {
            let key = ObjectKey::new("", name.as_str());
            let (Some(node), Some(entry)) = (world.nodes.get(name), self.caches.nodes.get(&key))
            else {
                continue;
            };
            // Both keys each time: what is left out of an apply is taken away from its manager.
            let id = allocation.node_id.or(node.node_id.known().copied());
            let subnets = allocation.subnets.as_ref().or(node.subnets.known());
            let mut annotations = serde_json::Map::new();
            if let Some(id) = id {
                annotations.insert(annotation::NODE_ID.to_owned(), id.to_string().into());
            }
            if let Some(subnets) = subnets {
                let map: BTreeMap<&str, Vec<String>> = subnets
                    .iter()
                    .map(|(net, list)| {
                        (net.as_str(), list.iter().map(ToString::to_string).collect())
                    })
                    .collect();
                annotations.insert(
                    annotation::NODE_SUBNETS.to_owned(),
                    json!(map).to_string().into(),
                );
            }
            tracing::info!(node = %name, ?annotations, "allocating");
            let body = json!({"metadata": {"annotations": annotations}});
            self.doors
                .writer
                .apply::<KubeNode>(&key, Some(&entry.uid), body)
                .await?;
        }
        self.tell_nodes("networks", plan.problems).await;
        Ok(Verdict::Settled)
    }

    async fn fabric(&mut self, world: &World) -> Result<Verdict, WriteError> {
        let plan = fabric::plan(world);
        self.doors
            .metrics
            .nodes_left_out
            .set(i64::try_from(plan.problems.len()).unwrap_or(i64::MAX));
        let base_key = ObjectKey::new(&self.settings.managed.frr_namespace, fabric::base_name());
        match plan.base {
            Some(base) => self.apply_frr(&base).await?,
            None => {
                self.withdraw::<FRRConfiguration>(&base_key, self.owned_frr(&base_key))
                    .await?
            }
        }
        let name = fabric::advertisement_name(&model::NetworkName::default_network());
        let key = ObjectKey::new("", &name);
        let standing = self.caches.advertisements.get(&key);
        match plan.advertisement {
            Some(wanted) => {
                let same = standing.as_ref().is_some_and(|e| {
                    let labels = fabric::labels()
                        .iter()
                        .all(|(k, v)| e.value.labels.get(k) == Some(v));
                    let spec = e.value.spec.as_ref().is_ok_and(|s| {
                        let mut s = s.clone();
                        s.generation = wanted.generation;
                        s == wanted
                    });
                    labels && spec
                });
                if !same {
                    tracing::info!(name, "applying the fabric's RouteAdvertisements");
                    let body = advertisement_body(&wanted);
                    self.doors
                        .writer
                        .apply::<RouteAdvertisements>(&key, None, body)
                        .await?;
                }
            }
            None => {
                let ours = standing.filter(|e| {
                    e.value.labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
                });
                self.withdraw::<RouteAdvertisements>(&key, ours.map(|e| e.uid))
                    .await?;
            }
        }
        self.tell_nodes("fabric", plan.problems).await;
        Ok(Verdict::Settled)
    }

    fn owned_frr(&self, key: &ObjectKey) -> Option<String> {
        let entry = self.caches.frr.get(key)?;
        let ours =
            entry.value.object.as_ref().is_ok_and(|o| {
                o.labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
            });
        ours.then_some(entry.uid)
    }

    async fn withdraw<K>(&self, key: &ObjectKey, uid: Option<String>) -> Result<(), WriteError>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        match uid {
            Some(uid) => {
                tracing::info!(%key, "deleting what is no longer wanted");
                self.doors.writer.delete::<K>(key, &uid).await
            }
            None => Ok(()),
        }
    }

    async fn apply_frr(&self, wanted: &FrrConfiguration) -> Result<(), WriteError> {
        let standing = self.caches.frr.get(&wanted.key);
        if standing.is_some_and(|e| e.value.object.is_ok_and(|s| same_frr(&s, wanted))) {
            return Ok(());
        }
        tracing::info!(key = %wanted.key, "applying an FRRConfiguration");
        let body = serde_json::to_value(FRRConfiguration::from(wanted)).unwrap_or_default();
        self.doors
            .writer
            .apply::<FRRConfiguration>(&wanted.key, None, body)
            .await
    }

    async fn advertisement(&mut self, world: &World, name: &str) -> Result<Verdict, WriteError> {
        let plan = advertise::plan(world, name);
        for object in plan.desired.values() {
            self.apply_frr(object).await?;
        }
        let surplus: Vec<ObjectKey> = generated::owned(world, name)
            .iter()
            .map(|o| o.key.clone())
            .filter(|key| !plan.desired.contains_key(key) && !plan.keep.contains(key))
            .collect();
        for key in surplus {
            let uid = self.caches.frr.get(&key).map(|e| e.uid);
            self.withdraw::<FRRConfiguration>(&key, uid).await?;
        }
        let key = ObjectKey::new("", name);
        let Some(entry) = self.caches.advertisements.get(&key) else {
            return Ok(Verdict::Settled);
        };
        let (before, sessions) = self.session_conditions(world, name, &entry.value);
        let mut wanted = plan.conditions.clone();
        wanted.extend(sessions.clone());
        let news = plan.conditions.iter().any(|c| !says(&entry.value, c));
        let told = before.is_some() == sessions.is_some();
        // What the conditions say already has been told, by us or by the leader before us.
        if self.status(&key, &entry.value, &wanted, told).await? {
            let mut events: Vec<Event> = Vec::new();
            if news {
                events.extend(plan.problems.iter().take(EVENTS).map(|problem| Event {
                    warning: true,
                    reason: problem.reason,
                    message: problem.message.clone(),
                }));
            }
            events.extend(plan_cluster::sessions::event(
                before.as_ref(),
                sessions.as_ref(),
            ));
            for event in &events {
                let publisher = &self.doors.publisher;
                publisher
                    .publish::<RouteAdvertisements>(&key, &entry.uid, event)
                    .await;
            }
        }
        Ok(if plan.accepted() {
            Verdict::Settled
        } else {
            Verdict::Blocked
        })
    }

    /// Writes the status where it differs; true where it did. `same_kinds`: no condition of ours is to go.
    async fn status(
        &self,
        key: &ObjectKey,
        standing: &Advertisement,
        wanted: &[Condition],
        same_kinds: bool,
    ) -> Result<bool, WriteError> {
        let generation = standing.spec.as_ref().map(|s| s.generation).unwrap_or(0);
        for condition in wanted {
            self.doors
                .metrics
                .condition
                .with_label_values(&[key.name.as_str(), condition.kind])
                .set(i64::from(condition.status));
        }
        let line = match wanted.first() {
            Some(c) if c.status => "Accepted".to_owned(),
            Some(c) => format!("Not Accepted: {}", c.message),
            None => String::new(),
        };
        let find = |kind: &str| standing.conditions.iter().find(|c| c.kind == kind);
        let same = standing.status == line
            && same_kinds
            && wanted.iter().all(|w| {
                says(standing, w) && find(w.kind).is_some_and(|s| s.generation == generation)
            });
        if same {
            return Ok(false);
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions: Vec<Value> = wanted
            .iter()
            .map(|w| {
                let since = find(w.kind).filter(|s| s.status == w.status).map_or(&now, |s| &s.since);
                json!({
                    "type": w.kind, "status": if w.status { "True" } else { "False" }, "reason": w.reason,
                    "message": w.message, "observedGeneration": generation, "lastTransitionTime": since,
                })
            })
            .collect();
        let status = json!({"status": line, "conditions": conditions});
        self.doors
            .writer
            .apply_status::<RouteAdvertisements>(key, status)
            .await?;
        Ok(true)
    }

    async fn attachment(&mut self, world: &World) -> Result<Verdict, WriteError> {
        let key = self.settings.default_nad.clone();
        let names: Vec<String> = world
            .ras
            .iter()
            .filter(|(_, ra)| {
                ra.as_ref()
                    .is_ok_and(model::intent::RouteAdvertisements::covers_default_network)
            })
            .map(|(name, _)| name.clone())
            .collect();
        if names.is_empty() && self.caches.attachments.get(&key).is_none() && !world.no_overlay {
            return Ok(Verdict::Settled);
        }
        let annotation = json!(names).to_string();
        let config = api::nad::default_config();
        let standing = self.caches.attachments.get(&key);
        let config_right = standing
            .as_ref()
            .is_some_and(|e| same_json(&e.value.config, &config));
        let annotated = |key: &str, text: &str| {
            standing
                .as_ref()
                .and_then(|e| e.value.annotations.get(key))
                .is_some_and(|t| same_json(t, text))
        };
        if !(config_right
            && annotated(RA_KEY, &annotation)
            && annotated("k8s.ovn.org/network-id", "0"))
        {
            tracing::info!(%key, "applying the default network's NetworkAttachmentDefinition");
            let body = json!({
                "metadata": {
                    "labels": {MANAGED_BY.0: MANAGED_BY.1},
                    "annotations": {
                        RA_KEY: annotation, "k8s.ovn.org/network-id": "0", "k8s.ovn.org/network-name": "default",
                    },
                },
                "spec": {"config": config},
            });
            self.doors
                .writer
                .apply::<NetworkAttachmentDefinition>(&key, None, body)
                .await?;
        }
        self.verdict(world, &key).await;
        Ok(Verdict::Settled)
    }

    async fn verdict(&mut self, world: &World, key: &ObjectKey) {
        let accepted = world
            .ras
            .keys()
            .map(|name| (name.clone(), advertise::plan(world, name).accepted()))
            .collect();
        let now = verdicts::default_network(world, &accepted);
        if let Some(event) = verdicts::event(self.verdict.as_ref(), &now) {
            if event.warning {
                tracing::warn!("No-overlay validation failed: {}", event.message);
            }
            let uid = self
                .caches
                .attachments
                .get(key)
                .map(|e| e.uid)
                .unwrap_or_default();
            self.doors
                .publisher
                .publish::<NetworkAttachmentDefinition>(key, &uid, &event)
                .await;
        }
        self.verdict = Some(now);
    }

    /// Events on nodes, when what is to be told of a subject changed. The first time after a start those are left out
    /// that a standing condition names: the leader before us told them.
    async fn tell_nodes(&mut self, subject: &'static str, problems: Vec<Problem>) {
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
            self.doors
                .publisher
                .publish::<KubeNode>(&key, &uid, &event)
                .await;
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

/// At most this many events for one change: the condition has the rest.
const EVENTS: usize = 20;

/// Whether a condition stands on an object in these words.
fn says(standing: &Advertisement, wanted: &Condition) -> bool {
    let mut of_kind = standing.conditions.iter().filter(|c| c.kind == wanted.kind);
    of_kind.any(|s| {
        s.status == wanted.status && s.reason == wanted.reason && s.message == wanted.message
    })
}

/// Whether the object that stands there already is what is wanted; other people's labels and annotations do not count.
fn same_frr(standing: &FrrConfiguration, wanted: &FrrConfiguration) -> bool {
    let covers = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
        want.iter().all(|(k, v)| have.get(k) == Some(v))
    };
    covers(&standing.labels, &wanted.labels)
        && covers(&standing.annotations, &wanted.annotations)
        && standing.node_selector == wanted.node_selector
        && standing.routers == wanted.routers
        && standing.bfd_profiles == wanted.bfd_profiles
        && standing.raw == wanted.raw
}

fn same_json(a: &str, b: &str) -> bool {
    a == b
        || matches!(
            (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)),
            (Ok(a), Ok(b)) if a == b
        )
}

fn advertisement_body(wanted: &model::intent::RouteAdvertisements) -> Value {
    json!({
        "metadata": {"labels": fabric::labels()},
        "spec": {
            "advertisements": ["PodNetwork"],
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
            "nodeSelector": {},
            "frrConfigurationSelector": api::selector::lower(&wanted.frr_selector),
        },
    })
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
        let left_behind = world
            .frr
            .values()
            .filter_map(|o| o.as_ref().ok())
            .filter(|o| generated::is_generated(o))
            .filter_map(|o| o.labels.get(RA_KEY).cloned());
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
        if !*self.doors.leads.borrow() {
            self.doors.readiness.set("first pass", true);
            return Verdict::Settled;
        }
        let before = self.doors.writer.count();
        let world = self.caches.world(&self.settings);
        let outcome = match key {
            Key::Networks => self.networks(&world).await,
            Key::Fabric => self.fabric(&world).await,
            Key::Sessions => self.sessions(&world),
            Key::Advertisement(name) => self.advertisement(&fabric::complete(world), name).await,
            Key::Attachment => self.attachment(&fabric::complete(world)).await,
            Key::Leftovers => self.leftovers(&world).await,
        };
        self.doors
            .metrics
            .writes
            .inc_by(self.doors.writer.count() - before);
        let verdict = outcome.unwrap_or_else(|error| {
            tracing::warn!(subject = key.subject(), error = %Chain(&error), "pass failed, trying again");
            Verdict::Retry
        });
        let word = match verdict {
            Verdict::Settled | Verdict::Idle => "settled",
            Verdict::Retry => "retry",
            Verdict::Blocked => "blocked",
        };
        self.doors
            .metrics
            .passes
            .with_label_values(&[key.subject(), word])
            .inc();
        if verdict != Verdict::Retry && *key == Key::Attachment {
            self.doors.readiness.set("first pass", true);
        }
        verdict
    }
}
