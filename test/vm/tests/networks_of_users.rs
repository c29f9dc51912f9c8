//! Networks of users in the lab, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks beside the default one, all parts real, in the virtual machine. Out: its proof:
//! packets within each network, to the outside host, and none between networks; the last only by the ACLs, which are taken away
//! and come back. Invariant: nothing here knows how packets go.
//! Not here: the lines of the proof (the lab), other forms of the lab (`hack/matrix`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::PathBuf;

use vm_tests::{lacks_vm, vm};

/// Seconds; emulated and built without optimization it takes six minutes.
const LIMIT: &str = "1200";
/// MiB: an API server, etcd, and two nodes.
const MEMORY: &str = "6000";

/// The lab's program, which the tests' build does not make; with it the daemons are there.
fn lab() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("lab")
}

/// In local gateway mode the VRFs lead to one another's remote pods, and only the ACLs keep networks apart.
const SCRIPT: &str = "
LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode local --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24
LAB prove --only 1,3,5,9 || exit 1
for node in n1 n2; do
    LAB daemon freeze $node node-agent || exit 1
    north=\"LAB exec $node ovn-nbctl --db=unix:/run/noverlay-lab/vm/$node/ovs/ovnnb_db.sock\"
    for switch in $($north --bare --columns=name list logical_switch); do $north --wait=hv acl-del $switch || exit 1; done
done
LAB prove --only 9 && exit 1
for node in n1 n2; do
    LAB daemon thaw $node node-agent
    north=\"LAB exec $node ovn-nbctl --db=unix:/run/noverlay-lab/vm/$node/ovs/ovnnb_db.sock\"
    for second in $(seq 120); do
        [ $($north --bare --columns=_uuid list acl | grep -c .) -lt 3 ] || break
        sleep 1
    done
    $north --wait=hv sync
done
LAB prove --only 9
";

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
    let line = text
        .lines()
        .filter_map(|line| line.strip_prefix("line 9  "));
    let seen: Vec<&str> = line.filter_map(|rest| rest.split(' ').next()).collect();
    assert_eq!(
        seen,
        ["ok", "FAIL", "ok"],
        "line 9: whole, without ACLs, with them again"
    );
    assert!(
        text.contains("it answers and sees"),
        "without ACLs line 9 failed for another reason"
    );
}
