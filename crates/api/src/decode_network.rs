//! ClusterUserDefinedNetworks, namespaces, NetworkAttachmentDefinitions and EgressIPs into `model::user_network`.
//! In: one object. Out: the plain value; of what cannot be served a sentence that names the field.
//! Invariant: what the schema refuses is refused here too, for schemas older than ours.
//! Not here: which namespaces are meant, names and ids (`plan-cluster`).

use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use model::address::{ClusterSubnet, Family};
use model::network::{Routing, Topology};
use model::user_network as m;
use model::{NetworkName, Prefix};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster_user_defined_network as cudn;
use crate::cluster_user_defined_network::ClusterUserDefinedNetwork;
use crate::egress_ip::EgressIP;
use crate::nad::{self, NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use crate::selector;
use crate::user_defined_network::{Cidr, DualStackCidrs, IpamLifecycle, Layer2, Layer3, Role};

/// Kind of the objects that own the NetworkAttachmentDefinitions of a network of users.
const OWNER: &str = "ClusterUserDefinedNetwork";

/// Seconds since 1970; 0 where it is not known.
pub(crate) fn seconds(time: Option<&Time>) -> i64 {
    time.map_or(0, |time| time.0.as_second())
}

impl From<&ClusterUserDefinedNetwork> for m::ClusterUserDefinedNetwork {
    fn from(object: &ClusterUserDefinedNetwork) -> Self {
        let namespaces = selector::decode(&object.spec.namespace_selector)
            .map_err(|err| format!("spec.namespaceSelector: {err}"));
        let network = network(&object.spec);
        let metadata = of_metadata(&object.metadata);
        let annotated = metadata.annotations.get(m::NO_OVERLAY);
        Self {
            namespaces,
            annotated: annotated.map(|text| annotated_transport(text, network.as_ref().ok())),
            network,
            ..metadata
        }
    }
}

/// A ClusterUserDefinedNetwork of any writer, a `DynamicObject` or JSON. Where it does not have the type's shape, `network`
/// says so, and whose it is, how old it is and what it selects stays known.
#[must_use]
pub fn read_cudn(object: &impl Serialize) -> m::ClusterUserDefinedNetwork {
    let object = serde_json::to_value(object).unwrap_or_default();
    let typed = serde_json::from_value::<ClusterUserDefinedNetwork>(object.clone());
    let decoded = typed.map(|typed| m::ClusterUserDefinedNetwork::from(&typed));
    decoded.unwrap_or_else(|why| {
        let field = |path: &str| object.pointer(path).cloned().unwrap_or_default();
        let selector = serde_json::from_value(field("/spec/namespaceSelector"));
        let selector = selector.map_err(|err| err.to_string());
        let metadata = of_metadata(&serde_json::from_value(field("/metadata")).unwrap_or_default());
        let why = format!("the object cannot be read: {why}");
        let asks = metadata.annotations.contains_key(m::NO_OVERLAY);
        m::ClusterUserDefinedNetwork {
            annotated: asks.then(|| Err(format!("annotation {}: {why}", m::NO_OVERLAY))),
            namespaces: selector
                .and_then(|selector| selector::decode(&selector))
                .map_err(|err| format!("spec.namespaceSelector: {err}")),
            network: Err(why),
            ..metadata
        }
    })
}

/// What the object is, whatever it asks for.
fn of_metadata(metadata: &ObjectMeta) -> m::ClusterUserDefinedNetwork {
    m::ClusterUserDefinedNetwork {
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or(0),
        created: seconds(metadata.creation_timestamp.as_ref()),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: finalizers(metadata),
        namespaces: Err("spec.namespaceSelector is missing".to_owned()),
        network: Err("spec.network is missing".to_owned()),
        annotated: None,
    }
}

/// What the annotation asks for; `network` is the one that it is asked for, where that can be read.
fn annotated_transport(
    text: &str,
    network: Option<&m::UserNetwork>,
) -> Result<m::UserTransport, String> {
    let key = m::NO_OVERLAY;
    let options: Annotated = serde_json::from_str(text).map_err(|err| {
        format!(
            "annotation {key} is {text:?}: {err}; allowed: JSON such as {{\"outboundSNAT\":\"Enabled\",\"routing\":\"Managed\"}} with outboundSNAT Enabled or Disabled, routing Managed or Unmanaged"
        )
    })?;
    let is_theirs =
        |network: &m::UserNetwork| matches!(network.transport, m::UserTransport::NoOverlay { .. });
    if network.is_some_and(is_theirs) {
        return Err(format!(
            "annotation {key} stands beside spec.network.transport NoOverlay, which is OVN-Kubernetes' to follow; allowed: one of both"
        ));
    }
    if network.is_none_or(|network| network.topology != Topology::Layer3 || !network.primary) {
        return Err(format!(
            "annotation {key} is only supported for Layer3 primary networks"
        ));
    }
    Ok(m::UserTransport::NoOverlay {
        outbound_snat: options.outbound_snat == cudn::Switch::Enabled,
        routing: routing(options.routing),
    })
}

/// The annotation's JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Annotated {
    #[serde(rename = "outboundSNAT")]
    outbound_snat: cudn::Switch,
    routing: cudn::Routing,
}

fn routing(word: cudn::Routing) -> Routing {
    match word {
        cudn::Routing::Managed => Routing::Managed,
        cudn::Routing::Unmanaged => Routing::Unmanaged,
    }
}

fn finalizers(metadata: &ObjectMeta) -> std::collections::BTreeSet<String> {
    metadata.finalizers.iter().flatten().cloned().collect()
}

/// The network, or why it is nobody's here.
fn network(spec: &cudn::ClusterUserDefinedNetworkSpec) -> Result<m::UserNetwork, String> {
    let network = &spec.network;
    if spec.uplinks.is_some() {
        return Err("spec.uplinks is not supported".to_owned());
    }
    let transport = transport(network)?;
    let out = match (network.topology, &network.layer3, &network.layer2) {
        (cudn::Topology::Layer3, Some(layer3), _) => of_layer3(layer3, transport)?,
        (cudn::Topology::Layer2, _, Some(layer2)) => of_layer2(layer2, transport)?,
        (cudn::Topology::Localnet, ..) => {
            return Err(
                "spec.network.topology Localnet is not supported; allowed: Layer2, Layer3"
                    .to_owned(),
            );
        }
        (cudn::Topology::Layer3, None, _) => {
            return Err("spec.network.layer3 is missing, topology is Layer3".to_owned());
        }
        (cudn::Topology::Layer2, _, None) => {
            return Err("spec.network.layer2 is missing, topology is Layer2".to_owned());
        }
    };
    let is_no_overlay = matches!(out.transport, m::UserTransport::NoOverlay { .. });
    if is_no_overlay && (out.topology != Topology::Layer3 || !out.primary) {
        return Err(
            "spec.network.transport NoOverlay is only supported for Layer3 primary networks"
                .to_owned(),
        );
    }
    Ok(out)
}

fn transport(network: &cudn::Network) -> Result<m::UserTransport, String> {
    match network.transport {
        None => Ok(m::UserTransport::Unset),
        Some(cudn::Transport::Geneve) => Ok(m::UserTransport::Geneve),
        Some(cudn::Transport::Evpn) => Err(
            "spec.network.transport EVPN is not supported; allowed: Geneve, NoOverlay".to_owned(),
        ),
        Some(cudn::Transport::NoOverlay) => {
            let options = match (&network.no_overlay, &network.no_overlay_options) {
                (Some(options), None) | (None, Some(options)) => options,
                _ => {
                    return Err("spec.network.transport NoOverlay needs exactly one of noOverlay and noOverlayOptions".to_owned());
                }
            };
            Ok(m::UserTransport::NoOverlay {
                outbound_snat: options.outbound_snat == cudn::Switch::Enabled,
                routing: routing(options.routing),
            })
        }
    }
}

fn of_layer3(layer3: &Layer3, transport: m::UserTransport) -> Result<m::UserNetwork, String> {
    let subnets = layer3.subnets.iter().enumerate().map(|(at, subnet)| {
        let field = format!("spec.network.layer3.subnets[{at}]");
        let cidr = prefix(&subnet.cidr, &format!("{field}.cidr"))?;
        let (default, longest) = match cidr.family() {
            Family::V4 => (24, 31),
            Family::V6 => (64, 127),
        };
        let host_len = subnet
            .host_subnet
            .map_or(Some(default), |len| u8::try_from(len).ok());
        let host_len = host_len.filter(|len| *len > cidr.bits() && *len <= longest);
        let host_len = host_len.ok_or_else(|| {
            let said = subnet.host_subnet.map_or_else(
                || format!("absent, which is {default}"),
                |len| len.to_string(),
            );
            format!(
                "{field}.hostSubnet is {said}; allowed: {} to {longest}",
                cidr.bits() + 1
            )
        })?;
        Ok(ClusterSubnet { cidr, host_len })
    });
    // One that is added to a running network and is wrong can never be taken away again: it costs itself.
    let (mut good, mut refused) = (Vec::new(), Vec::<String>::new());
    for subnet in subnets {
        match subnet {
            Ok(subnet) => good.push(subnet),
            Err(why) => refused.push(why),
        }
    }
    if let Some(why) = refused.first().filter(|_| good.is_empty()) {
        return Err(why.clone());
    }
    Ok(m::UserNetwork {
        topology: Topology::Layer3,
        primary: layer3.role == Role::Primary,
        subnets: good,
        refused,
        join_subnets: join(layer3.join_subnets.as_ref(), "layer3")?,
        mtu: mtu(layer3.mtu),
        transport,
        layer2: m::Layer2Extras::default(),
    })
}

fn of_layer2(layer2: &Layer2, transport: m::UserTransport) -> Result<m::UserNetwork, String> {
    let listed = layer2.subnets.iter().flat_map(|list| &list.0);
    let subnets = listed.enumerate().map(|(at, subnet)| {
        let cidr = prefix(subnet, &format!("spec.network.layer2.subnets[{at}]"))?;
        let host_len = cidr.bits();
        Ok(ClusterSubnet { cidr, host_len })
    });
    let texts = |list: &Option<Vec<Cidr>>| list.iter().flatten().map(|c| c.0.clone()).collect();
    let lifecycle = layer2.ipam.as_ref().and_then(|ipam| ipam.lifecycle);
    Ok(m::UserNetwork {
        topology: Topology::Layer2,
        primary: layer2.role == Role::Primary,
        subnets: subnets.collect::<Result<_, String>>()?,
        refused: Vec::new(),
        join_subnets: join(layer2.join_subnets.as_ref(), "layer2")?,
        mtu: mtu(layer2.mtu),
        transport,
        layer2: m::Layer2Extras {
            persistent_ips: lifecycle == Some(IpamLifecycle::Persistent),
            reserved: texts(&layer2.reserved_subnets),
            infrastructure: texts(&layer2.infrastructure_subnets),
            gateways: layer2
                .default_gateway_ips
                .as_ref()
                .map(|list| list.0.clone())
                .unwrap_or_default(),
            transit: Vec::new(),
        },
    })
}

fn mtu(mtu: Option<i32>) -> Option<u32> {
    mtu.and_then(|mtu| u32::try_from(mtu).ok())
}

fn join(list: Option<&DualStackCidrs>, of: &str) -> Result<Vec<Prefix>, String> {
    let list = list.into_iter().flat_map(|list| &list.0).enumerate();
    list.map(|(at, cidr)| prefix(cidr, &format!("spec.network.{of}.joinSubnets[{at}]")))
        .collect()
}

fn prefix(cidr: &Cidr, field: &str) -> Result<Prefix, String> {
    let parsed: Result<Prefix, _> = cidr.0.parse();
    parsed.map_err(|err| format!("{field}: {err}"))
}

/// A namespace.
#[must_use]
pub fn decode_namespace(object: &KubeNamespace) -> m::Namespace {
    m::Namespace {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        multicast: object
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get("k8s.ovn.org/multicast-enabled"))
            .is_some_and(|value| value == "true"),
    }
}

/// A NetworkAttachmentDefinition, whatever its configuration says.
fn decode_attachment(object: &NetworkAttachmentDefinition) -> m::Attachment {
    let metadata = &object.metadata;
    let config = object.spec.config.clone().unwrap_or_default();
    let owners = metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|o| o.controller == Some(true) && o.kind == OWNER);
    let (described, undescribed) = match nad::described(&config) {
        Ok(network) => (Some(network), None),
        Err(why) => (None, Some(why)),
    };
    m::Attachment {
        uid: metadata.uid.clone().unwrap_or_default(),
        created: seconds(metadata.creation_timestamp.as_ref()),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        finalizers: finalizers(metadata),
        owner: owners.next().map(|o| o.uid.clone()),
        deleting: metadata.deletion_timestamp.is_some(),
        network: network_of(&config),
        described,
        undescribed,
        config,
    }
}

/// A NetworkAttachmentDefinition of any writer, a `DynamicObject` or JSON. Whose it is, and what is stored in it, is known also
/// where its spec is of another shape, or not there.
#[must_use]
pub fn read_attachment(object: &impl Serialize) -> m::Attachment {
    let object = serde_json::to_value(object).unwrap_or_default();
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let typed = serde_json::from_value(object).or_else(|_| {
        serde_json::from_value(metadata).map(|metadata| NetworkAttachmentDefinition {
            metadata,
            spec: NetworkAttachmentDefinitionSpec::default(),
        })
    });
    typed
        .map(|typed| decode_attachment(&typed))
        .unwrap_or_default()
}

/// The network that a configuration names, and whether it is its pods' main one.
fn network_of(config: &str) -> Option<(NetworkName, bool)> {
    let config: Value = serde_json::from_str(config).ok()?;
    if config.get("type")?.as_str()? != crate::nad::CNI {
        return None;
    }
    let primary = config.get("role").and_then(Value::as_str) == Some("primary");
    Some((config.get("name")?.as_str()?.into(), primary))
}

/// An EgressIP of any writer, a `DynamicObject` or JSON. Who has which address is known also where the selector is of another
/// shape.
#[must_use]
pub fn read_egress_ip(object: &impl Serialize) -> m::EgressIp {
    let object = serde_json::to_value(object).unwrap_or_default();
    let items = object.pointer("/status/items").and_then(Value::as_array);
    let items = items.into_iter().flatten().filter_map(|item| {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let node = text("node").filter(|node| !node.is_empty())?;
        Some((node.into(), text("egressIP")?.parse().ok()?))
    });
    let typed = serde_json::from_value::<EgressIP>(object.clone());
    m::EgressIp {
        assigned: items.collect(),
        namespaces: match typed {
            Ok(typed) => selector::decode(&typed.spec.namespace_selector)
                .map_err(|err| format!("spec.namespaceSelector: {err}")),
            Err(err) => Err(format!("the object cannot be read: {err}")),
        },
    }
}

#[cfg(test)]
mod tests;
