//! Services of the default network that networks of users may use, each watched by its name.
//! In: their names. Out: their addresses. Invariant: a Service that may not be watched, or is not there, costs itself only.
//! Not here: what is made of the addresses (`plan_node`), where the API server itself is (`sources`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube_edge::{Cache, watch};
use model::ObjectKey;
use plan_node::ServiceAddresses;

use crate::world::FactsChanged;

/// A cache for each.
pub(crate) struct AllowedServices(BTreeMap<ObjectKey, Cache<BTreeSet<IpAddr>>>);

impl AllowedServices {
    /// Watches them.
    pub(crate) fn start(
        kube: &kube::Client,
        names: &BTreeSet<ObjectKey>,
        facts: &FactsChanged,
    ) -> Self {
        let one = |name: &ObjectKey| {
            let facts = facts.clone();
            let services: kube::Api<Service> = kube::Api::namespaced(kube.clone(), &name.namespace);
            let field = format!("metadata.name={}", name.name);
            let cache = watch(services, Some(&field), addresses, move |_| facts.note());
            (name.clone(), cache)
        };
        Self(names.iter().map(one).collect())
    }

    /// Their addresses; `None` until each has been listed once, or its listing refused.
    pub(crate) fn now(&self) -> Option<ServiceAddresses> {
        let is_known = |cache: &Cache<BTreeSet<IpAddr>>| cache.ready() || cache.refused().is_some();
        if !self.0.values().all(is_known) {
            return None;
        }
        let of = |(name, cache): (&ObjectKey, &Cache<BTreeSet<IpAddr>>)| {
            let addresses = cache.get(name).map(|entry| entry.value);
            (name.to_string(), addresses.unwrap_or_default())
        };
        Some(self.0.iter().map(of).collect())
    }
}

/// Addresses of a Service; a headless one has none.
fn addresses(service: &Service) -> BTreeSet<IpAddr> {
    let spec = service.spec.as_ref();
    let all = spec.and_then(|spec| spec.cluster_ips.as_ref());
    let first = spec.and_then(|spec| spec.cluster_ip.as_ref());
    let texts = all.into_iter().flatten().chain(first);
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ServiceSpec;

    #[test]
    fn a_service_has_an_address_of_each_family_and_a_headless_one_has_none() {
        let of = |ips: &[&str]| {
            let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
            let spec = ServiceSpec {
                cluster_ip: ips.first().cloned(),
                cluster_ips: Some(ips),
                ..ServiceSpec::default()
            };
            let service = Service {
                spec: Some(spec),
                ..Service::default()
            };
            let found = addresses(&service);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["172.31.0.1", "fd02::1"]), ["172.31.0.1", "fd02::1"]);
        assert!(of(&["None"]).is_empty());
        assert!(addresses(&Service::default()).is_empty());
    }
}
