//! The tasks that a daemon is made of: when one of them ends before it was asked to, the daemon ends too.
//! In: tasks by name. Out: why the daemon has to end. Invariant: none of them dies unnoticed, whether it returns or panics;
//! what the kubelet restarts works again, while a process without one of its loops only looks as if it did.
//! Not here: what the tasks do.

use std::any::Any;
use std::collections::HashMap;
use std::time::Duration;

use prometheus::Registry;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use telemetry::{Readiness, ServeError, serve};

/// How long the pass under way may take once the daemon was asked to stop.
const LAST_PASS: Duration = Duration::from_millis(1500);

/// Why a daemon ends without having been asked to.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// Signals cannot be listened to.
    #[error("cannot listen to signals")]
    Signals(#[source] std::io::Error),
    /// The server of metrics and probes.
    #[error("metrics server")]
    Metrics(#[from] ServeError),
    /// A task panicked.
    #[error("task {task:?} panicked: {why}")]
    Panicked {
        /// Its name.
        task: &'static str,
        /// What it said.
        why: String,
    },
    /// A task returned although nobody had asked it to.
    #[error("task {task:?} ended by itself")]
    Ended {
        /// Its name.
        task: &'static str,
    },
}

type Joined = Option<Result<(Id, Result<(), ServeError>), JoinError>>;

/// The tasks of one daemon.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// They end when the daemon is asked to, and are waited for.
    loops: JoinSet<Result<(), ServeError>>,
    /// They never end by themselves, and go with the process.
    sources: JoinSet<Result<(), ServeError>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Starts a task that ends when the daemon is asked to stop, and not before.
    pub(crate) fn spawn_loop(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let handle = self.loops.spawn(async {
            task.await;
            Ok(())
        });
        self.names.insert(handle.id(), name);
    }

    /// Starts a task that never ends.
    pub(crate) fn spawn_source(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let handle = self.sources.spawn(async {
            task.await;
            Ok(())
        });
        self.names.insert(handle.id(), name);
    }

    /// Starts the server of metrics and probes.
    pub(crate) fn spawn_server(
        &mut self,
        address: std::net::SocketAddr,
        registry: Registry,
        readiness: Readiness,
    ) {
        let handle = self.sources.spawn(serve(address, registry, readiness));
        self.names.insert(handle.id(), "metrics server");
    }

    /// Waits until `ended` resolves, then tells the loops through `stop` and gives them 1.5 s for the pass under way.
    ///
    /// # Errors
    /// When a task panicked, or ended before `ended` resolved.
    pub(crate) async fn run(
        mut self,
        ended: impl Future<Output = std::io::Result<()>>,
        stop: &watch::Sender<bool>,
    ) -> Result<(), TaskError> {
        tokio::select! {
            ended = ended => ended.map_err(TaskError::Signals)?,
            Some(lost) = self.loops.join_next_with_id() => return Err(self.reason(Some(lost))),
            Some(lost) = self.sources.join_next_with_id() => return Err(self.reason(Some(lost))),
        }
        stop.send_replace(true);
        let rest = async {
            while let Some(ended) = self.loops.join_next_with_id().await {
                if ended.is_err() {
                    return Err(self.reason(Some(ended)));
                }
            }
            Ok(())
        };
        tokio::time::timeout(LAST_PASS, rest)
            .await
            .unwrap_or(Ok(()))
    }

    fn reason(&self, joined: Joined) -> TaskError {
        let name = |id: Id| self.names.get(&id).copied().unwrap_or("unnamed");
        match joined {
            Some(Ok((_, Err(error)))) => TaskError::Metrics(error),
            Some(Ok((id, Ok(())))) => TaskError::Ended { task: name(id) },
            Some(Err(error)) => {
                let task = name(error.id());
                let why = error
                    .try_into_panic()
                    .map_or_else(|error| error.to_string(), |panic| said(panic.as_ref()));
                TaskError::Panicked { task, why }
            }
            None => TaskError::Ended { task: "unnamed" },
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}

/// From now on a panic of any task or thread ends the process with status 1, after one line that says where and why.
/// For daemons: a panic in a task that nobody waits for would leave a process that answers probes and does nothing.
pub fn end_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        tracing::error!(%panic, "ending because of a panic; what was written keeps forwarding");
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn mk() -> (Tasks, watch::Sender<bool>, watch::Receiver<bool>) {
        let (stop, stopped) = watch::channel(false);
        (Tasks::default(), stop, stopped)
    }

    async fn until(mut stopped: watch::Receiver<bool>) {
        let _ = stopped.wait_for(|stop| *stop).await;
    }

    #[tokio::test]
    async fn a_loop_or_source_that_panics_ends_the_daemon_with_its_name_and_reason() {
        for of_a_loop in [true, false] {
            let (mut tasks, stop, stopped) = mk();
            tasks.spawn_loop("bridge", until(stopped.clone()));
            tasks.spawn_source("kernel", pending());
            let bad = async {
                tokio::task::yield_now().await;
                panic!("index {} of 3", 4);
            };
            if of_a_loop {
                tasks.spawn_loop("import", bad);
            } else {
                tasks.spawn_source("import", bad);
            }
            let error = tasks.run(pending(), &stop).await.unwrap_err().to_string();
            assert_eq!(error, "task \"import\" panicked: index 4 of 3");
        }
    }

    #[tokio::test]
    async fn a_task_that_returns_unreported_ends_the_daemon() {
        let (mut tasks, stop, stopped) = mk();
        tasks.spawn_loop("bridge", until(stopped));
        tasks.spawn_source("north", async {});
        let error = tasks.run(pending(), &stop).await.unwrap_err().to_string();
        assert_eq!(error, "task \"north\" ended by itself");
    }

    #[tokio::test]
    async fn told_to_end_it_waits_for_the_loops_and_not_for_the_sources() {
        let (mut tasks, stop, stopped) = mk();
        let (done, mut seen) = watch::channel(false);
        tasks.spawn_loop("import", async move {
            until(stopped).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            done.send_replace(true);
        });
        tasks.spawn_source("kernel", pending());
        tasks.run(async { Ok(()) }, &stop).await.unwrap();
        assert!(*seen.borrow_and_update());
    }

    #[tokio::test]
    async fn a_loop_that_panics_in_its_last_pass_is_reported() {
        let (mut tasks, stop, stopped) = mk();
        tasks.spawn_loop("import", async move {
            until(stopped).await;
            panic!("late");
        });
        let error = tasks.run(async { Ok(()) }, &stop).await.unwrap_err();
        assert_eq!(error.to_string(), "task \"import\" panicked: late");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_ends_the_daemon_with_its_cause() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut tasks, stop, _stopped) = mk();
        let address = taken.local_addr().unwrap();
        tasks.spawn_server(address, Registry::new(), Readiness::default());
        let error = tasks.run(pending(), &stop).await.unwrap_err();
        assert!(
            telemetry::Chain(&error)
                .to_string()
                .contains("cannot listen on")
        );
    }

    /// Set for the process that panics.
    const INSIDE: &str = "NOVERLAY_TEST_PANICS";

    #[test]
    fn a_panic_in_a_task_that_nobody_waits_for_ends_the_process() {
        const NAME: &str = "tasks::tests::a_panic_in_a_task_that_nobody_waits_for_ends_the_process";
        if std::env::var_os(INSIDE).is_some() {
            end_on_panic();
            let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
            runtime.spawn(async { panic!("a watch that broke") });
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("a watch that broke"), "{said}");
    }
}
