//! RouteAdvertisements into `model::intent`.
//! In: one object. Out: the plain value, or a sentence that names the field.
//! Invariant: what the schema refuses is refused here too, for schemas older than ours.
//! Not here: which networks and nodes are meant (`plan-cluster`).

use model::intent as m;

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
        let target_vrf = match spec.target_vrf.as_deref() {
            None | Some("" | "default") => m::TargetVrf::Default,
            Some("auto") => m::TargetVrf::Auto,
            Some(name) => m::TargetVrf::Named(name.to_owned()),
        };
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
