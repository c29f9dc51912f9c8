//! NetworkAttachmentDefinitions as plain values, and the names of what is stored in them.
//! In: objects decoded by `api`. Out: input of both daemons' planners.
//! Invariant: each key of an annotation or label that one daemon writes and another reads is named here once.
//! Not here: `spec.config` as text (`api::nad`), which objects there are (`plan-cluster`).

use std::collections::{BTreeMap, BTreeSet};

use super::UserNetwork;
use crate::names::NetworkName;
use crate::network::Routing;
use crate::selector::Labels;

/// Finalizer of the objects, and of a ClusterUserDefinedNetwork that has any (OVN-Kubernetes' own).
pub const FINALIZER: &str = "k8s.ovn.org/user-defined-network-protection";
/// Label of the objects (OVN-Kubernetes' own); its value is empty.
pub const LABEL: &str = "k8s.ovn.org/user-defined-network";
/// Annotation of the network's name.
pub const NETWORK_NAME: &str = "k8s.ovn.org/network-name";
/// Annotation of the network's id, decimal.
pub const NETWORK_ID: &str = "k8s.ovn.org/network-id";
/// Annotation of the tunnel keys of a layer-2 network, a JSON list: of its switch, and of a primary one's transit router.
pub const TUNNEL_KEYS: &str = "k8s.ovn.org/tunnel-keys";
/// Annotation: names of the RouteAdvertisements that serve the network, a JSON list.
pub const ROUTE_ADVERTISEMENTS: &str = "k8s.ovn.org/route-advertisements";
/// Annotation of a network without an overlay: who routes it, `managed` or `unmanaged`; `spec.config` has no word for it.
pub const ROUTING: &str = "noverlay.io/routing";
/// Ids end before this one (OVN-Kubernetes' allocator); 0 is the default network's.
pub const IDS: u16 = 4096;

/// A NetworkAttachmentDefinition as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachment {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`, seconds since 1970.
    pub created: i64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.finalizers`.
    pub finalizers: BTreeSet<String>,
    /// uid of the ClusterUserDefinedNetwork that is its controller.
    pub owner: Option<String>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.config`, JSON text.
    pub config: String,
    /// `name` of the configuration, and whether its role is primary; `None` where it is no network of OVN-Kubernetes.
    pub network: Option<(NetworkName, bool)>,
    /// The network that the configuration describes, where it is whole. Who routes is not in it: `routing` is Unmanaged.
    pub described: Option<UserNetwork>,
    /// Why the configuration describes none.
    pub undescribed: Option<Undescribed>,
}

/// Why a configuration describes no network; each a sentence that names key, value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undescribed {
    /// It cannot be read, or another program has said more of the network than is known here.
    Config(String),
    /// It can be read, and its transport is none that is built here.
    Transport(String),
}

impl Attachment {
    /// Whether it bears the marks of objects that are made for ClusterUserDefinedNetworks.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.finalizers.contains(FINALIZER) && self.labels.contains_key(LABEL)
    }

    /// The id that it stores, where it can be one.
    #[must_use]
    pub fn stored_id(&self) -> Option<u16> {
        let id: u16 = self.annotations.get(NETWORK_ID)?.parse().ok()?;
        (1..IDS).contains(&id).then_some(id)
    }

    /// The tunnel keys that it stores; none where the list cannot be read.
    #[must_use]
    pub fn stored_tunnel_keys(&self) -> Vec<u32> {
        let list = self.annotations.get(TUNNEL_KEYS);
        let keys = list.into_iter().flat_map(|list| names_in(list));
        let keys: Option<Vec<u32>> = keys.map(|key| key.parse().ok()).collect();
        keys.unwrap_or_default()
    }

    /// The RouteAdvertisements that it names.
    #[must_use]
    pub fn advertisements(&self) -> BTreeSet<String> {
        let list = self.annotations.get(ROUTE_ADVERTISEMENTS);
        let names = list.into_iter().flat_map(|list| names_in(list));
        names.map(str::to_owned).collect()
    }
}

/// Names in a JSON list of them; they hold no character that JSON would escape.
pub fn names_in(list: &str) -> impl Iterator<Item = &str> {
    let inner = list.trim().trim_start_matches('[').trim_end_matches(']');
    let names = inner.split(',').map(|name| name.trim().trim_matches('"'));
    names.filter(|name| !name.is_empty())
}

/// Value of the annotation [`ROUTING`].
#[must_use]
pub fn routing_word(routing: Routing) -> &'static str {
    match routing {
        Routing::Managed => "managed",
        Routing::Unmanaged => "unmanaged",
    }
}

/// What the annotation [`ROUTING`] says; `None` where that is no allowed value.
#[must_use]
pub fn routing_of(word: &str) -> Option<Routing> {
    let all = [Routing::Managed, Routing::Unmanaged];
    all.into_iter()
        .find(|routing| routing_word(*routing) == word)
}
