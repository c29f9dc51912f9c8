//! Static MAC bindings of our router ports.
//! In: a replica, and the ports of ours in it. Out: rows by their port's owner. Invariant: the table has no owner marker; ours
//! are bindings of ports of ours whose address is a link-local one or gives the MAC (as OVN derives it), and no others.
//! Not here: which there are to be.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::Mac;
use model::nb::{Owner, RowKey, Table};
use ovsdb::{AccessError, Replica};

use super::{North, identity, text};
use crate::columns::decode as decode_columns;

/// Adds them.
///
/// # Errors
/// When the table is not followed or a column holds what it cannot.
pub(super) fn decode(replica: &Replica, north: &mut North) -> Result<(), AccessError> {
    let mut owners: BTreeMap<String, Owner> = BTreeMap::new();
    for (owner, rows) in &north.owned {
        let ports = rows.keys().filter(|key| key.table == Table::RouterPort);
        owners.extend(ports.map(|key| (key.id.clone(), owner.clone())));
    }
    for (uuid, record) in replica.table(Table::StaticMacBinding.name())? {
        let columns = decode_columns(Table::StaticMacBinding, record, &north.names)?;
        let Some(owner) = owners.get(text(&columns, "logical_port")) else {
            continue;
        };
        if is_ours(text(&columns, "ip"), text(&columns, "mac")) {
            let id = identity(Table::StaticMacBinding, &columns);
            let key = RowKey::root(Table::StaticMacBinding, id);
            north.put(owner.clone(), key, *uuid, columns);
        }
    }
    Ok(())
}

fn is_ours(ip: &str, mac: &str) -> bool {
    let Ok(ip) = ip.parse::<IpAddr>() else {
        return false;
    };
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(_) => false,
    };
    is_link_local || mac.parse() == Ok(Mac::of_ip(ip))
}
