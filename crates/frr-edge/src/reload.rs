//! FRR's own reload tool.
//! In: frr.conf as it stands on disk. Out: loaded, or what the tool said. Invariant: it is killed after a minute.
//! Not here: retries.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::Frr;

/// How long a reload may take.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Why a reload failed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The tool cannot be started.
    #[error("cannot start {tool}")]
    Start {
        /// Its path.
        tool: String,
        /// Why.
        source: std::io::Error,
    },
    /// It did not end in time.
    #[error("the reload tool did not end within {DEADLINE:?}")]
    Deadline,
    /// It ended with an error; whatever FRR did not refuse has been applied.
    #[error("FRR refused: {refused}")]
    Refused {
        /// The lines that FRR refused, or the end of the tool's output.
        refused: String,
    },
}

impl Frr {
    /// Loads frr.conf into the running daemons.
    ///
    /// # Errors
    /// When the tool cannot run, does not end, or FRR refuses a line.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let folder = self.config_file.parent().unwrap_or(&self.vty_socket);
        // Without --overwrite and with frr.conf in its own folder the tool does not write the file itself.
        let child = Command::new("python3")
            .arg(&self.reload_tool)
            .args(["--reload", "--stdout", "--vty_socket"])
            .arg(&self.vty_socket)
            .arg("--confdir")
            .arg(folder)
            .arg("--rundir")
            .arg(&self.vty_socket)
            .arg(&self.config_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ReloadError::Start {
                tool: self.reload_tool.display().to_string(),
                source,
            })?;
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output())
            .await
            .map_err(|_| ReloadError::Deadline)?
            .map_err(|source| ReloadError::Start {
                tool: self.reload_tool.display().to_string(),
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Err(ReloadError::Refused {
            refused: refused(&text),
        })
    }
}

/// The lines that name a refusal; where there are none, the last lines of the output.
fn refused(text: &str) -> String {
    let marks = [
        "% ",
        "Failed to execute",
        "line ",
        "Can not",
        "Unknown command",
        "failed",
    ];
    let mut lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| marks.iter().any(|m| l.contains(m)) && !l.contains("Called via"))
        .collect();
    if lines.is_empty() {
        lines = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
    }
    let skip = lines.len().saturating_sub(20);
    lines.into_iter().skip(skip).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_its_own_line() {
        let text = "2026 INFO: Called via x\n2026 INFO: Loading\n% Can not configure the local system as neighbor\nbye\n";
        assert_eq!(
            refused(text),
            "% Can not configure the local system as neighbor"
        );
        assert_eq!(refused("a\n\nb\n"), "a; b");
    }

    #[tokio::test]
    async fn a_tool_that_is_missing_or_refuses_is_an_error_in_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        frr.reload_tool = folder.path().join("tool.py");
        std::fs::write(
            &frr.reload_tool,
            "import sys\nprint('% Unknown command: foo')\nsys.exit(1)\n",
        )
        .unwrap();
        let error = frr.reload().await.unwrap_err();
        assert!(
            matches!(&error, ReloadError::Refused { refused } if refused.contains("Unknown command: foo")),
            "{error}"
        );
        std::fs::write(&frr.reload_tool, "pass\n").unwrap();
        frr.reload().await.unwrap();
    }
}
