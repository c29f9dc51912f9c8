//! The frr-agent: does frr-k8s's work on one node, where frr-k8s is not installed.
//! In: the FRRConfigurations that select the node. Out: FRR runs what they say; FRRNodeState and BGPSessionState tell it.
//! Invariant: the last good configuration stays on any failure; nothing is reloaded when text and daemons are the same.
//! Not here: merge and text (`frr`), FRR itself (`frr-edge`).
//!
//! ```text
//!  FRRConfiguration, Node --caches--> merge -> without self -> render --differs from what was loaded?--> file, reload
//!  FRR's sockets (new process) --poke--^          '-> FRRNodeState          sessions (JSON) -> BGPSessionState
//! ```

mod caches;
mod key;
mod metrics;
mod subjects;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use api::frr_state::FRRNodeState;
use frr_edge::Frr;
use kube_edge::{Writer, connect};
use reconcile::{Poker, Timing};
use settings::Settings;
use telemetry::Readiness;
use tokio::sync::watch;

use crate::caches::Caches;
use crate::key::Key;
use crate::metrics::Metrics;
use crate::subjects::{Doors, FrrSubjects};

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
        .block_on(serve(arguments, settings))
}

async fn serve(arguments: Arguments, settings: Settings) -> anyhow::Result<()> {
    let client = connect(settings.kubeconfig.as_deref()).await?;
    refuse_beside_frr_k8s(&client, &arguments.node).await?;
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

    let poker = Poker::new();
    let frr = Frr::new(
        settings.frr_vty_socket.clone(),
        settings.frr_config_file.clone(),
    );
    let caches = Caches::start(
        &client,
        &settings.managed.frr_namespace,
        &arguments.node,
        &poker,
    );
    let doors = Doors {
        writer: Writer::new(client.clone(), FIELD_MANAGER),
        client,
        frr: frr.clone(),
        readiness,
        metrics,
    };
    tokio::spawn(follow_frr(frr, poker.clone()));
    let subjects = FrrSubjects::new(
        model::NodeName::from(arguments.node),
        settings.managed.frr_namespace,
        caches,
        doors,
    );
    let timing = Timing {
        settle: Duration::from_millis(300),
        retry_first: Duration::from_millis(500),
        retry_most: Duration::from_secs(600),
        ..Timing::default()
    };
    let work = tokio::spawn(reconcile::run(subjects, poker, timing, stopped));
    tokio::select! {
        ended = telemetry::ended() => ended.context("cannot listen to signals")?,
        served = server => served.context("metrics server")??,
    }
    tracing::info!("ending");
    stop.send_replace(true);
    // A reload under way is FRR's own business: it is not waited for longer than this.
    match tokio::time::timeout(Duration::from_millis(1800), work).await {
        Ok(ended) => ended.context("the loop ended badly"),
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

/// Looks every half second whether FRR's daemons are new, and every two seconds at the sessions.
async fn follow_frr(frr: Frr, poker: Poker<Key>) {
    let mut before = frr.instance();
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        tick.tick().await;
        let now = frr.instance();
        if now != before {
            tracing::info!(before, now, "FRR's daemons are not the same as before");
            before = now;
            poker.poke(Key::Configuration);
        }
        if count % 4 == 0 {
            poker.poke(Key::Sessions);
        }
    }
}
