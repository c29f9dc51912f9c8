//! A route of a network of users that is withdrawn, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with such a network, all parts real, in the virtual machine, in each gateway mode; the second node takes
//! its subnet of it back. Out: what a pod on the first node sends to the one there leaves the node no more, while what it sends to
//! the outside host does; and with the rows and routes taken away that keep it, it leaves by the default route.
//! Not here: the same of the default network (line 8 of the lab's proof).
#![allow(clippy::unwrap_used, reason = "a test")]

use vm_tests::in_lab;

/// Seconds; emulated and built without optimization.
const LIMIT: u32 = 1500;

const SCRIPT: &str = r#"
pod() { sed -n 's/.*"address": *"\([^"]*\)".*/\1/p' /run/noverlay-lab/vm/$1/pod-red.json | head -1; }
# What is on the wire of five requests to the other pod and of three to the outside host.
sent() {
    : >/tmp/wire
    LAB exec underlay timeout 60 tcpdump -n -l -i br0 "icmp[icmptype] == icmp-echo and (dst host $far or dst host 172.30.0.100)" >/tmp/wire 2>/dev/null &
    # It sees what must be seen before it is asked for what must not.
    for second in $(seq 30); do
        LAB exec n1-pod-red ping -n -q -c 1 -W 1 172.30.0.100 >/dev/null
        grep -q '> 172.30.0.100:' /tmp/wire && break
        sleep 1
    done
    before=$(grep -c '> 172.30.0.100:' /tmp/wire)
    LAB exec n1-pod-red ping -n -q -c 5 -W 1 $far | sed -n "s/.* \([0-9]*\) received.*/answered $mode $1 \1/p"
    LAB exec n1-pod-red ping -n -q -c 3 -W 2 172.30.0.100 >/dev/null
    wait
    echo "pods $mode $1 $(grep -c "> $far:" /tmp/wire)"
    echo "before $mode $1 $before"
    echo "outside $mode $1 $(($(grep -c '> 172.30.0.100:' /tmp/wire) - before))"
}
for mode in shared local; do
    LAB up --nodes 2 --no-prove --wait 400 --datapath kernel --gateway-mode $mode --network red=10.150.0.0/16/24
    far=$(pod n2) subnet=$(pod n2 | sed 's/\.[0-9]*$/.0/')/24
    frr="LAB exec n2 vtysh --vty_socket /run/noverlay-lab/vm/n2/frr"
    north="LAB exec n1 ovn-nbctl --db=unix:/run/noverlay-lab/vm/n1/ovs/ovnnb_db.sock"
    routes() { LAB exec n1 ip route show vrf red; $north --bare --columns=ip_prefix list logical_router_static_route; }
    for second in $(seq 300); do
        LAB exec n1-pod-red ping -n -q -c 1 -W 1 $far >/dev/null && break
        sleep 1
    done
    sent there
    LAB daemon freeze n2 frr-agent || exit 1
    router=$($frr -c 'show running-config' | awk -v statement="network $subnet" '/^router bgp/ { router = $0 } index($0, statement) { print router; exit }')
    [ -n "$router" ] || exit 1
    $frr -c 'configure terminal' -c "$router" -c 'address-family ipv4 unicast' -c "no network $subnet" || exit 1
    for second in $(seq 60); do
        routes | grep -q "^$subnet" || break
        sleep 1
    done
    sleep 5
    sent withdrawn
    LAB daemon freeze n1 node-agent || exit 1
    for row in $($north --bare --columns=_uuid find logical_router_static_route ip_prefix=10.150.0.0/16 nexthop=discard); do
        for name in $($north --bare --columns=name list logical_router); do
            $north --if-exists remove logical_router $name static_routes $row
        done
    done
    $north --wait=hv sync
    LAB exec n1 ip route del unreachable 10.150.0.0/16 vrf red metric 4278198272 || LAB exec n1 ip route del unreachable 10.150.0.0/16 vrf red
    sent opened
    LAB daemon thaw n1 node-agent
    LAB daemon thaw n2 frr-agent
    LAB down
done
"#;

/// The number at the end of the line that begins with these words.
fn number(text: &str, words: &str) -> u32 {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix(words)?.trim().parse().ok());
    assert!(number.is_some(), "{words}");
    number.unwrap()
}

#[test]
fn what_is_sent_to_a_withdrawn_subnet_of_a_network_stays_on_the_node() {
    let Some(text) = in_lab(LIMIT, SCRIPT) else {
        return;
    };
    for mode in ["shared", "local"] {
        let of = |what: &str, when: &str| number(&text, &format!("{what} {mode} {when}"));
        for when in ["there", "withdrawn", "opened"] {
            assert!(
                of("before", when) > 0 && of("outside", when) > 0,
                "{mode}, {when}: the capture is blind"
            );
        }
        assert!(
            of("answered", "there") > 0 && of("pods", "there") > 0,
            "{mode}"
        );
        assert_eq!(of("answered", "withdrawn"), 0, "{mode}");
        assert_eq!(of("pods", "withdrawn"), 0, "{mode}");
        assert!(of("pods", "opened") > 0, "{mode}: nothing kept it");
    }
}
