//! FRR as it runs on this node: its file, its reload tool, its vty sockets.
//! In: text of frr.conf. Out: applied or not, in FRR's own words; session states and the running configuration.
//! Invariant: the file is replaced in one step and is readable by its owner only; every call has a deadline.
//! Not here: what the text says (`frr`), when to reload (the frr-agent).

pub mod file;
mod program;
pub mod pulse;
pub mod refusal;
pub mod reload;
pub mod show;
mod surplus;
pub mod vty;

use std::path::PathBuf;
use std::time::Duration;

pub use refusal::Refusal;
pub use reload::{CheckError, ReloadError};

/// Where FRR lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frr {
    /// Folder of the vty sockets (`bgpd.vty`, ...).
    pub vty_socket: PathBuf,
    /// frr.conf.
    pub config_file: PathBuf,
    /// FRR's reload tool.
    pub reload_tool: PathBuf,
    /// How long a reload may take.
    pub reload_timeout: Duration,
}

impl Frr {
    /// FRR with its reload tool at the place where packages put it, and a minute for a reload.
    #[must_use]
    pub fn new(vty_socket: PathBuf, config_file: PathBuf) -> Self {
        Self {
            vty_socket,
            config_file,
            reload_tool: PathBuf::from("/usr/lib/frr/frr-reload.py"),
            reload_timeout: Duration::from_secs(60),
        }
    }
}
