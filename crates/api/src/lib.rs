//! The custom resources that noverlay reads and writes, and their translation into `model`.
//! In: YAML or JSON of objects. Out: typed objects, model values or `Problem`s, and the CRDs themselves.
//! Invariant: a field that cannot be honoured is a problem that names object, field and value, never ignored.
//! Not here: a client (`kube-edge`), decisions (`plan-cluster`).

#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct inside a function, where pub cannot be reached"
)]

pub mod crds;
pub mod duration;
pub mod frr_configuration;
pub mod frr_state;
mod lift_frr;
mod lift_node;
mod lift_ra;
mod lift_secret;
mod lower_frr;
pub mod nad;
pub mod node_routes;
mod oddities;
pub mod route_advertisements;
pub mod selector;

pub use lift_frr::{lift_source, remains};
pub use lift_node::lift_node;
pub use lift_secret::lift_secret;
pub use oddities::oddities;
