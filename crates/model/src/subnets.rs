//! Subnets, and what belongs to each.
//! In: prefixes with values. Out: the value of the subnet that a prefix lies in.
//! Invariant: a look costs one search for each length that subnets have, however many they are.
//! Not here: what the values mean.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::Prefix;

/// Subnets by prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnets<T> {
    of: BTreeMap<Prefix, T>,
    lengths: BTreeSet<u8>,
}

impl<T> Default for Subnets<T> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }
}

impl<T> Subnets<T> {
    /// The value of the longest subnet that `prefix` equals or lies in.
    #[must_use]
    pub fn longest_match(&self, prefix: &Prefix) -> Option<&T> {
        let mut lengths = self.lengths.range(..=prefix.bits()).rev();
        lengths.find_map(|length| {
            let subnet = Prefix::new(prefix.network(), *length).ok()?;
            self.of.get(&subnet)
        })
    }

    /// Whether `prefix` equals or covers one of the subnets.
    #[must_use]
    pub fn any_within(&self, prefix: &Prefix) -> bool {
        // In the order of prefixes, those that one covers come right after it.
        let next = self.of.range(prefix..).next();
        next.is_some_and(|(subnet, _)| prefix.contains(subnet))
    }
}

impl<T> FromIterator<(Prefix, T)> for Subnets<T> {
    /// Of a repeated subnet the last value stays.
    fn from_iter<I: IntoIterator<Item = (Prefix, T)>>(subnets: I) -> Self {
        let of: BTreeMap<Prefix, T> = subnets.into_iter().collect();
        Self {
            lengths: of.keys().map(Prefix::bits).collect(),
            of,
        }
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
