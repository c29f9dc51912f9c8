//! The addresses of EgressIPs, by network and node.
//! In: EgressIPs, namespaces, and the networks of the namespaces. Out: prefixes of one address each, and what is left out.
//! Invariant: an address is announced by the node that holds it and by no other; never of a network without overlay.
//! Not here: who assigns addresses (OVN-Kubernetes).

use std::collections::{BTreeMap, BTreeSet};

use model::intent::RouteAdvertisements;
use model::{Network, NetworkName, NodeName, Prefix};

use super::LeftOut;
use super::select::{Selection, Served};
use crate::generated::Generated;
use crate::world::World;

/// All addresses.
#[derive(Debug, Default)]
pub(crate) struct EgressIps<'a> {
    by_network: BTreeMap<NetworkName, BTreeMap<&'a NodeName, BTreeSet<Prefix>>>,
    /// Each with its name and the networks of its namespaces.
    all: Vec<(&'a str, BTreeSet<NetworkName>)>,
    unreadable: Vec<(&'a str, &'a str)>,
    /// The API server's status, where it does not list them though there may be some.
    unlisted: Option<u16>,
    /// Addresses of those, which nobody can say the networks of.
    of_unreadable: BTreeMap<&'a NodeName, BTreeSet<Prefix>>,
}

impl<'a> EgressIps<'a> {
    /// `owned`: what is generated already.
    pub(crate) fn of(world: &'a World, owned: impl Iterator<Item = Generated<'a>>) -> Self {
        let mut out = Self::default();
        // Where the kind is not installed there are none.
        if let Some(status) = world.egress_ips_refused.filter(|status| *status != 404) {
            out.of_unreadable = standing(world, owned);
            out.unlisted = Some(status);
        }
        if world.egress_ips.is_empty() {
            return out;
        }
        let networks = networks_of_namespaces(world);
        for (name, egress) in &world.egress_ips {
            let selector = match &egress.namespaces {
                Ok(selector) => selector,
                Err(why) => {
                    out.unreadable.push((name, why));
                    for (node, ip) in &egress.assigned {
                        let of_node = out.of_unreadable.entry(node).or_default();
                        of_node.insert(Prefix::host(*ip));
                    }
                    continue;
                }
            };
            let selected = world
                .namespaces
                .iter()
                .filter(|(_, ns)| selector.matches(&ns.labels));
            let of: BTreeSet<NetworkName> = selected
                .map(|(name, _)| {
                    networks
                        .get(name.as_str())
                        .cloned()
                        .unwrap_or_else(NetworkName::default_network)
                })
                .collect();
            for network in &of {
                let by_node = out.by_network.entry(network.clone()).or_default();
                for (node, ip) in &egress.assigned {
                    by_node.entry(node).or_default().insert(Prefix::host(*ip));
                }
            }
            out.all.push((name, of));
        }
        out
    }

    /// Addresses of EgressIPs that cannot be read, which the node goes on announcing where it does.
    pub(super) fn kept(&self, ra: &RouteAdvertisements, node: &NodeName) -> Vec<Prefix> {
        let of_node = self.of_unreadable.get(node).filter(|_| ra.egress_ip);
        of_node.into_iter().flatten().copied().collect()
    }

    /// What a node announces of a network for an RA.
    pub(super) fn prefixes(
        &self,
        ra: &RouteAdvertisements,
        network: &Network,
        node: &NodeName,
    ) -> Vec<Prefix> {
        if !ra.egress_ip || network.transport.no_overlay().is_some() {
            return Vec::new();
        }
        let by_node = self
            .by_network
            .get(&network.name)
            .and_then(|map| map.get(node));
        by_node.into_iter().flatten().copied().collect()
    }
}

/// Single addresses that generated objects announce and that are no pods': those of EgressIPs.
fn standing<'a>(
    world: &'a World,
    owned: impl Iterator<Item = Generated<'a>>,
) -> BTreeMap<&'a NodeName, BTreeSet<Prefix>> {
    let subnets: Vec<Prefix> = world
        .networks
        .values()
        .flat_map(Network::prefixes)
        .collect();
    let is_egress_ip = |prefix: &&Prefix| {
        let is_host = prefix.bits() == prefix.family().host_len();
        is_host && !subnets.iter().any(|subnet| subnet.overlaps(prefix))
    };
    let mut out: BTreeMap<&NodeName, BTreeSet<Prefix>> = BTreeMap::new();
    for object in owned {
        let node = object.node().map(NodeName::from);
        let node = node.and_then(|name| world.nodes.get_key_value(&name));
        let (Some((node, _)), Some(object)) = (node, object.object()) else {
            continue;
        };
        let prefixes = object.routers.iter().flat_map(|router| &router.prefixes);
        let addresses: BTreeSet<Prefix> = prefixes.filter(is_egress_ip).copied().collect();
        if !addresses.is_empty() {
            out.entry(node).or_default().extend(addresses);
        }
    }
    out
}

/// The primary network of each namespace that has one of its own.
fn networks_of_namespaces(world: &World) -> BTreeMap<&str, NetworkName> {
    let primary = world.attachments.iter().filter_map(|(key, attachment)| {
        let (network, primary) = attachment.network.as_ref()?;
        primary.then(|| (key.namespace.as_str(), network.clone()))
    });
    primary.collect()
}

/// Takes what cannot be announced out of a selection's networks of EgressIPs, and names it.
pub(super) fn name_left_out(
    world: &World,
    ra: &RouteAdvertisements,
    egress: &EgressIps<'_>,
    selection: &Selection<'_>,
    left_out: &mut LeftOut,
) {
    if !ra.egress_ip {
        return;
    }
    if let Some(status) = egress.unlisted {
        let text = format!(
            "the API server does not list them (status {status}); those that are announced stay"
        );
        left_out.field("EgressIPs", &text);
    }
    for (name, why) in &egress.unreadable {
        left_out.field(&format!("EgressIP {name}"), why);
    }
    for (name, of) in &egress.all {
        let who = format!("EgressIP {name}");
        let selected = of
            .iter()
            .filter_map(|network| selection.networks.get(network));
        let (routed, rest): (Vec<&Served<'_>>, Vec<&Served<'_>>) =
            selected.partition(|s| s.network.transport.no_overlay().is_some());
        for served in routed {
            let network = &served.network.name;
            left_out.field(
                &who,
                &format!("network {network} has no overlay, its egress IPs are not advertised"),
            );
        }
        let assigned = world.egress_ips.get(*name).map(|e| &e.assigned);
        for (node, ip) in assigned.into_iter().flatten().filter(|_| !rest.is_empty()) {
            let known = world.nodes.get(node);
            if !known.is_some_and(|n| ra.node_selector.matches(&n.labels)) {
                left_out.field(&who, &format!("its address {ip} is held by node {node}, which spec.nodeSelector does not select"));
            }
        }
    }
}
