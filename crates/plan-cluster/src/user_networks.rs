//! Networks of users: their ids, and the networks of the world that they are.
//! In: ClusterUserDefinedNetworks, namespaces and NetworkAttachmentDefinitions. Out: ids, and [`Network`]s.
//! Invariant: a network is in the world from the moment that one of its NetworkAttachmentDefinitions stores its id until the
//! last of them is gone, so that its id, and the names made of it, never change while anything uses it.
//! Not here: the NetworkAttachmentDefinitions themselves (`attachments`).

use std::collections::{BTreeMap, BTreeSet};

use model::network::{MissingRoute, NoOverlay, Routing, Transport};
use model::user_network::{Attachment, ClusterUserDefinedNetwork, UserNetwork, UserTransport};
use model::{Network, NetworkName, Prefix};

use crate::world::World;

/// Annotation of the network's name.
pub const NETWORK_NAME: &str = "k8s.ovn.org/network-name";
/// Annotation of the network's id, decimal.
pub const NETWORK_ID: &str = "k8s.ovn.org/network-id";
/// Ids end before this one (OVN-Kubernetes' allocator); 0 is the default network's.
const IDS: u16 = 4096;

/// Join subnets of networks of users that say none (OVN-Kubernetes' defaults).
const JOIN_SUBNETS: [&str; 2] = ["100.65.0.0/16", "fd99::/64"];

/// The id that a NetworkAttachmentDefinition stores, with the network's name.
fn stored(attachment: &Attachment) -> Option<(NetworkName, u16)> {
    let id = attachment.annotations.get(NETWORK_ID)?.parse().ok()?;
    let name = attachment.annotations.get(NETWORK_NAME)?;
    Some((name.as_str().into(), id))
}

/// Ids that are stored, by network; whoever made the NetworkAttachmentDefinition. Where several differ, the smallest.
fn stored_ids(world: &World) -> BTreeMap<NetworkName, u16> {
    let mut out: BTreeMap<NetworkName, u16> = BTreeMap::new();
    for (name, id) in world.attachments.values().filter_map(stored) {
        let known = out.entry(name).or_insert(id);
        *known = (*known).min(id);
    }
    out
}

/// The id of each ClusterUserDefinedNetwork that is served: the stored one, or the smallest free one in the order of their
/// age. Absent where none is left.
#[must_use]
pub fn ids(world: &World) -> BTreeMap<String, u16> {
    let stored = stored_ids(world);
    let mut used: BTreeSet<u16> = stored.values().copied().collect();
    let mut out = BTreeMap::new();
    for cudn in by_age(world) {
        let id = stored.get(&cudn.network_name()).copied();
        let id = id.or_else(|| (1..IDS).find(|id| !used.contains(id)));
        if let Some(id) = id {
            used.insert(id);
            out.insert(cudn.name.clone(), id);
        }
    }
    out
}

/// Those that can be read and are served, the eldest first.
fn by_age(world: &World) -> Vec<&ClusterUserDefinedNetwork> {
    let readable = world.cudns.values().filter_map(|cudn| cudn.as_ref().ok());
    let mut served: Vec<_> = readable.filter(|cudn| cudn.network.is_ok()).collect();
    served.sort_by_key(|cudn| (cudn.created, &cudn.name));
    served
}

/// The primary networks of users that exist.
#[must_use]
pub fn networks(world: &World) -> BTreeMap<NetworkName, Network> {
    let stored = stored_ids(world);
    let mut out = BTreeMap::new();
    for cudn in by_age(world) {
        let Ok(network) = cudn.network.as_ref() else {
            continue;
        };
        let name = cudn.network_name();
        if let Some(id) = stored.get(&name).filter(|_| network.primary) {
            out.insert(name.clone(), of(name, *id, network));
        }
    }
    out
}

/// The join subnets of the families that the network has.
pub(crate) fn join_subnets(network: &UserNetwork) -> Vec<Prefix> {
    let families: BTreeSet<_> = network.subnets.iter().map(|s| s.cidr.family()).collect();
    let defaults = JOIN_SUBNETS.iter().filter_map(|text| text.parse().ok());
    let mut join: Vec<Prefix> = if network.join_subnets.is_empty() {
        defaults.collect()
    } else {
        network.join_subnets.clone()
    };
    join.retain(|join| families.contains(&join.family()));
    join
}

fn of(name: NetworkName, id: u16, network: &UserNetwork) -> Network {
    Network {
        name,
        id,
        topology: network.topology,
        subnets: network.subnets.clone(),
        join_subnets: join_subnets(network),
        transport: transport(network.transport),
        mtu: network.mtu,
    }
}

/// The transport, with what the object has no word for: a packet without a route is dropped where the fabric is ours.
fn transport(transport: UserTransport) -> Transport {
    match transport {
        UserTransport::Unset | UserTransport::Geneve => Transport::Geneve,
        UserTransport::NoOverlay {
            outbound_snat,
            routing,
        } => Transport::NoOverlay(NoOverlay {
            outbound_snat,
            routing,
            missing_route: match routing {
                Routing::Managed => MissingRoute::Discard,
                Routing::Unmanaged => MissingRoute::Forward,
            },
        }),
    }
}
