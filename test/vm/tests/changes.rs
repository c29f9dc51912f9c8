//! Changes under traffic where there are networks of users, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks beside the default one, all parts real, in the virtual machine. Out: what
//! `hack/lab failover --only change` looks at: outbound SNAT switched, agents and ovn-controllers killed, agents ended by SIGTERM, a network that comes and
//! goes, and no flow between pods of the others is translated, no connection breaks and no pair of pods loses its way. And in each
//! gateway mode every state that the nodes' Northbound databases have been in: none translates packets between pods of one network.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::net::IpAddr;

use journal::Journal;
use vm_tests::in_lab;

/// Seconds; emulated and built without optimization.
const LIMIT: u32 = 2400;

/// The last transactions of the second lab take away by hand what keeps networks from being translated.
const SCRIPT: &str = "
for mode in shared local; do
    LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode $mode --network red=10.150.0.0/16/24,blue=10.151.0.0/16/24
    LAB failover --only change || exit 1
    for node in n1 n2; do
        sed \"s/^/journal $mode $node /\" /run/noverlay-lab/vm/$node/ovs/ovnnb.db
    done
    north=\"LAB exec n1 ovn-nbctl --db=unix:/run/noverlay-lab/vm/n1/ovs/ovnnb_db.sock\"
    LAB daemon freeze n1 node-agent || exit 1
    for row in $($north --bare --columns=_uuid find nat type=snat); do
        for column in exempted_ext_ips allowed_ext_ips; do $north clear nat $row $column || exit 1; done
    done
    sed \"s/^/journal $mode by-hand /\" /run/noverlay-lab/vm/n1/ovs/ovnnb.db
    LAB daemon thaw n1 node-agent
    LAB down
done
";

/// Pods of each network without an overlay, on both nodes; the last is the one that comes and goes, which has none.
const PODS: [[&str; 2]; 4] = [
    ["10.128.0.5", "10.128.1.5"],
    ["10.150.0.5", "10.150.1.5"],
    ["10.151.0.5", "10.151.1.5"],
    ["10.219.0.5", "10.219.1.5"],
];

/// Transactions on translation, and those after which packets between pods of one network would be translated.
fn replayed(text: &str, mode: &str, whose: &str) -> (usize, Vec<String>) {
    let prefix = format!("journal {mode} {whose} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let file = lines.collect::<Vec<&str>>().join("\n");
    let mut of_nat = 0;
    let mut wrong = Vec::new();
    for pods in PODS {
        let pods = pods.map(|pod| pod.parse::<IpAddr>().unwrap());
        let journal = Journal::replayed(&file, &pods);
        of_nat = journal.of_nat;
        wrong.extend(journal.wrong);
    }
    (of_nat, wrong)
}

#[test]
fn a_network_that_comes_and_goes_costs_no_pair_its_way() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    for change in [
        "a network comes",
        "it goes",
        "outbound SNAT switched",
        "ended by SIGTERM",
    ] {
        let is_of = |line: &&str| line.contains(change) && line.contains(": done after ");
        assert_eq!(text.lines().filter(is_of).count(), 2, "{change}");
    }
    for mode in ["shared", "local"] {
        for node in ["n1", "n2"] {
            let (of_nat, wrong) = replayed(&text, mode, node);
            println!("{mode} {node}: {of_nat} transactions on translation");
            assert!(wrong.is_empty(), "{mode} {node}: {wrong:?}");
            assert!(of_nat >= 4, "{mode} {node}: {of_nat}");
            let prefix = format!("journal {mode} {node} ");
            let of_passing = |line: &str| {
                line.starts_with(&prefix) && line.contains("\"NAT\"") && line.contains("\"10.219.")
            };
            assert!(
                text.lines().any(of_passing),
                "{mode} {node}: nothing was translated"
            );
        }
        let (_, wrong) = replayed(&text, mode, "by-hand");
        for of in ["10.128.", "10.150.", "10.151."] {
            let is_of = |found: &&String| found.contains(&format!("translates {of}"));
            assert!(
                wrong.iter().any(|found| is_of(&found)),
                "{mode} {of}: {wrong:?}"
            );
        }
    }
}
