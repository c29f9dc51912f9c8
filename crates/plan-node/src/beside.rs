//! What a node holds of ours beside OVN-Kubernetes, which made the routers and switches of its networks: rows, rules and a table
//! of the packet filter that lead pods' packets past the tunnels.
//! In: the node's share of a network. Out: rows of OVN_Northbound, rules and routes, sets and chains.
//! Invariant: everything is added, nothing of others is changed; what steers packets into the host is the last to come and the
//! first to go. Not here: which peers have a usable route (the import fills the set), what stands of OVN-Kubernetes' own.
//!
//! ```text
//!  pod -- node switch -- cluster router --policy 1010: to a routed pod subnet--> management port
//!                             |                                                     | untracked on the port (ACLs 1200)
//!                             '-- everything else: as OVN-Kubernetes has it         v
//!                                                                host: rules 2898 to 2901 --BGP's routes--> the wire
//!  from the wire: host --rule 2898, 2900--> management port --> pod
//! ```
//! Default network, and layer-3 networks of users, whose VRF OVN-Kubernetes made; both gateway modes. Forms: chosen so that OVN-Kubernetes leaves them alone over gateway syncs and restarts.

pub mod host;
mod networks;
pub mod north;
mod plan;
pub mod signs;
pub mod steps;

pub use self::networks::{Asked, Wish, networks, taken};
pub use self::plan::{Routed, Steps, Translations, plan};
