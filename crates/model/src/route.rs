//! Routes as the kernel has them.
//! In: netlink messages lifted by `netlink`. Out: values for `rib`.
//! Invariant: one value per kernel route; ECMP legs are sorted.
//! Not here: which of them are imported.

use std::net::IpAddr;

use crate::address::Prefix;

/// Routing table number; 254 is main.
pub type TableId = u32;

/// The main table.
pub const MAIN_TABLE: TableId = 254;
/// `RTPROT_BGP` of rtnetlink: what FRR's zebra gives to routes of bgpd.
pub const PROTOCOL_BGP: u8 = 186;

/// One leg of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leg {
    /// Gateway address; for an IPv4 prefix it may be an IPv6 one (RFC 8950). `None`: on link.
    pub gateway: Option<IpAddr>,
    /// Index of the output interface, 0 where unknown.
    pub oif: u32,
}

/// What the kernel does with a packet that the route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Forwards it.
    Unicast,
    /// Blackhole, unreachable, prohibit and all the others.
    Other,
}

/// A kernel route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRoute {
    /// Table.
    pub table: TableId,
    /// Destination.
    pub prefix: Prefix,
    /// Lower wins.
    pub metric: u32,
    /// Kind.
    pub kind: RouteKind,
    /// Legs, sorted; empty where only a nexthop id was given and it is unknown.
    pub legs: Vec<Leg>,
}
