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
use daemon::crds::{self, Need};
use frr_edge::Frr;
use kube_edge::{Writer, connect};
use model::NodeName;
use reconcile::{Timing, WorkQueue};
use settings::Settings;
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

/// What this daemon reads and writes of custom resources; what a cluster lacks of it is logged at the start.
pub const NEEDS: &[Need] = &[
    Need {
        version: "frrk8s.metallb.io/v1beta1",
        kind: "FRRConfiguration",
        fields: &[
            "spec.nodeSelector",
            "spec.bgp.bfdProfiles",
            "spec.bgp.routers.neighbors.bfdProfile",
            "spec.bgp.routers.neighbors.connectTime",
            "spec.bgp.routers.neighbors.enableGracefulRestart",
            "spec.bgp.routers.neighbors.holdTime",
            "spec.bgp.routers.neighbors.keepaliveTime",
            "spec.bgp.routers.neighbors.toReceive",
            "spec.bgp.routers.prefixes",
        ],
    },
    Need {
        version: "frrk8s.metallb.io/v1beta1",
        kind: "FRRNodeState",
        fields: &[
            "status.lastConversionResult",
            "status.lastReloadResult",
            "status.runningConfig",
        ],
    },
    Need {
        version: "frrk8s.metallb.io/v1beta1",
        kind: "BGPSessionState",
        fields: &["status.bgpStatus"],
    },
];

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
    daemon::run(&config, settings::Daemon::FrrAgent, |settings| async move {
        serve(&node, settings, telemetry::ended()).await
    })
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
    tokio::spawn(crds::probe(client.clone(), NEEDS));
    let mut daemon = Daemon::new(settings.metrics_address, &["caches", "first pass"]);
    let (readiness, stopped) = (daemon.readiness.clone(), daemon.stopped());
    let metrics = Metrics::new(&daemon.registry).context("cannot register metrics")?;
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
    let (queue, report_queue, session_queue) =
        (WorkQueue::new(), WorkQueue::new(), WorkQueue::new());
    let caches = Caches::start(&client, &namespace, node.as_str(), &queue);
    let nodes = caches.node.clone();
    let state = watch_state(&client, node.as_str(), report_queue.clone());
    let beside = Beside::new(node.clone(), state.clone());
    let board = Board::default();
    let configuration = ConfigurationSubject {
        caches,
        secrets: Secrets::new(client.clone(), &namespace, queue.clone()),
        applier: Applier::new(frr.clone(), metrics.clone(), node.clone()),
        board: board.clone(),
        reports: report_queue.clone(),
        beside: beside.clone(),
        node: node.clone(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        queue: queue.clone(),
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
        queue: report_queue.clone(),
        configuration: queue.clone(),
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
    daemon.spawn_source(
        "FRR's daemons",
        follow_daemons(frr.clone(), metrics, queue.clone(), session_queue.clone()),
    );
    daemon.spawn_source("FRR's configuration", follow_running(frr, queue.clone()));
    let timing = Timing {
        gather: Duration::from_millis(300),
        gather_most: Duration::from_secs(3),
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let work = reconcile::run(configuration, queue, timing, stopped.clone());
    daemon.spawn_loop("configuration", work);
    let timing = Timing {
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let work = reconcile::run(report, report_queue, timing, stopped.clone());
    daemon.spawn_loop("reports", work);
    let work = reconcile::run(sessions, session_queue, Timing::default(), stopped);
    daemon.spawn_loop("sessions", work);
    // Neither a reload under way nor an API server is waited for longer than the loops are.
    daemon.run(ended).await.context("ending")
}

/// How often the daemons' sockets are looked at, and their sessions (each second time).
const PACE: Duration = Duration::from_millis(500);
/// How often is looked whether FRR runs what was loaded, and whether a daemon that cannot be asked can be again; more seldom where reading it costs more than a 200th of that.
const PROBE: Duration = Duration::from_secs(5);

/// Looks whether FRR's daemons are new or gone, and has their sessions looked at.
async fn follow_daemons(
    frr: Frr,
    metrics: Metrics,
    configuration: WorkQueue<Configuration>,
    sessions: WorkQueue<Sessions>,
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
            configuration.enqueue(Configuration);
        }
        if count % 2 == 0 {
            sessions.enqueue(Sessions);
            let now = runs(&frr).await;
            if now != alive {
                tracing::info!(runs = now, "FRR went away or came back");
                alive = now;
                configuration.enqueue(Configuration);
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
        let told = before.replace(now.clone());
        if told.is_some_and(|before| before != now) {
            configuration.enqueue(Configuration);
        }
    }
}
