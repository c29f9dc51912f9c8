//! What the node-agent reads: objects, the two databases, links. And whom a change pokes.
//! In: watches of the API server, sessions to the databases, netlink events, the bridge's flow monitor. Out: values, pokes.
//! Invariant: every source tells of itself before it is first read, so nothing that changes in between is missed.
//! Not here: decisions, writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::node_routes::{NodeRoutes, NodeRoutesStatus};
use host::{BridgeControl, FlowEvent};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::{Cache, watch};
use model::host::LinkFact;
use model::node::{Node, annotation};
use model::{NodeName, ObjectKey};
use netlink::{DumpError, Watcher};
use ovn::Switch;
use ovsdb::{AccessError, Client, Connection};
use reconcile::Poker;
use settings::Settings;
use telemetry::{Chain, Readiness};

use crate::metrics::Metrics;
use crate::{bridge_subjects, host_subjects, object_subjects, ovn_subjects};

/// Annotations of the own Node that the agent publishes.
pub(crate) const PUBLISHED: [&str; 5] = [
    annotation::PRIMARY_IFADDR,
    annotation::HOST_CIDRS,
    annotation::L3_GATEWAY,
    annotation::CHASSIS_ID,
    annotation::HOST_MTU,
];

/// A Node, and of the own one the annotations of ours as they stand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) node: Node,
    pub(crate) published: BTreeMap<String, String>,
}

/// The handles by which sources wake the loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pokers {
    pub(crate) bridge: Poker<bridge_subjects::Key>,
    pub(crate) ovn: Poker<ovn_subjects::Key>,
    pub(crate) host: Poker<host_subjects::Key>,
    pub(crate) objects: Poker<object_subjects::Key>,
}

impl Pokers {
    /// All loops look at everything.
    pub(crate) fn everything(&self) {
        self.bridge.poke_everything();
        self.ovn.poke_everything();
        self.host.poke_everything();
        self.objects.poke_everything();
    }
}

/// When the kernel first told of a change that no import pass has looked at yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstEvent(Arc<Mutex<Option<Instant>>>);

impl FirstEvent {
    fn note(&self) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(now);
    }

    /// The moment, once.
    pub(crate) fn take(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a door measures how long its work took"
)]
fn now() -> Instant {
    Instant::now()
}

/// Everything that can be read. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) settings: Arc<Settings>,
    pub(crate) node: NodeName,
    pub(crate) nodes: Cache<Seen>,
    pub(crate) reports: Cache<Option<NodeRoutesStatus>>,
    pub(crate) north: Client,
    pub(crate) switch: Client,
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The database was never reached since the start.
    #[error("database {0} has not been read yet")]
    NotYet(&'static str),
    /// The replica is not as its schema promises.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The kernel could not be read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A reading thread ended badly.
    #[error("the reading thread ended badly")]
    Thread,
}

impl Sources {
    /// Starts the watches of the API server.
    pub(crate) fn caches(
        client: &kube::Client,
        node: &NodeName,
        pokers: &Pokers,
    ) -> (Cache<Seen>, Cache<Option<NodeRoutesStatus>>) {
        let own = node.clone();
        let lift = move |object: &KubeNode| lift_node(object, &own);
        let poke = pokers.clone();
        let nodes = watch(kube::Api::all(client.clone()), None, lift, move |key| {
            if key.is_none() {
                poke.everything();
            }
            poke.bridge.poke(bridge_subjects::Key::Flows);
            poke.ovn.poke(ovn_subjects::Key::Topology);
            poke.ovn.poke(ovn_subjects::Key::Import);
            poke.host.poke(host_subjects::Key::Network);
            poke.objects.poke(object_subjects::Key::Annotations);
            poke.objects.poke(object_subjects::Key::Report);
        });
        let objects = pokers.objects.clone();
        let reports = watch(
            kube::Api::<NodeRoutes>::all(client.clone()),
            Some(&format!("metadata.name={node}")),
            |object| object.status.clone(),
            move |_| objects.poke(object_subjects::Key::Report),
        );
        (nodes, reports)
    }

    /// True once both caches have been filled.
    pub(crate) fn ready(&self) -> bool {
        self.nodes.ready() && self.reports.ready()
    }

    /// The own Node with its uid.
    pub(crate) fn own(&self) -> Option<(String, Seen)> {
        let entry = self.nodes.get(&ObjectKey::new("", self.node.as_str()))?;
        Some((entry.uid, entry.value))
    }

    /// What Open vSwitch says; the last known while its database is away.
    pub(crate) fn switch(&self) -> Result<Switch, ReadError> {
        let lifted = self.switch.with_replica(Switch::lift);
        let name = ovn::switch::DATABASE;
        Ok(lifted.ok_or(ReadError::NotYet(name))??)
    }
}

/// Links and addresses of the kernel.
pub(crate) async fn links() -> Result<Vec<LinkFact>, ReadError> {
    let read = tokio::task::spawn_blocking(netlink::dump::links).await;
    Ok(read.map_err(|_| ReadError::Thread)??)
}

fn lift_node(object: &KubeNode, own: &NodeName) -> Seen {
    let node = api::lift_node(object);
    let annotations = object.metadata.annotations.iter().flatten();
    let published = annotations
        .filter(|(key, _)| node.name == *own && PUBLISHED.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Seen { node, published }
}

/// Follows the kernel's events.
pub(crate) async fn follow_kernel(
    mut watcher: Watcher,
    pokers: Pokers,
    metrics: Metrics,
    first: FirstEvent,
) {
    loop {
        let change = match watcher.changed().await {
            Ok(change) => change,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the kernel's events cannot be followed, trying again");
                watcher = reopened().await;
                metrics.netlink_lost.inc();
                pokers.everything();
                continue;
            }
        };
        if change.lost {
            tracing::warn!("events of the kernel were lost, reading everything");
            metrics.netlink_lost.inc();
            first.note();
            pokers.everything();
            continue;
        }
        if change.routes || change.links {
            first.note();
        }
        // Of rules only the host's subject is a reader, of all else the imports are one too.
        if change.routes || change.links || change.addresses {
            pokers.ovn.poke(ovn_subjects::Key::Import);
        }
        if change.links || change.addresses {
            pokers.bridge.poke(bridge_subjects::Key::Flows);
            pokers.ovn.poke(ovn_subjects::Key::Topology);
            pokers.objects.poke(object_subjects::Key::Annotations);
        }
        pokers.host.poke(host_subjects::Key::Network);
    }
}

async fn reopened() -> Watcher {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok(watcher) = Watcher::open() {
            return watcher;
        }
    }
}

/// Follows the flow table of the external bridge.
pub(crate) async fn follow_flows(control: BridgeControl, bridge: String, pokers: Pokers) {
    let mut watch = control.watch(&bridge);
    let mut before = None;
    loop {
        let event = watch.changed().await;
        if event == FlowEvent::Changed || before != Some(event) {
            pokers.bridge.poke(bridge_subjects::Key::Flows);
        }
        before = Some(event);
    }
}

/// Follows a database: says when its session comes and goes, and calls `changed` when a row changed.
pub(crate) async fn follow_database(
    client: Client,
    name: &'static str,
    metrics: Metrics,
    readiness: Option<(Readiness, &'static str)>,
    changed: impl Fn(),
) {
    let mut status = client.watch();
    let up = metrics.session_up.with_label_values(&[name]);
    let mut seen = (0, 0);
    let mut told = String::new();
    loop {
        let now = status.borrow_and_update().clone();
        let synced = now.connection.is_synced();
        up.set(i64::from(synced));
        if let Some((readiness, condition)) = &readiness {
            readiness.set(condition, synced);
        }
        if let Connection::Disconnected {
            error: Some(error), ..
        } = &now.connection
        {
            let why = Chain(&**error).to_string();
            if told != why {
                tracing::warn!(database = name, "no session: {why}");
                told = why;
            }
        } else if synced && !std::mem::take(&mut told).is_empty() {
            tracing::info!(database = name, "the session is up again");
        }
        if seen != (now.sessions, now.generation) {
            seen = (now.sessions, now.generation);
            changed();
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
