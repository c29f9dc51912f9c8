//! `k8s.ovn.org/v1` UserDefinedNetwork, and the parts that it shares with ClusterUserDefinedNetwork.
//! In and out: the object. Invariant: the schema takes what OVN-Kubernetes' takes, and holds its rules in its words; rules
//! of fields that never change hold also where such a field is added or taken away.
//! Not here: transport, which a UserDefinedNetwork has none of (`cluster_user_defined_network`).

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A network of one namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "UserDefinedNetwork",
    plural = "userdefinednetworks",
    singular = "userdefinednetwork",
    shortname = "udn",
    namespaced,
    status = "NetworkStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.topology == 'Layer3') == has(self.layer3)")
        .message("spec.layer3 is required when topology is Layer3 and forbidden otherwise"),
    validation = Rule::new("(self.topology == 'Layer2') == has(self.layer2)")
        .message("spec.layer2 is required when topology is Layer2 and forbidden otherwise"),
    validation = Rule::new("!has(self.transport)")
        .message("transport is not supported by UserDefinedNetwork, only by ClusterUserDefinedNetwork (spec.network.transport)"),
    validation = Rule::new("!has(self.encapsulation)")
        .message("encapsulation is not supported; a network without overlay is a ClusterUserDefinedNetwork with spec.network.transport NoOverlay, and the default network has its transport in the configuration file")
)]
pub struct UserDefinedNetworkSpec {
    /// The kind of network.
    #[x_kube(validation = Rule::new("self == oldSelf").message("Topology is immutable"))]
    pub topology: NamespacedTopology,
    /// For Layer3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer3: Option<Layer3>,
    /// For Layer2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Layer2 is immutable"))]
    pub layer2: Option<Layer2>,
    /// Refused: a UserDefinedNetwork is always an overlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Refused: the name of `transport` in an early draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "opaque")]
    pub encapsulation: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Topologies of a UserDefinedNetwork.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacedTopology {
    /// One layer-2 segment for the whole cluster.
    Layer2,
    /// A subnet for each node, routed between them.
    Layer3,
}

/// What came of a network.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct NetworkStatus {
    /// Among them `NetworkCreated` and `TransportAccepted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What a network is to the pods of its namespaces.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Their main network.
    Primary,
    /// One beside it, where a pod asks for it.
    Secondary,
}

/// `layer3`.
// Rules that compare subnets with each other: a list in a list is a name for what is made once and not for each pair. Else
// the API server, which counts steps, would not get through 400 subnets.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.mtu) == has(oldSelf.mtu) && (!has(self.mtu) || self.mtu == oldSelf.mtu)")
        .message("mtu is immutable"),
    validation = Rule::new("has(self.joinSubnets) == has(oldSelf.joinSubnets) && (!has(self.joinSubnets) || self.joinSubnets == oldSelf.joinSubnets)")
        .message("joinSubnets is immutable"),
    validation = Rule::new("!has(self.joinSubnets) || self.role == 'Primary'")
        .message("JoinSubnets is only supported for Primary network"),
    validation = Rule::new("!has(self.mtu) || self.mtu >= 1280 || !self.subnets.exists(s, isCIDR(s.cidr) && cidr(s.cidr).ip().family() == 6)")
        .message("MTU should be greater than or equal to 1280 when IPv6 subnet is used"),
    validation = Rule::new("self.role != 'Secondary' || self.subnets == oldSelf.subnets")
        .message("Subnets is immutable for Secondary role"),
    validation = Rule::new("self.role != 'Secondary' || size(self.subnets) <= 2")
        .message("Secondary networks may define at most 2 subnets"),
    validation = Rule::new("self.role != 'Secondary' || size(self.subnets) != 2 || !self.subnets.all(s, isCIDR(s.cidr)) || cidr(self.subnets[0].cidr).ip().family() != cidr(self.subnets[1].cidr).ip().family()")
        .message("When 2 CIDRs are set for Secondary networks, they must be from different IP families"),
    validation = Rule::new("[self.subnets.map(s, s.cidr)].all(now, oldSelf.subnets.all(old, old.cidr in now))")
        .message("Removing existing subnets is not allowed"),
    validation = Rule::new("!self.subnets.all(s, isCIDR(s.cidr)) || [self.subnets.map(s, cidr(s.cidr))].all(l, l.all(a, l.exists_one(b, a.containsCIDR(b))))")
        .message("Subnets must not overlap or contain each other"),
    validation = Rule::new("[self.subnets.map(s, s.cidr)].all(l, l.all(c, l.indexOf(c) == l.lastIndexOf(c)))")
        .message("Subnets with same CIDR are not allowed"),
    validation = Rule::new("[self.subnets.map(s, s.cidr)].all(now, oldSelf.subnets.all(old, old in self.subnets || !(old.cidr in now)))")
        .message("hostSubnet is immutable"),
    validation = Rule::new("[false, true].all(six, !self.subnets.exists(s, s.cidr.contains(':') == six) || self.subnets.filter(s, s.cidr.contains(':') == six).map(s, has(s.hostSubnet) ? s.hostSubnet : 0).min() == self.subnets.filter(s, s.cidr.contains(':') == six).map(s, has(s.hostSubnet) ? s.hostSubnet : 0).max())")
        .message("Subnets from the same IP family must use the same hostSubnet value")
)]
pub struct Layer3 {
    /// Only primary networks are routed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("role is immutable"))]
    pub role: Role,
    /// Bytes; 1400 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65_536))]
    pub mtu: Option<i32>,
    /// The whole ranges of pod addresses; more can be added to a primary network, none is taken away.
    #[schemars(length(min = 1, max = 400))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub subnets: Vec<Layer3Subnet>,
    /// Subnets of the join switch, one a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_subnets: Option<DualStackCidrs>,
}

/// `layer3.subnets[]`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.hostSubnet) || !isCIDR(self.cidr) || self.hostSubnet > cidr(self.cidr).prefixLength()")
        .message("HostSubnet must be smaller than CIDR subnet"),
    validation = Rule::new("!has(self.hostSubnet) || !isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 6 || self.hostSubnet < 32")
        .message("HostSubnet must < 32 for ipv4 CIDR")
)]
pub struct Layer3Subnet {
    /// The range.
    pub cidr: Cidr,
    /// Length of a node's share; 24 (IPv4) or 64 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 127))]
    pub host_subnet: Option<i32>,
}

/// `layer2`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.subnets) || (has(self.ipam) && has(self.ipam.mode) && self.ipam.mode == 'Disabled')")
        .message("Subnets is required with ipam.mode is Enabled or unset"),
    validation = Rule::new("!has(self.subnets) || !has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode != 'Disabled'")
        .message("Subnets must be unset when ipam.mode is Disabled"),
    validation = Rule::new("self.role == 'Secondary' || !has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode != 'Disabled'")
        .message("Disabled ipam.mode is only supported for Secondary network"),
    validation = Rule::new("!has(self.joinSubnets) || self.role == 'Primary'")
        .message("JoinSubnets is only supported for Primary network"),
    validation = Rule::new("!has(self.mtu) || self.mtu >= 1280 || !has(self.subnets) || !self.subnets.exists(s, isCIDR(s) && cidr(s).ip().family() == 6)")
        .message("MTU should be greater than or equal to 1280 when IPv6 subnet is used"),
    validation = Rule::new("!has(self.defaultGatewayIPs) || self.role == 'Primary'")
        .message("defaultGatewayIPs is only supported for Primary network"),
    validation = Rule::new("!has(self.defaultGatewayIPs) || (has(self.subnets) && self.defaultGatewayIPs.all(i, isIP(i) && self.subnets.exists(s, isCIDR(s) && cidr(s).containsIP(i))))")
        .message("defaultGatewayIPs must belong to one of the subnets specified in the subnets field"),
    validation = Rule::new("!has(self.defaultGatewayIPs) || (has(self.subnets) && size(self.defaultGatewayIPs) == size(self.subnets))")
        .message("defaultGatewayIPs must be specified for all IP families"),
    validation = Rule::new("!has(self.reservedSubnets) || has(self.subnets)")
        .message("reservedSubnets must be unset when subnets is unset"),
    validation = Rule::new("!has(self.reservedSubnets) || self.role == 'Primary'")
        .message("reservedSubnets is only supported for Primary network"),
    validation = Rule::new("!has(self.reservedSubnets) || !has(self.subnets) || self.reservedSubnets.all(r, isCIDR(r) && self.subnets.exists(s, isCIDR(s) && cidr(s).containsCIDR(r)))")
        .message("reservedSubnets must be subnetworks of the networks specified in the subnets field"),
    validation = Rule::new("!has(self.reservedSubnets) || self.reservedSubnets.all(r, isCIDR(r) && cidr(r) == cidr(r).masked())")
        .message("reservedSubnets must be a masked network address (no host bits set)"),
    validation = Rule::new("!has(self.infrastructureSubnets) || has(self.subnets)")
        .message("infrastructureSubnets must be unset when subnets is unset"),
    validation = Rule::new("!has(self.infrastructureSubnets) || self.role == 'Primary'")
        .message("infrastructureSubnets is only supported for Primary network"),
    validation = Rule::new("!has(self.infrastructureSubnets) || !has(self.subnets) || self.infrastructureSubnets.all(n, isCIDR(n) && self.subnets.exists(s, isCIDR(s) && cidr(s).containsCIDR(n)))")
        .message("infrastructureSubnets must be subnetworks of the networks specified in the subnets field"),
    validation = Rule::new("!has(self.infrastructureSubnets) || self.infrastructureSubnets.all(n, isCIDR(n) && cidr(n) == cidr(n).masked())")
        .message("infrastructureSubnets must be a masked network address (no host bits set)"),
    validation = Rule::new("!has(self.infrastructureSubnets) || !has(self.defaultGatewayIPs) || self.defaultGatewayIPs.all(i, isIP(i) && self.infrastructureSubnets.exists(n, isCIDR(n) && cidr(n).containsIP(i)))")
        .message("defaultGatewayIPs have to belong to infrastructureSubnets"),
    validation = Rule::new("!has(self.infrastructureSubnets) || !has(self.reservedSubnets) || !self.infrastructureSubnets.exists(n, isCIDR(n) && self.reservedSubnets.exists(r, isCIDR(r) && (cidr(n).containsCIDR(r) || cidr(r).containsCIDR(n))))")
        .message("infrastructureSubnets and reservedSubnets must not overlap")
)]
pub struct Layer2 {
    /// Only primary networks are routed.
    pub role: Role,
    /// Bytes; 1400 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65_536))]
    pub mtu: Option<i32>,
    /// The ranges of pod addresses, one a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnets: Option<DualStackCidrs>,
    /// Addresses that are given only to pods that ask for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub reserved_subnets: Option<Vec<Cidr>>,
    /// Addresses that are the network's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub infrastructure_subnets: Option<Vec<Cidr>>,
    /// The gateway's addresses, one a family.
    #[serde(
        rename = "defaultGatewayIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub default_gateway_ips: Option<DualStackIps>,
    /// Subnets of the join switch, one a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_subnets: Option<DualStackCidrs>,
    /// How pods get their addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<Ipam>,
}

/// `ipam`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(self.lifecycle) || self.lifecycle != 'Persistent' || !has(self.mode) || self.mode == 'Enabled'")
        .message("lifecycle Persistent is only supported when ipam.mode is Enabled")
)]
#[schemars(extend("minProperties" = 1))]
pub struct Ipam {
    /// Whether pods get addresses of the subnets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<IpamMode>,
    /// How long a pod's address is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<IpamLifecycle>,
}

/// `ipam.mode`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpamMode {
    /// They do.
    Enabled,
    /// They bring their own.
    Disabled,
}

/// `ipam.lifecycle`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpamLifecycle {
    /// As long as the virtual machine lives.
    Persistent,
}

pub(crate) fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A string or list with rules of its own; each use has the schema in its place.
macro_rules! ruled {
    ($(#[$doc:meta])* $name:ident($inner:ty) = $schema:tt) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}
pub(crate) use ruled;

ruled!(
    /// An address range, `10.0.0.0/16` or `fd00::/48`.
    Cidr(String) = {
        "type": "string",
        "maxLength": 43,
        "x-kubernetes-validations": [{"rule": "isCIDR(self)", "message": "CIDR is invalid"}]
    }
);

ruled!(
    /// One range, or one of each family.
    DualStackCidrs(Vec<Cidr>) = {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": {
            "type": "string",
            "maxLength": 43,
            "x-kubernetes-validations": [{"rule": "isCIDR(self)", "message": "CIDR is invalid"}]
        },
        "x-kubernetes-validations": [{
            "rule": "size(self) != 2 || !self.all(s, isCIDR(s)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",
            "message": "When 2 CIDRs are set, they must be from different IP families"
        }]
    }
);

ruled!(
    /// One address, or one of each family.
    DualStackIps(Vec<String>) = {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": {
            "type": "string",
            "maxLength": 45,
            "x-kubernetes-validations": [{"rule": "isIP(self)", "message": "IP is invalid"}]
        },
        "x-kubernetes-validations": [{
            "rule": "size(self) != 2 || !self.all(i, isIP(i)) || ip(self[0]).family() != ip(self[1]).family()",
            "message": "When 2 IPs are set, they must be from different IP families"
        }]
    }
);
