//! `k8s.ovn.org/v1` ClusterUserDefinedNetwork.
//! In and out: the object. Invariant: the schema takes what OVN-Kubernetes' takes, and both spellings of the options of a
//! network without overlay; a network never changes but for layer-3 subnets that are added.
//! Not here: what a network leads to (`plan-cluster`); EVPN and Localnet, whose fields are carried and left alone.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::user_defined_network::{
    Cidr, DualStackCidrs, Ipam, Layer2, Layer3, NetworkStatus, opaque, ruled,
};

/// A network of the namespaces that it selects.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "ClusterUserDefinedNetwork",
    plural = "clusteruserdefinednetworks",
    singular = "clusteruserdefinednetwork",
    shortname = "cudn",
    status = "NetworkStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.uplinks) || (self.network.topology == 'Layer2' && has(self.network.layer2) && self.network.layer2.role == 'Primary') || (self.network.topology == 'Layer3' && has(self.network.layer3) && self.network.layer3.role == 'Primary')")
        .message("spec.uplinks is supported only for primary Layer2 and Layer3 networks"),
    validation = Rule::new("!has(self.uplinks) || !has(self.network.transport) || self.network.transport != 'EVPN'")
        .message("spec.uplinks is not supported with EVPN transport"),
    validation = Rule::new("has(self.uplinks) == has(oldSelf.uplinks) && (!has(self.uplinks) || self.uplinks == oldSelf.uplinks)")
        .message("uplinks is immutable"),
    validation = Rule::new("!has(self.encapsulation)")
        .message("encapsulation is not supported; for mode None use spec.network.transport NoOverlay with spec.network.noOverlay (outboundSNAT and routing), for mode Geneve leave it out")
)]
pub struct ClusterUserDefinedNetworkSpec {
    /// The namespaces whose pods are in it.
    pub namespace_selector: LabelSelector,
    /// Names of Uplinks; kept as they are, not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub uplinks: Option<Vec<UplinkName>>,
    /// The network.
    pub network: Network,
    /// Refused: the name of `transport` in an early draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "opaque")]
    pub encapsulation: Option<serde_json::Map<String, serde_json::Value>>,
}

/// `spec.network`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.topology == 'Layer3') == has(self.layer3)")
        .message("spec.layer3 is required when topology is Layer3 and forbidden otherwise"),
    validation = Rule::new("(self.topology == 'Layer2') == has(self.layer2)")
        .message("spec.layer2 is required when topology is Layer2 and forbidden otherwise"),
    validation = Rule::new("(self.topology == 'Localnet') == has(self.localnet)")
        .message("spec.localnet is required when topology is Localnet and forbidden otherwise"),
    validation = Rule::new("has(self.transport) == has(oldSelf.transport) && (!has(self.transport) || self.transport == oldSelf.transport)")
        .message("Transport is immutable"),
    validation = Rule::new("has(self.noOverlay) == has(oldSelf.noOverlay) && (!has(self.noOverlay) || self.noOverlay == oldSelf.noOverlay)")
        .message("NoOverlay is immutable"),
    validation = Rule::new("has(self.noOverlayOptions) == has(oldSelf.noOverlayOptions) && (!has(self.noOverlayOptions) || self.noOverlayOptions == oldSelf.noOverlayOptions)")
        .message("NoOverlayOptions is immutable"),
    validation = Rule::new("!has(self.transport) || self.transport != 'NoOverlay' || (self.topology == 'Layer3' && has(self.layer3) && self.layer3.role == 'Primary')")
        .message("transport 'NoOverlay' is only supported for Layer3 primary networks"),
    validation = Rule::new("(has(self.transport) && self.transport == 'NoOverlay') == (has(self.noOverlayOptions) || has(self.noOverlay))")
        .message("noOverlayOptions is required if and only if transport is 'NoOverlay'"),
    validation = Rule::new("!has(self.transport) || self.transport != 'NoOverlay' || has(self.noOverlay) || has(self.noOverlayOptions)")
        .message("spec.noOverlay is required when type transport is 'NoOverlay'"),
    validation = Rule::new("!has(self.noOverlay) || (has(self.transport) && self.transport == 'NoOverlay')")
        .message("spec.noOverlay is forbidden when transport type is not 'NoOverlay'"),
    validation = Rule::new("!has(self.noOverlay) || !has(self.noOverlayOptions)")
        .message("noOverlay and noOverlayOptions are two spellings of one field, only one of them can be used"),
    validation = Rule::new("!has(self.transport) || self.transport != 'EVPN' || (self.topology == 'Layer2' && has(self.layer2) && self.layer2.role == 'Primary') || (self.topology == 'Layer3' && has(self.layer3) && self.layer3.role == 'Primary')")
        .message("transport 'EVPN' is only supported for Layer2 or Layer3 primary networks"),
    validation = Rule::new("!has(self.transport) || self.transport != 'EVPN' || has(self.evpn)")
        .message("spec.evpn field is required when transport is 'EVPN'"),
    validation = Rule::new("!has(self.evpn) || (has(self.transport) && self.transport == 'EVPN')")
        .message("spec.evpn field is forbidden when transport is not 'EVPN'"),
    validation = Rule::new("!has(self.transport) || self.transport != 'EVPN' || self.topology != 'Layer2' || (has(self.evpn) && has(self.evpn.macVRF))")
        .message("spec.evpn.macVRF field is required for Layer2 topology when transport is 'EVPN'"),
    validation = Rule::new("!has(self.transport) || self.transport != 'EVPN' || self.topology != 'Layer3' || (has(self.evpn) && has(self.evpn.ipVRF))")
        .message("spec.evpn.ipVRF field is required for Layer3 topology when transport is 'EVPN'"),
    validation = Rule::new("!has(self.transport) || self.transport != 'EVPN' || self.topology != 'Layer3' || !has(self.evpn) || !has(self.evpn.macVRF)")
        .message("spec.evpn.macVRF field is forbidden for Layer3 topology when transport is 'EVPN'")
)]
pub struct Network {
    /// The kind of network.
    #[x_kube(validation = Rule::new("self == oldSelf").message("Topology is immutable"))]
    pub topology: Topology,
    /// For Layer3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer3: Option<Layer3>,
    /// For Layer2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Layer2 is immutable"))]
    pub layer2: Option<Layer2>,
    /// For Localnet; kept as it is, not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Localnet is immutable"))]
    pub localnet: Option<Localnet>,
    /// How pods of different nodes reach each other; Geneve where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Options of transport NoOverlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_overlay: Option<NoOverlay>,
    /// The same in the spelling of the design document; one of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_overlay_options: Option<NoOverlay>,
    /// Options of transport EVPN; kept as they are, not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evpn: Option<Evpn>,
}

/// Topologies of a ClusterUserDefinedNetwork.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One layer-2 segment for the whole cluster.
    Layer2,
    /// A subnet for each node, routed between them.
    Layer3,
    /// A network outside of the cluster.
    Localnet,
}

/// `transport`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The Geneve overlay.
    Geneve,
    /// The physical network, by BGP.
    NoOverlay,
    /// VXLAN, by BGP's EVPN; left to OVN-Kubernetes.
    #[serde(rename = "EVPN")]
    Evpn,
}

/// `noOverlay` and `noOverlayOptions`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NoOverlay {
    /// Whether traffic that leaves the network bears the node's address.
    #[serde(rename = "outboundSNAT")]
    pub outbound_snat: Switch,
    /// Who makes the BGP configuration.
    pub routing: Routing,
}

/// On or off.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// On.
    Enabled,
    /// Off.
    Disabled,
}

/// `routing`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// The cluster-manager.
    Managed,
    /// The admin.
    Unmanaged,
}

ruled!(
    /// Name of an Uplink.
    UplinkName(String) = {
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
    }
);

/// `localnet`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(!has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode == 'Enabled') == has(self.subnets)")
        .message("Subnets is required with ipam.mode is Enabled or unset, and forbidden otherwise"),
    validation = Rule::new("!has(self.excludeSubnets) || has(self.subnets)")
        .message("excludeSubnets must be unset when subnets is unset"),
    validation = Rule::new("!has(self.mtu) || self.mtu >= 1280 || !has(self.subnets) || !self.subnets.exists(s, isCIDR(s) && cidr(s).ip().family() == 6)")
        .message("MTU should be greater than or equal to 1280 when an IPv6 subnet is used")
)]
pub struct Localnet {
    /// Always Secondary.
    pub role: LocalnetRole,
    /// The bridge mapping.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[^,:]+$')").message("physicalNetworkName cannot contain `,` or `:` characters"))]
    pub physical_network_name: String,
    /// The ranges of pod addresses, one a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnets: Option<DualStackCidrs>,
    /// What pods do not get of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 25))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub exclude_subnets: Option<Vec<Cidr>>,
    /// How pods get their addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<Ipam>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65_536))]
    pub mtu: Option<i32>,
    /// The VLAN of its packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
}

/// `localnet.role`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalnetRole {
    /// Beside the pod's main network.
    Secondary,
}

/// `localnet.vlan`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("(self.mode == 'Access') == has(self.access)")
        .message("vlan access config is required when vlan mode is 'Access', and forbidden otherwise")
)]
pub struct Vlan {
    /// The mode of the port.
    pub mode: VlanMode,
    /// For Access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessVlan>,
}

/// `localnet.vlan.mode`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// One VLAN, packets of pods untagged.
    Access,
}

/// `localnet.vlan.access`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct AccessVlan {
    /// The VLAN.
    #[schemars(range(min = 1, max = 4094))]
    pub id: i32,
}

/// `evpn`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.macVRF) || has(self.ipVRF)")
        .message("at least one of macVRF or ipVRF must be specified"),
    validation = Rule::new("!has(self.macVRF) || !has(self.ipVRF) || self.macVRF.vni != self.ipVRF.vni")
        .message("macVRF and ipVRF must use different VNIs")
)]
pub struct Evpn {
    /// Name of the VTEP.
    #[schemars(length(min = 1))]
    pub vtep: String,
    /// The layer-2 VNI.
    #[serde(rename = "macVRF", default, skip_serializing_if = "Option::is_none")]
    pub mac_vrf: Option<EvpnVrf>,
    /// The layer-3 VNI.
    #[serde(rename = "ipVRF", default, skip_serializing_if = "Option::is_none")]
    pub ip_vrf: Option<EvpnVrf>,
}

/// `evpn.macVRF` and `evpn.ipVRF`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EvpnVrf {
    /// Its VXLAN network identifier.
    #[schemars(range(min = 1, max = 16_777_215))]
    pub vni: i32,
    /// Its route target, where it is not made from AS number and VNI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_target: Option<RouteTarget>,
}

ruled!(
    /// A route target (RFC 4360 section 4): `ASN:number`, `IPv4:number` or `*:number`.
    RouteTarget(String) = {
        "type": "string",
        "maxLength": 21,
        "x-kubernetes-validations": [
            {"rule": "size(self.split(':')) == 2", "message": "RT must contain exactly one colon"},
            {"rule": "size(self.split(':')) != 2 || self.split(':')[0] == '*' || isIP(self.split(':')[0]) || self.matches('^[0-9]+:')",
             "message": "RT global administrator must be either '*', an IPv4 address, or a number"},
            {"rule": "size(self.split(':')) != 2 || self.matches(':[0-9]+$')",
             "message": "RT local administrator must be a number"},
            {"rule": "!self.matches('^[*]:[0-9]+$') || uint(self.split(':')[1]) <= 4294967295u",
             "message": "RT with wildcard global administrator must have format *:OPQR where OPQR <= 4294967295"},
            {"rule": "!self.matches('^[0-9.]*[.][0-9.]*:[0-9]+$') || uint(self.split(':')[1]) <= 65535u",
             "message": "RT with IPv4 global administrator must have format A.B.C.D:MN where MN <= 65535"},
            {"rule": "!self.matches('^[0-9]+:[0-9]+$') || uint(self.split(':')[0]) <= 65535u || (uint(self.split(':')[0]) <= 4294967295u && uint(self.split(':')[1]) <= 65535u)",
             "message": "RT with 4-byte ASN global administrator must have format GHJK:MN where GHJK <= 4294967295 and MN <= 65535"},
            {"rule": "!self.matches('^[0-9]+:[0-9]+$') || uint(self.split(':')[0]) > 65535u || uint(self.split(':')[1]) <= 4294967295u",
             "message": "RT with 2-byte ASN global administrator must have format EF:OPQR where EF <= 65535 and OPQR <= 4294967295"}
        ]
    }
);
