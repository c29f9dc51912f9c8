//! ClusterUserDefinedNetworks: their NetworkAttachmentDefinitions, finalizers, labels and conditions.
//! In: the world, and a listing of the objects where something new or final is decided. Out: objects, conditions, events.
//! Invariant: an object that pods use is not let go, and a network without its finalizer has no object left; one network,
//! namespace or refused write costs only itself.
//! Not here: what is wanted (`plan_cluster::attachments`, `plan_cluster::transport`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::nad::NetworkAttachmentDefinition;
use kube::api::ListParams;
use kube_edge::client::CALL_DEADLINE;
use kube_edge::untyped;
use model::ObjectKey;
use model::intent::Condition;
use model::user_network::Attachment;
use plan_cluster::attachments::{self, FINALIZER, NAME_LABEL, Plan, Wanted};
use plan_cluster::{World, transport};
use reconcile::Action;
use serde_json::json;
use telemetry::Chain;

use super::attachment::same_json;
use super::writes::{Done, Job, What};
use super::{ClusterReconciler, planned};
use crate::caches::Generations;
use crate::key::Key;

mod observed;
mod release;
mod status;

pub(super) use release::Holding;

/// The kind whose refusals are kept together.
const KIND: &str = "NetworkAttachmentDefinition";

impl ClusterReconciler {
    pub(super) async fn user_networks(
        &mut self,
        world: &Arc<World>,
        labelled: &BTreeSet<String>,
        generations: &Generations,
    ) -> Action {
        if self.observes() {
            return self.observed_networks(world, labelled, generations).await;
        }
        let plan = match self.plan_of_networks(world).await {
            Ok(plan) => plan,
            Err(error) => {
                tracing::warn!(error, "cannot list NetworkAttachmentDefinitions");
                return Action::Requeue;
            }
        };
        let readable = world
            .cudns
            .values()
            .filter_map(|cudn| cudn.network.as_ref().ok());
        self.clients.metrics.networks.tell_networks(readable);
        let accepted = self.transports(world);
        let subject = Key::UserNetworks;
        // Before the first object, and after the last.
        let jobs = self.protections(labelled, &plan.0.finalizers);
        let done = self
            .write_all::<ClusterUserDefinedNetwork>(&subject, jobs)
            .await;
        let (written, in_use) = self.write_attachments(&plan.0, &plan.1).await;
        let mut action = done.and(written).action();
        self.forget_networks(world.cudns.keys().cloned().collect());
        let mut problems = Vec::new();
        for (name, condition) in plan.0.created {
            let mut wanted = vec![self.with_refusals(&name, condition, &in_use)];
            wanted.extend(accepted.get(&name).cloned());
            problems.extend(status::problems(&name, &wanted));
            let of = generations.networks.get(&name);
            if let Err(error) = self.network_status(&name, of, &wanted).await {
                if !error.is_not_leading() {
                    tracing::warn!(name, error = %Chain(&error), "cannot write the status");
                }
                action = Action::Requeue;
            }
        }
        self.tell_problems(subject, &problems);
        action
    }

    /// The plan, and the objects that it was made from. Where something new is to be written, or a network without objects is to
    /// be let go, they are read afresh: what a watch has not reported yet may bear the id or the name already, or be an object.
    async fn plan_of_networks(
        &mut self,
        world: &Arc<World>,
    ) -> Result<(Plan, Attachments), String> {
        let plan = self.plan_beside(world, &world.attachments);
        let is_new = |job: &Job| {
            let wanted = plan.desired.get(&job.key);
            let existing = world.attachments.get(&job.key);
            wanted.is_some_and(|wanted| wanted.allocates(existing))
        };
        let target = |job: &Job| (KIND.to_owned(), job.key.clone());
        let waits = |job: &Job| {
            let subject = Key::UserNetworks;
            self.refusals.waits(&subject, &target(job), &job.what)
        };
        let jobs = attachment_jobs(&plan.desired, &world.attachments);
        let is_final = |(name, protected): (&String, &bool)| {
            let cudn = world.cudns.get(name);
            !protected && cudn.is_some_and(|cudn| cudn.finalizers.contains(FINALIZER))
        };
        let decides = jobs.iter().any(|job| is_new(job) && !waits(job));
        if !decides && !plan.finalizers.iter().any(is_final) {
            return Ok((plan, world.attachments.clone()));
        }
        let listed = self.listed_attachments().await?;
        Ok((self.plan_beside(world, &listed), listed))
    }

    fn plan_beside(&mut self, world: &Arc<World>, attachments: &Attachments) -> Plan {
        let planner = &mut self.planner;
        planned(|| {
            let plans = planner.plan_all(world);
            if *attachments == world.attachments {
                return attachments::plan(world, &attachments::advertised(world, &plans));
            }
            let mut now = World::clone(world);
            now.attachments.clone_from(attachments);
            attachments::plan(&now, &attachments::advertised(&now, &plans))
        })
    }

    /// What the API server has at this moment.
    async fn listed_attachments(&self) -> Result<Attachments, String> {
        let client = self.clients.client.clone();
        let api = untyped::<NetworkAttachmentDefinition>(client, None);
        let params = ListParams::default();
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list(&params)).await;
        let list = match listed {
            Ok(Ok(list)) => list,
            // A kind that is not installed has no objects; where the caches have some it is not served just now.
            Ok(Err(kube::Error::Api(status)))
                if status.code == 404 && self.caches.attachments.with(BTreeMap::is_empty) =>
            {
                return Ok(Attachments::new());
            }
            Ok(Err(error)) => return Err(Chain(&error).to_string()),
            Err(_) => return Err(format!("no answer within {CALL_DEADLINE:?}")),
        };
        let decoded = |object: &kube::core::DynamicObject| {
            let metadata = &object.metadata;
            let namespace = metadata.namespace.clone().unwrap_or_default();
            let key = ObjectKey::new(namespace, metadata.name.clone().unwrap_or_default());
            (key, api::read_attachment(object))
        };
        Ok(list.items.iter().map(decoded).collect())
    }

    /// `TransportAccepted` of each network that has it.
    fn transports(&mut self, world: &Arc<World>) -> BTreeMap<String, Condition> {
        let planner = &mut self.planner;
        planned(|| {
            let plans = planner.plan_all(world);
            let cudns = world.cudns.values();
            cudns
                .filter_map(|cudn| {
                    let condition = transport::condition(world, cudn, &plans)?;
                    Some((cudn.name.clone(), condition))
                })
                .collect()
        })
    }

    /// Writes wanted objects and lets surplus ones go; with what holds the latter, by network.
    async fn write_attachments(
        &mut self,
        plan: &Plan,
        existing: &Attachments,
    ) -> (Done, BTreeMap<String, Vec<String>>) {
        let subject = Key::UserNetworks;
        let jobs = attachment_jobs(&plan.desired, existing);
        let mut wanted: BTreeSet<ObjectKey> = jobs.iter().map(|job| job.key.clone()).collect();
        let written = self
            .write_more::<NetworkAttachmentDefinition>(&subject, jobs)
            .await;
        let going = self.let_go(&plan.surplus).await;
        wanted.extend(going.jobs.iter().map(|job| job.key.clone()));
        let let_go = self
            .write_more::<NetworkAttachmentDefinition>(&subject, going.jobs)
            .await;
        self.refusals.retain(&subject, KIND, &wanted);
        (written.and(let_go), going.in_use)
    }

    /// Finalizers, and the label of managed networks; both are one apply, since what is left out of it is taken away.
    fn protections(
        &self,
        labelled: &BTreeSet<String>,
        wanted: &BTreeMap<String, bool>,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (name, protected) in wanted {
            let key = ObjectKey::new("", name);
            let Some(entry) = self.caches.cudns.get(&key) else {
                continue;
            };
            let cudn = &entry.value.spec;
            let has_finalizer = cudn.finalizers.contains(FINALIZER);
            let label = labelled.contains(name);
            let has_label = cudn.labels.get(NAME_LABEL).map(String::as_str) == Some(name.as_str());
            let what = match (*protected, has_finalizer) {
                (true, has) if has && (has_label || !label) => continue,
                // The API server takes no new finalizer of what is being deleted.
                (true, false) if cudn.deleting => continue,
                (false, false) => continue,
                (false, true) => What::Release {
                    uid: entry.uid,
                    version: entry.version,
                    finalizers: release::without_ours(&cudn.finalizers),
                },
                (true, _) => {
                    let labels: BTreeMap<&str, &String> =
                        label.then_some((NAME_LABEL, name)).into_iter().collect();
                    What::Apply {
                        uid: Some(entry.uid),
                        version: None,
                        body: json!({"metadata": {"finalizers": [FINALIZER], "labels": labels}}),
                    }
                }
            };
            let node = None;
            jobs.push(Job { key, node, what });
        }
        jobs
    }
}

type Attachments = BTreeMap<ObjectKey, Attachment>;

/// The writes that wanted objects need beside those that exist.
fn attachment_jobs(desired: &BTreeMap<ObjectKey, Wanted>, existing: &Attachments) -> Vec<Job> {
    let job = |(key, wanted): (&ObjectKey, &Wanted)| {
        let (network, spec) = &wanted.network;
        let config = api::nad::config(network, spec, key);
        let existing = existing.get(key);
        if existing.is_some_and(|e| wanted.describes(e) && same_json(&e.config, &config)) {
            return None;
        }
        let body = json!({
            "metadata": {
                "labels": wanted.labels, "annotations": wanted.annotations, "finalizers": [FINALIZER],
                "ownerReferences": [api::nad::owner(&wanted.owner.0, &wanted.owner.1)],
            },
            "spec": {"config": config},
        });
        Some(Job {
            key: key.clone(),
            node: None,
            what: What::Apply {
                uid: existing.map(|e| e.uid.clone()),
                version: None,
                body,
            },
        })
    };
    desired.iter().filter_map(job).collect()
}
