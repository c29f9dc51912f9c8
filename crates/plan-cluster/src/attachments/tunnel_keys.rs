//! Tunnel keys of layer-2 networks.
//! In: what objects store of them. Out: the keys of a network. Invariant: no two networks have one key, and what is stored stays.
//! Not here: layer-3 networks, whose keys OVN gives itself.

use std::collections::{BTreeMap, BTreeSet};

use model::NetworkName;
use model::network::Topology;
use model::user_network::attachment::TUNNEL_KEYS;
use model::user_network::{Attachment, ClusterUserDefinedNetwork, UserNetwork};

use crate::user_networks::{self, Claimant};
use crate::world::World;

/// The tunnel key of network id 0 (OVN-Kubernetes); a layer-2 network's first key is this and its id.
const FIRST_KEY: u32 = 16_711_683;
/// The first of the keys that are given as needed.
const FREE_KEYS: u32 = FIRST_KEY + 4096;
/// One more than the largest tunnel key of a datapath (ovn-sb(5), `Datapath_Binding.tunnel_key`).
const END_OF_KEYS: u32 = 1 << 24;

/// Tunnel keys in use.
pub(super) struct TunnelKeys {
    used: BTreeSet<u32>,
    by_network: BTreeMap<NetworkName, Vec<u32>>,
}

impl TunnelKeys {
    /// As with ids, only objects that a ClusterUserDefinedNetwork owns, or has left behind, are believed.
    pub(super) fn of(world: &World) -> Self {
        let mut out = Self {
            used: BTreeSet::new(),
            by_network: BTreeMap::new(),
        };
        for (claimant, keys) in user_networks::claims(world, stored_keys) {
            out.used.extend(&keys);
            if let Claimant::Network(cudn) = claimant {
                out.by_network.entry(cudn.network_name()).or_insert(keys);
            }
        }
        out
    }

    /// The keys of a network: none for layer 3, one for a secondary layer-2 network, two for a primary one.
    pub(super) fn of_network(
        &mut self,
        cudn: &ClusterUserDefinedNetwork,
        network: &UserNetwork,
        id: u16,
    ) -> Vec<u32> {
        let count = match (network.topology, network.primary) {
            (Topology::Layer3, _) => return Vec::new(),
            (Topology::Layer2, false) => 1,
            (Topology::Layer2, true) => 2,
        };
        let mut keys = self
            .by_network
            .get(&cudn.network_name())
            .cloned()
            .unwrap_or_default();
        keys.truncate(count);
        if keys.is_empty() {
            let first = FIRST_KEY + u32::from(id);
            keys.extend((!self.used.contains(&first)).then_some(first));
        }
        while keys.len() < count {
            let free = (FREE_KEYS..END_OF_KEYS).find(|key| !self.used.contains(key));
            let Some(free) = free else { break };
            keys.push(free);
        }
        self.used.extend(&keys);
        keys
    }
}

fn stored_keys(attachment: &Attachment) -> Option<Vec<u32>> {
    let text = attachment.annotations.get(TUNNEL_KEYS)?;
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let keys = inner
        .split(',')
        .map(str::trim)
        .filter(|key| !key.is_empty());
    let keys: Vec<u32> = keys.map(str::parse).collect::<Result<_, _>>().ok()?;
    let possible = FIRST_KEY..END_OF_KEYS;
    (!keys.is_empty() && keys.iter().all(|key| possible.contains(key))).then_some(keys)
}
