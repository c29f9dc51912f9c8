//! The fabric's sessions: looks at what nodes report, and requests a pass of the RouteAdvertisements when the state changes.
//! In: BGPSessionStates, the clock. Out: a state for the next pass of the fabric's RouteAdvertisements.
//! Invariant: after a start what stands in the condition holds until there is a state.
//! Not here: the state (`plan_cluster::sessions`), writing the condition.

use std::time::Duration;

use model::intent::Condition;
use plan_cluster::sessions::{self, Trying};
use plan_cluster::{World, fabric};
use reconcile::Action;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ClusterReconciler;
use crate::caches::Advertisement;
use crate::key::Key;

/// What is remembered from look to look.
#[derive(Debug)]
pub(crate) struct Watched {
    begun: Instant,
    trying: Trying,
    state: Option<sessions::State>,
    alarm: Option<JoinHandle<()>>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            trying: Trying::new(),
            state: None,
            alarm: None,
        }
    }
}

impl ClusterReconciler {
    pub(super) fn sessions(&mut self, world: &World) -> Action {
        let Some(cache) = self.caches.sessions.as_ref().filter(|c| c.ready()) else {
            return Action::Done;
        };
        let ends: Vec<sessions::End> = cache.with(|map| {
            let ends = map.values().filter_map(|entry| entry.value.clone());
            ends.collect()
        });
        let now = self.watched.begun.elapsed();
        let seen = sessions::evaluate(world, &ends, &self.watched.trying, now);
        self.watched.trying = seen.trying;
        if let Some(old) = self.watched.alarm.take() {
            old.abort();
        }
        if let Some(at) = seen.again_at {
            let queue = self.clients.queue.clone();
            let rest: Duration = at.saturating_sub(now);
            self.watched.alarm = Some(tokio::spawn(async move {
                tokio::time::sleep(rest).await;
                queue.enqueue(Key::Sessions);
            }));
        }
        if self.watched.state.as_ref() != Some(&seen.state) {
            self.watched.state = Some(seen.state);
            for name in fabric::plan(world).advertisements.into_keys() {
                self.clients.queue.enqueue(Key::Advertisement(name));
            }
        }
        Action::Done
    }

    /// The existing and the wanted condition on a RouteAdvertisements.
    pub(super) fn session_conditions(
        &self,
        world: &World,
        name: &str,
        existing: &Advertisement,
    ) -> (Option<Condition>, Option<Condition>) {
        let mut all = existing.conditions.iter();
        let existing = all
            .find(|c| c.kind == sessions::CONDITION)
            .map(|c| Condition {
                kind: sessions::CONDITION,
                status: c.status,
                reason: c.reason.clone(),
                message: c.message.clone(),
            });
        let wanted = if !fabric::is_of_fabric(world, name) {
            None
        } else if let Some(state) = &self.watched.state {
            sessions::condition(state, existing.clone())
        } else {
            existing.clone()
        };
        (existing, wanted)
    }
}
