//! `k8s.cni.cncf.io/v1` NetworkAttachmentDefinition.
//! In and out: the object, and the configuration of a network as JSON text.
//! Invariant: `spec.config` is written whole, and only in objects of ours.
//! Not here: which objects there are (`plan-cluster`).

use std::collections::BTreeSet;

use kube::{CustomResource, KubeSchema};
use model::address::{ClusterSubnet, Family};
use model::network::{Routing, Topology};
use model::user_network::{
    JOIN_SUBNETS, Layer2Extras, TRANSIT_SUBNETS, Undescribed, UserNetwork, UserTransport,
};
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
        JOIN_SUBNETS.join(",")
    } else {
        own.join(",")
    };
    let transit = if network.primary && !is_layer3 {
        transit_subnets(network).join(",")
    } else {
        String::new()
    };
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

/// Subnets of the transit router of a layer-2 network: those that were said, else the default ones of its families.
fn transit_subnets(network: &UserNetwork) -> Vec<String> {
    let families: BTreeSet<Family> = network.subnets.iter().map(|s| s.cidr.family()).collect();
    let is_used = |text: &&str| {
        let subnet: Option<Prefix> = text.parse().ok();
        subnet.is_some_and(|subnet| families.contains(&subnet.family()))
    };
    if network.layer2.transit.is_empty() {
        let defaults = TRANSIT_SUBNETS.into_iter().filter(is_used);
        defaults.map(str::to_owned).collect()
    } else {
        network.layer2.transit.clone()
    }
}

/// The network that [`config`] was made of, or why there is none: another program has said more of it than that. Who routes
/// is not in it.
pub(crate) fn described(config: &str) -> Result<UserNetwork, Undescribed> {
    let wrong = |why: String| Undescribed::Config(format!("spec.config: {why}"));
    let config: Map<String, Value> =
        serde_json::from_str(config).map_err(|err| wrong(format!("no JSON object: {err}")))?;
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let said = |key: &str| {
        config
            .get(key)
            .map_or("absent".to_owned(), Value::to_string)
    };
    let refused =
        |key: &str, allowed: &str| wrong(format!("{key} is {}; allowed: {allowed}", said(key)));
    if text("type") != Some(CNI) {
        return Err(refused("type", CNI));
    }
    let transport = transport_of(&config)?;
    if let Some(key) = config.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(refused(key, "absent"));
    }
    let topology = match text("topology") {
        Some("layer3") => Topology::Layer3,
        Some("layer2") => Topology::Layer2,
        None | Some(_) => return Err(refused("topology", "layer2, layer3")),
    };
    let items = |key: &str| text(key).into_iter().flat_map(|list| list.split(','));
    let list = |key: &str| items(key).map(str::to_owned).collect::<Vec<_>>();
    let subnets = items("subnets").map(|subnet| subnet_of(subnet, topology));
    let subnets: Option<Vec<ClusterSubnet>> = subnets.collect();
    let join: Option<Vec<Prefix>> = items("joinSubnet").map(|join| join.parse().ok()).collect();
    let mtu = config.get("mtu");
    let number = mtu.map(|mtu| mtu.as_u64().and_then(|mtu| u32::try_from(mtu).ok()));
    Ok(UserNetwork {
        topology,
        primary: text("role") == Some("primary"),
        subnets: subnets.ok_or_else(|| refused("subnets", "subnets with commas between them"))?,
        refused: Vec::new(),
        join_subnets: join
            .ok_or_else(|| refused("joinSubnet", "subnets with commas between them"))?,
        mtu: match number {
            None => None,
            Some(None) => return Err(refused("mtu", "a number of bytes")),
            Some(number) => number,
        },
        transport,
        layer2: Layer2Extras {
            persistent_ips: config.get("allowPersistentIPs") == Some(&Value::Bool(true)),
            reserved: list("reservedSubnets"),
            infrastructure: list("infrastructureSubnets"),
            gateways: list("defaultGatewayIPs"),
            transit: list("transitSubnet"),
        },
    })
}

fn transport_of(config: &Map<String, Value>) -> Result<UserTransport, Undescribed> {
    match config.get("transport") {
        None => Ok(UserTransport::Unset),
        Some(Value::String(word)) if word == "noOverlay" || word == "no-overlay" => {
            let snat = config.get("outboundSNAT").and_then(Value::as_str);
            Ok(UserTransport::NoOverlay {
                outbound_snat: snat == Some("enabled"),
                routing: Routing::Unmanaged,
            })
        }
        Some(other) => Err(Undescribed::Transport(format!(
            "spec.config: transport is {other}; allowed: noOverlay, or absent"
        ))),
    }
}

/// Lengths of nodes' shares where none is said (OVN-Kubernetes' defaults).
const HOST_LENGTHS: (u8, u8) = (24, 64);

/// A subnet as [`config`] writes it: that of a layer-3 network with its host length, which OVN-Kubernetes leaves out where nobody said
/// one.
fn subnet_of(text: &str, topology: Topology) -> Option<ClusterSubnet> {
    let (cidr, host_len) = match topology {
        Topology::Layer3 if text.matches('/').count() == 2 => {
            text.rsplit_once('/').map(|(cidr, len)| (cidr, Some(len)))?
        }
        Topology::Layer3 | Topology::Layer2 => (text, None),
    };
    let cidr: Prefix = cidr.parse().ok()?;
    let unsaid = match (topology, cidr.family()) {
        (Topology::Layer2, _) => cidr.bits(),
        (Topology::Layer3, Family::V4) => HOST_LENGTHS.0,
        (Topology::Layer3, Family::V6) => HOST_LENGTHS.1,
    };
    let host_len = host_len.map_or(Some(unsaid), |len| len.parse().ok());
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
