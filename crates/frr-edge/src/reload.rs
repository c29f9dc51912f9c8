//! FRR's own reload tool, and its check of a file.
//! In: text, or frr.conf as it stands on disk. Out: loaded, or the lines that FRR refused.
//! Invariant: a text that FRR cannot read never takes the place of frr.conf; a refusal of a line that stands nevertheless is none;
//! nothing is taken away where the tool cannot run.
//! Not here: retries (the frr-agent).

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::Frr;
use crate::file::{self, DAEMONS, FileError};
use crate::program::{self, Output, ProgramError};
use crate::refusal::{self, Refusal};
use crate::surplus;

/// A check reads one file and starts nothing.
const CHECK_DEADLINE: Duration = Duration::from_secs(20);

/// The tool's modes: to load, and to find out what it would load.
const RELOAD: &str = "--reload";
const TRY: &str = "--test";

/// With this Python tells that a program ended where it should not.
const PYTHON_BROKE_OFF: &str = "Traceback (most recent call last)";

/// Why a text was not put in the place of frr.conf.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// vtysh gave no answer.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// FRR does not know these lines; nothing was changed.
    #[error("FRR does not know {}; the last good configuration stays", refusal::list(.0))]
    Unknown(Vec<Refusal>),
}

/// Why a reload failed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The tool cannot run, does not end, or fails without naming a line.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// FRR refused these lines; the rest has been applied.
    #[error("FRR refused {}", refusal::list(.0))]
    Refused(Vec<Refusal>),
}

impl Frr {
    /// Has vtysh read the text, and puts it in the place of frr.conf when every line is known.
    ///
    /// # Errors
    /// When it cannot be written, or holds a line that FRR does not know.
    pub async fn prepare(&self, text: &str) -> Result<(), CheckError> {
        let (frr, wanted) = (self.clone(), text.to_owned());
        let next =
            file::off_the_runtime(&self.config_file, move || frr.write_next(&wanted)).await?;
        let Some(next) = next else {
            return Ok(());
        };
        let mut vtysh = self.vtysh();
        vtysh.arg("-C").arg("-f").arg(next.path());
        let output = program::run("vtysh", &mut vtysh, "", CHECK_DEADLINE).await?;
        let unknown = refusal::decode(&output.text);
        if !unknown.is_empty() {
            return Err(CheckError::Unknown(unknown));
        }
        if !output.status.success() {
            // Without a line that is to blame nothing says that it is the text's fault.
            return Err(CheckError::Program(ProgramError::Failed {
                program: "vtysh -C".to_owned(),
                words: refusal::list(&refusal::last_words(&output.text)),
            }));
        }
        Ok(next.place()?)
    }

    /// Gives frr.conf to daemons that started with nothing configured, each by itself. The reload tool compares with what all
    /// daemons hold together: filters that zebra still has it does not give to a bgpd that has lost them. Whether all is
    /// there in the end is the reload's to say, so refused lines are passed over: most are another daemon's.
    ///
    /// # Errors
    /// When vtysh cannot run or does not end.
    pub async fn fill(&self, daemons: &[&str]) -> Result<(), ProgramError> {
        for daemon in daemons {
            let mut vtysh = self.vtysh();
            vtysh.args(["-d", daemon, "-f"]).arg(&self.config_file);
            let name = format!("vtysh -d {daemon}");
            drop(program::run(&name, &mut vtysh, "", self.reload_timeout).await?);
        }
        Ok(())
    }

    /// Loads frr.conf into the running daemons.
    ///
    /// # Errors
    /// When the tool cannot run, does not end, or FRR refuses a line and does not run it either.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        self.clear_surplus().await?;
        let output = self.tool(RELOAD).await?;
        if output.status.success() {
            return Ok(());
        }
        let refused = refusal::decode(&output.text);
        if refused.is_empty() || output.text.contains(PYTHON_BROKE_OFF) {
            return Err(self.tool_failed(&output).into());
        }
        let mut running = String::new();
        for daemon in DAEMONS {
            // What a daemon that is away was to do is not done.
            let text = self.ask(daemon, "show running-config").await;
            running.push_str(&text.unwrap_or_default());
        }
        let real = refusal::real(refused, &running);
        if real.is_empty() {
            return Ok(());
        }
        Err(ReloadError::Refused(real))
    }

    /// Takes away in one go what goes as a whole.
    async fn clear_surplus(&self) -> Result<(), ProgramError> {
        // A daemon that does not answer is the tool's to complain of.
        let running = self.ask("bgpd", "show running-config").await;
        let wanted = self.config().unwrap_or_default();
        let commands = surplus::commands(&running.unwrap_or_default(), &wanted);
        if commands.is_empty() {
            return Ok(());
        }
        // What takes the place of this is the tool's to give: one that cannot run, or hangs, shows it here.
        let tried = self.tool(TRY).await?;
        if !tried.status.success() {
            return Err(self.tool_failed(&tried));
        }
        // Passwords stand in it: it goes neither into a file nor into arguments, which everybody on the host can read.
        let mut vtysh = self.vtysh();
        vtysh.args(["-f", "/dev/stdin"]);
        // What FRR refuses of it the tool tries again, and says so.
        program::run("vtysh", &mut vtysh, &commands, self.reload_timeout)
            .await
            .map(drop)
    }

    fn tool_failed(&self, output: &Output) -> ProgramError {
        ProgramError::Failed {
            program: self.reload_tool.display().to_string(),
            words: refusal::list(&refusal::last_words(&output.text)),
        }
    }

    async fn tool(&self, mode: &str) -> Result<Output, ProgramError> {
        let folder = self.config_file.parent().unwrap_or(&self.vty_socket);
        let mut command = Command::new("python3");
        // Without --overwrite and with frr.conf in its own folder the tool does not write the file itself.
        command
            .arg(&self.reload_tool)
            .args([mode, "--stdout", "--vty_socket"])
            .arg(&self.vty_socket)
            .arg("--confdir")
            .arg(folder)
            .arg("--rundir")
            .arg(&self.vty_socket)
            .arg(&self.config_file);
        let name = self.reload_tool.display().to_string();
        program::run(&name, &mut command, "", self.reload_timeout).await
    }

    /// vtysh as it talks to this FRR.
    pub(crate) fn vtysh(&self) -> Command {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(&self.vty_socket);
        command
            .arg("--config_dir")
            .arg(self.config_file.parent().unwrap_or(Path::new("/etc/frr")));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An FRR whose reload tool is this Python text.
    fn with_tool(folder: &Path, python: &str) -> Frr {
        let mut frr = Frr::new(folder.to_owned(), folder.join("frr.conf"));
        frr.reload_tool = folder.join("tool.py");
        std::fs::write(&frr.reload_tool, python).unwrap();
        frr
    }

    #[tokio::test]
    async fn a_refused_line_that_frr_does_not_run_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refuses = "import sys\nprint('% No.')\nprint('line 1: Failure to communicate[13] to bgpd, line:  foo')\nsys.exit(1)\n";
        let error = with_tool(folder.path(), refuses)
            .reload()
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "FRR refused `foo`: No");
    }

    #[tokio::test]
    async fn a_tool_that_fails_otherwise_is_reported_in_its_own_words_and_one_that_succeeds_is_believed()
     {
        let folder = tempfile::tempdir().unwrap();
        let fails = "import sys\nprint('vtysh configure is locked')\nsys.exit(1)\n";
        let error = with_tool(folder.path(), fails).reload().await.unwrap_err();
        assert!(
            error.to_string().contains("vtysh configure is locked")
                && matches!(error, ReloadError::Program(ProgramError::Failed { .. })),
            "{error}"
        );
        let breaks = "print('line 1: Failure to communicate[13] to bgpd, line:  foo')\nraise OSError('disk')\n";
        let error = with_tool(folder.path(), breaks).reload().await.unwrap_err();
        assert!(
            error.to_string().contains("OSError: disk")
                && matches!(error, ReloadError::Program(ProgramError::Failed { .. })),
            "{error}"
        );
        with_tool(folder.path(), "pass\n").reload().await.unwrap();
    }

    #[tokio::test]
    async fn a_tool_that_hangs_is_an_error_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut frr = with_tool(folder.path(), "import time\ntime.sleep(100)\n");
        frr.reload_timeout = Duration::from_millis(300);
        let error = frr.reload().await.unwrap_err();
        assert!(error.to_string().contains("300ms"), "{error}");
    }

    #[tokio::test]
    async fn a_tool_that_a_signal_ends_says_nothing_about_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let dies = "import os\nprint('% No.', flush=True)\nos.kill(os.getpid(), 9)\n";
        let error = with_tool(folder.path(), dies).reload().await.unwrap_err();
        assert!(
            matches!(
                error,
                ReloadError::Program(ProgramError::Killed { signal: 9, .. })
            ),
            "{error}"
        );
    }
}
