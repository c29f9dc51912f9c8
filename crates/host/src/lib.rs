//! Flows of a bridge through `ovs-ofctl`: compare, replace in one bundle, watch. The packet filter through `nft` ([`nft`]).
//! Echo requests that are not fragmented ([`echo`]).
//! In: flows as values and the folder of Open vSwitch's sockets. Out: the bridge holding exactly them.
//! Invariant: a replacement is one atomic bundle; every call has a deadline.
//! Not here: which flows (planners), ports and databases (`ovn`).

pub mod echo;
pub mod nft;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use model::ovs::{COOKIE, Flow};
use reconcile::Backoff;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// How long one call may take.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Why flows could not be read or written. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// ovs-ofctl cannot be run.
    #[error("cannot run ovs-ofctl")]
    Run(#[source] std::io::Error),
    /// It did not end in time.
    #[error("ovs-ofctl {verb} of {bridge} did not end within {DEADLINE:?}")]
    Deadline {
        /// replace-flows, ...
        verb: &'static str,
        /// The bridge.
        bridge: String,
    },
    /// It ended with an error.
    #[error("ovs-ofctl {verb} of {bridge} failed: {said}")]
    Failed {
        /// replace-flows, ...
        verb: &'static str,
        /// The bridge.
        bridge: String,
        /// What it said.
        said: String,
    },
}

/// Control of the bridges of one Open vSwitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeControl {
    rundir: PathBuf,
}

impl BridgeControl {
    /// Bridges whose sockets (`<bridge>.mgmt`) are in this folder.
    #[must_use]
    pub fn new(rundir: PathBuf) -> Self {
        Self { rundir }
    }

    fn target(&self, bridge: &str) -> String {
        format!(
            "unix:{}",
            self.rundir.join(format!("{bridge}.mgmt")).display()
        )
    }

    /// Whether the bridge holds exactly these flows, in whatever spelling.
    ///
    /// # Errors
    /// When the bridge cannot be asked.
    pub async fn holds(&self, bridge: &str, flows: &[Flow]) -> Result<bool, FlowError> {
        let (code, said) = self
            .run("diff-flows", bridge, &["/dev/stdin"], Some(flows))
            .await?;
        match code {
            0 => Ok(true),
            2 => Ok(false),
            _ => Err(failed("diff-flows", bridge, said)),
        }
    }

    /// Whether the bridge holds these flows, whatever else it holds.
    ///
    /// # Errors
    /// When the bridge cannot be asked.
    pub async fn includes(&self, bridge: &str, flows: &[Flow]) -> Result<bool, FlowError> {
        let (code, said) = self
            .run("diff-flows", bridge, &["/dev/stdin"], Some(flows))
            .await?;
        match code {
            0 => Ok(true),
            // A line with `+` is a flow that only the second source has.
            2 => Ok(!said.lines().any(|line| line.starts_with('+'))),
            _ => Err(failed("diff-flows", bridge, said)),
        }
    }

    /// Whether the bridge holds flows with our cookie that serve this uplink.
    ///
    /// # Errors
    /// When the bridge cannot be asked.
    pub async fn serves(&self, bridge: &str, uplink: u32) -> Result<bool, FlowError> {
        let filter = format!("cookie={COOKIE:#x}/-1,in_port={uplink}");
        let (code, said) = self.run("dump-flows", bridge, &[&filter], None).await?;
        if code != 0 {
            return Err(failed("dump-flows", bridge, said));
        }
        Ok(said.contains("actions="))
    }

    /// Makes the bridge hold exactly these flows, in one bundle.
    ///
    /// # Errors
    /// When the bridge cannot be reached or refuses a flow; then nothing was changed.
    pub async fn replace(&self, bridge: &str, flows: &[Flow]) -> Result<(), FlowError> {
        let (code, said) = self
            .run("replace-flows", bridge, &["-"], Some(flows))
            .await?;
        if code == 0 {
            Ok(())
        } else {
            Err(failed("replace-flows", bridge, said))
        }
    }

    /// Adds flows in one bundle; those of the same table, priority and match are changed, others stay.
    ///
    /// # Errors
    /// When the bridge cannot be reached or refuses a flow; then nothing was changed.
    pub async fn add(&self, bridge: &str, flows: &[Flow]) -> Result<(), FlowError> {
        let (code, said) = self.run("add-flows", bridge, &["-"], Some(flows)).await?;
        if code == 0 {
            Ok(())
        } else {
            Err(failed("add-flows", bridge, said))
        }
    }

    async fn run(
        &self,
        verb: &'static str,
        bridge: &str,
        arguments: &[&str],
        flows: Option<&[Flow]>,
    ) -> Result<(i32, String), FlowError> {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow15"]);
        if matches!(verb, "replace-flows" | "add-flows") {
            command.arg("--bundle");
        }
        let mut child = command
            .arg(verb)
            .arg(self.target(bridge))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(FlowError::Run)?;
        let text: String = flows
            .into_iter()
            .flatten()
            .map(|flow| format!("{flow}\n"))
            .collect();
        let stdin = child.stdin.take();
        let whole = async {
            if let Some(mut stdin) = stdin {
                // A broken pipe means that it ended early; its own words tell why.
                drop(stdin.write_all(text.as_bytes()).await);
            }
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(DEADLINE, whole)
            .await
            .map_err(|_| FlowError::Deadline {
                verb,
                bridge: bridge.to_owned(),
            })?
            .map_err(FlowError::Run)?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((output.status.code().unwrap_or(-1), said))
    }

    /// Follows the bridge's flow table.
    #[must_use]
    pub fn watch(&self, bridge: &str) -> FlowWatch {
        FlowWatch {
            socket: self.rundir.join(format!("{bridge}.mgmt")),
            target: self.target(bridge),
            monitor: None,
            wait: AGAIN,
            backoff: Backoff::new(AGAIN * 2, SELDOM).with_jitter(),
        }
    }
}

fn failed(verb: &'static str, bridge: &str, said: String) -> FlowError {
    FlowError::Failed {
        verb,
        bridge: bridge.to_owned(),
        said: said.trim().replace('\n', "; "),
    }
}

/// What happened to the flow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEvent {
    /// Flows were added, changed or deleted, or the watch has just begun.
    Changed,
    /// The switch cannot be reached: it is gone, or restarting with an empty table.
    Gone,
}

/// A running `ovs-ofctl monitor`; it is killed with the value.
#[derive(Debug)]
pub struct FlowWatch {
    socket: PathBuf,
    target: String,
    monitor: Option<Monitor>,
    /// Until the next process that follows; grows while they end without a word.
    wait: Duration,
    backoff: Backoff,
}

#[derive(Debug)]
struct Monitor {
    child: Child,
    /// The table as it is at first.
    first: Lines<BufReader<ChildStdout>>,
    /// What happens later goes to its standard error, among its complaints.
    later: Lines<BufReader<ChildStderr>>,
}

/// From the end of one attempt to follow to the next, and between looks at the switch's socket.
const AGAIN: Duration = Duration::from_millis(50);
/// The longest delay between two processes that follow.
const SELDOM: Duration = Duration::from_secs(1);
/// In the first line of each message; the flows follow, one a line.
const MESSAGE: &str = "FLOW_MONITOR";

impl FlowWatch {
    /// Waits for the next event. While the switch is away it answers `Gone` every 50 ms or so, and no process is started
    /// for it; one that answers and tells no flows is asked more and more seldom, up to once a second. Cancel-safe.
    pub async fn changed(&mut self) -> FlowEvent {
        if self.monitor.is_none() {
            tokio::time::sleep(self.wait).await;
            // The file of a socket outlives its owner: only one that takes connections is worth a process.
            if UnixStream::connect(&self.socket).await.is_err() {
                self.wait = AGAIN;
                self.backoff.reset();
                return FlowEvent::Gone;
            }
            self.wait = self.backoff.pause();
            self.monitor = self.begin();
        }
        let Some(monitor) = &mut self.monitor else {
            return FlowEvent::Gone;
        };
        loop {
            let line = tokio::select! {
                line = monitor.first.next_line() => line,
                line = monitor.later.next_line() => line,
            };
            match line {
                Ok(Some(line)) if line.contains(MESSAGE) => {
                    self.wait = AGAIN;
                    self.backoff.reset();
                    return FlowEvent::Changed;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(mut monitor) = self.monitor.take() {
            drop(monitor.child.kill().await);
        }
        FlowEvent::Gone
    }

    fn begin(&self) -> Option<Monitor> {
        // Without a control socket: its folder may be missing, and a killed monitor would leave the socket there.
        let mut child = Command::new("ovs-ofctl")
            .args(["--unixctl=none", "monitor", &self.target, "watch:"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let first = BufReader::new(child.stdout.take()?).lines();
        let later = BufReader::new(child.stderr.take()?).lines();
        Some(Monitor {
            child,
            first,
            later,
        })
    }
}
