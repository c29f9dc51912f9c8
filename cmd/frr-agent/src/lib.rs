//! The frr-agent: does frr-k8s's work on one node, where frr-k8s is not installed.
//! In: the FRRConfigurations that select the node. Out: FRR runs what they say; FRRNodeState and BGPSessionState tell it.
//! Invariant: the last good configuration stays on any failure; nothing is reloaded when text and daemons are the same.
//! Not here: merge and text (`frr`), FRR itself (`frr-edge`).
//!
//! ```text
//!  FRRConfiguration, Node, Secret --caches--> merge -> without self -> render --does FRR hold it?--> check, file, reload
//!  FRR's sockets, running config  --poke------^                                                         | what came of it
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
use frr_edge::Frr;
use kube_edge::{Writer, connect};
use model::NodeName;
use reconcile::{Poker, Timing};
use settings::Settings;
use telemetry::{Readiness, Tasks};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::applier::Applier;
use crate::beside::Beside;
use crate::caches::{Caches, watch_sessions, watch_state};
use crate::configuration::ConfigurationSubject;
use crate::key::{Configuration, Sessions};
use crate::metrics::Metrics;
use crate::report::{Board, ReportSubject};
use crate::secrets::Secrets;
use crate::sessions::{Memory, Refusals, SessionSubject};

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
/// At start only: configuration, client, metrics address, frr-k8s on the same node.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let settings = settings::load(&arguments.config, settings::Daemon::FrrAgent)?;
    telemetry::init_logging(&settings.log_level, settings.log_text);
    telemetry::end_on_panic();
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(serve(&arguments.node, settings, telemetry::ended()));
    // A disk that does not answer is not waited for.
    runtime.shutdown_background();
    ended
}

/// Serves one node until `ended`.
///
/// # Errors
/// At start only: client, metrics address, frr-k8s on the same node.
pub async fn serve(
    node: &str,
    settings: Settings,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let client = connect(settings.kubeconfig.as_deref()).await?;
    beside::refuse(&client, node).await?;
    let (stop, stopped) = watch::channel(false);
    let readiness = Readiness::default();
    readiness.set("caches", false);
    readiness.set("first pass", false);
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry).context("cannot register metrics")?;
    let mut tasks = Tasks::default();
    tasks.spawn_server(settings.metrics_address, registry, readiness.clone());
    let frr = Frr {
        reload_tool: settings.frr_reload_tool.clone(),
        reload_timeout: settings.frr_reload_timeout,
        ..Frr::new(
            settings.frr_vty_socket.clone(),
            settings.frr_config_file.clone(),
        )
    };
    let node = NodeName::from(node);
    let namespace = settings.managed.frr_namespace;
    let writer = Writer::new(client.clone(), FIELD_MANAGER);
    let (poker, report_poker, session_poker) = (Poker::new(), Poker::new(), Poker::new());
    let caches = Caches::start(&client, &namespace, node.as_str(), &poker);
    let nodes = caches.node.clone();
    let state = watch_state(&client, node.as_str(), report_poker.clone());
    let beside = Beside::new(node.clone(), state.clone());
    let board = Board::default();
    let configuration = ConfigurationSubject {
        caches,
        secrets: Secrets::new(client.clone(), &namespace, poker.clone()),
        applier: Applier::new(frr.clone(), metrics.clone(), node.clone()),
        board: board.clone(),
        reports: report_poker.clone(),
        beside: beside.clone(),
        node: node.clone(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        poker: poker.clone(),
        linted: Vec::new(),
        waiting_since: None,
        aside: false,
    };
    let report = ReportSubject {
        node: node.clone(),
        writer: writer.clone(),
        frr: frr.clone(),
        state,
        nodes: nodes.clone(),
        board,
        readiness,
        poker: report_poker.clone(),
        configuration: poker.clone(),
        written: None,
        of_frr_k8s: false,
    };
    let sessions = SessionSubject {
        standing: watch_sessions(&client, &namespace, node.as_str()),
        node,
        namespace,
        writer,
        frr: frr.clone(),
        metrics: metrics.clone(),
        beside,
        nodes,
        written: std::collections::BTreeMap::new(),
        refusals: Refusals::default(),
        memory: Memory::default(),
    };
    tasks.spawn_source(
        "FRR's daemons",
        follow_daemons(frr.clone(), metrics, poker.clone(), session_poker.clone()),
    );
    tasks.spawn_source("FRR's configuration", follow_running(frr, poker.clone()));
    let timing = Timing {
        gather: Duration::from_millis(300),
        gather_most: Duration::from_secs(3),
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let work = reconcile::run(configuration, poker, timing, stopped.clone());
    tasks.spawn_loop("configuration", work);
    let timing = Timing {
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let work = reconcile::run(report, report_poker, timing, stopped.clone());
    tasks.spawn_loop("reports", work);
    let work = reconcile::run(sessions, session_poker, Timing::default(), stopped);
    tasks.spawn_loop("sessions", work);
    // Neither a reload under way nor an API server is waited for longer than the loops are.
    tasks.run(ended, &stop).await.context("ending")
}

/// How often the daemons' sockets are looked at, and their sessions (each second time).
const PACE: Duration = Duration::from_millis(500);
/// How often is looked whether FRR runs what was loaded, and whether a daemon that cannot be asked can be again; more seldom where reading it costs more than a 200th of that.
const LOOK: Duration = Duration::from_secs(5);

/// Looks whether FRR's daemons are new or gone, and has their sessions looked at.
async fn follow_daemons(
    frr: Frr,
    metrics: Metrics,
    configuration: Poker<Configuration>,
    sessions: Poker<Sessions>,
) {
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
            configuration.poke(Configuration);
        }
        if count % 2 == 0 {
            sessions.poke(Sessions);
            let now = runs(&frr).await;
            if now != alive {
                tracing::info!(runs = now, "FRR went away or came back");
                alive = now;
                configuration.poke(Configuration);
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
async fn follow_running(frr: Frr, configuration: Poker<Configuration>) {
    let mut before = None;
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        // A change of ours looks like any other: the pass compares with what it loaded, and does nothing.
        let running = frr.running().await;
        pause = if running.silent.is_empty() {
            LOOK.max(begun.elapsed() * 200)
        } else {
            LOOK
        };
        let silent: Vec<String> = running.silent.into_keys().collect();
        let now = (running.digests, silent);
        let told = before.replace(now.clone());
        if told.is_some_and(|before| before != now) {
            configuration.poke(Configuration);
        }
    }
}
