//! The managed fabric's base object and RouteAdvertisements.
//! In: their plan. Out: the objects, or their absence. Invariant: none waits for another.
//! Not here: the nodes' objects (`advertisement`).

use std::collections::BTreeMap;

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use kube::Resource;
use model::frr::FrrConfiguration;
use model::intent::Event;
use model::{Asn, ObjectKey, intent};
use plan_cluster::{MANAGED_BY, fabric};
use reconcile::Action;
use serde_json::json;

use super::ClusterReconciler;
use super::writes::{Done, Job, What};
use crate::caches::Advertisement;
use crate::key::Key;

/// Another AS number of the base object with this uid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Renumbered {
    uid: String,
    before: Asn,
    after: Asn,
}

impl ClusterReconciler {
    pub(super) async fn fabric(&mut self, plan: &fabric::Plan) -> Action {
        let problems = plan.problems.iter();
        let left_out = problems.filter(|p| p.reason == fabric::NODE_LEFT_OUT);
        let left_out = i64::try_from(left_out.count()).unwrap_or(i64::MAX);
        self.clients.metrics.nodes_left_out.set(left_out);
        let subject = Key::Fabric;
        let done = self.bases(&subject, plan.base.as_deref()).await;
        let jobs = self.managed_advertisements(&plan.advertisements);
        let done = done.and(self.write_all::<RouteAdvertisements>(&subject, jobs).await);
        self.tell_problems(Key::Fabric, &plan.problems);
        self.report_on_nodes("fabric", plan.problems.clone());
        done.action()
    }

    /// Writes the base object, and tells of another AS number once it stands there.
    async fn bases(&mut self, subject: &Key, wanted: Option<&FrrConfiguration>) -> Done {
        let base: Vec<Job> = wanted.iter().filter_map(|b| self.frr_job(b)).collect();
        let former = self.former_bases(wanted.map(|base| &base.key));
        let keys = base.iter().chain(&former).map(|job| job.key.clone());
        let (kind, keys) = (FRRConfiguration::kind(&()), keys.collect());
        self.refusals.retain(subject, &kind, &keys);
        let renumbered = wanted.and_then(|wanted| self.renumbered(wanted));
        let done = self.write_more::<FRRConfiguration>(subject, base).await;
        match (renumbered, wanted) {
            (None, _) => self.renumbered = None,
            // The cache may be behind what was written and told.
            (now, Some(wanted)) if !done.written.is_empty() && self.renumbered != now => {
                self.renumbered = now;
                self.tell_as_number(&wanted.key);
            }
            _ => {}
        }
        done.and(self.write_more::<FRRConfiguration>(subject, former).await)
    }

    /// Whether the base object that stands there has another AS number.
    fn renumbered(&self, wanted: &FrrConfiguration) -> Option<Renumbered> {
        let existing = self.caches.frr.get(&wanted.key)?;
        let number = |base: &FrrConfiguration| base.routers.first().map(|router| router.asn);
        let before = number(existing.value.object.as_ref().ok()?)?;
        let after = number(wanted)?;
        (before != after).then_some(Renumbered {
            uid: existing.uid,
            before,
            after,
        })
    }

    /// An event where the fabric got another AS number: all its sessions end and begin anew.
    fn tell_as_number(&self, base: &ObjectKey) {
        let Some(Renumbered { uid, before, after }) = &self.renumbered else {
            return;
        };
        let event = Event {
            warning: false,
            reason: "ASNumberChanged",
            message: format!(
                "the managed BGP fabric changes from AS number {before} to {after}: all its sessions begin anew"
            ),
        };
        let events = &self.clients.events;
        events.publish::<FRRConfiguration>(base, uid, &event);
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
