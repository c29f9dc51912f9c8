//! What the cluster-manager knows of the API server, and which keys a change enqueues.
//! In: watches. Out: objects, and for writes the uids and the conditions that stand there now.
//! Invariant: an object that cannot be decoded is in the world as a problem, never absent.
//! Not here: the snapshot that plans are made from (`worlds`), writes.

mod decode;
mod features;
pub(crate) mod operator;
mod worlds;

use std::collections::BTreeMap;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::egress_ip::EgressIP;
use api::frr_configuration::FRRConfiguration;
use api::frr_state::BGPSessionState;
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::RouteAdvertisements;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Node as KubeNode};
use kube_edge::{Cache, Installed, untyped, watch};
use model::frr::Source;
use model::node::Node;
use model::user_network::{self, Attachment, EgressIp, Namespace, Reach};
use model::{ObjectKey, intent};
use plan_cluster::sessions::End;
use plan_cluster::unsupported::Feature;
use plan_cluster::{generated, user_networks};
use reconcile::WorkQueue;
use settings::{OvnTopology, Settings};

use crate::key::Key;
pub(crate) use decode::frr as decode_frr;
use decode::{
    advertisement as decode_advertisement, cudn as decode_cudn, session as decode_session,
};
use operator::Operator;
pub(crate) use worlds::{Generations, Planned, Snapshots, Worlds};

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
        let namespaces: kube::Api<KubeNamespace> = kube::Api::all(client.clone());
        let installed = Installed::start(client);
        let of_openshift = settings.openshift.as_ref();
        let beside = settings.ovn.topology == OvnTopology::Adopt;
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
                move |object: &kube::core::DynamicObject| decode_cudn(object, beside),
                everything(queue),
            ),
            namespaces: watch(namespaces, None, api::decode_namespace, everything(queue)),
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
