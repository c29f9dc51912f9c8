//! The node-agent: learned routes into OVN, the node's topology, SNAT, bridge flows, and the truth about them.
//! In: Node objects, the kernel over netlink, two OVSDB databases, FRR's sockets. Out: rows, flows, addresses, annotations, NodeRoutes.
//! Invariant: four loops, one writer for each target; the bridge's host stage needs neither API server nor OVN.
//! Not here: decisions (`plan-node`), wires (`ovn`, `netlink`, `host`, `kube-edge`).
//!
//! ```text
//!  netlink events --.                       .--> bridge loop: flows of br-ex              (local facts, last known view)
//!  flow monitor  ---+--enqueue(key)--> loops --+--> OVN loop: topology rows, port            (guarded transactions)
//!  NB, conf DB  ----+                       +--> import loop: routes of the gateway router (guarded transactions)
//!  Node objects ----+                       '--> API loop: annotations, NodeRoutes        (server-side apply)
//!  FRR's sockets ---'
//! ```

pub mod databases;
mod frr;
pub mod importing;
mod keys;
mod known;
mod loops;
pub mod metrics;
mod sources;
pub mod transact;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use daemon::Daemon;
use daemon::crds::{self, Need};
use kube_edge::connect;
use model::gateway::GatewayMode;
use model::{NetworkName, NodeName};
use ovsdb::Client;
use reconcile::{Pace, Timing};
use settings::{OvnTopology, Settings};

use crate::keys::Queues;
use crate::known::Known;
use crate::metrics::Metrics;

/// Field manager of everything the node-agent writes.
pub const FIELD_MANAGER: &str = "noverlay-node-agent";

/// What this daemon reads and writes of custom resources; what a cluster lacks of it is logged at the start.
pub const NEEDS: &[Need] = &[Need {
    version: "noverlay.io/v1alpha1",
    kind: "NodeRoutes",
    fields: &["status.conditions", "status.networks"],
}];

/// Command line.
#[derive(Debug, clap::Parser)]
#[command(name = "node-agent", about = "noverlay's daemon of each node", version)]
pub struct Arguments {
    /// Configuration file; TOML where its name ends in .toml, ovnkube.conf (gcfg) syntax otherwise.
    #[arg(long)]
    pub config: PathBuf,
    /// Name of this node's Node object.
    #[arg(long)]
    pub node: String,
}

/// Runs the daemon until it is asked to stop. What it wrote keeps forwarding.
///
/// # Errors
/// At start only: configuration, client, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { config, node } = arguments;
    daemon::run(
        &config,
        settings::Daemon::NodeAgent,
        |settings| async move { serve(&node, settings, telemetry::ended()).await },
    )
}

/// What this agent cannot do is refused before anything is written: on a bridge that OVN-Kubernetes looks after, its flows
/// would be replaced.
fn refuse_what_is_not_built(settings: &Settings) -> anyhow::Result<()> {
    if settings.ovn_topology == OvnTopology::Adopt {
        bail!("[ovn] topology = adopt: this node-agent builds the topology itself; allowed: build");
    }
    if settings.gateway.mode == GatewayMode::Local {
        bail!(
            "[gateway] mode = local: this node-agent builds the shared gateway only; allowed: shared"
        );
    }
    if settings.transport.no_overlay().is_none() {
        tracing::warn!("[default] transport = geneve: the node-agent has no network to build");
    }
    Ok(())
}

/// Runs on node `node` until `ended` resolves.
///
/// # Errors
/// At start only; or when `ended` cannot be waited for.
pub async fn serve(
    node: &str,
    settings: Settings,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    refuse_what_is_not_built(&settings)?;
    let kube = connect(settings.kubeconfig.as_deref()).await?;
    tokio::spawn(crds::probe(kube.clone(), NEEDS));
    let conditions = ["caches", "ovn", "topology", "port", "import"];
    let mut daemon = Daemon::new(settings.metrics_address, &conditions);
    let (readiness, stopped) = (daemon.readiness.clone(), daemon.stopped());
    let metrics = Metrics::new(&daemon.registry, &NetworkName::default_network())
        .context("cannot register metrics")?;

    let queues = Queues::default();
    let north = Client::connect(databases::north(&settings)?);
    let switch = Client::connect(databases::switch(&settings)?);
    let known = Arc::new(Known::new(
        NodeName::from(node),
        settings,
        north,
        switch,
        metrics.clone(),
    ));
    let caches = sources::start(&kube, &known, &queues, &readiness, &mut daemon);
    known.set_nodes(caches);

    let work = reconcile::run(
        loops::bridge::BridgeReconciler::new(Arc::clone(&known)),
        queues.bridge.clone(),
        timing(20, 50, 1000),
        stopped.clone(),
    );
    daemon.spawn_loop("bridge", work);
    let work = reconcile::run(
        loops::north::NorthReconciler::new(Arc::clone(&known), queues.clone(), readiness.clone()),
        queues.north.clone(),
        timing(100, 200, 10_000),
        stopped.clone(),
    );
    daemon.spawn_loop("OVN", work);
    let work = reconcile::run(
        loops::import::ImportReconciler::new(Arc::clone(&known), queues.clone(), readiness),
        queues.import.clone(),
        importing::TIMING,
        stopped.clone(),
    );
    daemon.spawn_loop("import", work);
    let work = reconcile::run(
        loops::api::ApiReconciler::new(Arc::clone(&known), kube),
        queues.api.clone(),
        timing(1000, 500, 30_000),
        stopped,
    );
    daemon.spawn_loop("API", work);
    daemon.run(ended).await.context("ending")
}

/// Milliseconds: between two passes of a key, first retry, longest retry.
fn timing(rest: u64, first: u64, most: u64) -> Timing {
    Timing {
        pace: Pace::Fixed(Duration::from_millis(rest)),
        retry_first: Duration::from_millis(first),
        retry_most: Duration::from_millis(most),
        ..Timing::default()
    }
}

#[cfg(test)]
mod tests;
