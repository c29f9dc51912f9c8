//! What all daemons do alike: they start, log, serve metrics and probes, watch over their tasks and end.
//! In: a configuration file, tasks. Out: an exit status with its reason. Invariant: a task that ends or panics ends the process;
//! after its start a daemon ends for no other reason but a signal.
//! Not here: what the tasks do.

mod configuration;
pub mod crds;
mod sole;
mod tasks;

use std::net::SocketAddr;
use std::path::Path;

use prometheus::Registry;
use telemetry::Readiness;
use tokio::sync::watch;

pub use crate::configuration::{Configuration, Followed};
pub use crate::sole::Taken;
use crate::tasks::Tasks;
pub use crate::tasks::{TaskError, end_on_panic};

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its configuration file cannot be used.
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    /// No runtime.
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    /// It is not the only one on its host.
    #[error(transparent)]
    Taken(#[from] Taken),
}

/// Reads the configuration file and follows it, sets up logging and runs `serve` until it ends. What it left on other threads is not waited
/// for: a disk that does not answer, a plan under way that is of no use any more. An agent is the only one of its kind on its host.
///
/// # Errors
/// When the daemon cannot start, or what `serve` says.
pub fn run<E, F>(
    config: &Path,
    daemon: settings::Daemon,
    serve: impl FnOnce(Configuration) -> F,
) -> Result<(), E>
where
    E: From<StartError>,
    F: Future<Output = Result<(), E>>,
{
    let settings = settings::load(config, daemon).map_err(StartError::Settings)?;
    telemetry::init_logging(&settings.logging.level, settings.logging.text);
    end_on_panic();
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let ended = runtime.block_on(async {
        let _sole = match daemon {
            settings::Daemon::ClusterManager => None,
            settings::Daemon::NodeAgent => Some(sole::claim("node-agent").await),
            settings::Daemon::FrrAgent => Some(sole::claim("frr-agent").await),
        }
        .transpose()
        .map_err(StartError::Taken)?;
        let followed = Configuration::follow(config, daemon, settings);
        serve(followed).await
    });
    runtime.shutdown_background();
    ended
}

/// A daemon that is being put together.
#[derive(Debug)]
pub struct Daemon {
    /// Of `/readyz`.
    pub readiness: Readiness,
    /// Of `/metrics`.
    pub registry: Registry,
    tasks: Tasks,
    stop: watch::Sender<bool>,
}

impl Daemon {
    /// Serves metrics and probes at `address` from now on; `conditions` of `/readyz` are false until they are set.
    /// Has to be called in a runtime.
    #[must_use]
    pub fn new(address: SocketAddr, conditions: &[&'static str]) -> Self {
        let (readiness, registry) = (Readiness::default(), Registry::new());
        for condition in conditions {
            readiness.set(condition, false);
        }
        let mut tasks = Tasks::default();
        tasks.spawn_server(address, registry.clone(), readiness.clone());
        Self {
            readiness,
            registry,
            tasks,
            stop: watch::Sender::new(false),
        }
    }

    /// Tells how much of the configuration file is not in force, as `noverlay_configuration_refused`.
    ///
    /// # Errors
    /// When there is such a series already.
    pub fn tell_configuration(
        &mut self,
        configuration: Configuration,
    ) -> Result<(), prometheus::Error> {
        let refused = prometheus::IntGauge::new(
            "noverlay_configuration_refused",
            "Statements of the configuration file that are not in force",
        )?;
        self.registry.register(Box::new(refused.clone()))?;
        let tell = move |count| refused.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.spawn_source(
            "configuration's refusals",
            configuration.count_refused(tell),
        );
        Ok(())
    }

    /// Turns true when the daemon is asked to stop.
    #[must_use]
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Starts a task that ends when [`Self::stopped`] turns true, and not before.
    pub fn spawn_loop(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn_loop(name, task);
    }

    /// Starts a task that never ends.
    pub fn spawn_source(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn_source(name, task);
    }

    /// Waits until `ended` resolves, then stops the loops and gives them 1.5 s for what they are at.
    ///
    /// # Errors
    /// When a task panicked, or ended before `ended` resolved.
    pub async fn run(
        self,
        ended: impl Future<Output = std::io::Result<()>>,
    ) -> Result<(), TaskError> {
        self.tasks.run(ended, &self.stop).await
    }
}
