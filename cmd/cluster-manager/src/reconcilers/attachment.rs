//! The default network's NetworkAttachmentDefinition, and events on it.
//! In: the world. Out: the object; an event when the state of the network's transport changes. Invariant: the state is reported whether or not the object can be written.
//! Not here: the state (`plan_cluster::transport`).

use std::sync::Arc;

use api::nad::NetworkAttachmentDefinition;
use model::ObjectKey;
use plan_cluster::{MANAGED_BY, RA_KEY, World, transport};
use reconcile::Action;
use serde_json::{Value, json};

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::key::Key;

impl ClusterReconciler {
    pub(super) async fn attachment(&mut self, world: &Arc<World>) -> Action {
        let key = self.settings.network.nad.clone();
        let names = world.covering_default_network();
        if names.is_empty() && self.caches.attachments.get(&key).is_none() && !is_no_overlay(world)
        {
            return Action::Done;
        }
        let annotation = json!(names).to_string();
        let config = api::nad::default_config();
        let existing = self.caches.attachments.get(&key);
        let config_right = existing
            .as_ref()
            .is_some_and(|e| same_json(&e.value.config, &config));
        let annotated = |key: &str, text: &str| {
            existing
                .as_ref()
                .and_then(|e| e.value.annotations.get(key))
                .is_some_and(|t| same_json(t, text))
        };
        let mut jobs = Vec::new();
        if !(config_right
            && annotated(RA_KEY, &annotation)
            && annotated("k8s.ovn.org/network-id", "0"))
        {
            let body = json!({
                "metadata": {
                    "labels": {MANAGED_BY.0: MANAGED_BY.1},
                    "annotations": {
                        RA_KEY: annotation, "k8s.ovn.org/network-id": "0", "k8s.ovn.org/network-name": "default",
                    },
                },
                "spec": {"config": config},
            });
            let what = What::Apply {
                uid: None,
                version: None,
                body,
            };
            jobs.push(Job {
                key: key.clone(),
                node: None,
                what,
            });
        }
        let done = self
            .write_all::<NetworkAttachmentDefinition>(&Key::Attachment, jobs)
            .await;
        self.report_transport(world, &key);
        done.action()
    }

    fn report_transport(&mut self, world: &Arc<World>, key: &ObjectKey) {
        let planner = &mut self.planner;
        let accepted = planned(|| {
            let plans = planner.plan_all(world).iter();
            plans
                .map(|(name, plan)| (name.clone(), plan.accepted()))
                .collect()
        });
        let now = transport::default_network(world, &accepted);
        if let Some(event) = transport::event(self.state.as_ref(), &now) {
            if event.warning {
                tracing::warn!("No-overlay validation failed: {}", event.message);
            }
            let uid = self
                .caches
                .attachments
                .get(key)
                .map(|e| e.uid)
                .unwrap_or_default();
            self.clients
                .events
                .publish::<NetworkAttachmentDefinition>(key, &uid, &event);
        }
        self.state = Some(now);
    }
}

/// Whether the default network is one.
fn is_no_overlay(world: &World) -> bool {
    let network = world.default_network();
    network.is_some_and(|network| network.transport.no_overlay().is_some())
}

fn same_json(a: &str, b: &str) -> bool {
    a == b
        || matches!(
            (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)),
            (Ok(a), Ok(b)) if a == b
        )
}
