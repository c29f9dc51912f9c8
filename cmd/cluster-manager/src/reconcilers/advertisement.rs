//! One RouteAdvertisements: the objects of its nodes, its status, its events.
//! In: the world. Out: FRRConfigurations, conditions, events. Invariant: whatever the API server refuses, all else is written and the status says it.
//! Not here: the plan (`plan_cluster::advertise`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::jiff::Timestamp;
use kube_edge::WriteError;
use model::ObjectKey;
use model::intent::{Condition, Event};
use plan_cluster::advertise::{self, Plan};
use plan_cluster::fabric::awaited;
use plan_cluster::refused::{self, Refusal};
use plan_cluster::{World, fabric};
use reconcile::Action;
use serde_json::{Value, json};
use telemetry::Chain;

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::caches::{Advertisement, ExistingCondition, Planned};
use crate::key::Key;

/// At most this many events for one change: the condition has the rest.
const EVENTS: usize = 20;
/// No objects.
static NONE: BTreeSet<String> = BTreeSet::new();

/// What is to be reported of a RouteAdvertisements.
struct Report {
    /// `Accepted` and `Complete`, and those of sessions and topology where there are any.
    conditions: Vec<Condition>,
    /// No condition of ours is to go.
    same_kinds: bool,
    /// Published where the status is written: what it says already has been reported, by us or by the leader before us.
    events: Vec<Event>,
}

impl ClusterReconciler {
    /// `of`: the object that the plan is made from.
    pub(super) async fn advertisement(
        &mut self,
        world: &Arc<World>,
        name: &str,
        of: Option<&Planned>,
    ) -> Action {
        let planner = &mut self.planner;
        let plans = planned(|| planner.plan_all(world));
        let plan = plans
            .get(name)
            .map_or_else(|| Cow::Owned(advertise::plan_of_gone(name)), Cow::Borrowed);
        let subject = Key::Advertisement(name.to_owned());
        let jobs = self.frr_jobs(&plan);
        let done = self.write_all::<FRRConfiguration>(&subject, jobs).await;
        let key = ObjectKey::new("", name);
        let Some(entry) = self.caches.advertisements.get(&key) else {
            self.forget(name);
            return done.action();
        };
        // Another object of this name, or one that is new: the next pass is about it.
        let Some(of) = of.filter(|of| of.uid == entry.uid) else {
            return Action::Requeue;
        };
        let (accepted, objects) = (plan.accepted(), plan.desired.len());
        self.tell_problems(subject.clone(), &plan.problems);
        let refusals = self.refusals_of(name, &subject);
        let report = self.report(world, name, &plan, &refusals, &entry.value);
        let status = self
            .status(&key, (of.generation, &entry.value), &report)
            .await;
        if status.is_err() || done.is_nothing_of(objects) {
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
                for event in &report.events {
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
        if done.action() == Action::Done && !accepted {
            Action::AwaitChange
        } else {
            done.action()
        }
    }

    /// The writes that bring the FRRConfigurations to the plan.
    fn frr_jobs(&self, plan: &Plan) -> Vec<Job> {
        let wanted = plan.desired.values();
        let mut jobs: Vec<Job> = wanted.filter_map(|o| self.frr_job(o)).collect();
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
        jobs
    }

    /// The RouteAdvertisements is gone: nothing is to be reported of it any more.
    fn forget(&mut self, name: &str) {
        self.clients.metrics.forget(name);
        self.tell_problems(Key::Advertisement(name.to_owned()), &[]);
        self.failing.remove(name);
        self.refused_before.remove(name);
    }

    /// The plan's conditions with what was refused, those of sessions and topology, and what of all that is news.
    fn report(
        &self,
        world: &World,
        name: &str,
        plan: &Plan,
        refusals: &BTreeSet<Refusal>,
        existing: &Advertisement,
    ) -> Report {
        let (mut conditions, problems) = refused::reported(
            plan.conditions.clone(),
            plan.problems.clone(),
            &format!("RouteAdvertisements/{name}"),
            refusals,
            self.refused_before.get(name).unwrap_or(&NONE),
        );
        let mut events: Vec<Event> = Vec::new();
        if conditions.iter().any(|c| !says(existing, c)) {
            events.extend(problems.into_iter().take(EVENTS).map(|problem| Event {
                warning: true,
                reason: problem.reason,
                message: problem.message,
            }));
        }
        let (before, sessions) = self.session_conditions(world, name, existing);
        events.extend(plan_cluster::sessions::event(
            before.as_ref(),
            sessions.as_ref(),
        ));
        let mut same_kinds = before.is_some() == sessions.is_some();
        conditions.extend(sessions);
        let (before, topology) = self.topology_conditions(world, name, existing);
        events.extend(awaited::event(before.as_ref(), topology.as_ref()));
        same_kinds &= before.is_some() == topology.is_some();
        conditions.extend(topology);
        Report {
            conditions,
            same_kinds,
            events,
        }
    }

    /// What was refused of a RouteAdvertisements' objects, and of what they are made from.
    fn refusals_of(&self, name: &str, subject: &Key) -> BTreeSet<Refusal> {
        let mut all = self.refusals.of(subject);
        all.extend(self.refusals.of(&Key::Networks));
        if name.starts_with(fabric::MANAGED_PREFIX) {
            all.extend(self.refusals.of(&Key::Fabric));
            all.extend(self.refusals.of(&Key::Advertisement(fabric::base_name())));
        }
        all
    }

    /// Writes the status where it differs; true where it did.
    async fn status(
        &self,
        key: &ObjectKey,
        (generation, existing): (i64, &Advertisement),
        report: &Report,
    ) -> Result<bool, WriteError> {
        let wanted = &report.conditions;
        for condition in wanted {
            self.clients
                .metrics
                .condition
                .with_label_values(&[key.name.as_str(), condition.kind])
                .set(i64::from(condition.status));
        }
        let line = advertise::status_line(wanted);
        let find = |kind: &str| existing.conditions.iter().find(|c| c.kind == kind);
        let same = existing.status == line
            && report.same_kinds
            && wanted.iter().all(|w| {
                says(existing, w) && find(w.kind).is_some_and(|s| s.generation == generation)
            });
        if same {
            return Ok(false);
        }
        let conditions = conditions(wanted, &existing.conditions, generation);
        let status = json!({"status": line, "conditions": conditions});
        self.clients
            .writer
            .apply_status::<RouteAdvertisements>(key, status)
            .await?;
        Ok(true)
    }
}

/// Conditions as the API has them; one whose status stays keeps its time.
pub(super) fn conditions(
    wanted: &[Condition],
    existing: &[ExistingCondition],
    generation: i64,
) -> Vec<Value> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let of = |w: &Condition| {
        let before = existing.iter().find(|s| s.kind == w.kind);
        let since = before
            .filter(|s| s.status == w.status)
            .map_or(&now, |s| &s.since);
        json!({
            "type": w.kind, "status": w.word(), "reason": w.reason,
            "message": w.message, "observedGeneration": generation, "lastTransitionTime": since,
        })
    };
    wanted.iter().map(of).collect()
}

/// Whether a condition stands on an object in these words.
fn says(existing: &Advertisement, wanted: &Condition) -> bool {
    let mut of_kind = existing.conditions.iter().filter(|c| c.kind == wanted.kind);
    of_kind.any(|s| {
        s.status == wanted.status && s.reason == wanted.reason && s.message == wanted.message
    })
}
