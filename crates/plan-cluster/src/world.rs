//! The snapshot that every plan of the cluster is made from.
//! In: decoded objects, and for those that could not be decoded their problems. Out: a value to plan from.
//! Invariant: what could not be read is here as such, never as absent.
//! Not here: how it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::ClusterSubnet;
use model::frr::{FrrConfiguration, Remains};
use model::intent::RouteAdvertisements;
use model::node::{Fact, HOSTNAME_LABEL, Node};
use model::{Asn, NetworkName, NodeName, ObjectKey, Prefix, Problem};

use crate::prefixes::PrefixMap;
use crate::ranges::Ranges;

/// The managed fabric's settings. Source: `[bgp-managed]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricSettings {
    /// `as-number`.
    pub asn: Asn,
    /// `frr-namespace`.
    pub namespace: String,
    /// `profile = resilient`: timers of 9, 3 and 2 seconds, BFD and graceful restart; otherwise bare sessions.
    pub resilient: bool,
}

/// Everything a plan may look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, Node>,
    /// `metadata.resourceVersion` of the nodes, as they are in `nodes`: what is planned for a node holds for this version.
    pub node_versions: BTreeMap<NodeName, String>,
    /// RouteAdvertisements by name; an error is a sentence that names the field.
    pub ras: BTreeMap<String, Result<RouteAdvertisements, String>>,
    /// FRRConfigurations, ours and others'; problems where one could not be decoded.
    pub frr: BTreeMap<ObjectKey, Result<FrrConfiguration, Vec<Problem>>>,
    /// What can still be read of FRRConfigurations that could not be decoded; one that is absent here may be anybody's and
    /// counts as selecting every node.
    pub unreadable: BTreeMap<ObjectKey, Remains>,
    /// `[default] cluster-subnets` as the file has them; the host lengths in force are [`Ranges`]'.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// `[gateway]` join subnets: node ids must fit into them.
    pub join_subnets: Vec<Prefix>,
    /// The default network is no-overlay.
    pub no_overlay: bool,
    /// The managed fabric, where the default network is routed by it.
    pub fabric: Option<FabricSettings>,
    /// Namespace that frr-k8s or frr-agent reads.
    pub frr_namespace: String,
}

impl World {
    /// The node's pod subnets of the default network; `None` where they are absent or malformed.
    #[must_use]
    pub fn default_subnets(&self, node: &Node) -> Option<Vec<Prefix>> {
        let list = node.subnets.known()?.get(&NetworkName::default_network())?;
        (!list.is_empty()).then(|| list.clone())
    }

    /// Nodes that cannot take part, with the reason: no usable InternalIP, an address, a subnet or a hostname label that an
    /// elder node has too, a malformed annotation. Elder is the smaller node id, then the name.
    #[must_use]
    pub fn excluded_nodes(&self) -> BTreeMap<NodeName, String> {
        let ranges = Ranges::of(self);
        let mut out = BTreeMap::new();
        let mut seen = Seen::default();
        // A label that is a node's own name is that node's, however old others are.
        for node in self.nodes.values() {
            if node.hostname_label() == Some(node.name.as_str()) {
                seen.hostnames.insert(node.name.as_str(), &node.name);
            }
        }
        let mut nodes: Vec<&Node> = self.nodes.values().collect();
        nodes.sort_by_key(|n| (n.node_id.known().copied().unwrap_or(u32::MAX), &n.name));
        for node in nodes {
            if let Some(reason) = self.unfit(node, &ranges, &seen) {
                out.insert(node.name.clone(), reason);
                // Its pods have their addresses all the same. What is wider than one node's share is not believed: it would
                // leave out everybody.
                for subnet in self.default_subnets(node).unwrap_or_default() {
                    if ranges.is_within_one_share(&subnet) {
                        seen.subnets.insert(subnet, &node.name);
                    }
                }
                continue;
            }
            seen.addresses
                .extend(node.internal_ips.iter().map(|ip| (*ip, &node.name)));
            if let Some(hostname) = node.hostname_label() {
                seen.hostnames.insert(hostname, &node.name);
            }
            for subnet in self.default_subnets(node).unwrap_or_default() {
                seen.subnets.insert(subnet, &node.name);
            }
        }
        out
    }

    fn unfit(&self, node: &Node, ranges: &Ranges, seen: &Seen<'_>) -> Option<String> {
        if let Some(bad) = node.bad_addresses.first() {
            return Some(format!("InternalIP {bad:?} is not an IP address"));
        }
        if node.internal_ips.is_empty() {
            return Some("it has no InternalIP in status.addresses".to_owned());
        }
        let mut addresses = node.internal_ips.iter();
        if let Some((ip, other)) = addresses.find_map(|ip| seen.addresses.get(ip).map(|n| (ip, n)))
        {
            return Some(format!("its InternalIP {ip} is also node {other}'s"));
        }
        let Some(hostname) = node.hostname_label() else {
            return Some(format!(
                "it has no label {HOSTNAME_LABEL}, by which its FRRConfiguration would select it"
            ));
        };
        if let Some(other) = seen.hostnames.get(hostname).filter(|n| **n != &node.name) {
            return Some(format!(
                "its label {HOSTNAME_LABEL} = {hostname:?} is also node {other}'s, so that it loads what is meant for that one"
            ));
        }
        if let Fact::Malformed(why) = &node.subnets {
            return Some(why.clone());
        }
        if let Fact::Malformed(why) = &node.node_id {
            return Some(why.clone());
        }
        let own = self.default_subnets(node).unwrap_or_default();
        if let Some(outside) = own.iter().find(|s| !ranges.has(s)) {
            return Some(format!(
                "its subnet {outside} lies outside of the cluster subnets"
            ));
        }
        own.iter()
            .find_map(|s| seen.subnets.overlapping(s).map(|(o, n)| (s, o, n)))
            .map(|(s, o, n)| format!("its subnet {s} overlaps {o} of node {n}"))
    }

    /// Names of nodes that are fit to take part.
    #[must_use]
    pub fn fit_nodes(&self) -> BTreeSet<NodeName> {
        let excluded = self.excluded_nodes();
        self.nodes
            .keys()
            .filter(|n| !excluded.contains_key(*n))
            .cloned()
            .collect()
    }
}

/// What elder nodes have.
#[derive(Default)]
struct Seen<'a> {
    addresses: BTreeMap<IpAddr, &'a NodeName>,
    hostnames: BTreeMap<&'a str, &'a NodeName>,
    subnets: PrefixMap<&'a NodeName>,
}
