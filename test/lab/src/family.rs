//! IPv4 and IPv6, and which of them a lab has.
//!
//! In: a choice of the command line, or an address. Out: the words that tools have for a
//! family. Invariant: IPv4 comes first wherever both are. Addresses are not here.

use std::net::IpAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// The option of `ip` that names it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// Its name in FRR's commands.
    pub(crate) fn afi(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Source and destination in a flow of Open vSwitch.
    pub(crate) fn flow_words(self) -> (&'static str, &'static str) {
        match self {
            Self::V4 => ("nw_src", "nw_dst"),
            Self::V6 => ("ipv6_src", "ipv6_dst"),
        }
    }

    /// tcpdump's filter for echo requests.
    pub(crate) fn echo_filter(self) -> &'static str {
        match self {
            Self::V4 => "icmp[icmptype] == icmp-echo",
            // Of extension headers there are none.
            Self::V6 => "(icmp6 and ip6[40] == 128)",
        }
    }
}

/// What a lab's addresses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Families {
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
    /// Both, IPv4 first.
    Dual,
}

impl Families {
    /// Of one value for each family, those that the lab has.
    pub(crate) fn of<T>(self, v4: T, v6: T) -> Vec<T> {
        match self {
            Self::Ipv4 => vec![v4],
            Self::Ipv6 => vec![v6],
            Self::Dual => vec![v4, v6],
        }
    }
}
