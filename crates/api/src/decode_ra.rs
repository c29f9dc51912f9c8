//! RouteAdvertisements into `model::intent`.
//! In: one object. Out: the plain value, or a sentence that names the field.
//! Invariant: what the schema refuses is refused here too, for schemas older than ours.
//! Not here: which networks and nodes are meant (`plan-cluster`).

use model::intent as m;
use serde::Serialize;
use serde_json::Value;

use crate::route_advertisements::{
    Advertisement, NetworkSelectionType, NetworkSelector, RouteAdvertisements,
};
use crate::selector;

impl TryFrom<&RouteAdvertisements> for m::RouteAdvertisements {
    type Error = String;

    fn try_from(object: &RouteAdvertisements) -> Result<Self, Self::Error> {
        let spec = &object.spec;
        let decode =
            |field: &str, s| selector::decode(s).map_err(|err| format!("spec.{field}: {err}"));
        let node_selector = decode("nodeSelector", &spec.node_selector)?;
        let pod_network = spec.advertisements.contains(&Advertisement::PodNetwork);
        if pod_network && !node_selector.is_empty() {
            return Err(
                "node selector has to select all nodes if pod network is advertised".to_owned(),
            );
        }
        let target_vrf = target_vrf_of(spec.target_vrf.as_deref());
        Ok(Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(0),
            created: crate::decode_network::seconds(object.metadata.creation_timestamp.as_ref()),
            target_vrf,
            networks: spec
                .network_selectors
                .iter()
                .map(network)
                .collect::<Result<_, _>>()?,
            node_selector,
            frr_selector: decode("frrConfigurationSelector", &spec.frr_configuration_selector)?,
            pod_network,
            egress_ip: spec.advertisements.contains(&Advertisement::EgressIp),
        })
    }
}

fn target_vrf_of(text: Option<&str>) -> m::TargetVrf {
    match text {
        None | Some("" | "default") => m::TargetVrf::Default,
        Some("auto") => m::TargetVrf::Auto,
        Some(name) => m::TargetVrf::Named(name.to_owned()),
    }
}

fn network(item: &NetworkSelector) -> Result<m::NetworkSelector, String> {
    match item.network_selection_type {
        NetworkSelectionType::DefaultNetwork => Ok(m::NetworkSelector::DefaultNetwork),
        NetworkSelectionType::ClusterUserDefinedNetworks
        | NetworkSelectionType::ClusterUserDefinedNetwork => {
            let inner = item.cluster_user_defined_network_selector.as_ref();
            let inner = inner
                .ok_or("spec.networkSelectors: clusterUserDefinedNetworkSelector is missing")?;
            selector::decode(&inner.network_selector)
                .map(m::NetworkSelector::ClusterUserDefinedNetworks)
                .map_err(|err| format!("spec.networkSelectors: {err}"))
        }
        other @ (NetworkSelectionType::PrimaryUserDefinedNetworks
        | NetworkSelectionType::SecondaryUserDefinedNetworks
        | NetworkSelectionType::NetworkAttachmentDefinitions) => Err(format!(
            "unsupported network selection type {other:?}; allowed: DefaultNetwork, ClusterUserDefinedNetworks"
        )),
    }
}

/// What a RouteAdvertisements of any writer says of pods, a `DynamicObject` or JSON; also where the rest of it cannot be read.
#[must_use]
pub fn read_pod_advertisement(object: &impl Serialize) -> m::PodAdvertisement {
    let object = serde_json::to_value(object).unwrap_or_default();
    let kinds = object.pointer("/spec/advertisements");
    let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    let conditions = object.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let is_judgement = |condition: &&Value| {
        let of = condition.get("observedGeneration").and_then(Value::as_i64);
        condition.get("type").and_then(Value::as_str) == Some("Accepted")
            && (of.is_none() || of == generation)
    };
    let judged = conditions.find(is_judgement);
    let status = judged.and_then(|condition| condition.get("status"));
    let target_vrf = object.pointer("/spec/targetVRF").and_then(Value::as_str);
    m::PodAdvertisement {
        target_vrf: target_vrf_of(target_vrf),
        pod_network: kinds.any(|kind| kind.as_str() == Some("PodNetwork")),
        accepted: match status.and_then(Value::as_str) {
            Some("True") => Some(true),
            Some("False") => Some(false),
            None | Some(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use model::intent::{PodAdvertisement, TargetVrf};
    use serde_json::json;

    use super::read_pod_advertisement;

    #[test]
    fn what_is_said_of_pods_is_known_where_the_rest_cannot_be_read() {
        let of = |kinds: &[&str], vrf: &str, status: &str, observed: i64| {
            read_pod_advertisement(&json!({
                "metadata": {"name": "pods", "generation": 3},
                "spec": {"advertisements": kinds, "targetVRF": vrf, "nodeSelector": 7},
                "status": {"conditions": [{"type": "Complete", "status": "True", "observedGeneration": 3},
                    {"type": "Accepted", "status": status, "observedGeneration": observed}]}}))
        };
        let wanted = |target_vrf, pod_network, accepted| PodAdvertisement {
            target_vrf,
            pod_network,
            accepted,
        };
        let pods = ["EgressIP", "PodNetwork"];
        assert_eq!(
            of(&pods, "auto", "True", 3),
            wanted(TargetVrf::Auto, true, Some(true))
        );
        assert_eq!(
            of(&pods[..1], "", "False", 3),
            wanted(TargetVrf::Default, false, Some(false))
        );
        let red = TargetVrf::Named("red".to_owned());
        assert_eq!(of(&pods, "red", "True", 2), wanted(red, true, None));
        assert_eq!(
            of(&pods, "default", "Unknown", 3),
            wanted(TargetVrf::Default, true, None)
        );
        assert_eq!(
            read_pod_advertisement(&json!({})),
            wanted(TargetVrf::Default, false, None)
        );
    }
}
