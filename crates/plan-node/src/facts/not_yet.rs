//! Why nothing, or nothing new, is planned for a network, and which of the reasons somebody has to act on.
//! In: what `facts` misses. Out: a sentence, and the reason of a condition. Invariant: what passes while a node starts has no reason.
//! Not here: the condition (the node-agent).

use model::address::Prefix;
use model::names::{NetworkName, NodeName};
use model::problem::Problem;

use crate::claims;
use crate::vrf::NoVrf;

/// Why nothing can be planned for a network yet, or why what is planned rests on what was known before; one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// The API server has not answered.
    #[error("the Nodes have not been listed yet")]
    Nodes,
    /// The same, of the API server's own addresses: without them, those that stand would be removed.
    #[error("the EndpointSlices of Service default/kubernetes have not been listed yet")]
    ApiServers,
    /// Without them, what networks of users use of them would be removed.
    #[error("the Services of [default] udn-allowed-default-services have not been listed yet")]
    Services,
    /// It has no such object.
    #[error("there is no Node object {0}")]
    NoNode(NodeName),
    /// Something that the cluster-manager gives out.
    #[error("node {0} has no {1} yet")]
    Waiting(NodeName, String),
    /// An annotation cannot be read.
    #[error("node {0}: {1}")]
    Malformed(NodeName, String),
    /// The external bridge is not there.
    #[error("bridge {0} does not exist or has no MAC")]
    NoBridge(String),
    /// The external bridge has no address to share.
    #[error("bridge {0} has no address of the cluster's families")]
    NoAddress(String),
    /// ovn-controller has no name.
    #[error("the local Open vSwitch database has no system-id yet")]
    NoChassis,
    /// ovn-controller would not connect the external switch.
    #[error("external_ids:ovn-bridge-mappings of the local Open vSwitch does not name bridge {0}")]
    NoMapping(String),
    /// A layout that this agent does not build.
    #[error("network {0} is a layer-2 one without an overlay; allowed: layer3, or layer2 with one")]
    Transport(NetworkName),
    /// ovn-controller makes no tunnels: an overlay has no way.
    #[error("network {0} has an overlay, and {1}")]
    NoTunnels(NetworkName, String),
    /// Packets of this size do not fit the tunnels.
    #[error(
        "network {0}: mtu {1} and {2} bytes of the overlay are more than {3}, the MTU of the bridge; allowed: {4} at most"
    )]
    MtuTooLarge(NetworkName, u32, u32, u32, u32),
    /// Packets of this size do not fit the link that they leave by: network, its MTU, the link's, bytes, and which link that is.
    #[error("network {0}: mtu {1} is more than {2}, the MTU of {3}; allowed: {2} at most")]
    MtuAboveLink(NetworkName, u32, u32, String),
    /// IPv6 needs larger packets than the tunnels leave.
    #[error(
        "network {0}: {1} bytes are left for pods, and IPv6 needs {2}; allowed: an underlay of {3} bytes or more, and no smaller mtu"
    )]
    MtuTooSmall(NetworkName, u32, u32, u32),
    /// The annotation of the own Node names other subnets than the network's.
    #[error("subnet {1} of node {0} is in none of the subnets of network {2}")]
    Outside(NodeName, Prefix, NetworkName),
    /// A share that must not be built on, or a network of which nobody knows what it is.
    #[error("{0}")]
    Unsound(Problem),
    /// The kernel cannot be read.
    #[error("cannot read the kernel's links: {0}")]
    Links(String),
    /// There is no VRF device: no table in which the network's routes are.
    #[error("{1}")]
    Vrf(NetworkName, NoVrf),
    /// The masquerade subnet of a family is too small for the network's id.
    #[error(
        "network {0} with id {1} has no addresses in [gateway] {2}-masquerade-subnet; allowed: a subnet of at least {3} addresses"
    )]
    Masquerade(NetworkName, u16, &'static str, u32),
}

impl NotYet {
    /// CamelCase reason, where somebody has to change something; `None`: it passes with the start of the node, or the log tells.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Transport(_) => Some("TransportNotSupported"),
            Self::NoTunnels(..) => Some("NoTunnels"),
            Self::MtuTooLarge(..) | Self::MtuAboveLink(..) => Some("MtuTooLarge"),
            Self::MtuTooSmall(..) => Some("MtuTooSmall"),
            Self::Outside(..) => Some(claims::SUBNET_OUTSIDE),
            Self::Malformed(..) => Some("NodeAnnotationMalformed"),
            Self::Unsound(problem) => Some(problem.reason),
            Self::Vrf(_, NoVrf::NameTaken(_)) => Some("VrfNameTaken"),
            Self::Vrf(_, NoVrf::Refused(..)) => Some("VrfRefused"),
            Self::Masquerade(..) => Some("NoMasqueradeAddress"),
            Self::Nodes
            | Self::ApiServers
            | Self::Services
            | Self::NoNode(_)
            | Self::Waiting(..)
            | Self::NoBridge(_)
            | Self::NoAddress(_)
            | Self::NoChassis
            | Self::NoMapping(_)
            | Self::Links(_)
            | Self::Vrf(_, NoVrf::NoPort(_)) => None,
        }
    }
}
