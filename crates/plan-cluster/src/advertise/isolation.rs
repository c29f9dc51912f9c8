//! Isolation in loose mode: what a network's VRF must not take over from the VRF that it leaks with.
//! In: the networks and the VRFs that they are advertised into. Out: text for FRR, the same in every object that leaks into the
//! same VRF.
//! Invariant: a network's own pod subnets are never kept out; nothing is where isolation is strict: OVN's ACLs keep networks
//! apart there.
//! Not here: what leaks (`maker`), which routes reach OVN (`import`).
//!
//! Loose isolation leaves it to the routers outside whether networks reach each other. Where two of them are advertised into
//! one VRF and one has no overlay, that VRF learns the pod subnets of its other nodes; with `import vrf` they would be routes of
//! the other network's VRF as well, and the node itself would forward between the two.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::Router;
use model::intent::TargetVrf;
use model::{Family, Network, Prefix};

use crate::generated::{DEFAULT_VRF, own_vrf, vrf_of};
use crate::world::World;

/// What is without overlay and advertised, by the VRF that it is advertised into.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// Pod subnets by target and by the network's own VRF; none where isolation is strict.
    by_target: BTreeMap<String, BTreeMap<String, BTreeSet<Prefix>>>,
    /// Pod subnets of all networks, by their own VRF.
    own: BTreeMap<String, BTreeSet<Prefix>>,
}

impl Isolation {
    pub(super) fn of(world: &World) -> Self {
        let mut out = Self::default();
        if !world.features.loose_isolation {
            return out;
        }
        for network in world.networks.values() {
            let vrf = own_vrf(network);
            let subnets: BTreeSet<Prefix> = network.prefixes().collect();
            if network.transport.no_overlay().is_some() {
                for target in targets(world, network) {
                    let of_target = out.by_target.entry(target).or_default();
                    let of_vrf = of_target.entry(vrf.clone()).or_default();
                    of_vrf.extend(subnets.iter().copied());
                }
            }
            out.own.entry(vrf).or_default().extend(subnets);
        }
        out
    }

    /// For those of an object's routers that take routes over from `target`; empty where nothing is to be kept out.
    pub(super) fn text(&self, target: &str, routers: &[Router]) -> String {
        let Some(advertised) = self.by_target.get(target) else {
            return String::new();
        };
        let mut out = String::new();
        let leaking = routers.iter().filter(|router| vrf_of(router) != target);
        for router in leaking.filter(|router| router.imports.iter().any(|vrf| vrf == target)) {
            let vrf = vrf_of(router);
            let others = advertised.iter().filter(|(of, _)| *of != vrf);
            let others: BTreeSet<Prefix> = others.flat_map(|(_, list)| list).copied().collect();
            if !others.is_empty() {
                let own = self.own.get(vrf).cloned().unwrap_or_default();
                out.push_str(&filter(router, vrf, &own, &others));
            }
        }
        out
    }
}

/// The VRFs that a network is advertised into; the default VRF where nobody says anything else, so that an
/// RouteAdvertisements that comes or cannot be read just now opens nothing.
fn targets(world: &World, network: &Network) -> BTreeSet<String> {
    let cudn = world.cudns.values();
    let cudn = cudn.filter(|cudn| cudn.network_name() == network.name);
    let labels: Vec<_> = cudn.map(|cudn| &cudn.labels).collect();
    let selected = world.ras.values().filter_map(|ra| ra.as_ref().ok());
    let selected = selected.filter(|ra| {
        let by_labels = labels.iter().any(|labels| ra.selects(Some(labels)));
        ra.pod_network && (by_labels || network.name.is_default() && ra.selects(None))
    });
    let mut targets: BTreeSet<String> = selected
        .map(|ra| match &ra.target_vrf {
            TargetVrf::Default => DEFAULT_VRF.to_owned(),
            TargetVrf::Named(vrf) => vrf.clone(),
            TargetVrf::Auto => own_vrf(network),
        })
        .collect();
    if targets.is_empty() {
        targets.insert(DEFAULT_VRF.to_owned());
    }
    targets
}

/// The filter of one router's import. Own subnets are let in first: networks that are advertised into different VRFs may have
/// the same ones.
fn filter(router: &Router, vrf: &str, own: &BTreeSet<Prefix>, others: &BTreeSet<Prefix>) -> String {
    let name = format!("noverlay-loose-{vrf}");
    let mut lists = String::new();
    let mut rules = String::new();
    let mut number = 0;
    for (action, which, subnets) in [("permit", "own", own), ("deny", "others", others)] {
        for (family, ip) in [(Family::V4, "ip"), (Family::V6, "ipv6")] {
            let of_family = subnets.iter().filter(|subnet| subnet.family() == family);
            let before = lists.len();
            for (seq, subnet) in (1..).map(|n| n * 5).zip(of_family) {
                let longest = family.host_len();
                let range = if subnet.bits() < longest {
                    format!(" le {longest}")
                } else {
                    String::new()
                };
                lists.push_str(&format!(
                    "{ip} prefix-list {name}-{which} seq {seq} permit {subnet}{range}\n"
                ));
            }
            if lists.len() > before {
                number += 10;
                rules.push_str(&format!(
                    "route-map {name} {action} {number}\n match {ip} address prefix-list {name}-{which}\nexit\n"
                ));
            }
        }
    }
    let last = number + 10;
    let asn = router.asn;
    let import = format!("  import vrf route-map {name}\n exit-address-family\n");
    format!(
        "{lists}{rules}route-map {name} permit {last}\nexit\nrouter bgp {asn} vrf {vrf}\n address-family ipv4 unicast\n{import} address-family ipv6 unicast\n{import}exit\n"
    )
}

#[cfg(test)]
mod tests;
