//! A real FRR in a network namespace of its own, for tests.
//! In: text of frr.conf. Out: what FRR's reload tool says, and the running configuration.
//! Invariant: nothing outlives the value: daemons live in a process namespace that dies with its first process,
//! and that one dies with us.
//! Not here: our own reading of FRR (`frr-edge`); everything goes through FRR's tools.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

const LIB: &str = "/usr/lib/frr";
const DAEMONS: [&str; 3] = ["zebra", "bgpd", "bfdd"];
const TOOLS: [&str; 7] = [
    "chown", "ip", "python3", "setpriv", "sh", "unshare", "vtysh",
];
/// A file that takes everything away; the reload tool refuses a wholly empty one.
const NOTHING: &str = "hostname fn1\n";

static STARTED: AtomicU32 = AtomicU32::new(0);

/// zebra, bgpd and bfdd with an interface `f1` (172.31.9.1/24) in a fresh network namespace.
#[derive(Debug)]
pub struct Frr {
    namespace: String,
    dir: TempDir,
    supervisor: Child,
}

/// What FRR's reload tool made of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// It ended with 0.
    pub clean: bool,
    /// Its output, both streams.
    pub output: String,
}

/// What is missing on this machine to start an FRR; empty when all is there.
#[must_use]
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !root {
        missing.push("root".to_owned());
    }
    for file in DAEMONS.into_iter().chain(["frr-reload.py"]) {
        if !Path::new(LIB).join(file).exists() {
            missing.push(format!("{LIB}/{file}"));
        }
    }
    for tool in TOOLS {
        let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        if !places.iter().any(|dir| Path::new(dir).join(tool).exists()) {
            missing.push(tool.to_owned());
        }
    }
    missing
}

impl Frr {
    /// Starts the daemons and waits until they answer. They end with the calling thread.
    ///
    /// # Errors
    /// When the namespace cannot be made or the daemons do not answer within 20 s; the text of their logs is in the message.
    pub fn start() -> io::Result<Self> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("nvl-frr-{}-{number}", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&format!("{namespace}-"))
            .tempdir_in("/tmp")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(dir.path().join("vtysh.conf"), "")?;
        run(Command::new("chown")
            .args(["-R", "frr:frr"])
            .arg(dir.path()))?;
        run(Command::new("ip").args(["netns", "add", &namespace]))?;
        let started = prepare_links(&namespace).and_then(|()| spawn(&namespace, dir.path()));
        let supervisor = match started {
            Ok(supervisor) => supervisor,
            Err(error) => {
                delete_namespace(&namespace);
                return Err(error);
            }
        };
        let frr = Self {
            namespace,
            dir,
            supervisor,
        };
        frr.wait_until_ready()?;
        Ok(frr)
    }

    /// Loads a file with FRR's own reload tool, in place of everything that was configured.
    ///
    /// # Errors
    /// When the tool cannot be run at all; a refused line is no error but `clean == false`.
    pub fn load(&self, text: &str) -> io::Result<Reload> {
        let dir = self.dir.path();
        let file = dir.join("wanted.conf");
        fs::write(&file, text)?;
        let done = Command::new("python3")
            .arg(Path::new(LIB).join("frr-reload.py"))
            .args(["--reload", "--overwrite", "--stdout"])
            .arg("--vty_socket")
            .arg(dir)
            .arg("--confdir")
            .arg(dir)
            .arg("--rundir")
            .arg(dir)
            .arg(&file)
            .output()?;
        let mut output = String::from_utf8_lossy(&done.stdout).into_owned();
        output.push_str(&String::from_utf8_lossy(&done.stderr));
        Ok(Reload {
            clean: done.status.success(),
            output,
        })
    }

    /// Takes all configuration away. False where FRR keeps something nevertheless, so that a new one is wanted.
    ///
    /// # Errors
    /// As `load` and `running`.
    pub fn empty(&self) -> io::Result<bool> {
        self.load(NOTHING)?;
        Ok(self.running()?.is_empty())
    }

    /// The lines of `show running-config`, without version, defaults, hostname, log and service lines and without
    /// blank and `!` lines at the margin.
    ///
    /// # Errors
    /// When vtysh cannot be run or fails.
    pub fn running(&self) -> io::Result<Vec<String>> {
        let text = self.vtysh("show running-config")?;
        Ok(text
            .lines()
            .filter(|line| counts(line))
            .map(str::to_owned)
            .collect())
    }

    /// The output of one vtysh command.
    ///
    /// # Errors
    /// When vtysh cannot be run or fails.
    pub fn vtysh(&self, command: &str) -> io::Result<String> {
        let dir = self.dir.path();
        run(Command::new("vtysh")
            .arg("--vty_socket")
            .arg(dir)
            .args(["-c", command]))
    }

    /// The output of one command of one daemon; the others may be frozen.
    ///
    /// # Errors
    /// When vtysh cannot be run or fails.
    pub fn ask(&self, daemon: &str, command: &str) -> io::Result<String> {
        run(Command::new("vtysh")
            .arg("--vty_socket")
            .arg(self.dir.path())
            .args(["-d", daemon, "-c", command]))
    }

    /// Its network namespace, by the name that `ip netns` has for it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The folder with the vty sockets.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Connects two of them over a link of its own: this one gets `172.31.<net>.1/24`, the other `172.31.<net>.2/24`.
    ///
    /// # Errors
    /// When the link cannot be made.
    pub fn connect(&self, other: &Self, net: u8) -> io::Result<()> {
        let (near, far) = (format!("p{net}"), format!("q{net}"));
        let make = [
            "link",
            "add",
            &near,
            "netns",
            &self.namespace,
            "type",
            "veth",
        ];
        let peer = ["peer", "name", &far, "netns", &other.namespace];
        run(Command::new("ip").args(make).args(peer))?;
        for (namespace, link, host) in [(&self.namespace, &near, 1), (&other.namespace, &far, 2)] {
            let ip = |args: &[&str]| run(Command::new("ip").args(["-n", namespace]).args(args));
            ip(&[
                "address",
                "add",
                &format!("172.31.{net}.{host}/24"),
                "dev",
                link,
            ])?;
            ip(&["link", "set", link, "up"])?;
        }
        Ok(())
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, arguments: &str) -> io::Result<String> {
        let words = arguments.split_whitespace();
        run(Command::new("ip").args(["-n", &self.namespace]).args(words))
    }

    /// Sends a signal (`KILL`, `STOP`, `CONT`) to a daemon; one that was killed is started again unless it is held.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, daemon: &str, signal: &str) -> io::Result<()> {
        let pids = run(Command::new("ip").args(["netns", "pids", &self.namespace]))?;
        for pid in pids.split_whitespace() {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.trim() == daemon {
                run(Command::new("kill").args([&format!("-{signal}"), pid]))?;
                return Ok(());
            }
        }
        Err(io::Error::other(format!("{daemon} does not run")))
    }

    /// Keeps a daemon that ends from being started again, or lets it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn hold(&self, daemon: &str, held: bool) -> io::Result<()> {
        let file = self.dir.path().join(format!("{daemon}.hold"));
        if held {
            fs::write(file, "")
        } else {
            fs::remove_file(file)
        }
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        for _ in 0..200 {
            let sockets = DAEMONS.map(|name| self.dir.path().join(format!("{name}.vty")));
            if sockets.iter().all(|socket| socket.exists()) && self.vtysh("show version").is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let logs: Vec<String> = DAEMONS
            .iter()
            .map(|name| self.dir.path().join(format!("{name}.log")))
            .chain([self.dir.path().join("output.log")])
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect();
        Err(io::Error::other(format!(
            "FRR does not answer: {}",
            logs.join("\n")
        )))
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // Teardown goes on whatever fails: the process may be gone already. A frozen daemon dies of SIGKILL too.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        // The daemons die a moment after their process 1; until then they may still write into the folder.
        for _ in 0..100 {
            let left = run(Command::new("ip").args(["netns", "pids", &self.namespace]));
            if left.is_ok_and(|pids| pids.trim().is_empty()) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        delete_namespace(&self.namespace);
    }
}

fn prepare_links(namespace: &str) -> io::Result<()> {
    let commands: [&[&str]; 5] = [
        &["link", "set", "lo", "up"],
        &["link", "add", "f1", "type", "veth", "peer", "name", "f2"],
        &["address", "add", "172.31.9.1/24", "dev", "f1"],
        &["link", "set", "f1", "up"],
        &["link", "set", "f2", "up"],
    ];
    for args in commands {
        run(Command::new("ip").args(["-n", namespace]).args(args))?;
    }
    Ok(())
}

/// One shell is process 1 of a process namespace with all daemons in it: FRR changes its user, which would clear a
/// death signal set on the daemons themselves.
fn spawn(namespace: &str, dir: &Path) -> io::Result<Child> {
    let log = fs::File::create(dir.join("output.log"))?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .args(["unshare", "--pid", "--fork", "--kill-child=KILL"])
        .args(["ip", "netns", "exec", namespace])
        .args(["sh", "-c", &script(dir)])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Each daemon is started again when it ends, as watchfrr does, unless it is held.
fn script(dir: &Path) -> String {
    let dir = dir.display();
    let daemon = |name: &str| {
        let more = if name == "bfdd" {
            format!(" --bfdctl {dir}/bfdd.sock")
        } else {
            String::new()
        };
        format!(
            "(while :; do {LIB}/{name} -u frr -g frr --vty_socket {dir} -i {dir}/{name}.pid -z {dir}/zserv.api --log file:{dir}/{name}.log{more}; sleep 0.2; while test -e {dir}/{name}.hold; do sleep 0.1; done; done) &"
        )
    };
    let [zebra, bgpd, bfdd] = DAEMONS.map(daemon);
    // Without zebra's socket the others would wait seconds before they try again.
    format!("{zebra}\nwhile ! test -S {dir}/zserv.api; do sleep 0.05; done\n{bgpd}\n{bfdd}\nwait\n")
}

fn delete_namespace(namespace: &str) {
    // Nothing can be done about a failure while tearing down.
    let _ = run(Command::new("ip").args(["netns", "delete", namespace]));
}

fn counts(line: &str) -> bool {
    let dropped = [
        "!",
        "Building configuration",
        "Current configuration",
        "frr version ",
        "frr defaults ",
        "hostname ",
        "log ",
        "service ",
    ];
    !line.trim().is_empty() && line != "end" && !dropped.iter().any(|word| line.starts_with(word))
}

/// The standard output of a command that has to succeed.
fn run(command: &mut Command) -> io::Result<String> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(io::Error::other(format!(
        "{command:?} ended with {}: {}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    )))
}

/// The folders of the recorded cases, sorted by name.
///
/// # Errors
/// When the folder cannot be read.
pub fn cases() -> io::Result<Vec<PathBuf>> {
    let all = Path::new("cases");
    let mut folders = Vec::new();
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
