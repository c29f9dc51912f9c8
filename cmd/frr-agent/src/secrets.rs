//! The Secrets that the node's objects refer to: each watched by itself, and no other.
//! In: names. Out: their passwords. Invariant: of a Secret nothing is kept but the password, or why it has none.
//! Not here: which objects refer to them (`frr`), where passwords are written to (`frr-edge`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frr::Passwords;
use k8s_openapi::api::core::v1::Secret;
use kube_edge::{Cache, watch};
use model::ObjectKey;
use model::frr::FrrConfiguration;
use reconcile::WorkQueue;

use crate::key::Configuration;

/// One watch a Secret.
pub(crate) struct Secrets {
    client: kube::Client,
    namespace: String,
    queue: WorkQueue<Configuration>,
    watches: BTreeMap<String, Cache<Result<String, String>>>,
}

impl Secrets {
    pub(crate) fn new(
        client: kube::Client,
        namespace: &str,
        queue: WorkQueue<Configuration>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            queue,
            watches: BTreeMap::new(),
        }
    }

    /// Watches the Secrets of these objects and lets go of all others.
    pub(crate) fn follow(&mut self, objects: &[Arc<FrrConfiguration>]) {
        let names: BTreeSet<&String> = objects
            .iter()
            .flat_map(|o| o.routers.iter())
            .flat_map(|r| r.neighbors.iter())
            .filter_map(|n| n.session.password_secret.as_ref())
            .collect();
        self.watches.retain(|name, _| names.contains(name));
        for name in names {
            if self.watches.contains_key(name) {
                continue;
            }
            let api: kube::Api<Secret> =
                kube::Api::namespaced(self.client.clone(), &self.namespace);
            let queue = self.queue.clone();
            let fields = format!("metadata.name={name}");
            let cache = watch(api, Some(&fields), api::decode_secret, move |_| {
                queue.enqueue(Configuration);
            });
            self.watches.insert(name.clone(), cache);
        }
    }

    /// Secrets that have not been read yet: whether they exist is not known.
    pub(crate) fn waiting(&self) -> Vec<&str> {
        let unread = self.watches.iter().filter(|(_, cache)| !cache.ready());
        unread.map(|(name, _)| name.as_str()).collect()
    }

    /// What the Secrets hold; those that do not exist are absent.
    pub(crate) fn passwords(&self) -> Passwords {
        let held = self.watches.iter().filter_map(|(name, cache)| {
            let entry = cache.get(&ObjectKey::new(&self.namespace, name))?;
            Some((name.clone(), entry.value))
        });
        held.collect()
    }
}
