//! How many imported destinations a network may have on its gateway router.
//! In: destinations that come and go, the limit. Out: which of them stay.
//! Invariant: a pod subnet never stays away for another route; what stays depends on the set of destinations alone, not on who
//! came first. Not here: which routes are eligible (`decide`).
//!
//! Order, first to stay: pod subnets of known nodes, then other prefixes inside the network, then the rest; of each, shorter
//! prefixes (they cover more), then the order of prefixes.
//! The unit is a destination: all its next hops stay or go.

use std::collections::BTreeSet;

use model::address::Prefix;

/// Skipped: more destinations than `[limits] max-imported-routes`.
pub const OVER_LIMIT: &str = "over_limit";

/// What a destination is to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Class {
    /// Equal to or inside a node's subnet.
    OfNode,
    /// Inside the network.
    Inside,
    Outside,
}

/// A destination's place in the order of importance: by class, short before long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    class: Class,
    bits: u8,
    /// The destination.
    pub prefix: Prefix,
}

impl Rank {
    /// The rank of a destination; `pods` are the network's subnets, `owned` is true where it equals or lies in a subnet of
    /// a node that is known.
    #[must_use]
    pub fn new(prefix: Prefix, pods: &[Prefix], owned: bool) -> Self {
        let inside = pods.iter().any(|subnet| subnet.contains(&prefix));
        Self {
            class: match (inside, owned) {
                (true, true) => Class::OfNode,
                (true, false) => Class::Inside,
                (false, _) => Class::Outside,
            },
            bits: prefix.bits(),
            prefix,
        }
    }
}

/// The destinations, parted at the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    limit: usize,
    kept: BTreeSet<Rank>,
    cut: BTreeSet<Rank>,
}

impl Budget {
    /// An empty one. `limit` in destinations. Source: `[limits] max-imported-routes`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: BTreeSet::new(),
            cut: BTreeSet::new(),
        }
    }

    /// One that holds these destinations.
    #[must_use]
    pub fn laid_out(limit: usize, mut ranks: BTreeSet<Rank>) -> Self {
        let first_cut = ranks.iter().nth(limit).copied();
        let cut = first_cut.map(|rank| ranks.split_off(&rank));
        Self {
            limit,
            kept: ranks,
            cut: cut.unwrap_or_default(),
        }
    }

    /// The destinations that stay, the most important first.
    pub fn kept(&self) -> impl Iterator<Item = Rank> {
        self.kept.iter().copied()
    }

    /// Those beyond the limit.
    pub fn cut(&self) -> impl Iterator<Item = &Rank> {
        self.cut.iter()
    }

    /// The limit, in destinations.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes another limit. Returns the destinations that change sides.
    pub fn set_limit(&mut self, limit: usize) -> Vec<Rank> {
        self.limit = limit;
        let mut moved = Vec::new();
        while self.kept.len() > limit
            && let Some(last) = self.kept.pop_last()
        {
            self.cut.insert(last);
            moved.push(last);
        }
        while self.kept.len() < limit
            && let Some(next) = self.cut.pop_first()
        {
            self.kept.insert(next);
            moved.push(next);
        }
        moved
    }

    /// How many destinations there are, on both sides of the limit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len() + self.cut.len()
    }

    /// True where there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.cut.is_empty()
    }

    /// Adds a destination. Returns another one that has to go for it.
    pub fn insert(&mut self, rank: Rank) -> Option<Rank> {
        if self.cut.contains(&rank) || !self.kept.insert(rank) {
            return None;
        }
        if self.kept.len() <= self.limit {
            return None;
        }
        let last = self.kept.pop_last()?;
        self.cut.insert(last);
        (last != rank).then_some(last)
    }

    /// Takes a destination away. Returns another one that may stay now.
    pub fn remove(&mut self, rank: &Rank) -> Option<Rank> {
        if self.cut.remove(rank) || !self.kept.remove(rank) {
            return None;
        }
        let next = self.cut.pop_first()?;
        self.kept.insert(next);
        Some(next)
    }

    /// Whether a destination stays.
    #[must_use]
    pub fn keeps(&self, rank: &Rank) -> bool {
        self.kept.contains(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn pods() -> [Prefix; 1] {
        [prefix("10.128.0.0/16")]
    }

    fn rank(text: &str) -> Rank {
        Rank::new(prefix(text), &pods(), false)
    }

    #[test]
    fn another_limit_moves_the_least_important_first() {
        let all = ["10.128.3.0/24", "10.0.0.0/8", "192.0.2.0/24"].map(rank);
        let mut sorted = all;
        sorted.sort_unstable();
        let mut budget = Budget::new(3);
        for rank in all {
            assert_eq!(budget.insert(rank), None);
        }
        assert_eq!(budget.set_limit(3), []);
        assert_eq!(budget.set_limit(1), [sorted[2], sorted[1]]);
        assert_eq!(budget, Budget::laid_out(1, all.into()));
        assert_eq!(budget.set_limit(2), [sorted[1]]);
        assert_eq!(budget, Budget::laid_out(2, all.into()));
        assert_eq!(budget.set_limit(0), [sorted[1], sorted[0]]);
        assert_eq!(budget.set_limit(9), sorted);
        assert_eq!(budget, Budget::laid_out(9, all.into()));
    }

    #[test]
    fn a_nodes_subnet_comes_before_whatever_else_is_inside_the_network() {
        let owned = |text: &str| Rank::new(prefix(text), &pods(), true);
        let mut order = [
            rank("192.0.2.0/24"),
            rank("10.0.0.0/8"),
            rank("10.128.0.0/17"),
            rank("10.128.9.0/24"),
            owned("10.128.3.7/32"),
            owned("10.128.3.0/24"),
            // Whatever a Node claims outside of the network is no pod's.
            owned("198.51.100.0/24"),
        ];
        order.sort_unstable();
        let order = order.map(|rank| rank.prefix.to_string());
        let expected = [
            "10.128.3.0/24",
            "10.128.3.7/32",
            "10.128.0.0/17",
            "10.128.9.0/24",
            "10.0.0.0/8",
            "192.0.2.0/24",
            "198.51.100.0/24",
        ];
        assert_eq!(order, expected);
    }

    fn over(budget: &Budget) -> usize {
        budget.len().saturating_sub(budget.limit())
    }

    #[test]
    fn pod_subnets_stay_first_then_shorter_prefixes_and_who_goes_or_comes_back_is_reported() {
        let mut budget = Budget::new(2);
        assert_eq!(budget.insert(rank("10.0.0.0/30")), None);
        assert_eq!(budget.insert(rank("172.16.0.0/12")), None);
        assert_eq!(
            budget.insert(rank("10.128.3.0/24")),
            Some(rank("10.0.0.0/30"))
        );
        assert_eq!(
            budget.insert(rank("192.0.2.0/24")),
            None,
            "it is over the limit itself"
        );
        assert_eq!(
            budget.insert(rank("10.0.0.0/8")),
            Some(rank("172.16.0.0/12"))
        );
        assert!(budget.keeps(&rank("10.128.3.0/24")) && budget.keeps(&rank("10.0.0.0/8")));
        assert_eq!(over(&budget), 3);
        assert_eq!(budget.remove(&rank("10.0.0.0/30")), None);
        assert_eq!(
            budget.remove(&rank("10.0.0.0/8")),
            Some(rank("172.16.0.0/12"))
        );
        assert!(!budget.keeps(&rank("192.0.2.0/24")));
        assert_eq!(over(&budget), 1);
        assert_eq!(
            budget.insert(rank("172.16.0.0/12")),
            None,
            "it is there already"
        );
        let mut none = Budget::new(0);
        assert_eq!(none.insert(rank("10.0.0.0/8")), None);
        assert_eq!(over(&none), 1);
    }

    proptest! {
        #[test]
        fn whatever_comes_and_goes_the_first_in_the_order_stay(
            steps in prop::collection::vec((any::<bool>(), 0_u8..4, 0_u8..12, 23_u8..26), 0..80),
            limit in 0_usize..12,
        ) {
            let mut budget = Budget::new(limit);
            let mut all: BTreeSet<Rank> = BTreeSet::new();
            for (come, first, third, bits) in steps {
                // A quarter of them are pod subnets.
                let net = if first == 0 { "10.128" } else { "10.7" };
                let rank = rank(&format!("{net}.{}.0/{bits}", third * 2));
                let before: BTreeSet<Rank> = all.iter().filter(|r| budget.keeps(r)).copied().collect();
                let moved = if come { all.insert(rank); budget.insert(rank) } else { all.remove(&rank); budget.remove(&rank) };
                let kept: BTreeSet<Rank> = all.iter().take(limit).copied().collect();
                for rank in &all {
                    prop_assert_eq!(budget.keeps(rank), kept.contains(rank));
                }
                prop_assert_eq!(budget.len(), all.len());
                let mut other: BTreeSet<Rank> = kept.symmetric_difference(&before).copied().collect();
                other.remove(&rank);
                prop_assert_eq!(other.into_iter().next(), moved);
            }
        }
    }
}
