//! A real ovsdb-server with the OVN Northbound schema.
//!
//! In: a folder, remotes. Out: a running process.
//! Invariant: the process dies with the thread that started it, and when dropped.
//! Not here: clients.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) const SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";

/// A server in a folder of its own.
#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    extra: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// A folder with an empty database; no process yet. `extra` are further arguments of ovsdb-server.
    #[must_use]
    pub fn prepared(extra: &[String]) -> Self {
        let folder = TempDir::new().expect("temporary folder");
        run(Command::new("ovsdb-tool")
            .arg("create")
            .arg(folder.path().join("nb.db"))
            .arg(SCHEMA));
        Self {
            folder,
            extra: extra.to_vec(),
            child: None,
        }
    }

    /// A running server on a unix socket.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A running server with further arguments.
    #[must_use]
    pub fn start_with(extra: &[String]) -> Self {
        let mut server = Self::prepared(extra);
        server.up();
        server
    }

    /// The unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("nb.sock")
    }

    /// A path in the server's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The process that runs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Adds arguments of ovsdb-server, for the next start.
    pub fn add_arguments(&mut self, extra: &[String]) {
        self.extra.extend_from_slice(extra);
    }

    /// Starts the process and waits until it listens.
    pub fn up(&mut self) {
        assert!(self.child.is_none(), "runs already");
        let _ = std::fs::remove_file(self.socket());
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "ovsdb-server",
                "-vconsole:off",
                "-vsyslog:off",
            ])
            .arg(format!("--remote=punix:{}", self.socket().display()))
            .arg(format!("--unixctl={}", self.path("ctl").display()))
            .args(&self.extra)
            .arg(self.path("nb.db"))
            .stdin(Stdio::null())
            .spawn()
            .expect("setpriv starts");
        self.child = Some(child);
        // It opens its remotes one after the other; a test must not come in between.
        let ports: Vec<u16> = self
            .extra
            .iter()
            .filter_map(|argument| port_of(argument))
            .collect();
        let listens = || {
            UnixStream::connect(self.socket()).is_ok()
                && ports
                    .iter()
                    .all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok())
        };
        let start = now();
        while !listens() {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "ovsdb-server does not listen"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process, as a crash would.
    pub fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let child = self.child.as_ref().expect("runs");
        run(Command::new("kill")
            .arg(format!("-{name}"))
            .arg(child.id().to_string()));
    }

    /// Changes the database's file while no server runs.
    pub fn edit(&self, transaction: &serde_json::Value) {
        assert!(self.child.is_none(), "a server has the file open");
        run(Command::new("ovsdb-tool")
            .arg("transact")
            .arg(self.path("nb.db"))
            .arg(transaction.to_string()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Runs a program to its end. Panics where it fails.
pub fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}: {stderr}",
        output.status
    );
}

/// The port of a `--remote=ptcp:PORT:ADDRESS` or `--remote=pssl:PORT:ADDRESS`.
fn port_of(argument: &str) -> Option<u16> {
    let rest = argument
        .strip_prefix("--remote=ptcp:")
        .or(argument.strip_prefix("--remote=pssl:"))?;
    rest.split(':').next()?.parse().ok()
}

/// A TCP port of 127.0.0.1 that nobody listens on.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[expect(clippy::disallowed_methods, reason = "a test measures real time")]
fn now() -> Instant {
    Instant::now()
}
