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

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use kube_edge::events::Publisher;
use kube_edge::lease::Elector;
use kube_edge::{Leadership, Writer, connect};
use reconcile::{Pace, Poker, Timing};
use settings::{OvnTopology, Settings};
use telemetry::{Readiness, Tasks};
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
    let settings = settings::load(&arguments.config, settings::Daemon::ClusterManager)?;
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
    let ended = runtime.block_on(serve(&arguments.identity, settings, telemetry::ended()));
    // A plan under way is of no use any more.
    runtime.shutdown_background();
    ended
}

/// What this manager cannot do is refused before anything is read or written: beside OVN-Kubernetes there would be two
/// writers of node annotations, of the default network's NetworkAttachmentDefinition and of generated FRRConfigurations.
fn refuse_what_is_not_built(settings: &Settings) -> anyhow::Result<()> {
    if settings.ovn_topology == OvnTopology::Adopt {
        bail!(
            "[ovn] topology = adopt (also the default): OVN-Kubernetes' cluster manager would write the same objects as this one; allowed: build, in clusters without OVN-Kubernetes"
        );
    }
    Ok(())
}

/// Runs as `identity` until `ended` resolves.
///
/// # Errors
/// At start only: settings that are not built, client, metrics address; or when `ended` cannot be waited for.
pub async fn serve(
    identity: &str,
    settings: Settings,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    refuse_what_is_not_built(&settings)?;
    let client = connect(settings.kubeconfig.as_deref()).await?;
    let (stop, stopped) = watch::channel(false);
    let readiness = Readiness::default();
    readiness.set("caches", false);
    readiness.set("first pass", false);
    readiness.set("route advertisements", true);
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry).context("cannot register metrics")?;
    let mut tasks = Tasks::default();
    tasks.spawn_server(settings.metrics_address, registry, readiness.clone());

    let poker = Poker::new();
    let caches = Caches::start(&client, &settings, &poker);
    let leadership = Leadership::new();
    let (give_back, given_back) = watch::channel(false);
    let elector = Elector::new(client.clone(), LEASE.0, LEASE.1, identity);
    tasks.spawn_loop(
        "leader election",
        elector.run(leadership.clone(), given_back),
    );
    tasks.spawn_source(
        "leadership",
        follow(leadership.clone(), poker.clone(), metrics.clone()),
    );
    let publisher = Publisher::new(client.clone(), "noverlay-cluster-manager", identity);
    let (events, published) = publisher.queued(leadership.clone());

    let doors = Doors {
        client: client.clone(),
        writer: Writer::new(client, FIELD_MANAGER).gated(leadership.clone()),
        events,
        leadership: leadership.clone(),
        poker: poker.clone(),
        readiness,
        metrics,
    };
    let subjects = ClusterSubjects::new(caches, settings, doors);
    let timing = Timing {
        pace: Pace::Fixed(Duration::from_millis(100)),
        ..Timing::default()
    };
    // No write begins once the daemon is told to end.
    let mut told = stopped.clone();
    tasks.spawn_loop("end of leadership", async move {
        drop(told.wait_for(|ending| *ending).await);
        leadership.close();
    });
    tasks.spawn_loop("objects", async move {
        reconcile::run(subjects, poker, timing, stopped).await;
        // What waits to be told is told, unless that takes long; then the lease goes back, or runs out by itself.
        drop(tokio::time::timeout(Duration::from_millis(500), published).await);
        give_back.send_replace(true);
    });
    tasks.run(ended, &stop).await.context("ending")
}

/// A new leader looks at everything once; one that no longer leads tells nothing any more. Of an end that was over before this
/// woke the new term tells: passes came to nothing meanwhile.
async fn follow(leadership: Leadership, poker: Poker<key::Key>, metrics: Metrics) {
    let mut term = None;
    loop {
        term = leadership.changed(term).await;
        tracing::info!(leads = term.is_some(), term, "leadership changed");
        if term.is_some() {
            metrics.leader.set(1);
            poker.poke_everything();
        } else {
            metrics.follows();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::{Subjects, Verdict};
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;

    /// Counts sweeps.
    struct Sweeps(Arc<Mutex<usize>>);

    impl Subjects for Sweeps {
        type Key = key::Key;

        async fn universe(&mut self) -> Option<Vec<key::Key>> {
            *self.0.lock().unwrap() += 1;
            Some(Vec::new())
        }

        async fn pass(&mut self, _: &key::Key) -> Verdict {
            Verdict::Settled
        }
    }

    #[tokio::test]
    async fn an_end_of_leading_that_was_over_at_once_has_everything_looked_at_again() {
        let (leadership, poker) = (Leadership::new(), Poker::new());
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let sweeps = Arc::new(Mutex::new(0));
        let subjects = Sweeps(Arc::clone(&sweeps));
        let (_stop, stopped) = watch::channel(false);
        // One thread: nothing else runs until this test waits.
        let _loop = tokio::spawn(reconcile::run(
            subjects,
            poker.clone(),
            Timing::default(),
            stopped,
        ));
        let _follow = tokio::spawn(follow(leadership.clone(), poker, metrics));
        let idle = async || {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        };
        idle().await;
        assert_eq!(*sweeps.lock().unwrap(), 1, "at the start");
        leadership.renewed(Instant::now());
        idle().await;
        assert_eq!(*sweeps.lock().unwrap(), 2, "it leads");
        leadership.renewed(Instant::now());
        idle().await;
        assert_eq!(*sweeps.lock().unwrap(), 2, "the same term");
        leadership.lost();
        leadership.renewed(Instant::now());
        idle().await;
        assert_eq!(*sweeps.lock().unwrap(), 3, "another term");
    }
}
