//! Networks of users in the lab, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks beside the default one, all parts real, in the virtual machine. Out: its proof:
//! packets within each network, to the outside host, to nodes, the API server and Services, and none between networks, nor to
//! Services that are not for them, nor from hosts; these only by ACLs, flows and the packet filter, which are taken away and come
//! back. Then in shared gateway mode,
//! where nothing is translated and isolation is loose: the physical network leads from one network to the other. Invariant: nothing here knows how packets go.
//! Not here: the lines of the proof (the lab), other forms of the lab (`hack/matrix`).
#![allow(clippy::unwrap_used, reason = "a test")]

use vm_tests::{in_lab, tables};

/// Seconds; emulated and built without optimization it takes ten minutes.
const LIMIT: u32 = 2000;

/// Of the ways that must be closed, at least one is open.
const SOME: &str = "some";

/// In local gateway mode the VRFs lead to one another's remote pods, and only the ACLs keep networks apart.
const SCRIPT: &str = "
LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode local --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24
LAB prove --only 1,3,5,9 || exit 1
for node in n1 n2; do
    LAB daemon freeze $node node-agent || exit 1
    north=\"LAB exec $node ovn-nbctl --db=unix:/run/noverlay-lab/vm/$node/ovs/ovnnb_db.sock\"
    for switch in $($north --bare --columns=name list logical_switch); do $north --wait=hv acl-del $switch || exit 1; done
    bridge=unix:/run/noverlay-lab/vm/$node/ovs/br-ex.mgmt
    for management in 169.254.0.12 169.254.0.14; do
        LAB exec $node ovs-ofctl -O OpenFlow15 del-flows $bridge table=2,ip,nw_src=$management || exit 1
    done
    LAB exec $node nft flush chain inet ovn-kubernetes udn-bgp-drop || exit 1
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
LAB prove --only 9 || exit 1
LAB down
LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode shared --outbound-snat disabled --isolation loose --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24
LAB prove --only 9
";

#[test]
fn pods_of_each_network_reach_their_own_network_and_the_outside_and_no_other() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    let line = text
        .lines()
        .filter_map(|line| line.strip_prefix("line 9  "));
    let seen: Vec<&str> = line.filter_map(|rest| rest.split(' ').next()).collect();
    assert_eq!(
        seen,
        ["ok", "FAIL", "ok", "ok"],
        "line 9: whole, without ACLs and drops, with them again, and loose in shared gateway mode"
    );
    let tables = tables(&text);
    assert_eq!(tables.len(), 4, "a table of each");
    let of = |from, to| -> Vec<&str> { tables.iter().map(|cells| cells[&(from, to)]).collect() };
    // What must not be reached is asked once: on a slow machine some of it is not, also where it can be.
    let is = |(seen, wanted): (&str, &str)| {
        seen == wanted || (wanted == SOME && !["none", "-"].contains(&seen))
    };
    for (to, expected) in [
        ("pods of red", ["all", "all", "all", "all"]),
        ("Service of red", ["all", "all", "all", "all"]),
        ("Service kube-system/kube-dns", ["all", "all", "all", "all"]),
        // Without ACLs VRFs lead to the default network's pods on the other node; in loose mode the physical network to all.
        ("pods of default", ["none", SOME, "none", "all"]),
        ("pods of blue", ["none", "none", "none", "all"]),
        ("Service default/other", ["none", SOME, "none", "none"]),
        ("Service of blue", ["none", "none", "none", "none"]),
        // At other nodes than the pod's own; in shared gateway mode its own one leads into another network of users, too.
        ("node port of red", ["all", "all", "all", "all"]),
        ("node port of blue", ["2/4", "2/4", "2/4", "all"]),
        ("node port of default", ["2/4", "2/4", "2/4", "2/4"]),
    ] {
        assert!(
            of("red", to).into_iter().zip(expected).all(is),
            "red to {to}: {:?}, expected {expected:?}",
            of("red", to)
        );
    }
    // Without the packet filter's rule a host's packets reach the pods of the other node.
    let hosts = of("hosts", "pods of red");
    let expected = ["none", SOME, "none", "none"];
    assert_eq!(hosts.len(), expected.len());
    assert!(hosts.iter().copied().zip(expected).all(is), "{hosts:?}");
    assert_eq!(of("default", "node port of red"), ["all"; 4]);
}
