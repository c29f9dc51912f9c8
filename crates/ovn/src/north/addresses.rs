//! Addresses of one Address_Set.
//! In: a replica. Out: what the set holds. Invariant: only a set with our owner marker is ours. Not here: who fills it, and writing.

use std::collections::BTreeSet;

use model::NetworkName;
use model::nb::Table;
use ovsdb::{AccessError, Replica, Uuid};

use super::OwnerMarker;

/// The set of that name that bears the network's owner marker, with `Address_Set.addresses`; `None` where there is none.
///
/// # Errors
/// When sets are not followed or a column holds what it cannot.
pub fn addresses(
    replica: &Replica,
    network: &NetworkName,
    name: &str,
) -> Result<Option<(Uuid, BTreeSet<String>)>, AccessError> {
    let marker = OwnerMarker::new(network);
    for (uuid, record) in replica.table(Table::AddressSet.name())? {
        if record.get::<&str>("name")? == name && marker.is_on(record)? {
            return Ok(Some((*uuid, record.get("addresses")?)));
        }
    }
    Ok(None)
}
