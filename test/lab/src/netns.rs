//! Network namespaces by name, as `ip netns` keeps them.
//!
//! In: names. Out: namespaces made, entered, deleted. Invariant: only one thread at a
//! time is ever inside, never the whole program. What is in a namespace is not here.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};

use crate::run::tool;

/// Where `ip netns` keeps its names; the first namespace of a machine makes it a mount.
const FOLDER: &str = "/run/netns";

/// Runs `job` in a thread that has entered the namespace. Sockets and processes made
/// there stay in it.
pub(crate) fn inside<T: Send>(
    namespace: &str,
    job: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let path = Path::new(FOLDER).join(namespace);
    let file = File::open(&path).with_context(|| format!("network namespace {namespace}"))?;
    let thread = move || {
        setns(&file, CloneFlags::CLONE_NEWNET).context("setns")?;
        job()
    };
    std::thread::scope(|scope| match scope.spawn(thread).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Makes a namespace with its loopback up, and IPv6 off or with addresses that can be used at once.
pub(crate) fn add(namespace: &str, ipv6: bool) -> Result<()> {
    tool("ip").words(&format!("netns add {namespace}")).run()?;
    let settings = if ipv6 {
        // Nobody else has these addresses, and nobody advertises others.
        "-qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
         net.ipv6.conf.all.accept_ra=0 net.ipv6.conf.default.accept_ra=0"
    } else {
        // Not every kernel has IPv6; where it is missing there is nothing to turn off.
        "-qew net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
    };
    tool("sysctl").words(settings).inside(namespace).run()?;
    tool("ip")
        .words(&format!("-n {namespace} link set lo up"))
        .run()?;
    Ok(())
}

/// Names of all namespaces that begin with `prefix`.
pub(crate) fn names(prefix: &str) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(FOLDER)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    found.sort();
    found
}

/// Numbers of the processes that are in a namespace.
pub(crate) fn processes(namespace: &str) -> Vec<i32> {
    let listed = tool("ip").words(&format!("netns pids {namespace}")).run();
    listed
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Deletes a namespace.
pub(crate) fn delete(namespace: &str) -> Result<()> {
    tool("ip")
        .words(&format!("netns del {namespace}"))
        .run()
        .map(drop)
}

/// Is the folder of names there (whoever made it)?
pub(crate) fn folder_exists() -> bool {
    Path::new(FOLDER).exists()
}

/// Takes the folder of names away again, when it is empty.
pub(crate) fn remove_empty_folder() {
    if !names("").is_empty() {
        return;
    }
    // Mounted over itself, once or twice; a folder that is not empty stays.
    while umount2(FOLDER, MntFlags::MNT_DETACH).is_ok() {}
    drop(std::fs::remove_dir(FOLDER));
}
