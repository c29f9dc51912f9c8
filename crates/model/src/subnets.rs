//! Subnets, and what belongs to each.
//! In: prefixes with values. Out: the value of the subnet that a prefix lies in.
//! Invariant: a look costs one search for each length that subnets have, however many they are; a copy shares them.
//! Not here: what the values mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::address::Prefix;
use crate::names::NodeName;

/// Subnets by prefix: of fifty networks and a thousand nodes they are many, and known in many places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnets<T> {
    /// In the order of prefixes, each one once.
    of: Arc<[(Prefix, T)]>,
    /// The lengths that there are, bits, each one once; the longest first.
    lengths: Arc<[u8]>,
}

/// The nodes that have a subnet, in the order of names.
pub type Owners = Arc<[NodeName]>;

impl<T> Default for Subnets<T> {
    fn default() -> Self {
        Self {
            of: Arc::new([]),
            lengths: Arc::new([]),
        }
    }
}

impl<T> Subnets<T> {
    /// The value of the longest subnet that `prefix` equals or lies in.
    #[must_use]
    pub fn longest_match(&self, prefix: &Prefix) -> Option<&T> {
        let mut lengths = self.lengths.iter();
        lengths.find_map(|length| {
            let fits = *length <= prefix.bits();
            let subnet = fits.then(|| Prefix::new(prefix.network(), *length))?.ok()?;
            let place = self.of.binary_search_by(|(of, _)| of.cmp(&subnet)).ok()?;
            self.of.get(place).map(|(_, value)| value)
        })
    }

    /// All of them, in the order of prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.of.iter().map(|(prefix, value)| (prefix, value))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether `prefix` equals or covers one of the subnets.
    #[must_use]
    pub fn any_within(&self, prefix: &Prefix) -> bool {
        // In the order of prefixes, those that one covers come right after it.
        let next = self.of.partition_point(|(of, _)| of < prefix);
        let next = self.of.get(next);
        next.is_some_and(|(subnet, _)| prefix.contains(subnet))
    }
}

impl Subnets<Owners> {
    /// Each subnet with each of its nodes.
    pub fn pairs(&self) -> impl Iterator<Item = (&Prefix, &NodeName)> {
        self.iter()
            .flat_map(|(subnet, nodes)| nodes.iter().map(move |node| (subnet, node)))
    }
}

impl<T> FromIterator<(Prefix, T)> for Subnets<T> {
    /// Of a repeated subnet the last value stays.
    fn from_iter<I: IntoIterator<Item = (Prefix, T)>>(subnets: I) -> Self {
        let of: BTreeMap<Prefix, T> = subnets.into_iter().collect();
        let lengths: BTreeSet<u8> = of.keys().map(Prefix::bits).collect();
        Self {
            lengths: lengths.into_iter().rev().collect(),
            of: of.into_iter().collect(),
        }
    }
}

impl FromIterator<(Prefix, NodeName)> for Subnets<Owners> {
    /// A repeated subnet has all nodes that it came with.
    fn from_iter<I: IntoIterator<Item = (Prefix, NodeName)>>(owners: I) -> Self {
        let mut by_subnet: BTreeMap<Prefix, BTreeSet<NodeName>> = BTreeMap::new();
        for (subnet, node) in owners {
            by_subnet.entry(subnet).or_default().insert(node);
        }
        let of = |(subnet, nodes): (Prefix, BTreeSet<NodeName>)| {
            let owners: Owners = nodes.into_iter().collect();
            (subnet, owners)
        };
        by_subnet.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_subnet_that_holds_a_prefix_counts() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let subnets: Subnets<u8> = [
            (prefix("10.0.0.0/8"), 1),
            (prefix("10.128.3.0/24"), 2),
            (prefix("2001:db8::/32"), 3),
        ]
        .into_iter()
        .collect();
        for (asked, found) in [
            ("10.128.3.0/24", Some(&2)),
            ("10.128.3.7/32", Some(&2)),
            ("10.128.4.0/24", Some(&1)),
            ("10.0.0.0/7", None),
            ("192.0.2.0/24", None),
            ("2001:db8:1::/64", Some(&3)),
        ] {
            assert_eq!(subnets.longest_match(&prefix(asked)), found, "{asked}");
        }
        for (asked, covers) in [
            ("10.0.0.0/7", true),
            ("10.128.0.0/16", true),
            ("10.128.3.0/24", true),
            ("10.128.3.0/25", false),
            ("10.128.2.0/24", false),
            ("10.129.0.0/16", false),
            ("2001::/16", true),
            ("2001:db9::/32", false),
        ] {
            assert_eq!(subnets.any_within(&prefix(asked)), covers, "{asked}");
        }
    }
}
