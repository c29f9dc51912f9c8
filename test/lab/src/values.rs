//! The addresses and names that a lab is made of.
//!
//! In: a seed, or nothing for the demonstration's values. Out: [`Values`] and what
//! follows from them for a node's index. One seed always gives the same values.
//! Node subnets are not here: the product allocates them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::family::{Families, Family};

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
    /// The networks that the nodes share, one of each family that the lab has: a /24, a /64.
    pub(crate) underlays: Vec<IpNet>,
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
    pub(crate) fn demonstration(families: Families) -> Self {
        let ranges = families.of(
            range(net([10, 128, 0, 0], 16), 24),
            range(net6([0xfd01, 0x128], 48), 64),
        );
        let joins = families.of(net([100, 64, 0, 0], 16), net6([0xfd98, 0], 64));
        Self {
            seed: None,
            networks: default_only(Network { ranges, joins }),
            as_number: 64512,
            underlays: families.of(net([172, 30, 0, 0], 24), net6([0xfd00, 0x30], 64)),
            stem: "n".to_owned(),
        }
    }

    /// Other values, drawn from `seed`; no two of the networks can overlap. What both families have in common does not depend on
    /// which of them are wanted.
    pub(crate) fn drawn(seed: u64, families: Families) -> Self {
        let mut rng = Rng(seed);
        let stems = ["ash", "birch-", "elm", "fir-", "oak", "pine-", "yew"];
        let stem = usize::try_from(rng.below(7)).unwrap_or(0);
        let pods = net([10, rng.byte(16, 240), 0, 0], 16);
        // Even seeds give 24, odd ones 25: two neighbours cover both.
        let length = if seed.is_multiple_of(2) { 24 } else { 25 };
        let join = net([100, rng.byte(65, 128), 0, 0], 16);
        let as_number = match rng.below(2) {
            0 => 64513 + rng.below(1000),
            _ => 4_200_000_000 + rng.below(90_000_000),
        };
        let underlay = net([172, rng.byte(16, 32), rng.byte(0, 255), 0], 24);
        let mut word = || u16::try_from(rng.below(0x1_0000)).unwrap_or(0);
        let (pods6, join6) = (net6([0xfd01, word()], 48), net6([0xfd98, word()], 64));
        let underlay6 = net6([0xfd00, word()], 64);
        let ranges = families.of(range(pods, length), range(pods6, 64));
        Self {
            seed: Some(seed),
            networks: default_only(Network {
                ranges,
                joins: families.of(join, join6),
            }),
            as_number,
            underlays: families.of(underlay, underlay6),
            stem: stems.get(stem).copied().unwrap_or("elm").to_owned(),
        }
    }

    /// The families that the lab has, IPv4 first.
    pub(crate) fn families(&self) -> Vec<Family> {
        let underlays = self.underlays.iter();
        underlays.map(|net| Family::of(net.addr())).collect()
    }

    /// Does the lab have this family?
    pub(crate) fn has(&self, family: Family) -> bool {
        self.families().contains(&family)
    }

    /// Name of the node with this index (from 1).
    pub(crate) fn node_name(&self, index: u32) -> String {
        format!("{}{index}", self.stem)
    }

    /// Underlay addresses of the host with this index, one of each family; every lab has one.
    pub(crate) fn addresses(&self, index: u32) -> Vec<IpAddr> {
        let underlays = self.underlays.iter();
        underlays.map(|net| nth(*net, index)).collect()
    }

    /// The same with the prefix lengths, as `ip` takes them.
    pub(crate) fn interface_addresses(&self, index: u32) -> Vec<String> {
        let underlays = self.underlays.iter();
        let text = |net: &IpNet| format!("{}/{}", nth(*net, index), net.prefix_len());
        underlays.map(text).collect()
    }

    /// Underlay address of the host with this index in a family.
    pub(crate) fn address_of(&self, index: u32, family: Family) -> Result<IpAddr> {
        let mut all = self.addresses(index).into_iter();
        let found = all.find(|address| Family::of(*address) == family);
        found.with_context(|| format!("the lab has no {}", family.afi()))
    }

    /// First underlay address of the host with this index.
    pub(crate) fn address(&self, index: u32) -> IpAddr {
        let first = self.underlays.first();
        first.map_or(Ipv4Addr::UNSPECIFIED.into(), |net| nth(*net, index))
    }

    /// Underlay addresses of the host outside the cluster.
    pub(crate) fn outside_addresses(&self) -> Vec<IpAddr> {
        self.addresses(OUTSIDE)
    }

    /// Underlay address of the host outside the cluster in a family.
    pub(crate) fn outside_address(&self, family: Family) -> Result<IpAddr> {
        self.address_of(OUTSIDE, family)
    }

    /// Underlay address of the API server.
    pub(crate) fn api_address(&self) -> IpAddr {
        self.address(API)
    }

    /// Index of the outside host.
    pub(crate) const OUTSIDE: u32 = OUTSIDE;
    /// Index of the API server.
    pub(crate) const API: u32 = API;

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
        let underlays: Vec<String> = self.underlays.iter().map(IpNet::to_string).collect();
        let networks = self.networks.iter();
        let networks: String = networks.map(|(name, n)| shown(name, n)).collect();
        format!(
            "{seed}{networks}AS {}, underlay {}, nodes {}, {}, ...",
            self.as_number,
            underlays.join(" and "),
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
pub(crate) fn nth(network: IpNet, offset: u32) -> IpAddr {
    match network.network() {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(offset)).into(),
        IpAddr::V6(first) => {
            Ipv6Addr::from(u128::from(first).wrapping_add(u128::from(offset))).into()
        }
    }
}

/// The MAC that belongs to an address: 0a:58, and its four bytes or the first four of its text's SHA-256.
fn mac_bytes(address: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let digest = Sha256::digest(address.to_string());
            digest.first_chunk().copied().unwrap_or_default()
        }
    };
    [0x0a, 0x58, a, b, c, d]
}

/// The same as text.
pub(crate) fn mac(address: IpAddr) -> String {
    mac_bytes(address)
        .map(|byte| format!("{byte:02x}"))
        .join(":")
}

/// The link-local address of an interface with the MAC that belongs to this address (RFC 4291).
pub(crate) fn link_local(address: IpAddr) -> IpAddr {
    let [a, b, c, d, e, f] = mac_bytes(address);
    let host = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(u64::from_be_bytes(host))).into()
}

fn net(octets: [u8; 4], prefix: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix).into()
}

fn net6([a, b]: [u16; 2], prefix: u8) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix).into()
}

fn range(subnet: IpNet, host_prefix: u8) -> Range {
    Range {
        subnet,
        host_prefix,
    }
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
