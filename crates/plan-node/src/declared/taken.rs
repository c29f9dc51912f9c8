//! What only one network of a node can have: its id, the names of its rows, its tunnel keys.
//! In: networks, in the order in which they are admitted. Out: who has what another one wants.
//! Invariant: whoever has something keeps it. Not here: what follows for the other one (`declared`).

use std::collections::BTreeMap;

use model::names::NetworkName;
use model::network::{Network, transit_switch_key};

use super::{Choice, Declared};

/// What is taken, and by whom.
pub(super) struct Taken {
    ids: BTreeMap<u16, NetworkName>,
    scopes: BTreeMap<String, NetworkName>,
    keys: BTreeMap<u32, NetworkName>,
}

impl Default for Taken {
    /// The default network's.
    fn default() -> Self {
        let key = transit_switch_key(0);
        Self {
            ids: BTreeMap::new(),
            scopes: BTreeMap::new(),
            keys: [(key, NetworkName::default_network())].into(),
        }
    }
}

impl Taken {
    /// What networks that are in force have now and are to have still, and what stands for those that wait.
    pub(super) fn keep(&mut self, before: &Declared, chosen: &[Choice<'_>]) {
        for Choice { network, .. } in chosen {
            let name = &network.name;
            if let Some(stands) = before.held.get(name) {
                self.take(stands);
            }
            let Some(old) = before.networks.get(name) else {
                continue;
            };
            if old.id == network.id {
                self.ids.insert(old.id, name.clone());
            }
            self.scopes.insert(name.scope(), name.clone());
            let had = old.tunnel_keys();
            for key in network.tunnel_keys() {
                if had.contains(&key) {
                    self.keys.insert(key, name.clone());
                }
            }
        }
    }

    /// It has what it needs from now on.
    pub(super) fn take(&mut self, network: &Network) {
        let name = &network.name;
        self.ids.insert(network.id, name.clone());
        self.scopes.insert(name.scope(), name.clone());
        let keys = network.tunnel_keys().into_iter();
        self.keys.extend(keys.map(|key| (key, name.clone())));
    }

    /// Another network that has something that this one needs, and what.
    pub(super) fn holder(&self, network: &Network) -> Option<(String, &NetworkName)> {
        let another = |of: &&NetworkName| **of != network.name;
        let by_id = self.ids.get(&network.id).filter(another).map(|of| {
            let what = format!("annotation k8s.ovn.org/network-id is {}", network.id);
            (what, of)
        });
        let by_scope = || {
            let scope = network.name.scope();
            let of = self.scopes.get(&scope).filter(another)?;
            Some((format!("rows of its name begin with {scope}"), of))
        };
        let by_key = || {
            let mut keys = network.tunnel_keys().into_iter();
            keys.find_map(|key| {
                let of = self.keys.get(&key).filter(another)?;
                Some((format!("its tunnel keys have {key}"), of))
            })
        };
        by_id.or_else(by_scope).or_else(by_key)
    }
}
