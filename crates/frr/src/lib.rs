//! What a node's FRRConfigurations become: the merge of all objects that select it, and the text of frr.conf.
//! In: objects as `model::frr` values, the node's labels, passwords of Secrets. Out: one configuration or all conflicts, text, lints.
//! Invariant: the same objects give the same bytes in whatever order they come; names and refusals are those of frr-k8s.
//! Not here: reading objects (`api`), writing the file and reloading FRR (`frr-edge`), EVPN.

pub mod attribution;
pub mod compare;
pub mod config;
pub mod lint;
pub mod merge;
pub mod render;
pub mod router_id;
pub mod select;

pub use attribution::attribute;
pub use config::{
    AskedTimers, Families, Incoming, NeighborConfig, NodeConfig, NodeInput, Outgoing, Passwords,
    RawText, RouterConfig,
};
pub use lint::{lint, without_self};
pub use merge::merge;
pub use render::render;
pub use router_id::with_router_ids;
pub use select::{Selected, select};

#[cfg(test)]
mod builders;
