//! Events on objects of features that have no effect on networks without overlay.
//! In: the world. Out: an event when there is something new to say of an object. Invariant: no object is written.
//! Not here: which objects (`plan_cluster::unsupported`).

use model::ObjectKey;
use model::intent::Event;
use plan_cluster::World;
use plan_cluster::unsupported::{self, Feature};
use reconcile::Action;

use super::ClusterReconciler;

impl ClusterReconciler {
    /// Tells what is new. After a start all of it is: events are kept for an hour, and it is as true as before.
    pub(super) fn features(&mut self, world: &World) -> Action {
        let now = unsupported::plan(world);
        for ((feature, key), message) in &now {
            let told = self.unsupported.get(&(*feature, key.clone()));
            if told == Some(message) {
                continue;
            }
            tracing::warn!(kind = feature.kind().1, %key, "{message}");
            let event = Event {
                warning: true,
                reason: unsupported::REASON,
                message: message.clone(),
            };
            let uid = self.uid_of(*feature, key).unwrap_or_default();
            self.clients
                .events
                .publish_on(feature.kind(), key, &uid, &event);
        }
        self.unsupported = now;
        Action::Done
    }

    fn uid_of(&self, feature: Feature, key: &ObjectKey) -> Option<String> {
        match feature {
            Feature::EgressIp => Some(self.caches.egress_ips.as_ref()?.get(key)?.uid),
            Feature::Multicast => Some(self.caches.namespaces.get(key)?.uid),
            Feature::EgressService | Feature::ExternalGateway | Feature::NetworkConnect => {
                Some(self.caches.features.get(&feature)?.get(key)?.uid)
            }
        }
    }
}
