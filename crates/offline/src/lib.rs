//! The cluster-manager's passes over objects in memory instead of an API server.
//! In: objects as JSON, the settings. Out: the objects as the manager would leave them, and its conditions.
//! Invariant: passes are repeated until nothing is left to write, and they plan with the manager's own planners.
//! Not here: schemas (an object is taken as it is), time, a client.
//!
//! ```text
//!  Objects --world--> World --plan--> Plans --write--> Objects   (until nothing changes)
//! ```

mod in_force;
mod objects;
mod passes;
mod state;
mod worlds;

pub use in_force::in_force;
pub use objects::Objects;
pub use passes::{Plans, settle, settle_refusing, write};
pub use state::state;
pub use worlds::{empty_world, world};

/// Kinds by the names that objects bear.
pub mod kind {
    /// `v1` Node.
    pub const NODE: &str = "Node";
    /// `v1` Namespace.
    pub const NAMESPACE: &str = "Namespace";
    /// `frrk8s.metallb.io/v1beta1`.
    pub const FRR: &str = "FRRConfiguration";
    /// `k8s.ovn.org/v1`.
    pub const RA: &str = "RouteAdvertisements";
    /// `k8s.ovn.org/v1`.
    pub const CUDN: &str = "ClusterUserDefinedNetwork";
    /// `k8s.ovn.org/v1`.
    pub const EGRESS_IP: &str = "EgressIP";
    /// `operator.openshift.io/v1`.
    pub const NETWORK: &str = "Network";
    /// `v1`.
    pub const CONFIG_MAP: &str = "ConfigMap";
    /// `k8s.cni.cncf.io/v1`.
    pub const NAD: &str = "NetworkAttachmentDefinition";
}
