//! One run of a foreign program (FRR's reload tool, vtysh) with a deadline.
//! In: a command. Out: its status and output. Invariant: with the program go all that it started, also when we stop waiting.
//! Not here: what the output means (`refusal`).

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// What was to be started.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It did not end in time and was killed with all that it had started.
    #[error("{program} did not end within {deadline:?}")]
    Deadline {
        /// What was started.
        program: String,
        /// How long it had.
        deadline: Duration,
    },
    /// A signal ended it: somebody else's, such as the kernel's for want of memory.
    #[error("{program} was ended by signal {signal}")]
    Killed {
        /// What was started.
        program: String,
        /// The signal's number.
        signal: i32,
    },
    /// It failed, and named no line as the cause.
    #[error("{program} failed: {words}")]
    Failed {
        /// What was started.
        program: String,
        /// The end of what it said, without passwords.
        words: String,
    },
}

/// What a program said.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

/// A process group that is killed unless its leader has been waited for.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may be gone already.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }
}

/// Runs to the end or to the deadline, with this text on its standard input. An end by a signal is an error.
pub(crate) async fn run(
    name: &str,
    command: &mut Command,
    input: &str,
    deadline: Duration,
) -> Result<Output, ProgramError> {
    let start = |source| ProgramError::Start {
        program: name.to_owned(),
        source,
    };
    let stdin = if input.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(leader.map(Pid::from_raw));
    let pipe = child.stdin.take();
    let work = async {
        let feed = async {
            if let Some(mut pipe) = pipe {
                // A program that ends early does not read all of it; how it ended is what counts.
                drop(pipe.write_all(input.as_bytes()).await);
            }
        };
        tokio::join!(feed, child.wait_with_output()).1
    };
    let output = tokio::time::timeout(deadline, work)
        .await
        .map_err(|_| ProgramError::Deadline {
            program: name.to_owned(),
            deadline,
        })?
        .map_err(start)?;
    group.0 = None;
    if let Some(signal) = output.status.signal() {
        return Err(ProgramError::Killed {
            program: name.to_owned(),
            signal,
        });
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Output {
        status: output.status,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_hangs_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let error = run(
            "sh",
            Command::new("sh").args(["-c", &script]),
            "",
            Duration::from_millis(500),
        )
        .await
        .unwrap_err();
        assert!(error.to_string().contains("did not end within 500ms"));
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        for _ in 0..100 {
            let state = std::fs::read_to_string(&stat).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the child of the program still runs");
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named() {
        let error = run(
            "no-such-tool",
            &mut Command::new("/nonexistent/no-such-tool"),
            "",
            Duration::from_secs(1),
        )
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "cannot start no-such-tool");
    }

    #[tokio::test]
    async fn a_program_reads_its_input_and_one_that_reads_nothing_is_no_error() {
        let long = "x".repeat(1 << 20);
        let hour = Duration::from_secs(3600);
        let mut count = Command::new("wc");
        let output = run("wc", count.arg("-c"), &long, hour).await.unwrap();
        assert_eq!(output.text.trim(), (1 << 20).to_string());
        let mut deaf = Command::new("true");
        assert!(run("true", &mut deaf, &long, hour).await.is_ok());
    }

    #[tokio::test]
    async fn a_program_that_a_signal_ends_has_not_spoken() {
        let mut command = Command::new("sh");
        let error = run(
            "sh",
            command.args(["-c", "echo fine; kill -KILL $$"]),
            "",
            Duration::from_secs(60),
        )
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "sh was ended by signal 9");
    }
}
