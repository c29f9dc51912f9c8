//! FRRConfigurations: which have to be written.
//! In: wanted objects, the cache. Out: jobs. Invariant: what stands there as it is wanted is not written.
//! Not here: their content.

use api::frr_configuration::FRRConfiguration;
use model::NodeName;
use model::frr::FrrConfiguration;
use plan_cluster::{RA_KEY, generated};

use super::ClusterReconciler;
use super::writes::{Job, What};

impl ClusterReconciler {
    /// The write that an object needs, if it needs one.
    pub(super) fn frr_job(&self, wanted: &FrrConfiguration) -> Option<Job> {
        let existing = self.caches.frr.get(&wanted.key);
        if existing.is_some_and(|e| {
            e.value
                .object
                .is_ok_and(|s| generated::is_as_wanted(&s, wanted))
        }) {
            return None;
        }
        let body = serde_json::to_value(FRRConfiguration::from(wanted)).unwrap_or_default();
        let identity = wanted.annotations.get(RA_KEY);
        let node = identity.and_then(|id| id.split('/').nth(2));
        Some(Job {
            key: wanted.key.clone(),
            node: node.map(NodeName::from),
            what: What::Apply {
                uid: None,
                version: None,
                body,
            },
        })
    }
}
