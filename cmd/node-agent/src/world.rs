//! The node as it is known, and the plan made of it: the one place where facts meet.
//! In: requests to read again, whatever source they come from. Out: [`Planned`] by a watch channel, and requests to the loops whose
//! part differs. Invariant: one task reads, remembers and plans; a loop that waits for its sink delays no plan.
//! Not here: what follows from facts (`plan_node`), and what loops make of their part.

mod beside;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::Configuration;
use kube_edge::Cache;
use model::nb::{Owner, Rows};
use model::node::Node;
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};
use netlink::dump;
use ovsdb::Client;
use plan_node::check::Severity;
use plan_node::paths::Paths;
use plan_node::{Declared, Facts, Memory, NodeConfig, NotYet, Plan, Snapshot, Undeclared};
use settings::{OvnTopology, Settings};
use telemetry::{Chain, WarnOnce};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::beside::{Advanced, Beside};
use crate::keys::{ApiKey, BridgeKey, FilterKey, PortKey, Queues, SouthKey};
use crate::loops::north::Blocked;
use crate::metrics::Metrics;
use crate::network_in_force::NetworkInForce;
use crate::networks::Networks;
use crate::refused_vrfs::RefusedVrfs;
use crate::services::AllowedServices;

/// Facts that change together are read together: within this time, and where reading and planning is dear, within so many times
/// what it took last, but no longer than [`RETRY`]. A thousand Nodes that come one by one make no thousand plans.
const SETTLE: Duration = Duration::from_millis(20);
const SHARE: u32 = 4;
/// Facts are read again after this time though nothing asked for it: while some are missing, and always.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(300);
/// So many new problems are logged at a time.
const NAMED: usize = 20;

/// A Node, and those of its annotations that this agent writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEntry {
    pub(crate) node: Arc<Node>,
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
    /// Networks that are not built as they are declared: why.
    pub(crate) unbuilt: BTreeMap<NetworkName, Unbuilt>,
    /// The Northbound schema was known once: which columns there are is no guess.
    pub(crate) schema: bool,
    /// The Nodes by name; `None` until they have been listed.
    pub(crate) nodes: Option<BTreeSet<NodeName>>,
    /// `external_ids:system-id`; `None` until it was known.
    pub(crate) chassis: Option<String>,
}

/// Why a network is not built as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unbuilt {
    /// CamelCase.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) message: String,
}

/// What was said before, so that it is said once.
#[derive(Default)]
struct Told {
    problems: BTreeSet<Problem>,
    stale: WarnOnce<NetworkName>,
    broken: WarnOnce<Owner>,
}

impl Planned {
    /// Whether the network's part waits for what passes with the start of the node; what somebody has to change is in its
    /// condition, and keeps no other network's node from being ready.
    pub(crate) fn awaits(&self, network: &NetworkName) -> bool {
        let why = self.stale.get(network);
        why.is_some_and(|why| why.reason().is_none())
    }
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
    /// By EndpointSlice of Service `default/kubernetes`.
    pub(crate) api_servers: Cache<BTreeSet<IpAddr>>,
    pub(crate) services: AllowedServices,
    pub(crate) networks: Networks,
    pub(crate) refused_vrfs: RefusedVrfs,
    pub(crate) north: Client,
    pub(crate) switch: Client,
    pub(crate) metrics: Metrics,
    pub(crate) queues: Queues,
    /// Networks whose rows cannot be written.
    pub(crate) blocked: watch::Receiver<Blocked>,
    /// Ways to other nodes, and how large pods' packets are on them.
    pub(crate) paths: watch::Sender<Option<Paths>>,
    /// Beside OVN-Kubernetes: how far networks are led past the tunnels.
    pub(crate) beside: Option<Beside>,
}

impl World {
    /// Reads and plans, now and whenever facts changed. The channel holds nothing before the first plan.
    pub(crate) async fn run(
        mut self,
        changed: FactsChanged,
        planned: watch::Sender<Option<Arc<Planned>>>,
    ) {
        let answered = changed.clone();
        let (kube, configuration) = (self.kube.clone(), self.configuration.clone());
        let mut in_force = NetworkInForce::ask(kube, configuration, move || answered.note());
        let mut memory = Memory::new(node_config(&self.node, &self.settings));
        let (mut told, mut schema) = (Told::default(), false);
        loop {
            let begun = Instant::now();
            let declared = self.networks.declared().clone();
            let (networks, undeclared, known) = self.known_networks(&mut in_force, &declared);
            self.follow(&networks, &undeclared);
            let mut facts = self.read(networks, undeclared).await;
            if !known {
                // As if no Node were listed: of the network nothing is built, of the host everything.
                facts.nodes = None;
            }
            schema |= facts.nat_has_match.is_some();
            self.forget_refused(&facts, &declared);
            let snapshot = memory.snapshot(facts);
            self.log(&snapshot, &declared, &mut told);
            self.tell_paths(&snapshot);
            let advanced = self.advance(&snapshot).await;
            let again = advanced.as_ref().and_then(|advanced| advanced.again);
            let next = self.planned(&snapshot, schema, &declared, (&mut told, advanced));
            let next = Arc::new(next);
            let before = planned.send_replace(Some(Arc::clone(&next)));
            self.enqueue(before.as_deref(), &next);
            // What cannot be read now may be readable without any event that says so; who mends an object tells.
            let is_mended_silently = |why: &NotYet| why.reason().is_none();
            let is_listed = declared.listed && !snapshot.unlisted;
            let waits = !known || !is_listed || next.stale.values().any(is_mended_silently);
            let wait = if waits { RETRY } else { SWEEP };
            let wait = again.map_or(wait, |again| again.min(wait));
            let (took, ended) = (begun.elapsed(), Instant::now());
            if tokio::time::timeout(wait, changed.0.notified())
                .await
                .is_ok()
            {
                tokio::time::sleep(settle(took, ended.elapsed())).await;
            }
        }
    }

    /// A VRF device that stands, or is of no network any more, is not refused.
    fn forget_refused(&self, facts: &Facts, declared: &Declared) {
        let Ok(links) = &facts.links else {
            return;
        };
        let devices = facts.networks.iter();
        let devices = devices.filter_map(|network| network.name.vrf_device(network.id));
        let missing = devices.filter(|device| !links.iter().any(|link| link.name == *device));
        if declared.listed {
            self.refused_vrfs.retain(&missing.collect());
        }
    }

    fn own(&self) -> Option<NodeEntry> {
        let own = self.nodes.get(&ObjectKey::new("", self.node.as_str()));
        own.map(|own| own.value)
    }

    /// The networks to plan for, the default one first, and what is not known of others; false: what is in force of the default one is
    /// not known yet.
    fn known_networks(
        &self,
        in_force: &mut NetworkInForce,
        declared: &Declared,
    ) -> (Vec<Network>, Undeclared, bool) {
        if let Some(beside) = &self.beside {
            return self.networks_beside(beside, declared);
        }
        let network = in_force.network();
        let known = network.is_some() && declared.default_network.is_some();
        let configured = || self.configuration.now().settings.default_network();
        let default = Network {
            advertised: declared.default_network.unwrap_or_default(),
            ..network.unwrap_or_else(configured)
        };
        let of_users = declared.networks.values().cloned();
        let waiting = declared.waiting();
        let management_ports = self.switch.with_replica(ovn::switch::port_owners);
        let management_ports = management_ports.and_then(Result::ok);
        let standing = management_ports.iter().flat_map(BTreeMap::values);
        let undeclared = Undeclared {
            unlisted: !declared.listed,
            waiting: waiting.map(|(n, why)| (n.clone(), why.clone())).collect(),
            standing: standing.cloned().collect(),
        };
        let all = std::iter::once(default).chain(of_users).collect();
        (all, undeclared, known)
    }

    async fn read(&self, networks: Vec<Network>, undeclared: Undeclared) -> Facts {
        let links = match tokio::task::spawn_blocking(dump::links).await {
            Ok(links) => links.map_err(|error| Chain(&error).to_string()),
            Err(_) => Err("the reading thread ended badly".to_owned()),
        };
        let bridge = &self.settings.gateway.interface;
        let switch = &self.switch;
        let chassis = switch.with_replica(ovn::switch::system_id);
        let mappings = switch.with_replica(ovn::switch::physical_networks);
        let encap_ips = switch.with_replica(ovn::switch::encap_ips);
        let ports = switch.with_replica(|replica| ovn::switch::decode_bridge(replica, bridge));
        let listed = self.nodes.ready();
        let nodes = || {
            let all = |map: &BTreeMap<_, kube_edge::Entry<NodeEntry>>| {
                map.values().map(|e| Arc::clone(&e.value.node)).collect()
            };
            self.nodes.with(all)
        };
        let api_servers = || {
            let all = |map: &BTreeMap<_, kube_edge::Entry<BTreeSet<IpAddr>>>| {
                map.values().flat_map(|e| e.value.clone()).collect()
            };
            self.api_servers.with(all)
        };
        let own = self.own();
        let schema = self.north.schema();
        let row_owners = self.north.with_replica(ovn::north::owners);
        let management_ports = switch.with_replica(ovn::switch::port_owners);
        let management_ports = management_ports.and_then(Result::ok);
        Facts {
            networks,
            undeclared,
            nodes: listed.then(nodes),
            api_servers: self.api_servers.ready().then(api_servers),
            services: self.services.now(),
            release: own.and_then(|own| own.release),
            links,
            chassis: chassis.and_then(Result::ok).flatten(),
            physical_networks: mappings.and_then(Result::ok).unwrap_or_default(),
            encap_ips: encap_ips.and_then(Result::ok),
            ports: ports.and_then(Result::ok).flatten(),
            nat_has_match: schema.map(|schema| ovn::north::nat_has_match(&schema)),
            refused_vrfs: self.refused_vrfs.now(),
            management_ports,
            row_owners: row_owners.and_then(Result::ok),
        }
    }

    /// Nodes that cannot be listed now are where they were.
    fn tell_paths(&self, snapshot: &Snapshot) {
        if !self.nodes.ready() {
            return;
        }
        let paths = self.nodes.with(|nodes| {
            let nodes = nodes.values().map(|entry| &*entry.value.node);
            plan_node::paths::plan(snapshot, nodes)
        });
        self.paths.send_if_modified(|before| {
            let differs = before.as_ref() != Some(&paths);
            *before = Some(paths);
            differs
        });
    }

    fn planned(
        &self,
        snapshot: &Snapshot,
        schema: bool,
        declared: &Declared,
        (told, advanced): (&mut Told, Option<Advanced>),
    ) -> Planned {
        let (plan, violations, mut unbuilt) = match advanced {
            None => {
                let (plan, violations) = plan_node::sound_plan(snapshot.clone());
                (plan, violations, BTreeMap::new())
            }
            Some(advanced) => {
                let plan = self.plan_beside(snapshot, &advanced);
                (plan, Vec::new(), advanced.unbuilt)
            }
        };
        told.broken
            .retain(|of| violations.iter().any(|(owner, _)| owner == of));
        for (owner, violation) in &violations {
            let text = format!("the plan of {owner}: {violation}");
            told.broken.warn(owner.clone(), text);
        }
        let stale = &snapshot.stale;
        for (owner, violation) in &violations {
            if let Owner::Network(name) = owner
                && violation.severity() == Severity::Error
            {
                let message = violation.to_string();
                let reason = "PlanRefused";
                unbuilt.insert(name.clone(), Unbuilt { reason, message });
            }
        }
        for (name, why) in stale {
            let message = why.to_string();
            let why = why.reason().map(|reason| Unbuilt { reason, message });
            unbuilt.extend(why.map(|why| (name.clone(), why)));
        }
        let troubles = declared.troubles.iter();
        for (name, trouble) in troubles.filter(|(name, _)| self.is_told_of(name, snapshot)) {
            let (reason, message) = (trouble.problem().reason, trouble.problem().to_string());
            unbuilt.insert(name.clone(), Unbuilt { reason, message });
        }
        let unsaid = unbuilt.keys().filter(|name| !stale.contains_key(*name));
        let of_objects = unsaid.count() + self.ignored(declared).count();
        let problems = snapshot.problems.len() + stale.len() + violations.len() + of_objects;
        self.metrics.problems.set_plan(problems);
        let here: BTreeSet<&NetworkName> = snapshot.here().map(|(name, _)| name).collect();
        let names = snapshot.networks.keys().chain(unbuilt.keys());
        let blocked = self.blocked.borrow().clone();
        let built = |name: &NetworkName| {
            here.contains(name) && !unbuilt.contains_key(name) && !blocked.contains_key(name)
        };
        self.metrics
            .built
            .set(names.map(|name| (name.clone(), built(name))));
        let names = |nodes: &BTreeMap<ObjectKey, kube_edge::Entry<NodeEntry>>| {
            nodes.values().map(|e| e.value.node.name.clone()).collect()
        };
        Planned {
            plan,
            stale: stale.clone(),
            unbuilt,
            schema,
            nodes: self.nodes.ready().then(|| self.nodes.with(names)),
            chassis: snapshot.machine.gateway.as_ref().map(|g| g.chassis.clone()),
        }
    }

    /// Says each problem once, and why a network rests on what was known before.
    fn log(&self, snapshot: &Snapshot, declared: &Declared, told: &mut Told) {
        let ignored = i64::try_from(snapshot.ignored.len()).unwrap_or(i64::MAX);
        self.metrics.claims_ignored.set(ignored);
        let troubles = declared.troubles.iter();
        let troubles = troubles.filter(|(name, _)| !snapshot.stale.contains_key(*name));
        let troubles = troubles.filter(|(name, _)| self.is_told_of(name, snapshot));
        let of_plan = snapshot.problems.iter().chain(&snapshot.ignored);
        let of_objects = self.ignored(declared);
        let of_objects = of_objects.chain(troubles.map(|(_, trouble)| trouble.problem()));
        let now: BTreeSet<Problem> = of_plan.chain(of_objects).cloned().collect();
        for problem in now.difference(&told.problems).take(NAMED) {
            tracing::warn!(reason = problem.reason, "{problem}");
        }
        told.problems = now;
        told.stale
            .retain(|name| snapshot.networks.contains_key(name));
        for name in snapshot.networks.keys() {
            match snapshot.stale.get(name) {
                Some(why) => {
                    let text = format!("network {name} stays as it is: {why}");
                    told.stale.warn(name.clone(), text);
                }
                None => told.stale.clear(name),
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
                && before.plan.steps == part.steps
        });
        if was.is_none() || !same_ground {
            queues.north.resync();
        }
        for owner in owners(was.map(|plan| &plan.north), &part.north) {
            queues.north.enqueue(owner);
        }
        for name in differing(was.map(|plan| &plan.ports), &part.ports) {
            queues.port.enqueue(PortKey::Port(name.clone()));
        }
        if was.is_none_or(|was| was.south != part.south) {
            queues.south.enqueue(SouthKey::Chassis);
        }
        let same_kernel = |was: &Plan| was.kernel == part.kernel && was.steering == part.steering;
        if !was.is_some_and(same_kernel) || !same_ground {
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
        if !same_ground || before.is_none_or(|before| before.unbuilt != now.unbuilt) {
            queues.api.enqueue(ApiKey::Report);
        }
        if was.is_none_or(|was| was.annotations != part.annotations) {
            queues.api.enqueue(ApiKey::Annotations);
        }
    }
}

/// How long facts are awaited that change together with one that changed, after a pass that took so long and `idle` since its end.
fn settle(took: Duration, idle: Duration) -> Duration {
    let share = took.saturating_mul(SHARE);
    share.saturating_sub(idle).clamp(SETTLE, RETRY)
}

/// Owners of rows that are to be looked at.
fn owners(before: Option<&BTreeMap<Owner, Rows>>, now: &BTreeMap<Owner, Rows>) -> BTreeSet<Owner> {
    let mut owners: BTreeSet<Owner> = differing(before, now).cloned().collect();
    if before.is_some_and(|before| !before.keys().eq(now.keys())) {
        // A network's rows can keep the node's own from being written, and one that left may have.
        owners.insert(Owner::Node);
    }
    owners
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
        transit_subnets: settings.transit_subnets.clone(),
        beside: settings.ovn.topology == OvnTopology::Adopt,
    }
}

#[cfg(test)]
mod tests {
    use model::nb::{Columns, RowKey, Table};

    use super::*;

    #[test]
    fn rows_of_the_node_are_looked_at_whenever_a_network_comes_or_leaves() {
        let rows = |name: &str| Rows::from([(RowKey::root(Table::Router, name), Columns::new())]);
        let (red, blue) = (
            Owner::Network(NetworkName::from("red")),
            Owner::Network(NetworkName::from("blue")),
        );
        let both = BTreeMap::from([
            (Owner::Node, rows("cluster")),
            (red.clone(), rows("red")),
            (blue.clone(), rows("blue")),
        ]);
        let mut without = both.clone();
        without.remove(&red);
        let mut other = both.clone();
        other.insert(blue.clone(), rows("azure"));
        assert_eq!(owners(Some(&both), &both), [].into());
        assert_eq!(owners(None, &both), both.keys().cloned().collect());
        assert_eq!(owners(Some(&both), &other), [blue].into());
        let moved = BTreeSet::from([Owner::Node, red]);
        assert_eq!(owners(Some(&both), &without), moved);
        assert_eq!(owners(Some(&without), &both), moved);
    }

    #[test]
    fn plans_take_a_fifth_of_the_time_at_most_and_facts_wait_a_second_at_most() {
        let settled = |(took, idle)| {
            let (took, idle) = (Duration::from_millis(took), Duration::from_millis(idle));
            settle(took, idle).as_millis()
        };
        let waits = [(0, 0), (1, 0), (5, 0), (50, 0), (250, 0), (5000, 0)].map(settled);
        assert_eq!(waits, [20, 20, 20, 200, 1000, 1000]);
        // Time without a pass is time in which facts were awaited.
        let waits = [(50, 30), (50, 150), (50, 190), (250, 5000), (5000, 15_000)].map(settled);
        assert_eq!(waits, [170, 50, 20, 20, 1000]);
    }
}
