//! Objects of features that work by the overlay.
//! In: watches of kinds that need not be installed. Out: what each object is about, by feature.
//! Invariant: nothing waits for them. Not here: the fields (`api`), what is told of them (`plan_cluster::unsupported`).

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube_edge::{Cache, Installed};
use model::user_network::Reach;
use plan_cluster::unsupported::Feature;
use reconcile::WorkQueue;

use crate::key::Key;

/// Watches the kinds of features that work by the overlay.
pub(super) fn watched(
    client: &kube::Client,
    installed: &Installed,
    queue: &WorkQueue<Key>,
) -> BTreeMap<Feature, Cache<Reach>> {
    type Decode = fn(&serde_json::Value) -> Reach;
    let kinds: [(Feature, &str, Decode); 3] = [
        (
            Feature::EgressService,
            "egressservices",
            api::features::egress_service,
        ),
        (
            Feature::ExternalGateway,
            "adminpolicybasedexternalroutes",
            api::features::external_route,
        ),
        (
            Feature::NetworkConnect,
            "clusternetworkconnects",
            api::features::network_connect,
        ),
    ];
    let watched = kinds.map(|(feature, plural, decode)| {
        let (api_version, kind) = feature.kind();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let api: kube::Api<DynamicObject> = kube::Api::all_with(client.clone(), &resource);
        let queue = queue.clone();
        let decoded = move |object: &DynamicObject| {
            let value = serde_json::to_value(object).unwrap_or_default();
            decode(&value)
        };
        let cache = installed.watch(api, None, decoded, move |_| {
            queue.enqueue(Key::Features);
        });
        (feature, cache)
    });
    watched.into()
}
