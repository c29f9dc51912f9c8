//! The node's share of one network, made of what is known, and what is missing of it.
//! In: a network, the machine, what is remembered. Out: a [`Share`], and why it is not what the facts say now.
//! Invariant: a share that was whole once stays when something of it is lost. Not here: what is common to all networks (`facts`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::kernel::LinkFact;
use model::names::{NodeName, is_management_device, management_device};
use model::network::{Network, Topology, Transport};
use model::node::Fact;
use model::prefixes::PrefixMap;
use model::problem::Problem;

use super::{Memory, NotYet};
use crate::paths;
use crate::snapshot::{Machine, NetworkShare, NetworkView, Share, UnknownShare, Vrf};
use crate::vrf::{self, NoVrf};

/// Reason of a problem: a subnet of another node that overlaps this node's, or that of a third one.
pub const SUBNET_TAKEN: &str = "NodeSubnetTaken";

/// The least MTU of an interface with IPv6, bytes (RFC 8200, section 5).
const LEAST_WITH_IPV6: u32 = 1280;

/// A network without an overlay whose pods may send packets that a link they leave by does not carry: the bridge, or where the
/// network is routed in its own VRF alone, the links that an administrator gave that.
fn above_link(network: &Network, machine: &Machine, own_mtu: Option<u32>) -> Option<NotYet> {
    let mtu = network.mtu?;
    let elsewhere = network.advertised.own_vrf && !network.advertised.default_vrf;
    let (least, which) = if elsewhere {
        let links = vrf_links(network, machine.links.as_deref().unwrap_or_default());
        let link = links.min_by_key(|link| link.mtu)?;
        (link.mtu, format!("{} in its VRF", link.name))
    } else {
        (own_mtu?, "the bridge".to_owned())
    };
    (mtu > least).then(|| NotYet::MtuAboveLink(network.name.clone(), mtu, least, which))
}

/// The links in a network's VRF, without management ports.
fn vrf_links<'a>(
    network: &Network,
    links: &'a [LinkFact],
) -> impl Iterator<Item = &'a LinkFact> + use<'a> {
    let device = network.name.vrf_device(network.id);
    let vrf = links
        .iter()
        .find(|link| Some(&link.name) == device.as_ref());
    let vrf = vrf
        .filter(|link| link.vrf_table.is_some())
        .map(|link| link.index);
    let of_it = links
        .iter()
        .filter(move |link| vrf.is_some() && link.master == vrf);
    // Also not one that the network had before it was made anew.
    of_it.filter(|link| !is_management_device(&link.name))
}

impl Memory {
    /// The node's own subnets of a network; those that are outside of it (reported with the claims) cost only themselves.
    fn host_subnets(&self, network: &Network) -> Result<Vec<Prefix>, NotYet> {
        if network.topology == Topology::Layer2 {
            // One segment: each of its addresses may be here.
            return Ok(network.prefixes().collect());
        }
        let node = || self.config.node.clone();
        let own = self.own.as_ref().ok_or_else(|| NotYet::NoNode(node()))?;
        let subnets = match &own.subnets {
            Fact::Known(map) => map.get(&network.name).cloned().unwrap_or_default(),
            Fact::Absent => Vec::new(),
            Fact::Malformed(why) => return Err(NotYet::Malformed(node(), why.clone())),
        };
        let first = subnets.first().copied();
        let first = first.ok_or_else(|| {
            NotYet::Waiting(node(), format!("subnet of network {}", network.name))
        })?;
        let inside: Vec<Prefix> = subnets.into_iter().filter(|s| network.holds(s)).collect();
        if inside.is_empty() {
            return Err(NotYet::Outside(node(), first, network.name.clone()));
        }
        Ok(inside)
    }

    /// The share of a network, and why it is not what the facts say now.
    pub(super) fn share(
        &mut self,
        network: &Network,
        machine: &Machine,
        missing: Option<NotYet>,
    ) -> (Share, Option<NotYet>) {
        let name = &network.name;
        let is_layer2 = network.topology == Topology::Layer2;
        let has_overlay = network.transport == Transport::Geneve;
        if is_layer2 != network.layer2.is_some() || (is_layer2 && !has_overlay) {
            return self.without(network, NotYet::Transport(name.clone()));
        }
        let hosts = match self.led_to_hosts(network) {
            Ok(hosts) => hosts,
            Err(why) => return self.without(network, why),
        };
        let (subnets, no_subnet) = match self.host_subnets(network) {
            Ok(subnets) => {
                self.subnets.insert(name.clone(), subnets.clone());
                (subnets, None)
            }
            Err(error) => {
                let before = self.subnets.get(name).cloned();
                (before.unwrap_or_default(), Some(error))
            }
        };
        if !name.is_default() && !self.config.beside && self.services.is_none() {
            // Without them, what stands of them would be removed.
            return self.without(network, NotYet::Services);
        }
        let own_mtu = machine.bridge_link().map(|link| link.mtu);
        let (mtu, unfit) = match self.packets(network, machine, own_mtu) {
            Ok(packets) => packets,
            Err(why) => return self.without(network, why),
        };
        let (vrf, no_vrf) = self.vrf(network);
        if let Some(short @ NotYet::Masquerade(..)) = no_vrf {
            // Its packets would leave with addresses of pods, whatever is to be translated.
            return self.without(network, short);
        }
        let missing = missing.or(hosts).or(no_subnet).or(no_vrf).or(unfit);
        let remote_subnets = self.remote_subnets(network, machine, &subnets);
        let made = self.node.as_ref().zip(mtu).map(|(node, mtu)| {
            let share = NetworkShare {
                network: network.clone(),
                host_subnets: subnets,
                remote_subnets,
                mtu,
                vrf,
            };
            let view = NetworkView {
                node,
                share: &share,
            };
            match view.unsound() {
                None => Ok(share),
                Some(problem) => Err(NotYet::Unsound(problem)),
            }
        });
        match made {
            Some(Ok(share)) => {
                self.shares.insert(name.clone(), share.clone());
                (Share::Here(share), missing)
            }
            Some(Err(unsound)) => self.without(network, missing.unwrap_or(unsound)),
            None => self.without(network, missing.unwrap_or(NotYet::Nodes)),
        }
    }

    /// The MTU of a network's pods, bytes, and what is wrong with it: as an error what keeps the network from being built. One that
    /// runs, also from before this process, is built on with no more than it runs with: neither a link that carries less than it
    /// did nor a larger number takes it away. `None` while neither configuration nor bridge say an MTU.
    fn packets(
        &self,
        network: &Network,
        machine: &Machine,
        own_mtu: Option<u32>,
    ) -> Result<(Option<u32>, Option<NotYet>), NotYet> {
        if network.transport == Transport::Geneve {
            let name = || network.name.clone();
            let tunnels = self.encap_ips();
            tunnels.map_err(|why| NotYet::NoTunnels(name(), why.to_owned()))?;
        }
        let left = own_mtu.map(|own| self.mtus.ruling(own).saturating_sub(self.overhead(network)));
        let wanted = network.mtu.or(left);
        if let Some(why) = wanted.and_then(|mtu| self.too_small(network, mtu)) {
            // With less, the kernel takes IPv6 from the management port.
            let stands = self.standing_mtu(network, machine);
            let ran = stands.filter(|mtu| *mtu >= LEAST_WITH_IPV6);
            return ran.map_or(Err(why.clone()), |mtu| Ok((Some(mtu), Some(why))));
        }
        let too_large = match network.transport {
            Transport::Geneve => self.above_tunnels(network, own_mtu),
            Transport::NoOverlay(_) => above_link(network, machine, own_mtu),
        };
        match (too_large, self.standing_mtu(network, machine)) {
            (None, _) => Ok((wanted, None)),
            (Some(why), Some(stands)) => {
                Ok((Some(wanted.unwrap_or(stands).min(stands)), Some(why)))
            }
            (Some(why), None) => Err(why),
        }
    }

    /// The MTU that the network's pods have here now, bytes: by its share, or from before this process by its management port.
    fn standing_mtu(&self, network: &Network, machine: &Machine) -> Option<u32> {
        let device = management_device(network.id);
        let owners = self.management_ports.as_ref();
        let is_its_own = owners.and_then(|owners| owners.get(&device)) == Some(&network.name)
            || self.stands_beside(&network.name);
        let mut links = machine.links.iter().flatten();
        let port = links.find(|link| link.name == device && is_its_own);
        let share = self.shares.get(&network.name).map(|share| share.mtu);
        share.or_else(|| Some(port?.mtu))
    }

    /// An overlay that leaves less than its IPv6 needs.
    fn too_small(&self, network: &Network, mtu: u32) -> Option<NotYet> {
        let has_overlay = network.transport == Transport::Geneve;
        let with_ipv6 = network.families().contains(&Family::V6);
        let underlay = LEAST_WITH_IPV6 + self.overhead(network);
        (has_overlay && with_ipv6 && mtu < LEAST_WITH_IPV6)
            .then(|| NotYet::MtuTooSmall(network.name.clone(), mtu, LEAST_WITH_IPV6, underlay))
    }

    /// An overlay whose packets are too large for the tunnels.
    fn above_tunnels(&self, network: &Network, own_mtu: Option<u32>) -> Option<NotYet> {
        let (mtu, own) = network.mtu.zip(own_mtu)?;
        let overhead = self.overhead(network);
        let most = own.saturating_sub(overhead);
        (mtu > most).then(|| NotYet::MtuTooLarge(network.name.clone(), mtu, overhead, own, most))
    }

    /// Bytes that an overlay adds to a packet; with tunnels of both families, those of IPv6.
    fn overhead(&self, network: &Network) -> u32 {
        let ends = self.encap_ips().ok();
        match network.transport {
            Transport::NoOverlay(_) => 0,
            Transport::Geneve if ends.is_some_and(|ends| ends.iter().any(IpAddr::is_ipv6)) => {
                paths::overhead(Family::V6)
            }
            Transport::Geneve => paths::overhead(Family::V4),
        }
    }

    /// The other nodes' subnets of an overlay. A packet goes to one node: what lies in this node's subnets is this node's, and of
    /// two nodes whose subnets overlap the one is heard whose subnet stood before, then the one whose Node comes first.
    fn remote_subnets(
        &mut self,
        network: &Network,
        machine: &Machine,
        own: &[Prefix],
    ) -> Vec<(Prefix, NodeName)> {
        let claims = machine.claims.get(&network.name);
        let claims = claims.filter(|_| network.transport == Transport::Geneve);
        let owners = claims.into_iter().flat_map(|claims| claims.owners.pairs());
        let stood = self.shares.get(&network.name);
        let stood = stood.map(|share| &share.remote_subnets);
        let stood = stood.into_iter().flatten();
        let stood: BTreeSet<(&Prefix, &NodeName)> = stood.map(|(of, node)| (of, node)).collect();
        let others = owners.filter(|(_, of)| **of != self.config.node);
        let mut others: Vec<(&Prefix, &NodeName)> = others.collect();
        others.sort_by_key(|claim @ (_, node)| (!stood.contains(claim), *node));
        let mut accepted: Vec<(Prefix, NodeName)> = Vec::new();
        let mut by_prefix: PrefixMap<NodeName> = PrefixMap::default();
        let mut problems = Vec::new();
        for (subnet, node) in others {
            let in_own = own.iter().find(|own| own.contains(subnet));
            let in_own = in_own.map(|own| format!("{own} of this node"));
            let other = || {
                let (prefix, of) = by_prefix.overlapping(subnet)?;
                (of != node).then(|| format!("{prefix} of node {of}"))
            };
            match in_own.or_else(other) {
                Some(whose) => problems.push(Problem::new(
                    format!("Node/{node}"),
                    SUBNET_TAKEN,
                    format!(
                        "annotation k8s.ovn.org/node-subnets: subnet {subnet} of network {} overlaps {whose}; allowed: a subnet of its own; nothing is sent there by tunnel",
                        network.name
                    ),
                )),
                None => {
                    by_prefix.insert(*subnet, node.clone());
                    accepted.push((*subnet, node.clone()));
                }
            }
        }
        accepted.sort();
        self.doubted.insert(network.name.clone(), problems);
        accepted
    }

    /// The VRF device of a network of users, and what keeps it from being as it should: while its management port is away it
    /// is the one it was.
    fn vrf(&self, network: &Network) -> (Option<Vrf>, Option<NotYet>) {
        let name = &network.name;
        let before = || self.shares.get(name).and_then(|share| share.vrf.clone());
        let links = self.links.as_deref().unwrap_or_default();
        let others = self.shares.iter().filter(|(other, _)| *other != name);
        let given = others.filter_map(|(_, share)| Some(share.vrf.as_ref()?.table));
        match vrf::plan(name, network.id, links, &given.collect()) {
            Ok(Some(vrf)) if self.is_refused(&vrf.device, links) => {
                let why = self.refused_vrfs.get(&vrf.device).cloned();
                let why = NoVrf::Refused(vrf.device, why.unwrap_or_default());
                (None, Some(NotYet::Vrf(name.clone(), why)))
            }
            Ok(vrf) => {
                let least = 11 + 2 * u32::from(network.id);
                let is_short = |subnet: &&Prefix| subnet.nth(u128::from(least) - 1).is_none();
                let families = network.families();
                let subnets = self.config.masquerade_subnets.iter();
                let mut subnets = subnets.filter(|subnet| families.contains(&subnet.family()));
                let is_built = vrf.is_some() && !self.config.beside;
                let short = subnets.find(is_short).filter(|_| is_built);
                let missing = short.map(|subnet| {
                    let version = subnet.family().version();
                    NotYet::Masquerade(name.clone(), network.id, version, least)
                });
                (vrf, missing)
            }
            Err(why) => (before(), Some(NotYet::Vrf(name.clone(), why))),
        }
    }

    /// The kernel did not make the device when it was last asked, and nobody else has.
    fn is_refused(&self, device: &str, links: &[LinkFact]) -> bool {
        let is_there = links.iter().any(|link| link.name == device);
        !is_there && self.refused_vrfs.contains_key(device)
    }

    /// The last share, or none.
    fn without(&self, network: &Network, missing: NotYet) -> (Share, Option<NotYet>) {
        let share = match self.shares.get(&network.name) {
            Some(share) => Share::Here(share.clone()),
            None => Share::Unknown(UnknownShare {
                host_subnets: self.subnets.get(&network.name).cloned().unwrap_or_default(),
                network: Some(network.clone()),
            }),
        };
        (share, Some(missing))
    }
}
