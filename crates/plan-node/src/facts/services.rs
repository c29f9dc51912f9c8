//! The API server's addresses, and Services that networks of users may use.
//! In: what was last listed of both. Out: addresses that nodes can lead to, and problems of those that they cannot.
//! Invariant: what was known once stays. Not here: rows, routes and flows of Services (`north`, `kernel`, `bridge`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::network::Network;
use model::problem::Problem;

use super::{Facts, Memory, NotYet};
use crate::snapshot::{Services, Snapshot};

/// Reason of a problem: a Service that networks of users may use has no address.
const SERVICE_WITHOUT_ADDRESS: &str = "ServiceWithoutAddress";
/// Reason of a problem: a Service that networks of users may use has an address that no range of Services has.
const SERVICE_OUT_OF_RANGE: &str = "ServiceOutOfRange";
/// Reason of a problem: a Service that networks of users may use has an address of pods.
const SERVICE_IN_A_NETWORK: &str = "ServiceInANetwork";

impl Memory {
    /// The API server's addresses, and those of Services, which networks of users alone wait for.
    pub(super) fn note_services(&mut self, facts: &mut Facts) -> Option<NotYet> {
        self.api_servers = facts.api_servers.take().or(self.api_servers.take());
        self.services = facts.services.take().or(self.services.take());
        self.api_servers.is_none().then_some(NotYet::ApiServers)
    }

    /// Addresses of Services that networks of users are led to.
    pub(super) fn usable_services(
        &self,
        networks: &[Network],
        is_usable: impl Fn(&IpAddr) -> bool,
    ) -> Services {
        // A Service is nobody's pod, whichever the network, and the kernel sends the ranges alone to where Services are.
        let is_free = |ip: &IpAddr| !networks.iter().any(|n| n.holds(&Prefix::host(*ip)));
        let allowed = self.services.iter().flatten().map(|(name, addresses)| {
            let usable = addresses.iter().copied();
            let usable = usable.filter(|ip| is_usable(ip) && is_free(ip) && self.is_in_range(*ip));
            (name.clone(), usable.collect())
        });
        Services {
            allowed: allowed.collect(),
        }
    }

    /// Whether it is in one of `[kubernetes] service-cidrs`.
    fn is_in_range(&self, ip: IpAddr) -> bool {
        let mut ranges = self.config.service_cidrs.iter();
        ranges.any(|range| range.contains_ip(ip))
    }

    /// Services that networks of users may use and cannot reach, of the families that the cluster has.
    pub(super) fn unreachable_services(&self, snapshot: &Snapshot) -> Vec<Problem> {
        let families: BTreeSet<Family> = snapshot
            .here()
            .flat_map(|(_, view)| view.share.network.families())
            .collect();
        let node = snapshot.node.as_ref();
        let services = node.and_then(|node| node.services.as_ref().and(self.services.as_ref()));
        let mut found = Vec::new();
        if self.config.service_cidrs.is_empty() && services.is_some_and(|all| !all.is_empty()) {
            let text = "[kubernetes] service-cidrs is not set; allowed: the API server's ranges of Services; networks of users reach no Service";
            let subject = format!("Node/{}", self.config.node);
            found.push(Problem::new(subject, SERVICE_OUT_OF_RANGE, text));
            return found;
        }
        for (name, addresses) in services.into_iter().flatten() {
            if addresses.is_empty() {
                let text = "[default] udn-allowed-default-services: it is not there or has no clusterIP; allowed: Services with one; networks of users do not reach it";
                let subject = format!("Service/{name}");
                found.push(Problem::new(subject, SERVICE_WITHOUT_ADDRESS, text));
            }
            let outside = addresses.iter().filter(|ip| {
                let has_family = families.contains(&Family::of(**ip));
                has_family && !self.is_in_range(**ip)
            });
            found.extend(outside.map(|ip| {
                let ranges = self.config.service_cidrs.iter();
                let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
                let text = format!(
                    "clusterIP {ip} is in none of [kubernetes] service-cidrs ({}); allowed: the API server's ranges of Services; networks of users do not reach it",
                    ranges.join(",")
                );
                Problem::new(format!("Service/{name}"), SERVICE_OUT_OF_RANGE, text)
            }));
            let taken = addresses.iter().find_map(|ip| {
                let address = Prefix::host(*ip);
                let mut all = snapshot.here().map(|(_, view)| &view.share.network);
                Some((ip, all.find(|network| network.holds(&address))?))
            });
            found.extend(taken.map(|(ip, network)| {
                let text = format!(
                    "clusterIP {ip} is an address of pods of network {}; allowed: networks and ranges of Services apart; networks of users do not reach it",
                    network.name
                );
                Problem::new(format!("Service/{name}"), SERVICE_IN_A_NETWORK, text)
            }));
        }
        found
    }
}
