//! What is followed of OVN_Northbound beside OVN-Kubernetes.
//! In: names that are to be ours or that ours refer to. Out: tables with columns and conditions.
//! Invariant: no update comes of ports of pods, port groups, ACLs, address sets and Services of OVN-Kubernetes.
//! Not here: what signs say (`signs`).

use std::borrow::Cow;

use model::NetworkName;
use model::nb::{OWNER, RowKey, Table};
use ovsdb::{Condition, Datum, MonitorTable};

use super::{monitor, signs};

/// Rows that bear our marker as the default network's, those that have one of the names in `keys`, routers and their routes, switches
/// without what they refer to, what tells that OVN-Kubernetes routes a network itself, and how far flows have followed
/// (`NB_Global.nb_cfg`, `hv_cfg`).
#[must_use]
pub fn monitor_beside(keys: &[RowKey]) -> Vec<MonitorTable> {
    let mut tables = monitor();
    for table in &mut tables {
        if *table.table == *crate::global::TABLE {
            let columns = crate::in_force::COLUMNS.map(Cow::Borrowed);
            table.columns.extend(columns);
        }
        let of_table = Table::ALL.into_iter().find(|of| *table.table == *of.name());
        if let Some(of_table) = of_table {
            table.conditions = conditions(of_table, keys);
        }
        if of_table == Some(Table::Switch) {
            let references = |column: &str| column == "ports" || column == "acls";
            table.columns.retain(|column| !references(column));
        }
    }
    tables
}

/// Which rows of a table; of none, all.
fn conditions(table: Table, keys: &[RowKey]) -> Vec<Condition> {
    let has =
        |key: &str, value: &str| Condition::includes("external_ids", Datum::map([(key, value)]));
    let default = NetworkName::default_network();
    let ours = has(OWNER, default.as_str());
    let named = || {
        let of_table = keys.iter().filter(|key| key.table == table);
        of_table.map(|key| Condition::equal("name", key.id.as_str()))
    };
    match table {
        // Few, and none of a pod.
        Table::Router | Table::Switch | Table::StaticRoute | Table::StaticMacBinding => Vec::new(),
        Table::SwitchPort => named().collect(),
        Table::PortGroup | Table::AddressSet => named().chain([ours]).collect(),
        Table::Nat => vec![ours, has(signs::OWNER_TYPE, signs::NO_OVERLAY_SNAT)],
        Table::RouterPort
        | Table::GatewayChassis
        | Table::Policy
        | Table::Acl
        | Table::GroupAcl => vec![ours],
    }
}
