//! An EgressIP of an advertised network: announced by the node that holds it, its rows left alone, and pods seen with it.
//!
//! In: a lab whose network is advertised; objects and rows in the forms of whoever assigns EgressIPs (facts of OVN-Kubernetes:
//! policies of the cluster router, `snat` rows of the gateway router of the node that holds the address, the address itself at
//! the bridge). Out: packets of pods of that node and of another one, before and after the node-agent started anew. Not here: who
//! assigns addresses.

use std::time::Duration;

use crate::harness::{Standing, call, wait};
use crate::test_node::{TestNode, pods_ping};

/// How long a change may take from an object to packets.
const CHANGE: Duration = Duration::from_secs(60);
/// Pods of the whole cluster, in the example.
const PODS: &str = "10.128.0.0/16";
/// Who made the rows.
const OWNER: &str = "external_ids:\"k8s.ovn.org/owner-type\"=EgressIP";
const OWNERS: &str = "external_ids:\"k8s.ovn.org/owner-controller\"=default-network-controller";

/// An address, held by the first node for the pods of the first two.
pub(crate) struct EgressIp<'a> {
    lab: &'a Standing,
    nodes: &'a [TestNode<'a>],
    pub(crate) address: String,
}

impl<'a> EgressIp<'a> {
    /// The object with its status, rows of the two nodes, and the address.
    pub(crate) fn assign(lab: &'a Standing, nodes: &'a [TestNode<'a>]) -> Self {
        let address = lab.host(201);
        let first = nodes.first_chunk::<2>();
        let [holder, other] = first.expect("two nodes are wanted");
        let object = serde_json::json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "out"},
            "spec": {"egressIPs": [address],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
            "status": {"items": [{"egressIP": address, "node": holder.node}]},
        });
        let file = lab.dir(&holder.node).join("egress-ip.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let file = file.to_string_lossy().into_owned();
        assert!(call(&["kubectl", "apply", "-f", &file]).good);
        let new = Self {
            lab,
            nodes,
            address,
        };
        let (own, own_pod) = (port(holder, "rtoj-GR_"), lab.pod(0).to_string());
        new.steer(holder, &own_pod, &own);
        let (tunnel, far_pod) = (port(holder, "rtots-"), lab.pod(1).to_string());
        new.steer(other, &far_pod, &tunnel);
        for pod in [&own_pod, &far_pod] {
            new.translate(holder, pod);
        }
        // What comes from other nodes' pods goes on to the gateway router.
        let router = ["--policy=src-ip", "lr-route-add", "ovn_cluster_router"];
        holder.nbctl(&[&router[..], &[PODS, &own]].concat());
        let held = format!("{}/32", new.address);
        holder.run(&["ip", "addr", "add", &held, "dev", "br-ex"]);
        new
    }

    /// The pod's packets that leave the cluster go to the holder's gateway router.
    fn steer(&self, node: &TestNode<'_>, pod: &str, hop: &str) {
        let matches = [
            (
                "102",
                "ip4.src == 10.128.0.0/16 && ip4.dst == 10.128.0.0/16",
                "allow",
            ),
            (
                "102",
                "ip4.src == 10.128.0.0/16 && ip4.dst == 100.64.0.0/16",
                "allow",
            ),
            ("102", "pkt.mark == 42", "allow"),
            ("100", &format!("ip4.src == {pod}"), "reroute"),
        ];
        for (priority, of, action) in matches {
            let mut words = vec!["lr-policy-add", "ovn_cluster_router", priority, of, action];
            if action == "reroute" {
                words.push(hop);
            }
            node.nbctl(&words);
            let of = format!("match=\"{of}\"");
            mark(node, "Logical_Router_Policy", &of);
        }
    }

    fn translate(&self, node: &TestNode<'_>, pod: &str) {
        let router = node.router();
        let add = ["lr-nat-add", &router, "snat", &self.address, pod];
        node.nbctl(&add);
        mark(node, "NAT", &format!("logical_ip={pod}"));
    }

    /// Rows of whoever assigned it.
    pub(crate) fn rows(&self) -> Vec<String> {
        let of = |node: &TestNode<'_>| {
            ["Logical_Router_Policy", "NAT"].map(|table| {
                let list = node.nbctl(&["--format=csv", "--no-headings", "find", table, OWNER]);
                let mut lines: Vec<&str> = list.lines().collect();
                lines.sort_unstable();
                lines.join("\n")
            })
        };
        let holder = self.nodes.first().unwrap();
        let by_source = ["--bare", "--columns=ip_prefix,nexthop", "find"];
        let by_source = [
            &by_source[..],
            &["Logical_Router_Static_Route", "policy=src-ip"],
        ]
        .concat();
        let mut rows: Vec<String> = self.nodes.iter().flat_map(of).collect();
        rows.push(holder.nbctl(&by_source));
        rows
    }

    /// Which node announces it to the router.
    pub(crate) fn announced_by(&self, node: Option<usize>) -> bool {
        wait(CHANGE, || {
            let shown = self
                .lab
                .exec("edge", &["ip", "route", "show", "proto", "bgp"]);
            let mut lines = shown.lines();
            let route = lines.find(|line| line.starts_with(&format!("{} ", self.address)));
            let wanted = node.map(|number| format!("via {} ", self.lab.address(number)));
            match (route, wanted) {
                (Some(route), Some(via)) => route.contains(&via),
                (None, None) => true,
                (None, Some(_)) | (Some(_), None) => false,
            }
        })
    }

    /// Takes rows, address and object away.
    pub(crate) fn release(self) {
        for node in self.nodes {
            let policies = node.nbctl(&[
                "--bare",
                "--columns=priority,match",
                "find",
                "Logical_Router_Policy",
                OWNER,
            ]);
            for row in policies.split("\n\n").filter(|row| !row.trim().is_empty()) {
                let (priority, of) = row.trim().split_once('\n').unwrap();
                node.nbctl(&["lr-policy-del", "ovn_cluster_router", priority, of]);
            }
            let pods = node.nbctl(&["--bare", "--columns=logical_ip", "find", "NAT", OWNER]);
            for pod in pods.split_whitespace() {
                node.nbctl(&["lr-nat-del", &node.router(), "snat", pod]);
            }
        }
        let held = format!("{}/32", self.address);
        let holder = self.nodes.first().unwrap();
        holder.nbctl(&[
            "--policy=src-ip",
            "lr-route-del",
            "ovn_cluster_router",
            PODS,
        ]);
        holder.run(&["ip", "addr", "del", &held, "dev", "br-ex"]);
        assert!(call(&["kubectl", "delete", "egressips.k8s.ovn.org", "out"]).good);
    }
}

/// Address of a router's port.
fn port(node: &TestNode<'_>, prefix: &str) -> String {
    let name = format!("{prefix}{}", node.node);
    let networks = node.nbctl(&["--bare", "get", "Logical_Router_Port", &name, "networks"]);
    let (address, _) = networks.split_once('/').unwrap();
    address.trim_start_matches(['[', '"']).to_owned()
}

/// Says whose the rows are.
fn mark(node: &TestNode<'_>, table: &str, of: &str) {
    let rows = node.nbctl(&["--bare", "--columns=_uuid", "find", table, of]);
    let all: Vec<&str> = rows.split_whitespace().collect();
    assert_eq!(all.len(), 1, "{table} {of}: {rows}");
    node.nbctl(&["set", table, all.first().unwrap(), OWNER, OWNERS]);
}

/// The agent looks at all rows when it starts: a route of its own that went meanwhile comes back in that pass.
fn restarted(lab: &Standing, nodes: &[TestNode<'_>]) {
    let routes = |node: &TestNode<'_>| node.nbctl(&["lr-route-list", &node.router()]);
    let has_default = |node: &TestNode<'_>| routes(node).contains("0.0.0.0/0");
    for node in nodes {
        lab.daemon("end", &node.node, "node-agent");
        node.nbctl(&["lr-route-del", &node.router(), "0.0.0.0/0"]);
        assert!(!has_default(node));
        lab.daemon("start", &node.node, "node-agent");
    }
    for node in nodes {
        assert!(wait(CHANGE, || has_default(node)), "{}", routes(node));
    }
    pods_ping(lab, CHANGE);
}

/// Pods of both nodes are seen with it outside, by `is_seen` (from, to, at, source); pods see each other as before.
pub(crate) fn story(
    lab: &Standing,
    nodes: &[TestNode<'_>],
    is_seen: impl Fn(&str, &str, &str, &str),
) {
    let advertise = |what: &str| {
        let patch = format!("{{\"spec\":{{\"advertisements\":{what}}}}}");
        let words = [
            "kubectl",
            "patch",
            "routeadvertisements",
            "outside",
            "--type=merge",
            "-p",
            &patch,
        ];
        assert!(call(&words).good);
    };
    let outside = lab.host(100);
    let pods = |number: usize| format!("{}-pod", lab.node(number));
    let egress = EgressIp::assign(lab, nodes);
    // Before anybody had time to touch them.
    let rows = egress.rows();
    assert!(
        rows.iter().take(3).all(|list| !list.trim().is_empty()),
        "policies and SNAT of the holder, policies of the other: {rows:?}"
    );
    std::thread::sleep(Duration::from_secs(5));
    assert!(egress.announced_by(None), "before it is advertised");
    advertise("[\"PodNetwork\",\"EgressIP\"]");
    assert!(egress.announced_by(Some(0)), "by the node that holds it");
    let behave = || {
        for number in [0, 1] {
            is_seen(&pods(number), &outside, "outside", &egress.address);
        }
        let third = lab.pod(2).to_string();
        // One that has none.
        is_seen(&pods(2), &outside, "outside", &third);
        for number in [0, 1] {
            is_seen(
                &pods(number),
                &third,
                &pods(2),
                &lab.pod(number).to_string(),
            );
        }
        assert_eq!(egress.rows(), rows, "rows of whoever assigned it");
    };
    behave();
    restarted(lab, nodes);
    behave();
    let holder = nodes.first().unwrap();
    let held = holder.run(&["ip", "-4", "-o", "addr", "show", "dev", "br-ex"]);
    assert!(held.contains(&egress.address), "the address stays: {held}");
    advertise("[\"PodNetwork\"]");
    assert!(egress.announced_by(None), "advertised no more");
    egress.release();
    for number in [0, 1] {
        is_seen(
            &pods(number),
            &outside,
            "outside",
            &lab.pod(number).to_string(),
        );
    }
}
