//! FRR's own reload tool, and its judge of a file.
//! In: text, or frr.conf as it stands on disk. Out: loaded, or the lines that FRR refused.
//! Invariant: a text that FRR cannot read never takes the place of frr.conf; a refusal of a line that stands nevertheless is none.
//! Not here: retries (the frr-agent).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::Frr;
use crate::file::{self, FileError};
use crate::program::{self, Output, ProgramError};
use crate::refusal::{self, Refusal};

/// So many lines are deleted in one go.
const MANY: usize = 20;

/// A check reads one file and starts nothing.
const CHECK_DEADLINE: Duration = Duration::from_secs(20);

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
    /// The tool cannot run or does not end.
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
        let Some(next) = self.write_next(text)? else {
            return Ok(());
        };
        let mut vtysh = self.vtysh();
        vtysh.arg("-C").arg("-f").arg(next.path());
        let output = program::run("vtysh", &mut vtysh, CHECK_DEADLINE).await?;
        let unknown = refusal::lift(&output.text);
        if !unknown.is_empty() {
            return Err(CheckError::Unknown(unknown));
        }
        if !output.status.success() {
            return Err(CheckError::Unknown(refusal::last_words(&output.text)));
        }
        Ok(next.place()?)
    }

    /// Loads frr.conf into the running daemons.
    ///
    /// # Errors
    /// When the tool cannot run, does not end, or FRR refuses a line and does not run it either.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        self.clear_surplus().await?;
        let output = self.tool("--reload").await?;
        if output.status.success() {
            return Ok(());
        }
        let refused = refusal::lift(&output.text);
        if refused.is_empty() {
            return Err(ReloadError::Refused(refusal::last_words(&output.text)));
        }
        // The tool sends some lines twice, and FRR may refuse the second: what counts is what runs in the end.
        let residue = refusal::residue(&self.tool("--test").await?.text);
        let real: Vec<Refusal> = refused
            .into_iter()
            .filter(|r| residue.contains(&r.line))
            .collect();
        if real.is_empty() {
            return Ok(());
        }
        Err(ReloadError::Refused(real))
    }

    /// The tool starts a vtysh for each line that it deletes: of a thousand neighbors that go it would take minutes.
    /// Where FRR runs much that the file does not say, what the tool would delete is deleted in one go before it runs.
    async fn clear_surplus(&self) -> Result<(), ProgramError> {
        // A daemon that does not answer is the tool's to complain of.
        let running = self.ask("bgpd", "show running-config").await;
        let wanted = self.config().unwrap_or_default();
        if running.map_or(0, |running| surplus(&running, &wanted)) < MANY {
            return Ok(());
        }
        let deletions = refusal::deletions(&self.tool("--test").await?.text);
        let file = self.vty_socket.join("noverlay-surplus.conf");
        if let Err(error) = file::write_private(&file, &deletions) {
            return Err(ProgramError::Start {
                program: format!("vtysh with {}", file.display()),
                source: error,
            });
        }
        let mut vtysh = self.vtysh();
        vtysh.arg("-f").arg(&file);
        // With a neighbor go lines that are deleted once more after it: what FRR says to that is of no interest.
        let outcome = program::run("vtysh", &mut vtysh, self.reload_timeout).await;
        // It may hold passwords; where it cannot be removed, mode 0600 still guards it.
        drop(std::fs::remove_file(&file));
        outcome.map(drop)
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
        program::run(&name, &mut command, self.reload_timeout).await
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

/// How many lines FRR runs that the file does not have, in whatever order their words come.
fn surplus(running: &str, wanted: &str) -> usize {
    let words = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    let wanted: BTreeSet<Vec<String>> = wanted.lines().map(words).collect();
    let said = |line: &&str| {
        let line = line.trim();
        !(line.is_empty() || line.starts_with('!') || line.starts_with("exit"))
    };
    let more = running.lines().filter(said).map(words);
    more.filter(|line| !wanted.contains(line)).count()
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

    const REFUSES: &str =
        "print('% No.')\nprint('line 1: Failure to communicate[13] to bgpd, line:  foo')\n";

    #[tokio::test]
    async fn a_refused_line_that_is_still_missing_is_an_error_and_one_that_stands_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let missing = format!(
            "import sys\nif '--reload' in sys.argv:\n  {}sys.exit(1)\nprint('Lines To Add')\nprint('====')\nprint(' foo')\n",
            REFUSES.replace('\n', "\n  ").trim_start()
        );
        let error = with_tool(folder.path(), &missing)
            .reload()
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "FRR refused `foo`: No");
        let stands = missing.replace("print(' foo')", "print(' bar')");
        with_tool(folder.path(), &stands).reload().await.unwrap();
    }

    #[tokio::test]
    async fn a_tool_that_fails_otherwise_is_told_in_its_own_words_and_one_that_succeeds_is_believed()
     {
        let folder = tempfile::tempdir().unwrap();
        let fails = "import sys\nprint('vtysh configure is locked')\nsys.exit(1)\n";
        let error = with_tool(folder.path(), fails).reload().await.unwrap_err();
        assert!(
            error.to_string().contains("vtysh configure is locked"),
            "{error}"
        );
        with_tool(folder.path(), "pass\n").reload().await.unwrap();
    }

    #[test]
    fn a_surplus_is_counted_by_words_whatever_their_order() {
        let running = "!\nfrr version 8.4.4\nip prefix-list a seq 1 permit 10.0.0.0/8 ge 24 le 24\n neighbor 1.1.1.1 remote-as 1\nexit\n";
        let wanted = "ip prefix-list a seq 1 permit 10.0.0.0/8 le 24 ge 24\n";
        assert_eq!(surplus(running, wanted), 2);
        assert_eq!(surplus(running, running), 0);
    }

    #[tokio::test]
    async fn a_tool_that_hangs_is_an_error_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut frr = with_tool(folder.path(), "import time\ntime.sleep(100)\n");
        frr.reload_timeout = Duration::from_millis(300);
        let error = frr.reload().await.unwrap_err();
        assert!(error.to_string().contains("300ms"), "{error}");
    }
}
