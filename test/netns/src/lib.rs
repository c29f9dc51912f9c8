//! What the tests on a real kernel and a real Open vSwitch need: network namespaces, and a switch in one of them.
//!
//! In: a test as a future. Out: its run inside a namespace of its own.
//! Invariant: namespaces and processes end with the test, also when it panics.
//! Not here: the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "what serves tests fails by panicking"
)]

mod switch;
pub mod translation;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

pub use crate::switch::{BRIDGE, SCHEMA, Switch};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a tool (a program, or a file by its full path) is absent or we are not root, so that the test is to be left.
///
/// Panics instead where `REQUIRE_TOOLS=1` is set.
#[must_use]
pub fn absent(tools: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joined to a folder, a full path stays itself.
    let found = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).exists());
    let mut missing: Vec<&str> = tools.iter().filter(|tool| !found(tool)).copied().collect();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root");
    }
    if missing.is_empty() {
        return false;
    }
    assert!(
        std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
        "missing: {missing:?}"
    );
    println!("skipped: missing {missing:?}");
    true
}

static NEXT: AtomicU32 = AtomicU32::new(0);
/// `ip netns add` makes its folder a shared mount when it is the first; two of them at once disturb each other.
static ADDING: Mutex<()> = Mutex::new(());

struct Namespace {
    name: String,
}

impl Namespace {
    fn add() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nvl-ns-{}-{number}", std::process::id());
        let adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        run(Command::new("ip").args(["netns", "add", &name]));
        drop(adding);
        Self { name }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// Runs a test in a new network namespace, in which even `lo` is down.
///
/// The runtime has one thread, which is in the namespace, as are the threads and processes that it starts.
pub fn in_namespace<F>(test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let namespace = Namespace::add();
    in_namespace_of(&namespace.name, test);
}

/// Runs a test in a network namespace that there is, by the name that `ip netns` has for it; otherwise as `in_namespace`.
pub fn in_namespace_of<F>(name: &str, test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let path = Path::new("/run/netns").join(name);
    let thread = std::thread::spawn(move || {
        let file = File::open(path).expect("the namespace's file");
        setns(file, CloneFlags::CLONE_NEWNET).expect("to enter the namespace");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these arguments in the thread's namespace and returns what it prints. Panics where it fails.
pub fn ip(arguments: &str) -> String {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

/// Runs many `ip` commands, one a line. Panics where one fails.
pub fn ip_batch(lines: &str) {
    assert!(batch(&["-batch", "-"], lines), "ip -batch failed");
}

/// The same, where some may fail: the rest is run all the same.
pub fn try_ip_batch(lines: &str) {
    batch(&["-force", "-batch", "-"], lines);
}

fn batch(options: &[&str], lines: &str) -> bool {
    let mut child = Command::new("ip")
        .args(options)
        .stdin(Stdio::piped())
        .spawn()
        .expect("ip starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin
        .write_all(lines.as_bytes())
        .expect("ip reads its lines");
    drop(stdin);
    child.wait().expect("ip ends").success()
}

/// A link `name` that is up, with 192.0.2.1/24 and 2001:db8::1/64; its other end is `<name>-peer`.
pub fn mk_link(name: &str) {
    ip("link set lo up");
    ip(&format!("link add {name} type veth peer name {name}-peer"));
    ip(&format!("addr add 192.0.2.1/24 dev {name}"));
    ip(&format!("-6 addr add 2001:db8::1/64 dev {name} nodad"));
    ip(&format!("link set {name}-peer up"));
    ip(&format!("link set {name} up"));
}

/// As many /32 routes of BGP, one `ip` command a line, from 10.100.0.0 on.
#[must_use]
pub fn route_lines(verb: &str, count: u32) -> String {
    (0..count)
        .map(|number| {
            let to = std::net::Ipv4Addr::from_bits(0x0a64_0000 + number);
            format!("route {verb} {to}/32 via 192.0.2.2 proto bgp metric 20\n")
        })
        .collect()
}

/// Runs a program to its end and returns what it prints. Panics where it fails.
pub fn run(command: &mut Command) -> String {
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
    String::from_utf8_lossy(&output.stdout).into_owned()
}
