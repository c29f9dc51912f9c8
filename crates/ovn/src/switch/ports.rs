//! Our internal ports: made, changed where they differ, removed where they are not wanted.
//! In: a replica, the ports wanted. Out: one transaction, or none.
//! Invariant: a port of ours bears `external_ids:noverlay.io/owner`; a bridge's ports are only ever mutated.
//! Not here: the devices that the switch makes of them.

use std::collections::{BTreeMap, BTreeSet};

use model::nb::OWNER;
use model::ovs::InternalPort;
use ovsdb::{
    AccessError, Condition, Datum, Mutation, Record, Replica, Row, Transaction, Uuid, random_uuid,
};

use super::{BRIDGE, DATABASE, INTERFACE, PORT};

const IFACE_ID: &str = "iface-id";

/// Why ports cannot be made as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The replica cannot be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The bridge is not there (yet).
    #[error("there is no bridge {bridge}")]
    NoBridge {
        /// Its name.
        bridge: String,
    },
    /// A port or interface of this name is there without our stamp.
    #[error("port {port} is there without external_ids:{OWNER}, so it is somebody else's")]
    NameTaken {
        /// Its name.
        port: String,
    },
}

/// A port of ours as it stands.
struct Standing<'a> {
    bridge: (Uuid, &'a str),
    port: Uuid,
    name: &'a str,
    /// Its only interface.
    interface: Option<(Uuid, &'a Record)>,
}

/// One transaction that makes our internal ports exactly these; `None` where they are.
///
/// # Errors
/// When a bridge is missing, a name is somebody else's, or the replica cannot be read.
pub fn ports(replica: &Replica, wanted: &[InternalPort]) -> Result<Option<Transaction>, PortError> {
    let standing = standing(replica)?;
    let names: Vec<&str> = wanted.iter().map(|port| port.name.as_str()).collect();
    let comment = format!("noverlay node-agent ports {}", names.join(" "));
    let mut out = Transaction::new(DATABASE).comment(comment.trim_end());
    let empty = out.operations().len();
    let mut keep = BTreeSet::new();
    for port in wanted {
        let bridge = bridge(replica, &port.bridge)?;
        let ours = standing.iter().find(|have| have.name == port.name);
        let kept = ours.filter(|have| have.bridge.0 == bridge);
        match kept.and_then(|have| have.interface.map(|interface| (have, interface))) {
            Some((have, (uuid, record))) => {
                keep.insert(have.port);
                out = change(out, uuid, record, port)?;
            }
            None if ours.is_none() && exists(replica, &port.name)? => {
                return Err(PortError::NameTaken {
                    port: port.name.clone(),
                });
            }
            None => out = create(out, bridge, port),
        }
    }
    for port in standing.iter().filter(|port| !keep.contains(&port.port)) {
        let (bridge, name) = port.bridge;
        let at = || vec![Condition::uuid(bridge)];
        let gone = vec![Mutation::delete("ports", port.port)];
        out = out
            .guard(BRIDGE, at(), named(name))
            .mutate(BRIDGE, at(), gone);
    }
    Ok((out.operations().len() > empty).then_some(out))
}

fn named(name: &str) -> Row {
    Row::new().with("name", name)
}

fn standing(replica: &Replica) -> Result<Vec<Standing<'_>>, AccessError> {
    let ports = replica.table(PORT)?;
    let interfaces = replica.table(INTERFACE)?;
    let mut found = Vec::new();
    for (bridge, record) in replica.table(BRIDGE)? {
        let name = record.get("name")?;
        for uuid in record.get::<Vec<Uuid>>("ports")? {
            let Some(port) = ports.get(&uuid) else {
                continue;
            };
            let ids: BTreeMap<&str, &str> = port.get("external_ids")?;
            if !ids.contains_key(OWNER) {
                continue;
            }
            let members: Vec<Uuid> = port.get("interfaces")?;
            let only = match members.as_slice() {
                [only] => interfaces.get(only).map(|record| (*only, record)),
                _ => None,
            };
            found.push(Standing {
                bridge: (*bridge, name),
                port: uuid,
                name: port.get("name")?,
                interface: only,
            });
        }
    }
    Ok(found)
}

fn bridge(replica: &Replica, name: &str) -> Result<Uuid, PortError> {
    for (uuid, record) in replica.table(BRIDGE)? {
        if record.get::<&str>("name")? == name {
            return Ok(*uuid);
        }
    }
    Err(PortError::NoBridge {
        bridge: name.to_owned(),
    })
}

fn exists(replica: &Replica, name: &str) -> Result<bool, AccessError> {
    for table in [PORT, INTERFACE] {
        for record in replica.table(table)?.values() {
            if record.get::<&str>("name")? == name {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn create(out: Transaction, bridge: Uuid, wanted: &InternalPort) -> Transaction {
    let (port, interface) = (random_uuid(), random_uuid());
    let ids = [(IFACE_ID, wanted.iface_id.as_str()), (OWNER, &wanted.owner)];
    let below = named(&wanted.name)
        .with("type", "internal")
        .with("mac", wanted.mac.to_string())
        .with("mtu_request", wanted.mtu)
        .with("external_ids", Datum::map(ids));
    let above = named(&wanted.name)
        .with("interfaces", interface)
        .with("external_ids", Datum::map([(OWNER, wanted.owner.as_str())]));
    let at = || vec![Condition::uuid(bridge)];
    out.guard(BRIDGE, at(), named(&wanted.bridge))
        .insert(INTERFACE, interface, below)
        .insert(PORT, port, above)
        .mutate(BRIDGE, at(), vec![Mutation::insert("ports", port)])
}

/// Changes what differs of an interface.
fn change(
    mut out: Transaction,
    uuid: Uuid,
    record: &Record,
    wanted: &InternalPort,
) -> Result<Transaction, AccessError> {
    let mut row = Row::new();
    if record.get::<&str>("type")? != "internal" {
        row.set("type", "internal");
    }
    // Whoever wrote it may have used capitals.
    if record.get::<Option<&str>>("mac")?.map(str::parse) != Some(Ok(wanted.mac)) {
        row.set("mac", wanted.mac.to_string());
    }
    if record.get::<Option<i64>>("mtu_request")? != Some(wanted.mtu.into()) {
        row.set("mtu_request", wanted.mtu);
    }
    let at = || vec![Condition::uuid(uuid)];
    let mut changes = Vec::new();
    if row.columns().next().is_some() {
        changes.push(ovsdb::Operation::Update {
            table: INTERFACE.into(),
            conditions: at(),
            row,
        });
    }
    let ids: BTreeMap<&str, &str> = record.get("external_ids")?;
    let other: Vec<(&str, &str)> = [(IFACE_ID, wanted.iface_id.as_str()), (OWNER, &wanted.owner)]
        .into_iter()
        .filter(|(key, value)| ids.get(key) != Some(value))
        .collect();
    if !other.is_empty() {
        let keys = Datum::set(other.iter().map(|(key, _)| *key));
        changes.push(ovsdb::Operation::Mutate {
            table: INTERFACE.into(),
            conditions: at(),
            mutations: vec![
                Mutation::delete("external_ids", keys),
                Mutation::insert("external_ids", Datum::map(other)),
            ],
        });
    }
    if !changes.is_empty() {
        out = out.guard(INTERFACE, at(), named(&wanted.name));
    }
    Ok(changes.into_iter().fold(out, Transaction::push))
}
