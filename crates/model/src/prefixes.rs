//! Prefixes with whom they belong to, looked up by overlap.
//! In: prefixes. Out: the one that shares an address with another. Invariant: a lookup costs a few dozen steps at most, however
//! many there are. Not here: whose claim counts for more.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::Prefix;

/// Prefixes, each with something of its own.
#[derive(Debug, Clone)]
pub struct PrefixMap<T> {
    map: BTreeMap<Prefix, T>,
    /// The lengths of those: a network's subnets have one or two.
    lengths: BTreeSet<u8>,
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }
}

impl<T> PrefixMap<T> {
    /// Puts a prefix in; what was there for the same one stays.
    pub fn insert(&mut self, prefix: Prefix, value: T) {
        self.lengths.insert(prefix.bits());
        self.map.entry(prefix).or_insert(value);
    }

    /// One that shares an address with `prefix`; the widest, or else the first.
    #[must_use]
    pub fn overlapping(&self, prefix: &Prefix) -> Option<(&Prefix, &T)> {
        let wider = self.lengths.range(..=prefix.bits());
        let around = wider
            .filter_map(|bits| Prefix::new(prefix.network(), *bits).ok())
            .find_map(|wider| self.map.get_key_value(&wider));
        // Whatever lies inside begins at its first address or behind it, so the next one tells.
        around.or_else(|| {
            let next = self.map.range(prefix..).next();
            next.filter(|(inner, _)| prefix.contains(inner))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Addresses and lengths of few bits of either family, so that prefixes meet often.
    fn any_prefix() -> impl Strategy<Value = Prefix> {
        let v4 = (0_u32..64, 0_u8..=8)
            .prop_map(|(n, bits)| Prefix::new(std::net::IpAddr::V4((n << 26).into()), bits));
        let v6 = (0_u128..64, 0_u8..=8)
            .prop_map(|(n, bits)| Prefix::new(std::net::IpAddr::V6((n << 122).into()), bits));
        // And the narrowest.
        let host = (0_u32..4).prop_map(|n| Prefix::new(std::net::IpAddr::V4((n << 30).into()), 32));
        prop_oneof![4 => v4, 4 => v6, 1 => host].prop_map(Result::unwrap)
    }

    proptest! {
        #[test]
        fn it_finds_the_widest_overlap_or_else_the_first_with_what_was_there_first(
            held in prop::collection::vec(any_prefix(), 0..12),
            asked in any_prefix(),
        ) {
            let mut map = PrefixMap::default();
            let mut model: Vec<(Prefix, usize)> = Vec::new();
            for (value, prefix) in held.into_iter().enumerate() {
                map.insert(prefix, value);
                if model.iter().all(|(other, _)| *other != prefix) {
                    model.push((prefix, value));
                }
            }
            model.retain(|(prefix, _)| prefix.overlaps(&asked));
            // The widest around it; of those inside of it the first by address, the widest at that address.
            model.sort_by_key(|(prefix, _)| {
                let is_inside = !prefix.contains(&asked);
                let address = is_inside.then(|| prefix.network());
                (is_inside, address, prefix.bits())
            });
            let found = map.overlapping(&asked).map(|(prefix, value)| (*prefix, *value));
            prop_assert_eq!(found, model.first().copied());
        }
    }
}
