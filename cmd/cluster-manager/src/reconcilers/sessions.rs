//! The fabric's sessions: looks at what nodes report, and requests a pass of the RouteAdvertisements when the state changes.
//! In: BGPSessionStates, while reflectors come or go their FRRNodeStates, the clock. Out: a state for the next pass of the
//! fabric's RouteAdvertisements, what the next step of a change of topology may rely on, and what it waits for.
//! Invariant: after a start what stands in the condition holds until there is a state.
//! Not here: the state (`plan_cluster::sessions`), what is waited for (`plan_cluster::fabric::awaited`), writing the conditions.

use std::collections::BTreeMap;
use std::time::Duration;

use api::frr_state::FRRNodeState;
use kube_edge::client::CALL_DEADLINE;
use kube_edge::untyped;
use model::NodeName;
use model::intent::Condition;
use plan_cluster::fabric::awaited::{self, Reported, Waiting};
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
    /// What the topology waits for, where it was looked at.
    waiting: Option<Option<Waiting>>,
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
            waiting: None,
            alarm: None,
            loaded: BTreeMap::new(),
            meshed: None,
        }
    }
}

impl ClusterReconciler {
    pub(super) async fn sessions(&mut self, world: &World, plan: &fabric::Plan) -> Action {
        let Some(cache) = self.caches.sessions.as_ref().filter(|c| c.ready()) else {
            // Without their kind nobody reports.
            let awaited = plan.awaited.as_ref();
            self.waits_for(
                awaited.map(|a| awaited::waiting(world, a, &[], &BTreeMap::new())),
                plan,
            );
            return Action::Done;
        };
        let ends: Vec<sessions::End> = cache.with(|map| {
            let ends = map.values().filter_map(|entry| entry.value.clone());
            ends.collect()
        });
        let awaited = plan.awaited.as_ref();
        let (evidence, reported) = self.evidence(world, awaited, &ends).await;
        self.waits_for(
            awaited.map(|a| awaited::waiting(world, a, &ends, &reported)),
            plan,
        );
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
            self.request_conditions(plan);
        }
        Action::Done
    }

    fn waits_for(&mut self, waiting: Option<Waiting>, plan: &fabric::Plan) {
        let now = Some(waiting);
        if self.watched.waiting != now {
            self.watched.waiting = now;
            self.request_conditions(plan);
        }
    }

    fn request_conditions(&self, plan: &fabric::Plan) {
        for name in plan.advertisements.keys() {
            let queue = &self.clients.queue;
            queue.enqueue(Key::Advertisement(name.clone()));
        }
    }

    /// What is reported of what the fabric waits for, and what the FRRNodeStates say that were looked at for it.
    async fn evidence(
        &mut self,
        world: &World,
        awaited: Option<&Awaited>,
        ends: &[End],
    ) -> (Evidence, BTreeMap<NodeName, Reported>) {
        let (mut loaded, mut meshed) = (BTreeMap::new(), None);
        let mut reported = BTreeMap::new();
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
                        continue;
                    }
                    let says = self.reported(world, name).await;
                    if says == Reported::Reflects {
                        loaded.insert(name.clone(), Instant::now());
                    }
                    reported.insert(name.clone(), says);
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
        (evidence, reported)
    }

    /// Whether a node's FRR says that it passes on what others announce.
    async fn reported(&self, world: &World, node: &NodeName) -> Reported {
        let api = untyped::<FRRNodeState>(self.clients.client.clone(), None);
        let answer = tokio::time::timeout(CALL_DEADLINE, api.get_opt(node.as_str())).await;
        let object = match answer {
            Ok(Ok(Some(object))) => object,
            Ok(Ok(None)) => return Reported::Missing,
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(%node, "cannot read what its FRR has loaded");
                return Reported::Unread;
            }
        };
        let state = object.try_parse::<FRRNodeState>().ok();
        let running = state.and_then(|s| s.status?.running_config);
        match running.filter(|running| !running.is_empty()) {
            None => Reported::Empty,
            Some(running) if fabric::passes_on(world, &running) => Reported::Reflects,
            Some(_) => Reported::ReflectsNot,
        }
    }

    /// The existing and the wanted condition of the topology on a RouteAdvertisements.
    pub(super) fn topology_conditions(
        &self,
        world: &World,
        name: &str,
        existing: &Advertisement,
    ) -> (Option<Condition>, Option<Condition>) {
        let existing = existing_condition(existing, awaited::CONDITION);
        let wanted = match &self.watched.waiting {
            _ if !fabric::is_of_fabric(world, name) => None,
            None => existing.clone(),
            Some(waiting) => awaited::condition(waiting.as_ref(), existing.clone()),
        };
        (existing, wanted)
    }

    /// The existing and the wanted condition of the sessions on a RouteAdvertisements.
    pub(super) fn session_conditions(
        &self,
        world: &World,
        name: &str,
        existing: &Advertisement,
    ) -> (Option<Condition>, Option<Condition>) {
        let existing = existing_condition(existing, sessions::CONDITION);
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

fn existing_condition(existing: &Advertisement, kind: &'static str) -> Option<Condition> {
    let existing = existing.conditions.iter().find(|c| c.kind == kind)?;
    Some(Condition {
        kind,
        status: existing.status,
        reason: existing.reason.clone(),
        message: existing.message.clone(),
    })
}
