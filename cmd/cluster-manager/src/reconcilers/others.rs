//! OVN-Kubernetes' own route advertisements beside us: two programs would answer one RouteAdvertisements.
//! In: the world. Out: which passes are left undone, and an event on the object by which it is known. Invariant: while it lasts nothing of
//! what is announced is written or taken away; when it ends, passes go on where they were.
//! Not here: by what it is known (`plan_cluster::others`).

use api::nad::NetworkAttachmentDefinition;
use model::intent::Event;
use plan_cluster::{World, others};

use super::ClusterReconciler;
use crate::key::Key;

impl ClusterReconciler {
    /// Whether a key's pass is left to OVN-Kubernetes. Tells it once.
    pub(super) fn is_left_to_others(&mut self, key: &Key, world: &World) -> bool {
        if !matches!(key, Key::Fabric | Key::Advertisement(_)) {
            return false;
        }
        let found = others::advertises(world, &self.settings.network.nad);
        let problem = found.as_ref().map(|(_, problem)| problem.clone());
        let is_news = self.others != problem;
        match &found {
            Some((of, problem)) if is_news => {
                tracing::warn!(reason = problem.reason, "{problem}");
                let uid = self.caches.attachments.get(of).map(|entry| entry.uid);
                let event = Event {
                    warning: true,
                    reason: problem.reason,
                    message: problem.message.clone(),
                };
                let uid = uid.unwrap_or_default();
                self.clients
                    .events
                    .publish::<NetworkAttachmentDefinition>(of, &uid, &event);
            }
            None if is_news => {
                tracing::info!("OVN-Kubernetes advertises no network itself any more")
            }
            Some(_) | None => {}
        }
        self.others = problem.clone();
        if *key == Key::Fabric && problem.is_some() {
            let problems: Vec<_> = problem.into_iter().collect();
            self.tell_problems(Key::Fabric, &problems);
        }
        found.is_some()
    }
}
