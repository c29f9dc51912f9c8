//! The managed fabric's base object and RouteAdvertisements.
//! In: their plan. Out: the objects, or their absence. Invariant: none waits for another.
//! Not here: the nodes' objects (`advertisement`).

use std::collections::BTreeMap;

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use model::frr::FrrConfiguration;
use model::intent::Event;
use model::{ObjectKey, intent};
use plan_cluster::{MANAGED_BY, fabric};
use reconcile::Action;
use serde_json::json;

use super::ClusterReconciler;
use super::writes::{Job, What};
use crate::caches::Advertisement;
use crate::key::Key;

impl ClusterReconciler {
    pub(super) async fn fabric(&mut self, plan: &fabric::Plan) -> Action {
        let problems = plan.problems.iter();
        let left_out = problems.filter(|p| p.reason == fabric::NODE_LEFT_OUT);
        let left_out = i64::try_from(left_out.count()).unwrap_or(i64::MAX);
        self.clients.metrics.nodes_left_out.set(left_out);
        self.tell_as_number(plan.base.as_ref());
        let mut jobs: Vec<Job> = plan.base.iter().filter_map(|b| self.frr_job(b)).collect();
        jobs.extend(self.former_bases(plan.base.as_ref().map(|base| &base.key)));
        let subject = Key::Fabric;
        let done = self.write_all::<FRRConfiguration>(&subject, jobs).await;

        let jobs = self.managed_advertisements(&plan.advertisements);
        let done = done.and(self.write_all::<RouteAdvertisements>(&subject, jobs).await);
        self.tell_problems(Key::Fabric, &plan.problems);
        self.report_on_nodes("fabric", plan.problems.clone());
        done.action()
    }

    /// An event where the fabric gets another AS number: all its sessions end and begin anew.
    fn tell_as_number(&self, wanted: Option<&FrrConfiguration>) {
        let Some(wanted) = wanted else {
            return;
        };
        let Some(existing) = self.caches.frr.get(&wanted.key) else {
            return;
        };
        let number = |base: &FrrConfiguration| base.routers.first().map(|router| router.asn);
        let before = existing.value.object.as_ref().ok().and_then(number);
        let (Some(before), Some(after)) = (before, number(wanted)) else {
            return;
        };
        if before == after {
            return;
        }
        let event = Event {
            warning: false,
            reason: "ASNumberChanged",
            message: format!(
                "the managed BGP fabric changes from AS number {before} to {after}: all its sessions begin anew"
            ),
        };
        let events = &self.clients.events;
        events.publish::<FRRConfiguration>(&wanted.key, &existing.uid, &event);
    }

    /// The writes that bring the RouteAdvertisements of the fabric to what is wanted.
    fn managed_advertisements(
        &self,
        wanted: &BTreeMap<String, intent::RouteAdvertisements>,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (name, wanted) in wanted {
            let key = ObjectKey::new("", name);
            let existing = self.caches.advertisements.get(&key);
            if existing.is_some_and(|e| same_advertisement(&e.value, wanted)) {
                continue;
            }
            let what = What::Apply {
                uid: None,
                version: None,
                body: json!({
                    "metadata": {"labels": fabric::labels()},
                    "spec": api::route_advertisements::spec_of(wanted),
                }),
            };
            jobs.push(Job {
                key,
                node: None,
                what,
            });
        }
        let is_ours = |labels: &BTreeMap<String, String>| {
            let mut all = fabric::labels().into_iter();
            all.all(|(key, value)| labels.get(&key) == Some(&value))
        };
        let surplus = self.caches.advertisements.with(|map| -> Vec<Job> {
            let ours = map
                .iter()
                .filter(|(key, e)| is_ours(&e.value.labels) && !wanted.contains_key(&key.name));
            ours.map(|(key, e)| delete(key.clone(), e.uid.clone()))
                .collect()
        });
        jobs.extend(surplus);
        jobs
    }

    /// Base objects of ours that are not wanted: there is no fabric any more, or it is in another namespace.
    fn former_bases(&self, wanted: Option<&ObjectKey>) -> Vec<Job> {
        let is_ours = |labels: &BTreeMap<String, String>| {
            labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
        };
        self.caches.frr.with(|map| {
            map.iter()
                .filter(|(key, _)| key.name == fabric::base_name() && Some(*key) != wanted)
                .filter(|(_, e)| e.value.object.as_ref().is_ok_and(|o| is_ours(&o.labels)))
                .map(|(key, e)| delete(key.clone(), e.uid.clone()))
                .collect()
        })
    }
}

fn delete(key: ObjectKey, uid: String) -> Job {
    Job {
        key,
        node: None,
        what: What::Delete { uid },
    }
}

fn same_advertisement(existing: &Advertisement, wanted: &intent::RouteAdvertisements) -> bool {
    let labels = fabric::labels()
        .iter()
        .all(|(k, v)| existing.labels.get(k) == Some(v));
    let spec = existing.spec.as_ref().is_ok_and(|s| {
        let mut s = s.clone();
        (s.generation, s.created) = (wanted.generation, wanted.created);
        s == *wanted
    });
    labels && spec
}
