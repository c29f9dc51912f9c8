//! What stands in the Open_vSwitch database, and our internal ports in it.
//! In: a replica of the tables of [`config`]. Out: chassis, bridges and ports; a transaction that makes our ports as wanted.
//! Invariant: `ofport` is told only where it is positive; of the ports only those with our stamp are changed or removed.
//! Not here: flows (`host`), addresses and state of devices (`netlink`).

mod ports;

use std::collections::BTreeMap;

use model::ovs::{BridgeFact, PortFact};
use ovsdb::{AccessError, ClientConfig, Endpoint, MonitorTable, Record, Replica, Uuid};

use crate::north::MAX_BACKOFF;

pub use self::ports::{PortError, ports};

/// The database.
pub const DATABASE: &str = "Open_vSwitch";

const BRIDGE: &str = "Bridge";
const PORT: &str = "Port";
const INTERFACE: &str = "Interface";

/// A client's configuration with the tables that this module reads.
#[must_use]
pub fn config(endpoint: Endpoint) -> ClientConfig {
    let interface = [
        "name",
        "type",
        "ofport",
        "mac",
        "mtu_request",
        "external_ids",
    ];
    let mut config = ClientConfig::new(endpoint, DATABASE);
    config.max_backoff = MAX_BACKOFF;
    config
        .table(MonitorTable::new(DATABASE, &["external_ids"]))
        .table(MonitorTable::new(BRIDGE, &["name", "ports"]))
        .table(MonitorTable::new(
            PORT,
            &["name", "interfaces", "external_ids"],
        ))
        .table(MonitorTable::new(INTERFACE, &interface))
}

/// What the node's Open vSwitch says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switch {
    /// `external_ids:system-id`, which ovn-controller takes as the chassis' name.
    pub system_id: Option<String>,
    /// `external_ids:ovn-bridge-mappings`: physical network by bridge.
    pub physical_networks: BTreeMap<String, String>,
    /// Bridges by name.
    pub bridges: BTreeMap<String, BridgeFact>,
}

impl Switch {
    /// Lifts the database.
    ///
    /// # Errors
    /// When a column is not monitored or not of the type that ovs-vswitchd.conf.db(5) gives it.
    pub fn lift(replica: &Replica) -> Result<Self, AccessError> {
        let mut switch = Self::default();
        for record in replica.table(DATABASE)?.values() {
            let mut ids: BTreeMap<String, String> = record.get("external_ids")?;
            switch.system_id = ids.remove("system-id").filter(|id| !id.is_empty());
            let mappings = ids.remove("ovn-bridge-mappings").unwrap_or_default();
            switch.physical_networks = mappings
                .split(',')
                .filter_map(|pair| pair.split_once(':'))
                .map(|(network, bridge)| (bridge.trim().to_owned(), network.trim().to_owned()))
                .collect();
        }
        let ports = replica.table(PORT)?;
        let interfaces = replica.table(INTERFACE)?;
        for record in replica.table(BRIDGE)?.values() {
            let mut fact = BridgeFact::default();
            for port in record.get::<Vec<Uuid>>("ports")? {
                let Some(port) = ports.get(&port) else {
                    continue;
                };
                for uuid in port.get::<Vec<Uuid>>("interfaces")? {
                    if let Some(interface) = interfaces.get(&uuid) {
                        fact.ports.push(port_fact(interface)?);
                    }
                }
            }
            fact.ports.sort_by(|a, b| a.name.cmp(&b.name));
            switch.bridges.insert(record.get("name")?, fact);
        }
        Ok(switch)
    }

    /// The number of a port of a bridge; `None` while it has none.
    #[must_use]
    pub fn ofport(&self, bridge: &str, port: &str) -> Option<u32> {
        let ports = &self.bridges.get(bridge)?.ports;
        ports.iter().find(|p| p.name == port)?.ofport
    }

    /// The ports of a bridge that lead out of the node: neither internal nor patch ports.
    #[must_use]
    pub fn uplinks(&self, bridge: &str) -> Vec<&PortFact> {
        let ports = self.bridges.get(bridge).map(|fact| fact.ports.as_slice());
        let inside = |port: &PortFact| {
            port.name == bridge || matches!(port.kind.as_str(), "internal" | "patch")
        };
        let ports = ports.unwrap_or_default().iter();
        ports.filter(|port| !inside(port)).collect()
    }
}

fn port_fact(interface: &Record) -> Result<PortFact, AccessError> {
    // -1: the switch could not make it; for a moment it can be 0 too.
    let ofport: Option<i64> = interface.get("ofport")?;
    let ofport = ofport.and_then(|number| u32::try_from(number).ok());
    Ok(PortFact {
        name: interface.get("name")?,
        kind: interface.get("type")?,
        ofport: ofport.filter(|number| *number > 0),
    })
}
