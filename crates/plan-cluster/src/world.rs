//! The snapshot that every plan of the cluster is made from.
//! In: lifted objects, and for those that could not be lifted their problems. Out: a value to plan from.
//! Invariant: what could not be read is here as such, never as absent.
//! Not here: how it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::ClusterSubnet;
use model::frr::FrrConfiguration;
use model::intent::RouteAdvertisements;
use model::node::Node;
use model::selector::LabelSelector;
use model::{Asn, NetworkName, NodeName, ObjectKey, Prefix, Problem};

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
    /// RouteAdvertisements by name; an error is a sentence that names the field.
    pub ras: BTreeMap<String, Result<RouteAdvertisements, String>>,
    /// FRRConfigurations, ours and others'; problems where one could not be lifted.
    pub frr: BTreeMap<ObjectKey, Result<FrrConfiguration, Vec<Problem>>>,
    /// Whom FRRConfigurations that could not be lifted select; one that is absent here counts as selecting every node.
    pub selectors: BTreeMap<ObjectKey, LabelSelector>,
    /// `[default] cluster-subnets`.
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

    /// Nodes that cannot take part, with the reason: no usable InternalIP, an address that an elder node has too,
    /// a malformed annotation. Elder is the smaller node id, then the name.
    #[must_use]
    pub fn excluded_nodes(&self) -> BTreeMap<NodeName, String> {
        let mut out = BTreeMap::new();
        let mut holders: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
        let mut subnets: BTreeMap<Prefix, &NodeName> = BTreeMap::new();
        let mut nodes: Vec<&Node> = self.nodes.values().collect();
        nodes.sort_by_key(|n| (n.node_id.known().copied().unwrap_or(u32::MAX), &n.name));
        for node in nodes {
            if let Some(reason) = self.unfit(node, &holders, &subnets) {
                out.insert(node.name.clone(), reason);
                continue;
            }
            holders.extend(node.internal_ips.iter().map(|ip| (*ip, &node.name)));
            subnets.extend(
                self.default_subnets(node)
                    .into_iter()
                    .flatten()
                    .map(|s| (s, &node.name)),
            );
        }
        out
    }

    fn unfit(
        &self,
        node: &Node,
        holders: &BTreeMap<IpAddr, &NodeName>,
        subnets: &BTreeMap<Prefix, &NodeName>,
    ) -> Option<String> {
        use model::node::Fact;
        if let Some(bad) = node.bad_addresses.first() {
            return Some(format!("InternalIP {bad:?} is not an IP address"));
        }
        if node.internal_ips.is_empty() {
            return Some("it has no InternalIP in status.addresses".to_owned());
        }
        if let Some((ip, other)) = node
            .internal_ips
            .iter()
            .find_map(|ip| holders.get(ip).map(|n| (ip, n)))
        {
            return Some(format!("its InternalIP {ip} is also node {other}'s"));
        }
        if let Fact::Malformed(why) = &node.subnets {
            return Some(why.clone());
        }
        if let Fact::Malformed(why) = &node.node_id {
            return Some(why.clone());
        }
        let own = self.default_subnets(node).unwrap_or_default();
        if let Some(outside) = own.iter().find(|s| !self.in_cluster(s)) {
            return Some(format!(
                "its subnet {outside} lies outside of the cluster subnets"
            ));
        }
        own.iter()
            .find_map(|s| {
                subnets
                    .iter()
                    .find(|(o, _)| o.overlaps(s))
                    .map(|(o, n)| (s, o, n))
            })
            .map(|(s, o, n)| format!("its subnet {s} overlaps {o} of node {n}"))
    }

    fn in_cluster(&self, subnet: &Prefix) -> bool {
        self.cluster_subnets
            .iter()
            .any(|c| c.cidr.contains(subnet) && c.host_len == subnet.bits())
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
