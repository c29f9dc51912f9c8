//! The networks that the API server's objects declare.
//! In: watches of NetworkAttachmentDefinitions and RouteAdvertisements, beside OVN-Kubernetes of ClusterUserDefinedNetworks too.
//! Out: what is declared, as of now, and what annotations ask for.
//! Invariant: what an object says is decoded when it arrives, and nothing else of it is kept; a kind that the API server is known
//! not to have has no objects, one that it does not answer for is not known.
//! Not here: what follows from several objects (`plan_node::declared`), the default network's own settings (`network_in_force`).

use std::collections::BTreeMap;

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::RouteAdvertisements;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube_edge::{Cache, Installed, untyped};
use model::intent::PodAdvertisement;
use model::{NetworkName, ObjectKey};
use plan_node::beside::{Asked, Wish};
use plan_node::declared::{Objects, Statement, read};
use plan_node::{Declared, declare};

/// The watches, and what was declared when they were looked at last.
#[derive(Debug)]
pub struct Networks {
    installed: Installed,
    attachments: Cache<Option<Statement>>,
    advertisements: Cache<PodAdvertisement>,
    /// Beside OVN-Kubernetes: what annotations of ClusterUserDefinedNetworks ask for.
    annotated: Option<Cache<Annotated>>,
    last: Declared,
    seen: Option<Seen>,
}

/// A network, and what the annotation of its object asks for.
type Annotated = (NetworkName, Option<Wish>);

/// What tells whether anything changed: of both kinds, whether it is known, and the revision.
type Seen = [(bool, u64); 2];

impl Networks {
    /// Starts to watch. `default` is the default network's NetworkAttachmentDefinition; `beside`: OVN-Kubernetes builds the networks;
    /// `changed` is called where something may be declared that was not.
    #[must_use]
    pub fn start(
        client: &kube::Client,
        default: ObjectKey,
        beside: bool,
        changed: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let installed = Installed::start(client);
        let decode = move |object: &DynamicObject| {
            let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
            read(&key, &api::read_attachment(object), &default)
        };
        let (of_attachments, of_advertisements) = (changed.clone(), changed.clone());
        let annotated = beside.then(|| {
            installed.watch(
                untyped::<ClusterUserDefinedNetwork>(client.clone(), None),
                None,
                |object: &DynamicObject| {
                    let cudn = api::read_cudn(object);
                    let created = cudn.created;
                    let wish = |transport| Wish { created, transport };
                    (cudn.network_name(), cudn.annotated.clone().map(wish))
                },
                move |_| changed(),
            )
        });
        Self {
            annotated,
            attachments: installed.watch(
                untyped::<NetworkAttachmentDefinition>(client.clone(), None),
                None,
                decode,
                move |_| of_attachments(),
            ),
            advertisements: installed.watch(
                untyped::<RouteAdvertisements>(client.clone(), None),
                None,
                |object: &DynamicObject| api::read_pod_advertisement(object),
                move |_| of_advertisements(),
            ),
            installed,
            last: Declared::default(),
            seen: None,
        }
    }

    /// What annotations ask for; `None` until they have been listed, and where the topology is built here.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let annotated = self.annotated.as_ref()?;
        if !annotated.ready() && !self.installed.lacks::<ClusterUserDefinedNetwork>() {
            return None;
        }
        Some(annotated.with(|all| {
            let all = all.values().map(|entry| &entry.value);
            let asked = all.filter_map(|(name, asked)| Some((name.clone(), asked.clone()?)));
            asked.collect()
        }))
    }

    /// What is declared now.
    pub fn declared(&mut self) -> &Declared {
        let (attachments, advertisements) = (&self.attachments, &self.advertisements);
        let seen = [
            (
                attachments.ready() || self.installed.lacks::<NetworkAttachmentDefinition>(),
                attachments.revision(),
            ),
            (
                advertisements.ready() || self.installed.lacks::<RouteAdvertisements>(),
                advertisements.revision(),
            ),
        ];
        if self.seen != Some(seen) {
            let [(listed, _), (advertised, _)] = seen;
            let last = &self.last;
            let now = attachments.with(|attachments| {
                let said = attachments.iter();
                let said = said.filter_map(|(key, entry)| Some((key, entry.value.as_ref()?)));
                let said: BTreeMap<&ObjectKey, &Statement> = said.collect();
                advertisements.with(|ras| {
                    let ras = ras.iter().map(|(key, e)| (key.name.as_str(), &e.value));
                    let ras: BTreeMap<&str, &PodAdvertisement> = ras.collect();
                    let objects = Objects {
                        attachments: listed.then_some(&said),
                        advertisements: advertised.then_some(&ras),
                    };
                    declare(last, objects)
                })
            });
            self.last = now;
            self.seen = Some(seen);
        }
        &self.last
    }
}
