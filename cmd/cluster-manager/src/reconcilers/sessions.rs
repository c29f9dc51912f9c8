//! The fabric's sessions: looks at what nodes report, and requests a pass of the RouteAdvertisements when the state changes.
//! In: BGPSessionStates, while reflectors come or go their FRRNodeStates, the clock. Out: a state for the next pass of the
//! fabric's RouteAdvertisements, and what the next step of a change of topology may rely on.
//! Invariant: after a start what stands in the condition holds until there is a state.
//! Not here: the state (`plan_cluster::sessions`), writing the condition.

use std::collections::BTreeMap;
use std::time::Duration;

use api::frr_state::FRRNodeState;
use kube_edge::client::CALL_DEADLINE;
use kube_edge::untyped;
use model::NodeName;
use model::intent::Condition;
use plan_cluster::fabric::roles::Awaited;
use plan_cluster::sessions::{self, End, Trying};
use plan_cluster::world::Evidence;
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
    /// Since when what is waited for is reported: of reflectors by name, of the mesh.
    loaded: BTreeMap<NodeName, Instant>,
    meshed: Option<Instant>,
}

/// From the moment that a reflector has loaded its list, or that sessions are established, to the one at which all routes are
/// where they belong: FRR waits 5 s before it acts on a changed route-map (`bgp route-map delay-timer`).
const SPREAD: Duration = Duration::from_secs(10);

/// How often reflectors that are waited for are looked at.
const LOOK: Duration = Duration::from_secs(2);

impl Watched {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            trying: Trying::new(),
            state: None,
            alarm: None,
            loaded: BTreeMap::new(),
            meshed: None,
        }
    }
}

impl ClusterReconciler {
    pub(super) async fn sessions(&mut self, world: &World, plan: &fabric::Plan) -> Action {
        let Some(cache) = self.caches.sessions.as_ref().filter(|c| c.ready()) else {
            return Action::Done;
        };
        let ends: Vec<sessions::End> = cache.with(|map| {
            let ends = map.values().filter_map(|entry| entry.value.clone());
            ends.collect()
        });
        let evidence = self.evidence(world, plan.awaited.as_ref(), &ends).await;
        let waits = plan.awaited.is_some();
        if self.worlds.report(evidence) {
            self.clients.queue.resync();
        }
        let now = self.watched.begun.elapsed();
        let seen = sessions::evaluate(world, &ends, &self.watched.trying, now);
        self.watched.trying = seen.trying;
        if let Some(old) = self.watched.alarm.take() {
            old.abort();
        }
        let look = waits.then(|| now + LOOK);
        if let Some(at) = seen.again_at.into_iter().chain(look).min() {
            let queue = self.clients.queue.clone();
            let rest: Duration = at.saturating_sub(now);
            self.watched.alarm = Some(tokio::spawn(async move {
                tokio::time::sleep(rest).await;
                queue.enqueue(Key::Sessions);
            }));
        }
        if self.watched.state.as_ref() != Some(&seen.state) {
            self.watched.state = Some(seen.state);
            for name in plan.advertisements.keys() {
                let queue = &self.clients.queue;
                queue.enqueue(Key::Advertisement(name.clone()));
            }
        }
        Action::Done
    }

    /// What is reported of what the fabric waits for.
    async fn evidence(
        &mut self,
        world: &World,
        awaited: Option<&Awaited>,
        ends: &[End],
    ) -> Evidence {
        let (mut loaded, mut meshed) = (BTreeMap::new(), None);
        match awaited {
            None => {}
            Some(Awaited::Mesh) if !sessions::meshed(world, ends) => {}
            Some(Awaited::Mesh) => {
                meshed = Some(self.watched.meshed.unwrap_or_else(Instant::now));
            }
            Some(Awaited::Reflectors(awaited)) => {
                let reached = sessions::reached_by_all(world, ends);
                for name in awaited.intersection(&reached) {
                    // What it has loaded it keeps: once is enough.
                    if let Some(since) = self.watched.loaded.get(name) {
                        loaded.insert(name.clone(), *since);
                    } else if self.reflects(world, name).await {
                        loaded.insert(name.clone(), Instant::now());
                    }
                }
            }
        }
        let is_spread = |since: &Instant| since.elapsed() >= SPREAD;
        let reflecting = loaded.iter().filter(|(_, since)| is_spread(since));
        let evidence = Evidence {
            reflecting: reflecting.map(|(name, _)| name.clone()).collect(),
            meshed: meshed.as_ref().is_some_and(is_spread),
        };
        (self.watched.loaded, self.watched.meshed) = (loaded, meshed);
        evidence
    }

    /// Whether a node's FRR says that it passes on what others announce.
    async fn reflects(&self, world: &World, node: &NodeName) -> bool {
        let api = untyped::<FRRNodeState>(self.clients.client.clone(), None);
        let answer = tokio::time::timeout(CALL_DEADLINE, api.get_opt(node.as_str())).await;
        let Ok(Ok(Some(object))) = answer else {
            tracing::debug!(%node, "cannot read what its FRR has loaded");
            return false;
        };
        let state = object.try_parse::<FRRNodeState>().ok();
        let running = state.and_then(|s| s.status?.running_config);
        running.is_some_and(|running| fabric::passes_on(world, &running))
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
