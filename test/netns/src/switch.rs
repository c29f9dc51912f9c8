//! An Open vSwitch with the userspace datapath, in a folder and the thread's namespace.
//!
//! In: the schema that its package brings. Out: daemons and one bridge.
//! Invariant: the daemons die with the thread that started them, and when dropped.
//! Not here: flows.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::run;

/// The schema of the configuration database.
pub const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The bridge of a [`Switch`]; nothing puts flows on it by itself.
pub const BRIDGE: &str = "br0";

/// A running switch.
#[derive(Debug)]
pub struct Switch {
    folder: TempDir,
    database: Child,
    daemon: Option<Child>,
}

impl Switch {
    /// Starts database and switch and adds the bridge.
    #[must_use]
    pub fn start() -> Self {
        let folder = TempDir::new().expect("temporary folder");
        let file = folder.path().join("conf.db");
        run(Command::new("ovsdb-tool")
            .arg("create")
            .arg(&file)
            .arg(SCHEMA));
        let remote = folder.path().join("db.sock");
        let database = daemon("ovsdb-server")
            .arg(&file)
            .arg(format!("--remote=punix:{}", remote.display()))
            .arg(format!(
                "--unixctl={}",
                folder.path().join("db.ctl").display()
            ))
            .spawn()
            .expect("setpriv starts");
        let mut switch = Self {
            folder,
            database,
            daemon: None,
        };
        until_listens(&remote);
        switch.vsctl("--no-wait init");
        switch.spawn();
        switch.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev fail_mode=secure"
        ));
        until_listens(&switch.socket());
        switch
    }

    /// The folder with the bridge's sockets (`OVS_RUNDIR`).
    #[must_use]
    pub fn rundir(&self) -> &Path {
        self.folder.path()
    }

    fn socket(&self) -> PathBuf {
        self.rundir().join(format!("{BRIDGE}.mgmt"))
    }

    /// Starts the switch again after a [`Switch::crash`] and waits until its bridge can be reached.
    pub fn up(&mut self) {
        self.spawn();
        until_listens(&self.socket());
    }

    fn spawn(&mut self) {
        assert!(self.daemon.is_none(), "runs already");
        let child = daemon("ovs-vswitchd")
            .arg(format!("unix:{}", self.rundir().join("db.sock").display()))
            .arg(format!(
                "--unixctl={}",
                self.rundir().join("switch.ctl").display()
            ))
            .arg("--disable-system")
            .env("OVS_RUNDIR", self.rundir())
            .env("OVS_LOGDIR", self.rundir())
            .spawn()
            .expect("setpriv starts");
        self.daemon = Some(child);
    }

    /// Kills the switch, as a crash would; the database stays.
    pub fn crash(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends the switch a signal, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let child = self.daemon.as_ref().expect("runs");
        run(Command::new("kill")
            .arg(format!("-{name}"))
            .arg(child.id().to_string()));
    }

    /// Runs `ovs-ofctl`, with OpenFlow 1.5, and returns what it prints.
    pub fn ofctl(&self, arguments: &str) -> String {
        run(Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow15"])
            .args(arguments.split_whitespace())
            .env("OVS_RUNDIR", self.rundir()))
    }

    fn vsctl(&self, arguments: &str) {
        run(Command::new("ovs-vsctl")
            .arg(format!(
                "--db=unix:{}",
                self.rundir().join("db.sock").display()
            ))
            .arg("--timeout=10")
            .args(arguments.split_whitespace()));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.crash();
        let _ = self.database.kill();
        let _ = self.database.wait();
    }
}

/// A daemon that dies with this thread and prints nothing.
fn daemon(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", program])
        .args(["-vconsole:off", "-vsyslog:off"])
        .stdin(Stdio::null());
    command
}

fn until_listens(socket: &Path) {
    for _ in 0..2000 {
        if UnixStream::connect(socket).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody listens at {}", socket.display());
}
