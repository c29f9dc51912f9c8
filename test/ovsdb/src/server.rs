//! A real ovsdb-server with the OVN Northbound schema.
//!
//! In: a folder, remotes. Out: a running process.
//! Invariant: the process dies with the thread that started it, and when dropped.
//! Not here: clients.

use std::net::TcpStream;
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
    /// Of the file system of its own that the database is copied to at each start, KiB.
    disk: Option<u32>,
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
            disk: None,
        }
    }

    /// A running server whose database is on a file system of so many KiB that nobody else sees.
    #[must_use]
    pub fn start_on_disk_of(kib: u32) -> Self {
        let mut server = Self::prepared(&[]);
        std::fs::create_dir(server.path("disk")).expect("a folder to mount on");
        server.disk = Some(kib);
        server.up();
        server
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
        let database = self.path("nb.db");
        let (mut command, database) = match self.disk {
            None => (Command::new("setpriv"), database),
            Some(kib) => {
                let script = concat!(
                    r#"mount -t tmpfs -o size=$0k none "$1" && cp "$2" "$1" "#,
                    r#"&& shift 2 && exec setpriv "$@""#
                );
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", script, &kib.to_string()]);
                command.arg(self.path("disk")).arg(database);
                (command, self.path("disk/nb.db"))
            }
        };
        let child = command
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
            .arg(database)
            .stdin(Stdio::null())
            .spawn()
            .expect("setpriv or unshare starts");
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

    /// A file on the server's own disk, as it is seen from here.
    #[must_use]
    pub fn on_disk(&self, name: &str) -> PathBuf {
        let child = self.child.as_ref().expect("runs");
        let seen = self.path("disk").join(name);
        let seen = seen.strip_prefix("/").expect("an absolute path");
        PathBuf::from(format!("/proc/{}/root", child.id())).join(seen)
    }

    /// Converts the running database to the Northbound schema after `change`, as an upgrade does.
    pub fn convert(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let text = std::fs::read_to_string(SCHEMA).expect("the schema");
        let mut schema: serde_json::Value = serde_json::from_str(&text).expect("a schema");
        change(&mut schema);
        let path = self.path("changed.ovsschema");
        std::fs::write(&path, schema.to_string()).expect("the changed schema");
        run(Command::new("ovsdb-client")
            .arg("convert")
            .arg(format!("unix:{}", self.socket().display()))
            .arg(path));
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

#[expect(clippy::disallowed_methods, reason = "a test measures real time")]
fn now() -> Instant {
    Instant::now()
}
