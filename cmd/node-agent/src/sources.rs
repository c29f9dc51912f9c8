//! What enqueues what: Nodes, netlink, the flow monitor, the two databases, FRR.
//! In: subscriptions. Out: requests, and the cache of Nodes. Invariant: a source that may have lost something enqueues everything.
//! Not here: state; the loops read it themselves.

use std::sync::Arc;
use std::time::Duration;

use daemon::Daemon;
use host::{BridgeControl, FlowEvent};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::{Cache, watch};
use model::ObjectKey;
use model::node::annotation;
use netlink::Watcher;
use ovsdb::Client;
use telemetry::{Chain, Readiness};

use crate::keys::{ApiKey, BridgeKey, NorthKey, Queues};
use crate::known::{Known, NodeEntry};

const PUBLISHED: [&str; 5] = [
    annotation::PRIMARY_IFADDR,
    annotation::HOST_CIDRS,
    annotation::L3_GATEWAY,
    annotation::CHASSIS_ID,
    annotation::HOST_MTU,
];

/// Starts every source; returns the cache of Nodes.
pub(crate) fn start(
    kube: &kube::Client,
    known: &Arc<Known>,
    queues: &Queues,
    readiness: &Readiness,
    daemon: &mut Daemon,
) -> Cache<NodeEntry> {
    daemon.spawn_source("kernel", kernel(Arc::clone(known), queues.clone()));
    daemon.spawn_source("bridge's flows", flows(Arc::clone(known), queues.clone()));
    let ready = readiness.clone();
    let to = queues.clone();
    let followed = follow(known.north.clone(), Arc::clone(known), "north", {
        let known = Arc::clone(known);
        let mut before = None;
        move |synced| {
            if before.replace(synced) != Some(synced) {
                // The schema may be another one now.
                known.note_facts();
                ready.set("ovn", synced);
                to.north.resync();
            }
            to.north.enqueue(NorthKey::Topology);
            to.import.resync();
        }
    });
    daemon.spawn_source("northbound database", followed);
    let to = queues.clone();
    let followed = follow(known.switch.clone(), Arc::clone(known), "switch", {
        let known = Arc::clone(known);
        move |_| {
            known.note_facts();
            to.bridge.enqueue(BridgeKey::Flows);
            to.north.enqueue(NorthKey::Topology);
            to.north.enqueue(NorthKey::Port);
            to.import.resync();
            to.api.enqueue(ApiKey::Annotations);
        }
    });
    daemon.spawn_source("switch database", followed);
    let (to, ready, known) = (queues.clone(), readiness.clone(), Arc::clone(known));
    let changed = move |key: Option<&ObjectKey>| {
        known.note_facts();
        ready.set("caches", true);
        to.north.enqueue(NorthKey::Topology);
        to.north.enqueue(NorthKey::Port);
        to.api.enqueue(ApiKey::Report);
        // Whose a subnet is matters to what is retained, and other networks' subnets to what is imported.
        to.import.resync();
        if key.is_none_or(|key| key.name == known.node.as_str()) {
            to.bridge.enqueue(BridgeKey::Flows);
            to.api.enqueue(ApiKey::Annotations);
        }
    };
    let decode = |object: &KubeNode| NodeEntry {
        node: api::decode_node(object),
        published: object
            .metadata
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| PUBLISHED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        release: object
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(annotation::RELEASE_WITHDRAWALS).cloned()),
    };
    watch(kube::Api::all(kube.clone()), None, decode, changed)
}

/// Netlink: events are hints; each says only which loops have to look.
async fn kernel(known: Arc<Known>, queues: Queues) {
    let mut told = false;
    loop {
        let mut watcher = match Watcher::open() {
            Ok(watcher) => watcher,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(error = %Chain(&error), "no events from the kernel; trying again each second");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        told = false;
        tracing::info!(buffer = watcher.granted, "following the kernel");
        // What happened before the subscription is read by the passes that this brings.
        known.note_facts();
        known.event_buffer.note_everything();
        queues.import.resync();
        queues.north.resync();
        queues.bridge.enqueue(BridgeKey::Flows);
        queues.api.enqueue(ApiKey::Annotations);
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
                known.metrics.netlink_lost.inc();
            }
            // The host's own routes to pods are routes too; those of BGP are not among them.
            if change.other_routes {
                queues.north.enqueue(NorthKey::Port);
            }
            let facts = change.links || change.addresses || change.rules || change.lost;
            if facts {
                known.note_facts();
            }
            if known.event_buffer.note(change) || facts {
                queues.import.resync();
            }
            if facts {
                queues.north.enqueue(NorthKey::Topology);
                queues.north.enqueue(NorthKey::Port);
                queues.bridge.enqueue(BridgeKey::Flows);
                queues.api.enqueue(ApiKey::Annotations);
            }
        }
    }
}

/// The bridge's flow table: any change, also our own, and the switch going away.
async fn flows(known: Arc<Known>, queues: Queues) {
    let control = BridgeControl::new(known.settings.ovs_rundir.clone());
    let mut watch = control.watch(&known.settings.gateway.interface);
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
    known: Arc<Known>,
    name: &'static str,
    mut enqueue: impl FnMut(bool),
) {
    let mut status = client.watch();
    let mut before: Option<(bool, u64, u64)> = None;
    let mut told: Option<String> = None;
    loop {
        let (synced, generation, sessions, error) = {
            let now = status.borrow_and_update();
            let error = match &now.connection {
                ovsdb::Connection::Disconnected { error, .. } => error.clone(),
                ovsdb::Connection::Connecting | ovsdb::Connection::Synced => None,
            };
            (
                now.connection.is_synced(),
                now.generation,
                now.sessions,
                error,
            )
        };
        let error = error.map(|error| Chain(error.as_ref()).to_string());
        let was = before.map(|(was, ..)| was);
        if synced {
            if was != Some(true) {
                tracing::info!(database = name, "in step");
            }
            told = None;
        } else if error.is_some() && error != told {
            // Each reason once, however often it is tried; a look may come before the first attempt has failed.
            let error = error.as_deref().unwrap_or_default();
            tracing::warn!(database = name, error, "not in step");
        } else if was.is_none() {
            tracing::info!(database = name, "connecting");
        }
        if error.is_some() {
            told = error;
        }
        known
            .metrics
            .session_up
            .with_label_values(&[name])
            .set(i64::from(synced));
        if before != Some((synced, generation, sessions)) {
            before = Some((synced, generation, sessions));
            enqueue(synced);
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
