//! What the object of a node says: which routers of a source, with which neighbors, and what leaks between VRFs.
//! In: a source, a node, what it announces. Out: an object, or why the source leads to none.
//! Invariant: the node is never its own neighbor; one VRF has one AS number.
//! Not here: who gets an object.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::{FrrConfiguration, Neighbor, Raw, Receive, Router};
use model::intent::TargetVrf;
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels};
use model::{Family, Network, NetworkName, ObjectKey, Prefix};

use super::super::select::Served;
use super::super::{neighbors, raw};
use super::{Announced, Maker, sorted};
use crate::fabric;
use crate::generated::{self, DEFAULT_VRF, vrf_of};
use crate::{MANAGED_BY, RA_KEY};

impl<'a> Maker<'a, '_> {
    /// The object of a node, or why this source leads to none.
    pub(super) fn object(
        &mut self,
        source: &'a FrrConfiguration,
        node: &Node,
        announced: &Announced<'a>,
        routed: &mut BTreeSet<&'a NetworkName>,
    ) -> Result<FrrConfiguration, String> {
        let targets = self.targets(source, announced);
        if targets.is_empty() {
            self.mismatch(source, node);
            return Err(match &self.ra.target_vrf {
                TargetVrf::Default => "has no router of the default VRF".to_owned(),
                TargetVrf::Named(vrf) => format!("has no router of VRF {vrf}"),
                TargetVrf::Auto => "has no router of the VRF of a selected network".to_owned(),
            });
        }
        let (mut routers, mut raws, mut without) = (Vec::new(), Vec::new(), None);
        let mut filters = String::new();
        for (vrf, router) in targets {
            let networks = self.selection.of_target(self.ra, &vrf);
            let networks: Vec<Served<'a>> = networks
                .into_iter()
                .filter(|s| announced.contains_key(&s.network.name))
                .collect();
            let prefixes = networks
                .iter()
                .filter_map(|s| announced.get(&s.network.name));
            let prefixes = sorted(prefixes.flatten().copied().collect());
            let neighbors = match self.neighbors(source, &router, node, &networks, &prefixes) {
                Ok(neighbors) => neighbors,
                Err(why) => {
                    without = Some(why);
                    continue;
                }
            };
            routed.extend(networks.iter().map(|s| &s.network.name));
            if !neighbors.is_empty() {
                raws.push(raw::allowas_in(router.asn, &vrf, &neighbors));
            }
            let (auto, target) = (
                self.ra.target_vrf == TargetVrf::Auto,
                (vrf.as_str(), &router),
            );
            let leaking = leaking(source, auto, target, &networks, prefixes, neighbors);
            filters.push_str(&self.facts.isolation.text(&vrf, &leaking));
            routers.extend(leaking);
        }
        if let Some(why) = without.filter(|_| routers.is_empty()) {
            return Err(why);
        }
        let config = raws.concat() + &filters;
        Ok(self.assembled(source, node, routers, config))
    }

    /// The object with these routers and this text for FRR.
    fn assembled(
        &self,
        source: &FrrConfiguration,
        node: &Node,
        routers: Vec<Router>,
        config: String,
    ) -> FrrConfiguration {
        let name = &self.ra.name;
        let identity = format!("{name}/{}/{}", source.key.name, node.name);
        let raw = (!config.is_empty()).then_some(Raw {
            priority: 10,
            config,
        });
        FrrConfiguration {
            key: ObjectKey::new(
                &source.key.namespace,
                generated::name(name, &source.key, node.name.as_str()),
            ),
            labels: labels(name),
            annotations: [(RA_KEY.to_owned(), identity)].into(),
            node_selector: LabelSelector::label(HOSTNAME_LABEL, node.hostname()),
            routers,
            bfd_profiles: source.bfd_profiles.clone(),
            raw,
        }
    }

    /// The routers of a source that the RA uses, each with its VRF's name, the default VRF's first; those that nothing is
    /// announced by are none. Several of one VRF are one, as for who loads them.
    fn targets(
        &self,
        source: &'a FrrConfiguration,
        announced: &Announced<'a>,
    ) -> Vec<(String, Router)> {
        let mut vrfs: Vec<String> = match &self.ra.target_vrf {
            TargetVrf::Default => vec![DEFAULT_VRF.to_owned()],
            TargetVrf::Named(vrf) => vec![vrf.clone()],
            TargetVrf::Auto => {
                let networks = self.selection.networks.values();
                let networks = networks.filter(|s| announced.contains_key(&s.network.name));
                networks.map(Served::own_vrf).collect()
            }
        };
        vrfs.sort_by_key(|vrf| (vrf != DEFAULT_VRF, vrf.clone()));
        let find = |vrf: String| {
            let mut routers = source.routers.iter().filter(|r| vrf_of(r) == vrf);
            let mut router = routers.next()?.clone();
            let others = routers.flat_map(|router| router.neighbors.iter().cloned());
            router.neighbors.extend(others);
            Some((vrf, router))
        };
        vrfs.into_iter().filter_map(find).collect()
    }

    /// Remembers a source that no router of fits, in OVN-Kubernetes' words.
    fn mismatch(&mut self, source: &FrrConfiguration, node: &Node) {
        self.fault.get_or_insert_with(|| {
            format!(
                "FRRConfiguration {:?} selected for node {:?} has no VRF matching the RouteAdvertisements target VRF or any selected network",
                source.key.name,
                node.name.as_str()
            )
        });
    }

    /// The neighbors of a router that the node gets, or why it gets none.
    fn neighbors(
        &mut self,
        source: &'a FrrConfiguration,
        router: &Router,
        node: &Node,
        networks: &[Served<'a>],
        prefixes: &[Prefix],
    ) -> Result<Vec<Neighbor>, String> {
        let own = node.own_addresses();
        let is_self = |n: &&Neighbor| {
            n.peer
                .ip()
                .is_some_and(|ip| own.contains(&ip) || own.contains(&ip.to_canonical()))
        };
        let received = self.received(networks);
        let mut neighbors = Vec::new();
        for neighbor in router.neighbors.iter().filter(|n| !is_self(n)) {
            if neighbor.session.dual_stack {
                let text = format!(
                    "DualStackAddressFamily==true not supported, seen on FRRConfiguration {} neighbor {}",
                    source.key,
                    neighbor.peer.as_str()
                );
                self.draft.left_out.neighbor(neighbor.peer.as_str(), &text);
                self.fault.get_or_insert(text);
                continue;
            }
            let taken = match &received {
                Some(received) => {
                    let family = neighbor.peer.ip().map(Family::of);
                    received.get(&family).cloned().unwrap_or_default()
                }
                None => neighbor.receive.clone(),
            };
            neighbors.extend(neighbors::neighbor(neighbor, prefixes, taken));
        }
        // A template without other nodes yet is no fault: the only node of a cluster has no neighbor.
        if neighbors.is_empty() && !fabric::is_template(source) {
            if router.neighbors.is_empty() {
                self.mismatch(source, node);
            }
            return Err(without_neighbors(router, &is_self, prefixes));
        }
        Ok(neighbors)
    }

    /// What is taken from a neighbor, by its family (`None` is both): the pod subnets of the networks without overlay; where
    /// all are overlays, what the source says.
    fn received(&self, networks: &[Served<'a>]) -> Option<BTreeMap<Option<Family>, Receive>> {
        let routed = networks.iter().map(|served| served.network);
        let routed: Vec<&Network> = routed
            .filter(|n| n.transport.no_overlay().is_some())
            .collect();
        if routed.is_empty() {
            return None;
        }
        let of_family = |family| {
            let ranges = routed.iter().filter_map(|n| self.facts.ranges.get(&n.name));
            let prefixes = ranges.flat_map(|ranges| ranges.received(family)).collect();
            (
                family,
                Receive {
                    all: false,
                    prefixes,
                },
            )
        };
        Some(
            [None, Some(Family::V4), Some(Family::V6)]
                .map(of_family)
                .into(),
        )
    }
}

/// The router that announces, and those that leak routes between it and the other networks' VRFs; with `targetVRF: auto` each
/// network keeps to its own.
pub(in crate::advertise) fn leaking(
    source: &FrrConfiguration,
    auto: bool,
    (vrf, router): (&str, &Router),
    networks: &[Served<'_>],
    prefixes: Vec<Prefix>,
    neighbors: Vec<Neighbor>,
) -> Vec<Router> {
    let others = networks
        .iter()
        .map(Served::own_vrf)
        .filter(|other| other != vrf && !auto);
    let others: BTreeSet<String> = others.collect();
    // One VRF of a node has one AS number: that of the source's own router of it, where there is one.
    let with = |vrf: &str, imports: Vec<String>| {
        let own = source
            .routers
            .iter()
            .find(|r| vrf_of(r) == vrf)
            .unwrap_or(router);
        Router {
            id: own.id.clone(),
            vrf: if vrf == DEFAULT_VRF {
                String::new()
            } else {
                vrf.to_owned()
            },
            imports,
            ..Router::new(own.asn)
        }
    };
    let target = Router {
        neighbors,
        prefixes,
        evpn: router.evpn.clone(),
        ..with(vrf, others.iter().cloned().collect())
    };
    let extra = others.iter().map(|other| with(other, vec![vrf.to_owned()]));
    std::iter::once(target).chain(extra).collect()
}

/// Why no neighbor of a source is one for the node.
fn without_neighbors(
    router: &Router,
    is_self: &impl Fn(&&Neighbor) -> bool,
    prefixes: &[Prefix],
) -> String {
    let names = |list: Vec<&Neighbor>| {
        let names: Vec<&str> = list.iter().map(|n| n.peer.as_str()).collect();
        names.join(", ")
    };
    let (own, others): (Vec<&Neighbor>, Vec<&Neighbor>) =
        router.neighbors.iter().partition(|n| is_self(n));
    if router.neighbors.is_empty() {
        "has no neighbors".to_owned()
    } else if others.is_empty() {
        format!("has no neighbor but the node itself ({})", names(own))
    } else {
        let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
        format!(
            "has no neighbor that carries {} ({})",
            prefixes.join(", "),
            names(others)
        )
    }
}

fn labels(ra: &str) -> Labels {
    let (key, value) = MANAGED_BY;
    [
        (RA_KEY.to_owned(), generated::label_value(ra)),
        (key.to_owned(), value.to_owned()),
    ]
    .into()
}
