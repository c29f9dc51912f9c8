//! `noverlay.io/v1alpha1` NodeRoutes: what one node really has, written by its agent.
//! In and out: the object, named after the node. Invariant: written on change only; lists are bounded.
//! Not here: the evaluation over all nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nothing is asked for: the object is a report.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "noverlay.io",
    version = "v1alpha1",
    kind = "NodeRoutes",
    plural = "noderoutes",
    singular = "noderoutes",
    status = "NodeRoutesStatus",
    printcolumn = r#"{"name":"Expected","type":"integer","jsonPath":".status.networks[0].expected"}"#,
    printcolumn = r#"{"name":"Kernel","type":"integer","jsonPath":".status.networks[0].inKernel"}"#,
    printcolumn = r#"{"name":"OVN","type":"integer","jsonPath":".status.networks[0].inOvn"}"#
)]
pub struct NodeRoutesSpec {}

/// The report.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeRoutesStatus {
    /// One entry per network.
    // Also where there is none: by a status without it the API server would take the last one away and then find no object there.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub networks: Vec<NetworkRoutes>,
}

/// A condition's type: False while routes are retained because too many would go at once.
pub const WITHDRAWALS_PROCESSED: &str = "WithdrawalsProcessed";
/// A condition's type: False while a network has more routes than it may.
pub const WITHIN_LIMITS: &str = "WithinLimits";

/// A condition's type: False while a node does not build a network as it is declared, and why.
pub const BUILT: &str = "Built";

/// A condition's type: False while packets as large as pods may send do not pass to other nodes.
pub const PATHS_CARRY_MTU: &str = "PathsCarryMtu";

/// One network on one node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRoutes {
    /// Name of the network.
    pub name: String,
    /// Subnets of other nodes that have to be reachable.
    pub expected: i32,
    /// How many of them a kernel route covers.
    pub in_kernel: i32,
    /// How many of them a row of the gateway router covers.
    pub in_ovn: i32,
    /// Rows of the gateway router that were imported for destinations inside the network. Others are in metrics only.
    pub imported: i32,
    /// How many destinations inside the network are retained: the kernel has lost them because FRR is gone or
    /// restarts, or because too many would go at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retained: i32,
    /// Hash of other nodes' subnets and of what kernel and gateway router do with each.
    pub digest: String,
    /// The first ten that are missing: node, subnet, and where it stops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Destinations inside the network that are not imported, counted by reason. Others are in metrics only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedRoutes>,
    /// `WithinLimits`: False while the network has more routes than it may. `WithdrawalsProcessed`: False while routes are
    /// retained because too many would go at once. `Built`: False while the node does not build the network as it is declared.
    /// `PathsCarryMtu`: False while packets as large as pods may send do not pass to other nodes, Unknown where that cannot be
    /// tried. Each absent where it never was False or Unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Routes that are not imported.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SkippedRoutes {
    /// Why.
    pub reason: String,
    /// How many.
    pub count: i32,
    /// The first three.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}
