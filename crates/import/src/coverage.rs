//! Whether a node can reach every other node's pods, in the kernel and in OVN.
//! In: other nodes' subnets, and the prefixes that kernel and gateway router hold. Out: counts, the first gaps, a digest.
//! Invariant: a destination counts where its longest matching prefix, the default route aside, forwards.
//! Not here: which next hop a route has; that is reported elsewhere, not evaluated.

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::hash;
use model::names::NodeName;

/// How many gaps are named.
const NAMED: usize = 10;

/// Whether the whole of `destination` is forwarded by one prefix other than the default. `at` says of a prefix whether a
/// routing table forwards it (true), drops it (false), or has no route for it (nothing).
#[must_use]
pub fn covers(destination: &Prefix, at: impl Fn(&Prefix) -> Option<bool>) -> bool {
    (1..=destination.bits())
        .rev()
        .filter_map(|len| Prefix::new(destination.network(), len).ok())
        .find_map(|prefix| at(&prefix))
        .unwrap_or(false)
}

/// What a node reports of a network (`NodeRoutes`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// Subnets of other nodes.
    pub expected: usize,
    /// How many of them the kernel forwards.
    pub in_kernel: usize,
    /// How many of them the gateway router forwards.
    pub in_ovn: usize,
    /// The first ten gaps in the order of nodes and subnets, for a person.
    pub missing: Vec<String>,
    /// Ten characters that change with the set of destinations and the state of each.
    pub digest: String,
}

impl Coverage {
    /// True where every destination is forwarded in both.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.in_kernel == self.expected && self.in_ovn == self.expected
    }
}

/// Evaluates the subnets of all nodes but the own one by what kernel and gateway router have at a prefix (see [`covers`]).
#[must_use]
pub fn evaluate(
    expected: &BTreeMap<NodeName, Vec<Prefix>>,
    kernel: impl Fn(&Prefix) -> Option<bool>,
    ovn: impl Fn(&Prefix) -> Option<bool>,
) -> Coverage {
    let mut coverage = Coverage {
        expected: 0,
        in_kernel: 0,
        in_ovn: 0,
        missing: Vec::new(),
        digest: String::new(),
    };
    let mut identity = String::new();
    for (node, subnets) in expected {
        let subnets: BTreeSet<&Prefix> = subnets.iter().collect();
        for subnet in subnets {
            let state = (covers(subnet, &kernel), covers(subnet, &ovn));
            coverage.expected += 1;
            coverage.in_kernel += usize::from(state.0);
            coverage.in_ovn += usize::from(state.1);
            identity.push_str(&format!("{node} {subnet} {} {}\n", state.0, state.1));
            let gap = match state {
                (true, true) => continue,
                (true, false) => "in kernel, not in OVN",
                (false, true) => "in OVN, not in kernel",
                (false, false) => "neither in kernel nor in OVN",
            };
            if coverage.missing.len() < NAMED {
                coverage.missing.push(format!("{node} {subnet}: {gap}"));
            }
        }
    }
    coverage.digest = hash::short(&identity);
    coverage
}

#[cfg(test)]
mod tests;
