//! NetworkPolicies, egress firewalls and QoS of a network without an overlay, as whoever makes them writes their rows.
//!
//! In: rows of port groups, ACLs and QoS of a pod and of a node's switch, written with ovn-nbctl. Out: packets of pods that they
//! stop, let pass and mark, also after the node-agent started anew and looked at all rows. Not here: who makes such rows of objects.

use std::time::Duration;

use crate::harness::{Standing, able, wait};
use crate::test_node::tool_in;

/// Class of service that the marked packets have: 46 in the upper six bits of the byte.
const TOS: &str = "0xb8";
/// How long rows may take to packets.
const CHANGE: Duration = Duration::from_secs(20);

struct Policies<'a> {
    lab: &'a Standing,
    node: String,
}

impl Policies<'_> {
    fn nbctl(&self, words: &[&str]) -> String {
        let words = [&["ovn-nbctl", "--wait=hv", "--timeout=20"], words].concat();
        self.lab.exec(&self.node, &words)
    }

    /// Whether the node's pod reaches an address, as soon as the answer is the one that is wanted.
    fn reaches(&self, to: &str, wanted: bool) -> bool {
        let namespace = format!("{}-pod", self.node);
        let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", to];
        let ping = || {
            tool_in(&namespace, &words)
                .output()
                .unwrap()
                .status
                .success()
        };
        wait(CHANGE, || ping() == wanted)
    }

    /// A policy by a port group and an address set, an egress firewall and a QoS rule of the node's switch.
    fn make(&self, pod: &str, [denied, allowed]: [&str; 2], match_outside: &str) {
        self.nbctl(&["pg-add", "a42", pod]);
        self.nbctl(&[
            "create",
            "address_set",
            "name=a43",
            &format!("addresses={denied}"),
        ]);
        self.nbctl(&[
            "acl-add",
            "a42",
            "from-lport",
            "1001",
            "inport == @a42 && ip4.dst == $a43",
            "drop",
        ]);
        let switch = &self.node;
        self.nbctl(&[
            "--apply-after-lb",
            "acl-add",
            switch,
            "from-lport",
            "10000",
            match_outside,
            "drop",
        ]);
        self.nbctl(&[
            "qos-add",
            switch,
            "from-lport",
            "1000",
            &format!("ip4.dst == {allowed}"),
            "dscp=46",
        ]);
    }

    /// The rows of somebody else are there, and the pod's packets obey them.
    fn are_obeyed(&self, denied: &str, outside: &str, allowed: &str) {
        assert!(self.reaches(denied, false), "the policy's port group");
        assert!(self.reaches(outside, false), "the egress firewall");
        assert!(self.reaches(allowed, true), "what no rule names");
        assert_eq!(self.marked(allowed), Some(TOS.to_owned()), "the QoS rule");
    }

    /// Class of service of the pod's packets to another pod on the physical network.
    fn marked(&self, to: &str) -> Option<String> {
        let filter = format!("icmp[icmptype] == icmp-echo and dst host {to}");
        let words = [
            "timeout", "10", "tcpdump", "-n", "-v", "-c", "1", "-i", "br0", &filter,
        ];
        let child = self.lab.start("underlay", &words);
        wait(Duration::from_secs(2), || false);
        self.reaches(to, true);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, rest) = text.split_once("tos ")?;
        Some(rest.split(',').next()?.to_owned())
    }
}

#[test]
fn policies_egress_firewall_and_qos_rows_of_others_hold_on_a_network_without_an_overlay() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let (denied, allowed) = (lab.pod(1).to_string(), lab.pod(2).to_string());
    let outside = lab.host(100);
    let policies = Policies { lab: &lab, node };
    for to in [&denied, &allowed, &outside] {
        assert!(policies.reaches(to, true), "{to}");
    }
    assert_eq!(policies.marked(&allowed), Some("0x0".to_owned()));
    let ports = policies.nbctl(&["lsp-list", &policies.node]);
    let names = ports
        .split_whitespace()
        .map(|word| word.trim_matches(['(', ')']));
    let pod = names
        .into_iter()
        .find(|name| name.contains("pod"))
        .expect("the pod's port");
    let switch = policies.node.clone();
    let match_outside = format!("ip4.dst == {outside}/32");
    policies.make(pod, [&denied, &allowed], &match_outside);
    policies.are_obeyed(&denied, &outside, &allowed);
    // The agent looks at all rows when it starts, and when somebody changes one of its own.
    for change in ["start", "repair"] {
        if change == "start" {
            lab.daemon("end", &policies.node, "node-agent");
            lab.daemon("start", &policies.node, "node-agent");
        } else {
            policies.nbctl(&["lr-route-del", &format!("GR_{switch}"), &lab.subnet(1)]);
        }
        lab.recovers("5");
        policies.are_obeyed(&denied, &outside, &allowed);
    }
    policies.nbctl(&["pg-del", "a42"]);
    policies.nbctl(&["acl-del", &switch, "from-lport", "10000", &match_outside]);
    policies.nbctl(&["qos-del", &switch]);
    for to in [&denied, &allowed, &outside] {
        assert!(policies.reaches(to, true), "{to}");
    }
    lab.recovers("1,3,5");
}
