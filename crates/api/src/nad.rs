//! `k8s.cni.cncf.io/v1` NetworkAttachmentDefinition.
//! In and out: the object. Invariant: `spec.config` is JSON text that we write whole only in objects of ours.
//! Not here: the form of the configuration of user-defined networks.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

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
