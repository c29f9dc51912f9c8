//! Open_vSwitch: facts of a bridge, the chassis' name, and our internal ports.
//! In: a replica. Out: facts; the transaction that makes a port right, or none.
//! Invariant: a bridge's ports are changed by mutate; ports of others are not touched.
//! Not here: flows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::NetworkName;
use model::nb::OWNER;
use model::ovs::{BridgeFact, InternalPort, PortFact};
use ovsdb::{
    AccessError, Condition, Datum, MonitorTable, Mutation, Record, Replica, Row, Transaction, Uuid,
    random_uuid,
};

use crate::columns::entries;
use crate::encode::EncodeError;

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

/// `external_ids:ovn-bridge-mappings`: the physical network of each bridge.
///
/// # Errors
/// When the table is not followed or the column holds what it cannot.
pub fn physical_networks(replica: &Replica) -> Result<BTreeMap<String, String>, AccessError> {
    let mut networks = BTreeMap::new();
    for record in replica.table("Open_vSwitch")?.values() {
        let ids = record.get::<BTreeMap<String, String>>("external_ids")?;
        let mappings = ids.get("ovn-bridge-mappings").map_or("", String::as_str);
        let pairs = mappings.split(',').filter_map(|pair| pair.split_once(':'));
        networks.extend(
            pairs.map(|(network, bridge)| (bridge.trim().to_owned(), network.trim().to_owned())),
        );
    }
    Ok(networks)
}

/// Where tunnels to this node end (`external_ids:ovn-encap-ip`), or what ovn-controller lacks to make tunnels to nodes of other
/// zones.
///
/// # Errors
/// When the table is not followed or the column holds what it cannot.
pub fn encap_ips(replica: &Replica) -> Result<Result<BTreeSet<IpAddr>, String>, AccessError> {
    let mut ids = BTreeMap::new();
    for record in replica.table("Open_vSwitch")?.values() {
        ids.extend(record.get::<BTreeMap<String, String>>("external_ids")?);
    }
    let words = |key: &str| ids.get(key).map_or("", String::as_str).split(',');
    let lacks = |key: &str, allowed: &str| {
        let has = ids.get(key).map_or("absent", String::as_str);
        format!("external_ids:{key} of the local Open vSwitch is {has}; allowed: {allowed}")
    };
    if !words("ovn-encap-type").any(|kind| kind.trim() == "geneve") {
        return Ok(Err(lacks("ovn-encap-type", "geneve")));
    }
    if ids.get("ovn-is-interconn").map(String::as_str) != Some("true") {
        return Ok(Err(lacks("ovn-is-interconn", "true")));
    }
    let addresses: Result<BTreeSet<IpAddr>, _> =
        words("ovn-encap-ip").map(|ip| ip.trim().parse()).collect();
    Ok(addresses.map_err(|_| lacks("ovn-encap-ip", "addresses separated by commas")))
}

/// The row of a table whose names are unique.
fn named<'a>(
    replica: &'a Replica,
    table: &str,
    name: &str,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    for (uuid, record) in replica.table(table)? {
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
pub fn decode_bridge(replica: &Replica, name: &str) -> Result<Option<BridgeFact>, AccessError> {
    let Some((_, record)) = named(replica, "Bridge", name)? else {
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
/// A port of that name on another bridge is moved: the name is the device's, and only one can be. Other ports that were made for
/// the same network go: they would claim the same logical port.
///
/// # Errors
/// When a table is not followed, a column holds what it cannot, the bridge does not exist, or another port holds the
/// interface.
pub fn ensure_port(
    replica: &Replica,
    port: &InternalPort,
    comment: &str,
) -> Result<Option<Transaction>, EncodeError> {
    let Some((bridge, record)) = named(replica, "Bridge", &port.bridge)? else {
        return Err(EncodeError::NoBridge {
            bridge: port.bridge.clone(),
            port: port.name.clone(),
        });
    };
    let transaction = Transaction::new(DATABASE).comment(comment).guard(
        "Bridge",
        vec![Condition::uuid(bridge)],
        Row::new().with("name", port.bridge.as_str()),
    );
    let idle = transaction.operations().len();

    let (transaction, interface) = place_interface(transaction, replica, port)?;
    let (mut transaction, uuid) = place_port(transaction, replica, port, interface)?;
    if !record.get::<Vec<Uuid>>("ports")?.contains(&uuid) {
        transaction = leave_bridges(transaction, replica, uuid)?.mutate(
            "Bridge",
            vec![Condition::uuid(bridge)],
            vec![Mutation::insert("ports", uuid)],
        );
    }
    for (other, record) in replica.table("Port")? {
        if *other != uuid && owner(record)?.as_deref() == Some(port.owner.as_str()) {
            transaction = leave_bridges(transaction, replica, *other)?;
        }
    }
    Ok((transaction.operations().len() > idle).then_some(transaction))
}

/// The transaction with what the interface needs, and its uuid.
fn place_interface(
    transaction: Transaction,
    replica: &Replica,
    port: &InternalPort,
) -> Result<(Transaction, Uuid), EncodeError> {
    if let Some((uuid, record)) = named(replica, "Interface", &port.name)? {
        refuse_other_port(replica, uuid, port)?;
        return Ok((amend_interface(transaction, uuid, record, port)?, uuid));
    }
    let (uuid, ids) = (random_uuid(), Datum::map(port.interface_ids()));
    let row = settings(port)
        .with("name", port.name.as_str())
        .with("external_ids", ids);
    Ok((transaction.insert("Interface", uuid, row), uuid))
}

/// The transaction with what the port needs, and its uuid.
fn place_port(
    mut transaction: Transaction,
    replica: &Replica,
    port: &InternalPort,
    interface: Uuid,
) -> Result<(Transaction, Uuid), EncodeError> {
    if let Some((uuid, record)) = named(replica, "Port", &port.name)? {
        if record.get::<Vec<Uuid>>("interfaces")? != [interface] {
            let row = Row::new().with("interfaces", interface);
            transaction = transaction.update("Port", vec![Condition::uuid(uuid)], row);
        }
        let transaction = amend_ids(transaction, "Port", (uuid, record), port_ids(port))?;
        return Ok((transaction, uuid));
    }
    let (uuid, ids) = (random_uuid(), Datum::map(port_ids(port)));
    let row = Row::new()
        .with("name", port.name.as_str())
        .with("interfaces", interface)
        .with("external_ids", ids);
    Ok((transaction.insert("Port", uuid, row), uuid))
}

fn port_ids(port: &InternalPort) -> BTreeMap<String, String> {
    [(OWNER.to_owned(), port.owner.clone())].into()
}

/// `Interface` columns that are ours alone.
fn settings(port: &InternalPort) -> Row {
    Row::new()
        .with("type", "internal")
        .with("mac", port.mac.to_string())
        .with("mtu_request", port.mtu)
}

/// Errs where a port of another name, a bond, holds the interface.
fn refuse_other_port(
    replica: &Replica,
    interface: Uuid,
    port: &InternalPort,
) -> Result<(), EncodeError> {
    for record in replica.table("Port")?.values() {
        let name: &str = record.get("name")?;
        if name != port.name && record.get::<Vec<Uuid>>("interfaces")?.contains(&interface) {
            return Err(EncodeError::InterfaceTaken {
                interface: port.name.clone(),
                port: name.to_owned(),
            });
        }
    }
    Ok(())
}

fn amend_interface(
    mut transaction: Transaction,
    uuid: Uuid,
    record: &Record,
    port: &InternalPort,
) -> Result<Transaction, AccessError> {
    // The address may be spelt in capitals by whoever wrote it.
    let mac = record.get::<Option<&str>>("mac")?.map(str::parse);
    let right = record.get::<&str>("type")? == "internal"
        && mac == Some(Ok(port.mac))
        && record.get::<Option<i64>>("mtu_request")? == Some(port.mtu.into());
    if !right {
        transaction = transaction.update("Interface", vec![Condition::uuid(uuid)], settings(port));
    }
    amend_ids(
        transaction,
        "Interface",
        (uuid, record),
        port.interface_ids(),
    )
}

/// Puts entries into `external_ids`; those of others stay.
fn amend_ids(
    transaction: Transaction,
    table: &'static str,
    (uuid, record): (Uuid, &Record),
    wanted: BTreeMap<String, String>,
) -> Result<Transaction, AccessError> {
    let have = record.get::<BTreeMap<String, String>>("external_ids")?;
    let missing = wanted.iter().filter(|(k, v)| have.get(*k) != Some(v));
    if missing.clone().next().is_none() {
        return Ok(transaction);
    }
    let mutations = entries("external_ids", missing).to_vec();
    Ok(transaction.mutate(table, vec![Condition::uuid(uuid)], mutations))
}

/// Takes the port from whatever bridges hold it.
fn leave_bridges(
    mut transaction: Transaction,
    replica: &Replica,
    port: Uuid,
) -> Result<Transaction, AccessError> {
    for (bridge, record) in replica.table("Bridge")? {
        if record.get::<Vec<Uuid>>("ports")?.contains(&port) {
            transaction = transaction.mutate(
                "Bridge",
                vec![Condition::uuid(*bridge)],
                vec![Mutation::delete("ports", port)],
            );
        }
    }
    Ok(transaction)
}

/// The ports of ours by their names, and the networks that they were made for.
///
/// # Errors
/// When the table is not followed or a column holds what it cannot.
pub fn port_owners(replica: &Replica) -> Result<BTreeMap<String, NetworkName>, AccessError> {
    let mut owners = BTreeMap::new();
    for record in replica.table("Port")?.values() {
        if let Some(owner) = owner(record)? {
            owners.insert(record.get("name")?, NetworkName::from(owner));
        }
    }
    Ok(owners)
}

/// The transaction that takes a network's ports from their bridges; `None` where there are none.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn remove_ports(
    replica: &Replica,
    network: &NetworkName,
    comment: &str,
) -> Result<Option<Transaction>, EncodeError> {
    let mut transaction = Transaction::new(DATABASE).comment(comment);
    let idle = transaction.operations().len();
    for (port, record) in replica.table("Port")? {
        if owner(record)?.as_deref() == Some(network.as_str()) {
            transaction = leave_bridges(transaction, replica, *port)?;
        }
    }
    Ok((transaction.operations().len() > idle).then_some(transaction))
}

fn owner(port: &Record) -> Result<Option<String>, AccessError> {
    let mut ids = port.get::<BTreeMap<String, String>>("external_ids")?;
    Ok(ids.remove(OWNER))
}
