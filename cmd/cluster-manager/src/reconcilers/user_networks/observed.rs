//! ClusterUserDefinedNetworks of OVN-Kubernetes, which makes their objects.
//! In: the world. Out: the label by which the fabric's RouteAdvertisements select a network, a condition of our own, events.
//! Invariant: of a network whose annotation asks for nothing nothing is told. Not here: what is wanted (`plan_cluster::transport`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use model::ObjectKey;
use model::intent::Condition;
use plan_cluster::attachments::NAME_LABEL;
use plan_cluster::{World, others, transport};
use reconcile::Action;
use serde_json::json;
use telemetry::Chain;

use super::status;
use crate::caches::Generations;
use crate::key::Key;
use crate::reconcilers::writes::{Job, What};
use crate::reconcilers::{ClusterReconciler, planned};

impl ClusterReconciler {
    pub(super) async fn observed_networks(
        &mut self,
        world: &Arc<World>,
        labelled: &BTreeSet<String>,
        generations: &Generations,
    ) -> Action {
        let subject = Key::UserNetworks;
        let jobs = self.labels(labelled);
        let done = self
            .write_all::<ClusterUserDefinedNetwork>(&subject, jobs)
            .await;
        let mut action = done.action();
        self.forget_networks(world.cudns.keys().cloned().collect());
        let conditions = self.annotated(world);
        let mut problems = Vec::new();
        for name in world.cudns.keys() {
            let wanted: Vec<Condition> = conditions.get(name).cloned().into_iter().collect();
            problems.extend(status::problems(name, &wanted));
            let of = generations.networks.get(name);
            if let Err(error) = self.network_status(name, of, &wanted).await {
                if !error.is_not_leading() {
                    tracing::warn!(name, error = %Chain(&error), "cannot write the status");
                }
                action = Action::Requeue;
            }
        }
        self.tell_problems(subject, &problems);
        action
    }

    /// The condition of each network whose annotation asks for something.
    fn annotated(&mut self, world: &Arc<World>) -> BTreeMap<String, Condition> {
        let advertised = others::advertises(world, &self.settings.network.nad);
        let advertised = advertised.map(|(_, problem)| problem);
        let planner = &mut self.planner;
        planned(|| {
            let plans = planner.plan_all(world);
            let cudns = world.cudns.values();
            let conditions = cudns.filter_map(|cudn| {
                let condition = transport::beside(world, cudn, &plans, advertised.as_ref())?;
                Some((cudn.name.clone(), condition))
            });
            conditions.collect()
        })
    }

    /// The label of networks that the fabric routes; it stays where it is of no more use, since it may be somebody's.
    fn labels(&self, wanted: &BTreeSet<String>) -> Vec<Job> {
        let job = |name: &String| {
            let key = ObjectKey::new("", name);
            let entry = self.caches.cudns.get(&key)?;
            let has = entry.value.spec.labels.get(NAME_LABEL);
            let lacks = has != Some(name) && !entry.value.spec.deleting;
            lacks.then(|| Job {
                key,
                node: None,
                what: What::Apply {
                    uid: Some(entry.uid),
                    version: None,
                    body: json!({"metadata": {"labels": {(NAME_LABEL): name}}}),
                },
            })
        };
        wanted.iter().filter_map(job).collect()
    }
}
