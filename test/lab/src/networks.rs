//! Networks of users: their objects, and a pod of each on every node.
//!
//! In: what `--network` asks for. Out: a Namespace and a ClusterUserDefinedNetwork of each,
//! and pods on the switches that the product makes. Rows, VRFs and routes are the product's.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::apiserver::{get, kubectl};
use crate::objects::items;
use crate::pods::{self, Place};
use crate::reach;
use crate::run::{each, now, until};
use crate::state::{Lab, Node, Pod, check_name};
use crate::up::Steps;

/// One network of users, without an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserNetwork {
    /// Its name, and that of its only namespace.
    pub(crate) name: String,
    /// Pod addresses of the whole cluster.
    pub(crate) subnet: IpNet,
    /// Prefix length of each node's part.
    pub(crate) host_prefix: u8,
}

impl FromStr for UserNetwork {
    type Err = anyhow::Error;

    /// `NAME=CIDR/HOST`.
    fn from_str(text: &str) -> Result<Self> {
        let form = "wanted is NAME=SUBNET/HOST, for example red=10.150.0.0/16/24";
        let (name, range) = text.split_once('=').context(form)?;
        check_name("network", name, 8)?;
        let (subnet, host) = range.rsplit_once('/').context(form)?;
        Ok(Self {
            name: name.to_owned(),
            subnet: subnet.parse().context(form)?,
            host_prefix: host.parse().context(form)?,
        })
    }
}

impl UserNetwork {
    /// Its name in OVN and in annotations.
    pub(crate) fn network(&self) -> String {
        format!("cluster_udn_{}", self.name)
    }

    fn objects(&self, snat: bool) -> Value {
        let Self {
            name,
            subnet,
            host_prefix,
        } = self;
        let outbound = if snat { "Enabled" } else { "Disabled" };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
            "labels": {"k8s.ovn.org/primary-user-defined-network": ""}}});
        let network = json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "network": {
                    "topology": "Layer3",
                    "layer3": {"role": "Primary", "subnets": [{"cidr": subnet, "hostSubnet": host_prefix}]},
                    "transport": "NoOverlay",
                    "noOverlay": {"outboundSNAT": outbound, "routing": "Managed"},
                },
            },
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [namespace, network]})
    }

    /// Where its pod on a node is.
    pub(crate) fn place(&self, lab: &Lab, node: &str) -> Place {
        let (name, network) = (&self.name, self.network());
        Place {
            switch: format!("{network}_{node}"),
            port: format!("{name}_pod-{node}"),
            device: format!("veth-{name}"),
            namespace: self.namespace(lab, node),
            file: format!("pod-{name}.json"),
        }
    }

    /// Namespace of its pod on a node.
    pub(crate) fn namespace(&self, lab: &Lab, node: &str) -> String {
        format!("{}-{}", lab.pod_namespace(node), self.name)
    }

    /// The node's pod of it, when it has been attached.
    pub(crate) fn pod(&self, lab: &Lab, node: &str) -> Option<Pod> {
        let file = self.place(lab, node).file;
        let text = std::fs::read_to_string(lab.node_dir(node).join(file)).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Creates their objects.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    for network in &lab.networks {
        kubectl(lab)
            .args(["apply", "--server-side", "-f", "-"])
            .input(network.objects(lab.outward.is_translated()).to_string())
            .run()
            .with_context(|| format!("network {}", network.name))?;
    }
    Ok(())
}

/// Attaches a pod of each network on each node, as soon as the product has made its switch.
pub(crate) fn attach(lab: &Lab, wait: Duration, steps: Steps) -> Result<()> {
    let start = now();
    for network in &lab.networks {
        let attached = each(&lab.nodes, |node| {
            let left = wait.saturating_sub(start.elapsed());
            let place = network.place(lab, &node.name);
            let found = until(left, Duration::from_millis(200), || {
                let subnet = subnets(lab, network).ok()?.remove(&node.name)?;
                pods::has_switch_named(lab, &node.name, &place.switch).then_some(subnet)
            });
            match found {
                Some(subnet) => pods::attach_at(lab, node, &[subnet], &place).map(Some),
                None => Ok(None),
            }
        });
        for (node, pod) in lab.nodes.iter().zip(attached) {
            let said = pod?.map_or_else(
                || "no pod: the product has not made its subnet and switch".to_owned(),
                |pod| format!("pod attached at {}", pod.shown()),
            );
            steps.say(&format!("{}: network {}: {said}", node.name, network.name));
        }
    }
    Ok(())
}

/// The subnet of a network that each node got.
fn subnets(lab: &Lab, network: &UserNetwork) -> Result<BTreeMap<String, IpNet>> {
    let nodes = get(lab, "/api/v1/nodes")?;
    let of = |node: &Value| {
        let name = node.pointer("/metadata/name")?.as_str()?;
        let annotation = node.pointer("/metadata/annotations/k8s.ovn.org~1node-subnets")?;
        let all: Value = serde_json::from_str(annotation.as_str()?).ok()?;
        let subnet = all.get(network.network())?.get(0)?.as_str()?.parse().ok()?;
        Some((name.to_owned(), subnet))
    };
    Ok(items(&nodes).iter().filter_map(of).collect())
}

/// The nodes whose pod of a network is attached.
fn attached(lab: &Lab, network: &UserNetwork) -> Vec<(Node, Pod)> {
    let pod = |node: &Node| Some((node.clone(), network.pod(lab, &node.name)?));
    lab.nodes.iter().filter_map(pod).collect()
}

/// What the lab calls the default network.
pub(crate) const DEFAULT: &str = "default";

/// One network's pods with their namespaces.
pub(crate) struct Members {
    /// What the lab calls it.
    pub(crate) name: String,
    /// Where each pod is.
    pub(crate) pods: Vec<(Node, Pod, String)>,
}

/// The pods that are attached: those of the default network first, then those of each network of users.
pub(crate) fn members(lab: &Lab) -> Vec<Members> {
    let default = reach::attached(lab).into_iter().map(|(node, pod)| {
        let namespace = lab.pod_namespace(&node.name);
        (node, pod, namespace)
    });
    let mut all = vec![Members {
        name: DEFAULT.to_owned(),
        pods: default.collect(),
    }];
    all.extend(lab.networks.iter().map(|network| {
        let pods = attached(lab, network).into_iter().map(|(node, pod)| {
            let namespace = network.namespace(lab, &node.name);
            (node, pod, namespace)
        });
        Members {
            name: network.name.clone(),
            pods: pods.collect(),
        }
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_name_a_subnet_and_a_length() {
        let red: UserNetwork = "red=10.150.0.0/16/24".parse().unwrap();
        assert_eq!((red.name.as_str(), red.host_prefix), ("red", 24));
        assert_eq!(red.subnet.to_string(), "10.150.0.0/16");
        for bad in ["red", "red=10.150.0.0", "Red=10.0.0.0/16/24", "red=x/16/24"] {
            assert!(bad.parse::<UserNetwork>().is_err(), "{bad}");
        }
    }
}
