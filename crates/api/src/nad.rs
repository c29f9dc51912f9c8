//! `k8s.cni.cncf.io/v1` NetworkAttachmentDefinition.
//! In and out: the object, and the configuration of a network as JSON text.
//! Invariant: `spec.config` is written whole, and only in objects of ours.
//! Not here: which objects there are (`plan-cluster`).

use std::collections::BTreeSet;

use kube::{CustomResource, KubeSchema};
use model::address::{ClusterSubnet, Family};
use model::network::{Routing, Topology};
use model::user_network::{Layer2Extras, UserNetwork, UserTransport};
use model::{NetworkName, ObjectKey, Prefix};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// `type` of the configuration: OVN-Kubernetes' plugin.
pub const CNI: &str = "ovn-k8s-cni-overlay";
/// `cniVersion`, OVN-Kubernetes' own.
const CNI_VERSION: &str = "1.1.0";
/// Every key that [`config`] writes.
const KEYS: [&str; 16] = [
    "cniVersion",
    "type",
    "name",
    "netAttachDefName",
    "role",
    "topology",
    "mtu",
    "subnets",
    "joinSubnet",
    "transitSubnet",
    "transport",
    "outboundSNAT",
    "allowPersistentIPs",
    "reservedSubnets",
    "infrastructureSubnets",
    "defaultGatewayIPs",
];
/// Join subnets of networks of users that say none (OVN-Kubernetes' defaults).
const JOIN_SUBNETS: &str = "100.65.0.0/16,fd99::/64";
/// Subnet of the transit router of a layer-2 network, for each family that it has (OVN-Kubernetes' defaults).
const TRANSIT_SUBNETS: [(Family, &str); 2] =
    [(Family::V4, "100.88.0.0/16"), (Family::V6, "fd97::/64")];

/// A network that pods can be attached to.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    singular = "network-attachment-definition",
    shortname = "net-attach-def",
    namespaced
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// The CNI configuration as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// `spec.config` of the cluster default network's object.
#[must_use]
pub fn default_config() -> String {
    r#"{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}"#.to_owned()
}

/// `spec.config` of one of a network's objects.
#[must_use]
pub fn config(name: &NetworkName, network: &UserNetwork, key: &ObjectKey) -> String {
    let is_layer3 = network.topology == Topology::Layer3;
    let role = if network.primary {
        "primary"
    } else {
        "secondary"
    };
    let topology = if is_layer3 { "layer3" } else { "layer2" };
    let mut map = Map::new();
    for (key, value) in [
        ("cniVersion", CNI_VERSION),
        ("type", CNI),
        ("name", name.as_str()),
        ("netAttachDefName", &key.to_string()),
        ("role", role),
        ("topology", topology),
    ] {
        map.insert(key.to_owned(), value.into());
    }
    for (key, value) in options(network) {
        map.insert(key.to_owned(), value);
    }
    Value::Object(map).to_string()
}

/// Keys that only some networks have.
fn options(network: &UserNetwork) -> impl Iterator<Item = (&'static str, Value)> {
    let is_layer3 = network.topology == Topology::Layer3;
    let subnets = network.subnets.iter().map(|subnet| match network.topology {
        Topology::Layer3 => subnet.to_string(),
        Topology::Layer2 => subnet.cidr.to_string(),
    });
    let own: Vec<String> = network
        .join_subnets
        .iter()
        .map(ToString::to_string)
        .collect();
    let join = if own.is_empty() {
        JOIN_SUBNETS.to_owned()
    } else {
        own.join(",")
    };
    let families: BTreeSet<Family> = network.subnets.iter().map(|s| s.cidr.family()).collect();
    let transit = TRANSIT_SUBNETS
        .iter()
        .filter(|(family, _)| families.contains(family));
    let transit = transit
        .map(|(_, subnet)| *subnet)
        .filter(|_| network.primary && !is_layer3);
    let transit = transit.collect::<Vec<_>>().join(",");
    let snat = match network.transport {
        UserTransport::NoOverlay { outbound_snat, .. } => Some(outbound_snat),
        UserTransport::Unset | UserTransport::Geneve => None,
    };
    let snat = snat.map(|on| if on { "enabled" } else { "disabled" });
    let extras = &network.layer2;
    let text = |text: String| (!text.is_empty()).then(|| text.into());
    let all = [
        ("mtu", network.mtu.map(Value::from)),
        ("subnets", text(subnets.collect::<Vec<_>>().join(","))),
        ("joinSubnet", network.primary.then(|| join.into())),
        ("transitSubnet", text(transit)),
        ("transport", snat.map(|_| "noOverlay".into())),
        ("outboundSNAT", snat.map(Value::from)),
        (
            "allowPersistentIPs",
            extras.persistent_ips.then(|| true.into()),
        ),
        ("reservedSubnets", text(extras.reserved.join(","))),
        (
            "infrastructureSubnets",
            text(extras.infrastructure.join(",")),
        ),
        ("defaultGatewayIPs", text(extras.gateways.join(","))),
    ];
    all.into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
}

/// The network that [`config`] was made of; `None` where another program has said more of it than that. Who routes is not in
/// it.
#[must_use]
pub(crate) fn described(config: &str) -> Option<UserNetwork> {
    let config: Map<String, Value> = serde_json::from_str(config).ok()?;
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    if text("type") != Some(CNI) || !config.keys().all(|key| KEYS.contains(&key.as_str())) {
        return None;
    }
    let topology = match text("topology")? {
        "layer3" => Topology::Layer3,
        "layer2" => Topology::Layer2,
        _ => return None,
    };
    let items = |key: &str| text(key).into_iter().flat_map(|list| list.split(','));
    let list = |key: &str| items(key).map(str::to_owned).collect::<Vec<_>>();
    let subnets = items("subnets").map(|subnet| subnet_of(subnet, topology));
    let join = items("joinSubnet").map(|join| join.parse().ok());
    Some(UserNetwork {
        topology,
        primary: text("role") == Some("primary"),
        subnets: subnets.collect::<Option<_>>()?,
        refused: Vec::new(),
        join_subnets: join.collect::<Option<_>>()?,
        mtu: match config.get("mtu") {
            None => None,
            Some(mtu) => Some(u32::try_from(mtu.as_u64()?).ok()?),
        },
        transport: match text("transport") {
            None => UserTransport::Unset,
            Some("noOverlay" | "no-overlay") => UserTransport::NoOverlay {
                outbound_snat: text("outboundSNAT") == Some("enabled"),
                routing: Routing::Unmanaged,
            },
            Some(_) => return None,
        },
        layer2: Layer2Extras {
            persistent_ips: config.get("allowPersistentIPs") == Some(&Value::Bool(true)),
            reserved: list("reservedSubnets"),
            infrastructure: list("infrastructureSubnets"),
            gateways: list("defaultGatewayIPs"),
        },
    })
}

/// A subnet as [`config`] writes it: that of a layer-3 network with its host length.
fn subnet_of(text: &str, topology: Topology) -> Option<ClusterSubnet> {
    let (cidr, host_len) = match topology {
        Topology::Layer3 => text.rsplit_once('/').map(|(cidr, len)| (cidr, Some(len)))?,
        Topology::Layer2 => (text, None),
    };
    let cidr: Prefix = cidr.parse().ok()?;
    let host_len = host_len.map_or(Some(cidr.bits()), |len| len.parse().ok());
    let longest = Prefix::host(cidr.network()).bits();
    let host_len = host_len.filter(|len| (cidr.bits()..=longest).contains(len))?;
    Some(ClusterSubnet { cidr, host_len })
}

/// The reference to the ClusterUserDefinedNetwork that is an object's controller.
#[must_use]
pub fn owner(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}
