//! Isolation in loose mode: what a network's VRF must not take over from the VRFs that it leaks with.
//! In: the networks and the VRFs that they are advertised into. Out: text for FRR, for a VRF the same in every object.
//! Invariant: a network's own pod subnets are never kept out; nothing is where isolation is strict: OVN's ACLs keep networks
//! apart there.
//! Not here: what leaks (`maker`), which routes reach OVN (`import`).
//!
//! Loose isolation leaves it to the routers outside whether networks reach each other. Where two of them are advertised into
//! one VRF and one has no overlay, that VRF learns the pod subnets of its other nodes; with `import vrf` they would be routes of
//! the other network's VRF as well, and the node itself would forward between the two.
//!
//! FRR has one filter for all that a VRF takes over, whichever VRFs it comes from.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::Router;
use model::intent::TargetVrf;
use model::{Family, Network, NetworkName, Prefix};

use crate::generated::{DEFAULT_VRF, Generated, Vrfs, own_vrf, vrf_of};
use crate::world::World;

/// VRFs by network.
type Targets<'a> = BTreeMap<&'a NetworkName, BTreeSet<String>>;

/// What is advertised where; empty where isolation is strict.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// Pod subnets of networks without overlay, by the VRF that they are advertised into and by the network's own VRF.
    by_target: BTreeMap<String, BTreeMap<String, BTreeSet<Prefix>>>,
    /// Pod subnets of all networks, by their own VRF.
    own: BTreeMap<String, BTreeSet<Prefix>>,
    /// The VRFs that a network's own VRF leaks with, by that.
    leaks: BTreeMap<String, BTreeSet<String>>,
}

impl Isolation {
    /// `owned`: what is generated already.
    pub(super) fn of<'a>(world: &'a World, owned: impl Iterator<Item = Generated<'a>>) -> Self {
        let mut out = Self::default();
        if !world.features.loose_isolation {
            return out;
        }
        let standing = standing(world, owned);
        for network in world.networks.values() {
            let vrf = own_vrf(network);
            let subnets: BTreeSet<Prefix> = network.prefixes().collect();
            let mut targets = targets(world, network);
            targets.extend(standing.get(&network.name).into_iter().flatten().cloned());
            if network.transport.no_overlay().is_some() {
                for target in &targets {
                    let of_target = out.by_target.entry(target.clone()).or_default();
                    let of_vrf = of_target.entry(vrf.clone()).or_default();
                    of_vrf.extend(subnets.iter().copied());
                }
            }
            targets.remove(&vrf);
            out.leaks.entry(vrf.clone()).or_default().extend(targets);
            out.own.entry(vrf).or_default().extend(subnets);
        }
        out
    }

    /// For those of an object's routers that take routes over from `target`; empty where nothing is to be kept out.
    pub(super) fn text(&self, target: &str, routers: &[Router]) -> String {
        let (mut lists, mut rules) = (BTreeMap::new(), String::new());
        let leaking = routers.iter().filter(|router| vrf_of(router) != target);
        for router in leaking.filter(|router| router.imports.iter().any(|vrf| vrf == target)) {
            let filter = self.filter(router, &mut lists);
            rules.push_str(&filter.unwrap_or_default());
        }
        lists.into_values().collect::<String>() + &rules
    }

    /// The filter of what one router takes over, and the lists that it names; `None` where nothing is to be kept out. Own
    /// subnets are let in first: networks that are advertised into different VRFs may have the same ones.
    fn filter(&self, router: &Router, lists: &mut BTreeMap<String, String>) -> Option<String> {
        let vrf = vrf_of(router);
        let of_others = |target: &&String| {
            let advertised = self.by_target.get(*target);
            advertised.is_some_and(|by_vrf| by_vrf.keys().any(|of| of != vrf))
        };
        let targets: Vec<&String> = self.leaks.get(vrf)?.iter().filter(of_others).collect();
        if targets.is_empty() {
            return None;
        }
        let name = format!("noverlay-loose-{vrf}");
        let own = self.own.get(vrf).cloned().unwrap_or_default();
        let mut parts = vec![("permit", format!("{name}-own"), own)];
        for target in targets {
            let advertised = self.by_target.get(target).into_iter().flatten();
            let pods: BTreeSet<Prefix> = advertised.flat_map(|(_, list)| list).copied().collect();
            parts.push(("deny", format!("noverlay-loose-{target}-pods"), pods));
        }
        let (mut rules, mut number) = (String::new(), 0);
        for (action, list, subnets) in parts {
            for (family, ip) in [(Family::V4, "ip"), (Family::V6, "ipv6")] {
                let lines = prefix_list(&format!("{ip} prefix-list {list}"), family, &subnets);
                if lines.is_empty() {
                    continue;
                }
                lists.insert(format!("{list} {ip}"), lines);
                number += 10;
                rules.push_str(&format!(
                    "route-map {name} {action} {number}\n match {ip} address prefix-list {list}\nexit\n"
                ));
            }
        }
        let last = number + 10;
        let import = format!("  import vrf route-map {name}\n exit-address-family\n");
        // FRR shows the default VRF without a name.
        let of_vrf = if vrf == DEFAULT_VRF {
            String::new()
        } else {
            format!(" vrf {vrf}")
        };
        Some(format!(
            "{rules}route-map {name} permit {last}\nexit\nrouter bgp {}{of_vrf}\n address-family ipv4 unicast\n{import} address-family ipv6 unicast\n{import}exit\n",
            router.asn
        ))
    }
}

/// The lines of a prefix list: these subnets and what is in them.
fn prefix_list(list: &str, family: Family, subnets: &BTreeSet<Prefix>) -> String {
    let of_family = subnets.iter().filter(|subnet| subnet.family() == family);
    let lines = (1..).map(|n| n * 5).zip(of_family).map(|(seq, subnet)| {
        let longest = family.host_len();
        let range = if subnet.bits() < longest {
            format!(" le {longest}")
        } else {
            String::new()
        };
        format!("{list} seq {seq} permit {subnet}{range}\n")
    });
    lines.collect()
}

/// Where generated objects advertise networks now, besides their own VRFs: what an RouteAdvertisements says that is refused or
/// cannot be read does not tell.
fn standing<'a>(world: &'a World, owned: impl Iterator<Item = Generated<'a>>) -> Targets<'a> {
    let vrfs = Vrfs::of(world);
    let mut out = Targets::new();
    let routers = owned
        .filter_map(|o| o.object())
        .flat_map(|object| &object.routers);
    for router in routers {
        let target = vrf_of(router);
        let leaked = router.imports.iter().flat_map(|vrf| vrfs.networks(vrf));
        for network in leaked {
            let known = out.get(&network.name);
            if known.is_some_and(|targets| targets.contains(target)) {
                continue;
            }
            let is_of = |prefix: &Prefix| network.prefixes().any(|subnet| subnet.overlaps(prefix));
            if router.prefixes.iter().any(is_of) {
                out.entry(&network.name)
                    .or_default()
                    .insert(target.to_owned());
            }
        }
    }
    out
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

#[cfg(test)]
mod tests;
