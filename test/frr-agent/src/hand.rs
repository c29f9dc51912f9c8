//! What somebody does to the node's FRR and its files by hand, and how it looks then.
//! In: commands, text. Out: FRR's words. Invariant: a daemon that is frozen holds up nothing here.
//! Not here: the objects.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kube_tests::until;

use crate::{FAR, Fixture, NEAR, Since};

/// FRR's own reload tool, run by a Python text.
const TOOL: &str = "import os, sys\nos.execv(sys.executable, [sys.executable, '/usr/lib/frr/frr-reload.py'] + sys.argv[1:])\n";

impl Fixture {
    /// Has the agent, when it starts, take this bench's own script for FRR's reload tool; the script runs that one.
    pub fn own_tool(&mut self) {
        self.tool(TOOL);
        let tool = self.tool_file().display().to_string();
        self.more.push_str(&format!("\nreload-tool = \"{tool}\""));
    }

    /// Where the script lies.
    #[must_use]
    pub fn tool_file(&self) -> PathBuf {
        self.frr.dir().join("tool.py")
    }

    /// Makes the script this text.
    pub fn tool(&self, python: &str) {
        std::fs::write(self.tool_file(), python).unwrap();
    }

    /// The script is as it was at first.
    pub fn mend_tool(&self) {
        self.tool(TOOL);
    }

    /// Runs commands in FRR's shell, which writes its configuration where the agent's frr.conf lies.
    #[must_use]
    pub fn by_hand(&self, commands: &str) -> String {
        let done = Command::new("vtysh")
            .arg("--vty_socket")
            .arg(self.frr.dir())
            .arg("--config_dir")
            .arg(self.folder())
            .args(["-c", commands])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{text}");
        text
    }

    /// frr.conf.
    #[must_use]
    pub fn conf(&self) -> String {
        std::fs::read_to_string(self.folder().join("frr.conf")).unwrap()
    }

    /// Whether bgpd runs a line now; the other daemons are not asked.
    #[must_use]
    pub fn bgpd_has(&self, line: &str) -> bool {
        let shown = self.frr.ask("bgpd", "show running-config").unwrap();
        shown.lines().any(|l| l.trim() == line)
    }

    /// Waits until bgpd does not run a line any more.
    pub fn bgpd_loses(&self, line: &str, seconds: u64) {
        until(&format!("bgpd has lost {line:?}"), seconds, || {
            if self.bgpd_has(line) {
                Err("still there".to_owned())
            } else {
                Ok(())
            }
        });
    }

    /// Which session of the near neighbor stands.
    #[must_use]
    pub fn near_since(&self) -> Since {
        Since::of(&self.neighbor(NEAR))
    }

    /// Fails where one of the two sessions ends within this time.
    pub fn both_stay_up(&self, near: Since, far: Since, seconds: u64) {
        for _ in 0..seconds * 3 {
            self.is_undisturbed(NEAR, near);
            self.is_undisturbed(FAR, far);
            std::thread::sleep(Duration::from_millis(333));
        }
    }
}
