//! The cluster-manager: makes the networks of ClusterUserDefinedNetworks, allocates node ids and subnets, runs the managed
//! fabric, turns RouteAdvertisements into FRRConfigurations.
//! In: the API server and one configuration file. Out: objects, conditions, events; only while this replica leads.
//! Invariant: followers keep their caches warm and write nothing; nothing is written when nothing changed.
//! Not here: decisions (`plan-cluster`), the API (`kube-edge`).
//!
//! ```text
//!  Node, Namespace, CUDN, NAD, RA, EgressIP, FRRConfiguration --caches--> World --plan--> diff --(leader?)--> apply
//!        '-- changed value --> enqueue(key) --> reconcile --^
//! ```

mod caches;
mod key;
mod metrics;
mod reconcilers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use daemon::crds;
use daemon::{Configuration, Daemon};
use kube_edge::events::Publisher;
use kube_edge::lease::Elector;
use kube_edge::{Leadership, Writer, connect, connect_gated};
use reconcile::{Pace, Timing, WorkQueue};
use settings::{OvnNetworks, OvnTopology, Settings};
use tokio::sync::watch;

use crate::caches::Caches;
use crate::metrics::Metrics;
use crate::reconcilers::{Clients, ClusterReconciler};

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
    /// Configuration file; TOML where its name ends in .toml, ovnkube.conf (gcfg) syntax otherwise.
    #[arg(long)]
    pub config: PathBuf,
    /// Who this replica is in the leader's Lease.
    #[arg(long)]
    pub identity: String,
}

/// Runs the daemon until it is asked to stop.
///
/// # Errors
/// At start only: configuration, client, metrics address.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { config, identity } = arguments;
    daemon::run(
        &config,
        settings::Daemon::ClusterManager,
        |configuration| async move { serve(&identity, configuration, telemetry::ended()).await },
    )
}

/// What this manager cannot do is refused before anything is read or written: beside OVN-Kubernetes there would be two
/// writers of node annotations and of NetworkAttachmentDefinitions.
fn refuse_two_writers(settings: &Settings) -> anyhow::Result<()> {
    if (settings.ovn.topology, settings.ovn.networks) == (OvnTopology::Adopt, OvnNetworks::Own) {
        bail!(
            "[ovn] networks = own with topology = adopt (also the default): OVN-Kubernetes' cluster manager writes node ids, node subnets and NetworkAttachmentDefinitions; allowed: observe"
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
    configuration: impl Into<Configuration>,
    ended: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<()> {
    let configuration = configuration.into();
    let settings = configuration.now().settings.clone();
    refuse_two_writers(&settings)?;
    let client = connect(settings.kubeconfig.as_deref()).await?;
    tokio::spawn(crds::probe(client.clone(), crds::needs::CLUSTER_MANAGER));
    let mut daemon = Daemon::new(settings.metrics_address, &["caches", "first pass"]);
    let (readiness, stopped) = (daemon.readiness.clone(), daemon.stopped());
    readiness.set("route advertisements", true);
    let metrics = Metrics::new(&daemon.registry).context("cannot register metrics")?;

    let queue = WorkQueue::new();
    let caches = Caches::start(&client, &settings, &queue);
    let leadership = Leadership::new();
    let (give_back, given_back) = watch::channel(false);
    let elector = Elector::new(client.clone(), LEASE.0, LEASE.1, identity);
    daemon.spawn_loop(
        "leader election",
        elector.run(leadership.clone(), given_back),
    );
    daemon.spawn_source(
        "leadership",
        follow(leadership.clone(), queue.clone(), metrics.clone()),
    );
    let gated = connect_gated(settings.kubeconfig.as_deref(), leadership.clone()).await?;
    let publisher = Publisher::new(gated.clone(), "noverlay-cluster-manager", identity);
    let (events, published) = publisher.queued(leadership.clone());

    let writer = Writer::new(gated, FIELD_MANAGER).gated(leadership.clone());
    let counted = metrics.clone();
    let clients = Clients {
        client,
        writer: writer.observed(move |kind, outcome| counted.wrote(kind, outcome)),
        events,
        leadership: leadership.clone(),
        queue: queue.clone(),
        readiness,
        metrics,
    };
    let changed = followed(configuration.clone(), queue.clone());
    daemon.spawn_source("changes of the configuration", changed);
    (daemon.tell_configuration(configuration.clone())).context("cannot register metrics")?;
    let reconcilers = ClusterReconciler::new(caches, configuration, clients);
    let timing = Timing {
        pace: Pace::Fixed(Duration::from_millis(100)),
        ..Timing::default()
    };
    // No write begins once the daemon is asked to stop.
    let mut reported = stopped.clone();
    daemon.spawn_loop("end of leadership", async move {
        drop(reported.wait_for(|ending| *ending).await);
        leadership.close();
    });
    daemon.spawn_loop("objects", async move {
        reconcile::run(reconcilers, queue, timing, stopped).await;
        // What waits to be reported is reported, unless that takes long; then the lease goes back, or runs out by itself.
        drop(tokio::time::timeout(Duration::from_millis(500), published).await);
        give_back.send_replace(true);
    });
    daemon.run(ended).await.context("ending")
}

/// Another configuration may be another plan of everything.
async fn followed(mut configuration: Configuration, queue: WorkQueue<key::Key>) {
    loop {
        configuration.changed().await;
        queue.resync();
    }
}

/// A new leader looks at everything once; one that no longer leads tells nothing any more. Of an end that was over before this
/// woke the new term tells: passes came to nothing meanwhile.
async fn follow(leadership: Leadership, queue: WorkQueue<key::Key>, metrics: Metrics) {
    let mut term = None;
    loop {
        term = leadership.changed(term).await;
        tracing::info!(leads = term.is_some(), term, "leadership changed");
        if term.is_some() {
            metrics.leader.set(1);
            queue.resync();
        } else {
            metrics.follows();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::{Action, Reconciler};
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;

    /// Counts sweeps.
    struct Sweeps(Arc<Mutex<usize>>);

    impl Reconciler for Sweeps {
        type Key = key::Key;

        async fn keys(&mut self) -> Option<Vec<key::Key>> {
            *self.0.lock().unwrap() += 1;
            Some(Vec::new())
        }

        async fn reconcile(&mut self, _: &key::Key) -> Action {
            Action::Done
        }
    }

    #[tokio::test]
    async fn an_end_of_leading_that_was_over_at_once_has_everything_looked_at_again() {
        let (leadership, queue) = (Leadership::new(), WorkQueue::new());
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let sweeps = Arc::new(Mutex::new(0));
        let reconcilers = Sweeps(Arc::clone(&sweeps));
        let (_stop, stopped) = watch::channel(false);
        // One thread: nothing else runs until this test waits.
        let _loop = tokio::spawn(reconcile::run(
            reconcilers,
            queue.clone(),
            Timing::default(),
            stopped,
        ));
        let _follow = tokio::spawn(follow(leadership.clone(), queue, metrics));
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
