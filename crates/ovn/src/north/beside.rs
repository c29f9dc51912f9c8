//! What is followed of OVN_Northbound beside OVN-Kubernetes, and what of it translates pods' packets on their way to the host.
//! In: names that are to be ours or that ours refer to; a replica. Out: tables with columns and conditions; NAT rows of others.
//! Invariant: no update comes of ports of pods, port groups, ACLs, address sets and Services of OVN-Kubernetes.
//! Not here: what signs say (`signs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::NetworkName;
use model::nb::{BESIDE, Columns, OWNER, RowKey, Table, Value};
use ovsdb::{AccessError, Condition, Datum, MonitorTable, Name, Record, Replica};

use super::{OwnerKeys, external_id, monitor, signs};
use crate::columns::decode as decode_columns;

/// Rows of ours, those that have one of the names in `keys`, NAT rows of the router ports in `keys`, routers and their routes, switches
/// without what they refer to, what tells that OVN-Kubernetes routes a network itself, and how far flows have followed
/// (`NB_Global.nb_cfg`, `hv_cfg`).
#[must_use]
pub fn monitor_beside(keys: &[RowKey]) -> Vec<MonitorTable> {
    let mut tables = monitor();
    let conditions = conditions_beside(keys);
    for table in &mut tables {
        if *table.table == *crate::global::TABLE {
            let columns = crate::in_force::COLUMNS.map(Cow::Borrowed);
            table.columns.extend(columns);
        }
        let of_table = conditions.get(&table.table);
        table
            .conditions
            .extend(of_table.into_iter().flatten().cloned());
        if *table.table == *Table::Switch.name() {
            let references = |column: &str| column == "ports" || column == "acls";
            table.columns.retain(|column| !references(column));
        }
    }
    tables
}

/// The conditions alone, by table, for other keys than a client began with; tables of which all rows are followed are not among them.
#[must_use]
pub fn conditions_beside(keys: &[RowKey]) -> BTreeMap<Name, Vec<Condition>> {
    let tables = Table::ALL.into_iter();
    let tables = tables.map(|table| (Name::from(table.name()), conditions(table, keys)));
    tables.filter(|(_, all)| !all.is_empty()).collect()
}

/// Which rows of a table; of none, all.
fn conditions(table: Table, keys: &[RowKey]) -> Vec<Condition> {
    let has =
        |key: &str, value: &str| Condition::includes("external_ids", Datum::map([(key, value)]));
    // Rows of the default network did not always bear the other marker.
    let default = NetworkName::default_network();
    let ours = || [has(BESIDE.0, BESIDE.1), has(OWNER, default.as_str())];
    let of_table = |table: Table| keys.iter().filter(move |key| key.table == table);
    let named = || of_table(table).map(|key| Condition::equal("name", key.id.as_str()));
    match table {
        // Few, and none of a pod.
        Table::Router | Table::Switch | Table::StaticRoute | Table::StaticMacBinding => Vec::new(),
        Table::SwitchPort => named().collect(),
        Table::PortGroup | Table::AddressSet => named().chain(ours()).collect(),
        Table::Nat => {
            let ports = of_table(Table::RouterPort);
            let of_ports = ports.map(|key| Condition::equal("logical_port", key.id.as_str()));
            let of_others = has(signs::OWNER_TYPE, signs::NO_OVERLAY_SNAT);
            of_ports.chain(ours()).chain([of_others]).collect()
        }
        Table::RouterPort
        | Table::GatewayChassis
        | Table::Policy
        | Table::Acl
        | Table::GroupAcl => ours().into(),
    }
}

/// Rows of NAT that are somebody else's and translate what leaves by a router port, whatever its destination, by `NAT.logical_port`.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn translations(replica: &Replica) -> Result<BTreeMap<String, Vec<Columns>>, AccessError> {
    let keys = OwnerKeys::new();
    let names = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<Columns>> = BTreeMap::new();
    for record in replica.table(Table::Nat.name())?.values() {
        if external_id(record, &keys.owner)?.is_some() || is_limited(record)? {
            continue;
        }
        let columns = decode_columns(Table::Nat, record, &names)?;
        if columns.get("type") != Some(&Value::Text("snat".to_owned())) {
            continue;
        }
        if let Some(Value::Set(ports)) = columns.get("logical_port")
            && let Some(port) = ports.first()
        {
            found.entry(port.clone()).or_default().push(columns);
        }
    }
    Ok(found)
}

/// Whether a row translates what goes to some destinations only, or not to some.
fn is_limited(record: &Record) -> Result<bool, AccessError> {
    for column in ["allowed_ext_ips", "exempted_ext_ips"] {
        if !record
            .get::<&Datum>(column)?
            .as_set()
            .unwrap_or_default()
            .is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
