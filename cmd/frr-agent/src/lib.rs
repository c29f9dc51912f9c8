//! The frr-agent: does frr-k8s's work on one node, where frr-k8s is not installed.
//! In: the FRRConfigurations that select the node. Out: FRR runs what they say; FRRNodeState and BGPSessionState tell it.
//! Invariant: the last good configuration stays on any failure; nothing is reloaded when text and daemons are the same.
//! Not here: merge and text (`frr`), FRR itself (`frr-edge`).
//!
//! ```text
//!  FRRConfiguration, Node, Secret --caches--> merge -> without self -> render --does FRR hold it?--> check, file, reload
//!  FRR's sockets, running config  --poke------^          '-> FRRNodeState          sessions (JSON) -> BGPSessionState
//! ```

mod applier;
mod caches;
mod configuration;
mod key;
mod metrics;
mod report;
mod secrets;
mod sessions;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use api::frr_state::FRRNodeState;
use frr_edge::Frr;
use kube_edge::{Writer, connect};
use model::NodeName;
use reconcile::{Poker, Timing};
use settings::Settings;
use telemetry::Readiness;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::applier::Applier;
use crate::caches::Caches;
use crate::configuration::ConfigurationSubject;
use crate::key::{Configuration, Sessions};
use crate::metrics::Metrics;
use crate::report::Reporter;
use crate::secrets::Secrets;
use crate::sessions::SessionSubject;

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
    let metrics = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9162));
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
        .block_on(serve(&arguments.node, settings, telemetry::ended()))
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
    refuse_beside_frr_k8s(&client, node).await?;
    let (stop, stopped) = watch::channel(false);
    let readiness = Readiness::default();
    readiness.set("caches", false);
    readiness.set("first pass", false);
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry).context("cannot register metrics")?;
    let server = tokio::spawn(telemetry::serve(
        settings.metrics_address,
        registry,
        readiness.clone(),
    ));
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
    let (poker, session_poker) = (Poker::new(), Poker::new());
    let configuration = ConfigurationSubject {
        caches: Caches::start(&client, &namespace, node.as_str(), &poker),
        secrets: Secrets::new(client.clone(), &namespace, poker.clone()),
        applier: Applier::new(frr.clone(), metrics.clone()),
        reporter: Reporter::new(client.clone(), writer.clone(), node.clone()),
        node: node.clone(),
        frr: frr.clone(),
        metrics: metrics.clone(),
        readiness,
        poker: poker.clone(),
        linted: Vec::new(),
        waiting_since: None,
    };
    let sessions = SessionSubject {
        node,
        namespace,
        client,
        writer,
        frr: frr.clone(),
        metrics: metrics.clone(),
        standing: None,
        last: Vec::new(),
        silent_since: None,
    };
    tokio::spawn(follow_frr(
        frr,
        metrics,
        poker.clone(),
        session_poker.clone(),
    ));
    let timing = Timing {
        gather: Duration::from_millis(300),
        gather_most: Duration::from_secs(3),
        retry_first: Duration::from_millis(500),
        ..Timing::default()
    };
    let work = tokio::spawn(reconcile::run(
        configuration,
        poker,
        timing,
        stopped.clone(),
    ));
    let session_work = tokio::spawn(reconcile::run(
        sessions,
        session_poker,
        Timing::default(),
        stopped,
    ));
    tokio::select! {
        ended = ended => ended.context("cannot listen to signals")?,
        served = server => served.context("metrics server")??,
    }
    tracing::info!("ending");
    stop.send_replace(true);
    // A reload under way is FRR's own business: it is not waited for longer than this.
    let both = async { tokio::try_join!(work, session_work) };
    match tokio::time::timeout(Duration::from_millis(1800), both).await {
        Ok(ended) => ended.map(|_| ()).context("a loop ended badly"),
        Err(_) => Ok(()),
    }
}

/// Two writers of one FRR would undo each other for ever. An API server that does not answer is no reason to stay away:
/// the node's last good configuration has to be looked after.
async fn refuse_beside_frr_k8s(client: &kube::Client, node: &str) -> anyhow::Result<()> {
    let api: kube::Api<FRRNodeState> = kube::Api::all(client.clone());
    let asked = tokio::time::timeout(Duration::from_secs(5), api.get_opt(node)).await;
    let Ok(Ok(Some(state))) = asked else {
        return Ok(());
    };
    let managers = state.metadata.managed_fields.unwrap_or_default();
    let other = managers
        .into_iter()
        .filter_map(|m| m.manager)
        .find(|m| m != FIELD_MANAGER);
    if let Some(other) = other {
        bail!(
            "FRRNodeState {node} is written by {other:?}: frr-k8s manages FRR on this node; remove it from the node, or this agent (and delete the FRRNodeState that it left)"
        );
    }
    Ok(())
}

/// How often the daemons' sockets are looked at, and their sessions (each second time).
const PACE: Duration = Duration::from_millis(500);
/// How often is looked whether FRR runs what was loaded; more seldom where reading it costs more than a 200th of that.
const LOOK: Duration = Duration::from_secs(5);

/// Looks whether FRR's daemons are new, whether they are reconfigured, and at their sessions.
async fn follow_frr(
    frr: Frr,
    metrics: Metrics,
    configuration: Poker<Configuration>,
    sessions: Poker<Sessions>,
) {
    let mut instance = frr.instance();
    let mut alive = true;
    let mut running = None;
    let mut look_at = Instant::now() + LOOK;
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        tick.tick().await;
        metrics.tick();
        let now = frr.instance();
        if now != instance {
            tracing::info!(
                before = instance,
                now,
                "FRR's daemons are not the same as before"
            );
            instance = now;
            configuration.poke(Configuration);
        }
        if count % 2 == 0 {
            sessions.poke(Sessions);
            let now = frr.runs("bgpd") && frr.runs("zebra");
            if now != alive {
                tracing::info!(runs = now, "FRR went away or came back");
                alive = now;
                configuration.poke(Configuration);
            }
        }
        let begun = Instant::now();
        if begun < look_at {
            continue;
        }
        // A change of ours looks like any other: the pass compares with what it loaded, and does nothing.
        if let Ok(digest) = frr.running_digest().await
            && running
                .replace(digest.clone())
                .is_some_and(|before| before != digest)
        {
            configuration.poke(Configuration);
        }
        look_at = Instant::now() + LOOK.max(begun.elapsed() * 200);
    }
}
