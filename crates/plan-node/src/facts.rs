//! What is known of the node, from whichever source, and the snapshot made of it.
//! In: facts as they were last read. Out: a [`Snapshot`]. Invariant: what was known whole once of this node stays, whatever is
//! lost later: a source that cannot be read, an own annotation that is malformed, a bridge that is gone change nothing but `stale`.
//! Not here: reading (the node-agent's sources), plans.

mod node_addresses;
mod not_yet;
mod remotes;
mod services;
mod share;
mod undeclared;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::address::{Family, InterfaceAddr, Prefix};
use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::LinkFact;
use model::names::{NetworkName, NodeName, is_management_device};
use model::network::{Network, Topology, Transport};
use model::node::{Fact, NODE_IDS, Node, NodeSubnets};
use model::ovs::BridgeFact;
use model::problem::Problem;

use crate::claims::{self, Claims};
use crate::mtu::HostMtus;
use crate::snapshot::{
    GatewayView, Machine, NetworkShare, NodeView, RemoteNode, Share, Snapshot, Standing,
};

use node_addresses::{annotated, network_of, pods_addresses};

pub use node_addresses::{HOSTS_WITHIN, POD_ADDRESS};
pub use not_yet::NotYet;
pub use remotes::NOT_ITS_OWN;
pub use share::SUBNET_TAKEN;
pub use undeclared::Undeclared;

/// What the configuration says of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The node.
    pub node: NodeName,
    /// Source: `[gateway] interface`.
    pub bridge: String,
    /// Source: `[gateway] next-hop`.
    pub next_hops: Vec<IpAddr>,
    /// Source: `[gateway] mode`.
    pub mode: GatewayMode,
    /// First and last port. Source: `[gateway] ephemeral-port-range`.
    pub ephemeral_port_range: (u16, u16),
    /// Source: `[gateway] bgp-default`.
    pub bgp_default: BgpDefault,
    /// Source: `[gateway] v4-masquerade-subnet`, `v6-masquerade-subnet`.
    pub masquerade_subnets: Vec<Prefix>,
    /// Source: `[ovnkubernetesfeature] advertised-udn-isolation-mode`.
    pub strict_isolation: bool,
    /// Source: `[kubernetes] service-cidrs`.
    pub service_cidrs: Vec<Prefix>,
    /// Source: `[clustermanager] v4-transit-subnet`, `v6-transit-subnet`.
    pub transit_subnets: Vec<Prefix>,
    /// OVN-Kubernetes builds the networks. Source: `[ovn] topology = adopt`.
    pub beside: bool,
}

/// Addresses of Services by `namespace/name`.
pub type ServiceAddresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// What was last read of each source; what could not be read is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The networks that are declared.
    pub networks: Vec<Network>,
    /// What is not known of others.
    pub undeclared: Undeclared,
    /// All Nodes; `None` until they have been listed.
    pub nodes: Option<Vec<Arc<Node>>>,
    /// Addresses of the API server; `None` until they have been listed. Source: EndpointSlices of Service `default/kubernetes`.
    pub api_servers: Option<BTreeSet<IpAddr>>,
    /// Addresses of the Services that networks of users may use; `None` until they have been listed, or cannot be.
    pub services: Option<ServiceAddresses>,
    /// Annotation `noverlay.io/release-withdrawals` of the own Node.
    pub release: Option<String>,
    /// The kernel's links, or why they could not be read.
    pub links: Result<Vec<LinkFact>, String>,
    /// `external_ids:system-id` of the conf database.
    pub chassis: Option<String>,
    /// `external_ids:ovn-bridge-mappings` of the conf database, by bridge.
    pub physical_networks: BTreeMap<String, String>,
    /// Where tunnels of overlays end on this node, or what ovn-controller lacks for them; `None` while the conf database cannot
    /// be read.
    pub encap_ips: Option<Result<BTreeSet<IpAddr>, String>>,
    /// The external bridge's ports.
    pub ports: Option<BridgeFact>,
    /// Whether the Northbound schema has `NAT.match`; `None` while there is none.
    pub nat_has_match: Option<bool>,
    /// VRF devices that the kernel refused to make, and why.
    pub refused_vrfs: BTreeMap<String, String>,
    /// Management ports by their names, and whose they are; `None` while the conf database cannot be read.
    pub management_ports: Option<BTreeMap<String, NetworkName>>,
    /// The networks that rows of OVN_Northbound stand for; `None` while that cannot be read.
    pub row_owners: Option<BTreeSet<NetworkName>>,
}

/// What was known of the node before; one for the life of a process.
#[derive(Debug)]
pub struct Memory {
    config: NodeConfig,
    nodes: Option<Vec<Arc<Node>>>,
    /// What each Node's annotation `k8s.ovn.org/node-subnets` said when it could last be read.
    readable: BTreeMap<NodeName, NodeSubnets>,
    /// Other Nodes whose annotation cannot be read.
    unreadable: Vec<Problem>,
    /// The own Node, as it last was.
    own: Option<Arc<Node>>,
    api_servers: Option<BTreeSet<IpAddr>>,
    services: Option<ServiceAddresses>,
    release: Option<String>,
    id: Option<u32>,
    links: Option<Vec<LinkFact>>,
    host_cidrs: Option<Vec<InterfaceAddr>>,
    gateway: Option<GatewayView>,
    encap_ips: Option<Result<BTreeSet<IpAddr>, String>>,
    /// The other nodes as tunnels lead to them.
    remotes: BTreeMap<NodeName, RemoteNode>,
    /// What they say of themselves and is not believed.
    refused: Vec<Problem>,
    /// Subnets of other nodes in a network that packets are not sent to.
    doubted: BTreeMap<NetworkName, Vec<Problem>>,
    ports: Option<BridgeFact>,
    nat_has_match: bool,
    refused_vrfs: BTreeMap<String, String>,
    management_ports: Option<BTreeMap<String, NetworkName>>,
    row_owners: Option<BTreeSet<NetworkName>>,
    mtus: HostMtus,
    subnets: BTreeMap<NetworkName, Vec<Prefix>>,
    /// Of each network the last share that could be built on.
    shares: BTreeMap<NetworkName, NetworkShare>,
    node: Option<NodeView>,
}

impl Memory {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(config: NodeConfig) -> Self {
        Self {
            config,
            nodes: None,
            readable: BTreeMap::new(),
            unreadable: Vec::new(),
            own: None,
            api_servers: None,
            services: None,
            release: None,
            id: None,
            links: None,
            host_cidrs: None,
            gateway: None,
            encap_ips: None,
            remotes: BTreeMap::new(),
            refused: Vec::new(),
            doubted: BTreeMap::new(),
            ports: None,
            nat_has_match: false,
            refused_vrfs: BTreeMap::new(),
            management_ports: None,
            row_owners: None,
            mtus: HostMtus::default(),
            subnets: BTreeMap::new(),
            shares: BTreeMap::new(),
            node: None,
        }
    }

    /// The node as it is by what was read now, and before where that is missing.
    #[must_use]
    pub fn snapshot(&mut self, mut facts: Facts) -> Snapshot {
        let undeclared = std::mem::take(&mut facts.undeclared);
        undeclared.remember(&mut facts.networks, &self.shares);
        let has_users = !self.config.beside && has_users(&facts, &undeclared);
        let families: BTreeSet<Family> =
            facts.networks.iter().flat_map(Network::families).collect();
        let masquerade = self.config.masquerade_subnets.clone();
        let usable = |a: &InterfaceAddr| {
            // Every node has the same masquerade addresses.
            let is_masquerade = masquerade.iter().any(|subnet| subnet.contains_ip(a.ip));
            families.contains(&Family::of(a.ip)) && !is_link_local(a) && !is_masquerade
        };
        let node_missing = self.note_nodes(&mut facts);
        let links_missing = self.note_links(&mut facts);
        self.note_switch(&mut facts);
        self.note_remotes(facts.chassis.as_ref());
        let machine = self.machine(&facts.networks, usable);
        let gateway_missing = links_missing.clone().or_else(|| {
            let made = self.gateway_of(&facts, &machine);
            made.map(|gateway| self.gateway = Some(gateway)).err()
        });
        if gateway_missing.is_none() || self.host_cidrs.is_none() {
            self.host_cidrs = Some(machine.host_cidrs.clone());
        }
        let machine = Machine {
            gateway: self.gateway.clone(),
            // What is published of a gateway is of its moment.
            host_cidrs: self.host_cidrs.clone().unwrap_or_default(),
            ..machine
        };
        let id_missing = self.note_id();
        let servers_missing = self.note_services(&mut facts);
        let missing = [node_missing, gateway_missing, id_missing, servers_missing]
            .into_iter()
            .flatten()
            .next();
        // Parts of different moments are not put together.
        if missing.is_none()
            && let Some(node) = self.node_view(&machine, &facts.networks, has_users)
        {
            self.node = Some(node);
        }
        let (mut networks, mut stale) = self.shares_of(&facts.networks, &machine, missing);
        undeclared.add_to(&mut networks, &mut stale);
        if !undeclared.unlisted {
            self.retain(&networks);
        }
        let mut snapshot = Snapshot {
            problems: Vec::new(),
            ignored: Vec::new(),
            node: self.node.clone(),
            networks,
            unlisted: undeclared.unlisted,
            stale,
            standing: self.standing(),
            machine,
        };
        snapshot.refuse_what_never_stood();
        snapshot.problems = snapshot.here().flat_map(|(_, v)| v.problems()).collect();
        let services = self.unreachable_services(&snapshot);
        snapshot.problems.extend(services);
        snapshot.ignored = self.ignored(&snapshot);
        self.note_addresses_of_pods(&mut snapshot, &facts.networks);
        snapshot
    }

    /// Addresses of pods that Nodes say are their own: some count all the same, and others are not believed.
    fn note_addresses_of_pods(&self, snapshot: &mut Snapshot, networks: &[Network]) {
        let nodes = self.nodes.iter().flatten();
        let found = nodes.flat_map(|node| pods_addresses(node, networks, snapshot));
        for (counts, problem) in found.collect::<Vec<_>>() {
            if counts {
                snapshot.problems.push(problem);
            } else {
                snapshot.ignored.push(problem);
            }
        }
    }

    /// A network that is declared no more is forgotten: its name may come back as another one.
    fn retain(&mut self, networks: &BTreeMap<NetworkName, Share>) {
        self.subnets.retain(|name, _| networks.contains_key(name));
        self.shares.retain(|name, _| networks.contains_key(name));
        self.doubted.retain(|name, _| networks.contains_key(name));
    }

    /// The share of each network, and why some are not what the facts say now.
    fn shares_of(
        &mut self,
        networks: &[Network],
        machine: &Machine,
        missing: Option<NotYet>,
    ) -> (BTreeMap<NetworkName, Share>, BTreeMap<NetworkName, NotYet>) {
        let (mut shares, mut stale) = (BTreeMap::new(), BTreeMap::new());
        for network in networks {
            let name = &network.name;
            let before = self.shares.get(name).map(|share| share.network.id);
            if before.is_some_and(|id| id != network.id) {
                // Another network of that name: nothing of the first one is its.
                self.shares.remove(name);
                self.subnets.remove(name);
            }
            let (share, why) = self.share(network, machine, missing.clone());
            shares.insert(network.name.clone(), share);
            stale.extend(why.map(|why| (network.name.clone(), why)));
        }
        (shares, stale)
    }

    /// What stands for networks on this node; `None` until it could be read.
    fn standing(&self) -> Option<Standing> {
        let (ports, outer) = self.management_ports.as_ref().zip(self.ports.as_ref())?;
        let owners = ports.values().chain(self.row_owners.as_ref()?);
        Some(Standing {
            owners: owners.cloned().collect(),
            ports: outer.ports.iter().map(|port| port.name.clone()).collect(),
        })
    }

    fn note_switch(&mut self, facts: &mut Facts) {
        self.ports = facts.ports.take().or(self.ports.take());
        self.encap_ips = facts.encap_ips.take().or(self.encap_ips.take());
        self.nat_has_match = facts.nat_has_match.unwrap_or(self.nat_has_match);
        self.refused_vrfs = std::mem::take(&mut facts.refused_vrfs);
        let ports = facts.management_ports.take();
        self.management_ports = ports.or(self.management_ports.take());
        self.row_owners = facts.row_owners.take().or(self.row_owners.take());
    }

    fn note_nodes(&mut self, facts: &mut Facts) -> Option<NotYet> {
        let Some(mut nodes) = facts.nodes.take() else {
            return self.nodes.is_none().then_some(NotYet::Nodes);
        };
        self.mtus.note(&self.config.node, &nodes);
        let own = nodes.iter().find(|node| node.name == self.config.node);
        let missing = own.is_none();
        if let Some(own) = own {
            self.own = Some(Arc::clone(own));
            self.release = facts.release.take();
        }
        self.keep_readable(&mut nodes);
        self.nodes = Some(nodes);
        missing.then(|| NotYet::NoNode(self.config.node.clone()))
    }

    /// A Node whose annotation cannot be read has the subnets it had: its pods run, and their routes must not lose what
    /// retains them.
    fn keep_readable(&mut self, nodes: &mut [Arc<Node>]) {
        let mut readable = BTreeMap::new();
        self.unreadable.clear();
        for node in nodes {
            let last = self.readable.remove(&node.name);
            match &node.subnets {
                Fact::Known(subnets) => drop(readable.insert(node.name.clone(), subnets.clone())),
                Fact::Absent => {}
                Fact::Malformed(why) => {
                    if node.name != self.config.node {
                        let subject = format!("Node/{}", node.name);
                        let text = format!("{why}; what it said before holds");
                        self.unreadable
                            .push(Problem::new(subject, SUBNETS_MALFORMED, text));
                    }
                    if let Some(subnets) = last {
                        Arc::make_mut(node).subnets = Fact::Known(subnets.clone());
                        readable.insert(node.name.clone(), subnets);
                    }
                }
            }
        }
        self.readable = readable;
    }

    /// The other nodes as tunnels lead to them; `chassis` is the system-id that was read now.
    fn note_remotes(&mut self, chassis: Option<&String>) {
        let Some(nodes) = &self.nodes else {
            return;
        };
        let own = self.own.as_deref();
        let before = self.gateway.as_ref().map(|gateway| &gateway.chassis);
        let own = remotes::Own {
            id: own.and_then(|own| own.node_id.known().copied()).or(self.id),
            chassis: chassis.into_iter().chain(before).cloned().collect(),
            addresses: own
                .map(|own| own.internal_ips.as_slice())
                .unwrap_or_default()
                .iter()
                .chain(self.encap_ips().into_iter().flatten())
                .copied()
                .collect(),
        };
        let others = nodes.iter().map(Arc::as_ref);
        let others = others.filter(|node: &&Node| node.name != self.config.node);
        let others: Vec<&Node> = others.collect();
        (self.remotes, self.refused) = remotes::evaluate(&own, &others, &self.remotes);
    }

    /// Links without the bridge are no news: it is about to come back, or everything else is lost too.
    fn note_links(&mut self, facts: &mut Facts) -> Option<NotYet> {
        let links = match std::mem::replace(&mut facts.links, Ok(Vec::new())) {
            Ok(links) => links,
            Err(error) => return Some(NotYet::Links(error)),
        };
        if !links.iter().any(|link| link.name == self.config.bridge) {
            return Some(NotYet::NoBridge(self.config.bridge.clone()));
        }
        self.links = Some(links);
        None
    }

    fn machine(&self, networks: &[Network], usable: impl Fn(&InterfaceAddr) -> bool) -> Machine {
        let config = &self.config;
        let links = || self.links.iter().flatten();
        let bridge = links().find(|link| link.name == config.bridge);
        let addresses = bridge.into_iter().flat_map(|link| &link.addresses);
        let mut bridge_addresses: Vec<InterfaceAddr> =
            addresses.copied().filter(|a| usable(a)).collect();
        // The Node's InternalIPs first: the first of a family is what the gateway router shares.
        let own = self.own.as_ref().map(|own| own.internal_ips.as_slice());
        let own = own.unwrap_or_default();
        bridge_addresses.sort_by_key(|a| (!own.contains(&a.ip), *a));
        let of_others = |l: &&LinkFact| l.name != "lo" && !is_management_device(&l.name);
        let host_cidrs = links().filter(of_others).flat_map(|link| &link.addresses);
        let nodes = self.nodes.as_deref();
        // What is built of other networks stays other networks', also where the own annotation does not say so now.
        let built = self.shares.values().map(|share| &share.network.name);
        let mut built: Vec<(&NetworkName, &[Prefix])> = built
            .filter_map(|name| Some((name, self.subnets.get(name)?.as_slice())))
            .collect();
        // Of a layer-2 network no annotation says anything, and each node has all of it. One that stays out of main may have
        // any addresses, also those of the physical network.
        let segments = networks.iter().filter(|n| n.topology == Topology::Layer2);
        let segments = segments.filter(|n| n.advertised.default_vrf);
        let segments: Vec<(&NetworkName, Vec<Prefix>)> = segments
            .map(|n| (&n.name, n.prefixes().collect()))
            .collect();
        built.extend(segments.iter().map(|(name, all)| (*name, all.as_slice())));
        let claims_of = |network: &Network| {
            let claims = claims::evaluate(network, nodes?, &built);
            Some((network.name.clone(), claims))
        };
        Machine {
            name: config.node.clone(),
            encap_ips: self
                .encap_ips()
                .cloned()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            bridge: config.bridge.clone(),
            host_cidrs: host_cidrs.copied().filter(|a| usable(a)).collect(),
            links: self.links.clone(),
            bridge_addresses,
            gateway: None,
            ports: self.ports.clone(),
            mode: config.mode,
            bgp_default: config.bgp_default,
            release: self.release.clone(),
            claims: networks.iter().filter_map(claims_of).collect(),
            underlay_ready: self.underlay_ready(),
            reported: self.reported(),
        }
    }

    /// What a Node says that is gone without its object decides nothing between networks.
    fn reported(&self) -> BTreeSet<NetworkName> {
        let nodes = self.nodes.iter().flatten();
        let live = nodes.filter(|node| node.ready != Some(false));
        let networks = live.flat_map(|node| node.underlay_ready.keys());
        networks.cloned().collect()
    }

    fn underlay_ready(&self) -> BTreeMap<NodeName, NodeSubnets> {
        let nodes = self.nodes.iter().flatten();
        let ready = nodes.filter(|node| !node.underlay_ready.is_empty());
        ready
            .map(|node| (node.name.clone(), node.underlay_ready.clone()))
            .collect()
    }

    fn gateway_of(&self, facts: &Facts, machine: &Machine) -> Result<GatewayView, NotYet> {
        // The Node says which of the bridge's addresses comes first.
        if self.own.is_none() {
            return Err(NotYet::NoNode(self.config.node.clone()));
        }
        let name = &self.config.bridge;
        let mac = machine.bridge_link().and_then(|link| link.mac);
        let mac = mac.ok_or_else(|| NotYet::NoBridge(name.clone()))?;
        if machine.bridge_addresses.is_empty() {
            return Err(NotYet::NoAddress(name.clone()));
        }
        let physical_network = facts.physical_networks.get(name);
        Ok(GatewayView {
            bridge: name.clone(),
            mac,
            addresses: machine.bridge_addresses.clone(),
            next_hops: self.config.next_hops.clone(),
            chassis: facts.chassis.clone().ok_or(NotYet::NoChassis)?,
            physical_network: physical_network
                .cloned()
                .ok_or_else(|| NotYet::NoMapping(name.clone()))?,
        })
    }

    /// Where tunnels end here, or why none does.
    fn encap_ips(&self) -> Result<&BTreeSet<IpAddr>, &str> {
        let unread = "the local Open vSwitch database cannot be read yet";
        let noted = self.encap_ips.as_ref().ok_or(unread)?;
        noted.as_ref().map_err(String::as_str)
    }

    fn note_id(&mut self) -> Option<NotYet> {
        let own = self.own.as_ref()?;
        match &own.node_id {
            Fact::Known(id) if !NODE_IDS.contains(id) => {
                let (first, last) = (NODE_IDS.start(), NODE_IDS.end());
                let message = format!("node id {id} is not allowed; allowed: {first} to {last}");
                let subject = format!("Node/{}", own.name);
                let problem = Problem::new(subject, "NodeIdOutOfRange", message);
                Some(NotYet::Unsound(problem))
            }
            Fact::Known(id) => {
                self.id = Some(*id);
                None
            }
            Fact::Absent => Some(NotYet::Waiting(own.name.clone(), "node id".to_owned())),
            Fact::Malformed(why) => Some(NotYet::Malformed(own.name.clone(), why.clone())),
        }
    }

    fn node_view(
        &self,
        machine: &Machine,
        networks: &[Network],
        has_users: bool,
    ) -> Option<NodeView> {
        let families: BTreeSet<Family> = networks.iter().flat_map(Network::families).collect();
        // Between pods nothing is translated, also where one of them is an API server, or a Node's annotation names it.
        let is_usable = |ip: &IpAddr| {
            families.contains(&Family::of(*ip)) && network_of(*ip, networks).is_none()
        };
        let api_servers = self.api_servers.iter().flatten().copied();
        let host_addresses: BTreeSet<IpAddr> = machine.host_cidrs.iter().map(|a| a.ip).collect();
        let nodes = || self.nodes.iter().flatten();
        let internal = nodes().flat_map(|node| node.internal_ips.iter().copied());
        let sure = internal.chain(host_addresses.iter().copied());
        let sure = sure.filter(|ip| families.contains(&Family::of(*ip)));
        let annotated = nodes().flat_map(|node| annotated(node)).filter(is_usable);
        let node_addresses = sure.chain(annotated).collect();
        // One that was an overlay may still be built as one.
        let built = self.shares.values().map(|share| &share.network);
        let has_overlay = (networks.iter().chain(built)).any(|n| n.transport == Transport::Geneve);
        let services = has_users.then(|| self.usable_services(networks, is_usable));
        let remotes = has_overlay.then(|| self.remotes.clone());
        let (first, last) = self.config.ephemeral_port_range;
        Some(NodeView {
            name: self.config.node.clone(),
            id: self.id?,
            gateway: machine.gateway.clone()?,
            ephemeral_port_range: format!("{first}-{last}"),
            host_addresses,
            node_addresses,
            api_servers: api_servers.filter(is_usable).collect(),
            nat_has_match: self.nat_has_match,
            mode: self.config.mode,
            masquerade_subnets: self.config.masquerade_subnets.clone(),
            strict_isolation: self.config.strict_isolation,
            service_cidrs: self.config.service_cidrs.clone(),
            services,
            transit_subnets: self.config.transit_subnets.clone(),
            remotes: remotes.unwrap_or_default(),
        })
    }

    /// What other Nodes say and is not believed, each once.
    fn ignored(&self, snapshot: &Snapshot) -> Vec<Problem> {
        let claims = snapshot.machine.claims.values();
        let claimed = claims.flat_map(|claims: &Claims| claims.problems.iter().cloned());
        let mut found: BTreeSet<Problem> = claimed.collect();
        found.extend(self.unreadable.iter().cloned());
        for (name, view) in snapshot.here() {
            if view.is_overlay() {
                found.extend(self.refused.iter().cloned());
                found.extend(self.doubted.get(name).into_iter().flatten().cloned());
                found.extend(view.unreachable());
            }
            // With a configured one no host's matters.
            if view.share.network.mtu.is_none() {
                let nodes = self.nodes.as_deref().unwrap_or_default();
                let ruling = view.share.mtu;
                found.extend(self.mtus.problems(&self.config.node, nodes, ruling));
            }
        }
        found.into_iter().collect()
    }
}

/// Reason of a problem: an annotation of another Node cannot be read.
const SUBNETS_MALFORMED: &str = "NodeSubnetsMalformed";

/// Whether the node has a network of users, or may have one.
fn has_users(facts: &Facts, undeclared: &Undeclared) -> bool {
    let declared = facts.networks.iter().map(|network| &network.name);
    let mut names = declared.chain(undeclared.waiting.keys());
    names.any(|name| !name.is_default())
}

fn is_link_local(address: &InterfaceAddr) -> bool {
    match address.ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
