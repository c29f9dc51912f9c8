//! What the node's kernel has to hold for its networks: addresses of management ports, ip rules and routes of ours.
//! In: a planner's wish, or what `netlink` decoded. Out: entries by identity, to be compared as rows of a database are.
//! Invariant: everything here can be distinguished from other people's entries (a wanted device, rule preference and table, route protocol).
//! Not here: routes that BGP brings (`route`), how entries are read and written (`netlink`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::address::{InterfaceAddr, Mac, Prefix};
use crate::route::TableId;

/// Preference of the rule that sends the host's own traffic to pods through OVN (OVN-Kubernetes: 31).
pub const POD_RULE_PREFERENCE: u32 = 31;
/// Table of that rule (OVN-Kubernetes: 7).
pub const POD_RULE_TABLE: u32 = 7;
/// Route protocol of our routes, the number that OVN-Kubernetes uses for its own.
pub const PROTOCOL: u8 = 85;

/// Identity of an entry. In this order they are written: a device is up before it has addresses, and a table has routes
/// before rules lead to it; they are removed the other way round.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelKey {
    /// A device that Open vSwitch made.
    Link {
        /// Its name, `ovn-k8s-mp<N>`.
        device: String,
    },
    /// An address on one of those.
    Address {
        /// The device.
        device: String,
        /// The address.
        address: InterfaceAddr,
    },
    /// `ip route add TO table T proto 85`.
    Route {
        /// Table.
        table: u32,
        /// Destination.
        to: Prefix,
    },
    /// `ip rule add pref P to TO lookup T`.
    Rule {
        /// Preference; lower is looked at first.
        preference: u32,
        /// Destination.
        to: Prefix,
        /// Table.
        table: u32,
    },
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { device } => write!(f, "device {device}"),
            Self::Address { device, address } => write!(f, "address {address} of {device}"),
            Self::Route { table, to } => write!(f, "route to {to} in table {table}"),
            Self::Rule {
                preference,
                to,
                table,
            } => write!(f, "rule {preference} to {to}, table {table}"),
        }
    }
}

/// What an entry holds beside its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEntry {
    /// Of a link: whether it is administratively up.
    Link {
        /// True: up.
        up: bool,
    },
    /// Of an address: nothing.
    Address,
    /// Of a unicast route.
    Route {
        /// Gateway.
        via: Option<IpAddr>,
        /// Device name; `None` where it has none that can be named.
        device: Option<String>,
        /// Route MTU in bytes.
        mtu: Option<u32>,
    },
    /// Of a rule.
    Rule {
        /// Whether it is for what starts on the host (`iif lo`) and for nothing narrower.
        local: bool,
    },
}

/// Entries by identity, as a planner wants them.
pub type Entries = BTreeMap<KernelKey, KernelEntry>;

/// What the kernel says of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFact {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MAC, where it has one of six bytes.
    pub mac: Option<Mac>,
    /// Bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Addresses, sorted.
    pub addresses: Vec<InterfaceAddr>,
    /// Index of the bridge, bond or VRF device that it is a port of (`IFLA_MASTER`).
    pub master: Option<u32>,
    /// Where it is a VRF device: its routing table (`IFLA_VRF_TABLE`).
    pub vrf_table: Option<TableId>,
}
