//! What users ask for: RouteAdvertisements as plain values.
//! In: objects decoded by `api`. Out: input of `plan-cluster`.
//! Invariant: only combinations that the schema allows; the rest is a `Problem` when it is decoded.
//! Not here: which networks and nodes a selector finds.

use crate::selector::{LabelSelector, Labels};

/// `spec.targetVRF`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetVrf {
    /// Absent, empty or `default`.
    Default,
    /// `auto`: each network into its own VRF.
    Auto,
    /// A VRF by name.
    Named(String),
}

/// Which networks an item of `spec.networkSelectors` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSelector {
    /// `DefaultNetwork`.
    DefaultNetwork,
    /// `ClusterUserDefinedNetworks` (or its singular), by labels.
    ClusterUserDefinedNetworks(LabelSelector),
}

/// One `k8s.ovn.org/v1` RouteAdvertisements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteAdvertisements {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`: what conditions refer to.
    pub generation: i64,
    /// `metadata.creationTimestamp`, seconds since 1970: of two that want what only one can have, the elder has it.
    pub created: i64,
    /// `spec.targetVRF`.
    pub target_vrf: TargetVrf,
    /// `spec.networkSelectors`.
    pub networks: Vec<NetworkSelector>,
    /// `spec.nodeSelector`.
    pub node_selector: LabelSelector,
    /// `spec.frrConfigurationSelector`.
    pub frr_selector: LabelSelector,
    /// `PodNetwork` is among `spec.advertisements`.
    pub pod_network: bool,
    /// `EgressIP` is among `spec.advertisements`.
    pub egress_ip: bool,
}

/// What a RouteAdvertisements says of pods, and whether that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAdvertisement {
    /// `spec.targetVRF`.
    pub target_vrf: TargetVrf,
    /// `PodNetwork` is among `spec.advertisements`.
    pub pod_network: bool,
    /// Its condition `Accepted`; `None` while nobody has judged it as it is now.
    pub accepted: Option<bool>,
}

impl RouteAdvertisements {
    /// Whether it selects a network, by kind and labels; `None` is the default network.
    #[must_use]
    pub fn selects(&self, labels: Option<&Labels>) -> bool {
        self.networks
            .iter()
            .any(|selector| match (selector, labels) {
                (NetworkSelector::DefaultNetwork, None) => true,
                (NetworkSelector::ClusterUserDefinedNetworks(selector), Some(labels)) => {
                    selector.matches(labels)
                }
                _ => false,
            })
    }

    /// Whether it advertises the pods of the cluster default network.
    #[must_use]
    pub fn covers_default_network(&self) -> bool {
        self.pod_network && self.selects(None)
    }
}

/// Status of a condition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// `type`.
    pub kind: &'static str,
    /// `status`.
    pub status: bool,
    /// `reason`, CamelCase.
    pub reason: String,
    /// `message`.
    pub message: String,
}

/// Reason of a condition that is neither True nor False, because those who could tell do not.
pub const REPORTS_MISSING: &str = "ReportsMissing";

/// Most characters of a condition's message (`metav1.Condition`): the API server refuses the whole status with a longer one.
pub const LONGEST_MESSAGE: usize = 32_768;

impl Condition {
    /// With as much of its message as the API server takes.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        const CUT: &str = " ...";
        if self.message.chars().count() > LONGEST_MESSAGE {
            let kept = self.message.chars().take(LONGEST_MESSAGE - CUT.len());
            self.message = kept.chain(CUT.chars()).collect();
        }
        self
    }

    /// `status` as the API has it; one with [`REPORTS_MISSING`] is Unknown.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.status, self.reason == REPORTS_MISSING) {
            (true, _) => "True",
            (false, true) => "Unknown",
            (false, false) => "False",
        }
    }
}

/// An event to publish on an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// `type` Warning (true) or Normal.
    pub warning: bool,
    /// `reason`, CamelCase.
    pub reason: &'static str,
    /// `note`.
    pub message: String,
}
