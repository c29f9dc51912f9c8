//! What the node's kernel has to hold for its networks: addresses of management ports, ip rules and routes of ours.
//! In: a planner's wish, or what `netlink` decoded. Out: entries by identity, to be compared as rows of a database are.
//! Invariant: everything here can be distinguished from other people's entries (a wanted device, rule preference and table, route protocol).
//! Not here: routes that BGP brings (`route`), how entries are read and written (`netlink`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::address::{Family, InterfaceAddr, Mac, Prefix};
use crate::route::TableId;

/// Preference of the rule that sends the host's own traffic to pods through OVN (OVN-Kubernetes: 31).
pub const POD_RULE_PREFERENCE: u32 = 31;
/// Table of that rule (OVN-Kubernetes: 7).
pub const POD_RULE_TABLE: u32 = 7;
/// Preference of the rule that sends what is marked so to Services by the node's own switch, for
/// `internalTrafficPolicy: Local` (OVN-Kubernetes: 30).
pub const SERVICE_RULE_PREFERENCE: u32 = 30;
/// That mark (OVN-Kubernetes: 0x1745ec).
pub const SERVICE_MARK: u32 = 0x0017_45ec;
/// Preference of rules that lead into the table of a network's VRF (OVN-Kubernetes: 2000).
pub const VRF_RULE_PREFERENCE: u32 = 2000;
/// Route protocol of our routes, the number that OVN-Kubernetes uses for its own.
pub const PROTOCOL: u8 = 85;
/// Metric of routes that drop what nobody has a better route for, routing daemons included (the one that
/// OVN-Kubernetes has in VRFs).
pub const LAST_METRIC: u32 = 4_278_198_272;

/// Identity of an entry. In this order they are written: a device is up and in its VRF before it has addresses, and a table
/// has routes before rules lead to it; they are removed the other way round.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelKey {
    /// A VRF device.
    Vrf {
        /// Its name.
        device: String,
    },
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
    /// `ip neigh add IP lladdr MAC nud permanent`: whom nobody has to ask for.
    Neighbor {
        /// The device behind which it is.
        device: String,
        /// The neighbor.
        ip: IpAddr,
    },
    /// `ip route add TO table T metric M proto 85`.
    Route {
        /// Table.
        table: TableId,
        /// Destination.
        to: Prefix,
        /// Lower wins. IPv6 has no 0: [`route_metric`].
        metric: u32,
    },
    /// `ip rule add pref P SELECTOR lookup T`.
    Rule {
        /// Preference; lower is looked at first.
        preference: u32,
        /// What it is for.
        selector: RuleSelector,
        /// Table.
        table: TableId,
    },
}

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleSelector {
    /// `to PREFIX`.
    To(Prefix),
    /// `fwmark MARK`, of one family.
    Mark(Family, u32),
}

impl fmt::Display for RuleSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(prefix) => write!(f, "to {prefix}"),
            Self::Mark(family, mark) => write!(f, "fwmark {mark:#x} (IP{})", family.version()),
        }
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vrf { device } => write!(f, "VRF {device}"),
            Self::Link { device } => write!(f, "device {device}"),
            Self::Address { device, address } => write!(f, "address {address} of {device}"),
            Self::Neighbor { device, ip } => write!(f, "neighbor {ip} of {device}"),
            Self::Route { table, to, metric } => {
                write!(f, "route to {to} in table {table}")?;
                if *metric == route_metric(to.family(), 0) {
                    return Ok(());
                }
                write!(f, ", metric {metric}")
            }
            Self::Rule {
                preference,
                selector,
                table,
            } => write!(f, "rule {preference} {selector}, table {table}"),
        }
    }
}

/// The metric that the kernel gives a route with this one: for IPv6 1024 is what 0 means.
#[must_use]
pub fn route_metric(family: Family, metric: u32) -> u32 {
    match (family, metric) {
        (Family::V6, 0) => 1024,
        (_, metric) => metric,
    }
}

/// What an entry holds beside its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEntry {
    /// Of a VRF device.
    Vrf {
        /// Its table.
        table: TableId,
        /// Whether it is administratively up.
        up: bool,
    },
    /// Of a link.
    Link {
        /// Whether it is administratively up.
        up: bool,
        /// The VRF device that it is a port of.
        vrf: Option<String>,
    },
    /// Of an address.
    Address {
        /// Whether the kernel makes a route to its subnet (without `noprefixroute`).
        prefix_route: bool,
    },
    /// Of a permanent neighbor.
    Neighbor {
        /// Its address on the link.
        mac: Mac,
    },
    /// Of a route.
    Route(RouteTarget),
    /// Of a rule.
    Rule {
        /// Whether it is for what starts on the host (`iif lo`) and for nothing narrower.
        local: bool,
    },
}

/// Where a route of ours leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// Nowhere: the sender is told that there is no way (`unreachable`).
    Unreachable,
    /// Over a device.
    Device {
        /// Device name; `None` where it has none that can be named.
        device: Option<String>,
        /// Gateway; `None`: what it leads to is on the link.
        via: Option<IpAddr>,
        /// Source address of what the host itself sends (`src`).
        source: Option<IpAddr>,
        /// Route MTU in bytes.
        mtu: Option<u32>,
    },
}

/// Beginning of the alias of VRF devices that we made; the network's name follows. Others' are used and never removed.
pub const VRF_ALIAS: &str = "noverlay:";

/// Entries by identity, as a planner wants them.
pub type Entries = BTreeMap<KernelKey, KernelEntry>;

/// Metric of our routes in main that lead somewhere: the number tells them from others' of the same protocol.
pub const MAIN_METRIC: u32 = LAST_METRIC - 1;

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
    /// `IFLA_IFALIAS`, empty where it has none: [`VRF_ALIAS`] tells VRF devices of ours.
    pub alias: String,
    /// Names beside `name` (`IFLA_ALT_IFNAME`): the kernel gives none of them to another link.
    pub alternative_names: Vec<String>,
}
