//! The node as it is known, and the plan made of it: the one place where facts meet.
//! In: requests to read again, whatever source they come from. Out: [`Planned`] by a watch channel, and requests to the loops whose
//! part differs. Invariant: one task reads, remembers and plans; a loop that waits for its sink delays no plan.
//! Not here: what follows from facts (`plan_node`), and what loops make of their part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::Configuration;
use kube_edge::Cache;
use model::nb::Owner;
use model::node::Node;
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};
use netlink::dump;
use ovsdb::Client;
use plan_node::{Facts, Memory, NodeConfig, NotYet, Plan, Snapshot};
use settings::Settings;
use telemetry::{Chain, WarnOnce};
use tokio::sync::{Notify, watch};

use crate::keys::{ApiKey, BridgeKey, FilterKey, PortKey, Queues};
use crate::metrics::Metrics;
use crate::network_in_force::NetworkInForce;

/// Facts that change together are read together.
const SETTLE: Duration = Duration::from_millis(20);
/// Facts are read again after this time though nothing asked for it: while some are missing, and always.
const RETRY: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(300);
/// So many new problems are logged at a time.
const NAMED: usize = 20;

/// A Node, and those of its annotations that this agent writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEntry {
    pub(crate) node: Node,
    pub(crate) published: BTreeMap<String, String>,
    /// Annotation `noverlay.io/release-withdrawals`.
    pub(crate) release: Option<String>,
}

/// The last plan, and what it rests on.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// Networks whose part rests on what was known before, or is not known yet: why.
    pub(crate) stale: BTreeMap<NetworkName, NotYet>,
    /// The Northbound schema was known once: which columns there are is no guess.
    pub(crate) schema: bool,
    /// The Nodes by name; `None` until they have been listed.
    pub(crate) nodes: Option<BTreeSet<NodeName>>,
    /// `external_ids:system-id`; `None` until it was known.
    pub(crate) chassis: Option<String>,
}

/// Asks for the facts to be read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct FactsChanged(Arc<Notify>);

impl FactsChanged {
    /// A fact may be another one now.
    pub(crate) fn note(&self) {
        self.0.notify_one();
    }
}

/// Who reads and plans.
pub(crate) struct World {
    pub(crate) node: NodeName,
    pub(crate) kube: kube::Client,
    pub(crate) settings: Arc<Settings>,
    /// What of the configuration may change while the daemon runs.
    pub(crate) configuration: Configuration,
    pub(crate) nodes: Cache<NodeEntry>,
    pub(crate) north: Client,
    pub(crate) switch: Client,
    pub(crate) metrics: Metrics,
    pub(crate) queues: Queues,
}

impl World {
    /// Reads and plans, now and whenever facts changed. The channel holds nothing before the first plan.
    pub(crate) async fn run(
        self,
        changed: FactsChanged,
        planned: watch::Sender<Option<Arc<Planned>>>,
    ) {
        let answered = changed.clone();
        let (kube, configuration) = (self.kube.clone(), self.configuration.clone());
        let mut in_force = NetworkInForce::ask(kube, configuration, move || answered.note());
        let mut memory = Memory::new(node_config(&self.node, &self.settings));
        let (mut warned, mut broken) = (WarnOnce::default(), WarnOnce::default());
        let (mut problems, mut schema) = (BTreeSet::new(), false);
        loop {
            let network = in_force.network();
            let known = network.is_some();
            let declared = || self.configuration.now().settings.default_network();
            let mut facts = self.read(vec![network.unwrap_or_else(declared)]).await;
            if !known {
                // As if no Node were listed: of the network nothing is built, of the host everything.
                facts.nodes = None;
            }
            schema |= facts.nat_has_match.is_some();
            let snapshot = memory.snapshot(facts);
            self.log(&snapshot, &mut problems, &mut warned);
            let next = Arc::new(self.planned(&snapshot, schema, &mut broken));
            let before = planned.send_replace(Some(Arc::clone(&next)));
            self.enqueue(before.as_deref(), &next);
            // What cannot be read now may be readable without any event that says so.
            let wait = if next.stale.is_empty() { SWEEP } else { RETRY };
            if tokio::time::timeout(wait, changed.0.notified())
                .await
                .is_ok()
            {
                tokio::time::sleep(SETTLE).await;
            }
        }
    }

    async fn read(&self, networks: Vec<Network>) -> Facts {
        let links = match tokio::task::spawn_blocking(dump::links).await {
            Ok(links) => links.map_err(|error| Chain(&error).to_string()),
            Err(_) => Err("the reading thread ended badly".to_owned()),
        };
        let bridge = &self.settings.gateway.interface;
        let switch = &self.switch;
        let chassis = switch.with_replica(ovn::switch::system_id);
        let mappings = switch.with_replica(ovn::switch::physical_networks);
        let ports = switch.with_replica(|replica| ovn::switch::decode_bridge(replica, bridge));
        let listed = self.nodes.ready();
        let nodes = || {
            let all = |map: &BTreeMap<_, kube_edge::Entry<NodeEntry>>| {
                map.values().map(|e| e.value.node.clone()).collect()
            };
            self.nodes.with(all)
        };
        let own = self.nodes.get(&ObjectKey::new("", self.node.as_str()));
        let schema = self.north.schema();
        Facts {
            networks,
            nodes: listed.then(nodes),
            release: own.and_then(|own| own.value.release),
            links,
            chassis: chassis.and_then(Result::ok).flatten(),
            physical_networks: mappings.and_then(Result::ok).unwrap_or_default(),
            ports: ports.and_then(Result::ok).flatten(),
            nat_has_match: schema.map(|schema| ovn::north::nat_has_match(&schema)),
        }
    }

    fn planned(&self, snapshot: &Snapshot, schema: bool, warned: &mut WarnOnce<Owner>) -> Planned {
        let (plan, violations) = plan_node::sound_plan(snapshot.clone());
        for (owner, violation) in &violations {
            warned.warn(owner.clone(), format!("the plan of {owner}: {violation}"));
        }
        let problems = snapshot.problems.len() + snapshot.stale.len() + violations.len();
        self.metrics.problems.set_plan(problems);
        let names = |nodes: &BTreeMap<ObjectKey, kube_edge::Entry<NodeEntry>>| {
            nodes.values().map(|e| e.value.node.name.clone()).collect()
        };
        Planned {
            plan,
            stale: snapshot.stale.clone(),
            schema,
            nodes: self.nodes.ready().then(|| self.nodes.with(names)),
            chassis: snapshot.machine.gateway.as_ref().map(|g| g.chassis.clone()),
        }
    }

    /// Says each problem once, and why a network rests on what was known before.
    fn log(
        &self,
        snapshot: &Snapshot,
        before: &mut BTreeSet<Problem>,
        warned: &mut WarnOnce<NetworkName>,
    ) {
        let ignored = i64::try_from(snapshot.ignored.len()).unwrap_or(i64::MAX);
        self.metrics.claims_ignored.set(ignored);
        let all = snapshot.problems.iter().chain(&snapshot.ignored);
        let now: BTreeSet<Problem> = all.cloned().collect();
        for problem in now.difference(before).take(NAMED) {
            tracing::warn!(reason = problem.reason, "{problem}");
        }
        *before = now;
        for name in snapshot.networks.keys() {
            match snapshot.stale.get(name) {
                Some(why) => {
                    let text = format!("network {name} stays as it is: {why}");
                    warned.warn(name.clone(), text);
                }
                None => warned.clear(name),
            }
        }
    }

    fn enqueue(&self, before: Option<&Planned>, now: &Planned) {
        let queues = &self.queues;
        let was = before.map(|planned| &planned.plan);
        let part = &now.plan;
        let same_ground = before.is_some_and(|before| {
            before.nodes == now.nodes
                && before.chassis == now.chassis
                && before.schema == now.schema
                && before.stale == now.stale
                && before.plan.unknown == part.unknown
        });
        if was.is_none() || !same_ground {
            queues.north.resync();
        }
        for owner in differing(was.map(|plan| &plan.north), &part.north) {
            queues.north.enqueue(owner.clone());
        }
        for name in differing(was.map(|plan| &plan.ports), &part.ports) {
            queues.port.enqueue(PortKey::Port(name.clone()));
        }
        if was.is_none_or(|was| was.kernel != part.kernel) || !same_ground {
            queues.port.resync();
        }
        if was.is_none_or(|was| was.nft != part.nft) || !same_ground {
            queues.filter.enqueue(FilterKey::Ruleset);
        }
        if was.is_none_or(|was| was.flows != part.flows) {
            queues.bridge.enqueue(BridgeKey::Flows);
        }
        for name in differing(was.map(|plan| &plan.learn), &part.learn) {
            queues.import.enqueue(name.clone());
        }
        if before.is_none_or(|before| before.stale != now.stale) {
            queues.import.resync();
        }
        if !same_ground {
            queues.api.enqueue(ApiKey::Report);
        }
        if was.is_none_or(|was| was.annotations != part.annotations) {
            queues.api.enqueue(ApiKey::Annotations);
        }
    }
}

/// Keys whose values differ, or that are in one of both only.
fn differing<'a, K: Ord, V: PartialEq>(
    before: Option<&'a BTreeMap<K, V>>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    let changed = now
        .iter()
        .filter(move |(key, value)| before.and_then(|before| before.get(key)) != Some(value));
    let gone = before.into_iter().flatten();
    let gone = gone.filter(|(key, _)| !now.contains_key(key));
    changed.chain(gone).map(|(key, _)| key)
}

fn node_config(node: &NodeName, settings: &Settings) -> NodeConfig {
    let gateway = &settings.gateway;
    NodeConfig {
        node: node.clone(),
        bridge: gateway.interface.clone(),
        next_hops: gateway.next_hops.clone(),
        mode: gateway.mode,
        ephemeral_port_range: gateway.ephemeral_port_range,
        bgp_default: gateway.bgp_default,
        masquerade_subnets: gateway.masquerade_subnets.clone(),
        strict_isolation: !settings.features.loose_isolation,
        service_cidrs: settings.service_cidrs.clone(),
    }
}
