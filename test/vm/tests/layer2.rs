//! A layer-2 network of users in the lab, beside one of layer 3, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with both networks, all parts real, in the virtual machine, in each gateway mode. Out: its proof:
//! pods of the layer-2 network reach each other over a tunnel, the outside host sees their own addresses, for they are advertised,
//! and no other network is reached. Invariant: nothing here knows how packets go.
//! Not here: the lines of the proof (the lab), rows (the tests of plans and of northd).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::PathBuf;

use vm_tests::{lacks_vm, vm};

/// Seconds; emulated and built without optimization each mode takes four minutes.
const LIMIT: &str = "1200";
/// MiB: an API server, etcd, and two nodes.
const MEMORY: &str = "6000";

/// The lab's program, which the tests' build does not make; with it the daemons are there.
fn lab() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("lab")
}

/// The option of the database is the agent's in local gateway mode alone.
const SCRIPT: &str = "
for mode in shared local; do
    LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode $mode --network red=10.151.0.0/16/24,blue=layer2:10.160.0.0/16
    LAB prove --only 9 || exit 1
    north=\"LAB exec n1 ovn-nbctl --db=unix:/run/noverlay-lab/vm/n1/ovs/ovnnb_db.sock\"
    echo \"option $mode $($north get NB_Global . options)\"
    LAB down
done
";

#[test]
fn pods_of_a_layer_2_network_reach_each_other_and_the_outside_with_their_own_addresses() {
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
    let script = SCRIPT.replace("LAB", &format!("{lab} --name vm"));
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
    let line = text.lines().filter(|line| line.starts_with("line 9  ok"));
    assert_eq!(line.count(), 2, "line 9 in both gateway modes");
    let is_off = |mode: &str| {
        let mut options = text.lines().filter_map(|line| line.strip_prefix("option "));
        let of_mode = options.find_map(|rest| rest.strip_prefix(mode)).unwrap();
        of_mode.contains("use_ct_inv_match=\"false\"")
    };
    assert!(!is_off("shared") && is_off("local"), "{text}");
}
