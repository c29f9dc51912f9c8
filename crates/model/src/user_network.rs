//! Networks of users, and the objects around them, as plain values.
//! In: objects decoded by `api`. Out: input of `plan-cluster`.
//! Invariant: what is not served is here with its reason, never absent.
//! Not here: which namespaces a selector finds, ids, conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::{ClusterSubnet, Prefix};
use crate::names::{NetworkName, NodeName};
use crate::network::{Advertised, MissingRoute, Network, NoOverlay, Routing, Topology, Transport};
use crate::selector::{LabelSelector, Labels};

pub mod attachment;

pub use attachment::{Attachment, Undescribed};

/// Prefix of the network's name of a ClusterUserDefinedNetwork.
pub const CUDN_PREFIX: &str = "cluster_udn_";
/// Annotation of a ClusterUserDefinedNetwork beside OVN-Kubernetes: the network, which that builds with tunnels, is led past them. JSON
/// with the fields of `spec.network.noOverlay`, such as `{"outboundSNAT":"Enabled","routing":"Managed"}`; written by the admin.
pub const NO_OVERLAY: &str = "noverlay.io/no-overlay";
/// Join subnets of networks of users that say none, one of each family (OVN-Kubernetes' defaults).
pub const JOIN_SUBNETS: [&str; 2] = ["100.65.0.0/16", "fd99::/64"];

/// Subnets between transit router and gateway routers of primary layer-2 networks, one of each family (OVN-Kubernetes'
/// defaults).
pub const TRANSIT_SUBNETS: [&str; 2] = ["100.88.0.0/16", "fd97::/64"];

/// One `k8s.ovn.org/v1` ClusterUserDefinedNetwork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterUserDefinedNetwork {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`: what conditions refer to.
    pub generation: i64,
    /// `metadata.creationTimestamp`, seconds since 1970.
    pub created: i64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: BTreeSet<String>,
    /// `spec.namespaceSelector`, or a sentence that names what is wrong with it: the schema takes any text as an operator.
    pub namespaces: Result<LabelSelector, String>,
    /// `spec.network`, or why it is left to others: a sentence that names the field.
    pub network: Result<UserNetwork, String>,
    /// What the annotation [`NO_OVERLAY`] asks for, or what is wrong with it.
    pub annotated: Option<Result<UserTransport, String>>,
}

impl ClusterUserDefinedNetwork {
    /// Name of its network.
    #[must_use]
    pub fn network_name(&self) -> NetworkName {
        format!("{CUDN_PREFIX}{}", self.name).into()
    }

    /// The same beside OVN-Kubernetes, where the annotation alone counts: what the object itself says is that one's to follow. An annotation
    /// that cannot be read is as if it were not there, and the network stays in the tunnels.
    #[must_use]
    pub fn beside(mut self) -> Self {
        if let Ok(network) = &mut self.network {
            network.transport = match &self.annotated {
                Some(Ok(asked)) => *asked,
                Some(Err(_)) | None => UserTransport::Geneve,
            };
        }
        self
    }

    /// Whether it selects a namespace; one whose selector cannot be read selects none anew.
    #[must_use]
    pub fn selects(&self, namespace: &Namespace) -> bool {
        let selector = self.namespaces.as_ref();
        selector.is_ok_and(|selector| selector.matches(&namespace.labels))
    }
}

/// Transport of a network of users. Source: `spec.network.transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserTransport {
    /// Absent.
    Unset,
    /// `Geneve`.
    Geneve,
    /// `NoOverlay`, with its options: outbound SNAT, and who routes.
    NoOverlay {
        /// `outboundSNAT`.
        outbound_snat: bool,
        /// `routing`.
        routing: Routing,
    },
}

impl UserTransport {
    /// The transport that it is. What the object has no word for: a packet without a route is dropped where the fabric is ours.
    #[must_use]
    pub fn transport(self) -> Transport {
        match self {
            Self::Unset | Self::Geneve => Transport::Geneve,
            Self::NoOverlay {
                outbound_snat,
                routing,
            } => Transport::NoOverlay(NoOverlay {
                outbound_snat,
                routing,
                missing_route: MissingRoute::of(routing),
            }),
        }
    }
}

/// `spec.network` of a layer-2 or layer-3 network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNetwork {
    /// `topology`.
    pub topology: Topology,
    /// `role: Primary`: the only ones that can be routed.
    pub primary: bool,
    /// `subnets`, with the host length of each; that of a layer-2 network is the subnet's own.
    pub subnets: Vec<ClusterSubnet>,
    /// Entries of `subnets` that cannot be used, each as a sentence that names the field; the network lives by the others.
    pub refused: Vec<String>,
    /// `joinSubnets`; empty where the default ones are used.
    pub join_subnets: Vec<Prefix>,
    /// `mtu`, bytes.
    pub mtu: Option<u32>,
    /// `transport` and its options.
    pub transport: UserTransport,
    /// The rest of a layer-2 network, as a NetworkAttachmentDefinition carries it.
    pub layer2: Layer2Extras,
}

impl UserNetwork {
    /// The join subnets of the families that the network has.
    #[must_use]
    pub fn join_subnets_in_force(&self) -> Vec<Prefix> {
        let families: BTreeSet<_> = self.subnets.iter().map(|s| s.cidr.family()).collect();
        let defaults = JOIN_SUBNETS.iter().filter_map(|text| text.parse().ok());
        let mut join: Vec<Prefix> = if self.join_subnets.is_empty() {
            defaults.collect()
        } else {
            self.join_subnets.clone()
        };
        join.retain(|join| families.contains(&join.family()));
        join
    }

    /// The network that it is by this name and id. What the object has no word for: where it is advertised.
    #[must_use]
    pub fn network(&self, name: NetworkName, id: u16) -> Network {
        Network {
            name,
            id,
            topology: self.topology,
            layer2: None,
            subnets: self.subnets.clone(),
            join_subnets: self.join_subnets_in_force(),
            transport: self.transport.transport(),
            mtu: self.mtu,
            advertised: Advertised::default(),
        }
    }
}

/// What a NetworkAttachmentDefinition says of a layer-2 network beside its subnets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer2Extras {
    /// `ipam.lifecycle: Persistent`.
    pub persistent_ips: bool,
    /// `reservedSubnets`.
    pub reserved: Vec<String>,
    /// `infrastructureSubnets`.
    pub infrastructure: Vec<String>,
    /// `defaultGatewayIPs`.
    pub gateways: Vec<String>,
    /// `transitSubnet`, for which a ClusterUserDefinedNetwork has no field; empty: [`TRANSIT_SUBNETS`].
    pub transit: Vec<String>,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Annotation `k8s.ovn.org/multicast-enabled: "true"`.
    pub multicast: bool,
}

/// What an object of another feature of OVN-Kubernetes is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// One namespace.
    Namespace(String),
    /// The namespaces with these labels.
    Namespaces(LabelSelector),
    /// The ClusterUserDefinedNetworks that one of these selects by its labels.
    Networks(Vec<LabelSelector>),
    /// What cannot be read, and why.
    Unreadable(String),
}

/// One `k8s.ovn.org/v1` EgressIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressIp {
    /// `spec.namespaceSelector`, or why it cannot be read.
    pub namespaces: Result<LabelSelector, String>,
    /// `status.items`: which node has which address; entries that are incomplete or unreadable are left out.
    pub assigned: BTreeSet<(NodeName, IpAddr)>,
}
