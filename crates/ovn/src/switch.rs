//! Open_vSwitch: facts of a bridge, the chassis' name, and our internal ports.
//! In: a replica. Out: facts; the transaction that makes a port right, or none.
//! Invariant: a bridge's ports are changed by mutate; ports of others are not touched.
//! Not here: flows.

use std::collections::BTreeMap;

use model::nb::OWNER;
use model::ovs::{BridgeFact, InternalPort, PortFact};
use ovsdb::{
    AccessError, Condition, Datum, MonitorTable, Mutation, Record, Replica, Row, Transaction, Uuid,
    random_uuid,
};

use crate::lower::LowerError;

/// Name of the database.
pub const DATABASE: &str = "Open_vSwitch";

/// What to follow.
#[must_use]
pub fn monitor() -> Vec<MonitorTable> {
    vec![
        MonitorTable::new("Open_vSwitch", &["external_ids", "bridges"]),
        MonitorTable::new("Bridge", &["name", "ports"]),
        MonitorTable::new("Port", &["name", "interfaces", "external_ids"]),
        MonitorTable::new(
            "Interface",
            &[
                "name",
                "type",
                "ofport",
                "mac",
                "mtu_request",
                "external_ids",
            ],
        ),
    ]
}

/// `external_ids:system-id`: the name of this chassis in the Southbound database.
///
/// # Errors
/// When the table is not followed or the column holds what it cannot.
pub fn system_id(replica: &Replica) -> Result<Option<String>, AccessError> {
    for record in replica.table("Open_vSwitch")?.values() {
        let mut ids = record.get::<BTreeMap<String, String>>("external_ids")?;
        if let Some(id) = ids.remove("system-id") {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn bridge<'a>(
    replica: &'a Replica,
    name: &str,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    for (uuid, record) in replica.table("Bridge")? {
        if record.get::<&str>("name")? == name {
            return Ok(Some((*uuid, record)));
        }
    }
    Ok(None)
}

/// A bridge's interfaces; `None` where there is no such bridge.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn lift_bridge(replica: &Replica, name: &str) -> Result<Option<BridgeFact>, AccessError> {
    let Some((_, record)) = bridge(replica, name)? else {
        return Ok(None);
    };
    let (ports, interfaces) = (replica.table("Port")?, replica.table("Interface")?);
    let mut fact = BridgeFact::default();
    for port in record.get::<Vec<Uuid>>("ports")? {
        let Some(port) = ports.get(&port) else {
            continue;
        };
        for interface in port.get::<Vec<Uuid>>("interfaces")? {
            let Some(interface) = interfaces.get(&interface) else {
                continue;
            };
            // For a moment it is 0 or -1, which no flow may name.
            let ofport = interface.get::<Option<i64>>("ofport")?;
            fact.ports.push(PortFact {
                name: interface.get("name")?,
                kind: interface.get("type")?,
                ofport: ofport
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|n| *n > 0),
            });
        }
    }
    fact.ports.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(fact))
}

/// The transaction that makes an internal port right; `None` where it stands as wanted.
///
/// # Errors
/// When a table is not followed, a column holds what it cannot, or the bridge does not exist.
pub fn ensure_port(
    replica: &Replica,
    port: &InternalPort,
    comment: &str,
) -> Result<Option<Transaction>, LowerError> {
    let standing = replica.table("Interface")?.iter().find(|(_, record)| {
        record
            .get::<&str>("name")
            .is_ok_and(|name| name == port.name)
    });
    let begin = || Transaction::new(DATABASE).comment(comment);
    let Some((uuid, record)) = standing else {
        let Some((bridge, _)) = bridge(replica, &port.bridge)? else {
            return Err(LowerError::NoParent {
                key: model::nb::RowKey::child(
                    model::nb::Table::SwitchPort,
                    &port.bridge,
                    &port.name,
                ),
            });
        };
        return Ok(Some(insert(begin(), bridge, port)));
    };
    let ids = record.get::<BTreeMap<String, String>>("external_ids")?;
    let ids_right = wanted_ids(port).iter().all(|(k, v)| ids.get(k) == Some(v));
    let right = record.get::<&str>("type")? == "internal"
        && record.get::<Option<String>>("mac")? == Some(port.mac.to_string())
        && record.get::<Option<i64>>("mtu_request")? == Some(port.mtu.into());
    if ids_right && right {
        return Ok(None);
    }
    let itself = || vec![Condition::uuid(*uuid)];
    let mut transaction = begin();
    if !right {
        transaction = transaction.update("Interface", itself(), interface(port));
    }
    if !ids_right {
        let keys: Vec<String> = wanted_ids(port).into_keys().collect();
        let mutations = vec![
            Mutation::delete("external_ids", Datum::set(keys)),
            Mutation::insert("external_ids", wanted_ids(port)),
        ];
        transaction = transaction.mutate("Interface", itself(), mutations);
    }
    Ok(Some(transaction))
}

fn wanted_ids(port: &InternalPort) -> BTreeMap<String, String> {
    [("iface-id", &port.iface_id), (OWNER, &port.owner)]
        .map(|(k, v)| (k.to_owned(), v.clone()))
        .into()
}

fn interface(port: &InternalPort) -> Row {
    Row::new()
        .with("type", "internal")
        .with("mac", port.mac.to_string())
        .with("mtu_request", i64::from(port.mtu))
}

fn insert(transaction: Transaction, bridge: Uuid, port: &InternalPort) -> Transaction {
    let (port_uuid, interface_uuid) = (random_uuid(), random_uuid());
    let owner: BTreeMap<String, String> = [(OWNER.to_owned(), port.owner.clone())].into();
    transaction
        .insert(
            "Interface",
            interface_uuid,
            interface(port)
                .with("name", port.name.clone())
                .with("external_ids", wanted_ids(port)),
        )
        .insert(
            "Port",
            port_uuid,
            Row::new()
                .with("name", port.name.clone())
                .with("interfaces", vec![interface_uuid])
                .with("external_ids", owner),
        )
        .guard(
            "Bridge",
            vec![Condition::uuid(bridge)],
            Row::new().with("name", port.bridge.clone()),
        )
        .mutate(
            "Bridge",
            vec![Condition::uuid(bridge)],
            vec![Mutation::insert("ports", vec![port_uuid])],
        )
}
