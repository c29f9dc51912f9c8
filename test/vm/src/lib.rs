//! Tests that need another kernel than the machine's: one with VRF devices, or one that was started in another way.
//!
//! In: a test by name, and its body. Out: its run, here where the kernel is such a one, else in the virtual machine of
//! `hack/vm`.
//! Invariant: a test that cannot run says so, and fails where `REQUIRE_TOOLS=1` is set.
//! Not here: the machine itself.
//!
//! ```text
//!  cargo test --> test binary --hack/vm--> QEMU, the same files --> test binary, one test by name
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what serves tests fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set in the virtual machine, so that a test does not start another one there.
const INSIDE: &str = "NOVERLAY_IN_VM";
/// Seconds that the virtual machine may take for a test; it is about 20 times slower where there is no KVM.
const LIMIT: &str = "240";
/// MiB: an API server, etcd, and two nodes.
const LAB_MEMORY: &str = "6000";

/// `hack/vm`, with arguments to be added.
#[must_use]
pub fn vm() -> Command {
    // Tests run in the folder of their package.
    let mut vm = Command::new("../../hack/vm");
    vm.stdin(Stdio::null());
    vm
}

/// Whether this kernel has VRF, so that no other is needed. Asked in a network namespace that is gone afterwards.
#[must_use]
pub fn has_vrf() -> bool {
    Command::new("unshare")
        .args(["--net", "ip", "link", "add", "probe", "type", "vrf"])
        .args(["table", "10"])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|done| done.status.success())
}

/// Whether there can be no virtual machine, so that the test is to be left.
///
/// Panics instead where `REQUIRE_TOOLS=1` is set.
#[must_use]
pub fn lacks_vm() -> bool {
    let asked = vm().arg("--check").output().unwrap();
    if asked.status.success() {
        return false;
    }
    let why = String::from_utf8_lossy(&asked.stderr);
    assert!(
        std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
        "{why}"
    );
    println!("skipped: {}", why.trim());
    true
}

/// The lab's program, which the tests' build does not make; with it the daemons are there.
fn lab() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("lab")
}

/// What a script prints in the virtual machine, in at most so many seconds; `LAB` in it is the lab's program, for a lab `vm`.
/// Lines that begin with `journal ` are not shown. `None`, and a line that says why, where there is no lab or no virtual machine
/// and neither has to be.
///
/// Panics where the script fails, and where `REQUIRE_TOOLS=1` is set and something is lacking.
#[must_use]
pub fn in_lab(limit: u32, script: &str) -> Option<String> {
    let is_required = std::env::var("REQUIRE_TOOLS").as_deref() == Ok("1");
    let tools = std::env::var("NOVERLAY_TOOLS_DIR");
    if !is_required && (tools.is_err() || !lab().exists()) {
        println!("skipped: NOVERLAY_TOOLS_DIR is not set, or the lab is not built");
        return None;
    }
    if lacks_vm() {
        return None;
    }
    let tools = tools.unwrap();
    let manifests = std::fs::canonicalize("../../manifests/overlays/standalone").unwrap();
    let script = script.replace("LAB", &format!("{} --name vm", lab().display()));
    let done = vm()
        .args(["--timeout", &limit.to_string(), "--memory", LAB_MEMORY])
        .arg(format!("NOVERLAY_TOOLS_DIR={tools}"))
        .arg(format!("NOVERLAY_MANIFESTS={}", manifests.display()))
        .args(["bash", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    // Files of databases are for the test alone.
    for line in text.lines().filter(|line| !line.starts_with("journal ")) {
        println!("{line}");
    }
    println!("{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}", done.status);
    Some(text)
}

/// Cells of a table of who reached whom, by who asked and who was asked.
pub type Cells<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// The tables of line 9 that `prove` of the lab printed, in order.
#[must_use]
pub fn tables(text: &str) -> Vec<Cells<'_>> {
    let mut tables: Vec<(Vec<&str>, Cells<'_>)> = Vec::new();
    for line in text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("reach: "))
    {
        let words = line
            .split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        match (words.split_first(), tables.last_mut()) {
            (Some((&"from", columns)), _) => tables.push((columns.to_vec(), Cells::new())),
            (Some((from, cells)), Some((columns, table))) => {
                let row = columns.iter().zip(cells);
                table.extend(row.map(|(to, cell)| ((*from, *to), *cell)));
            }
            _ => {}
        }
    }
    tables.into_iter().map(|(_, cells)| cells).collect()
}

/// Runs the body of the test of this name: here, or by running this same test in the virtual machine.
///
/// Panics where the test fails there.
pub fn with_vrf(test: &str, body: impl FnOnce()) {
    if has_vrf() {
        body();
        return;
    }
    assert!(
        std::env::var_os(INSIDE).is_none(),
        "the virtual machine's kernel has no VRF"
    );
    in_vm(test, &[]);
}

/// Whether this kernel has IPv6, be it without an address.
#[must_use]
pub fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

/// Runs the body of the test of this name where IPv6 was switched off when the kernel started (`ipv6.disable=1`).
///
/// Panics where the test fails there.
pub fn without_ipv6(test: &str, body: impl FnOnce()) {
    if !has_ipv6() {
        body();
        return;
    }
    assert!(
        std::env::var_os(INSIDE).is_none(),
        "the virtual machine's kernel has IPv6"
    );
    in_vm(test, &["--kernel", "ipv6.disable=1"]);
}

/// Runs this same test, by its name, in the virtual machine.
fn in_vm(test: &str, options: &[&str]) {
    if lacks_vm() {
        return;
    }
    let done = vm()
        .args(["--timeout", LIMIT])
        .args(options)
        .args([&format!("{INSIDE}=1"), "REQUIRE_TOOLS=1"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    // Marked, so that nobody counts its result beside ours.
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        println!("vm: {line}");
    }
    let status = done.status;
    assert!(status.success(), "{test} in the virtual machine: {status}");
}
