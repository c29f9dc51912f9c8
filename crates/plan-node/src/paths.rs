//! Which ways to other nodes pods' packets take, and how large these packets are.
//! In: a snapshot, all Nodes. Out: a [`Path`] for each address of another node that packets of pods are sent to.
//! Invariant: a way that no pod's packet takes is none, and neither is one to a node that is not Ready.
//! Not here: sending (`host::echo`), whether such packets pass ([`visit`]), when it is tried ([`prober`]).

pub mod prober;
pub mod report;
pub mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::address::Family;
use model::names::{NetworkName, NodeName};
use model::network::{Topology, Transport};
use model::node::Node;

use crate::claims::MTU;
use crate::snapshot::{NetworkView, Snapshot};

/// Where a way leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    /// The other node.
    pub node: NodeName,
    /// Its address.
    pub to: IpAddr,
}

/// What a network sends on a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// MTU of its pods, bytes.
    pub mtu: u32,
    /// What its overlay adds to each packet, bytes; 0 without one.
    pub overhead: u32,
}

impl Load {
    /// The largest IP packet on the way, bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.mtu.saturating_add(self.overhead)
    }
}

/// What networks send on a way. Most ways have all networks of the node: they share it.
pub type Loads = Arc<BTreeMap<NetworkName, Load>>;

/// A way from this node to an address of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// This node's address on it.
    pub source: IpAddr,
    /// What networks send on it; never empty.
    pub loads: Loads,
    /// What both ends' own links carry, bytes, as far as it is known. Between pods more may pass, which no end can try: packets of
    /// pods do not go through the bridge's own device.
    pub ends: u32,
}

impl Path {
    /// The largest IP packet that any network sends on it and both ends can, bytes.
    #[must_use]
    pub fn size(&self) -> u32 {
        let most = self.loads.values().map(Load::size).max();
        most.unwrap_or(0).min(self.ends)
    }
}

/// Ways to other nodes.
pub type Paths = BTreeMap<PathKey, Path>;

/// Bytes that an overlay whose tunnels are of this family adds to a packet: Ethernet 14, IP 20 or 40, UDP 8, Geneve 8 (RFC
/// 8926) and OVN's option 8.
#[must_use]
pub fn overhead(tunnels: Family) -> u32 {
    match tunnels {
        Family::V4 => 58,
        Family::V6 => 78,
    }
}

/// The ways to these nodes.
#[must_use]
pub fn plan<'a>(snapshot: &Snapshot, nodes: impl IntoIterator<Item = &'a Node>) -> Paths {
    let mut paths = Paths::new();
    let mut known: BTreeSet<Loads> = BTreeSet::new();
    let own = &snapshot.machine.name;
    let others = nodes.into_iter().filter(|node| node.name != *own);
    // Of one that is down nothing can be said, and that it is down others say.
    for node in others.filter(|node| node.ready != Some(false)) {
        let mut to_node: BTreeMap<IpAddr, (IpAddr, BTreeMap<NetworkName, Load>)> = BTreeMap::new();
        for (name, view) in snapshot.here() {
            for (source, to, overhead) in ways(snapshot, &view, node) {
                let (_, loads) = to_node.entry(to).or_insert((source, BTreeMap::new()));
                let mtu = view.share.mtu;
                loads.insert(name.clone(), Load { mtu, overhead });
            }
        }
        for (to, (source, loads)) in to_node {
            let loads = known.get(&loads).cloned().unwrap_or_else(|| {
                let loads = Arc::new(loads);
                known.insert(Arc::clone(&loads));
                loads
            });
            let ends = ends(snapshot, source, node);
            let node = node.name.clone();
            let path = Path {
                source,
                loads,
                ends,
            };
            paths.insert(PathKey { node, to }, path);
        }
    }
    paths
}

/// The ways that a network's packets take to a node: from, to, and what is added to each packet, bytes.
fn ways(snapshot: &Snapshot, view: &NetworkView<'_>, node: &Node) -> Vec<(IpAddr, IpAddr, u32)> {
    let network = &view.share.network;
    let subnets = node.subnets.known();
    let has_pods = network.topology == Topology::Layer2
        || subnets.is_some_and(|all| all.contains_key(&network.name));
    if !has_pods {
        return Vec::new();
    }
    let ways: Vec<(IpAddr, IpAddr, u32)> = match network.transport {
        Transport::NoOverlay(_) => {
            // A network that is routed in a VRF of its own alone takes that VRF's links, which are none of the node's addresses.
            let in_main = network.name.is_default() || network.advertised.default_vrf;
            let families = network.families().into_iter().filter(|_| in_main);
            let way = |family| {
                Some((
                    view.node.gateway.address(family)?,
                    next_hop(node, family)?,
                    0,
                ))
            };
            families.filter_map(way).collect()
        }
        Transport::Geneve => {
            let remote = view.node.remotes.get(&node.name);
            let ends = remote.into_iter().flat_map(|remote| &remote.encap_ips);
            let way = |to: &IpAddr| {
                let family = Family::of(*to);
                let mut own = snapshot.machine.encap_ips.iter();
                let source = own.find(|ip| Family::of(**ip) == family)?;
                Some((*source, *to, overhead(family)))
            };
            ends.filter_map(way).collect()
        }
    };
    let is_elsewhere = |(source, to, _): &(IpAddr, IpAddr, u32)| source != to;
    ways.into_iter().filter(is_elsewhere).collect()
}

/// The least of what the link with this address carries and what the other node says of its own, bytes.
fn ends(snapshot: &Snapshot, source: IpAddr, node: &Node) -> u32 {
    let mut links = snapshot.machine.links.iter().flatten();
    let own = links.find(|link| link.addresses.iter().any(|address| address.ip == source));
    let mtus = [own.map(|link| link.mtu), node.host_mtu.known().copied()];
    let believed = mtus.into_iter().flatten().filter(|mtu| MTU.contains(mtu));
    believed.min().unwrap_or(*MTU.end())
}

/// The address of a family that routes to a node's pods have as their next hop: that of its BGP sessions.
fn next_hop(node: &Node, family: Family) -> Option<IpAddr> {
    let primary = node.primary.known().into_iter().flatten().map(|a| a.ip);
    let mut all = node.internal_ips.iter().copied().chain(primary);
    all.find(|ip| Family::of(*ip) == family)
}
