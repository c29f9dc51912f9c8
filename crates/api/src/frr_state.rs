//! `frrk8s.metallb.io/v1beta1` FRRNodeState and BGPSessionState.
//! In and out: the objects. Invariant: fields, names and labels are frr-k8s's, so that its users find them.
//! Not here: FRR's own JSON (`frr-edge`).

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Label that names the node of a BGPSessionState.
pub const LABEL_NODE: &str = "frrk8s.metallb.io/node";
/// Label that names the peer.
pub const LABEL_PEER: &str = "frrk8s.metallb.io/peer";
/// Label that names the VRF.
pub const LABEL_VRF: &str = "frrk8s.metallb.io/vrf";

/// Nothing is asked for: the object is a report.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "frrk8s.metallb.io",
    version = "v1beta1",
    kind = "FRRNodeState",
    plural = "frrnodestates",
    singular = "frrnodestate",
    status = "FRRNodeStateStatus"
)]
pub struct FRRNodeStateSpec {}

/// What FRR on the node runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FRRNodeStateStatus {
    /// The running configuration, passwords taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_config: Option<String>,
    /// `success`, or `failed: ` and why objects do not make one configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_conversion_result: Option<String>,
    /// `success`, or what the reload tool said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload_result: Option<String>,
}

/// Nothing is asked for: the object is a report.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "frrk8s.metallb.io",
    version = "v1beta1",
    kind = "BGPSessionState",
    plural = "bgpsessionstates",
    singular = "bgpsessionstate",
    namespaced,
    status = "BGPSessionStateStatus",
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".status.node"}"#,
    printcolumn = r#"{"name":"Peer","type":"string","jsonPath":".status.peer"}"#,
    printcolumn = r#"{"name":"VRF","type":"string","jsonPath":".status.vrf"}"#,
    printcolumn = r#"{"name":"BGP","type":"string","jsonPath":".status.bgpStatus"}"#,
    printcolumn = r#"{"name":"BFD","type":"string","jsonPath":".status.bfdStatus"}"#
)]
pub struct BGPSessionStateSpec {}

/// One session.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BGPSessionStateStatus {
    /// Idle, Connect, Active, OpenSent, OpenConfirm or Established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp_status: Option<String>,
    /// Up, Down or N/A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd_status: Option<String>,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The VRF; empty is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}
