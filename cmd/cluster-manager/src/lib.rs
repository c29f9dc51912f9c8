//! The cluster-manager: allocates node ids and subnets, runs the managed fabric, turns RouteAdvertisements into FRRConfigurations.
//! In: the API server and one configuration file. Out: objects, conditions, events; only while this replica leads.
//! Invariant: followers keep their caches warm and write nothing; nothing is written when nothing changed.
//! Not here: decisions (`plan-cluster`), the API (`kube-edge`).
//!
//! ```text
//!  Node, RA, FRRConfiguration, NAD --caches--> World --plan--> diff --(leader?)--> apply
//!        '-- changed value --> poke(subject) --> reconcile --^
//! ```

mod caches;
mod key;
mod metrics;
mod subjects;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube_edge::events::Publisher;
use kube_edge::lease::Elector;
use kube_edge::{Writer, connect};
use reconcile::{Poker, Timing};
use settings::Settings;
use telemetry::Readiness;
use tokio::sync::watch;

use crate::caches::Caches;
use crate::metrics::Metrics;
use crate::subjects::{ClusterSubjects, Doors};

/// Field manager of everything the cluster-manager writes.
pub const FIELD_MANAGER: &str = "noverlay-cluster-manager";
/// Namespace and name of the leader's Lease.
pub const LEASE: (&str, &str) = ("noverlay-system", "noverlay-cluster-manager");

/// Command line.
#[derive(Debug, clap::Parser)]
#[command(
    name = "cluster-manager",
    about = "noverlay's cluster-wide daemon",
    version
)]
pub struct Arguments {
    /// Configuration file; TOML where its name ends in .toml, bare words otherwise.
    #[arg(long)]
    pub config: PathBuf,
    /// Who this replica is in the leader's Lease.
    #[arg(long)]
    pub identity: String,
}

/// Runs the daemon until it is told to end.
///
/// # Errors
/// At start only: configuration, client, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let metrics = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9160));
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
        .block_on(serve(&arguments.identity, settings, telemetry::ended()))
}

/// Runs as `identity` until `ended` resolves.
///
/// # Errors
/// At start only: client, metrics address; or when `ended` cannot be waited for.
pub async fn serve(
    identity: &str,
    settings: Settings,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let client = connect(settings.kubeconfig.as_deref()).await?;
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
    let caches = Caches::start(&client, &settings, &poker);
    let (leads, led) = watch::channel(false);
    let elector = Elector::new(client.clone(), LEASE.0, LEASE.1, identity);
    let elector = tokio::spawn(elector.run(leads, stopped.clone()));
    tokio::spawn(poke_new_leader(led.clone(), poker.clone(), metrics.clone()));

    let doors = Doors {
        client: client.clone(),
        writer: Writer::new(client.clone(), FIELD_MANAGER),
        publisher: Publisher::new(client, "noverlay-cluster-manager", identity),
        leads: led,
        poker: poker.clone(),
        readiness,
        metrics,
    };
    let subjects = ClusterSubjects::new(caches, settings, doors);
    let timing = Timing {
        settle: Duration::from_millis(100),
        ..Timing::default()
    };
    let work = tokio::spawn(reconcile::run(subjects, poker, timing, stopped));
    tokio::select! {
        ended = ended => ended.context("cannot listen to signals")?,
        served = server => served.context("metrics server")??,
    }
    tracing::info!("ending");
    stop.send_replace(true);
    let rest = async {
        let (work, elector) = tokio::join!(work, elector);
        work.and(elector)
    };
    match tokio::time::timeout(Duration::from_millis(1800), rest).await {
        Ok(ended) => ended.context("a task ended badly"),
        Err(_) => Ok(()),
    }
}

/// A new leader looks at everything once.
async fn poke_new_leader(mut led: watch::Receiver<bool>, poker: Poker<key::Key>, metrics: Metrics) {
    while led.changed().await.is_ok() {
        let leads = *led.borrow_and_update();
        metrics.leader.set(i64::from(leads));
        if leads {
            poker.poke_everything();
        }
    }
}
