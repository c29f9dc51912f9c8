//! What the cluster-manager knows of the API server, and which keys a change enqueues.
//! In: watches. Out: the [`World`], and for writes the uids and the conditions that stand there now.
//! Invariant: an object that cannot be decoded is in the world as a problem, never absent.
//! Not here: writes.

mod decode;
mod features;
pub(crate) mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::egress_ip::EgressIP;
use api::frr_configuration::FRRConfiguration;
use api::frr_state::BGPSessionState;
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node as KubeNode};
use kube_edge::{Cache, Entry, Installed, untyped, watch};
use model::frr::Source;
use model::node::Node;
use model::user_network::{self, Attachment, EgressIp, Namespace, Reach};
use model::{ObjectKey, intent};
use plan_cluster::sessions::End;
use plan_cluster::unsupported::Feature;
use plan_cluster::world::Evidence;
use plan_cluster::{World, fabric, generated, user_networks};
use reconcile::WorkQueue;
use settings::Settings;

use crate::key::Key;
pub(crate) use decode::frr as decode_frr;
use decode::{
    advertisement as decode_advertisement, cudn as decode_cudn, session as decode_session,
};
use operator::Operator;

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

/// A ClusterUserDefinedNetwork with the status it has now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UserNetwork {
    pub(crate) spec: user_network::ClusterUserDefinedNetwork,
    pub(crate) conditions: Vec<ExistingCondition>,
    /// `metadata.generation`, also where the object cannot be read.
    pub(crate) generation: i64,
}

/// Which object a plan was made from, and which generation of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) uid: String,
    pub(crate) generation: i64,
}

/// Those of all objects that conditions are written to, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generations {
    pub(crate) advertisements: BTreeMap<String, Planned>,
    pub(crate) networks: BTreeMap<String, Planned>,
}

/// All caches.
#[derive(Debug, Clone)]
pub(crate) struct Caches {
    pub(crate) installed: Installed,
    pub(crate) nodes: Cache<Node>,
    pub(crate) advertisements: Cache<Advertisement>,
    pub(crate) frr: Cache<Source>,
    pub(crate) attachments: Cache<Attachment>,
    pub(crate) cudns: Cache<UserNetwork>,
    pub(crate) namespaces: Cache<Namespace>,
    /// Only where they may be advertised.
    pub(crate) egress_ips: Option<Cache<EgressIp>>,
    /// Objects of features that work by the overlay; nothing waits for them, and no kind of them need be installed.
    pub(crate) features: BTreeMap<Feature, Cache<Reach>>,
    /// Only on OpenShift.
    pub(crate) operator: Option<Operator>,
    /// Only while the fabric is managed; nothing waits for it, since the kind may not be installed.
    pub(crate) sessions: Option<Cache<Option<End>>>,
}

impl Caches {
    pub(crate) fn start(
        client: &kube::Client,
        settings: &Settings,
        queue: &WorkQueue<Key>,
    ) -> Self {
        let everything = |queue: &WorkQueue<Key>| {
            let queue = queue.clone();
            move |_: Option<&ObjectKey>| queue.resync()
        };
        let nodes: kube::Api<KubeNode> = kube::Api::all(client.clone());
        let installed = Installed::start(client);
        let of_openshift = settings.openshift.as_ref();
        Self {
            operator: of_openshift.map(|_| Operator::start(client, &installed, queue)),
            sessions: sessions(client, &installed, settings, queue),
            features: features::watched(client, &installed, queue),
            nodes: watch(nodes, None, api::decode_node, everything(queue)),
            frr: installed.watch(
                untyped::<FRRConfiguration>(client.clone(), None),
                None,
                decode_frr,
                everything(queue),
            ),
            advertisements: installed.watch(
                untyped::<RouteAdvertisements>(client.clone(), None),
                None,
                decode_advertisement,
                // What one of them selects may be what another may not; one that is gone is in no list of keys.
                {
                    let queue = queue.clone();
                    move |key: Option<&ObjectKey>| {
                        if let Some(key) = key {
                            queue.enqueue(Key::Advertisement(key.name.clone()));
                        }
                        queue.resync();
                    }
                },
            ),
            attachments: installed.watch(
                untyped::<NetworkAttachmentDefinition>(client.clone(), None),
                None,
                |object: &kube::core::DynamicObject| api::read_attachment(object),
                everything(queue),
            ),
            cudns: installed.watch(
                untyped::<ClusterUserDefinedNetwork>(client.clone(), None),
                None,
                decode_cudn,
                everything(queue),
            ),
            namespaces: watch(
                kube::Api::<KubeNamespace>::all(client.clone()),
                None,
                api::decode_namespace,
                everything(queue),
            ),
            egress_ips: settings.features.egress_ip.then(|| {
                installed.watch(
                    untyped::<EgressIP>(client.clone(), None),
                    None,
                    api::read_egress_ip,
                    everything(queue),
                )
            }),
            installed,
        }
    }

    /// Each kind: whether it is listed, and the status with which its listing is refused. A kind that is not installed has no
    /// objects; without EgressIPs nothing but their advertisement is wrong. Nothing can be done without the others.
    fn kinds(&self) -> [(&'static str, bool, Option<u16>); 9] {
        fn optional<T: Clone>(cache: &Cache<T>) -> (bool, Option<u16>) {
            (cache.ready(), cache.refused())
        }
        let uninstalled = |(ready, code): (bool, Option<u16>)| (ready, code.filter(|c| *c == 404));
        let attachments = uninstalled(optional(&self.attachments));
        let cudns = uninstalled(optional(&self.cudns));
        let egress_ips = self.egress_ips.as_ref().map_or((true, None), optional);
        let operator = self.operator.as_ref().map_or((true, None), Operator::state);
        let operator = uninstalled(operator);
        // What the object said before is nowhere else.
        let rendered = self.operator.as_ref().is_none_or(Operator::is_read);
        [
            ("nodes", self.nodes.ready(), None),
            ("routeadvertisements", self.advertisements.ready(), None),
            ("frrconfigurations", self.frr.ready(), None),
            (
                "network-attachment-definitions",
                attachments.0,
                attachments.1,
            ),
            ("clusteruserdefinednetworks", cudns.0, cudns.1),
            ("namespaces", self.namespaces.ready(), None),
            ("egressips", egress_ips.0, egress_ips.1),
            ("networks.operator.openshift.io", operator.0, operator.1),
            ("configmaps", rendered, None),
        ]
    }

    /// Names of caches that have not been filled yet.
    pub(crate) fn waiting(&self) -> Vec<&'static str> {
        let kinds = self.kinds().into_iter();
        let unknown = kinds.filter(|(_, ready, code)| !ready && code.is_none());
        let unknown = unknown.map(|(name, ..)| name);
        // Nobody takes their kind away before they are gone: it is not served just now.
        let unserved = !self.cudns.ready() && self.announces_user_networks();
        let unserved = unserved.then_some("clusteruserdefinednetworks");
        unknown.chain(unserved).collect()
    }

    /// Whether objects of ours have routers in VRFs, and networks have left the NetworkAttachmentDefinitions of those.
    fn announces_user_networks(&self) -> bool {
        let left_behind = self.attachments.with(|map| {
            let mut all = map.values();
            all.any(|e| user_networks::is_left_behind(&e.value))
        });
        let of_vrf = |source: &Source| {
            let object = source.object.as_ref().ok();
            let object = object.filter(|object| generated::is_ours(object));
            let mut routers = object.into_iter().flat_map(|object| &object.routers);
            routers.any(|router| !router.vrf.is_empty())
        };
        left_behind && (self.frr).with(|map| map.values().any(|e| of_vrf(&e.value)))
    }

    /// Kinds that count as empty, with the API server's answer.
    pub(crate) fn missing(&self) -> BTreeMap<&'static str, u16> {
        let kinds = self.kinds().into_iter();
        kinds
            .filter_map(|(name, ready, code)| Some((name, code.filter(|_| !ready)?)))
            .collect()
    }

    /// Numbers that are others after any change of what worlds are made from.
    fn revisions(&self) -> Revisions {
        let features = self.features.values().map(Cache::revision);
        [
            // Each of them only grows.
            features.sum(),
            self.nodes.revision(),
            self.advertisements.revision(),
            self.frr.revision(),
            self.attachments.revision(),
            self.cudns.revision(),
            self.namespaces.revision(),
            self.egress_ips.as_ref().map_or(0, Cache::revision),
            // Whether they are listed at all is part of the world.
            self.egress_ips_refused().map_or(0, u64::from),
        ]
    }

    /// The status of EgressIPs that have never been listed.
    fn egress_ips_refused(&self) -> Option<u16> {
        let cache = self.egress_ips.as_ref()?;
        cache.refused().filter(|_| !cache.ready())
    }

    /// The snapshot that plans are made from, and which objects are in it.
    fn world(
        &self,
        settings: &Settings,
        known_ids: &BTreeMap<String, u16>,
    ) -> (World, Generations) {
        let mut generations = Generations::default();
        let mut world = offline::empty_world(settings);
        world.known_ids.clone_from(known_ids);
        world.nodes = self.nodes.with(|map| {
            map.values()
                .map(|e| (e.value.name.clone(), e.value.clone()))
                .collect()
        });
        world.ras = self.advertisements.with(|map| {
            generations.advertisements = planned(map, |ra| ra.generation);
            map.iter()
                .map(|(k, e)| (k.name.clone(), e.value.spec.clone()))
                .collect()
        });
        self.frr.with(|map| {
            for (key, entry) in map {
                let source = &entry.value;
                if source.object.is_err() {
                    world.unreadable.insert(key.clone(), source.remains.clone());
                }
                world.frr.insert(key.clone(), source.object.clone());
            }
        });
        world.cudns = self.cudns.with(|map| {
            generations.networks = planned(map, |cudn| cudn.generation);
            map.iter()
                .map(|(k, e)| (k.name.clone(), e.value.spec.clone()))
                .collect()
        });
        if let Some(egress_ips) = &self.egress_ips {
            world.egress_ips_refused = self.egress_ips_refused();
            world.egress_ips = egress_ips.with(|map| {
                map.iter()
                    .map(|(k, e)| (k.name.clone(), e.value.clone()))
                    .collect()
            });
        }
        for (feature, cache) in &self.features {
            cache.with(|map| {
                let used = map.iter();
                let used = used.map(|(k, e)| ((*feature, k.clone()), e.value.clone()));
                world.features_used.extend(used);
            });
        }
        world.attachments = self.attachments.with(|map| {
            map.iter()
                .map(|(k, e)| (k.clone(), e.value.clone()))
                .collect()
        });
        world.namespaces = self.namespaces_of(&world);
        let networks = user_networks::networks(&world);
        world.networks.extend(networks);
        (world, generations)
    }

    /// The namespaces that something selects, or in which a network has an object: no change of another one is a change of the
    /// world.
    fn namespaces_of(&self, world: &World) -> BTreeMap<String, Namespace> {
        let networks = world.cudns.values();
        let egress = world
            .egress_ips
            .values()
            .filter_map(|egress| egress.namespaces.as_ref().ok());
        let mut used_by_name = BTreeSet::new();
        let mut by_feature = Vec::new();
        for reach in world.features_used.values() {
            match reach {
                Reach::Namespace(name) => drop(used_by_name.insert(name.as_str())),
                Reach::Namespaces(selector) => by_feature.push(selector),
                Reach::Networks(_) | Reach::Unreadable(_) => {}
            }
        }
        let selectors: Vec<_> = networks
            .filter_map(|cudn| cudn.namespaces.as_ref().ok())
            .chain(egress)
            .chain(by_feature)
            .collect();
        let owned = world.attachments.iter().filter(|(_, a)| a.owner.is_some());
        let mut used: BTreeSet<&str> = owned.map(|(key, _)| key.namespace.as_str()).collect();
        used.extend(used_by_name);
        let selected =
            |ns: &Namespace| ns.multicast || selectors.iter().any(|s| s.matches(&ns.labels));
        self.namespaces.with(|map| {
            map.iter()
                .filter(|(key, e)| used.contains(key.name.as_str()) || selected(&e.value))
                .map(|(k, e)| (k.name.clone(), e.value.clone()))
                .collect()
        })
    }
}

fn planned<T>(
    map: &BTreeMap<ObjectKey, Entry<T>>,
    generation: impl Fn(&T) -> i64,
) -> BTreeMap<String, Planned> {
    let planned = |(key, entry): (&ObjectKey, &Entry<T>)| {
        let planned = Planned {
            uid: entry.uid.clone(),
            generation: generation(&entry.value),
        };
        (key.name.clone(), planned)
    };
    map.iter().map(planned).collect()
}

/// What nodes report of their sessions, where there is a fabric.
pub(crate) fn sessions(
    client: &kube::Client,
    installed: &Installed,
    settings: &Settings,
    queue: &WorkQueue<Key>,
) -> Option<Cache<Option<End>>> {
    settings.managed.topology?;
    let namespace = Some(settings.managed.frr_namespace.as_str());
    let queue = queue.clone();
    Some(installed.watch(
        untyped::<BGPSessionState>(client.clone(), namespace),
        None,
        decode_session,
        move |_| queue.enqueue(Key::Sessions),
    ))
}

/// Numbers of the caches that worlds are made from.
type Revisions = [u64; 9];

/// The world of the caches, made once for each change of them.
#[derive(Debug, Default)]
pub(crate) struct Worlds {
    last: Option<(Revisions, Snapshots)>,
    evidence: Evidence,
    /// See [`World::known_ids`]; of this term of leadership.
    known_ids: BTreeMap<String, u16>,
}

/// One moment's world.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    /// As the API server has it.
    pub(crate) world: Arc<World>,
    /// With the fabric's own objects as they should be (`fabric::complete`).
    pub(crate) complete: Arc<World>,
    /// Those objects, and what else is planned of the fabric.
    pub(crate) fabric: Arc<fabric::Plan>,
    pub(crate) generations: Arc<Generations>,
}

impl Worlds {
    /// The world as the caches have it now.
    pub(crate) fn now(&mut self, caches: &Caches, settings: &Settings) -> Snapshots {
        // Asked before the caches are read: a change in between is seen by the next call.
        let revisions = caches.revisions();
        let known = self.last.as_ref().filter(|(of, _)| *of == revisions);
        if let Some((_, snapshots)) = known {
            return snapshots.clone();
        }
        let (mut world, generations) = caches.world(settings, &self.known_ids);
        self.known_ids = user_networks::known_ids(&world);
        world.known_ids.clone_from(&self.known_ids);
        let generations = Arc::new(generations);
        world.evidence = self.evidence.clone();
        // A status that was written is in no world: what was planned of it holds.
        let same = self.last.as_mut().filter(|(_, last)| *last.world == world);
        if let Some((of, snapshots)) = same {
            *of = revisions;
            snapshots.generations = generations;
            return snapshots.clone();
        }
        let fabric = fabric::plan(&world);
        let snapshots = Snapshots {
            complete: Arc::new(fabric::completed(world.clone(), &fabric)),
            fabric: Arc::new(fabric),
            world: Arc::new(world),
            generations,
        };
        self.last = Some((revisions, snapshots.clone()));
        snapshots
    }

    /// Somebody else gives ids out from now on.
    pub(crate) fn follows(&mut self) {
        self.known_ids.clear();
        self.last = None;
    }

    /// Made anew at the next call: the settings are others.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// What is reported of the fabric from now on; whether that is something new.
    pub(crate) fn report(&mut self, evidence: Evidence) -> bool {
        let new = self.evidence != evidence;
        if new {
            self.evidence = evidence;
            self.last = None;
        }
        new
    }
}
