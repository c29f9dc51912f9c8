//! The custom resources that noverlay reads and writes, and their translation into `model`.
//! In: YAML or JSON of objects. Out: typed objects, model values or `Problem`s, and the CRDs themselves.
//! Invariant: a field that cannot be honoured is a problem that names object, field and value, never ignored.
//! Not here: a client (`kube-edge`), decisions (`plan-cluster`).

#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct inside a function, where pub cannot be reached"
)]

pub mod cluster_user_defined_network;
pub mod crds;
mod decode_frr;
mod decode_network;
mod decode_node;
mod decode_ra;
mod decode_secret;
pub mod duration;
pub mod egress_ip;
mod encode_frr;
pub mod features;
pub mod frr_configuration;
pub mod frr_state;
pub mod nad;
pub mod node_routes;
pub mod operator_network;
pub mod route_advertisements;
pub mod selector;
mod underlay_ready;
pub mod user_defined_network;
mod warnings;

pub use decode_frr::{decode_source, read_source, remains};
pub use decode_network::{decode_namespace, read_attachment, read_cudn, read_egress_ip};
pub use decode_node::decode_node;
pub use decode_ra::read_pod_advertisement;
pub use decode_secret::decode_secret;
pub use underlay_ready::{ReadySubnets, ready_subnets, underlay_ready};
pub use warnings::warnings;
