//! `k8s.ovn.org/v1` EgressIP.
//! In: the object. Invariant: the schema is OVN-Kubernetes'. Not here: who assigns addresses to nodes (OVN-Kubernetes).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Addresses that pods have outside of the cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "EgressIP",
    plural = "egressips",
    singular = "egressip",
    shortname = "eip",
    status = "EgressIPStatus",
    printcolumn = r#"{"name":"EgressIPs","type":"string","jsonPath":".spec.egressIPs[*]"}"#,
    printcolumn = r#"{"name":"Assigned Node","type":"string","jsonPath":".status.items[*].node"}"#,
    printcolumn = r#"{"name":"Assigned EgressIPs","type":"string","jsonPath":".status.items[*].egressIP"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct EgressIPSpec {
    /// The addresses that are asked for.
    #[serde(rename = "egressIPs")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub egress_ips: Vec<String>,
    /// The namespaces of the pods.
    pub namespace_selector: LabelSelector,
    /// The pods; all where it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// Which node has which address. Not a status subresource: OVN-Kubernetes writes it with the object.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EgressIPStatus {
    /// One an address.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub items: Vec<EgressIPStatusItem>,
}

/// `status.items[]`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EgressIPStatusItem {
    /// Name of the node.
    pub node: String,
    /// The address.
    #[serde(rename = "egressIP")]
    pub egress_ip: String,
}
