//! Routes as the kernel has them.
//! In: netlink messages decoded by `netlink`. Out: values for `rib`.
//! Invariant: one value per kernel route; ECMP paths are sorted.
//! Not here: which of them are imported.

use std::net::IpAddr;

use crate::address::Prefix;

/// Routing table number; 254 is main.
pub type TableId = u32;

/// The main table.
pub const MAIN_TABLE: TableId = 254;
/// `RTPROT_BGP` of rtnetlink: what FRR's zebra gives to routes of bgpd.
pub const PROTOCOL_BGP: u8 = 186;

/// One path of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutePath {
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
    /// Forwards it, over at least one path inside another packet or with labels (`RTA_ENCAP`: MPLS, SRv6, tunnels).
    Encapsulated,
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
    pub paths: Vec<RoutePath>,
}

/// What an event says of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteChange {
    /// It is there, beside what was there before.
    Added,
    /// It is there, in the place of the route with the same table, destination and metric, whoever made that one.
    Replaced,
    /// It is gone.
    Gone,
}

/// An event of a route (rtnetlink(7), `RTM_NEWROUTE` and `RTM_DELROUTE`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEvent {
    /// What happened.
    pub change: RouteChange,
    /// rtm_protocol of the route.
    pub protocol: u8,
    /// The route.
    pub route: KernelRoute,
}

/// What is known of routes beside the last dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hints {
    /// These events and no others, in their order.
    Events(Vec<RouteEvent>),
    /// Events do not tell all: a dump has to.
    Dump,
}

impl Default for Hints {
    fn default() -> Self {
        Self::Events(Vec::new())
    }
}

impl Hints {
    /// How many events are kept: with more of them a dump is cheaper.
    pub const MOST: usize = 4096;

    /// Adds what happened later.
    pub fn extend(&mut self, later: Self) {
        let Self::Events(events) = self else {
            return;
        };
        match later {
            Self::Events(later) if events.len() + later.len() <= Self::MOST => events.extend(later),
            Self::Events(_) | Self::Dump => *self = Self::Dump,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: RouteEvent) {
        if let Self::Events(events) = self {
            if events.len() < Self::MOST {
                events.push(event);
            } else {
                *self = Self::Dump;
            }
        }
    }
}
