//! The managed fabric's base object and RouteAdvertisements.
//! In: the world. Out: both objects, or their absence. Invariant: neither waits for the other.
//! Not here: the nodes' objects (`advertisement`).

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use model::ObjectKey;
use plan_cluster::{MANAGED_BY, World, fabric};
use reconcile::Action;
use serde_json::{Value, json};

use super::ClusterReconciler;
use super::writes::{Job, What};
use crate::caches::Advertisement;
use crate::key::Key;

impl ClusterReconciler {
    pub(super) async fn fabric(&mut self, world: &World) -> Action {
        let plan = fabric::plan(world);
        self.clients
            .metrics
            .nodes_left_out
            .set(i64::try_from(plan.problems.len()).unwrap_or(i64::MAX));
        let key = ObjectKey::new(&self.settings.managed.frr_namespace, fabric::base_name());
        let base = match &plan.base {
            Some(base) => self.frr_job(base),
            None => self.owned_frr(&key).map(|uid| delete(key, uid)),
        };
        let subject = Key::Fabric;
        let jobs = base.into_iter().collect();
        let done = self.write_all::<FRRConfiguration>(&subject, jobs).await;

        let name = fabric::advertisement_name(&model::NetworkName::default_network());
        let key = ObjectKey::new("", &name);
        let existing = self.caches.advertisements.get(&key);
        let job = match plan.advertisement {
            Some(wanted) => {
                let same = existing.is_some_and(|e| same_advertisement(&e.value, &wanted));
                let what = What::Apply {
                    uid: None,
                    version: None,
                    body: advertisement_body(&wanted),
                };
                (!same).then_some(Job {
                    key,
                    node: None,
                    what,
                })
            }
            None => {
                let ours = existing.filter(|e| {
                    e.value.labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
                });
                ours.map(|e| delete(key, e.uid))
            }
        };
        let jobs = job.into_iter().collect();
        let done = done.and(self.write_all::<RouteAdvertisements>(&subject, jobs).await);
        self.report_on_nodes("fabric", plan.problems);
        done.action()
    }

    fn owned_frr(&self, key: &ObjectKey) -> Option<String> {
        let entry = self.caches.frr.get(key)?;
        let ours =
            entry.value.object.as_ref().is_ok_and(|o| {
                o.labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
            });
        ours.then_some(entry.uid)
    }
}

fn delete(key: ObjectKey, uid: String) -> Job {
    Job {
        key,
        node: None,
        what: What::Delete { uid },
    }
}

fn same_advertisement(
    existing: &Advertisement,
    wanted: &model::intent::RouteAdvertisements,
) -> bool {
    let labels = fabric::labels()
        .iter()
        .all(|(k, v)| existing.labels.get(k) == Some(v));
    let spec = existing.spec.as_ref().is_ok_and(|s| {
        let mut s = s.clone();
        s.generation = wanted.generation;
        s == *wanted
    });
    labels && spec
}

fn advertisement_body(wanted: &model::intent::RouteAdvertisements) -> Value {
    json!({
        "metadata": {"labels": fabric::labels()},
        "spec": {
            "advertisements": ["PodNetwork"],
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
            "nodeSelector": {},
            "frrConfigurationSelector": api::selector::encode(&wanted.frr_selector),
        },
    })
}
