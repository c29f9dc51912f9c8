//! The fabric's sessions: looks at what nodes report, and requests a pass of the RouteAdvertisements when the state changes.
//! In: BGPSessionStates, while reflectors come or go their FRRNodeStates, the clock. Out: a state for the next pass of the
//! fabric's RouteAdvertisements, what the next step of a change of topology may rely on, and what it waits for.
//! Invariant: after a start what stands in the condition holds until there is a state.
//! Not here: the state (`plan_cluster::sessions`), what is waited for (`plan_cluster::fabric::awaited`), writing the conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
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

use super::{ClusterReconciler, planned};
use crate::caches::Advertisement;
use crate::key::Key;

/// What is remembered from look to look.
#[derive(Debug)]
pub(crate) struct Watched {
    begun: Instant,
    trying: Trying,
    state: Option<sessions::State>,
    /// What the topology waits for, where it was looked at, and since when it is told in these words.
    waiting: Option<(Option<Waiting>, Instant)>,
    /// Since when it waits.
    waits_since: Option<Instant>,
    /// What reflectors that are waited for reported, and when it was read.
    looked: BTreeMap<NodeName, (Instant, Reported)>,
    alarm: Option<JoinHandle<()>>,
    /// Since when what is waited for is reported: of reflectors by name, of the mesh.
    loaded: BTreeMap<NodeName, Instant>,
    meshed: Option<Instant>,
}

/// From the moment that a reflector has loaded its list, or that sessions are established, to the one at which all routes are
/// where they belong: FRR waits 5 s before it acts on a changed route-map (`bgp route-map delay-timer`).
const SPREAD: Duration = Duration::from_secs(10);

/// How often reflectors that are waited for are looked at: a report is up to 1 MiB large, and some never say what is waited for.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_SELDOM: Duration = Duration::from_secs(30);

/// So long the condition keeps its words while only what they name changes.
const WORDS: Duration = Duration::from_secs(10);

impl Watched {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            trying: Trying::new(),
            state: None,
            waiting: None,
            waits_since: None,
            looked: BTreeMap::new(),
            alarm: None,
            loaded: BTreeMap::new(),
            meshed: None,
        }
    }

    /// Another replica leads: what was seen before is no evidence of what is there when this one leads again.
    pub(super) fn follows(&mut self) {
        (self.state, self.waiting, self.waits_since) = (None, None, None);
        self.looked.clear();
        self.loaded.clear();
        self.meshed = None;
    }

    /// Until the next look: longer the longer it waits.
    fn pause(&self) -> Duration {
        let waited = self.waits_since.map_or(Duration::ZERO, |at| at.elapsed());
        (waited / 10).clamp(LOOK, LOOK_SELDOM)
    }
}

impl ClusterReconciler {
    pub(super) async fn sessions(&mut self, world: &Arc<World>, fabric: &fabric::Plan) -> Action {
        let planner = &mut self.planner;
        let plans = planned(|| planner.plan_all(world));
        // Without members nothing is known of a topology.
        let plan = plans.get(&fabric::base_name());
        let awaited = plan.filter(|plan| !plan.roles.is_empty());
        let awaited = awaited.map(|plan| plan.awaited.as_ref());
        let Some(cache) = self.caches.sessions.as_ref().filter(|c| c.ready()) else {
            // Without their kind nobody reports; what is not listed yet may say all that is waited for.
            let sessions = self.caches.sessions.as_ref();
            if sessions.is_none_or(|cache| cache.refused().is_some()) {
                self.waits_for((world, &[]), awaited, fabric);
            }
            return Action::Done;
        };
        let ends: Vec<sessions::End> = cache.with(|map| {
            let ends = map.values().filter_map(|entry| entry.value.clone());
            ends.collect()
        });
        let evidence = self.evidence(world, awaited.flatten(), &ends).await;
        self.waits_for((world, &ends), awaited, fabric);
        let waits = awaited.flatten().is_some();
        if self.worlds.report(evidence) {
            self.clients.queue.resync();
        }
        let now = self.watched.begun.elapsed();
        let seen = sessions::evaluate(world, &ends, &self.watched.trying, now);
        self.watched.trying = seen.trying;
        if let Some(old) = self.watched.alarm.take() {
            old.abort();
        }
        let look = waits.then(|| now + self.watched.pause());
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
            self.request_conditions(fabric);
        }
        Action::Done
    }

    /// Takes down what is waited for, and what it is told with.
    fn waits_for(
        &mut self,
        (world, ends): (&World, &[End]),
        awaited: Option<Option<&Awaited>>,
        fabric: &fabric::Plan,
    ) {
        let Some(awaited) = awaited else {
            return;
        };
        let watched = &mut self.watched;
        let reported = watched.looked.iter();
        let reported = reported.map(|(name, (_, says))| (name.clone(), *says));
        let reported = reported.collect();
        let now = planned(|| awaited.map(|a| awaited::waiting(world, a, ends, &reported)));
        watched.waits_since = match &now {
            Some(_) => watched.waits_since.or_else(|| Some(Instant::now())),
            None => None,
        };
        let keeps = watched.waiting.as_ref().is_some_and(|(told, since)| {
            *told == now || (since.elapsed() < WORDS && awaited::same_reason(told, &now))
        });
        if !keeps {
            watched.waiting = Some((now, Instant::now()));
            self.request_conditions(fabric);
        }
    }

    fn request_conditions(&self, plan: &fabric::Plan) {
        for name in plan.advertisements.keys() {
            let queue = &self.clients.queue;
            queue.enqueue(Key::Advertisement(name.clone()));
        }
    }

    /// What is reported of what the fabric waits for.
    async fn evidence(
        &mut self,
        world: &World,
        awaited: Option<&Awaited>,
        ends: &[End],
    ) -> Evidence {
        let (mut loaded, mut meshed) = (BTreeMap::new(), None);
        let mut looked = std::mem::take(&mut self.watched.looked);
        looked.retain(
            |name, _| matches!(awaited, Some(Awaited::Reflectors(all)) if all.contains(name)),
        );
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
                    let pause = self.watched.pause();
                    if looked.get(name).is_some_and(|(at, _)| at.elapsed() < pause) {
                        continue;
                    }
                    let says = self.reported(world, name).await;
                    if says == Reported::Reflects {
                        loaded.insert(name.clone(), Instant::now());
                    }
                    looked.insert(name.clone(), (Instant::now(), says));
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
        self.watched.looked = looked;
        evidence
    }

    /// What a node's FRRNodeState says of passing on what others announce.
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
            Some((waiting, _)) => awaited::condition(waiting.as_ref(), existing.clone()),
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
