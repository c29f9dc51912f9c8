//! What OpenShift's operator object asks for, as a file of the other daemons.
//! In: the settings in force. Out: a ConfigMap, which they mount. Invariant: it has what is in force, not what was refused.
//! Not here: what the object says (`api`), what is in force (`configuration`).

use k8s_openapi::api::core::v1::ConfigMap;
use model::ObjectKey;
use plan_cluster::MANAGED_BY;
use reconcile::Action;
use serde_json::json;

use super::ClusterReconciler;
use super::writes::{Job, What};
use crate::caches::operator::CONFIG_MAP;
use crate::key::Key;

impl ClusterReconciler {
    /// Brings the ConfigMap to what is in force.
    pub(super) async fn operator(&mut self) -> Action {
        let Some(rendered) = self.caches.operator.as_ref().map(|o| o.rendered()) else {
            return Action::Done;
        };
        let Some(rendered) = rendered else {
            return Action::Requeue;
        };
        let text = self.settings.operator_text(self.in_force.of_object);
        let body = json!({
            "metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}},
            "data": {CONFIG_MAP.1: text},
        });
        let job = Job {
            key: ObjectKey::new(crate::LEASE.0, CONFIG_MAP.0),
            node: None,
            what: What::Apply {
                uid: None,
                version: None,
                body,
            },
        };
        let jobs = if rendered.as_ref() == Some(&text) {
            Vec::new()
        } else {
            vec![job]
        };
        self.write_all::<ConfigMap>(&Key::Operator, jobs)
            .await
            .action()
    }
}
