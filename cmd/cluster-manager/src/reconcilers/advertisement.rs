//! One RouteAdvertisements: the objects of its nodes, its status, its events.
//! In: the world. Out: FRRConfigurations, conditions, events. Invariant: whatever the API server refuses, all else is written and the status says it.
//! Not here: the plan (`plan_cluster::advertise`).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::jiff::Timestamp;
use kube_edge::WriteError;
use model::intent::{Condition, Event};
use model::{NetworkName, ObjectKey};
use plan_cluster::refused::{self, Refusal};
use plan_cluster::{World, fabric};
use reconcile::Action;
use serde_json::{Value, json};
use telemetry::Chain;

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::caches::Advertisement;
use crate::key::Key;

/// At most this many events for one change: the condition has the rest.
const EVENTS: usize = 20;
/// No objects.
static NONE: BTreeSet<String> = BTreeSet::new();

impl ClusterReconciler {
    pub(super) async fn advertisement(&mut self, world: &Arc<World>, name: &str) -> Action {
        let planner = &mut self.planner;
        let plan = planned(|| planner.plan(world, name));
        let subject = Key::Advertisement(name.to_owned());
        let mut jobs: Vec<Job> = plan
            .desired
            .values()
            .filter_map(|o| self.frr_job(o))
            .collect();
        jobs.extend(plan.surplus.iter().filter_map(|key| {
            let what = What::Delete {
                uid: self.caches.frr.get(key)?.uid,
            };
            Some(Job {
                key: (*key).clone(),
                node: None,
                what,
            })
        }));
        let done = self.write_all::<FRRConfiguration>(&subject, jobs).await;
        let key = ObjectKey::new("", name);
        let Some(entry) = self.caches.advertisements.get(&key) else {
            self.clients.metrics.forget(name);
            self.failing.remove(name);
            self.refused_before.remove(name);
            return done.verdict();
        };
        let refusals = self.refusals_of(name, &subject);
        let accepted = plan.accepted();
        let told_on = format!("RouteAdvertisements/{name}");
        let before = self.refused_before.get(name).unwrap_or(&NONE);
        let (conditions, problems) =
            refused::told(plan.conditions, plan.problems, &told_on, &refusals, before);
        let (before, sessions) = self.session_conditions(world, name, &entry.value);
        let mut wanted = conditions.clone();
        wanted.extend(sessions.clone());
        let news = conditions.iter().any(|c| !says(&entry.value, c));
        let told = before.is_some() == sessions.is_some();
        // What the conditions say already has been reported, by us or by the leader before us.
        let status = self.status(&key, &entry.value, &wanted, told).await;
        if status.is_err() || done.is_nothing_of(plan.desired.len()) {
            self.failing.insert(name.to_owned());
        } else {
            self.failing.remove(name);
        }
        if status.is_ok() {
            let objects = refusals.into_iter().map(|r| r.object).collect();
            self.refused_before.insert(name.to_owned(), objects);
        }
        match status {
            Ok(false) => {}
            Ok(true) => {
                let mut events: Vec<Event> = Vec::new();
                if news {
                    events.extend(problems.iter().take(EVENTS).map(|problem| Event {
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
                    let events = &self.clients.events;
                    events.publish::<RouteAdvertisements>(&key, &entry.uid, event);
                }
            }
            Err(error) => {
                if !error.is_not_leading() {
                    tracing::warn!(name, error = %Chain(&error), "cannot write the status");
                }
                return Action::Requeue;
            }
        }
        if done.verdict() == Action::Done && !accepted {
            Action::AwaitChange
        } else {
            done.verdict()
        }
    }

    /// What was refused of a RouteAdvertisements' objects, and of what they are made from.
    fn refusals_of(&self, name: &str, subject: &Key) -> BTreeSet<Refusal> {
        let mut all = self.refusals.of(subject);
        all.extend(self.refusals.of(&Key::Networks));
        if name == fabric::advertisement_name(&NetworkName::default_network()) {
            all.extend(self.refusals.of(&Key::Fabric));
        }
        all
    }

    /// Writes the status where it differs; true where it did. `same_kinds`: no condition of ours is to go.
    async fn status(
        &self,
        key: &ObjectKey,
        standing: &Advertisement,
        wanted: &[Condition],
        same_kinds: bool,
    ) -> Result<bool, WriteError> {
        let generation = standing.generation;
        for condition in wanted {
            self.clients
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
                    "type": w.kind, "status": w.word(), "reason": w.reason,
                    "message": w.message, "observedGeneration": generation, "lastTransitionTime": since,
                })
            })
            .collect();
        let status = json!({"status": line, "conditions": conditions});
        self.clients
            .writer
            .apply_status::<RouteAdvertisements>(key, status)
            .await?;
        Ok(true)
    }
}

/// Whether a condition stands on an object in these words.
fn says(standing: &Advertisement, wanted: &Condition) -> bool {
    let mut of_kind = standing.conditions.iter().filter(|c| c.kind == wanted.kind);
    of_kind.any(|s| {
        s.status == wanted.status && s.reason == wanted.reason && s.message == wanted.message
    })
}
