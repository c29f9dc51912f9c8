//! Prefixes with whom they belong to, looked up by overlap.
//! In: prefixes. Out: the one that shares an address with another. Invariant: a lookup costs a few dozen steps at most, however
//! many there are. Not here: whose claim counts for more.

use std::collections::{BTreeMap, BTreeSet};

use model::Prefix;

/// Prefixes, each with something of its own.
#[derive(Debug, Clone)]
pub(crate) struct PrefixMap<T> {
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
    pub(crate) fn insert(&mut self, prefix: Prefix, value: T) {
        self.lengths.insert(prefix.bits());
        self.map.entry(prefix).or_insert(value);
    }

    /// One that shares an address with `prefix`; the widest, or else the first.
    pub(crate) fn overlapping(&self, prefix: &Prefix) -> Option<(&Prefix, &T)> {
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

    fn mk_prefix((address, bits): (u32, u8)) -> Prefix {
        Prefix::new(std::net::IpAddr::V4(address.into()), bits).unwrap()
    }

    /// Addresses of few bits, so that prefixes meet often.
    fn any_prefix() -> impl Strategy<Value = (u32, u8)> {
        ((0_u32..64).prop_map(|n| n << 26), 0_u8..=8)
    }

    proptest! {
        #[test]
        fn it_finds_an_overlap_exactly_where_there_is_one(
            held in prop::collection::vec(any_prefix(), 0..8),
            asked in any_prefix(),
        ) {
            let held: Vec<Prefix> = held.into_iter().map(mk_prefix).collect();
            let asked = mk_prefix(asked);
            let mut map = PrefixMap::default();
            for prefix in &held {
                map.insert(*prefix, ());
            }
            let found = map.overlapping(&asked).map(|(p, ())| *p);
            prop_assert_eq!(found.is_some(), held.iter().any(|p| p.overlaps(&asked)));
            prop_assert!(found.is_none_or(|p| p.overlaps(&asked)));
        }
    }
}
