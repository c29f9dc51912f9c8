//! The host lengths (`hostPrefix`) that are in force: those in use, not those of the file.
//! In: the world, a network. Out: its subnets, and a problem for each whose length in the file is another one.
//! Invariant: a new length in the file changes nothing while nodes hold subnets of another one; routers take in exactly the
//! length in force, so that a change would cut every node off from all others.
//! Not here: who gets a subnet (`networks`).

use std::collections::{BTreeMap, BTreeSet};

use model::address::{ClusterSubnet, Family};
use model::frr::PrefixRange;
use model::{Network, NetworkName, NodeName, Prefix, Problem};

use crate::generated::{self, Generated, Originated};
use crate::world::World;

/// Cluster subnets with the host lengths in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// In the order of the declaration.
    pub list: Vec<ClusterSubnet>,
    /// Lengths of the file that are refused.
    pub problems: Vec<Problem>,
}

impl Ranges {
    /// Those of one network.
    #[must_use]
    pub fn of(world: &World, network: &Network) -> Self {
        Self::all(world).remove(&network.name).unwrap_or_default()
    }

    /// Those of each network of the world.
    #[must_use]
    pub fn all(world: &World) -> BTreeMap<&NetworkName, Self> {
        let ours = generated::all(world).filter(Generated::is_ours);
        let originated = generated::originated(world, ours);
        Self::beside(world, &originated)
    }

    /// The same by what our objects originate.
    pub(crate) fn beside<'a>(
        world: &'a World,
        originated: &Originated<'a>,
    ) -> BTreeMap<&'a NetworkName, Self> {
        let networks = world.networks.iter();
        networks
            .map(|(name, network)| {
                let held = held(world, network, originated.get(name));
                (name, Self::by_votes(network, &held))
            })
            .collect()
    }

    /// The host length that most nodes hold in a cluster subnet, by annotation or in what was generated for them; that of
    /// the file where none holds any, or where as many hold it. A node has one vote in each, and none where it holds
    /// more than one prefix of it: what one node says of itself must not outvote others.
    fn by_votes(network: &Network, held: &[Held<'_>]) -> Self {
        let mut out = Self::default();
        for wanted in &network.subnets {
            let mut lengths: BTreeMap<u8, usize> = BTreeMap::new();
            for vote in held.iter().filter_map(|node| node.vote(wanted)) {
                *lengths.entry(vote).or_default() += 1;
            }
            let most = lengths
                .into_iter()
                .max_by_key(|(len, nodes)| (*nodes, *len == wanted.host_len));
            let host_len = most.map_or(wanted.host_len, |(len, _)| len);
            out.list.push(ClusterSubnet {
                cidr: wanted.cidr,
                host_len,
            });
            if let Some((len, count)) = most.filter(|(len, _)| *len != wanted.host_len) {
                out.problems.push(Problem::new(
                    format!("Network/{}", network.name),
                    "HostPrefixRefused",
                    format!(
                        "[default] cluster-subnets {wanted}: host length /{} is refused, because the subnets of {count} nodes in it are /{len}; /{len} stays in force (allowed: {}/{len}, or another cluster subnet beside it)",
                        wanted.host_len, wanted.cidr
                    ),
                ));
            }
        }
        out
    }

    /// Whether a prefix is one node's share of a cluster subnet.
    #[must_use]
    pub fn has(&self, subnet: &Prefix) -> bool {
        self.list
            .iter()
            .any(|c| c.cidr.contains(subnet) && c.host_len == subnet.bits())
    }

    /// Whether a prefix takes no address but those of one node's share of a cluster subnet.
    pub(crate) fn is_within_one_share(&self, subnet: &Prefix) -> bool {
        self.list
            .iter()
            .any(|c| c.cidr.contains(subnet) && c.host_len <= subnet.bits())
    }

    /// The families of the network.
    #[must_use]
    pub fn families(&self) -> BTreeSet<Family> {
        self.list.iter().map(|c| c.cidr.family()).collect()
    }

    /// What a router receives for the network: each cluster subnet at exactly the host length.
    #[must_use]
    pub fn received(&self, family: Option<Family>) -> Vec<PrefixRange> {
        let mut out: Vec<PrefixRange> = self
            .list
            .iter()
            .filter(|c| family.is_none_or(|f| c.cidr.family() == f))
            .map(|c| PrefixRange {
                prefix: c.cidr,
                ge: Some(c.host_len),
                le: Some(c.host_len),
            })
            .collect();
        out.sort_by_key(|r| r.prefix.to_string());
        out
    }
}

/// What a node holds.
#[derive(Debug, Clone, Copy)]
struct Held<'a> {
    /// By its annotation.
    annotated: &'a [Prefix],
    /// In what was generated for it.
    announced: &'a [Prefix],
}

impl Held<'_> {
    /// The length of its one prefix of a cluster subnet. What was generated counts where the annotation has none: it may be
    /// what the node had before.
    fn vote(&self, range: &ClusterSubnet) -> Option<u8> {
        let is_share = |p: &&Prefix| range.cidr.contains(p) && p.bits() > range.cidr.bits();
        for prefixes in [self.annotated, self.announced] {
            let mut shares = prefixes.iter().filter(is_share);
            if let Some(first) = shares.next() {
                // One that is there twice is one.
                return shares.all(|other| other == first).then(|| first.bits());
            }
        }
        None
    }
}

/// What each node holds.
fn held<'a>(
    world: &'a World,
    network: &Network,
    originated: Option<&'a BTreeMap<&str, Vec<Prefix>>>,
) -> Vec<Held<'a>> {
    let announced_by = |node: &str| originated.and_then(|by_node| by_node.get(node));
    let nodes = world.nodes.values().map(|node| Held {
        annotated: world.subnets(node, &network.name).unwrap_or_default(),
        announced: announced_by(node.name.as_str()).map_or(&[], Vec::as_slice),
    });
    // Both are in the order of names.
    let mut known = world.nodes.keys().map(NodeName::as_str).peekable();
    let gone = originated.into_iter().flatten();
    let gone = gone.filter(|(node, _)| {
        while known.next_if(|name| *name < **node).is_some() {}
        known.peek() != Some(*node)
    });
    let gone = gone.map(|(_, announced)| Held {
        annotated: &[],
        announced,
    });
    nodes.chain(gone).collect()
}

#[cfg(test)]
mod tests;
