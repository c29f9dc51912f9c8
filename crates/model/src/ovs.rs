//! What we make in and read from Open vSwitch.
//! In: facts decoded from the Open_vSwitch database. Out: ports and flows as values.
//! Invariant: two flows with the same table, priority and match are the same flow; text is ovs-ofctl's own syntax.
//! Not here: how they are written (`host`, `ovn`).

use std::collections::BTreeMap;
use std::fmt;

use crate::address::Mac;
use crate::names::{DEFAULT_NETWORK, NetworkName, NodeName};
use crate::nb::OWNER;

/// Cookie of every flow on the external bridge; OVN-Kubernetes' own (facts: bridgeflows).
pub const COOKIE: u64 = 0x0def_f105;

/// The integration bridge, which ovn-controller fills.
pub const INTEGRATION_BRIDGE: &str = "br-int";

/// Localnet port of a node's external switch: `<bridge>_<scope><node>`; also `interface-id` of l3-gateway-config.
#[must_use]
pub fn localnet_port(bridge: &str, network: &NetworkName, node: &NodeName) -> String {
    format!("{bridge}_{}{node}", network.scope())
}

/// The patch port that ovn-controller makes on the external bridge for that localnet port.
/// Often longer than 15 characters, so it cannot stand in a flow: take its `ofport`.
#[must_use]
pub fn patch_port(bridge: &str, network: &NetworkName, node: &NodeName) -> String {
    format!(
        "patch-{}-to-{INTEGRATION_BRIDGE}",
        localnet_port(bridge, network, node)
    )
}

/// What the conf database says of one port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFact {
    /// `Interface.name`.
    pub name: String,
    /// `Interface.type`: empty, internal, patch, ...
    pub kind: String,
    /// `Interface.ofport` where it is positive.
    pub ofport: Option<u32>,
}

/// What the conf database says of one bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeFact {
    /// Its ports, by name.
    pub ports: Vec<PortFact>,
}

/// An internal port that must exist on a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalPort {
    /// `Bridge.name`.
    pub bridge: String,
    /// Port, interface and device name, at most 15 characters.
    pub name: String,
    /// `Interface.mac` (one) and the LSP's MAC.
    pub mac: Mac,
    /// `external_ids:iface-id`.
    pub iface_id: String,
    /// `Interface.mtu_request`, bytes.
    pub mtu: u32,
    /// `external_ids:noverlay.io/owner`: the network.
    pub owner: String,
}

/// `Interface.external_ids` key by which OVN-Kubernetes says which network of users a management port is of.
const INTERFACE_NETWORK: &str = "k8s.ovn.org/network";

impl InternalPort {
    /// `Interface.external_ids` of ours: the logical port, the owner, and of a network of users its name.
    #[must_use]
    pub fn interface_ids(&self) -> BTreeMap<String, String> {
        let network = Some((INTERFACE_NETWORK, &self.owner));
        let network = network.filter(|(_, name)| *name != DEFAULT_NETWORK);
        let ids = [("iface-id", &self.iface_id), (OWNER, &self.owner)];
        let ids = ids.into_iter().chain(network);
        ids.map(|(key, value)| (key.to_owned(), value.clone()))
            .collect()
    }
}

/// An OpenFlow flow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Table number.
    pub table: u8,
    /// Higher wins.
    pub priority: u16,
    /// Match fields in ovs-ofctl's syntax; empty matches everything.
    pub matches: String,
    /// Actions in ovs-ofctl's syntax.
    pub actions: String,
}

impl Flow {
    /// A flow.
    #[must_use]
    pub fn new(
        table: u8,
        priority: u16,
        matches: impl Into<String>,
        actions: impl Into<String>,
    ) -> Self {
        Self {
            table,
            priority,
            matches: matches.into(),
            actions: actions.into(),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cookie={COOKIE:#x},table={},priority={}",
            self.table, self.priority
        )?;
        if !self.matches.is_empty() {
            write!(f, ",{}", self.matches)?;
        }
        write!(f, ",actions={}", self.actions)
    }
}
