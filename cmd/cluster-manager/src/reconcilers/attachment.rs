//! The default network's NetworkAttachmentDefinition, and events on it.
//! In: the world. Out: the object; an event when the state of the network's transport changes. Invariant: the state is reported whether or not the object can be written.
//! Not here: the state (`plan_cluster::transport`).

use std::sync::Arc;

use api::nad::NetworkAttachmentDefinition;
use model::ObjectKey;
use plan_cluster::{MANAGED_BY, World, attachments, transport};
use reconcile::Action;
use serde_json::{Value, json};

use super::writes::{Job, What};
use super::{ClusterReconciler, planned};
use crate::key::Key;

impl ClusterReconciler {
    pub(super) async fn attachment(&mut self, world: &Arc<World>) -> Action {
        let key = self.settings.network.nad.clone();
        let planner = &mut self.planner;
        let advertised = planned(|| attachments::advertised(world, &planner.plan_all(world)));
        let wanted =
            attachments::of_default_network(world, &key, &advertised, &self.in_force.configured);
        let Some(wanted) = wanted else {
            return Action::Done;
        };
        let config = api::nad::default_config();
        let existing = self.caches.attachments.get(&key).map(|e| e.value);
        let is_right =
            existing.is_some_and(|e| wanted.describes(&e) && same_json(&e.config, &config));
        let mut jobs = Vec::new();
        if !is_right {
            let body = json!({
                "metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}, "annotations": wanted.0},
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
        self.report_configuration(&key);
        done.action()
    }

    /// An event when another part of the configuration file is refused than before.
    fn report_configuration(&mut self, key: &ObjectKey) {
        let Some(event) = self.in_force.event() else {
            return;
        };
        let existing = self.caches.attachments.get(key);
        let uid = existing.map(|e| e.uid).unwrap_or_default();
        self.clients
            .events
            .publish::<NetworkAttachmentDefinition>(key, &uid, &event);
    }

    fn report_transport(&mut self, world: &Arc<World>, key: &ObjectKey) {
        let planner = &mut self.planner;
        let now = planned(|| transport::default_network(world, &planner.plan_all(world)));
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

/// Whether two texts say the same in JSON.
pub(super) fn same_json(a: &str, b: &str) -> bool {
    a == b
        || matches!(
            (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)),
            (Ok(a), Ok(b)) if a == b
        )
}
