//! What the cluster-manager knows of the API server, and which keys a change enqueues.
//! In: watches. Out: the [`World`], and for writes the uids and the conditions that stand there now.
//! Invariant: an object that cannot be decoded is in the world as a problem, never absent.
//! Not here: writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::frr_configuration::FRRConfiguration;
use api::frr_state::BGPSessionState;
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::core::DynamicObject;
use kube_edge::{Cache, untyped, watch};
use model::ObjectKey;
use model::frr::Source;
use model::intent;
use model::network::Routing;
use model::node::Node;
use plan_cluster::sessions::End;
use plan_cluster::world::FabricSettings;
use plan_cluster::{World, fabric};
use reconcile::WorkQueue;
use settings::{Profile, Settings};

use crate::key::Key;

/// A condition as it stands on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExistingCondition {
    pub(crate) kind: String,
    pub(crate) status: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) generation: i64,
    pub(crate) since: String,
}

/// A RouteAdvertisements with the status it has now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Advertisement {
    pub(crate) spec: Result<intent::RouteAdvertisements, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) conditions: Vec<ExistingCondition>,
    pub(crate) status: String,
    /// `metadata.generation`, also where the object cannot be read.
    pub(crate) generation: i64,
}

/// A NetworkAttachmentDefinition, as far as we write it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attachment {
    pub(crate) config: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// All caches.
#[derive(Debug, Clone)]
pub(crate) struct Caches {
    pub(crate) nodes: Cache<Node>,
    pub(crate) advertisements: Cache<Advertisement>,
    pub(crate) frr: Cache<Source>,
    pub(crate) attachments: Cache<Attachment>,
    /// Only while the fabric is managed; nothing waits for it, since the kind may not be installed.
    pub(crate) sessions: Option<Cache<Option<End>>>,
}

impl Caches {
    pub(crate) fn start(
        client: &kube::Client,
        settings: &Settings,
        queue: &WorkQueue<Key>,
    ) -> Self {
        let enqueue = |keys: &'static [fn(&ObjectKey) -> Key]| {
            let queue = queue.clone();
            move |key: Option<&ObjectKey>| match key {
                None => queue.resync(),
                Some(key) => keys.iter().for_each(|to| queue.enqueue(to(key))),
            }
        };
        let everything = |queue: &WorkQueue<Key>| {
            let queue = queue.clone();
            move |_: Option<&ObjectKey>| queue.resync()
        };
        let nodes: kube::Api<KubeNode> = kube::Api::all(client.clone());
        let nad = &settings.network.nad;
        let name = format!("metadata.name={}", nad.name);
        let sessions = is_managed(settings).then(|| {
            let namespace = Some(settings.managed.frr_namespace.as_str());
            let queue = queue.clone();
            watch(
                untyped::<BGPSessionState>(client.clone(), namespace),
                None,
                decode_session,
                move |_| queue.enqueue(Key::Sessions),
            )
        });
        Self {
            sessions,
            nodes: watch(nodes, None, api::decode_node, everything(queue)),
            frr: watch(
                untyped::<FRRConfiguration>(client.clone(), None),
                None,
                decode_frr,
                everything(queue),
            ),
            advertisements: watch(
                untyped::<RouteAdvertisements>(client.clone(), None),
                None,
                decode_advertisement,
                enqueue(&[
                    |key| Key::Advertisement(key.name.clone()),
                    |_| Key::Fabric,
                    |_| Key::Attachment,
                ]),
            ),
            attachments: watch(
                untyped::<NetworkAttachmentDefinition>(client.clone(), Some(&nad.namespace)),
                Some(&name),
                decode_attachment,
                enqueue(&[|_| Key::Attachment]),
            ),
        }
    }

    /// Names of caches that have not been filled yet.
    pub(crate) fn waiting(&self) -> Vec<&'static str> {
        [
            ("nodes", self.nodes.ready()),
            ("routeadvertisements", self.advertisements.ready()),
            ("frrconfigurations", self.frr.ready()),
            ("network-attachment-definitions", self.attachments.ready()),
        ]
        .into_iter()
        .filter(|(_, ready)| !ready)
        .map(|(name, _)| name)
        .collect()
    }

    /// Numbers that are others after any change of what worlds are made from.
    fn revisions(&self) -> [u64; 3] {
        [
            self.nodes.revision(),
            self.advertisements.revision(),
            self.frr.revision(),
        ]
    }

    /// The snapshot that plans are made from.
    fn world(&self, settings: &Settings) -> World {
        let managed = is_managed(settings);
        World {
            nodes: self.nodes.with(|map| {
                map.values()
                    .map(|e| (e.value.name.clone(), e.value.clone()))
                    .collect()
            }),
            node_versions: BTreeMap::new(),
            ras: self.advertisements.with(|map| {
                map.iter()
                    .map(|(k, e)| (k.name.clone(), e.value.spec.clone()))
                    .collect()
            }),
            frr: self.frr.with(|map| {
                map.iter()
                    .map(|(k, e)| (k.clone(), e.value.object.clone()))
                    .collect()
            }),
            unreadable: self.frr.with(|map| {
                let unreadable = map.iter().filter(|(_, e)| e.value.object.is_err());
                unreadable
                    .map(|(k, e)| (k.clone(), e.value.remains.clone()))
                    .collect()
            }),
            networks: [settings.default_network()]
                .map(|network| (network.name.clone(), network))
                .into(),
            fabric: managed.then(|| FabricSettings {
                asn: settings.managed.asn,
                namespace: settings.managed.frr_namespace.clone(),
                resilient: settings.managed.profile == Profile::Resilient,
            }),
            frr_namespace: settings.managed.frr_namespace.clone(),
        }
    }
}

/// The world of the caches, made once for each change of them.
#[derive(Debug, Default)]
pub(crate) struct Worlds(Option<([u64; 3], Snapshots)>);

/// One moment's world.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    /// As the API server has it.
    pub(crate) world: Arc<World>,
    /// With the fabric's own objects as they should be (`fabric::complete`).
    pub(crate) complete: Arc<World>,
}

impl Worlds {
    /// The world as the caches have it now.
    pub(crate) fn now(&mut self, caches: &Caches, settings: &Settings) -> Snapshots {
        // Asked before the caches are read: a change in between is seen by the next call.
        let revisions = caches.revisions();
        if let Some((_, snapshots)) = self.0.as_ref().filter(|(of, _)| *of == revisions) {
            return snapshots.clone();
        }
        let world = caches.world(settings);
        // A status that was written is in no world: what was planned of it holds.
        if let Some((of, snapshots)) = self.0.as_mut().filter(|(_, last)| *last.world == world) {
            *of = revisions;
            return snapshots.clone();
        }
        let snapshots = Snapshots {
            complete: Arc::new(fabric::complete(world.clone())),
            world: Arc::new(world),
        };
        self.0 = Some((revisions, snapshots.clone()));
        snapshots
    }
}

fn is_managed(settings: &Settings) -> bool {
    settings
        .network
        .transport
        .no_overlay()
        .is_some_and(|n| n.routing == Routing::Managed)
}

/// A session of the default VRF; frr-k8s writes IPv6 addresses whole, with dashes for colons.
fn decode_session(object: &DynamicObject) -> Option<End> {
    let typed: BGPSessionState = object.clone().try_parse().ok()?;
    let status = typed.status?;
    if !matches!(status.vrf.as_deref(), None | Some("" | "default")) {
        return None;
    }
    let peer = status.peer?;
    Some(End {
        node: status.node?.into(),
        peer: peer
            .parse()
            .or_else(|_| peer.replace('-', ":").parse())
            .ok()?,
        state: status.bgp_status?,
    })
}

pub(crate) fn decode_frr(object: &DynamicObject) -> Source {
    let typed = object.clone().try_parse::<FRRConfiguration>();
    let mut source = api::decode_source(key_of(object), typed.map_err(|err| err.to_string()));
    if source.object.is_err() {
        source.remains = api::remains(object);
    }
    source
}

fn key_of(object: &DynamicObject) -> ObjectKey {
    ObjectKey::new(
        object.metadata.namespace.clone().unwrap_or_default(),
        object.metadata.name.clone().unwrap_or_default(),
    )
}

fn decode_advertisement(object: &DynamicObject) -> Advertisement {
    let typed = object.clone().try_parse::<RouteAdvertisements>();
    let status = typed
        .as_ref()
        .ok()
        .and_then(|t| t.status.clone())
        .unwrap_or_default();
    Advertisement {
        spec: match &typed {
            Ok(typed) => intent::RouteAdvertisements::try_from(typed),
            Err(err) => Err(format!("the object cannot be read: {err}")),
        },
        labels: object.metadata.labels.clone().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or(0),
        status: status.status.unwrap_or_default(),
        conditions: status
            .conditions
            .into_iter()
            .map(|c| ExistingCondition {
                status: c.status == "True",
                kind: c.type_,
                reason: c.reason,
                message: c.message,
                generation: c.observed_generation.unwrap_or(0),
                since: c.last_transition_time.0.to_string(),
            })
            .collect(),
    }
}

fn decode_attachment(object: &DynamicObject) -> Attachment {
    let typed = object.clone().try_parse::<NetworkAttachmentDefinition>();
    Attachment {
        config: typed.ok().and_then(|t| t.spec.config).unwrap_or_default(),
        annotations: object.metadata.annotations.clone().unwrap_or_default(),
    }
}
