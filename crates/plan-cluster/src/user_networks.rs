//! Networks of users: their ids, and the networks of the world that they are.
//! In: ClusterUserDefinedNetworks, namespaces and NetworkAttachmentDefinitions. Out: ids, and [`Network`]s.
//! Invariant: a network is in the world from the moment that it has a NetworkAttachmentDefinition until the last of them is gone,
//! whatever somebody does to them; its id, and the names made of it, do not change while anything uses it.
//! Not here: the NetworkAttachmentDefinitions themselves (`attachments`).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use model::intent::RouteAdvertisements;
use model::network::Routing;
use model::user_network::attachment::IDS;
pub use model::user_network::attachment::{NETWORK_ID, NETWORK_NAME};
use model::user_network::{Attachment, ClusterUserDefinedNetwork, UserNetwork, UserTransport};
use model::{Network, NetworkName};

use crate::fabric;
use crate::generated::{self, Generated};
use crate::world::World;

/// What the objects of networks store of ids. Whoever may write NetworkAttachmentDefinitions in some namespace may annotate
/// them as it likes: only those that a ClusterUserDefinedNetwork owns are believed, and of nobody's network but that one.
struct Stored {
    /// By ClusterUserDefinedNetwork: what it had a moment ago, else what most of its objects store.
    ids: BTreeMap<String, u16>,
    /// ClusterUserDefinedNetworks that have objects.
    attached: BTreeSet<String>,
    /// Those of objects that a ClusterUserDefinedNetwork has left behind.
    left_behind: BTreeSet<u16>,
}

impl Stored {
    fn of(world: &World) -> Self {
        let mut out = Self {
            ids: BTreeMap::new(),
            attached: BTreeSet::new(),
            left_behind: BTreeSet::new(),
        };
        let mut counts: BTreeMap<&str, BTreeMap<u16, usize>> = BTreeMap::new();
        for (claimant, id) in claims(world, |attachment| Some(attachment.stored_id())) {
            match (claimant, id) {
                (Claimant::Network(cudn), id) => {
                    out.attached.insert(cudn.name.clone());
                    let of_network = counts.entry(&cudn.name).or_default();
                    if let Some(id) = id {
                        *of_network.entry(id).or_default() += 1;
                    }
                }
                (Claimant::LeftBehind, Some(id)) => {
                    out.left_behind.insert(id);
                }
                (Claimant::LeftBehind, None) => {}
            }
        }
        // Who edits one object of several changes nothing; of as many the smallest.
        let most = |counts: &BTreeMap<u16, usize>| {
            let counts = counts.iter().rev();
            counts.max_by_key(|(_, count)| **count).map(|(id, _)| *id)
        };
        let stored: BTreeMap<&str, Option<u16>> = counts
            .iter()
            .map(|(name, counts)| (*name, most(counts)))
            .collect();
        for (name, own) in &stored {
            let cudn = world.cudns.get(*name);
            let known = cudn.and_then(|cudn| world.known_ids.get(&cudn.uid).copied());
            // One that another network's objects have is no id to insist on: whoever mends that has to be heard.
            let mut others = stored.iter().filter(|(other, _)| *other != name);
            let known = known.filter(|id| !others.any(|(_, other)| *other == Some(*id)));
            if let Some(id) = known.or(*own) {
                out.ids.insert((*name).to_owned(), id);
            }
        }
        out
    }
}

/// The ids of networks that run, by the uid of their ClusterUserDefinedNetworks: [`World::known_ids`] of the next world.
#[must_use]
pub fn known_ids(world: &World) -> BTreeMap<String, u16> {
    let stored = Stored::of(world).ids.into_iter();
    let known = stored.filter_map(|(name, id)| Some((world.cudns.get(&name)?.uid.clone(), id)));
    known.collect()
}

/// For whom an object of a network stores something.
pub(crate) enum Claimant<'a> {
    /// The ClusterUserDefinedNetwork that owns it.
    Network(&'a ClusterUserDefinedNetwork),
    /// One that is gone.
    LeftBehind,
}

/// What objects store, by `read`, and for whom; what objects of anybody else say is not believed.
pub(crate) fn claims<'a, T>(
    world: &'a World,
    read: impl Fn(&Attachment) -> Option<T>,
) -> impl Iterator<Item = (Claimant<'a>, T)> {
    let owners = Owners::of(world);
    world.attachments.values().filter_map(move |attachment| {
        let stored = read(attachment)?;
        let claimant = match owners.of_object(attachment) {
            Some(cudn) => Claimant::Network(cudn),
            None if is_left_behind(attachment) => Claimant::LeftBehind,
            None => return None,
        };
        Some((claimant, stored))
    })
}

/// ClusterUserDefinedNetworks, by what their objects say of them.
pub(crate) struct Owners<'a> {
    by_uid: BTreeMap<&'a str, &'a ClusterUserDefinedNetwork>,
    by_network: BTreeMap<NetworkName, &'a ClusterUserDefinedNetwork>,
}

impl<'a> Owners<'a> {
    pub(crate) fn of(world: &'a World) -> Self {
        let cudns = || world.cudns.values();
        Self {
            by_uid: cudns().map(|cudn| (cudn.uid.as_str(), cudn)).collect(),
            by_network: cudns().map(|cudn| (cudn.network_name(), cudn)).collect(),
        }
    }

    /// Whose object it is: its controller's; where somebody took its ownerReferences away, the one whose network it describes
    /// and whose marks it bears.
    pub(crate) fn of_object(
        &self,
        attachment: &Attachment,
    ) -> Option<&'a ClusterUserDefinedNetwork> {
        match &attachment.owner {
            Some(uid) => self.by_uid.get(uid.as_str()).copied(),
            None => {
                let (network, _) = attachment
                    .network
                    .as_ref()
                    .filter(|_| attachment.is_marked())?;
                self.by_network.get(network).copied()
            }
        }
    }
}

/// Whether an object whose owner is not known was made for a ClusterUserDefinedNetwork.
#[must_use]
pub fn is_left_behind(attachment: &Attachment) -> bool {
    attachment.owner.is_some() && attachment.is_marked()
}

/// The ids of ClusterUserDefinedNetworks that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    /// The stored one, or the smallest free one in the order of their age. Absent where none is left.
    pub given: BTreeMap<String, u16>,
    /// Those whose objects store an id that an elder one's objects store too: the id, and the elder's name.
    pub taken: BTreeMap<String, (u16, String)>,
}

/// The id of each ClusterUserDefinedNetwork that is served.
#[must_use]
pub fn ids(world: &World) -> Ids {
    let stored = Stored::of(world);
    let mut used: BTreeSet<u16> = stored.ids.values().copied().collect();
    used.extend(&stored.left_behind);
    let mut holders: BTreeMap<u16, &str> = BTreeMap::new();
    let mut out = Ids::default();
    for cudn in by_age(world) {
        let own = stored.ids.get(&cudn.name).copied();
        if let Some((id, elder)) = own.and_then(|id| Some((id, *holders.get(&id)?))) {
            out.taken.insert(cudn.name.clone(), (id, elder.to_owned()));
            continue;
        }
        let id = own.or_else(|| (1..IDS).find(|id| !used.contains(id)));
        if let Some(id) = id {
            used.insert(id);
            holders.insert(id, &cudn.name);
            out.given.insert(cudn.name.clone(), id);
        }
    }
    out
}

/// Those that can be read and are served, the eldest first.
fn by_age(world: &World) -> Vec<&ClusterUserDefinedNetwork> {
    let cudns = world.cudns.values();
    let mut served: Vec<_> = cudns.filter(|cudn| cudn.network.is_ok()).collect();
    served.sort_by_key(|cudn| (cudn.created, &cudn.name));
    served
}

/// The primary networks of users that exist.
#[must_use]
pub fn networks(world: &World) -> BTreeMap<NetworkName, Network> {
    let stored = Stored::of(world);
    let given = OnceCell::new();
    let mut out = BTreeMap::new();
    for cudn in world.cudns.values() {
        let mut id = stored.ids.get(&cudn.name);
        if id.is_none() && stored.attached.contains(&cudn.name) {
            // Somebody took it away: the one that is about to be written.
            id = given.get_or_init(|| ids(world).given).get(&cudn.name);
        }
        let Some(id) = id else {
            continue;
        };
        let network = match &cudn.network {
            Ok(network) => Some(network.clone()),
            Err(_) => as_attached(world, cudn),
        };
        let Some(network) = network.filter(|network| network.primary) else {
            continue;
        };
        let network = network.network(cudn.network_name(), *id);
        // One that never was served is left to others.
        if cudn.network.is_ok() || is_routed(world, &network) {
            out.insert(network.name.clone(), network);
        }
    }
    out
}

/// Beside OVN-Kubernetes: networks that nobody asks for any more and that some node takes packets for from the physical network are
/// routed until none does; else what pods send there would be lost before the node has taken it back.
pub fn keep_led(world: &mut World) {
    let led: BTreeSet<NetworkName> = world.led().into_iter().cloned().collect();
    for cudn in world.cudns.values_mut() {
        let name = cudn.network_name();
        if let Ok(network) = &mut cudn.network
            && led.contains(&name)
        {
            stay_led(&world.ras, &name, &mut network.transport);
        }
    }
}

/// What the transport of a network that some node is led past the tunnels for counts as, whatever is asked for.
fn stay_led(
    ras: &BTreeMap<String, Result<RouteAdvertisements, String>>,
    name: &NetworkName,
    transport: &mut UserTransport,
) {
    if matches!(transport, UserTransport::NoOverlay { .. }) {
        return;
    }
    let is_managed = ras.contains_key(&fabric::advertisement_name(name));
    *transport = UserTransport::NoOverlay {
        // Of no meaning here.
        outbound_snat: true,
        routing: if is_managed {
            Routing::Managed
        } else {
            Routing::Unmanaged
        },
    };
}

/// Whether objects of ours have routers for the network's VRF.
fn is_routed(world: &World, network: &Network) -> bool {
    let vrf = generated::own_vrf(network);
    let ours = generated::all(world).filter(Generated::is_ours);
    let mut routers = ours
        .filter_map(|object| object.object())
        .flat_map(|object| &object.routers);
    routers.any(|router| router.vrf == vrf || router.imports.contains(&vrf))
}

/// The network that its NetworkAttachmentDefinitions describe, where the object itself cannot be read any more: its pods run
/// on. It is routed by the fabric where the fabric advertises it.
fn as_attached(world: &World, cudn: &ClusterUserDefinedNetwork) -> Option<UserNetwork> {
    let (name, owners) = (cudn.network_name(), Owners::of(world));
    let own = |a: &&Attachment| {
        let named = a.network.as_ref().is_some_and(|(of, _)| *of == name);
        named
            && owners
                .of_object(a)
                .is_some_and(|owner| owner.name == cudn.name)
    };
    let attached = world.attachments.values().filter(own);
    let mut network = attached.filter_map(|a| a.described.clone()).next()?;
    if world.led().contains(&name) {
        stay_led(&world.ras, &name, &mut network.transport);
    }
    let is_managed = world.ras.contains_key(&fabric::advertisement_name(&name));
    if let UserTransport::NoOverlay { routing, .. } = &mut network.transport
        && is_managed
    {
        *routing = Routing::Managed;
    }
    Some(network)
}

#[cfg(test)]
mod tests {
    use model::NodeName;

    use super::*;
    use crate::samples::{mk_cudn, mk_world};

    #[test]
    fn what_a_node_still_takes_packets_for_is_routed_until_it_does_not() {
        let mut world = mk_world();
        let name = NetworkName::from("cluster_udn_red");
        let mut red = mk_cudn("red", 1);
        red.network.as_mut().unwrap().transport = UserTransport::Geneve;
        world.cudns = [("red".to_owned(), red)].into();
        let node = world.nodes.keys().next().unwrap().clone();
        let kept = |world: &World| {
            let mut world = world.clone();
            keep_led(&mut world);
            world.cudns["red"].network.clone().unwrap().transport
        };
        let ready = |world: &mut World, node: &NodeName| {
            let node = world.nodes.get_mut(node).unwrap();
            node.underlay_ready.insert(name.clone(), Vec::new());
        };
        world.beside = true;
        assert_eq!(kept(&world), UserTransport::Geneve);
        ready(&mut world, &node);
        let of = |routing| UserTransport::NoOverlay {
            outbound_snat: true,
            routing,
        };
        assert_eq!(kept(&world), of(Routing::Unmanaged));
        let ra = fabric::advertisement_name(&name);
        world.ras.insert(ra, Err("of the fabric".to_owned()));
        assert_eq!(kept(&world), of(Routing::Managed));
        // Of a node that is known not to be ready nothing is sent.
        for (ready, kept_as) in [
            (Some(false), UserTransport::Geneve),
            (Some(true), of(Routing::Managed)),
            (None, of(Routing::Managed)),
        ] {
            world.nodes.get_mut(&node).unwrap().ready = ready;
            assert_eq!(kept(&world), kept_as, "{ready:?}");
        }
        world.beside = false;
        assert_eq!(kept(&world), UserTransport::Geneve);
    }
}
