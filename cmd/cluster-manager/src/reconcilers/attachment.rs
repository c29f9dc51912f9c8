//! The default network's NetworkAttachmentDefinition, and events on it.
//! In: the world. Out: the object; an event when the state of the network's transport changes. Invariant: the state is reported whether or not the object can be written.
//! Not here: the state (`plan_cluster::transport`).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::nad::NetworkAttachmentDefinition;
use model::ObjectKey;
use plan_cluster::{MANAGED_BY, RA_KEY, World, attachments, transport};
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
        let Some(names) = attachments::of_default_network(world, &key, &advertised) else {
            return Action::Done;
        };
        let config = api::nad::default_config();
        let existing = self.caches.attachments.get(&key).map(|e| e.value);
        let annotated = existing.as_ref().and_then(|e| e.annotations.get(RA_KEY));
        let wanted = (!names.is_empty() || annotated.is_some()).then(|| json!(names).to_string());
        let is_right = existing.as_ref().is_some_and(|e| {
            let annotation = match (annotated, &wanted) {
                (Some(is), Some(wanted)) => same_json(is, wanted),
                (is, wanted) => is.is_none() && wanted.is_none(),
            };
            annotation && same_json(&e.config, &config)
        });
        let mut jobs = Vec::new();
        if !is_right {
            let annotations: BTreeMap<&str, String> =
                wanted.into_iter().map(|names| (RA_KEY, names)).collect();
            let body = json!({
                "metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}, "annotations": annotations},
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
