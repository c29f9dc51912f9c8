//! Networks of users: their objects, and a pod of each on every node.
//!
//! In: what `--network` asks for. Out: a Namespace and a ClusterUserDefinedNetwork of each,
//! and pods on the switches that the product makes. Rows, VRFs and routes are the product's.

mod vrf;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::apiserver::{get, kubectl};
use crate::family::Family;
use crate::node::ovs::{chassis, nbctl};
use crate::objects::items;
use crate::ovn_kubernetes::cni;
use crate::pods::{self, Place, Seat};
use crate::reach;
use crate::run::{each, now, until};
use crate::state::{Lab, Node, Pod, PodAddress, check_name};
use crate::up::Steps;
use crate::values::{Values, nth};

/// One network of users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserNetwork {
    /// Its name, and that of its only namespace.
    pub(crate) name: String,
    /// Its pods' addresses, one range for each family.
    pub(crate) ranges: Vec<UserRange>,
    /// How packets go between nodes.
    pub(crate) way: Way,
}

/// How a network's packets go between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Layer 3 without an overlay, with managed routing.
    Routed,
    /// The same in a VRF of its own, over a link of its own.
    OwnVrf,
    /// Layer 3 over tunnels, advertised to nobody.
    Tunnels,
    /// Layer 2 over tunnels, advertised.
    Layer2,
}

/// Addresses of one family of a network of users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserRange {
    /// Pod addresses of the whole cluster.
    pub(crate) subnet: IpNet,
    /// Prefix length of each node's part; none: a network of layer 2, of which each node has all.
    pub(crate) host_prefix: Option<u8>,
}

/// What stands between ranges of two families.
const AND: char = '+';
/// How ranges of a network begin that goes another way.
const WAYS: [(&str, Way); 3] = [
    ("vrf:", Way::OwnVrf),
    ("geneve:", Way::Tunnels),
    ("layer2:", Way::Layer2),
];
/// Label of the FRRConfiguration by which nodes speak BGP with each other.
const FABRIC: (&str, &str) = ("k8s.ovn.org/managed-internal-fabric", "bgp");
/// Bytes that tunnels over IPv4 and over IPv6 add to a packet.
const TUNNEL: [u32; 2] = [58, 78];

impl FromStr for UserNetwork {
    type Err = anyhow::Error;

    /// `NAME=CIDR/HOST`, `NAME=vrf:CIDR/HOST`, `NAME=geneve:CIDR/HOST`, or `NAME=layer2:CIDR`; two families:
    /// `CIDR/HOST+CIDR/HOST` or `CIDR+CIDR`.
    fn from_str(text: &str) -> Result<Self> {
        let form = "wanted is NAME=SUBNET/HOST, for example red=10.150.0.0/16/24 or, of both families, red=10.150.0.0/16/24+fd00:150::/48/64, NAME=vrf:SUBNET/HOST of IPv4, NAME=geneve:SUBNET/HOST, or NAME=layer2:SUBNET or NAME=layer2:SUBNET+SUBNET";
        let (name, ranges) = text.split_once('=').context(form)?;
        check_name("network", name, 8)?;
        let of_way = |(prefix, way)| Some((way, ranges.strip_prefix(prefix)?));
        let (way, ranges) = (WAYS.into_iter().find_map(of_way)).unwrap_or((Way::Routed, ranges));
        let is_layer2 = way == Way::Layer2;
        let range = |text: &str| {
            let (subnet, host_prefix) = match text.rsplit_once('/') {
                Some((subnet, host)) if !is_layer2 => (subnet, Some(host.parse().context(form)?)),
                _ => (text, None),
            };
            anyhow::ensure!(is_layer2 || host_prefix.is_some(), form);
            let subnet = subnet.parse().context(form)?;
            Ok(UserRange {
                subnet,
                host_prefix,
            })
        };
        let ranges = ranges.split(AND).map(range).collect::<Result<Vec<_>>>()?;
        let families: Vec<Family> = ranges.iter().map(UserRange::family).collect();
        let is_one_of_each = matches!(
            families[..],
            [_] | [Family::V4, Family::V6] | [Family::V6, Family::V4]
        );
        anyhow::ensure!(is_one_of_each, form);
        anyhow::ensure!(way != Way::OwnVrf || families == [Family::V4], form);
        Ok(Self {
            name: name.to_owned(),
            ranges,
            way,
        })
    }
}

impl UserRange {
    pub(crate) fn family(&self) -> Family {
        Family::of(self.subnet.addr())
    }
}

impl UserNetwork {
    /// Its name in OVN and in annotations.
    pub(crate) fn network(&self) -> String {
        format!("cluster_udn_{}", self.name)
    }

    fn objects(&self, lab: &Lab) -> Result<Value> {
        let Self { name, ranges, .. } = self;
        let snat = lab.outward.is_translated();
        let outbound = if snat { "Enabled" } else { "Disabled" };
        let routing = if self.way == Way::OwnVrf {
            "Unmanaged"
        } else {
            "Managed"
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
            "labels": {"k8s.ovn.org/primary-user-defined-network": ""}}});
        let layout = if self.is_layer2() {
            let subnets: Vec<&IpNet> = ranges.iter().map(|range| &range.subnet).collect();
            json!({
                "topology": "Layer2",
                "layer2": {"role": "Primary", "subnets": subnets},
            })
        } else {
            let subnets = ranges
                .iter()
                .map(|range| json!({"cidr": range.subnet, "hostSubnet": range.host_prefix}));
            let layer3 = json!({"role": "Primary", "subnets": subnets.collect::<Vec<Value>>()});
            if self.has_tunnels() {
                json!({"topology": "Layer3", "layer3": layer3})
            } else {
                json!({"topology": "Layer3", "layer3": layer3, "transport": "NoOverlay",
                    "noOverlay": {"outboundSNAT": outbound, "routing": routing}})
            }
        };
        let network = json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
            "metadata": {"name": name, "labels": {"advertised": name}},
            "spec": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "network": layout,
            },
        });
        let mut items = vec![namespace, network];
        if self.is_layer2() {
            items.push(json!({
                "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
                "metadata": {"name": name},
                "spec": {
                    "nodeSelector": {},
                    "frrConfigurationSelector": {"matchLabels": {FABRIC.0: FABRIC.1}},
                    "networkSelectors": [{
                        "networkSelectionType": "ClusterUserDefinedNetworks",
                        "clusterUserDefinedNetworkSelector":
                            {"networkSelector": {"matchLabels": {"advertised": name}}},
                    }],
                    "advertisements": ["PodNetwork"],
                },
            }));
        }
        if self.way == Way::OwnVrf {
            items.extend(vrf::objects(lab, self)?);
        }
        Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
    }

    /// Has it addresses of this family?
    pub(crate) fn has(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
    }

    /// Each node has all of it.
    pub(crate) fn is_layer2(&self) -> bool {
        self.way == Way::Layer2
    }

    /// Tunnels lead to other nodes' pods.
    pub(crate) fn has_tunnels(&self) -> bool {
        matches!(self.way, Way::Tunnels | Way::Layer2)
    }

    /// What its pods send out of the cluster bears the node's address.
    fn is_translated(&self, lab: &Lab) -> bool {
        match self.way {
            Way::Routed | Way::OwnVrf => lab.outward.is_translated(),
            Way::Tunnels => true,
            Way::Layer2 => false,
        }
    }

    /// Where its pod on a node is.
    pub(crate) fn place(&self, lab: &Lab, node: &str) -> Place {
        let (name, network) = (&self.name, self.network());
        let switch = if self.is_layer2() {
            "ovn_layer2_switch"
        } else {
            node
        };
        Place {
            switch: format!("{network}_{switch}"),
            port: self.port(node),
            device: format!("veth-{name}"),
            namespace: self.namespace(lab, node),
            file: format!("pod-{name}.json"),
        }
    }

    /// Name in OVN of its pod on a node.
    fn port(&self, node: &str) -> String {
        format!("{}_pod-{node}", self.name)
    }

    /// Where its pod on a node is, beside those subnets.
    fn seat(&self, lab: &Lab, node: &Node, subnets: &[IpNet]) -> Seat {
        let (pod, options) = if self.is_layer2() {
            let address = |subnet: &IpNet| PodAddress {
                subnet: *subnet,
                address: nth(*subnet, FIRST_OF_LAYER2 + node.index),
            };
            let addresses = subnets.iter().map(address).collect();
            (Pod { addresses }, vec![tunnel_key(node)])
        } else {
            (Pod::of(subnets), Vec::new())
        };
        let [over_ipv4, over_ipv6] = TUNNEL;
        let tunnel = match Family::of(lab.address(node)) {
            _ if !self.has_tunnels() => 0,
            Family::V4 => over_ipv4,
            Family::V6 => over_ipv6,
        };
        Seat {
            pod,
            mtu: lab.outward.underlay_mtu - tunnel,
            options,
            is_routed: !self.is_translated(lab),
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

/// Of a pod of layer 2, the first node's.
const FIRST_OF_LAYER2: u32 = 10;

/// What all nodes call the port of a node's pod of layer 2.
fn tunnel_key(node: &Node) -> String {
    format!("requested-tnl-key={}", 100 + node.index)
}

/// The ports of other nodes' pods of a layer-2 network, as a CNI writes them on each node.
fn tell_each_other(lab: &Lab, network: &UserNetwork) -> Result<()> {
    let all = attached(lab, network);
    for (node, _) in &all {
        let switch = network.place(lab, &node.name).switch;
        for (other, pod) in all.iter().filter(|(other, _)| other.name != node.name) {
            let port = network.port(&other.name);
            let chassis = format!("requested-chassis={}", chassis(other));
            nbctl(lab, &node.name)
                .args(["--may-exist", "lsp-add", &switch, &port])
                .args(["--", "lsp-set-type", &port, "remote"])
                .args(["--", "lsp-set-addresses", &port, &pods::row(pod)?])
                .args(["--", "lsp-set-options", &port, &chassis, &tunnel_key(other)])
                .run()
                .with_context(|| format!("port of the pod of {} on {}", other.name, node.name))?;
        }
    }
    Ok(())
}

/// A network has addresses of families that the nodes have, and no others. `adopt`: it is handed over to somebody else, who has it
/// over tunnels.
pub(crate) fn check(networks: &[UserNetwork], values: &Values, adopt: bool) -> Result<()> {
    for network in networks {
        if adopt && network.way != Way::Tunnels {
            anyhow::bail!(
                "--network {}: with --adopt and --ovn-kubernetes it has to be over tunnels; allowed: {0}=geneve:SUBNET/HOST",
                network.name
            );
        }
        let foreign = (network.ranges.iter()).find(|range| !values.has(range.family()));
        if let Some(range) = foreign {
            anyhow::bail!(
                "--network {}: the nodes have no address of the family of {}; --families says which they have",
                network.name,
                range.subnet
            );
        }
    }
    Ok(())
}

/// Makes links for those that have a VRF of their own, and creates all objects.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    for network in &lab.networks {
        if network.way == Way::OwnVrf {
            vrf::connect(lab, network).with_context(|| format!("links of {}", network.name))?;
        }
        kubectl(lab)
            .args(["apply", "--server-side", "-f", "-"])
            .input(network.objects(lab)?.to_string())
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
                let subnets = if network.is_layer2() {
                    network.ranges.iter().map(|range| range.subnet).collect()
                } else {
                    subnets(lab, network).ok()?.remove(&node.name)?
                };
                let is_there = pods::has_switch_named(lab, &node.name, &place.switch);
                (is_there && subnets.len() == network.ranges.len()).then_some(subnets)
            });
            match found {
                Some(_) if lab.ovn_kubernetes.is_some() => {
                    let (inner, file) = (&place.namespace, &place.file);
                    cni::attach(lab, node, &network.name, inner, file).map(Some)
                }
                Some(subnets) => {
                    let seat = network.seat(lab, node, &subnets);
                    pods::attach_at(lab, node, seat, &place).map(Some)
                }
                None => Ok(None),
            }
        });
        for (node, pod) in lab.nodes.iter().zip(attached) {
            let said = pod?.map_or_else(
                || "no pod: its subnet and switch have not been made".to_owned(),
                |pod| format!("pod attached at {}", pod.shown()),
            );
            steps.say(&format!("{}: network {}: {said}", node.name, network.name));
        }
        if network.is_layer2() {
            tell_each_other(lab, network)?;
        }
        for node in lab.nodes.iter().filter(|_| network.way == Way::OwnVrf) {
            let left = wait.saturating_sub(start.elapsed());
            if !vrf::enslave(lab, network, node, left) {
                let name = &network.name;
                steps.say(&format!("{}: no VRF {name} for its link", node.name));
            }
        }
    }
    Ok(())
}

/// The subnets of a network that each node got.
pub(crate) fn subnets(lab: &Lab, network: &UserNetwork) -> Result<BTreeMap<String, Vec<IpNet>>> {
    let nodes = get(lab, "/api/v1/nodes")?;
    let of = |node: &Value| {
        let name = node.pointer("/metadata/name")?.as_str()?;
        let annotation = node.pointer("/metadata/annotations/k8s.ovn.org~1node-subnets")?;
        let all: Value = serde_json::from_str(annotation.as_str()?).ok()?;
        let all = all.get(network.network())?.as_array()?.iter();
        let all = all.map(|subnet| subnet.as_str()?.parse().ok());
        Some((name.to_owned(), all.collect::<Option<Vec<IpNet>>>()?))
    };
    Ok(items(&nodes).iter().filter_map(of).collect())
}

/// The nodes whose pod of a network is attached.
pub(crate) fn attached(lab: &Lab, network: &UserNetwork) -> Vec<(Node, Pod)> {
    let pod = |node: &Node| Some((node.clone(), network.pod(lab, &node.name)?));
    lab.nodes.iter().filter_map(pod).collect()
}

/// What the lab calls the default network.
pub(crate) const DEFAULT: &str = "default";

/// One network's pods with their namespaces.
pub(crate) struct Members {
    /// What the lab calls it.
    pub(crate) name: String,
    /// What its pods send out of the cluster bears the node's address.
    pub(crate) is_translated: bool,
    /// Tunnels lead to other nodes' pods.
    pub(crate) has_tunnels: bool,
    /// Others have a way to its pods.
    pub(crate) is_advertised: bool,
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
        is_translated: lab.outward.is_translated(),
        has_tunnels: lab.outward.is_overlay(),
        is_advertised: !lab.outward.is_overlay(),
        pods: default.collect(),
    }];
    all.extend(lab.networks.iter().map(|network| {
        let pods = attached(lab, network).into_iter().map(|(node, pod)| {
            let namespace = network.namespace(lab, &node.name);
            (node, pod, namespace)
        });
        Members {
            name: network.name.clone(),
            is_translated: network.is_translated(lab),
            has_tunnels: network.has_tunnels(),
            is_advertised: network.way != Way::Tunnels,
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
        let range = |subnet: &str, host_prefix| UserRange {
            subnet: subnet.parse().unwrap(),
            host_prefix,
        };
        assert_eq!(red.name, "red");
        assert_eq!(red.ranges, [range("10.150.0.0/16", Some(24))]);
        let blue: UserNetwork = "blue=layer2:10.160.0.0/16".parse().unwrap();
        assert!(blue.is_layer2() && !red.is_layer2());
        assert_eq!(blue.ranges, [range("10.160.0.0/16", None)]);
        let green: UserNetwork = "green=vrf:10.150.0.0/16/24".parse().unwrap();
        assert_eq!([green.way, red.way], [Way::OwnVrf, Way::Routed]);
        assert_eq!(green.ranges, red.ranges);
        let gray: UserNetwork = "gray=geneve:10.150.0.0/16/24".parse().unwrap();
        assert!(gray.has_tunnels() && !gray.is_layer2() && gray.ranges == red.ranges);
        let both: UserNetwork = "both=10.150.0.0/16/24+fd00:150::/48/64".parse().unwrap();
        let second = range("fd00:150::/48", Some(64));
        assert_eq!(both.ranges, [range("10.150.0.0/16", Some(24)), second]);
        let both: UserNetwork = "both=layer2:10.160.0.0/16+fd00:160::/64".parse().unwrap();
        let second = range("fd00:160::/64", None);
        assert_eq!(both.ranges, [range("10.160.0.0/16", None), second]);
        assert!(both.is_layer2());
        for bad in [
            "red=10.150.0.0/16/24+10.151.0.0/16/24",
            "red=10.150.0.0/16/24+fd00:150::/48/64+fd00:151::/48/64",
            "red=10.150.0.0/16/24+",
            "red=10.150.0.0/16/24+layer2:fd00:150::/64",
            "red=vrf:fd00:150::/48/64",
            "red=vrf:10.150.0.0/16/24+fd00:150::/48/64",
            "red",
            "red=10.150.0.0",
            "red=layer2:10.150.0.0",
            "red=vrf:layer2:10.150.0.0/16",
            "red=vrf:10.150.0.0",
            "red=geneve:10.150.0.0",
            "red=geneve:vrf:10.150.0.0/16/24",
            "Red=10.0.0.0/16/24",
            "red=x/16/24",
        ] {
            assert!(bad.parse::<UserNetwork>().is_err(), "{bad}");
        }
    }
}
