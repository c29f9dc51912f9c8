//! Running foreign tools.
//!
//! In: a program, its arguments, a namespace to run in. Out: what it printed, or an
//! error with the whole command line, its status and what it complained about.
//! Nothing here knows what the tools are for.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::netns;

/// A command in the making.
pub(crate) struct Tool {
    command: Command,
    shown: String,
    namespace: Option<String>,
    input: Option<String>,
}

/// Begins a command.
pub(crate) fn tool(program: &str) -> Tool {
    Tool {
        command: Command::new(program),
        shown: program.to_owned(),
        namespace: None,
        input: None,
    }
}

impl Tool {
    /// Adds arguments.
    pub(crate) fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        for arg in args {
            self.command.arg(arg.as_ref());
            self.shown.push(' ');
            self.shown.push_str(arg.as_ref());
        }
        self
    }

    /// Adds arguments from one text, split at blanks.
    pub(crate) fn words(self, text: &str) -> Self {
        self.args(text.split_whitespace())
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs it in a network namespace.
    pub(crate) fn inside(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Gives it a text to read.
    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs it and gives its standard output; a status other than 0 is an error.
    pub(crate) fn run(self) -> Result<String> {
        let shown = self.shown.clone();
        let output = self.output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let stdout = String::from_utf8_lossy(&output.stdout);
            bail!(
                "`{shown}`: {}: {} {}",
                output.status,
                stderr.trim(),
                stdout.trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it and gives everything, whatever the status.
    pub(crate) fn output(mut self) -> Result<Output> {
        let input = self.input.take();
        let shown = self.shown.clone();
        self.command
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.spawn()?;
        if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
            // All our inputs are smaller than a pipe, or the tool reads before it writes.
            stdin
                .write_all(text.as_bytes())
                .with_context(|| format!("feeding `{shown}`"))?;
        }
        child
            .wait_with_output()
            .with_context(|| format!("waiting for `{shown}`"))
    }

    /// Starts it and leaves it running; standard streams are what `with` made them.
    pub(crate) fn spawn(mut self) -> Result<Child> {
        let shown = self.shown;
        let command = &mut self.command;
        let started = match &self.namespace {
            Some(namespace) => netns::inside(namespace, || Ok(command.spawn()?)),
            None => command.spawn().map_err(anyhow::Error::from),
        };
        started.with_context(|| format!("starting `{shown}`"))
    }

    /// Changes the underlying command (standard streams, process group).
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }
}

/// Prints a line. That nobody reads it any more is no reason to stop half way.
pub(crate) fn tell(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// Whether a message of `ip monitor` is about another namespace than the one it follows: it gives each file of
/// /run/netns an id when it starts, and one may be on its way out.
pub(crate) fn of_another_namespace(message: &str) -> bool {
    message.trim() == "Error: Peer netns reference is invalid."
}

/// How many times less traffic there is than on a whole machine, for one that is emulated: `NOVERLAY_SLOWER`, 1 where that is not
/// set.
pub(crate) fn slower() -> u32 {
    let said = std::env::var("NOVERLAY_SLOWER").ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// The clock of the lab: it measures, so it reads it.
#[expect(
    clippy::disallowed_methods,
    reason = "the lab measures how long things take"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since 1970, for what is compared with times of files and logs.
pub(crate) fn wall() -> Duration {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Asks again every `pause` until there is an answer; `None` when `limit` has passed.
pub(crate) fn until<T>(
    limit: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> Option<T> {
    let start = now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(pause);
    }
}

/// Runs one job per item at the same time and gives the results in order.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| job(item))).collect();
        threads
            .into_iter()
            .filter_map(|thread| match thread.join() {
                Ok(result) => Some(result),
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
