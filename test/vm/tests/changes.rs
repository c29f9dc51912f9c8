//! Changes under traffic where there are networks of users, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks beside the default one, all parts real, in the virtual machine. Out: what
//! `hack/lab failover --only change` looks at: outbound SNAT switched, agents and ovn-controllers killed, a network that comes and
//! goes, and no flow between pods of the others is translated, no connection breaks and no pair of pods loses its way.
#![allow(clippy::unwrap_used, reason = "a test")]

use vm_tests::in_lab;

/// Seconds; emulated and built without optimization.
const LIMIT: u32 = 2000;

const SCRIPT: &str = "
LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24
LAB failover --only change
";

#[test]
fn a_network_that_comes_and_goes_costs_no_pair_its_way() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    for change in ["a network comes", "it goes", "outbound SNAT switched"] {
        assert!(text.contains(change), "{change}");
    }
}
