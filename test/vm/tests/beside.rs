//! Networks of users beside an imitation of OVN-Kubernetes, on a kernel that has VRFs, with that kernel's datapath.
//!
//! In: the lab of two nodes with two networks of users over tunnels beside the default one, handed over to somebody else, and our
//! daemons beside it, in the virtual machine. Out: the lines of the proof, what it costs to lead the networks past the tunnels and
//! back, and who reaches whom while they are. Invariant: nothing here knows how packets go. Not here: real OVN-Kubernetes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use vm_tests::{in_lab, tables};

/// Seconds.
const LIMIT: u32 = 2400;

/// Both networks are led past the tunnels by hand once more, so that line 9 is looked at meanwhile.
const SCRIPT: &str = r#"
LAB up --nodes 2 --no-prove --wait 400 --adopt --datapath kernel --gateway-mode MODE --families dual --network red=geneve:10.150.0.0/16/24+fd00:150::/48/64,blue=geneve:10.151.0.0/16/24+fd00:151::/48/64
LAB prove --only 1,2,3,9 || exit 1
NOVERLAY_SLOWER=10 LAB failover --only beside-users || exit 1
for network in red blue; do
    LAB kubectl annotate clusteruserdefinednetwork $network 'noverlay.io/no-overlay={"outboundSNAT":"Enabled","routing":"Managed"}' || exit 1
done
for network in red blue; do
    for node in n1 n2; do
        for family in v4 v6; do
            set=noverlay_routed_cluster_udn_${network}_$family
            for second in $(seq 120); do
                led=$(LAB exec $node ovn-nbctl --db=unix:/run/noverlay-lab/vm/$node/ovs/ovnnb_db.sock --bare --columns=addresses find address_set name=$set)
                [ -z "$led" ] || break
                sleep 1
            done
            echo "led: $node $set $led"
        done
    done
done
LAB prove --only 9 || exit 1
LAB kubectl annotate clusteruserdefinednetwork red noverlay.io/no-overlay=yes --overwrite || exit 1
for second in $(seq 60); do
    LAB kubectl get noderoutes n1 -o yaml | grep -q NoOverlayAnnotationInvalid && break
    sleep 1
done
LAB kubectl get clusteruserdefinednetwork red -o yaml
LAB kubectl get noderoutes n1 -o yaml
"#;

fn led_past_the_tunnels(mode: &str) {
    let Some(text) = in_lab(LIMIT, &SCRIPT.replace("MODE", mode)) else {
        return;
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix("line "));
    let seen: Vec<&str> = lines.filter(|rest| !rest.is_empty()).collect();
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert!(seen.iter().all(|line| line.contains(" ok ")), "{seen:?}");
    let done = text.matches("done after").count();
    assert_eq!(done, 5, "events that ended");
    let led = text.lines().filter_map(|line| line.strip_prefix("led: "));
    let led: Vec<usize> = led.map(|line| line.split_whitespace().count()).collect();
    assert_eq!(led, [3; 8], "the other node's subnet is in each set");
    // Led past the tunnels or not, who reaches whom is the same.
    let tables = tables(&text);
    let [before, led] = tables.as_slice() else {
        panic!("{} tables, not two", tables.len());
    };
    assert_eq!(before, led);
    for (to, expected) in [
        ("pods of red", "all"),
        ("pods of blue", "none"),
        ("pods of default", "none"),
        ("outside", "all"),
    ] {
        assert_eq!(led[&("red", to)], expected, "red to {to}");
    }
    assert_eq!(led[&("hosts", "pods of red")], "none");
    // What cannot be read is said, on the object and on the node.
    let reasons = text.matches("reason: NoOverlayAnnotationInvalid").count();
    assert_eq!(reasons, 2, "the network's condition, and the node's");
}

#[test]
fn networks_of_users_beside_others_are_led_past_the_tunnels_and_back_in_shared_gateway_mode() {
    led_past_the_tunnels("shared");
}

#[test]
fn networks_of_users_beside_others_are_led_past_the_tunnels_and_back_in_local_gateway_mode() {
    led_past_the_tunnels("local");
}
