//! Which networks a RouteAdvertisements serves, and into which VRF.
//! In: the world. Out: for each RA its networks with their target, who is left out, or why nothing can be made of it.
//! Invariant: of two networks that overlap, one VRF gets at most one: that which is announced already, else, beside OVN-Kubernetes, that
//! which some node takes packets for, else that of the elder RA; the answer does not depend on the order of names.
//! Not here: nodes, neighbors.

use std::collections::BTreeMap;

use model::intent::{RouteAdvertisements, TargetVrf};
use model::network::Topology;
use model::user_network::ClusterUserDefinedNetwork;
use model::{Network, NetworkName, Prefix};

use super::{Facts, LeftOut, Refusal, pending, wrong};
use crate::generated::{DEFAULT_VRF, label_value, own_vrf};
use crate::world::World;
use crate::{GENERATED_PREFIX, attachments, fabric};

/// A network that an RA serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served<'a> {
    pub(crate) network: &'a Network,
}

impl Served<'_> {
    /// The VRF that the network's routes live in on its nodes.
    pub(crate) fn own_vrf(&self) -> String {
        own_vrf(self.network)
    }
}

/// What an RA serves.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    /// The networks by name.
    pub(crate) networks: BTreeMap<&'a NetworkName, Served<'a>>,
    /// What it asks for and does not get.
    pub(crate) left_out: LeftOut,
    /// A network that it does not get is about to be there, or is kept out by another: what was made of it stays.
    coming: bool,
}

impl<'a> Selection<'a> {
    /// The networks that the RA's router of a VRF announces: its own with `auto`, otherwise all.
    pub(crate) fn of_target(&self, ra: &RouteAdvertisements, vrf: &str) -> Vec<Served<'a>> {
        let all = self.networks.values().copied();
        match ra.target_vrf {
            TargetVrf::Auto => all.filter(|served| served.own_vrf() == vrf).collect(),
            TargetVrf::Default | TargetVrf::Named(_) => all.collect(),
        }
    }

    /// Takes the network of a ClusterUserDefinedNetwork, or says why it cannot be had.
    fn take(&mut self, world: &'a World, cudn: &ClusterUserDefinedNetwork) {
        let name = cudn.network_name();
        let who = format!("network {name}");
        match (&cudn.network, world.networks.get_key_value(&name)) {
            (Err(why), None) => self.left_out.field(&who, why),
            (Err(why), Some((name, network))) => {
                let text = format!("{why}; it stays what its NetworkAttachmentDefinitions say");
                self.left_out.field(&who, &text);
                self.networks.insert(name, Served { network });
            }
            (Ok(network), _) if !network.primary => {
                let text = format!(
                    "selected network {:?} is not the default nor a primary network",
                    name.as_str()
                );
                self.left_out.field(&who, &text);
            }
            (Ok(_), None) if attachments::selects_any(world, cudn) => {
                self.coming = true;
                let text = "waiting for its first NetworkAttachmentDefinition";
                self.left_out.field(&who, text);
            }
            (Ok(_), None) => {
                let text = "it has no NetworkAttachmentDefinition: its spec.namespaceSelector selects no namespace";
                self.left_out.field(&who, text);
            }
            (Ok(_), Some((name, network))) => {
                self.networks.insert(name, Served { network });
            }
        }
    }
}

/// Name of the VRF that an RA advertises a network in.
fn target<'r>(ra: &'r RouteAdvertisements, network: &Network) -> std::borrow::Cow<'r, str> {
    match &ra.target_vrf {
        TargetVrf::Default => DEFAULT_VRF.into(),
        TargetVrf::Auto => own_vrf(network).into(),
        TargetVrf::Named(name) => name.as_str().into(),
    }
}

/// In which order networks claim their subnets in a VRF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Announced,
    Led,
    Wanted,
}

/// What each RA that can be read serves, by its name.
pub(crate) type Selections<'a> = BTreeMap<&'a str, Result<Selection<'a>, Refusal>>;

/// The selections of all RAs that can be read.
pub(crate) fn all<'a>(world: &'a World, facts: &Facts<'a>) -> Selections<'a> {
    let readable = world.ras.values().filter_map(|ra| ra.as_ref().ok());
    let mut by_age: Vec<&RouteAdvertisements> = readable.collect();
    by_age.sort_by_key(|ra| (ra.created, &ra.name));
    let selected = by_age.into_iter().map(|ra| (ra, one(world, ra)));
    let mut selected: Vec<_> = selected.collect();
    let mut claims = Claims::default();
    // What is announced already stays, whoever wants the range now. Beside OVN-Kubernetes the agents have chosen between networks
    // before any of them is announced, by another order.
    let led = world.led();
    for rank in [Rank::Announced, Rank::Led, Rank::Wanted] {
        for (ra, selection) in &mut selected {
            if let Ok(selection) = selection
                && claims_subnets(world, ra)
            {
                let of_fabric = fabric::is_of_fabric(world, &ra.name);
                let served = &selection.networks;
                let networks = served.values().map(|served| served.network);
                let of_rank = |network: &&Network| {
                    if is_announced(facts, ra, of_fabric, network) {
                        rank == Rank::Announced
                    } else if led.contains(&network.name) {
                        rank == Rank::Led
                    } else {
                        rank == Rank::Wanted
                    }
                };
                let networks: Vec<&Network> = networks.filter(of_rank).collect();
                claims.settle(ra, &networks, selection);
            }
        }
    }
    let out = selected.into_iter();
    out.map(|(ra, selection)| (ra.name.as_str(), selection.and_then(not_empty)))
        .collect()
}

/// Of the managed networks those that the fabric serves, and those that it announces still. What another network keeps out of
/// the VRF is nobody's to receive, and costs the members no new configuration.
pub(super) fn taken_in<'a>(
    world: &'a World,
    facts: &Facts<'a>,
    selections: &Selections<'a>,
) -> Vec<&'a Network> {
    let label = label_value(&fabric::base_name());
    let mut networks = fabric::managed_networks(world);
    networks.retain(|network| {
        let selection = selections.get(fabric::advertisement_name(&network.name).as_str());
        let served = selection.and_then(|selection| selection.as_ref().ok());
        served.is_some_and(|selection| selection.networks.contains_key(&network.name))
            || facts.originated(&label, &network.name).is_some()
    });
    networks
}

/// Whether an RA can put subnets into a VRF: it advertises pods, and has a source and a node to do it with.
fn claims_subnets(world: &World, ra: &RouteAdvertisements) -> bool {
    let mut nodes = world.nodes.values();
    let mut sources = world.frr.iter();
    ra.pod_network
        && nodes.any(|node| ra.node_selector.matches(&node.labels))
        && sources.any(|(key, source)| {
            let labels = match source {
                Ok(source) => Some(&source.labels),
                Err(_) => world.unreadable.get(key).map(|remains| &remains.labels),
            };
            !key.name.starts_with(GENERATED_PREFIX)
                && labels.is_none_or(|labels| ra.frr_selector.matches(labels))
        })
}

/// Whether a network is announced for an RA now.
fn is_announced(
    facts: &Facts<'_>,
    ra: &RouteAdvertisements,
    of_fabric: bool,
    network: &Network,
) -> bool {
    let name = if of_fabric {
        fabric::base_name()
    } else {
        ra.name.clone()
    };
    let originated = facts.originated(&label_value(&name), &network.name);
    originated.is_some()
}

/// What an RA selects, without a look at others.
fn one<'a>(world: &'a World, ra: &RouteAdvertisements) -> Result<Selection<'a>, Refusal> {
    if !world.features.route_advertisements {
        return Err(wrong(
            "RouteAdvertisements are not enabled (enable-route-advertisements)",
        ));
    }
    if ra.egress_ip && !world.features.egress_ip {
        return Err(wrong(
            "advertising EgressIP requires EgressIP feature to be enabled",
        ));
    }
    if ra.egress_ip && ra.target_vrf == TargetVrf::Auto {
        return Err(wrong(
            "advertising EgressIP not supported with TargetVRF set to 'auto'",
        ));
    }
    let mut selection = Selection::default();
    if ra.selects(None)
        && let Some(network) = world.default_network()
    {
        selection.networks.insert(&network.name, Served { network });
    }
    let of_fabric = fabric::is_of_fabric(world, &ra.name);
    for cudn in world.cudns.values() {
        // A label that somebody copied makes no other network part of the fabric.
        let is_meant = !of_fabric || is_its_network(ra, cudn);
        if is_meant && ra.selects(Some(&cudn.labels)) {
            selection.take(world, cudn);
        }
    }
    consistent(world, ra, selection)
}

/// Whether an RA of the fabric is this network's.
fn is_its_network(ra: &RouteAdvertisements, cudn: &ClusterUserDefinedNetwork) -> bool {
    fabric::advertisement_name(&cudn.network_name()) == ra.name
}

/// What an RA's own networks have to be to one another, and to its target.
fn consistent<'a>(
    world: &World,
    ra: &RouteAdvertisements,
    selection: Selection<'a>,
) -> Result<Selection<'a>, Refusal> {
    let layer2 = |served: &&Served<'_>| served.network.topology == Topology::Layer2;
    if ra.egress_ip
        && let Some(served) = selection.networks.values().find(layer2)
    {
        return Err(wrong(format!(
            "EgressIP advertisement is currently not supported for Layer2 networks, network: {}",
            served.network.name
        )));
    }
    if let TargetVrf::Named(vrf) = &ra.target_vrf {
        let vrfs: Vec<String> = selection.networks.values().map(Served::own_vrf).collect();
        if !vrfs.is_empty() && !vrfs.contains(vrf) {
            let mut allowed: Vec<String> = vrfs.into_iter().filter(|v| v != DEFAULT_VRF).collect();
            allowed.splice(0..0, [DEFAULT_VRF.to_owned(), "auto".to_owned()]);
            return Err(wrong(format!(
                "spec.targetVRF {vrf:?} is not the VRF of a selected network; allowed: {}",
                allowed.join(", ")
            )));
        }
    }
    if ra.target_vrf == TargetVrf::Auto && world.features.shared_gateway {
        return served_in_shared_mode(selection);
    }
    if ra.target_vrf != TargetVrf::Auto && ra.pod_network {
        let mut seen: Vec<Served<'_>> = Vec::new();
        for served in selection.networks.values() {
            if let Some((other, (own, theirs))) = seen
                .iter()
                .find_map(|o| Some((o, overlap(served.network, o.network)?)))
            {
                return Err(wrong(format!(
                    "selected networks {:?} and {:?} overlap ({theirs} and {own}) and cannot be advertised into one VRF",
                    other.network.name.as_str(),
                    served.network.name.as_str()
                )));
            }
            seen.push(*served);
        }
    }
    Ok(selection)
}

/// Networks of users keep to their own VRF in local gateway mode only.
fn served_in_shared_mode(mut selection: Selection<'_>) -> Result<Selection<'_>, Refusal> {
    let names: Vec<&NetworkName> = selection
        .networks
        .keys()
        .copied()
        .filter(|n| !n.is_default())
        .collect();
    for name in names {
        selection.networks.remove(name);
        // The gateway mode is not the RouteAdvertisements' doing: where nothing is left, what stands stays.
        selection.coming = true;
        selection.left_out.field(
            &format!("network {name}"),
            "spec.targetVRF auto needs gateway mode local ([gateway] mode), the cluster's is shared",
        );
    }
    Ok(selection)
}

fn not_empty(selection: Selection<'_>) -> Result<Selection<'_>, Refusal> {
    if !selection.networks.is_empty() {
        return Ok(selection);
    }
    let mut text = "no networks selected".to_owned();
    let entries = selection.left_out.entries();
    if !entries.is_empty() {
        text.push_str(&format!("; {}", super::shortened(&entries)));
    }
    Err(Refusal {
        withdraw: !selection.coming,
        ..pending(&text)
    })
}

/// Two subnets, one of each, that overlap.
fn overlap(a: &Network, b: &Network) -> Option<(Prefix, Prefix)> {
    a.prefixes().find_map(|own| {
        let mut others = b.prefixes();
        others
            .find(|other| own.overlaps(other))
            .map(|other| (own, other))
    })
}

/// What elder RAs advertise, by VRF.
#[derive(Debug, Default)]
struct Claims<'a>(BTreeMap<String, Vec<(&'a Network, &'a str)>>);

impl<'a> Claims<'a> {
    /// Leaves out what overlaps another network of an elder RA in the same VRF, and claims the rest.
    fn settle(
        &mut self,
        ra: &'a RouteAdvertisements,
        networks: &[&'a Network],
        selection: &mut Selection<'a>,
    ) {
        let mut lost = Vec::new();
        for network in networks {
            let of_vrf = self.0.entry(target(ra, network).into_owned()).or_default();
            let clash = of_vrf
                .iter()
                .filter(|(other, _)| other.name != network.name);
            let clash = clash
                .filter_map(|(other, by)| Some((other, by, overlap(network, other)?)))
                .next();
            match clash {
                Some((other, by, (own, theirs))) => {
                    let text = format!(
                        "its subnet {own} overlaps {theirs} of network {}, which RouteAdvertisements {by} advertises into the same VRF",
                        other.name
                    );
                    lost.push((&network.name, text));
                }
                None => of_vrf.push((network, &ra.name)),
            }
        }
        for (name, why) in lost {
            selection.networks.remove(name);
            selection.coming = true;
            selection.left_out.field(&format!("network {name}"), &why);
        }
    }
}

#[cfg(test)]
mod tests;
