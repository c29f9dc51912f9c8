//! The objects that others make: Nodes as a kubelet registers them, networks of users and their namespaces.
//! In: a number. Out: JSON. Invariant: the same number gives the same object, no two share an address or a range.
//! Not here: what the manager makes of them.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// The default network; the thirteen-bit ranges below it are those of [`cudn`].
pub(crate) const CLUSTER_SUBNETS: &str = "10.128.0.0/13/24";

pub(crate) fn node_name(number: u32) -> String {
    format!("node-{number:04}")
}

/// A Node with its address and Ready, as kubelets create it.
pub(crate) fn node(number: u32) -> Value {
    let name = node_name(number);
    let address = Ipv4Addr::from_bits(0xac10_0001 + number).to_string();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
        }},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}],
        },
    })
}

fn network_name(number: u32) -> String {
    format!("net-{number:02}")
}

/// The namespace that has the network of that number.
pub(crate) fn namespace(number: u32) -> Value {
    let name = network_name(number);
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            "tenant": name, "k8s.ovn.org/primary-user-defined-network": "",
        }},
    })
}

/// A layer-3 network without an overlay, routed by the managed fabric, with a /24 for each node.
pub(crate) fn cudn(number: u32) -> Value {
    let name = network_name(number);
    let range = Ipv4Addr::from_bits(0x0a00_0000 + (number << 19));
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork", "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {"matchLabels": {"tenant": name}},
            "network": {
                "topology": "Layer3",
                "layer3": {"role": "Primary", "subnets": [{"cidr": format!("{range}/13"), "hostSubnet": 24}]},
                "transport": "NoOverlay",
                "noOverlay": {"outboundSNAT": "Enabled", "routing": "Managed"},
            },
        },
    })
}
