//! Networks of users in the lab, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks beside the default one, all parts real, in the virtual machine. Out: its proof:
//! packets within each network, to the outside host, and none between networks. Invariant: nothing here knows how.
//! Not here: the lines of the proof (the lab), other forms of the lab (`hack/matrix`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::PathBuf;

use vm_tests::{lacks_vm, vm};

/// Seconds; emulated and built without optimization it takes four and a half minutes.
const LIMIT: &str = "1200";
/// MiB: an API server, etcd, and two nodes.
const MEMORY: &str = "6000";

/// The lab's program, which the tests' build does not make; with it the daemons are there.
fn lab() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("lab")
}

#[test]
fn pods_of_each_network_reach_their_own_network_and_the_outside_and_no_other() {
    let is_required = std::env::var("REQUIRE_TOOLS").as_deref() == Ok("1");
    let tools = std::env::var("NOVERLAY_TOOLS_DIR");
    if !is_required && (tools.is_err() || !lab().exists()) {
        println!("skipped: NOVERLAY_TOOLS_DIR is not set, or the lab is not built");
        return;
    }
    if lacks_vm() {
        return;
    }
    let tools = tools.unwrap();
    let manifests = std::fs::canonicalize("../../manifests/overlays/standalone").unwrap();
    let lab = lab().display().to_string();
    let script = format!(
        "{lab} --name vm up --nodes 2 --no-prove --wait 400 --datapath kernel \
         --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24; {lab} --name vm prove --only 1,3,5,9"
    );
    let done = vm()
        .args(["--timeout", LIMIT, "--memory", MEMORY])
        .arg(format!("NOVERLAY_TOOLS_DIR={tools}"))
        .arg(format!("NOVERLAY_MANIFESTS={}", manifests.display()))
        .args(["bash", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let why = String::from_utf8_lossy(&done.stderr);
    println!("{text}\n{why}");
    assert!(done.status.success(), "{}", done.status);
    assert!(
        text.lines().any(|line| line.starts_with("line 9  ok")),
        "line 9 was not asked for"
    );
}
