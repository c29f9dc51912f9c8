//! `k8s.ovn.org/v1` RouteAdvertisements.
//! In and out: the object. Invariant: the schema's rules and messages are OVN-Kubernetes', plus the singular selector type.
//! Not here: what it leads to (`plan-cluster`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Asks that routes of networks are advertised by BGP.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "RouteAdvertisements",
    plural = "routeadvertisements",
    singular = "routeadvertisements",
    shortname = "ra",
    status = "RouteAdvertisementsStatus",
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.status"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!self.advertisements.exists(i, i == 'PodNetwork') || ((!has(self.nodeSelector.matchLabels) || size(self.nodeSelector.matchLabels) == 0) && (!has(self.nodeSelector.matchExpressions) || size(self.nodeSelector.matchExpressions) == 0))")
        .message("If 'PodNetwork' is selected for advertisement, a 'nodeSelector' can't be specified as it needs to be advertised on all nodes"),
    validation = Rule::new("!self.networkSelectors.exists(i, !(i.networkSelectionType in ['DefaultNetwork', 'ClusterUserDefinedNetworks', 'ClusterUserDefinedNetwork']))")
        .message("Only DefaultNetwork or ClusterUserDefinedNetworks can be selected"),
    validation = Rule::new("!(self.networkSelectors.exists(i, i.networkSelectionType == 'ClusterUserDefinedNetworks') && self.networkSelectors.exists(i, i.networkSelectionType == 'ClusterUserDefinedNetwork'))")
        .message("ClusterUserDefinedNetworks and ClusterUserDefinedNetwork are two spellings of one type, only one of them can be used")
)]
pub struct RouteAdvertisementsSpec {
    /// The VRF to advertise in: absent, empty or `default` is the default VRF, `auto` each network's own, else a VRF's name.
    #[serde(rename = "targetVRF", default, skip_serializing_if = "Option::is_none")]
    pub target_vrf: Option<String>,
    /// The networks to advertise.
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["networkSelectionType".into()]))]
    pub network_selectors: Vec<NetworkSelector>,
    /// The nodes to advertise from; must be empty where pod networks are advertised.
    pub node_selector: LabelSelector,
    /// The FRRConfigurations whose routers and neighbors are used.
    pub frr_configuration_selector: LabelSelector,
    /// What is advertised.
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(x, self.exists_one(y, x == y))").message("advertisements must not be repeated")
    )]
    pub advertisements: Vec<Advertisement>,
}

/// What can be advertised.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advertisement {
    /// The pod subnets.
    PodNetwork,
    /// The egress addresses.
    #[serde(rename = "EgressIP")]
    EgressIp,
}

/// One kind of networks.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.networkSelectionType) ? true : (self.networkSelectionType in ['ClusterUserDefinedNetworks', 'ClusterUserDefinedNetwork']) ? has(self.clusterUserDefinedNetworkSelector) : !has(self.clusterUserDefinedNetworkSelector)")
        .message("Inconsistent selector: both networkSelectionType ClusterUserDefinedNetworks and clusterUserDefinedNetworkSelector have to be set or neither"),
    validation = Rule::new("!has(self.networkSelectionType) ? true : self.networkSelectionType == 'PrimaryUserDefinedNetworks' ? has(self.primaryUserDefinedNetworkSelector) : !has(self.primaryUserDefinedNetworkSelector)")
        .message("Inconsistent selector: both networkSelectionType PrimaryUserDefinedNetworks and primaryUserDefinedNetworkSelector have to be set or neither"),
    validation = Rule::new("!has(self.networkSelectionType) ? true : self.networkSelectionType == 'SecondaryUserDefinedNetworks' ? has(self.secondaryUserDefinedNetworkSelector) : !has(self.secondaryUserDefinedNetworkSelector)")
        .message("Inconsistent selector: both networkSelectionType SecondaryUserDefinedNetworks and secondaryUserDefinedNetworkSelector have to be set or neither"),
    validation = Rule::new("!has(self.networkSelectionType) ? true : self.networkSelectionType == 'NetworkAttachmentDefinitions' ? has(self.networkAttachmentDefinitionSelector) : !has(self.networkAttachmentDefinitionSelector)")
        .message("Inconsistent selector: both networkSelectionType NetworkAttachmentDefinitions and networkAttachmentDefinitionSelector have to be set or neither")
)]
pub struct NetworkSelector {
    /// The kind.
    pub network_selection_type: NetworkSelectionType,
    /// For ClusterUserDefinedNetworks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_user_defined_network_selector: Option<ClusterUserDefinedNetworkSelector>,
    /// For PrimaryUserDefinedNetworks (not supported by RouteAdvertisements).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_user_defined_network_selector: Option<PrimaryUserDefinedNetworkSelector>,
    /// For SecondaryUserDefinedNetworks (not supported by RouteAdvertisements).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secondary_user_defined_network_selector: Option<NamespacedNetworkSelector>,
    /// For NetworkAttachmentDefinitions (not supported by RouteAdvertisements).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_definition_selector: Option<NamespacedNetworkSelector>,
}

/// Kinds of networks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkSelectionType {
    /// The cluster default network.
    #[default]
    DefaultNetwork,
    /// ClusterUserDefinedNetworks by label.
    ClusterUserDefinedNetworks,
    /// Another spelling of ClusterUserDefinedNetworks.
    ClusterUserDefinedNetwork,
    /// Primary UserDefinedNetworks by namespace.
    PrimaryUserDefinedNetworks,
    /// Secondary UserDefinedNetworks by namespace and label.
    SecondaryUserDefinedNetworks,
    /// NetworkAttachmentDefinitions by namespace and label.
    NetworkAttachmentDefinitions,
}

/// Selects ClusterUserDefinedNetworks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUserDefinedNetworkSelector {
    /// By their labels.
    pub network_selector: LabelSelector,
}

/// Selects primary UserDefinedNetworks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryUserDefinedNetworkSelector {
    /// By the labels of their namespaces.
    pub namespace_selector: LabelSelector,
}

/// Selects namespaced networks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedNetworkSelector {
    /// By the labels of their namespaces.
    pub namespace_selector: LabelSelector,
    /// By their labels.
    pub network_selector: LabelSelector,
}

/// What came of it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RouteAdvertisementsStatus {
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// `Accepted` and `Complete`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// `spec` of a RouteAdvertisements of ours: without a target VRF.
#[must_use]
pub fn spec_of(ra: &model::intent::RouteAdvertisements) -> serde_json::Value {
    let selectors = ra.networks.iter().map(|network| match network {
        model::intent::NetworkSelector::DefaultNetwork => {
            serde_json::json!({"networkSelectionType": "DefaultNetwork"})
        }
        model::intent::NetworkSelector::ClusterUserDefinedNetworks(selector) => serde_json::json!({
            "networkSelectionType": "ClusterUserDefinedNetworks",
            "clusterUserDefinedNetworkSelector": {"networkSelector": crate::selector::encode(selector)},
        }),
    });
    serde_json::json!({
        "advertisements": ["PodNetwork"],
        "networkSelectors": selectors.collect::<Vec<_>>(),
        "nodeSelector": crate::selector::encode(&ra.node_selector),
        "frrConfigurationSelector": crate::selector::encode(&ra.frr_selector),
    })
}
