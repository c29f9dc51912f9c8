//! Two networks of users with the same subnets, each routed in a VRF of its own over links of its own, on a kernel that has VRFs,
//! with that kernel's datapath.
//!
//! In: the lab of two nodes with both, all parts real, in the virtual machine, in local gateway mode. Out: a pod reaches the
//! pod of its own network on the other node, never the one of the other network that has the same address; the links of their VRFs carry their packets with their own
//! addresses; nothing of them is in the main table, and no default route in their VRFs. Invariant: which pod answers is counted where it is.
#![allow(clippy::unwrap_used, reason = "a test")]

use vm_tests::in_lab;

/// Seconds; emulated and built without optimization.
const LIMIT: u32 = 2400;

/// Pods of both networks on the second node have the same address, or the test would show nothing.
const SCRIPT: &str = r#"
LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode local --network red=vrf:10.150.0.0/16/24,blue=vrf:10.150.0.0/16/24
pod() { sed -n 's/.*"address": *"\([^"]*\)".*/\1/p' /run/noverlay-lab/vm/$1/pod-$2.json | head -1; }
answered() { LAB exec $1-pod-$2 nstat -asz IcmpOutEchoReps | awk '/IcmpOutEchoReps/ { print $2 }'; }
# On the second node subnets were given out in any order.
for network in red blue; do
    echo "pod $network n1 $(pod n1 $network) n2 $(pod n2 $network)"
    for second in $(seq 300); do
        LAB exec n1-pod-$network ping -n -q -c 1 -W 1 $(pod n2 $network) >/dev/null && break
        sleep 1
    done
    red=$(answered n2 red) blue=$(answered n2 blue)
    LAB exec underlay timeout 60 tcpdump -n -l -i br-$network -c 2 'icmp[icmptype] == icmp-echo' 2>/dev/null | sed -n "s/.* IP \([0-9.]*\) > .*/wire $network \1/p" &
    sleep 5
    LAB exec n1-pod-$network ping -n -q -c 5 -W 2 $(pod n2 $network) | sed -n "s/.* \([0-9]*\) received.*/pings $network \1/p"
    wait
    echo "answered $network red $(($(answered n2 red) - red)) blue $(($(answered n2 blue) - blue))"
    table=$(LAB exec n1 ip route show vrf $network) || exit 1
    [ -n "$table" ] || exit 1
    echo "default $network $(echo "$table" | grep default | grep -vc unreachable)"
    LAB exec n1-pod-$network ping -n -q -c 2 -W 1 172.30.0.100 | sed -n "s/.* \([0-9]*\) received.*/outside $network \1/p"
done
main=$(LAB exec n1 ip route show) || exit 1
[ -n "$main" ] || exit 1
echo "main $(echo "$main" | grep -c '10\.150')"
LAB exec n1 ip route show table all | grep 10.150
LAB status
LAB down
"#;

/// Numbers at the end of the line that begins with these words.
fn numbers(text: &str, words: &str) -> Vec<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(words));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn networks_with_the_same_addresses_in_vrfs_of_their_own_do_not_meet() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    let pods = |network: &str| {
        let words = format!("pod {network} ");
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(words.as_str()))
    };
    assert!(
        pods("red").is_some() && pods("red") == pods("blue"),
        "the same addresses"
    );
    for (network, answered) in [("red", [5, 0]), ("blue", [0, 5])] {
        assert_eq!(numbers(&text, &format!("pings {network}")), [5]);
        assert_eq!(numbers(&text, &format!("answered {network}")), answered);
        assert_eq!(numbers(&text, &format!("default {network}")), [0]);
        assert_eq!(numbers(&text, &format!("outside {network}")), [0]);
        // The link of the VRF carries their packets with their own addresses.
        let words = format!("wire {network} ");
        let wire = text
            .lines()
            .filter_map(|line| line.strip_prefix(words.as_str()));
        let own = pods(network).and_then(|pods| pods.strip_prefix("n1 ")?.split(' ').next());
        let own = own.unwrap();
        assert_eq!(wire.collect::<Vec<_>>(), [own, own]);
    }
    assert_eq!(numbers(&text, "main"), [0]);
}
