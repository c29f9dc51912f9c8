//! What one network may learn on its node, and what stands in an import's way.
//! In: the node's plan. Out: a value that the import decides by. Invariant: made by `plan-node`, obeyed by `import`.
//! Not here: routes, decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::Prefix;
use crate::gateway::BgpDefault;
use crate::nb::Columns;
use crate::subnets::Subnets;

/// What an import is decided by, beside the routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Interface index of the gateway bridge; `None` while there is none: nothing is imported.
    pub gateway_link: Option<u32>,
    /// All subnets of the network.
    pub cluster_subnets: Vec<Prefix>,
    /// The node's own subnets of the network.
    pub host_subnets: Vec<Prefix>,
    /// Subnets of the join switch.
    pub join_subnets: Vec<Prefix>,
    /// Subnets of other networks, on whatever node: their pods are not to be reached from this one.
    pub other_networks: Subnets<()>,
    /// Addresses of this node, never a next hop.
    pub own_addresses: BTreeSet<IpAddr>,
    /// False: the network has an overlay for its own subnets.
    pub no_overlay: bool,
    /// Prefixes of the gateway router's other rows: foreign ones, and those of our topology that do not give way.
    pub taken: BTreeSet<Prefix>,
    /// Rows of our topology that give way to an imported route of the same prefix (`plan_node::learn::fallbacks`).
    pub fallbacks: BTreeMap<Prefix, Vec<Columns>>,
    /// False: there never was a view to make `fallbacks` from. Then imported rows of default routes and of the network's
    /// subnets stay although the kernel has lost them: nobody knows what comes in their place.
    pub fallbacks_known: bool,
    /// What to do with a learned default route.
    pub bgp_default: BgpDefault,
}
