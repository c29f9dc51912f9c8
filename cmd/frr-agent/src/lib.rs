//! The frr-agent: does frr-k8s's work on one node, where frr-k8s is not installed.
//! In: the FRRConfigurations that select the node. Out: FRR runs what they say; FRRNodeState and BGPSessionState tell it.
//! Invariant: the last good configuration stays on any failure; nothing is reloaded when text and daemons are the same.
//! Not here: merge and text (`frr`), FRR itself (`frr-edge`).
//!
//! ```text
//!  FRRConfiguration, Node, Secret --caches--> merge -> without self -> render --does FRR hold it?--> check, file, reload
//!  FRR's sockets, running config  --enqueue------^                                                         | what came of it
//!                                                     FRRNodeState <--report--<running config>----------'
//!  sessions (JSON) -> BGPSessionState
//! ```

mod applier;
mod beside;
mod caches;
mod configuration;
mod key;
mod metrics;
mod report;
mod secrets;
mod sessions;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use daemon::Daemon;
use daemon::crds;
use frr_edge::Frr;
use kube_edge::{Cache, Writer, connect};
use model::NodeName;
use reconcile::{Timing, WorkQueue};
use settings::Settings;
use telemetry::Readiness;
use tokio::time::Instant;

use crate::beside::Beside;
use crate::caches::{Caches, State, watch_state};
use crate::configuration::ConfigurationReconciler;
use crate::key::{Configuration, Queues, Sessions};
use crate::metrics::Metrics;
use crate::report::{Board, ReportReconciler};
use crate::sessions::SessionReconciler;

/// Field manager of everything the frr-agent writes.
pub const FIELD_MANAGER: &str = "noverlay-frr-agent";

/// Command line.
#[derive(Debug, clap::Parser)]
#[command(
    name = "frr-agent",
    about = "noverlay's applier of FRRConfigurations on one node",
    version
)]
pub struct Arguments {
    /// Configuration file; TOML where its name ends in .toml, ovnkube.conf (gcfg) syntax otherwise.
    #[arg(long)]
    pub config: PathBuf,
    /// Name of this node's Node object.
    #[arg(long)]
    pub node: String,
}

/// Runs the daemon until it is asked to stop.
///
/// # Errors
/// At start only: configuration, client, metrics address, frr-k8s on the same node.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { config, node } = arguments;
    daemon::run(
        &config,
        settings::Daemon::FrrAgent,
        |configuration| async move { serve(&node, configuration, telemetry::ended()).await },
    )
}

/// Serves one node until `ended`.
///
/// # Errors
/// At start only: client, metrics address, frr-k8s on the same node.
pub async fn serve(
    node: &str,
    configuration: impl Into<daemon::Configuration>,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let configuration = configuration.into();
    let settings = configuration.now().settings.clone();
    let client = connect(settings.kubeconfig.as_deref()).await?;
    beside::refuse(&client, node).await?;
    tokio::spawn(crds::probe(client.clone(), crds::needs::FRR_AGENT));
    let mut daemon = Daemon::new(settings.metrics_address, &["caches", "first pass"]);
    let metrics = Metrics::new(&daemon.registry).context("cannot register metrics")?;
    (daemon.tell_configuration(configuration)).context("cannot register metrics")?;
    let readiness = daemon.readiness.clone();
    let shared = Shared::start(client, node, settings, metrics, readiness);
    spawn_tasks(&mut daemon, shared);
    // Neither a reload under way nor an API server is waited for longer than the loops are.
    daemon.run(ended).await.context("ending")
}

/// What the loops have in common.
struct Shared {
    node: NodeName,
    client: kube::Client,
    writer: Writer,
    /// Of FRRConfigurations, Secrets and BGPSessionStates.
    namespace: String,
    caches: Caches,
    state: Cache<State>,
    beside: Beside,
    frr: Frr,
    board: Board,
    queues: Queues,
    metrics: Metrics,
    readiness: Readiness,
}

impl Shared {
    /// Begins to watch what more than one loop reads.
    fn start(
        client: kube::Client,
        node: &str,
        settings: Settings,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Self {
        let frr = Frr {
            reload_tool: settings.frr.reload_tool,
            reload_timeout: settings.frr.reload_timeout,
            ..Frr::new(settings.frr.vty_socket, settings.frr.config_file)
        };
        let node = NodeName::from(node);
        let namespace = settings.managed.frr_namespace;
        let queues = Queues::default();
        let caches = Caches::start(&client, &namespace, node.as_str(), &queues.configuration);
        let state = watch_state(&client, node.as_str(), queues.reports.clone());
        Self {
            beside: Beside::new(node.clone(), state.clone()),
            writer: Writer::new(client.clone(), FIELD_MANAGER),
            node,
            client,
            namespace,
            caches,
            state,
            frr,
            board: Board::default(),
            queues,
            metrics,
            readiness,
        }
    }
}

/// Starts the loops, and what looks at FRR for them.
fn spawn_tasks(daemon: &mut Daemon, shared: Shared) {
    let configuration = ConfigurationReconciler::new(&shared);
    let report = ReportReconciler::new(&shared);
    let sessions = SessionReconciler::new(&shared);
    let (frr, queues) = (shared.frr, shared.queues);
    let followed = follow_daemons(frr.clone(), shared.metrics, queues.clone());
    daemon.spawn_source("FRR's daemons", followed);
    let followed = follow_running(frr, queues.configuration.clone());
    daemon.spawn_source("FRR's configuration", followed);
    let stopped = daemon.stopped();
    let prompt = Timing {
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let timing = Timing {
        gather: Duration::from_millis(300),
        gather_most: Duration::from_secs(3),
        ..prompt
    };
    let work = reconcile::run(configuration, queues.configuration, timing, stopped.clone());
    daemon.spawn_loop("configuration", work);
    let work = reconcile::run(report, queues.reports, prompt, stopped.clone());
    daemon.spawn_loop("reports", work);
    let work = reconcile::run(sessions, queues.sessions, Timing::default(), stopped);
    daemon.spawn_loop("sessions", work);
}

/// How often the daemons' sockets are looked at, and their sessions (each second time).
const PACE: Duration = Duration::from_millis(500);
/// How often is looked whether FRR runs what was loaded, and whether a daemon that cannot be asked can be again; more seldom where reading it costs more than a 200th of that.
const PROBE: Duration = Duration::from_secs(5);

/// Looks whether FRR's daemons are new or gone, and has their sessions looked at.
async fn follow_daemons(frr: Frr, metrics: Metrics, queues: Queues) {
    let mut daemons = frr.daemons();
    let mut alive = Some(true);
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        tick.tick().await;
        metrics.tick();
        let now = frr.daemons();
        if now != daemons {
            tracing::info!(
                before = daemons,
                now,
                "FRR's daemons are not the same as before"
            );
            daemons = now;
            queues.configuration.enqueue(Configuration);
        }
        if count % 2 == 0 {
            queues.sessions.enqueue(Sessions);
            let now = runs(&frr).await;
            if now != alive {
                tracing::info!(runs = now, "FRR went away or came back");
                alive = now;
                queues.configuration.enqueue(Configuration);
            }
        }
    }
}

/// Whether bgpd and zebra run; `None` where that cannot be found out.
async fn runs(frr: &Frr) -> Option<bool> {
    let mut all = Some(true);
    for daemon in ["bgpd", "zebra"] {
        match frr.runs(daemon).await {
            Ok(true) => {}
            Ok(false) => return Some(false),
            Err(_) => all = None,
        }
    }
    all
}

/// Looks whether somebody reconfigures FRR, and whether a daemon answers no more, or again. One that is slow to answer holds
/// up nothing else.
async fn follow_running(frr: Frr, configuration: WorkQueue<Configuration>) {
    let mut before = None;
    let mut pause = PROBE;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        // A change of ours looks like any other: the pass compares with what it loaded, and does nothing.
        let running = frr.running().await;
        pause = if running.silent.is_empty() {
            PROBE.max(begun.elapsed() * 200)
        } else {
            PROBE
        };
        let silent: Vec<String> = running.silent.into_keys().collect();
        let now = (running.digests, silent);
        let reported = before.replace(now.clone());
        if reported.is_some_and(|before| before != now) {
            configuration.enqueue(Configuration);
        }
    }
}
