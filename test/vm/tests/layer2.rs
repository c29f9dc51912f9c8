//! Networks of users over tunnels in the lab, of layer 2 and of layer 3, beside one without an overlay, on a kernel that has VRFs,
//! with that kernel's datapath.
//!
//! In: the lab of two nodes with all three, each with addresses of both families, all parts real, in the virtual machine, in each
//! gateway mode. Out: its proof: pods of a network with tunnels reach each other; the outside host sees own addresses of the layer-2
//! network's pods, for they are advertised, and the node's of the other's; and no other network is reached but as a host outside is
//! reached. Invariant: nothing here
//! knows how packets go.
//! Not here: the lines of the proof (the lab), rows (the tests of plans and of northd).
#![allow(clippy::unwrap_used, reason = "a test")]

use vm_tests::{in_lab, tables};

/// Seconds; emulated, each mode takes five to eleven minutes by the machine.
const LIMIT: u32 = 2400;

/// The option of the database is the agent's in local gateway mode alone.
const SCRIPT: &str = "
for mode in shared local; do
    LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --families dual --gateway-mode $mode --network red=10.151.0.0/16/24+fd00:151::/48/64,blue=layer2:10.160.0.0/16+fd00:160::/64,gray=geneve:10.170.0.0/16/24+fd00:170::/48/64
    LAB prove --only 9 || exit 1
    north=\"LAB exec n1 ovn-nbctl --db=unix:/run/noverlay-lab/vm/n1/ovs/ovnnb_db.sock\"
    echo \"option $mode $($north get NB_Global . options)\"
    LAB down
done
";

#[test]
fn pods_of_networks_over_tunnels_reach_each_other_and_the_outside_and_no_other_network() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    let line = text.lines().filter(|line| line.starts_with("line 9  ok"));
    assert_eq!(line.count(), 2, "line 9 in both gateway modes");
    assert!(
        !text.contains("no VRFs here"),
        "nodes and Services were looked at"
    );
    let tables = tables(&text);
    assert_eq!(tables.len(), 2, "a table of each");
    // `gray` is not advertised: its pods reach the others' as any host outside does, which is not looked at here.
    for (from, to, expected) in [
        ("red", "pods of red", "all"),
        ("red", "pods of blue", "none"),
        ("red", "pods of gray", "none"),
        ("red", "pods of default", "none"),
        ("red", "Service of red", "all"),
        ("red", "Service of blue", "none"),
        ("red", "Service of gray", "none"),
        ("blue", "pods of blue", "all"),
        ("blue", "pods of red", "none"),
        ("blue", "pods of gray", "none"),
        ("blue", "pods of default", "none"),
        ("blue", "Service of blue", "all"),
        ("blue", "Service of red", "none"),
        ("gray", "pods of gray", "all"),
        ("gray", "Service of gray", "all"),
        ("gray", "Service of red", "none"),
        ("default", "pods of default", "all"),
        ("default", "pods of red", "none"),
        ("default", "pods of blue", "none"),
        ("default", "pods of gray", "none"),
        ("hosts", "pods of red", "none"),
        ("hosts", "pods of blue", "none"),
        ("hosts", "pods of gray", "none"),
    ] {
        for cells in &tables {
            assert_eq!(cells[&(from, to)], expected, "{from} to {to}");
        }
    }
    for from in ["red", "blue", "gray", "default"] {
        assert!(
            tables
                .iter()
                .all(|cells| cells[&(from, "outside")] == "all")
        );
    }
    let is_off = |mode: &str| {
        let mut options = text.lines().filter_map(|line| line.strip_prefix("option "));
        let of_mode = options.find_map(|rest| rest.strip_prefix(mode)).unwrap();
        of_mode.contains("use_ct_inv_match=\"false\"")
    };
    assert!(!is_off("shared") && is_off("local"), "{text}");
}
