//! A real ovn-northd between a Northbound and a Southbound database.
//!
//! In: rows, written by whoever. Out: flows, bindings, and what northd complains about.
//! Invariant: the processes die with the thread that started them, and when dropped. Not here: ovn-controller.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ovsdb_tests::{Server, run};

/// Programs that it needs.
pub const NORTHD_TOOLS: &[&str] = &[
    "ovsdb-server",
    "ovsdb-tool",
    "ovn-nbctl",
    "ovn-sbctl",
    "ovn-northd",
    "ovn-trace",
    "setpriv",
];

/// A Northbound database, and northd that makes a Southbound one of it.
#[derive(Debug)]
pub struct Northd {
    /// Where the Northbound database listens.
    pub nb: PathBuf,
    /// That database, where it is this one's.
    server: Option<Server>,
    sb: PathBuf,
    log: PathBuf,
    children: Vec<Child>,
}

impl Northd {
    /// With empty databases.
    #[must_use]
    pub fn start() -> Self {
        let nb = Server::start();
        let mut started = Self::over(&nb);
        started.server = Some(nb);
        started
    }

    /// Over a Northbound database that is there.
    #[must_use]
    pub fn over(nb: &Server) -> Self {
        let (file, sb) = (nb.path("sb.db"), nb.path("sb.sock"));
        let log = nb.path("northd.log");
        run(Command::new("ovsdb-tool")
            .arg("create")
            .arg(&file)
            .arg("/usr/share/ovn/ovn-sb.ovsschema"));
        let remote = format!("--remote=punix:{}", sb.display());
        let control = |name: &str| format!("--unixctl={}", nb.path(name).display());
        let server = ["ovsdb-server", &remote, &control("sb.ctl")].map(str::to_owned);
        let database = file.display().to_string();
        let northd = [
            "ovn-northd".to_owned(),
            format!("--ovnnb-db={}", unix(&nb.socket())),
            format!("--ovnsb-db={}", unix(&sb)),
            format!("--log-file={}", log.display()),
            control("northd.ctl"),
        ];
        let server = spawn(&[&server[..], &[database]].concat());
        let is_up = (0..2000).any(|_| {
            let connected = UnixStream::connect(&sb).is_ok();
            if !connected {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected
        });
        assert!(is_up, "no Southbound database");
        let children = vec![server, spawn(&northd)];
        let started = Self {
            nb: nb.socket(),
            server: None,
            sb,
            log,
            children,
        };
        started.nbctl(&["sync"]);
        started
    }

    /// Runs `ovn-nbctl` until northd has seen what it did; what it printed.
    pub fn nbctl(&self, words: &[&str]) -> String {
        let db = format!("--db={}", unix(&self.nb));
        output(
            Command::new("ovn-nbctl").args([&db, "--timeout=20", "--wait=sb"]),
            words,
        )
    }

    /// Runs `ovn-sbctl`; what it printed.
    pub fn sbctl(&self, words: &[&str]) -> String {
        let db = format!("--db={}", unix(&self.sb));
        output(Command::new("ovn-sbctl").args([&db, "--timeout=20"]), words)
    }

    /// Columns of the one row of a Southbound table that a condition finds.
    pub fn found(&self, table: &str, columns: &str, condition: &str) -> String {
        let columns = format!("--columns={columns}");
        let found = self.sbctl(&["--bare", &columns, "find", table, condition]);
        found.trim().to_owned()
    }

    /// All flows of a datapath, as text.
    pub fn flows(&self, datapath: &str) -> String {
        self.sbctl(&["lflow-list", datapath])
    }

    /// What becomes of a packet, in short.
    pub fn trace(&self, datapath: &str, flow: &str) -> String {
        let db = format!("--db={}", unix(&self.sb));
        output(
            Command::new("ovn-trace").args([&db, "--minimal", "--ct=new"]),
            &[datapath, flow],
        )
    }

    /// The same, with what connection tracking says at each time it is asked, in order; every step of the way.
    pub fn traced(&self, datapath: &str, flow: &str, conntrack: &[&str]) -> String {
        let db = format!("--db={}", unix(&self.sb));
        let mut command = Command::new("ovn-trace");
        command.arg(&db);
        command.args(conntrack.iter().map(|state| format!("--ct={state}")));
        output(&mut command, &[datapath, flow])
    }

    /// Warnings and errors of northd so far.
    pub fn complaints(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let is_bad = |line: &&str| {
            ["|WARN|", "|ERR|", "|EMER|"]
                .iter()
                .any(|w| line.contains(w))
        };
        log.lines().filter(is_bad).map(str::to_owned).collect()
    }
}

impl Drop for Northd {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn output(command: &mut Command, words: &[&str]) -> String {
    let done = command.args(words).output().unwrap();
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {complaint}");
    String::from_utf8(done.stdout).unwrap()
}

fn unix(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

fn spawn(words: &[String]) -> Child {
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .args(words)
        .args(["-vconsole:off", "-vsyslog:off"])
        .stdin(Stdio::null())
        .spawn()
        .expect("setpriv starts")
}
