//! What the planners are given: the node, and its share of each network.
//! In: facts, parsed and remembered by `facts`. Out: a value, and the addresses derived from it.
//! Invariant: every derived address has one function here (address plan: OVN-Kubernetes' join and node subnets).
//! Not here: decisions; a share with gaps gives a smaller plan, and `problems` names the gaps.

mod layer2;
mod problems;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::{Family, InterfaceAddr, Mac, Prefix};
use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::LinkFact;
use model::names::{NetworkName, NodeName, RouterName};
use model::nb;
use model::network::{MissingRoute, Network, NoOverlay, Transport};
use model::node::NodeSubnets;
use model::ovs::{BridgeFact, patch_port};
use model::problem::Problem;

use model::route::TableId;
pub use problems::{NO_TRANSIT_ADDRESS, SUBNET_TOO_WIDE};

use crate::claims::Claims;
use crate::facts::NotYet;

/// The node with all its networks, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What does not depend on any network.
    pub machine: Machine,
    /// What every network's share is planned with; `None` until it was known whole once.
    pub node: Option<NodeView>,
    /// All networks that are declared, or may be.
    pub networks: BTreeMap<NetworkName, Share>,
    /// Networks have not been listed yet: there may be any beside those.
    pub unlisted: bool,
    /// Networks whose share rests on what was known before, or is unknown: what is missing now.
    pub stale: BTreeMap<NetworkName, NotYet>,
    /// What stands for networks; `None` until it could be read.
    pub standing: Option<Standing>,
    /// What keeps the plan of a share from being whole.
    pub problems: Vec<Problem>,
    /// What Nodes' annotations say and is not believed.
    pub ignored: Vec<Problem>,
}

impl Snapshot {
    /// The networks that this node has a share of, with it.
    pub fn here(&self) -> impl Iterator<Item = (&NetworkName, NetworkView<'_>)> {
        let shares = self
            .networks
            .iter()
            .filter_map(|(name, share)| match share {
                Share::Here(share) => Some((name, share)),
                Share::Unknown(_) | Share::Refused => None,
            });
        let node = self.node.as_ref();
        shares.filter_map(move |(name, share)| Some((name, NetworkView { node: node?, share })))
    }

    /// The networks that nothing can be planned for yet.
    pub fn unknown(&self) -> impl Iterator<Item = (&NetworkName, &UnknownShare)> {
        self.networks
            .iter()
            .filter_map(|(name, share)| match share {
                Share::Here(_) | Share::Refused => None,
                Share::Unknown(unknown) => Some((name, unknown)),
            })
    }

    /// Networks that somebody has to mend, and of which nothing stands here, keep nothing of others from being taken away.
    pub(crate) fn refuse_what_never_stood(&mut self) {
        for (name, why) in &self.stale {
            if why.reason().is_some()
                && self.has_nothing_of(name)
                && let Some(share @ Share::Unknown(_)) = self.networks.get_mut(name)
            {
                *share = Share::Refused;
            }
        }
    }

    /// Sets a network aside whose part of the plan breaks an invariant: what stands of it stays.
    pub(crate) fn set_aside(&mut self, name: &NetworkName) {
        let has_nothing = self.has_nothing_of(name);
        if let Some(share) = self.networks.get_mut(name)
            && let Share::Here(here) = share
        {
            let unknown = || UnknownShare {
                network: Some(here.network.clone()),
                host_subnets: here.host_subnets.clone(),
            };
            *share = if has_nothing {
                Share::Refused
            } else {
                Share::Unknown(unknown())
            };
        }
    }

    /// Whether it is known that neither rows nor a management port nor a patch port stand for a network.
    fn has_nothing_of(&self, name: &NetworkName) -> bool {
        let patch = patch_port(&self.machine.bridge, name, &self.machine.name);
        self.standing.as_ref().is_some_and(|standing| {
            !standing.owners.contains(name) && !standing.ports.contains(&patch)
        })
    }
}

/// What stands for networks on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The networks that rows of OVN_Northbound or management ports were made for.
    pub owners: BTreeSet<NetworkName>,
    /// Ports of the external bridge.
    pub ports: BTreeSet<String>,
}

/// A network on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// All that a plan needs is known, or was once: what was lost since changes nothing.
    Here(NetworkShare),
    /// Never known whole since this process started: what stands is left as it is.
    Unknown(UnknownShare),
    /// Somebody has to mend it, and nothing of it stands here: nothing is to.
    Refused,
}

/// A share that nothing can be planned for yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownShare {
    /// The network; `None` where its name is all that is known.
    pub network: Option<Network>,
    /// The node's own subnets of it, as far as known: enough to look after routes that were imported before.
    pub host_subnets: Vec<Prefix>,
}

/// The machine as it is, or was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The node.
    pub name: NodeName,
    /// Name of the external bridge. Source: `[gateway] interface`.
    pub bridge: String,
    /// All links; `None` until they were read once.
    pub links: Option<Vec<LinkFact>>,
    /// Addresses of the bridge that the node's networks can use, the Node's InternalIPs first.
    pub bridge_addresses: Vec<InterfaceAddr>,
    /// All addresses that others may reach the node by, without pods' and management ports'.
    pub host_cidrs: Vec<InterfaceAddr>,
    /// The gateway; `None` until it was known whole once.
    pub gateway: Option<GatewayView>,
    /// The external bridge's ports as the conf database has them; `None` until they were read once.
    pub ports: Option<BridgeFact>,
    /// Where tunnels of overlays end on this node, sorted; none until ovn-controller is set up for them.
    pub encap_ips: Vec<IpAddr>,
    /// Source: `[gateway] mode`.
    pub mode: GatewayMode,
    /// Source: `[gateway] bgp-default`.
    pub bgp_default: BgpDefault,
    /// The admin's word on withdrawals that are retained. Source: annotation `noverlay.io/release-withdrawals`.
    pub release: Option<String>,
    /// What the Nodes say of each network's subnets, as far as it is believed; empty until the Nodes were listed.
    pub claims: BTreeMap<NetworkName, Claims>,
    /// Nodes beside OVN-Kubernetes, and the networks, with their subnets of each, whose pods' packets they take from the physical
    /// network. Source: annotation `noverlay.io/underlay-ready`.
    pub underlay_ready: BTreeMap<NodeName, NodeSubnets>,
    /// Of these networks those that a Node reports that is not known to be not ready.
    pub reported: BTreeSet<NetworkName>,
}

impl Machine {
    /// The link of the external bridge.
    #[must_use]
    pub fn bridge_link(&self) -> Option<&LinkFact> {
        let mut links = self.links.iter().flatten();
        links.find(|link| link.name == self.bridge)
    }
}

/// The node's way to the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayView {
    /// The external bridge, `br-ex`.
    pub bridge: String,
    /// Its name in `ovn-bridge-mappings`, `physnet`.
    pub physical_network: String,
    /// MAC of the bridge, which host and gateway router share.
    pub mac: Mac,
    /// Addresses of the bridge that the gateway router shares; the first of each family is the node's address.
    pub addresses: Vec<InterfaceAddr>,
    /// Default routers; none means no default route in OVN.
    pub next_hops: Vec<IpAddr>,
    /// `Chassis.name` of this node in the Southbound DB (`external_ids:system-id`).
    pub chassis: String,
}

impl GatewayView {
    /// The node's address of a family.
    #[must_use]
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        of_family(&self.addresses, family)
    }
}

/// What a node is for all its networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub name: NodeName,
    /// Node id, from 2. Source: annotation `k8s.ovn.org/node-id`.
    pub id: u32,
    /// The node's gateway.
    pub gateway: GatewayView,
    /// `NAT.external_port_range`, for example `32768-60999`.
    pub ephemeral_port_range: String,
    /// This node's addresses. Source: its links.
    pub host_addresses: BTreeSet<IpAddr>,
    /// All nodes' addresses. Source: annotation `k8s.ovn.org/host-cidrs` and InternalIPs of every node.
    pub node_addresses: BTreeSet<IpAddr>,
    /// The API server's addresses outside of all networks of pods. Source: EndpointSlices of Service `default/kubernetes`.
    pub api_servers: BTreeSet<IpAddr>,
    /// Whether the Northbound schema has `NAT.match` (OVN 23.03 has not).
    pub nat_has_match: bool,
    /// Who forwards what leaves pods. Source: `[gateway] mode`.
    pub mode: GatewayMode,
    /// Addresses between host and OVN, of which each network of users has two. Source: `[gateway] v4-masquerade-subnet`,
    /// `v6-masquerade-subnet`.
    pub masquerade_subnets: Vec<Prefix>,
    /// Advertised networks do not reach each other on the node. Source: `[ovnkubernetesfeature] advertised-udn-isolation-mode`.
    pub strict_isolation: bool,
    /// Ranges of the cluster's Services. Source: `[kubernetes] service-cidrs`.
    pub service_cidrs: Vec<Prefix>,
    /// What the node does for Services of the default network that networks of users may use; `None` while it has no network
    /// of users.
    pub services: Option<Services>,
    /// Addresses of cluster routers where networks have an overlay, by node id. Source: `[clustermanager] v4-transit-subnet`,
    /// `v6-transit-subnet`.
    pub transit_subnets: Vec<Prefix>,
    /// The other nodes, where a network has an overlay.
    pub remotes: BTreeMap<NodeName, RemoteNode>,
}

/// Services of the default network that networks of users may use. Source: `[default] udn-allowed-default-services`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services {
    /// Their addresses (`Service.spec.clusterIPs`) by `namespace/name`, without those that no network can use.
    pub allowed: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Services {
    /// The addresses of a family.
    pub fn addresses(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        let all = self.allowed.values().flatten().copied();
        all.filter(move |ip| Family::of(*ip) == family)
    }
}

/// Addresses of a masquerade subnet that have one meaning on every node (OVN-Kubernetes: the first five).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// `.1`: what OVN sends to the host bears it.
    Ovn = 1,
    /// `.2`: the host's own, towards OVN.
    Host = 2,
    /// `.3`: the host's, for Services that keep to the node.
    HostLocal = 3,
    /// `.4`: next hop, for both sides, that nobody has.
    NextHop = 4,
}

/// Another node, as an overlay reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteNode {
    /// Its id. Source: annotation `k8s.ovn.org/node-id`.
    pub id: u32,
    /// What it is called in every Southbound DB. Source: annotation `k8s.ovn.org/node-chassis-id`.
    pub chassis: String,
    /// Where tunnels to it end. Source: annotation `k8s.ovn.org/node-encap-ips`, else `k8s.ovn.org/node-primary-ifaddr`.
    pub encap_ips: BTreeSet<IpAddr>,
}

impl NodeView {
    /// A reserved address of a family, with the masquerade subnet's length.
    #[must_use]
    pub fn reserved(&self, which: Reserved, family: Family) -> Option<InterfaceAddr> {
        let mut subnets = self.masquerade_subnets.iter();
        let subnet = subnets.find(|subnet| subnet.family() == family)?;
        nth_of_each(&[*subnet], which as u128).first().copied()
    }

    /// The masquerade subnet of a family.
    #[must_use]
    pub fn masquerade_subnet(&self, family: Family) -> Option<Prefix> {
        let mut subnets = self.masquerade_subnets.iter().copied();
        subnets.find(|subnet| subnet.family() == family)
    }

    /// What pods reach with a node's address whether their network's traffic is translated or not: nodes and the API server,
    /// which need no route back to pods. Source: design document 000, "SNAT Behavior".
    #[must_use]
    pub fn always_translated(&self) -> BTreeSet<IpAddr> {
        &self.node_addresses | &self.api_servers
    }
}

/// The VRF device of a network of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vrf {
    /// Its name ([`NetworkName::vrf_device`]).
    pub device: String,
    /// Its routing table.
    pub table: TableId,
}

/// A network's share of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkShare {
    /// The network.
    pub network: Network,
    /// The node's own subnets of the network. Source: annotation `k8s.ovn.org/node-subnets`.
    pub host_subnets: Vec<Prefix>,
    /// Of an overlay: the other nodes' subnets of the network, and whose they are.
    pub remote_subnets: Vec<(Prefix, NodeName)>,
    /// MTU of pods and of the management port, bytes.
    pub mtu: u32,
    /// Its VRF device, made or to be made; `None` for the default network, and while there can be none.
    pub vrf: Option<Vrf>,
}

/// One network on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkView<'a> {
    /// The node.
    pub node: &'a NodeView,
    /// Its share.
    pub share: &'a NetworkShare,
}

impl NetworkView<'_> {
    /// The network's name.
    #[must_use]
    pub fn name(&self) -> &NetworkName {
        &self.share.network.name
    }

    /// The logical switch of the node's pods: the node's own, or that of a layer-2 network.
    #[must_use]
    pub fn switch(&self) -> String {
        match self.layer2() {
            None => self.name().switch(&self.node.name),
            Some(_) => self.name().layer2_switch(),
        }
    }

    /// The router behind that switch: the cluster router, or the transit router of a layer-2 network.
    #[must_use]
    pub fn cluster_router(&self) -> RouterName {
        match self.layer2() {
            None => self.name().cluster_router(),
            Some(_) => self.name().transit_router(),
        }
    }

    /// That router's port towards the switch.
    #[must_use]
    pub fn switch_router_port(&self) -> String {
        match self.layer2() {
            None => nb::rtos(&self.switch()),
            Some(_) => nb::trtos(&self.switch()),
        }
    }

    /// The node's gateway router.
    #[must_use]
    pub fn gateway_router(&self) -> RouterName {
        self.name().gateway_router(&self.node.name)
    }

    /// Addresses of the bridge that the network's gateway router shares: those of the network's families.
    #[must_use]
    pub fn gateway_addresses(&self) -> Vec<InterfaceAddr> {
        let families = self.share.network.families();
        let all = self.node.gateway.addresses.iter();
        all.filter(|address| families.contains(&Family::of(address.ip)))
            .copied()
            .collect()
    }

    /// The node's address of a family of the network.
    #[must_use]
    pub fn gateway_address(&self, family: Family) -> Option<IpAddr> {
        of_family(&self.gateway_addresses(), family)
    }

    /// Its gateway router's port to the bridge; `None` while that has no address, and so no port.
    #[must_use]
    pub fn gateway_port(&self) -> Option<String> {
        let has_port = !self.gateway_addresses().is_empty();
        has_port.then(|| model::nb::rtoe(&self.gateway_router()))
    }

    /// Join addresses of the cluster router: the first of each join subnet.
    #[must_use]
    pub fn cluster_join(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.share.network.join_subnets, 1)
    }

    /// Join addresses of the gateway router: each join subnet's base plus the node id.
    #[must_use]
    pub fn gateway_join(&self) -> Vec<InterfaceAddr> {
        self.join_of(self.node.id)
    }

    /// Whether its pods reach each other over tunnels.
    #[must_use]
    pub fn is_overlay(&self) -> bool {
        self.share.network.transport == Transport::Geneve
    }

    /// Addresses on the transit switch of the node with this id: each transit subnet's base plus the id, of the network's
    /// families.
    #[must_use]
    pub fn transit(&self, node_id: u32) -> Vec<InterfaceAddr> {
        let families = self.share.network.families();
        let mut all = nth_of_each(&self.node.transit_subnets, node_id.into());
        all.retain(|address| families.contains(&Family::of(address.ip)));
        all
    }

    /// Join addresses of the gateway router of the node with this id.
    #[must_use]
    pub fn join_of(&self, node_id: u32) -> Vec<InterfaceAddr> {
        nth_of_each(&self.share.network.join_subnets, node_id.into())
    }

    /// Addresses of the cluster router in the node's subnets: the first of each.
    #[must_use]
    pub fn subnet_gateways(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.share.host_subnets, 1)
    }

    /// Addresses of the management port: the second of each node subnet.
    #[must_use]
    pub fn management(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.share.host_subnets, 2)
    }

    /// Masquerade addresses of the gateway router of a network of users (OVN-Kubernetes: base + 10 + 2 * id - 1); one for
    /// each of its families, where the masquerade subnet is large enough.
    #[must_use]
    pub fn gateway_masquerade(&self) -> Vec<IpAddr> {
        self.masquerade(1)
    }

    /// Masquerade addresses of its management port: those behind them.
    #[must_use]
    pub fn management_masquerade(&self) -> Vec<IpAddr> {
        self.masquerade(0)
    }

    fn masquerade(&self, before: u128) -> Vec<IpAddr> {
        let id = u128::from(self.share.network.id);
        let families = self.share.network.families();
        let subnets = self.node.masquerade_subnets.iter();
        let subnets = subnets.filter(|subnet| id > 0 && families.contains(&subnet.family()));
        subnets
            .filter_map(|subnet| subnet.nth(10 + 2 * id - before))
            .collect()
    }

    /// How the network is routed where it has no overlay.
    #[must_use]
    pub fn no_overlay(&self) -> Option<NoOverlay> {
        self.share.network.transport.no_overlay()
    }

    /// Whether its pods' addresses are known outside of the node: without an overlay they always are.
    #[must_use]
    pub fn is_advertised(&self) -> bool {
        let advertised = self.share.network.advertised;
        self.no_overlay().is_some() || advertised.default_vrf || advertised.own_vrf
    }

    /// Whether traffic that leaves the network bears the node's address. Source: `[no-overlay] outbound-snat`.
    #[must_use]
    pub fn outbound_snat(&self) -> bool {
        // With an overlay only what nobody outside knows the addresses of.
        let options = self.no_overlay();
        options.map_or_else(|| !self.is_advertised(), |options| options.outbound_snat)
    }

    /// Whether a packet for a pod without a route is dropped. Source: `[no-overlay] missing-route`.
    #[must_use]
    pub fn discards(&self) -> bool {
        let missing_route = self.no_overlay().map(|options| options.missing_route);
        missing_route == Some(MissingRoute::Discard)
    }

    /// Destinations of the cluster router's routes to a subnet of another node: none shorter than one of this node's subnets of the
    /// family, because OVN prefers a longer route by source to a shorter one by destination, and each of
    /// this node's subnets has one. `None` where that would be too many.
    #[must_use]
    pub fn overlay_routes(&self, subnet: &Prefix) -> Option<Vec<Prefix>> {
        let length = self.longest_own(subnet.family()).max(subnet.bits());
        if length - subnet.bits() > SPLIT {
            return None;
        }
        let parts = (0..subnet.subnet_count(length)).map(|at| subnet.subnet(at, length));
        parts.collect()
    }

    /// The longest of this node's subnets of a family, in bits.
    fn longest_own(&self, family: Family) -> u8 {
        let own = self.share.host_subnets.iter();
        let own = own.filter(|subnet| subnet.family() == family);
        own.map(Prefix::bits).max().unwrap_or(0)
    }
}

/// Bits by which routes to another node's subnet may be longer than it: 256 routes.
const SPLIT: u8 = 8;

/// The `offset`-th address of each subnet that has one, with the subnet's length.
fn nth_of_each(subnets: &[Prefix], offset: u128) -> Vec<InterfaceAddr> {
    subnets
        .iter()
        .filter_map(|subnet| {
            Some(InterfaceAddr {
                ip: subnet.nth(offset)?,
                len: subnet.bits(),
            })
        })
        .collect()
}

/// The first address of a family.
pub(crate) fn of_family(addresses: &[InterfaceAddr], family: Family) -> Option<IpAddr> {
    addresses
        .iter()
        .map(|address| address.ip)
        .find(|ip| Family::of(*ip) == family)
}

/// MAC of a port with these addresses: from its first IPv4 address, else from its first.
pub(crate) fn mac_of(addresses: &[InterfaceAddr]) -> Option<Mac> {
    of_family(addresses, Family::V4)
        .or_else(|| of_family(addresses, Family::V6))
        .map(Mac::of_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_takes_its_mac_from_the_first_ipv4_address() {
        let both: Vec<InterfaceAddr> = vec![
            "fd00:10::2/64".parse().unwrap(),
            "10.128.1.2/24".parse().unwrap(),
        ];
        assert_eq!(mac_of(&both).unwrap().to_string(), "0a:58:0a:80:01:02");
        assert_eq!(mac_of(&[]), None);
    }
}
