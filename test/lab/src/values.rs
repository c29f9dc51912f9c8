//! The addresses and names that a lab is made of.
//!
//! In: a seed, or nothing for the demonstration's values. Out: [`Values`] and what
//! follows from them for a node's index. One seed always gives the same values.
//! Node subnets are not here: the product allocates them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// Last byte of the outside host's address.
const OUTSIDE: u32 = 100;
/// Last byte of the API server's address.
const API: u32 = 250;
/// Source ports that the product's SNAT may use; the hosts' own lie below.
pub(crate) const SNAT_PORTS: std::ops::RangeInclusive<u16> = 32768..=60999;

/// What differs between two labs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Values {
    /// What the other values were drawn from.
    pub(crate) seed: Option<u64>,
    /// The pod networks by name.
    pub(crate) networks: BTreeMap<String, Network>,
    /// AS number of the fabric.
    pub(crate) as_number: u32,
    /// The network that the nodes share, a /24.
    pub(crate) underlay: Ipv4Net,
    /// Nodes are named after this and their index.
    pub(crate) stem: String,
}

/// The pod network that every cluster has.
const DEFAULT: &str = "default";

/// A pod network. Of each family it has at most one range and one join subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    /// Pod addresses of the whole cluster.
    pub(crate) ranges: Vec<Range>,
    /// Addresses between cluster router and gateway routers.
    pub(crate) joins: Vec<IpNet>,
}

/// Pod addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// All of them.
    pub(crate) subnet: IpNet,
    /// Prefix length of each node's part.
    pub(crate) host_prefix: u8,
}

impl Network {
    fn ipv4(subnet: Ipv4Net, host_prefix: u8, join: Ipv4Net) -> Self {
        Self {
            ranges: vec![Range {
                subnet: subnet.into(),
                host_prefix,
            }],
            joins: vec![join.into()],
        }
    }

    /// The range of IPv4.
    pub(crate) fn ipv4_range(&self) -> Result<(Ipv4Net, u8)> {
        let mut ranges = self.ranges.iter();
        let range = ranges.find_map(|range| match range.subnet {
            IpNet::V4(subnet) => Some((subnet, range.host_prefix)),
            IpNet::V6(_) => None,
        });
        range.context("the network has no IPv4")
    }

    /// Keys of `[gateway]` for the join subnets.
    pub(crate) fn join_keys(&self) -> String {
        let key = |join: &IpNet| match join {
            IpNet::V4(join) => format!("v4-join-subnet = {join}\n"),
            IpNet::V6(join) => format!("v6-join-subnet = {join}\n"),
        };
        self.joins.iter().map(key).collect()
    }

    /// Value of `cluster-subnets`.
    pub(crate) fn cluster_subnets(&self) -> String {
        let ranges = self.ranges.iter();
        let ranges: Vec<String> = ranges
            .map(|range| format!("{}/{}", range.subnet, range.host_prefix))
            .collect();
        ranges.join(",")
    }
}

impl Values {
    /// The pod network that every cluster has.
    pub(crate) fn default_network(&self) -> Result<&Network> {
        let network = self.networks.get(DEFAULT);
        network.context("these values are of no lab: there is no default network")
    }

    /// The demonstration's values.
    pub(crate) fn demonstration() -> Self {
        Self {
            seed: None,
            networks: default_only(Network::ipv4(
                net([10, 128, 0, 0], 16),
                24,
                net([100, 64, 0, 0], 16),
            )),
            as_number: 64512,
            underlay: net([172, 30, 0, 0], 24),
            stem: "n".to_owned(),
        }
    }

    /// Other values, drawn from `seed`; no two of the networks can overlap.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let stems = ["ash", "birch-", "elm", "fir-", "oak", "pine-", "yew"];
        let stem = usize::try_from(rng.below(7)).unwrap_or(0);
        Self {
            seed: Some(seed),
            networks: default_only(Network::ipv4(
                net([10, rng.byte(16, 240), 0, 0], 16),
                // Even seeds give 24, odd ones 25: two neighbours cover both.
                if seed.is_multiple_of(2) { 24 } else { 25 },
                net([100, rng.byte(65, 128), 0, 0], 16),
            )),
            as_number: match rng.below(2) {
                0 => 64513 + rng.below(1000),
                _ => 4_200_000_000 + rng.below(90_000_000),
            },
            underlay: net([172, rng.byte(16, 32), rng.byte(0, 255), 0], 24),
            stem: stems.get(stem).copied().unwrap_or("elm").to_owned(),
        }
    }

    /// Name of the node with this index (from 1).
    pub(crate) fn node_name(&self, index: u32) -> String {
        format!("{}{index}", self.stem)
    }

    /// Underlay address of the node with this index.
    pub(crate) fn node_address(&self, index: u32) -> Ipv4Addr {
        nth(self.underlay, index)
    }

    /// Underlay address of the host outside the cluster.
    pub(crate) fn outside_address(&self) -> Ipv4Addr {
        nth(self.underlay, OUTSIDE)
    }

    /// Underlay address of the API server.
    pub(crate) fn api_address(&self) -> Ipv4Addr {
        nth(self.underlay, API)
    }

    /// An index that no node uses, below the addresses that are taken.
    pub(crate) fn free_index(used: &[u32]) -> Option<u32> {
        (1..OUTSIDE).find(|index| !used.contains(index))
    }

    /// One line that shows everything.
    pub(crate) fn shown(&self) -> String {
        let seed = match self.seed {
            Some(seed) => format!("seed {seed}: "),
            None => String::new(),
        };
        let networks = self.networks.iter();
        let networks: String = networks.map(|(name, n)| shown(name, n)).collect();
        format!(
            "{seed}{networks}AS {}, underlay {}, nodes {}, {}, ...",
            self.as_number,
            self.underlay,
            self.node_name(1),
            self.node_name(2),
        )
    }
}

fn default_only(network: Network) -> BTreeMap<String, Network> {
    [(DEFAULT.to_owned(), network)].into()
}

fn shown(name: &str, network: &Network) -> String {
    let range = |r: &Range| format!("pods {} /{} per node, ", r.subnet, r.host_prefix);
    let ranges: String = network.ranges.iter().map(range).collect();
    let joins: String = network
        .joins
        .iter()
        .map(|j| format!("join {j}, "))
        .collect();
    format!("network {name}: {ranges}{joins}")
}

/// The address `offset` above the network's own.
pub(crate) fn nth(network: Ipv4Net, offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network.network()).wrapping_add(offset))
}

/// The MAC that belongs to an address: 0a:58 and its four bytes.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn net(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix)
}

/// `SplitMix64`: small, and the same on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1.
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap_or(0)
    }

    /// A number from `low` to `high` - 1.
    fn byte(&mut self, low: u8, high: u8) -> u8 {
        let step = self.below(u32::from(high.saturating_sub(low)));
        low.saturating_add(u8::try_from(step).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
