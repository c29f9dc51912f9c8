//! The node-agent: learned routes into OVN, the node's topology, SNAT, bridge flows, and the truth about them.
//! In: Node and network objects, the kernel over netlink, two OVSDB databases, FRR's sockets. Out: rows, flows, addresses, annotations, NodeRoutes.
//! Invariant: one task plans, one loop writes each target; no loop waits for another, and the bridge's host stage needs neither
//! API server nor OVN. Not here: decisions (`plan-node`, `import`), wires (`ovn`, `netlink`, `host`, `kube-edge`).
//!
//! ```text
//!  Nodes, networks -.                                    .--> bridge: flows of br-ex
//!  NB, conf DB  ----+--facts--> world --watch<Planned>---+--> north:  rows, by owner            (guarded transactions)
//!  links        ----'             |                      +--> port:   management ports, kernel  (transactions, netlink)
//!                                 |                      +--> filter: nftables                  (one nft transaction)
//!                                 '--enqueue what differs+--> api:    annotations, NodeRoutes   (server-side apply)
//!  routes, by table --events------------------------.    |                     ^ watch<Reports>
//!  NB rows          --enqueue-----------------------+--> '--> import: routes of gateway routers, by network
//!  FRR's sockets    --one probe, watch<Seen>--------'
//!  other nodes      --echo requests as large as pods' packets, watch<PathReport>--> api
//! ```

mod beside;
pub mod databases;
mod frr;
pub mod importing;
pub mod kernel_events;
mod keys;
mod loops;
pub mod metrics;
mod network_in_force;
pub mod networks;
pub mod paths;
mod refused_vrfs;
mod services;
mod sources;
pub mod transact;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use daemon::crds;
use daemon::{Configuration, Daemon};
use frr_edge::Frr;
use kube_edge::{Cache, connect};
use model::NodeName;
use ovsdb::Client;
use plan_node::paths::Paths;
use reconcile::{Pace, Timing};
use settings::OvnTopology;
use tokio::sync::watch;

use crate::beside::{Beside, Sight};
use crate::importing::FrrProbe;
use crate::keys::{ApiKey, Queues};
use crate::loops::api::{ApiReconciler, Inputs};
use crate::loops::bridge::BridgeReconciler;
use crate::loops::filter::FilterReconciler;
use crate::loops::import::{ImportReconciler, Reports, Shared};
use crate::loops::north::{Blocked, NorthReconciler};
use crate::loops::port::PortReconciler;
use crate::loops::south::SouthReconciler;
use crate::loops::steering::SteeringReconciler;
use crate::metrics::{Metrics, PathMetrics};
use crate::paths::{PathReport, Pathfinder};
use crate::refused_vrfs::RefusedVrfs;
use crate::services::AllowedServices;
use crate::sources::Sources;
use crate::world::{FactsChanged, NodeEntry, Planned, World};

/// Field manager of everything the node-agent writes.
pub const FIELD_MANAGER: &str = "noverlay-node-agent";

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
    /// Beside OVN-Kubernetes: lead everything back to the tunnels and take away what was added on this node, in order; ready when
    /// nothing is left.
    #[arg(long)]
    pub leave: bool,
}

/// Runs the daemon until it is asked to stop. What it wrote keeps forwarding.
///
/// # Errors
/// At start only: configuration, client, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        config,
        node,
        leave,
    } = arguments;
    daemon::run(
        &config,
        settings::Daemon::NodeAgent,
        |configuration| async move { serve(&node, configuration, leave, telemetry::ended()).await },
    )
}

/// Runs on node `node` until `ended` resolves. `leave`: see [`Arguments::leave`].
///
/// # Errors
/// At start only; or when `ended` cannot be waited for.
pub async fn serve(
    node: &str,
    configuration: impl Into<Configuration>,
    leave: bool,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let configuration = configuration.into();
    let settings = configuration.now().settings.clone();
    let kube = connect(settings.kubeconfig.as_deref()).await?;
    tokio::spawn(crds::probe(kube.clone(), crds::needs::NODE_AGENT));
    let is_beside = settings.ovn.topology == OvnTopology::Adopt;
    if leave && !is_beside {
        bail!(
            "--leave with [ovn] topology = build: there is nothing to go back to; allowed: adopt"
        );
    }
    let mut daemon = Daemon::new(settings.metrics_address, conditions(is_beside));
    if leave {
        daemon.readiness.set("nothing left", false);
    }
    let sources = connected(node, configuration, &mut daemon)?;
    let nodes = sources::start(&kube, &sources, &mut daemon);
    let (tell, ways) = watch::channel(None);
    let (tell_blocked, blocked) = watch::channel(Blocked::new());
    let left = leave.then(|| daemon.readiness.clone());
    let sight = sources.sight.clone();
    let reports = || beside::Reports {
        kube: kube.clone(),
        node: sources.node.clone(),
    };
    let frr = || frr_of(&sources);
    let beside =
        sight.map(|sight| Beside::new(sight, sources.north.clone(), frr(), (reports(), left)));
    let beside = beside.transpose().context("cannot read the boot's id")?;
    let told = (nodes.clone(), tell, blocked.clone());
    let planned = spawn_plan(&mut daemon, &kube, &sources, told, beside);
    spawn_north(&mut daemon, &sources, planned.clone(), tell_blocked);
    spawn_filter(&mut daemon, &sources, planned.clone());
    if let Some(sight) = sources.sight.clone() {
        spawn_steering(&mut daemon, &sources, planned.clone(), sight);
    }
    if let Some(south) = sources.south.clone() {
        spawn_bridge(&mut daemon, &sources, planned.clone());
        spawn_south(&mut daemon, &sources, planned.clone(), south);
        spawn_port(&mut daemon, &sources, planned.clone());
    }
    let reports = spawn_import(&mut daemon, &sources, planned.clone());
    let paths = spawn_paths(&mut daemon, &sources, ways)?;
    let follow = follow_configuration(&sources);
    daemon.spawn_source("configuration", follow);
    let inputs = Inputs {
        configuration: sources.configuration,
        nodes,
        planned,
        reports,
        paths,
        blocked,
    };
    let api = ApiReconciler::new(kube, sources.node, inputs);
    let pace = timing(1000, 500, 30_000);
    let work = reconcile::run(api, sources.queues.api, pace, daemon.stopped());
    daemon.spawn_loop("API", work);
    daemon.run(ended).await.context("ending")
}

/// What the process has to have done once to be ready.
fn conditions(is_beside: bool) -> &'static [&'static str] {
    if is_beside {
        &["caches", "ovn", "topology", "rules", "filter", "import"]
    } else {
        &[
            "caches", "ovn", "topology", "tunnels", "port", "filter", "flows", "import",
        ]
    }
}

/// Sessions with the databases, and what all parts share.
fn connected(
    node: &str,
    configuration: Configuration,
    daemon: &mut Daemon,
) -> anyhow::Result<Sources> {
    let settings = configuration.now().settings.clone();
    let metrics = Metrics::new(&daemon.registry).context("cannot register metrics")?;
    (daemon.tell_configuration(configuration.clone())).context("cannot register metrics")?;
    let facts = FactsChanged::default();
    let is_beside = settings.ovn.topology == OvnTopology::Adopt;
    let south = if is_beside {
        None
    } else {
        Some(Client::connect(databases::south(&settings)?))
    };
    let node = NodeName::from(node);
    Ok(Sources {
        north: Client::connect(databases::north(&settings, &node)?),
        node,
        south,
        switch: Client::connect(databases::switch(&settings)?),
        settings: Arc::new(settings),
        configuration,
        refused_vrfs: RefusedVrfs::new(facts.clone()),
        sight: is_beside.then(|| Sight::new(facts.clone())),
        facts,
        events: Arc::default(),
        queues: Queues::default(),
        metrics,
    })
}

/// Asks for plan, imports and report again whenever the configuration in force changed.
fn follow_configuration(sources: &Sources) -> impl Future<Output = ()> + Send + 'static {
    let mut configuration = sources.configuration.clone();
    let (facts, queues) = (sources.facts.clone(), sources.queues.clone());
    async move {
        loop {
            configuration.changed().await;
            facts.note();
            queues.import.resync();
            queues.api.enqueue(ApiKey::Report);
        }
    }
}

/// What loops read the plan from.
type PlannedReceiver = watch::Receiver<Option<Arc<Planned>>>;

/// Starts to plan.
fn spawn_plan(
    daemon: &mut Daemon,
    kube: &kube::Client,
    sources: &Sources,
    (nodes, paths, blocked): (
        Cache<NodeEntry>,
        watch::Sender<Option<Paths>>,
        watch::Receiver<Blocked>,
    ),
    beside: Option<Beside>,
) -> PlannedReceiver {
    let (tell, planned) = watch::channel(None);
    let world = World {
        node: sources.node.clone(),
        kube: kube.clone(),
        settings: Arc::clone(&sources.settings),
        configuration: sources.configuration.clone(),
        nodes,
        api_servers: sources::api_servers(kube, sources),
        services: AllowedServices::start(kube, &sources.settings.allowed_services, &sources.facts),
        networks: sources::networks(kube, sources),
        refused_vrfs: sources.refused_vrfs.clone(),
        north: sources.north.clone(),
        switch: sources.switch.clone(),
        metrics: sources.metrics.clone(),
        queues: sources.queues.clone(),
        blocked,
        paths,
        beside,
    };
    daemon.spawn_source("plan", world.run(sources.facts.clone(), tell));
    planned
}

fn spawn_bridge(daemon: &mut Daemon, sources: &Sources, planned: PlannedReceiver) {
    let work = reconcile::run(
        BridgeReconciler::new(
            planned,
            &sources.settings,
            sources.metrics.clone(),
            daemon.readiness.clone(),
        ),
        sources.queues.bridge.clone(),
        timing(20, 50, 1000),
        daemon.stopped(),
    );
    daemon.spawn_loop("bridge", work);
}

/// Starts to look after rows, and to tell which networks' cannot be written.
fn spawn_north(
    daemon: &mut Daemon,
    sources: &Sources,
    planned: PlannedReceiver,
    tell: watch::Sender<Blocked>,
) {
    let topology = NorthReconciler::new(
        planned,
        sources.node.clone(),
        sources.north.clone(),
        sources.queues.clone(),
        &sources.metrics,
        (daemon.readiness.clone(), tell, sources.facts.clone()),
    );
    let topology = topology.telling(sources.sight.clone());
    let queue = sources.queues.north.clone();
    let work = reconcile::run(topology, queue, timing(100, 200, 10_000), daemon.stopped());
    daemon.spawn_loop("OVN", work);
}

fn spawn_south(daemon: &mut Daemon, sources: &Sources, planned: PlannedReceiver, south: Client) {
    let tunnels = SouthReconciler::new(
        planned,
        south,
        sources.metrics.transactions.clone(),
        daemon.readiness.clone(),
    );
    let queue = sources.queues.south.clone();
    let work = reconcile::run(tunnels, queue, timing(100, 200, 10_000), daemon.stopped());
    daemon.spawn_loop("tunnels", work);
}

fn spawn_port(daemon: &mut Daemon, sources: &Sources, planned: PlannedReceiver) {
    let ports = PortReconciler::new(
        planned,
        sources.switch.clone(),
        sources.refused_vrfs.clone(),
        sources.metrics.transactions.clone(),
        daemon.readiness.clone(),
    );
    let queue = sources.queues.port.clone();
    let work = reconcile::run(ports, queue, timing(100, 200, 10_000), daemon.stopped());
    daemon.spawn_loop("port", work);
}

fn spawn_steering(daemon: &mut Daemon, sources: &Sources, planned: PlannedReceiver, sight: Sight) {
    let steering = SteeringReconciler::new(planned, sight, daemon.readiness.clone());
    let queue = sources.queues.port.clone();
    let work = reconcile::run(steering, queue, timing(100, 200, 10_000), daemon.stopped());
    daemon.spawn_loop("rules", work);
}

fn spawn_filter(daemon: &mut Daemon, sources: &Sources, planned: PlannedReceiver) {
    let sight = sources.sight.clone();
    let filter = FilterReconciler::new(planned, sight, daemon.readiness.clone());
    let queue = sources.queues.filter.clone();
    let work = reconcile::run(filter, queue, timing(100, 200, 10_000), daemon.stopped());
    daemon.spawn_loop("filter", work);
}

fn frr_of(sources: &Sources) -> Frr {
    let frr = &sources.settings.frr;
    Frr::new(frr.vty_socket.clone(), frr.config_file.clone())
}

/// Starts the imports; returns what they find.
fn spawn_import(
    daemon: &mut Daemon,
    sources: &Sources,
    planned: PlannedReceiver,
) -> watch::Receiver<Reports> {
    let (tell, reports) = watch::channel(Reports::new());
    let frr = frr_of(sources);
    let queue = sources.queues.import.clone();
    let shared = Shared {
        planned,
        node: sources.node.clone(),
        configuration: sources.configuration.clone(),
        north: sources.north.clone(),
        events: Arc::clone(&sources.events),
        probe: FrrProbe::start(frr, move || queue.resync()),
        queues: sources.queues.clone(),
        metrics: sources.metrics.clone(),
        registry: daemon.registry.clone(),
        sight: sources.sight.clone(),
    };
    let work = reconcile::run(
        ImportReconciler::new(shared, daemon.readiness.clone(), tell),
        sources.queues.import.clone(),
        importing::TIMING,
        daemon.stopped(),
    );
    daemon.spawn_loop("import", work);
    reports
}

/// Starts to ask the other nodes whether pods' packets pass; returns what is found.
fn spawn_paths(
    daemon: &mut Daemon,
    sources: &Sources,
    paths: watch::Receiver<Option<Paths>>,
) -> anyhow::Result<watch::Receiver<PathReport>> {
    let (tell, report) = watch::channel(PathReport::default());
    let queue = sources.queues.api.clone();
    let metrics = PathMetrics::new(&daemon.registry).context("cannot register metrics")?;
    let pathfinder = Pathfinder {
        node: sources.node.clone(),
        interval: sources.settings.mtu_probe_interval,
        paths,
        metrics,
        tell,
        changed: move || queue.enqueue(ApiKey::Report),
    };
    daemon.spawn_source("path MTU", pathfinder.run());
    Ok(report)
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
