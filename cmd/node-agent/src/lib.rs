//! The node-agent: makes a node's part of the no-overlay network, and brings the routes that BGP learned into OVN.
//! In: the API server, the kernel, the Open_vSwitch and OVN_Northbound databases, one configuration file.
//! Out: rows, flows, addresses, rules, annotations; each only where it differs.
//! Invariant: when the agent stops or cannot read something, what stands keeps forwarding; on start nothing is written that is there.
//! Not here: decisions (`plan-node`), the forms of rows, messages and objects (edges).
//!
//! ```text
//!  Nodes, NodeRoutes --caches--.
//!  netlink events -------------+-- poke --> bridge: flows of br-ex          (ovs-ofctl)
//!  Open_vSwitch, OVN_Northbound+            ovn: topology, imported routes  (OVSDB)
//!  flow monitor of br-ex ------'            host: management port, kernel   (OVSDB, netlink)
//!                                           objects: annotations, report    (API server)
//! ```
//! Four loops, so that a sink that does not answer holds up nothing but itself.

mod bridge_subjects;
mod host_subjects;
mod metrics;
mod object_subjects;
mod ovn_subjects;
mod said;
mod sources;
mod view;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use host::BridgeControl;
use kube_edge::{Writer, connect};
use model::NodeName;
use netlink::Watcher;
use ovsdb::{Client, Endpoint};
use reconcile::{Timing, run as reconcile};
use settings::{GatewayMode, OvnNetworks, OvnTopology, Settings};
use telemetry::Readiness;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bridge_subjects::BridgeSubjects;
use crate::host_subjects::HostSubjects;
use crate::metrics::Metrics;
use crate::object_subjects::ObjectSubjects;
use crate::ovn_subjects::{OvnSubjects, Told};
use crate::said::Ledger;
use crate::sources::{FirstEvent, Pokers, Sources};

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

/// Runs the daemon until it is told to end.
///
/// # Errors
/// At start only: configuration, client, endpoints, netlink, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let metrics = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9161));
    let settings = settings::load(&arguments.config, metrics)?;
    telemetry::init_logging(&settings.log_level, settings.log_text);
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(arguments.node.into(), settings))
}

async fn serve(node: NodeName, settings: Settings) -> anyhow::Result<()> {
    let builds = builds(&settings)?;
    let client = connect(settings.kubeconfig.as_deref()).await?;
    let north: Endpoint = settings.ovn_north.parse().context("[ovnnorth] address")?;
    let switch = Endpoint::Unix(settings.ovs_rundir.join("db.sock"));
    let (stop, stopped) = watch::channel(false);
    let readiness = Readiness::default();
    readiness.set("caches", false);
    readiness.set("ovn", false);
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry).context("cannot register metrics")?;
    let ledger = Ledger::new(
        metrics.clone(),
        readiness.clone(),
        &subjects(&settings, builds),
    );
    let server = tokio::spawn(telemetry::serve(
        settings.metrics_address,
        registry,
        readiness.clone(),
    ));

    let pokers = Pokers::default();
    let first_event = FirstEvent::default();
    let watcher = Watcher::open().context("cannot follow the kernel")?;
    tokio::spawn(sources::follow_kernel(
        watcher,
        pokers.clone(),
        metrics.clone(),
        first_event.clone(),
    ));
    let control = BridgeControl::new(settings.ovs_rundir.clone());
    let (nodes, reports) = Sources::caches(&client, &node, &pokers);
    let sources = Sources {
        settings: Arc::new(settings),
        node,
        nodes,
        reports,
        north: Client::connect(ovn::north::config(north)),
        switch: Client::connect(ovn::switch::config(switch)),
    };
    follow(&sources, &pokers, &metrics, &readiness);

    let (learned, heard) = watch::channel(None);
    let told = Told {
        learned,
        objects: pokers.objects.clone(),
    };
    let mut loops = vec![
        tokio::spawn(reconcile(
            OvnSubjects::new(sources.clone(), ledger.clone(), told, first_event),
            pokers.ovn.clone(),
            timing(100, 200, 5),
            stopped.clone(),
        )),
        tokio::spawn(reconcile(
            ObjectSubjects::new(
                sources.clone(),
                ledger.clone(),
                Writer::new(client, FIELD_MANAGER),
                heard,
            ),
            pokers.objects.clone(),
            timing(1000, 500, 30),
            stopped.clone(),
        )),
    ];
    if builds {
        let bridge = sources.settings.gateway.interface.clone();
        tokio::spawn(sources::follow_flows(
            control.clone(),
            bridge,
            pokers.clone(),
        ));
        loops.push(tokio::spawn(reconcile(
            BridgeSubjects::new(sources.clone(), ledger.clone(), control),
            pokers.bridge.clone(),
            timing(30, 50, 1),
            stopped.clone(),
        )));
        loops.push(tokio::spawn(reconcile(
            HostSubjects::new(sources, ledger),
            pokers.host.clone(),
            timing(300, 50, 5),
            stopped,
        )));
    }
    tokio::select! {
        ended = telemetry::ended() => ended.context("cannot listen to signals")?,
        served = server => served.context("metrics server")??,
    }
    tracing::info!("ending");
    stop.send_replace(true);
    match tokio::time::timeout(Duration::from_millis(1500), ended(loops)).await {
        Ok(ended) => ended,
        // What is under way is left to itself: each sink takes it whole or not at all.
        Err(_) => Ok(()),
    }
}

/// Whether the agent makes the topology; what it cannot do is refused at the start.
fn builds(settings: &Settings) -> anyhow::Result<bool> {
    let builds = settings.ovn_topology == OvnTopology::Build;
    if builds && settings.gateway.mode == GatewayMode::Local {
        bail!(
            "[gateway] mode = local cannot be built; allowed with [ovn] topology = build: shared"
        );
    }
    if !builds {
        tracing::warn!(
            "[ovn] topology = adopt: routes are imported and reported, everything else is left to OVN-Kubernetes"
        );
    }
    if settings.no_overlay.is_none() {
        tracing::warn!("[default] transport = geneve: there is nothing to do for this agent");
    }
    Ok(builds)
}

/// The subjects that have to settle before the daemon is ready.
fn subjects(settings: &Settings, builds: bool) -> Vec<&'static str> {
    if settings.no_overlay.is_none() {
        return Vec::new();
    }
    let mut subjects = vec![ovn_subjects::IMPORT, object_subjects::REPORT];
    if builds {
        subjects.extend([
            ovn_subjects::TOPOLOGY,
            bridge_subjects::BRIDGE,
            host_subjects::HOST,
        ]);
    }
    if settings.ovn_networks == OvnNetworks::Own {
        subjects.push(object_subjects::ANNOTATIONS);
    }
    subjects
}

/// `settle` and `first` retry in milliseconds, the longest retry in seconds.
fn timing(settle: u64, first: u64, most: u64) -> Timing {
    Timing {
        settle: Duration::from_millis(settle),
        retry_first: Duration::from_millis(first),
        retry_most: Duration::from_secs(most),
        ..Timing::default()
    }
}

/// Follows both databases, and the first filling of the caches.
fn follow(sources: &Sources, pokers: &Pokers, metrics: &Metrics, readiness: &Readiness) {
    let on_north = pokers.clone();
    tokio::spawn(sources::follow_database(
        sources.north.clone(),
        ovn::north::DATABASE,
        metrics.clone(),
        Some((readiness.clone(), "ovn")),
        move || {
            on_north.ovn.poke(ovn_subjects::Key::Topology);
            on_north.ovn.poke(ovn_subjects::Key::Import);
            on_north.objects.poke(object_subjects::Key::Report);
        },
    ));
    let on_switch = pokers.clone();
    tokio::spawn(sources::follow_database(
        sources.switch.clone(),
        ovn::switch::DATABASE,
        metrics.clone(),
        None,
        move || {
            on_switch.bridge.poke(bridge_subjects::Key::Flows);
            on_switch.ovn.poke(ovn_subjects::Key::Topology);
            on_switch.ovn.poke(ovn_subjects::Key::Import);
            on_switch.host.poke(host_subjects::Key::Network);
            on_switch.objects.poke(object_subjects::Key::Annotations);
        },
    ));
    let (sources, readiness) = (sources.clone(), readiness.clone());
    tokio::spawn(async move {
        while !sources.ready() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        readiness.set("caches", true);
    });
}

async fn ended(loops: Vec<JoinHandle<()>>) -> anyhow::Result<()> {
    for one in loops {
        one.await.context("a loop ended badly")?;
    }
    Ok(())
}
