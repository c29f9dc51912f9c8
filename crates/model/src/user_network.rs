//! Networks of users, and the objects around them, as plain values.
//! In: objects decoded by `api`. Out: input of `plan-cluster`.
//! Invariant: what is not served is here with its reason, never absent.
//! Not here: which namespaces a selector finds, ids, conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::{ClusterSubnet, Prefix};
use crate::names::{NetworkName, NodeName};
use crate::network::{Routing, Topology};
use crate::selector::{LabelSelector, Labels};

/// Prefix of the network's name of a ClusterUserDefinedNetwork.
pub const CUDN_PREFIX: &str = "cluster_udn_";

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
}

impl ClusterUserDefinedNetwork {
    /// Name of its network.
    #[must_use]
    pub fn network_name(&self) -> NetworkName {
        format!("{CUDN_PREFIX}{}", self.name).into()
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

/// A NetworkAttachmentDefinition as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachment {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.finalizers`.
    pub finalizers: BTreeSet<String>,
    /// uid of the ClusterUserDefinedNetwork that is its controller.
    pub owner: Option<String>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.config`, JSON text.
    pub config: String,
    /// `name` of the configuration, and whether its role is primary; `None` where it is no network of OVN-Kubernetes.
    pub network: Option<(NetworkName, bool)>,
    /// The network that the configuration describes, where it is whole. Who routes is not in it: `routing` is Unmanaged.
    pub described: Option<UserNetwork>,
}

/// One `k8s.ovn.org/v1` EgressIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressIp {
    /// `spec.namespaceSelector`, or why it cannot be read.
    pub namespaces: Result<LabelSelector, String>,
    /// `status.items`: which node has which address; entries that are incomplete or unreadable are left out.
    pub assigned: BTreeSet<(NodeName, IpAddr)>,
}
