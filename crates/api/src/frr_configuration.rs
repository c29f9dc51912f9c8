//! `frrk8s.metallb.io/v1beta1` FRRConfiguration, every field of it.
//! In and out: the object. Invariant: the same schema as frr-k8s's, so that an object means the same to both.
//! Not here: translation (`decode_frr`, `encode_frr`), merging (`frr`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A part of the FRR configuration of the nodes it selects.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "frrk8s.metallb.io",
    version = "v1beta1",
    kind = "FRRConfiguration",
    plural = "frrconfigurations",
    singular = "frrconfiguration",
    namespaced,
    status = "FRRConfigurationStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct FRRConfigurationSpec {
    /// BGP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<Bgp>,
    /// Text for FRR, put behind everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawConfig>,
    /// The nodes; empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
}

/// Never written by anybody.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct FRRConfigurationStatus {}

/// `spec.bgp`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Bgp {
    /// One a VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub routers: Option<Vec<Router>>,
    /// BFD profiles that the neighbors name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_profiles: Option<Vec<BfdProfile>>,
}

/// `spec.raw`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RawConfig {
    /// Ascending; ties are broken by the object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_config: Option<String>,
}

/// A BGP router.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// AS number.
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub asn: i64,
    /// Router id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// VRF; empty is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbors: Option<Vec<Neighbor>>,
    /// Prefixes to originate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<String>>,
    /// VRFs whose routes are imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<Vec<Import>>,
    /// EVPN; kept as it is, not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "opaque")]
    pub evpn: Option<serde_json::Map<String, serde_json::Value>>,
}

fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// An import of routes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// `default` or the name of a VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

/// A BGP neighbor.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Neighbor {
    /// AS number; exactly one of it and dynamicASN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub asn: Option<i64>,
    /// `internal` or `external`.
    #[serde(
        rename = "dynamicASN",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub dynamic_asn: Option<DynamicAsn>,
    /// AS number to show to this neighbor.
    #[serde(rename = "localASN", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub local_asn: Option<i64>,
    /// Source address or interface.
    #[serde(
        rename = "sourceaddress",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub source_address: Option<String>,
    /// Address; exactly one of it and interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Interface of an unnumbered neighbor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// TCP port, 179 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_384))]
    pub port: Option<i32>,
    /// Password in clear text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Secret that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub password_secret: Option<SecretReference>,
    /// Hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_time: Option<String>,
    /// Keepalive time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<String>,
    /// Time between attempts to connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("duration(self).getSeconds() >= 1 && duration(self).getSeconds() <= 65535").message("connect time should be between 1 seconds to 65535"),
        validation = Rule::new("duration(self).getMilliseconds() % 1000 == 0").message("connect time should contain a whole number of seconds")
    )]
    pub connect_time: Option<String>,
    /// The neighbor is more than one hop away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebgp_multi_hop: Option<bool>,
    /// Name of a BFD profile of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_profile: Option<String>,
    /// BGP graceful restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_graceful_restart: Option<bool>,
    /// What is advertised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_advertise: Option<ToAdvertise>,
    /// What is received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_receive: Option<ToReceive>,
    /// Without effect.
    #[serde(rename = "disableMP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "false_by_default")]
    pub disable_mp: Option<bool>,
    /// Both address families over one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "false_by_default")]
    pub dual_stack_address_family: Option<bool>,
    /// `unicast` (default) and `evpn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "address_families")]
    pub address_families: Option<Vec<String>>,
}

fn false_by_default(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "boolean", "default": false})
}

fn address_families(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 2, "default": ["unicast"], "items": {"type": "string", "enum": ["unicast", "evpn"]}})
}

/// AS of a neighbor by relation.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DynamicAsn {
    /// Ours.
    Internal,
    /// Any other.
    External,
}

/// A Secret by name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct SecretReference {
    /// Name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
    /// Ignored: the daemon's namespace is used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub namespace: String,
}

/// `toAdvertise`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToAdvertise {
    /// Which prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedOut>,
    /// Next hops to announce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<NextHop>,
    /// Local preference by prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_local_pref: Option<Vec<LocalPrefPrefixes>>,
    /// Communities by prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_community: Option<Vec<CommunityPrefixes>>,
}

/// `all` or `filtered`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AllowMode {
    /// Everything.
    All,
    /// Only what is listed.
    #[default]
    Filtered,
}

fn mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["all", "filtered"], "default": "filtered"})
}

/// Prefixes that may be advertised.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct AllowedOut {
    /// All of this object's, or those listed.
    #[serde(default)]
    #[schemars(schema_with = "mode")]
    pub mode: AllowMode,
    /// The list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<String>>,
}

/// Next hops.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct NextHop {
    /// For IPv4 routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "ipv4"))]
    pub ipv4: Option<String>,
    /// For IPv6 routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "ipv6"))]
    pub ipv6: Option<String>,
}

/// A local preference and its prefixes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalPrefPrefixes {
    /// Prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("format" = "cidr"))]
    pub prefixes: Option<Vec<String>>,
    /// The preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<i32>,
}

/// A community and its prefixes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct CommunityPrefixes {
    /// Prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("format" = "cidr"))]
    pub prefixes: Option<Vec<String>>,
    /// `a:b` or `large:a:b:c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub community: Option<String>,
}

/// `toReceive`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct ToReceive {
    /// Which prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedIn>,
}

/// Prefixes that may be received.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct AllowedIn {
    /// All, or those listed.
    #[serde(default)]
    #[schemars(schema_with = "mode")]
    pub mode: AllowMode,
    /// The list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<Vec<PrefixSelector>>,
}

/// A prefix with bounds of the length.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct PrefixSelector {
    /// The prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "cidr"))]
    pub prefix: Option<String>,
    /// At most this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub le: Option<i32>,
    /// At least this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub ge: Option<i32>,
}

/// A BFD profile; times in milliseconds.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BfdProfile {
    /// Name.
    pub name: String,
    /// Receive interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60_000))]
    pub receive_interval: Option<i32>,
    /// Transmit interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60_000))]
    pub transmit_interval: Option<i32>,
    /// Packets that may be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 255))]
    pub detect_multiplier: Option<i32>,
    /// Echo interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60_000))]
    pub echo_interval: Option<i32>,
    /// Echo mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo_mode: Option<bool>,
    /// Passive mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive_mode: Option<bool>,
    /// For multihop sessions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub minimum_ttl: Option<i32>,
}
