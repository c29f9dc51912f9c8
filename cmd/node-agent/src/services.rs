//! Services of the default network that networks of users may use, each watched by its name.
//! In: their names. Out: their addresses. Invariant: a Service that may not be watched, or is not there, costs itself only; what
//! an API server that has just started refuses is no news.
//! Not here: what is made of the addresses (`plan_node`), where the API server itself is (`sources`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube_edge::{Cache, watch};
use model::ObjectKey;
use plan_node::ServiceAddresses;
use tokio::time::Instant;

use crate::world::FactsChanged;

/// So long a refusal may be one of an API server that does not know its roles yet.
const GRACE: Duration = Duration::from_secs(30);

/// A cache for each.
pub(crate) struct AllowedServices {
    caches: BTreeMap<ObjectKey, Cache<BTreeSet<IpAddr>>>,
    started: Instant,
}

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
        Self {
            caches: names.iter().map(one).collect(),
            started: Instant::now(),
        }
    }

    /// Their addresses; `None` until each has been listed once, or its listing refused for a while.
    pub(crate) fn now(&self) -> Option<ServiceAddresses> {
        let age = self.started.elapsed();
        let is_known = |cache: &Cache<_>| is_known(cache.ready(), cache.refused().is_some(), age);
        if !self.caches.values().all(is_known) {
            return None;
        }
        let of = |(name, cache): (&ObjectKey, &Cache<BTreeSet<IpAddr>>)| {
            let addresses = cache.get(name).map(|entry| entry.value);
            (name.to_string(), addresses.unwrap_or_default())
        };
        Some(self.caches.iter().map(of).collect())
    }
}

/// Whether nothing is to be waited for, so long after the start: it has been listed, or is refused still.
fn is_known(ready: bool, refused: bool, age: Duration) -> bool {
    ready || (refused && age >= GRACE)
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
    fn a_refusal_counts_when_it_lasts() {
        let second = Duration::from_secs(1);
        assert!(!is_known(false, true, second) && is_known(false, true, GRACE));
        assert!(is_known(true, false, Duration::ZERO) && !is_known(false, false, GRACE * 2));
    }

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
