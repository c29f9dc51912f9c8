//! The nouns of noverlay: addresses, names, desired things as plain values, problems and diffs.
//! In: text and numbers that an edge has read. Out: values that cannot be wrong in form.
//! Invariant: inside the edges no address, prefix, name or AS number is held as a bare string.
//! Not here: serde, tokio, any wire format; the crate that knows a wire format owns its translation.

pub mod address;
pub mod asn;
pub mod diff;
pub mod frr;
pub mod gateway;
pub mod hash;
pub mod intent;
pub mod kernel;
pub mod names;
pub mod nb;
pub mod network;
pub mod nft;
pub mod node;
pub mod ovs;
pub mod prefixes;
pub mod problem;
pub mod route;
pub mod sb;
pub mod scope;
pub mod selector;
pub mod steering;
pub mod subnets;
pub mod user_network;

pub use address::{Family, InterfaceAddr, Mac, Prefix};
pub use asn::Asn;
pub use diff::Diff;
pub use names::{NetworkName, NodeName, ObjectKey, RouterName};
pub use network::Network;
pub use problem::Problem;
pub use scope::Scope;
pub use selector::LabelSelector;
