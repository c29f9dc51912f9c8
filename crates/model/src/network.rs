//! What a network is, whoever declared it: the settings (the default network) or a ClusterUserDefinedNetwork.
//! In: settings and objects, parsed. Out: values that both daemons' planners speak of.
//! Invariant: transport and routing of a network are defined here and nowhere else.
//! Not here: a node's share of a network (`plan_node::NetworkShare`), names derived from it (`names`).

use std::collections::BTreeSet;

use crate::address::{ClusterSubnet, Family, Prefix};
use crate::names::NetworkName;

/// Annotation of the default network's NetworkAttachmentDefinition: what is in force of `[default]`, `[no-overlay]` and
/// `[bgp-managed]`, in TOML. Later files may not change the network's transport and routing.
pub const IN_FORCE: &str = "noverlay.io/configuration-in-force";

/// How pods of different nodes reach each other. Source: `[default] transport`, `spec.network.transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By the Geneve overlay.
    Geneve,
    /// By the physical network's own routes.
    NoOverlay(NoOverlay),
}

impl Transport {
    /// How packets are routed where there is no overlay.
    #[must_use]
    pub fn no_overlay(self) -> Option<NoOverlay> {
        match self {
            Self::Geneve => None,
            Self::NoOverlay(options) => Some(options),
        }
    }
}

/// A network without an overlay. Source: `[no-overlay]`, `spec.network.noOverlay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoOverlay {
    /// True: traffic that leaves the network bears the node's address. Source: `outbound-snat`.
    pub outbound_snat: bool,
    /// Source: `routing`.
    pub routing: Routing,
    /// Source: `missing-route`.
    pub missing_route: MissingRoute,
}

/// Who routes. Source: `[no-overlay] routing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// `managed`: the internal fabric of `[bgp-managed]`.
    Managed,
    /// `unmanaged`: the admin's own RouteAdvertisements.
    Unmanaged,
}

/// What happens to a packet for a pod subnet without a route. Source: `[no-overlay] missing-route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRoute {
    /// The gateway router drops it (default when managed).
    Discard,
    /// It takes the default route, with the pod's own address (default when unmanaged).
    Forward,
}

impl MissingRoute {
    /// Where nobody says anything else.
    #[must_use]
    pub fn of(routing: Routing) -> Self {
        match routing {
            Routing::Managed => Self::Discard,
            Routing::Unmanaged => Self::Forward,
        }
    }
}

/// Into which VRFs accepted RouteAdvertisements advertise a network's pods. Source: `spec.targetVRF` of those that select it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Into the default VRF.
    pub default_vrf: bool,
    /// Into the network's own VRF (`auto`, or its name).
    pub own_vrf: bool,
}

/// How a network is laid out. Source: `spec.network.topology`, NAD `topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Each node has a subnet of its own.
    Layer3,
    /// One segment: each address may be on each node.
    Layer2,
}

/// What all nodes have to agree on of a primary layer-2 network, beside what they agree on of any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer2 {
    /// Tunnel key of its switch. Source: NAD annotation `k8s.ovn.org/tunnel-keys`, the first.
    pub switch_key: u32,
    /// Tunnel key of its transit router. Source: the same, the second.
    pub router_key: u32,
    /// Addresses between the transit router and gateway routers, one subnet for each of its families. Source: NAD
    /// `transitSubnet`.
    pub transit_subnets: Vec<Prefix>,
}

/// A network, as it is declared for the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Its name.
    pub name: NetworkName,
    /// Its id: 0 for the default network, from 1 on for the others. Names of devices and marks are made of it.
    pub id: u16,
    /// Its layout.
    pub topology: Topology,
    /// Of a layer-2 network what nodes build it of; of no meaning to the cluster-manager, which gives it out.
    pub layer2: Option<Layer2>,
    /// All its subnets; those of a layer-2 network are one share each.
    pub subnets: Vec<ClusterSubnet>,
    /// Subnets of its join switch, one for each of its families.
    pub join_subnets: Vec<Prefix>,
    /// How its pods reach each other.
    pub transport: Transport,
    /// MTU of its pods, bytes, where it is configured.
    pub mtu: Option<u32>,
    /// Where its pods are advertised; of no meaning to the cluster-manager, which decides it.
    pub advertised: Advertised,
}

impl Network {
    /// Families that it has subnets of.
    #[must_use]
    pub fn families(&self) -> BTreeSet<Family> {
        self.prefixes().map(|subnet| subnet.family()).collect()
    }

    /// Its subnets without the length of a node's share.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.subnets.iter().map(|subnet| subnet.cidr)
    }

    /// Tunnel keys that it asks for of Datapath_Bindings: no other datapath of a node may have them.
    #[must_use]
    pub fn tunnel_keys(&self) -> Vec<u32> {
        match (&self.layer2, self.transport) {
            (Some(layer2), _) => vec![layer2.switch_key, layer2.router_key],
            (None, Transport::Geneve) => vec![transit_switch_key(self.id)],
            (None, Transport::NoOverlay(_)) => Vec::new(),
        }
    }

    /// Whether `subnet` lies in one of its subnets.
    #[must_use]
    pub fn holds(&self, subnet: &Prefix) -> bool {
        self.prefixes().any(|own| own.contains(subnet))
    }
}

/// Tunnel key of the transit switch of a layer-3 network with this id, 0 for the default one. Source: OVN-Kubernetes' plan, which
/// begins at 16711683.
#[must_use]
pub fn transit_switch_key(id: u16) -> u32 {
    16_711_683 + u32::from(id)
}
