//! Which routing table a network's learned routes are in.
//! In: the network and the links as the kernel has them now. Out: a table, or none while nothing carries the network.
//! Invariant: a table is never guessed: without the VRF device there is none, and nothing is imported until it is there.
//! Not here: making VRF devices, and reading links or routes (`netlink`).
//!
//! Source: OVN-Kubernetes `go-controller/pkg/ovn/routeimport/route_import.go`.

use model::kernel::LinkFact;
use model::names::NetworkName;
use model::route::{MAIN_TABLE, TableId};

/// Main for the default network; for any other the table of the VRF device that bears its name
/// (`NetworkName::vrf_device`). A device of that name that is no VRF carries nothing.
#[must_use]
pub fn table(network: &NetworkName, network_id: u16, links: &[LinkFact]) -> Option<TableId> {
    let Some(device) = network.vrf_device(network_id) else {
        return Some(MAIN_TABLE);
    };
    links
        .iter()
        .find(|link| link.name == device)
        .and_then(|link| link.vrf_table)
}

#[cfg(test)]
mod tests;
