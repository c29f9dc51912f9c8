//! Which VRF device carries a network, and which routing table its learned routes are in.
//! In: the network and the links as the kernel has them now. Out: a device and a table, or why there is none.
//! Invariant: a table is never guessed: what is learned is read from the table of a device that stands, and nothing is imported
//! until it does. Not here: making VRF devices, and reading links or routes (`netlink`).
//!
//! Source: OVN-Kubernetes `go-controller/pkg/ovn/routeimport/route_import.go`, `pkg/node/vrfmanager`.

use std::collections::BTreeSet;

use model::kernel::LinkFact;
use model::names::{NetworkName, management_device};
use model::route::{MAIN_TABLE, TableId};

use crate::snapshot::Vrf;

/// From the management port's index to the table of the VRF (OVN-Kubernetes: `routing-table-id-start`).
const FIRST_TABLE: TableId = 1000;

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

/// Why a network has no VRF device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVrf {
    /// The table is numbered after the management port, which Open vSwitch has not made yet.
    #[error("there is no device {0} yet")]
    NoPort(String),
    /// The kernel does not make the device: it has no VRFs, or refuses this one.
    #[error("VRF device {0} cannot be made: {1}")]
    Refused(String, String),
    /// A device has the name, as its own or as an alternative one.
    #[error(
        "{0} is a device that is no VRF, or an alternative name of another device; allowed: a VRF device of that name, or none"
    )]
    NameTaken(String),
}

/// The VRF device of a network of users: the one that stands, with the table that it has; else one to be made, with a table
/// of its own, which is none of `given`, the tables of other networks' devices. `None` for the default network.
///
/// # Errors
/// While there can be none.
pub fn plan(
    network: &NetworkName,
    network_id: u16,
    links: &[LinkFact],
    given: &BTreeSet<TableId>,
) -> Result<Option<Vrf>, NoVrf> {
    let Some(device) = network.vrf_device(network_id) else {
        return Ok(None);
    };
    let link = |name: &str| links.iter().find(|link| link.name == name);
    let has_it_too = |link: &LinkFact| link.alternative_names.contains(&device);
    let table = match link(&device) {
        // Also while its management port is away: what stands in it stays.
        Some(link) => link.vrf_table.ok_or(NoVrf::NameTaken(device.clone()))?,
        None if links.iter().any(has_it_too) => return Err(NoVrf::NameTaken(device)),
        None => {
            let port = management_device(network_id);
            let index = link(&port).map(|link| link.index);
            let index = index.ok_or(NoVrf::NoPort(port))?;
            let taken = |table: &TableId| {
                given.contains(table) || links.iter().any(|l| l.vrf_table == Some(*table))
            };
            let first = FIRST_TABLE.saturating_add(index);
            let mut tables = first..=TableId::MAX;
            tables.find(|table| !taken(table)).unwrap_or(first)
        }
    };
    Ok(Some(Vrf { device, table }))
}

#[cfg(test)]
mod tests;
