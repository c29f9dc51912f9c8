//! What the host's packet filter (nftables) holds of ours: sets and chains of one table.
//! In: a planner's wish, or what `host` read. Out: values to be compared, in the spelling of `nft list table`.
//! Invariant: a chain's rules are all of its rules, a set's elements all of its elements; other people's chains and sets of the
//! table are not here. Not here: how they are written (`host`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::{Family, Prefix};

/// A table with sets and chains of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Table {
    /// `inet ovn-kubernetes`, which others write to as well: [`SETS`] and [`CHAINS`] may be ours.
    #[default]
    Shared,
    /// `inet noverlay`: whatever is in it is ours.
    Own,
}

impl Table {
    /// Family and name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "inet ovn-kubernetes",
            Self::Own => "inet noverlay",
        }
    }

    /// Whether a set of this name may be ours, wanted or not.
    #[must_use]
    pub fn has_set(self, name: &str) -> bool {
        self == Self::Own || SETS.contains(&name)
    }

    /// Whether a chain of this name may be ours, wanted or not.
    #[must_use]
    pub fn has_chain(self, name: &str) -> bool {
        self == Self::Own || CHAINS.contains(&name)
    }
}

/// Sets of the shared table that may be ours, wanted or not.
pub const SETS: [&str; 8] = [
    "no-overlay-snat-exempt-v4",
    "no-overlay-snat-exempt-v6",
    "remote-node-ips-v4",
    "remote-node-ips-v6",
    "advertised-udn-subnets-v4",
    "advertised-udn-subnets-v6",
    "advertised-udn-spared-v4",
    "advertised-udn-spared-v6",
];

/// Chains of the shared table that may be ours, wanted or not: those that jump before those that are jumped to.
pub const CHAINS: [&str; 4] = [
    "udn-bgp-drop",
    "ovn-kube-local-gw-masq",
    "ovn-kube-pod-subnet-masq",
    "ovn-kube-udn-masq",
];

/// A set of addresses (flags interval, auto-merge).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSet {
    /// `type ipv4_addr` or `ipv6_addr`.
    pub family: Family,
    /// Addresses and prefixes; they may overlap.
    pub elements: BTreeSet<Prefix>,
}

/// Where a base chain hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `type`: nat or filter.
    pub kind: &'static str,
    /// `hook`: postrouting, output, ...
    pub hook: &'static str,
    /// `priority`, as a number.
    pub priority: i32,
}

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Of a base chain.
    pub hook: Option<Hook>,
    /// Rules in order, each in the spelling of `nft list`.
    pub rules: Vec<String>,
}

/// What we want of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Where.
    pub table: Table,
    /// Sets by name.
    pub sets: BTreeMap<String, AddressSet>,
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
}

impl Ruleset {
    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.chains.is_empty()
    }

    /// Takes the other's sets and chains along; of chains that both have the rules follow each other.
    pub fn extend(&mut self, other: Self) {
        for (name, set) in other.sets {
            match self.sets.get_mut(&name) {
                Some(own) => own.elements.extend(set.elements),
                None => drop(self.sets.insert(name, set)),
            }
        }
        for (name, chain) in other.chains {
            match self.chains.get_mut(&name) {
                Some(own) => own.rules.extend(chain.rules),
                None => drop(self.chains.insert(name, chain)),
            }
        }
    }
}

impl AddressSet {
    /// First and last address of each stretch, sorted, without gaps between neighbors: what auto-merge makes of the elements.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u128, u128)> {
        merged(self.elements.iter().map(range).collect())
    }
}

/// First and last address of a prefix, as numbers.
#[must_use]
pub fn range(prefix: &Prefix) -> (u128, u128) {
    let (first, bits) = match prefix.network() {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let host_bits = u32::from(bits - prefix.bits().min(bits));
    let span = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |n| n - 1);
    (first, first.saturating_add(span))
}

/// Stretches that touch or overlap, as one.
#[must_use]
pub fn merged(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    ranges.sort_unstable();
    let mut out: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ranges {
        match out.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            Some(_) | None => out.push((first, last)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(elements: &[&str]) -> AddressSet {
        AddressSet {
            family: Family::V4,
            elements: elements.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn what_overlaps_or_touches_is_one_stretch() {
        let ranges = |elements: &[&str]| set(elements).ranges();
        assert_eq!(
            ranges(&["10.0.0.0/24", "10.0.0.7/32"]),
            ranges(&["10.0.0.0/24"])
        );
        assert_eq!(
            ranges(&["10.0.0.0/25", "10.0.0.128/25"]),
            ranges(&["10.0.0.0/24"])
        );
        assert_eq!(ranges(&["10.0.0.0/25", "10.0.1.0/25"]).len(), 2);
        let all: Prefix = "::/0".parse().unwrap();
        assert_eq!(range(&all), (0, u128::MAX));
        assert_eq!(merged(vec![(0, u128::MAX), (5, 6)]), [(0, u128::MAX)]);
    }
}
