//! What the node's kernel has to hold for a network: an address, ip rules and routes of ours.
//! In: a planner's wish. Out: values that `netlink` compares with the kernel.
//! Invariant: everything here can be distinguished from other people's entries (device name, rule preference, table).
//! Not here: routes that BGP brings (`route`).

use std::net::IpAddr;

use crate::address::{InterfaceAddr, Mac, Prefix};
use crate::route::TableId;

/// Preference of the rule that sends the host's own traffic to pods through OVN (OVN-Kubernetes: 31).
pub const POD_RULE_PREFERENCE: u32 = 31;
/// Table of that rule (OVN-Kubernetes: 7).
pub const POD_RULE_TABLE: u32 = 7;

/// A management port: device, its address and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagementPort {
    /// Device name, `ovn-k8s-mp<N>`.
    pub device: String,
    /// Its MAC.
    pub mac: Mac,
    /// Its addresses: the second of each node subnet.
    pub addresses: Vec<InterfaceAddr>,
    /// Bytes.
    pub mtu: u32,
}

/// `ip rule pref P iif lo to PREFIX lookup T`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalRule {
    /// Preference; lower is looked at first.
    pub preference: u32,
    /// Destination.
    pub to: Prefix,
    /// Table.
    pub table: u32,
}

/// A unicast route of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRoute {
    /// Table.
    pub table: u32,
    /// Destination.
    pub to: Prefix,
    /// Gateway.
    pub via: IpAddr,
    /// Device name.
    pub device: String,
    /// Route MTU in bytes.
    pub mtu: u32,
}

/// All that one network needs in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNetwork {
    /// The management port.
    pub port: ManagementPort,
    /// Rules.
    pub rules: Vec<LocalRule>,
    /// Routes.
    pub routes: Vec<HostRoute>,
}

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
