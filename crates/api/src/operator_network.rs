//! `operator.openshift.io/v1` Network, as far as it speaks of no-overlay networks and BGP.
//! In: the object. Invariant: the rules are those of OpenShift's enhancement and of its public API; whatever else the
//! object says is kept. Not here: what the settings become (`settings`).

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_user_defined_network::{Routing, Switch};

/// The cluster's network, as its operator is asked for it; the one object is called `cluster`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    singular = "network"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(
    validation = Rule::new("!has(self.defaultNetwork) || !has(self.defaultNetwork.ovnKubernetesConfig) || !has(self.defaultNetwork.ovnKubernetesConfig.routeAdvertisements) || self.defaultNetwork.ovnKubernetesConfig.routeAdvertisements != 'Enabled' || (has(self.additionalRoutingCapabilities) && self.additionalRoutingCapabilities.providers.exists(p, p == 'FRR'))")
        .message("Route advertisements cannot be Enabled if 'FRR' routing capability provider is not available"),
    validation = Rule::new("!has(oldSelf.defaultNetwork) || !has(oldSelf.defaultNetwork.ovnKubernetesConfig) || !has(oldSelf.defaultNetwork.ovnKubernetesConfig.transport) || (has(self.defaultNetwork) && has(self.defaultNetwork.ovnKubernetesConfig) && has(self.defaultNetwork.ovnKubernetesConfig.transport))")
        .message("transport cannot be removed once set to a non-empty value"),
    validation = Rule::new("!has(self.defaultNetwork) || !has(self.defaultNetwork.ovnKubernetesConfig) || !has(self.defaultNetwork.ovnKubernetesConfig.transport) || self.defaultNetwork.ovnKubernetesConfig.transport == 'Geneve' || (has(oldSelf.defaultNetwork) && has(oldSelf.defaultNetwork.ovnKubernetesConfig) && has(oldSelf.defaultNetwork.ovnKubernetesConfig.transport))")
        .message("transport can only be set to Geneve after installation")
)]
pub struct NetworkSpec {
    /// What routes beside the network plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_routing_capabilities: Option<RoutingCapabilities>,
    /// The default network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_network: Option<DefaultNetwork>,
}

/// Annotation: a topology that `bgpTopology` does not know, `route-reflector` or `auto`.
pub const TOPOLOGY: &str = "noverlay.io/bgp-topology";

/// The object as keys of the daemons' configuration, in TOML; they replace those of the file. What the object does not say is
/// not in it.
///
/// # Errors
/// A sentence that names field and value: of the annotation.
pub fn settings_of(object: &Network) -> Result<String, String> {
    let spec = object.spec.default_network.as_ref();
    let Some(config) = spec.and_then(|network| network.ovn_kubernetes_config.as_ref()) else {
        return Ok(String::new());
    };
    let mut out = String::new();
    if let Some(transport) = config.transport {
        let word = match transport {
            Transport::NoOverlay => "no-overlay",
            Transport::Geneve => "geneve",
        };
        out.push_str(&format!("[default]\ntransport = \"{word}\"\n"));
    }
    if let Some(options) = &config.no_overlay_config {
        let snat = match options.outbound_snat {
            Switch::Enabled => "enabled",
            Switch::Disabled => "disabled",
        };
        let routing = match options.routing {
            Routing::Managed => "managed",
            Routing::Unmanaged => "unmanaged",
        };
        out.push_str(&format!(
            "[no-overlay]\noutbound-snat = \"{snat}\"\nrouting = \"{routing}\"\n"
        ));
    }
    if let Some(managed) = &config.bgp_managed_config {
        let BgpTopology::FullMesh = managed.bgp_topology;
        let annotations = object.metadata.annotations.as_ref();
        let topology = match annotations
            .and_then(|all| all.get(TOPOLOGY))
            .map(String::as_str)
        {
            None => "full-mesh",
            Some(word @ ("full-mesh" | "route-reflector" | "auto")) => word,
            Some(other) => {
                return Err(format!(
                    "metadata.annotations {TOPOLOGY} = {other:?}: allowed: full-mesh, route-reflector, auto"
                ));
            }
        };
        let number = managed.as_number.unwrap_or(64_512);
        out.push_str(&format!(
            "[bgp-managed]\ntopology = \"{topology}\"\nas-number = {number}\n"
        ));
    }
    if let Some(enabled) = config.route_advertisements {
        let enabled = enabled == RouteAdvertisementsEnablement::Enabled;
        out.push_str(&format!(
            "[ovnkubernetesfeature]\nenable-route-advertisements = {enabled}\n"
        ));
    }
    Ok(out)
}

/// `additionalRoutingCapabilities`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct RoutingCapabilities {
    /// Who brings them.
    #[schemars(length(min = 1, max = 1))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(x, self.exists_one(y, x == y))").message("providers must not be repeated")
    )]
    pub providers: Vec<RoutingProvider>,
}

/// `additionalRoutingCapabilities.providers[]`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingProvider {
    /// FRR under frr-k8s.
    #[serde(rename = "FRR")]
    Frr,
}

/// `defaultNetwork`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct DefaultNetwork {
    /// OVN-Kubernetes' own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovn_kubernetes_config: Option<OvnKubernetesConfig>,
}

/// `defaultNetwork.ovnKubernetesConfig`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(
    validation = Rule::new("has(self.noOverlayConfig) == (has(self.transport) && self.transport == 'NoOverlay')")
        .message("noOverlayConfig must be set if and only if transport is NoOverlay"),
    validation = Rule::new("!has(self.noOverlayConfig) || self.noOverlayConfig.routing != 'Managed' || has(self.bgpManagedConfig)")
        .message("bgpManagedConfig is required when noOverlayConfig.routing is Managed"),
    validation = Rule::new("!has(oldSelf.noOverlayConfig) || has(self.noOverlayConfig)")
        .message("noOverlayConfig cannot be removed once set"),
    validation = Rule::new("!has(self.transport) || self.transport != 'NoOverlay' || (has(self.routeAdvertisements) && self.routeAdvertisements == 'Enabled')")
        .message("routeAdvertisements must be Enabled when transport is NoOverlay")
)]
pub struct OvnKubernetesConfig {
    /// Whether RouteAdvertisements are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_advertisements: Option<RouteAdvertisementsEnablement>,
    /// How pods of different nodes reach each other; Geneve where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("transport can only be set at installation time"))]
    pub transport: Option<Transport>,
    /// Options of transport NoOverlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_overlay_config: Option<NoOverlayConfig>,
    /// The fabric of networks with routing Managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp_managed_config: Option<BgpManagedConfig>,
}

/// `ovnKubernetesConfig.routeAdvertisements`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAdvertisementsEnablement {
    /// No opinion: they are not.
    #[serde(rename = "")]
    Unset,
    /// They are.
    Enabled,
    /// They are not.
    Disabled,
}

/// `ovnKubernetesConfig.transport`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The physical network, by BGP.
    NoOverlay,
    /// The Geneve overlay.
    Geneve,
}

/// `ovnKubernetesConfig.noOverlayConfig`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NoOverlayConfig {
    /// Whether traffic that leaves the network bears the node's address; may change at any time.
    #[serde(rename = "outboundSNAT")]
    pub outbound_snat: Switch,
    /// Who makes the BGP configuration.
    #[x_kube(validation = Rule::new("self == oldSelf").message("routing is immutable once set"))]
    pub routing: Routing,
}

/// `ovnKubernetesConfig.bgpManagedConfig`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BgpManagedConfig {
    /// AS number of all nodes; 64512 where absent.
    #[serde(rename = "asNumber", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub as_number: Option<i64>,
    /// Who peers with whom.
    #[serde(rename = "bgpTopology")]
    pub bgp_topology: BgpTopology,
}

/// `bgpManagedConfig.bgpTopology`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum BgpTopology {
    /// Every node with every other one.
    FullMesh,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(config: serde_json::Value, topology: Option<&str>) -> Network {
        let annotations = topology.map(|word| json!({TOPOLOGY: word}));
        serde_json::from_value(json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "Network",
            "metadata": {"name": "cluster", "annotations": annotations},
            "spec": {"defaultNetwork": {"ovnKubernetesConfig": config}},
        }))
        .unwrap()
    }

    #[test]
    fn what_the_object_says_replaces_keys_and_what_it_does_not_say_is_absent() {
        let whole = json!({
            "routeAdvertisements": "Enabled", "transport": "NoOverlay",
            "noOverlayConfig": {"outboundSNAT": "Disabled", "routing": "Managed"},
            "bgpManagedConfig": {"bgpTopology": "FullMesh", "asNumber": 64999},
        });
        let text = "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"disabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64999\n[ovnkubernetesfeature]\nenable-route-advertisements = true\n";
        assert_eq!(settings_of(&network(whole.clone(), None)).unwrap(), text);
        let reflectors = text.replace("full-mesh", "route-reflector");
        let chosen = network(whole.clone(), Some("route-reflector"));
        assert_eq!(settings_of(&chosen).unwrap(), reflectors);
        let error = settings_of(&network(whole, Some("star"))).unwrap_err();
        assert!(
            error.contains("\"star\"")
                && error.contains("allowed: full-mesh, route-reflector, auto"),
            "{error}"
        );

        let little = json!({"bgpManagedConfig": {"bgpTopology": "FullMesh"}, "transport": "Geneve", "routeAdvertisements": ""});
        assert_eq!(
            settings_of(&network(little, None)).unwrap(),
            "[default]\ntransport = \"geneve\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64512\n[ovnkubernetesfeature]\nenable-route-advertisements = false\n"
        );
        assert_eq!(settings_of(&network(json!({}), None)).unwrap(), "");
    }
}
