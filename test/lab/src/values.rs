//! The addresses and names that a lab is made of.
//!
//! In: a seed, or nothing for the demonstration's values. Out: [`Values`] and what
//! follows from them for a node's index. One seed always gives the same values.
//! Node subnets are not here: the product allocates them.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
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
    /// Pod addresses of the whole cluster.
    pub(crate) cluster_subnet: Ipv4Net,
    /// Prefix length of each node's part of it.
    pub(crate) host_prefix: u8,
    /// Addresses between cluster router and gateway routers.
    pub(crate) join_subnet: Ipv4Net,
    /// AS number of the fabric.
    pub(crate) as_number: u32,
    /// The network that the nodes share, a /24.
    pub(crate) underlay: Ipv4Net,
    /// Nodes are named after this and their index.
    pub(crate) stem: String,
}

impl Values {
    /// The demonstration's values.
    pub(crate) fn demonstration() -> Self {
        Self {
            seed: None,
            cluster_subnet: net([10, 128, 0, 0], 16),
            host_prefix: 24,
            join_subnet: net([100, 64, 0, 0], 16),
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
            cluster_subnet: net([10, rng.byte(16, 240), 0, 0], 16),
            // Even seeds give 24, odd ones 25: two neighbours cover both.
            host_prefix: if seed.is_multiple_of(2) { 24 } else { 25 },
            join_subnet: net([100, rng.byte(65, 128), 0, 0], 16),
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
        format!(
            "{seed}pods {} /{} per node, join {}, AS {}, underlay {}, nodes {}, {}, ...",
            self.cluster_subnet,
            self.host_prefix,
            self.join_subnet,
            self.as_number,
            self.underlay,
            self.node_name(1),
            self.node_name(2),
        )
    }
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
