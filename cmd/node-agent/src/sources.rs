//! What enqueues what: Nodes, the API server's addresses, objects of networks, netlink, the flow monitor, the two databases, FRR.
//! In: subscriptions. Out: requests, and the cache of Nodes. Invariant: a source that may have lost something enqueues everything.
//! Not here: state; the loops read it themselves.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Configuration, Daemon};
use host::{BridgeControl, FlowEvent};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_edge::cache::watch_labelled;
use kube_edge::{Cache, watch};
use model::node::annotation;
use model::{NodeName, ObjectKey};
use netlink::{FilterWatcher, Watcher};
use ovsdb::{Client, Replica};
use settings::{OvnTopology, Settings};
use telemetry::{Chain, Readiness};

use crate::beside::Sight;
use crate::kernel_events::KernelEvents;
use crate::keys::{ApiKey, BridgeKey, FilterKey, PortKey, Queues, SouthKey};
use crate::metrics::Metrics;
use crate::networks::Networks;
use crate::refused_vrfs::RefusedVrfs;
use crate::world::{FactsChanged, NodeEntry};

/// Annotations that this agent publishes where it builds the topology.
const PUBLISHED: [&str; 7] = [
    annotation::ENCAP_IPS,
    annotation::PRIMARY_IFADDR,
    annotation::HOST_CIDRS,
    annotation::L3_GATEWAY,
    annotation::CHASSIS_ID,
    annotation::HOST_MTU,
    annotation::UNDERLAY_READY,
];
/// Beside OVN-Kubernetes, whose the others are.
const PUBLISHED_BESIDE: [&str; 2] = [annotation::HOST_MTU, annotation::UNDERLAY_READY];

/// What sources follow, and whom they tell.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) node: NodeName,
    /// What the daemon was started with.
    pub(crate) settings: Arc<Settings>,
    pub(crate) configuration: Configuration,
    pub(crate) north: Client,
    /// Only where the topology is built here.
    pub(crate) south: Option<Client>,
    pub(crate) switch: Client,
    pub(crate) facts: FactsChanged,
    pub(crate) refused_vrfs: RefusedVrfs,
    pub(crate) events: Arc<KernelEvents>,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    /// Beside OVN-Kubernetes: what loops saw.
    pub(crate) sight: Option<Sight>,
}

impl Sources {
    /// OVN-Kubernetes builds the topology.
    pub(crate) fn is_beside(&self) -> bool {
        self.settings.ovn.topology == OvnTopology::Adopt
    }
}

/// Starts every source; returns the cache of Nodes.
pub(crate) fn start(
    kube: &kube::Client,
    sources: &Sources,
    daemon: &mut Daemon,
) -> Cache<NodeEntry> {
    daemon.spawn_source("kernel", kernel(sources.clone()));
    daemon.spawn_source("packet filter", filter(sources.clone()));
    let followed = north(sources.clone(), daemon.readiness.clone());
    daemon.spawn_source("northbound database", followed);
    if let Some(client) = sources.south.clone() {
        daemon.spawn_source("bridge's flows", flows(sources.clone()));
        daemon.spawn_source("southbound database", south(sources.clone(), client));
    }
    daemon.spawn_source("switch database", switch(sources.clone()));
    nodes(kube, sources, daemon.readiness.clone())
}

/// The Northbound database: what loops write there, and what the plan takes from its schema.
async fn north(sources: Sources, ready: Readiness) {
    let (facts, to) = (sources.facts, sources.queues);
    let north = sources.north.clone();
    let (mut before, mut seen) = (None, None);
    let is_beside = sources.settings.ovn.topology == OvnTopology::Adopt;
    let enqueue = move |synced| {
        let is_other = before.replace(synced) != Some(synced);
        if is_other {
            ready.set("ovn", synced);
        }
        // The schema may be another one, rows stand for other networks, OVN-Kubernetes translates otherwise.
        let look = |replica: &Replica| {
            let owners = ovn::north::owners(replica).ok()?;
            let translations = is_beside.then(|| ovn::north::translations(replica));
            Some((owners, translations.transpose().ok()?))
        };
        let now = north.with_replica(look).flatten();
        let now = now.map(|now| (now, north.has_conditions()));
        let differs = now.is_some() && now != seen;
        if differs {
            seen = now;
        }
        if is_other || differs {
            facts.note();
        }
        to.north.resync();
        to.import.resync();
    };
    follow(sources.north, sources.metrics, "north", enqueue).await;
}

/// The Southbound database: chassis that somebody else changed.
async fn south(sources: Sources, client: Client) {
    let queue = sources.queues.south;
    let enqueue = move |_| queue.enqueue(SouthKey::Chassis);
    follow(client, sources.metrics, "south", enqueue).await;
}

/// The switch's database: ports, and what the plan takes from the bridge.
async fn switch(sources: Sources) {
    let (facts, to) = (sources.facts, sources.queues);
    let enqueue = move |_| {
        facts.note();
        // What somebody took away by hand is in no plan.
        to.bridge.enqueue(BridgeKey::Flows);
        to.port.resync();
    };
    follow(sources.switch, sources.metrics, "switch", enqueue).await;
}

/// Watches all Nodes; what is published and reported hangs on the own one only.
fn nodes(kube: &kube::Client, sources: &Sources, ready: Readiness) -> Cache<NodeEntry> {
    let (facts, to) = (sources.facts.clone(), sources.queues.clone());
    let own = sources.node.clone();
    let changed = move |key: Option<&ObjectKey>| {
        facts.note();
        ready.set("caches", true);
        if key.is_none_or(|key| key.name == own.as_str()) {
            to.api.enqueue(ApiKey::Annotations);
            to.api.enqueue(ApiKey::Report);
        }
    };
    let published: &[&str] = if sources.is_beside() {
        &PUBLISHED_BESIDE
    } else {
        &PUBLISHED
    };
    let decode = move |object: &KubeNode| decode(object, published);
    watch(kube::Api::all(kube.clone()), None, decode, changed)
}

/// Watches where the API server is: it writes its own addresses.
pub(crate) fn api_servers(kube: &kube::Client, sources: &Sources) -> Cache<BTreeSet<IpAddr>> {
    let facts = sources.facts.clone();
    let slices: kube::Api<EndpointSlice> = kube::Api::namespaced(kube.clone(), "default");
    let of_service = "kubernetes.io/service-name=kubernetes";
    watch_labelled(slices, of_service, addresses, move |_| facts.note())
}

/// Of all endpoints: one that is about to end still answers.
fn addresses(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let all = slice.endpoints.iter().flat_map(|e| &e.addresses);
    all.filter_map(|address| address.parse().ok()).collect()
}

/// Watches what declares networks.
pub(crate) fn networks(kube: &kube::Client, sources: &Sources) -> Networks {
    let facts = sources.facts.clone();
    let default = sources.settings.network.nad.clone();
    Networks::start(kube, default, sources.is_beside(), move || facts.note())
}

fn decode(object: &KubeNode, published: &[&str]) -> NodeEntry {
    let annotations = object.metadata.annotations.as_ref();
    NodeEntry {
        node: Arc::new(api::decode_node(object)),
        published: annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| published.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        release: annotations.and_then(|all| all.get(annotation::RELEASE_WITHDRAWALS).cloned()),
    }
}

/// Netlink: events are hints; each says only which loops have to look.
async fn kernel(sources: Sources) {
    let Sources {
        facts,
        events,
        queues,
        metrics,
        ..
    } = sources;
    let mut reported = false;
    loop {
        let mut watcher = match Watcher::open() {
            Ok(watcher) => watcher,
            Err(error) => {
                if !std::mem::replace(&mut reported, true) {
                    tracing::error!(error = %Chain(&error), "no events from the kernel; trying again each second");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        reported = false;
        tracing::info!(buffer = watcher.granted, "following the kernel");
        // What happened before the subscription is read by the passes that this brings.
        facts.note();
        events.note_everything();
        queues.import.resync();
        queues.port.resync();
        loop {
            let change = match watcher.changed().await {
                Ok(change) => change,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "lost the kernel's events, subscribing again");
                    break;
                }
            };
            if change.lost {
                tracing::warn!("events of the kernel were lost, reading everything");
                metrics.netlink_lost.inc();
            }
            for network in events.note(&change) {
                queues.import.enqueue(network);
            }
            let is_fact = change.links || change.addresses || change.rules || change.lost;
            if is_fact {
                facts.note();
            }
            // The host's own routes to pods are routes too; those of BGP are not among them.
            if is_fact || change.other_routes {
                queues.port.enqueue(PortKey::Kernel);
            }
        }
    }
}

/// The packet filter: any change, also our own. A kernel without nftables tells nothing; what cannot be written is said there.
async fn filter(sources: Sources) {
    let queue = sources.queues.filter;
    loop {
        if let Ok(mut watcher) = FilterWatcher::open() {
            queue.enqueue(FilterKey::Ruleset);
            while watcher.changed().await.is_ok() {
                queue.enqueue(FilterKey::Ruleset);
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// The bridge's flow table: any change, also our own, and the switch going away.
async fn flows(sources: Sources) {
    let Sources {
        settings, queues, ..
    } = sources;
    let control = BridgeControl::new(settings.ovs_rundir.clone());
    let mut watch = control.watch(&settings.gateway.interface);
    let mut before = FlowEvent::Changed;
    loop {
        let event = watch.changed().await;
        if event == FlowEvent::Changed || before == FlowEvent::Changed {
            queues.bridge.enqueue(BridgeKey::Flows);
        }
        if event != before {
            tracing::info!(
                reachable = event == FlowEvent::Changed,
                "the bridge's flow table"
            );
        }
        before = event;
    }
}

/// A database: every change of its replica, and of the session.
async fn follow(
    client: Client,
    metrics: Metrics,
    name: &'static str,
    mut enqueue: impl FnMut(bool),
) {
    let mut status = client.watch();
    let mut before: Option<(bool, u64, u64, u64)> = None;
    let mut reported: Option<String> = None;
    loop {
        let (synced, generation, sessions, conditions, error) = {
            let now = status.borrow_and_update();
            let error = match &now.connection {
                ovsdb::Connection::Disconnected { error, .. } => error.clone(),
                ovsdb::Connection::Connecting | ovsdb::Connection::Synced => None,
            };
            (
                now.connection.is_synced(),
                now.generation,
                now.sessions,
                now.conditions,
                error,
            )
        };
        let error = error.map(|error| Chain(error.as_ref()).to_string());
        let was = before.map(|(was, ..)| was);
        if synced {
            if was != Some(true) {
                tracing::info!(database = name, "in step");
            }
            reported = None;
        } else if error.is_some() && error != reported {
            // Each reason once, however often it is tried; a look may come before the first attempt has failed.
            let error = error.as_deref().unwrap_or_default();
            tracing::warn!(database = name, error, "not in step");
        } else if was.is_none() {
            tracing::info!(database = name, "connecting");
        }
        if error.is_some() {
            reported = error;
        }
        metrics
            .session_up
            .with_label_values(&[name])
            .set(i64::from(synced));
        let now = (synced, generation, sessions, conditions);
        if before != Some(now) {
            before = Some(now);
            enqueue(synced);
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
