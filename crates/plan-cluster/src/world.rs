//! The snapshot that every plan of the cluster is made from.
//! In: decoded objects, and for those that could not be decoded their problems. Out: a value to plan from.
//! Invariant: what could not be read is here as such, never as absent.
//! Not here: how it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::frr::{FrrConfiguration, Remains};
use model::intent::RouteAdvertisements;
use model::node::{Fact, HOSTNAME_LABEL, Node};
use model::user_network::{Attachment, ClusterUserDefinedNetwork, EgressIp, Namespace, Reach};
use model::{Asn, Network, NetworkName, NodeName, ObjectKey, Prefix, Problem};

use crate::ranges::Ranges;
use crate::unsupported::Feature;
use model::prefixes::PrefixMap;

/// Who peers with whom in the managed fabric. Source: `[bgp-managed] topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricTopology {
    /// Every node with every other.
    FullMesh,
    /// Every node with the route reflectors.
    RouteReflector,
    /// The first in a small cluster, the second in a large one.
    Auto(AutoSizes),
}

/// Where `topology = auto` changes. Source: `[bgp-managed] auto-reflectors-above, auto-full-mesh-below`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoSizes {
    /// The largest mesh.
    pub reflectors_above: usize,
    /// Reflectors are given up below this many nodes. Not above the largest mesh, usually well below it, so that a few nodes
    /// that come and go do not change the topology each time.
    pub full_mesh_below: usize,
}

/// The managed fabric's settings. Source: `[bgp-managed]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricSettings {
    /// `as-number`.
    pub asn: Asn,
    /// `frr-namespace`.
    pub namespace: String,
    /// `topology`.
    pub topology: FabricTopology,
    /// `profile = resilient`: timers of 9, 3 and 2 seconds, BFD and graceful restart; otherwise bare sessions.
    pub resilient: bool,
    /// `password-secret`, in the same namespace.
    pub password_secret: Option<String>,
}

/// What nodes report of the fabric: what may be taken away because something else stands. Nothing known is nothing reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Nodes whose FRR reflects, and which every other member has an established session with.
    pub reflecting: BTreeSet<NodeName>,
    /// Every two members have an established session.
    pub meshed: bool,
}

/// What is switched on. Source: `[ovnkubernetesfeature]`, `[gateway] mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `enable-route-advertisements`.
    pub route_advertisements: bool,
    /// `enable-egress-ip`.
    pub egress_ip: bool,
    /// Gateway mode shared, not local.
    pub shared_gateway: bool,
    /// `advertised-udn-isolation-mode = loose`.
    pub loose_isolation: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            route_advertisements: true,
            egress_ip: true,
            shared_gateway: true,
            loose_isolation: false,
        }
    }
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
    pub frr: BTreeMap<ObjectKey, Result<Arc<FrrConfiguration>, Vec<Problem>>>,
    /// What can still be read of FRRConfigurations that could not be decoded; one that is absent here may be anybody's and
    /// counts as selecting every node.
    pub unreadable: BTreeMap<ObjectKey, Remains>,
    /// The networks by name, as they are declared; the default one by the settings. The host lengths in force are [`Ranges`]'.
    pub networks: BTreeMap<NetworkName, Network>,
    /// ClusterUserDefinedNetworks by name, those that cannot be read too.
    pub cudns: BTreeMap<String, ClusterUserDefinedNetwork>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Namespace>,
    /// NetworkAttachmentDefinitions, whoever made them.
    pub attachments: BTreeMap<ObjectKey, Attachment>,
    /// Ids that networks had a moment ago, by the uid of their ClusterUserDefinedNetworks: whatever somebody writes into their
    /// objects. Empty after a start.
    pub known_ids: BTreeMap<String, u16>,
    /// EgressIPs by name.
    pub egress_ips: BTreeMap<String, EgressIp>,
    /// The API server's status where it does not list EgressIPs and never has: which there are is not known.
    pub egress_ips_refused: Option<u16>,
    /// Objects of features that work by the overlay, and what each is about; EgressIPs are in `egress_ips`.
    pub features_used: BTreeMap<(Feature, ObjectKey), Reach>,
    /// Ranges that no network of users may overlap, each with what it is: join, masquerade and service subnets.
    pub reserved: Vec<(String, Prefix)>,
    /// What is switched on.
    pub features: Features,
    /// The managed fabric, where a network is routed by it.
    pub fabric: Option<FabricSettings>,
    /// What is known of the fabric's sessions and of what reflectors have loaded.
    pub evidence: Evidence,
    /// Namespace that frr-k8s or frr-agent reads.
    pub frr_namespace: String,
    /// Beside OVN-Kubernetes: pods of a network without overlay are announced by the nodes that say they take packets for them from
    /// the physical network. Source: `[ovn] topology = adopt`, annotation `noverlay.io/underlay-ready`.
    pub beside: bool,
}

impl World {
    /// The default network, where it is declared.
    #[must_use]
    pub fn default_network(&self) -> Option<&Network> {
        self.networks.get(&NetworkName::default_network())
    }

    /// Beside OVN-Kubernetes: networks that some node takes packets for from the physical network; what a node that is known not to be
    /// ready says counts for nothing, it sends nothing.
    #[must_use]
    pub fn led(&self) -> BTreeSet<&NetworkName> {
        let nodes = self.nodes.values().filter(|_| self.beside);
        let live = nodes.filter(|node| node.ready != Some(false));
        live.flat_map(|node| node.underlay_ready.keys()).collect()
    }

    /// Names of the RouteAdvertisements that select the default network, accepted or not.
    #[must_use]
    pub fn covering_default_network(&self) -> Vec<String> {
        let covers = RouteAdvertisements::covers_default_network;
        let covering = self
            .ras
            .iter()
            .filter(|(_, ra)| ra.as_ref().is_ok_and(covers));
        covering.map(|(name, _)| name.clone()).collect()
    }

    /// The node's pod subnets of a network; `None` where they are absent or malformed.
    #[must_use]
    pub fn subnets<'a>(&self, node: &'a Node, network: &NetworkName) -> Option<&'a [Prefix]> {
        let list = node.subnets.known()?.get(network)?;
        (!list.is_empty()).then_some(list.as_slice())
    }

    /// Nodes by age: the smaller node id, then the name.
    fn by_age(&self) -> Vec<&Node> {
        let mut nodes: Vec<&Node> = self.nodes.values().collect();
        nodes.sort_by_key(|n| (n.node_id.known().copied().unwrap_or(u32::MAX), &n.name));
        nodes
    }

    /// Nodes that cannot take part in anything, with the reason: no usable InternalIP, an address or a hostname label that an
    /// elder node has too, a malformed annotation.
    #[must_use]
    pub fn unfit_nodes(&self) -> BTreeMap<NodeName, String> {
        self.unfit(&Ranges::all(self))
    }

    fn unfit(&self, ranges: &BTreeMap<&NetworkName, Ranges>) -> BTreeMap<NodeName, String> {
        self.unfit_beside(&self.misplaced(ranges))
    }

    /// The same by what is misplaced in each network.
    fn unfit_beside(&self, misplaced: &Misplaced) -> BTreeMap<NodeName, String> {
        let mut out = BTreeMap::new();
        let mut seen = Seen::default();
        // A label that is a node's own name is that node's, however old others are.
        for node in self.nodes.values() {
            if node.hostname_label() == Some(node.name.as_str()) {
                seen.hostnames.insert(node.name.as_str(), &node.name);
            }
        }
        let nowhere = self.nowhere(misplaced);
        for node in self.by_age() {
            if let Some(reason) = unfit(node, &seen) {
                out.insert(node.name.clone(), reason);
                continue;
            }
            // Whoever takes part in nothing keeps its address and its label from nobody.
            if nowhere.contains(&node.name) {
                continue;
            }
            seen.addresses
                .extend(node.internal_ips.iter().map(|ip| (*ip, &node.name)));
            if let Some(hostname) = node.hostname_label() {
                seen.hostnames.insert(hostname, &node.name);
            }
        }
        out
    }

    /// For each network the nodes that cannot take part in it whatever else is true of them.
    fn misplaced(&self, ranges: &BTreeMap<&NetworkName, Ranges>) -> Misplaced {
        let nodes = self.by_age();
        let networks = self.networks.keys().map(|network| {
            let none = BTreeMap::new();
            let out = self.excluded_from((network, &nodes), ranges, none);
            (network.clone(), out)
        });
        networks.collect()
    }

    /// Nodes whose subnets are misplaced in every network that they have any of.
    fn nowhere(&self, misplaced: &Misplaced) -> BTreeSet<NodeName> {
        let is_nowhere = |node: &&Node| {
            let has = |network: &NetworkName| self.subnets(node, network).is_some();
            let mut own = misplaced.iter().filter(|(name, _)| has(name)).peekable();
            own.peek().is_some() && own.all(|(_, out)| out.contains_key(&node.name))
        };
        let nodes = self.nodes.values().filter(is_nowhere);
        nodes.map(|node| node.name.clone()).collect()
    }

    /// Nodes that cannot take part in a network, with the reason: [`World::unfit_nodes`], and those with a subnet outside of it
    /// or one that an elder node has too. What is wrong with one network of a node costs it no other.
    #[must_use]
    pub fn excluded_nodes(&self, network: &Network) -> BTreeMap<NodeName, String> {
        let ranges = Ranges::all(self);
        self.excluded_from(
            (&network.name, &self.by_age()),
            &ranges,
            self.unfit(&ranges),
        )
    }

    /// Of nodes by age.
    fn excluded_from(
        &self,
        (network, nodes): (&NetworkName, &[&Node]),
        ranges: &BTreeMap<&NetworkName, Ranges>,
        mut out: BTreeMap<NodeName, String>,
    ) -> BTreeMap<NodeName, String> {
        let Some(ranges) = ranges.get(network) else {
            return out;
        };
        let mut seen: PrefixMap<&NodeName> = PrefixMap::default();
        for node in nodes {
            let own = self.subnets(node, network).unwrap_or_default();
            if !out.contains_key(&node.name)
                && let Some(reason) = misplaced(own, ranges, &seen)
            {
                out.insert(node.name.clone(), reason);
            }
            // Its pods have their addresses all the same. What is wider than one node's share is not believed: it would
            // leave out everybody.
            let is_out = out.contains_key(&node.name);
            for subnet in own {
                if !is_out || ranges.is_within_one_share(subnet) {
                    seen.insert(*subnet, &node.name);
                }
            }
        }
        out
    }

    /// For each network the nodes that cannot take part in it.
    #[must_use]
    pub fn excluded_by_network(&self) -> BTreeMap<NetworkName, BTreeMap<NodeName, String>> {
        self.exclusions(&Ranges::all(self)).by_network
    }

    /// Who cannot take part in what, by ranges that are known.
    pub(crate) fn exclusions(&self, ranges: &BTreeMap<&NetworkName, Ranges>) -> Exclusions {
        let misplaced = self.misplaced(ranges);
        let unfit = self.unfit_beside(&misplaced);
        // Who is unfit may free a place for who is not.
        if unfit.is_empty() {
            return Exclusions {
                by_network: misplaced,
                unfit,
            };
        }
        let nodes = self.by_age();
        let of = |name: &NetworkName| {
            let excluded = self.excluded_from((name, &nodes), ranges, unfit.clone());
            (name.clone(), excluded)
        };
        Exclusions {
            by_network: self.networks.keys().map(of).collect(),
            unfit,
        }
    }
}

/// By network the nodes that cannot take part in it, each with the reason.
type Misplaced = BTreeMap<NetworkName, BTreeMap<NodeName, String>>;

/// Who cannot take part in what, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Exclusions {
    /// In anything.
    pub(crate) unfit: BTreeMap<NodeName, String>,
    /// In a network, those of `unfit` among them.
    pub(crate) by_network: BTreeMap<NetworkName, BTreeMap<NodeName, String>>,
}

fn unfit(node: &Node, seen: &Seen<'_>) -> Option<String> {
    if let Some(bad) = node.bad_addresses.first() {
        return Some(format!("InternalIP {bad:?} is not an IP address"));
    }
    if node.internal_ips.is_empty() {
        return Some("it has no InternalIP in status.addresses".to_owned());
    }
    let mut addresses = node.internal_ips.iter();
    if let Some((ip, other)) = addresses.find_map(|ip| seen.addresses.get(ip).map(|n| (ip, n))) {
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
    None
}

/// Why a node's subnets of a network are not its own to have.
fn misplaced(own: &[Prefix], ranges: &Ranges, seen: &PrefixMap<&NodeName>) -> Option<String> {
    if let Some(bad) = own.iter().find(|s| !ranges.has(s)) {
        let mut around = ranges.list.iter();
        return Some(
            match around.find(|range| range.cidr.contains(bad) || bad.contains(&range.cidr)) {
                None => format!("its subnet {bad} lies outside of the cluster subnets"),
                Some(range) => format!(
                    "its subnet {bad} is not one node's share of cluster subnet {}; allowed: a /{}",
                    range.cidr, range.host_len
                ),
            },
        );
    }
    own.iter()
        .find_map(|s| seen.overlapping(s).map(|(o, n)| (s, o, n)))
        .map(|(s, o, n)| format!("its subnet {s} overlaps {o} of node {n}"))
}

/// What elder nodes have.
#[derive(Default)]
struct Seen<'a> {
    addresses: BTreeMap<IpAddr, &'a NodeName>,
    hostnames: BTreeMap<&'a str, &'a NodeName>,
}
