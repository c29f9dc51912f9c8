//! A Node object as the planners see it.
//! In: a Node decoded by `api`. Out: facts, each with the problem that stands in its place where it cannot be read.
//! Invariant: what is absent and what is malformed are distinguished.
//! Not here: what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::address::{InterfaceAddr, Prefix};
use crate::names::{NetworkName, NodeName};
use crate::selector::Labels;

/// Names of node annotations (OVN-Kubernetes' own, and ours).
pub mod annotation {
    /// Decimal id, one of [`super::NODE_IDS`]; written by the cluster-manager.
    pub const NODE_ID: &str = "k8s.ovn.org/node-id";
    /// JSON map of network to list of CIDR; written by the cluster-manager.
    pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
    /// JSON of the primary addresses by family; written by the node-agent.
    pub const PRIMARY_IFADDR: &str = "k8s.ovn.org/node-primary-ifaddr";
    /// Sorted JSON list of the host's addresses; written by the node-agent.
    pub const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
    /// JSON of the gateway; written by the node-agent.
    pub const L3_GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";
    /// The chassis' system-id; written by the node-agent.
    pub const CHASSIS_ID: &str = "k8s.ovn.org/node-chassis-id";
    /// Sorted JSON list of the addresses that tunnels to the node end at; written by the node-agent.
    pub const ENCAP_IPS: &str = "k8s.ovn.org/node-encap-ips";
    /// Smallest MTU of the node's uplink, bytes; written by the node-agent.
    pub const HOST_MTU: &str = "noverlay.io/host-mtu";
    /// JSON such as `{"boot":"3f2c…","networks":{"default":["10.128.1.0/24"]}}`: the networks beside OVN-Kubernetes whose pods' packets
    /// the node takes from the physical network, its subnets of each, and the boot of the host that this was said in; written by the
    /// node-agent.
    pub const UNDERLAY_READY: &str = "noverlay.io/underlay-ready";
    /// Any text; written by the admin before maintenance. A Node that has it and is cordoned has its pods' packets beside
    /// OVN-Kubernetes taken back to the tunnels.
    pub const DRAIN: &str = "noverlay.io/drain";
    /// `allow`: a network that OVN-Kubernetes routed itself on the node and does not any more may be led past the tunnels again;
    /// written by the admin.
    pub const TAKEOVER: &str = "noverlay.io/takeover";
    /// Any text; written by the admin. A new one lets withdrawals pass that the node-agent holds.
    pub const RELEASE_WITHDRAWALS: &str = "noverlay.io/release-withdrawals";
}

/// A value read from an annotation: absent, right, or malformed with a sentence that says how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// The annotation is not there (yet).
    Absent,
    /// It reads well.
    Known(T),
    /// It does not: what it says and what is allowed.
    Malformed(String),
}

impl<T> Fact<T> {
    /// The value where it is known.
    #[must_use]
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Malformed(_) => None,
        }
    }
}

/// Ids that a node can have: 1 is the cluster router's in join subnets, and an id is the key of the node's port on a transit
/// switch. Source: OVN_Southbound `Port_Binding.tunnel_key`.
pub const NODE_IDS: RangeInclusive<u32> = 2..=32_767;

/// The label by which an FRRConfiguration selects one node; the kubelet sets it.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The label that tells failure domains apart; a cloud's node controller sets it.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What can still be read in annotations that are malformed: it may be in use, and so is nobody else's to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Addresses and prefixes of `k8s.ovn.org/node-subnets`, with the length they are written with (none: one address).
    pub subnets: Vec<InterfaceAddr>,
    /// Numbers of `k8s.ovn.org/node-id`.
    pub ids: Vec<u32>,
}

/// A node's subnets of each network. One map however many hold it: a node of fifty networks has fifty entries, and a cluster a
/// thousand nodes. Source: `k8s.ovn.org/node-subnets`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSubnets(Arc<BTreeMap<NetworkName, Vec<Prefix>>>);

impl std::ops::Deref for NodeSubnets {
    type Target = BTreeMap<NetworkName, Vec<Prefix>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A map that others hold is copied first: what they hold stays.
impl std::ops::DerefMut for NodeSubnets {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl NodeSubnets {
    /// Whether a subnet is among those of a network.
    #[must_use]
    pub fn has(&self, network: &NetworkName, subnet: &Prefix) -> bool {
        self.get(network).is_some_and(|all| all.contains(subnet))
    }
}

impl<Map: Into<BTreeMap<NetworkName, Vec<Prefix>>>> From<Map> for NodeSubnets {
    fn from(map: Map) -> Self {
        Self(Arc::new(map.into()))
    }
}

impl FromIterator<(NetworkName, Vec<Prefix>)> for NodeSubnets {
    fn from_iter<I: IntoIterator<Item = (NetworkName, Vec<Prefix>)>>(all: I) -> Self {
        Self(Arc::new(all.into_iter().collect()))
    }
}

impl<'a> IntoIterator for &'a NodeSubnets {
    type Item = (&'a NetworkName, &'a Vec<Prefix>);
    type IntoIter = std::collections::btree_map::Iter<'a, NetworkName, Vec<Prefix>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Addresses of type InternalIP, in order; those that are no addresses are in `bad_addresses`.
    pub internal_ips: Vec<IpAddr>,
    /// InternalIP entries that cannot be read.
    pub bad_addresses: Vec<String>,
    /// `k8s.ovn.org/node-id`.
    pub node_id: Fact<u32>,
    /// `k8s.ovn.org/node-subnets`.
    pub subnets: Fact<NodeSubnets>,
    /// `k8s.ovn.org/node-primary-ifaddr`.
    pub primary: Fact<Vec<InterfaceAddr>>,
    /// `k8s.ovn.org/host-cidrs`.
    pub host_cidrs: Fact<Vec<InterfaceAddr>>,
    /// `k8s.ovn.org/node-chassis-id`: what the node is called in every Southbound DB.
    pub chassis: Fact<String>,
    /// `k8s.ovn.org/node-encap-ips`.
    pub encap_ips: Fact<Vec<IpAddr>>,
    /// `noverlay.io/host-mtu`, bytes.
    pub host_mtu: Fact<u32>,
    /// `noverlay.io/underlay-ready`: networks, and the node's subnets of each, whose pods' packets the node takes from the physical
    /// network, said in the boot that the kubelet reports; of another boot, and malformed, none.
    pub underlay_ready: NodeSubnets,
    /// What malformed annotations still tell.
    pub salvaged: Salvaged,
    /// Condition `Ready`: True or not (the node controller makes it Unknown when the node's Lease is no longer renewed);
    /// `None` where nobody has said anything yet.
    pub ready: Option<bool>,
    /// `spec.unschedulable`: cordoned, as a drain begins.
    pub cordoned: bool,
    /// Annotation `noverlay.io/drain` is there.
    pub drain: bool,
    /// Annotation `noverlay.io/takeover` is `allow`.
    pub takeover: bool,
}

impl Node {
    /// Value of label `kubernetes.io/hostname`, or the name where it is missing.
    #[must_use]
    pub fn hostname(&self) -> &str {
        self.hostname_label().unwrap_or(self.name.as_str())
    }

    /// Value of label `kubernetes.io/hostname`: what selects the node.
    #[must_use]
    pub fn hostname_label(&self) -> Option<&str> {
        self.labels.get(HOSTNAME_LABEL).map(String::as_str)
    }

    /// Whether it is a node of IPv6 alone, by its InternalIPs and what it was known by before it lost them. Addresses that the host
    /// has beside them do not count: those of a container bridge are the same on all nodes.
    #[must_use]
    pub fn is_ipv6_only(&self) -> bool {
        let primary = self.primary.known().into_iter().flatten().map(|a| a.ip);
        let mut known = self.internal_ips.iter().copied().chain(primary).peekable();
        known.peek().is_some() && known.all(|ip| ip.is_ipv6())
    }

    /// Every address that counts as the node itself: InternalIPs, primary addresses and host addresses.
    #[must_use]
    pub fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let mut out: BTreeSet<IpAddr> = self.internal_ips.iter().copied().collect();
        for fact in [&self.primary, &self.host_cidrs] {
            out.extend(fact.known().into_iter().flatten().map(|a| a.ip));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_of_ipv6_alone_by_what_it_is_and_was_reached_at_and_not_by_what_its_host_has_beside()
     {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = |text: &str| vec![text.parse::<InterfaceAddr>().unwrap()];
        let node = |internal: &[&str], primary: &str| Node {
            name: NodeName::from("n1"),
            labels: Labels::new(),
            internal_ips: internal.iter().map(|text| ip(text)).collect(),
            bad_addresses: Vec::new(),
            node_id: Fact::Absent,
            subnets: Fact::Absent,
            primary: match primary {
                "" => Fact::Absent,
                text => Fact::Known(interface(text)),
            },
            host_cidrs: Fact::Known(interface("10.88.0.1/16")),
            chassis: Fact::Absent,
            encap_ips: Fact::Absent,
            host_mtu: Fact::Absent,
            underlay_ready: NodeSubnets::default(),
            salvaged: Salvaged::default(),
            ready: None,
            cordoned: false,
            drain: false,
            takeover: false,
        };
        for (internal, primary, wanted) in [
            (&["fd00::1"][..], "", true),
            (&["fd00::1"][..], "fd00::1/64", true),
            (&[][..], "fd00::1/64", true),
            (&["fd00::1", "10.0.0.1"][..], "", false),
            (&["fd00::1"][..], "10.0.0.1/24", false),
            // Nothing is known.
            (&[][..], "", false),
        ] {
            let seen = node(internal, primary).is_ipv6_only();
            assert_eq!(seen, wanted, "{internal:?} {primary}");
        }
    }
}
