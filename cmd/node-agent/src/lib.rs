//! The node-agent: learned routes into OVN, the node's topology, SNAT, bridge flows, and the truth about them.
//! In: Node objects, the kernel over netlink, two OVSDB databases, FRR's sockets. Out: rows, flows, addresses, annotations, NodeRoutes.
//! Invariant: four loops, one writer for each sink; the bridge's host stage needs neither API server nor OVN.
//! Not here: decisions (`plan-node`), wires (`ovn`, `netlink`, `host`, `kube-edge`).
//!
//! ```text
//!  netlink events --.                       .--> bridge loop: flows of br-ex              (local facts, last known view)
//!  flow monitor  ---+--poke(key)--> loops --+--> OVN loop: topology rows, port            (guarded transactions)
//!  NB, conf DB  ----+                       +--> import loop: routes of the gateway router (guarded transactions)
//!  Node objects ----+                       '--> API loop: annotations, NodeRoutes        (server-side apply)
//!  FRR's sockets ---'
//! ```

mod api_subjects;
mod bridge_subjects;
pub mod databases;
mod frr;
pub mod import;
mod import_subjects;
mod known;
pub mod metrics;
mod ovn_subjects;
mod sources;
pub mod transact;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube_edge::connect;
use model::NodeName;
use ovsdb::Client;
use reconcile::{Pace, Poker, Timing};
use settings::{GatewayMode, OvnTopology, Settings};
use telemetry::{Readiness, Tasks};
use tokio::sync::watch;

use crate::known::Known;
use crate::metrics::Metrics;
use crate::sources::Pokers;

/// Field manager of everything the node-agent writes.
pub const FIELD_MANAGER: &str = "noverlay-node-agent";

/// Command line.
#[derive(Debug, clap::Parser)]
#[command(name = "node-agent", about = "noverlay's daemon of each node", version)]
pub struct Arguments {
    /// Configuration file; TOML where its name ends in .toml, bare words otherwise.
    #[arg(long)]
    pub config: PathBuf,
    /// Name of this node's Node object.
    #[arg(long)]
    pub node: String,
}

/// Runs the daemon until it is told to end. What it wrote keeps forwarding.
///
/// # Errors
/// At start only: configuration, client, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let settings = settings::load(&arguments.config, settings::Daemon::NodeAgent)?;
    telemetry::init_logging(&settings.log_level, settings.log_text);
    telemetry::end_on_panic();
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(&arguments.node, settings, telemetry::ended()))
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
    if settings.no_overlay.is_none() {
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
    let (stop, stopped) = watch::channel(false);
    let readiness = Readiness::default();
    for condition in ["caches", "ovn", "topology", "port", "import"] {
        readiness.set(condition, false);
    }
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry).context("cannot register metrics")?;
    let mut tasks = Tasks::default();
    tasks.spawn_server(settings.metrics_address, registry, readiness.clone());

    let pokers = Pokers::default();
    let north = Client::connect(databases::north(&settings)?);
    let switch = Client::connect(databases::switch(&settings)?);
    let known = Arc::new(Known::new(
        NodeName::from(node),
        settings,
        north,
        switch,
        metrics.clone(),
    ));
    let caches = sources::start(&kube, &known, &pokers, &readiness, &mut tasks);
    known.set_nodes(caches);

    let work = reconcile::run(
        bridge_subjects::BridgeSubjects::new(Arc::clone(&known)),
        pokers.bridge.clone(),
        timing(20, 50, 1000),
        stopped.clone(),
    );
    tasks.spawn_loop("bridge", work);
    let work = reconcile::run(
        ovn_subjects::OvnSubjects::new(Arc::clone(&known), pokers.clone(), readiness.clone()),
        pokers.ovn.clone(),
        timing(100, 200, 10_000),
        stopped.clone(),
    );
    tasks.spawn_loop("OVN", work);
    let work = reconcile::run(
        import_subjects::ImportSubjects::new(Arc::clone(&known), pokers.clone(), readiness),
        pokers.import.clone(),
        import::TIMING,
        stopped.clone(),
    );
    tasks.spawn_loop("import", work);
    let work = reconcile::run(
        api_subjects::ApiSubjects::new(Arc::clone(&known), kube),
        pokers.api.clone(),
        timing(1000, 500, 30_000),
        stopped,
    );
    tasks.spawn_loop("API", work);
    tasks.run(ended, &stop).await.context("ending")
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

/// A loop's handle and key, for the sources.
pub(crate) type PokerOf<K> = Poker<K>;

#[cfg(test)]
mod tests;
