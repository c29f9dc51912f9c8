//! What one RA would like to have, before it is checked beside all others.
//! In: the world and the RA. Out: objects by node, objects to keep, who is left out.
//! Invariant: a node that cannot be read keeps what it has. Not here: conditions, conflicts.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::{FrrConfiguration, NAMELESS_NEIGHBOR, Neighbor, Raw, Receive, Router};
use model::intent::{RouteAdvertisements, TargetVrf};
use model::network::Topology;
use model::node::{Fact, HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels};
use model::{Family, Network, NetworkName, NodeName, ObjectKey, Prefix, Problem};

use super::egress::EgressIps;
use super::members::Shared;
use super::select::{Selection, Served};
use super::{LeftOut, Refusal, neighbors, pending, raw, wrong};
use crate::fabric;
use crate::generated::{self, DEFAULT_VRF, Generated, Originated, is_generated, vrf_of};
use crate::ranges::Ranges;
use crate::world::{Exclusions, World};
use crate::{GENERATED_PREFIX, MANAGED_BY, RA_KEY};

/// What is the same for every RA.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// Nodes that cannot take part in anything.
    pub(crate) unfit: BTreeMap<NodeName, String>,
    /// Nodes that cannot take part in a network, those of `unfit` among them.
    excluded: BTreeMap<NetworkName, BTreeMap<NodeName, String>>,
    /// Subnets with the host lengths in force.
    ranges: BTreeMap<&'a NetworkName, Ranges>,
    /// Addresses of EgressIPs.
    pub(super) egress: EgressIps<'a>,
    owned: BTreeMap<&'a str, Vec<Generated<'a>>>,
    /// What those originate, by their label.
    originated: BTreeMap<&'a str, Originated<'a>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(world: &'a World) -> Self {
        let mut owned: BTreeMap<&str, Vec<Generated<'a>>> = BTreeMap::new();
        for object in generated::all(world).filter(Generated::is_ours) {
            if let Some(label) = object.label() {
                owned.entry(label).or_default().push(object);
            }
        }
        let originated = owned.iter().map(|(label, objects)| {
            let objects = objects.iter().copied();
            (*label, generated::originated(world, objects))
        });
        let originated = originated.collect();
        let ranges = Ranges::all(world);
        let Exclusions { unfit, by_network } = world.exclusions(&ranges);
        Self {
            unfit,
            excluded: by_network,
            ranges,
            originated,
            egress: EgressIps::of(world),
            owned,
        }
    }

    /// Objects of ours with this label.
    pub(super) fn owned(&self, label: &str) -> Vec<Generated<'a>> {
        self.owned.get(label).cloned().unwrap_or_default()
    }

    /// What the objects of this label originate of a network, by node.
    pub(super) fn originated(
        &self,
        label: &str,
        network: &NetworkName,
    ) -> Option<&BTreeMap<&'a str, Vec<Prefix>>> {
        self.originated.get(label)?.get(network)
    }

    /// Every object of ours.
    pub(crate) fn all_owned(&self) -> impl Iterator<Item = &Generated<'a>> {
        self.owned.values().flatten()
    }
}

/// One RA's objects.
#[derive(Debug, Default)]
pub(crate) struct Draft<'a> {
    /// Objects of ours that were generated for it.
    pub(crate) owned: Vec<Generated<'a>>,
    /// Objects to have.
    pub(crate) desired: BTreeMap<ObjectKey, FrrConfiguration>,
    /// Keys of `desired` by node.
    pub(crate) of_node: BTreeMap<NodeName, Vec<ObjectKey>>,
    /// Objects to leave as they are.
    pub(crate) keep: BTreeSet<ObjectKey>,
    /// What nodes announce by the fabric's objects, where this is an RA of the fabric.
    pub(super) announced: BTreeMap<&'a NodeName, Announced<'a>>,
    /// Nodes for which nothing new can be made; what they have stays.
    pub(super) kept: BTreeSet<&'a NodeName>,
    /// Nodes that load nothing new, with its objects or without.
    pub(crate) unloadable: BTreeSet<NodeName>,
    /// What members of the fabric load of one another, where this is the fabric.
    pub(crate) fabric: Option<Shared>,
    /// The networks that it serves; `None` where it is as before.
    pub(crate) serves: Option<BTreeSet<NetworkName>>,
    /// Who is left out.
    pub(crate) left_out: LeftOut,
    /// What is wrong with other people's objects and costs nobody anything: reason and sentence.
    pub(crate) notes: BTreeSet<(&'static str, String)>,
    pub(super) refusal: Option<Refusal>,
}

impl<'a> Draft<'a> {
    /// Of an RA of which nothing can be made.
    pub(super) fn refused(owned: Vec<Generated<'a>>, refusal: Refusal) -> Self {
        let keep = if refusal.withdraw {
            BTreeSet::new()
        } else {
            owned.iter().map(|o| o.key.clone()).collect()
        };
        Self {
            owned,
            keep,
            serves: refusal.withdraw.then(BTreeSet::new),
            refusal: Some(refusal),
            ..Self::default()
        }
    }

    /// The node gets nothing new, and what was generated for it stays.
    pub(crate) fn leave_out(&mut self, node: &'a Node, why: &str) {
        self.left_out.node(node, why);
        self.keep_node(node);
    }

    /// What was generated for the node stays as it is.
    fn keep_node(&mut self, node: &'a Node) {
        self.kept.insert(&node.name);
        for key in self.of_node.remove(&node.name).unwrap_or_default() {
            self.desired.remove(&key);
            self.keep.insert(key);
        }
        let of_node = self
            .owned
            .iter()
            .filter(|o| o.node() == Some(node.name.as_str()));
        self.keep.extend(of_node.map(|o| o.key.clone()));
    }

    /// Keys of what it wants the node to load.
    pub(crate) fn keys_of<'d>(&'d self, node: &'d NodeName) -> impl Iterator<Item = &'d ObjectKey> {
        let own = self.of_node.get(node).into_iter().flatten();
        let shared = self.fabric.iter().flat_map(|fabric| fabric.keys_of(node));
        own.chain(shared)
    }
}

/// Makes a draft, node by node.
pub(super) struct Maker<'a, 'f> {
    world: &'a World,
    facts: &'f Facts<'a>,
    ra: &'a RouteAdvertisements,
    selection: Selection<'a>,
    sources: Vec<&'a FrrConfiguration>,
    /// The fabric's template, where this is an RA of the fabric.
    template: Option<ObjectKey>,
    /// A selected source cannot be read.
    any_unreadable: bool,
    /// Sources that have led to an object, and those that have not, with what they lack.
    used: BTreeSet<&'a ObjectKey>,
    unused: BTreeMap<&'a ObjectKey, String>,
    /// What is wrong with a source, in OVN-Kubernetes' words: why the RA is not accepted if nothing of it can be had.
    fault: Option<String>,
    /// With `auto`: networks that some node has a router for, and nodes that have none for a network.
    routed: BTreeSet<&'a NetworkName>,
    unrouted: BTreeMap<&'a NetworkName, Vec<&'a Node>>,
    pub(super) draft: Draft<'a>,
}

/// The prefixes that a node announces, by network.
pub(super) type Announced<'a> = BTreeMap<&'a NetworkName, Vec<Prefix>>;

impl<'a, 'f> Maker<'a, 'f> {
    pub(super) fn new(
        world: &'a World,
        facts: &'f Facts<'a>,
        ra: &'a RouteAdvertisements,
        mut selection: Selection<'a>,
    ) -> Self {
        let owned = facts.owned(&generated::label_value(&ra.name));
        let left_out = std::mem::take(&mut selection.left_out);
        let serves = selection.networks.keys().copied().cloned().collect();
        let settings = world.fabric.as_ref();
        let settings = settings.filter(|_| fabric::is_of_fabric(world, &ra.name));
        let template = settings.map(fabric::base_key);
        Self {
            world,
            facts,
            ra,
            selection,
            sources: Vec::new(),
            template,
            any_unreadable: false,
            used: BTreeSet::new(),
            unused: BTreeMap::new(),
            fault: None,
            routed: BTreeSet::new(),
            unrouted: BTreeMap::new(),
            draft: Draft {
                owned,
                left_out,
                serves: Some(serves),
                ..Draft::default()
            },
        }
    }

    /// Finds the sources; those of another namespace and those that cannot be read are named.
    pub(super) fn find_sources(&mut self) -> Result<(), Refusal> {
        let namespace = &self.world.frr_namespace;
        let (mut any, mut elsewhere) = (false, Vec::<&FrrConfiguration>::new());
        for (key, object) in &self.world.frr {
            let selector = &self.ra.frr_selector;
            match object {
                Err(problems) => {
                    let remains = self.world.unreadable.get(key);
                    // One whose labels are not known either may be a source: say so, and keep what was made from it.
                    let selected = remains.is_none_or(|r| selector.matches(&r.labels))
                        && !key.name.starts_with(GENERATED_PREFIX);
                    if key.namespace == *namespace && selected {
                        any = true;
                        self.any_unreadable = true;
                        for problem in problems {
                            self.draft.left_out.source(key, &problem.message);
                            self.fault.get_or_insert_with(|| fault_of(key, problem));
                        }
                    }
                }
                Ok(source) if is_generated(source) || !selector.matches(&source.labels) => {}
                Ok(source) if key.namespace != *namespace => {
                    let why = format!("it is without effect: only namespace {namespace} is read");
                    self.draft.left_out.source(key, &why);
                    elsewhere.push(source);
                }
                Ok(source) => self.sources.push(source),
            }
        }
        if any || !self.sources.is_empty() {
            self.sources.extend(elsewhere);
            return Ok(());
        }
        let text = "no FRRConfigurations selected";
        let refusal = pending(text);
        // A source that is still there and merely no longer selected: its label may be about to come back.
        let of_existing = |o: &&Generated<'_>| {
            let names = self.world.frr.keys().map(|key| key.name.as_str());
            o.source()
                .is_some_and(|source| names.into_iter().any(|name| name == source))
        };
        let keep: BTreeSet<ObjectKey> = self
            .draft
            .owned
            .iter()
            .filter(of_existing)
            .map(|o| o.key.clone())
            .collect();
        if keep.is_empty() {
            return Err(refusal);
        }
        self.draft.keep = keep;
        self.draft.refusal = Some(refusal);
        Ok(())
    }

    pub(super) fn node(&mut self, node: &'a Node) {
        if let Some(why) = self.facts.unfit.get(&node.name) {
            return self.draft.leave_out(node, why);
        }
        let announced = self.announced(node);
        if announced.is_empty() {
            if self.ra.pod_network {
                self.draft.keep_node(node);
            }
            return;
        }
        let (mut any, mut without) = (false, Vec::new());
        let mut routed: BTreeSet<&'a NetworkName> = BTreeSet::new();
        for source in self.sources.clone() {
            if !(fabric::is_template(source) || source.node_selector.matches(&node.labels)) {
                continue;
            }
            // One that nobody reads serves no node.
            any |= source.key.namespace == self.world.frr_namespace;
            if self.template.as_ref() == Some(&source.key) {
                self.used.insert(&source.key);
                self.draft.announced.insert(&node.name, announced.clone());
                continue;
            }
            match self.object(source, node, &announced, &mut routed) {
                Ok(object) => {
                    self.used.insert(&source.key);
                    let keys = self.draft.of_node.entry(node.name.clone()).or_default();
                    keys.push(object.key.clone());
                    self.draft.desired.insert(object.key.clone(), object);
                }
                Err(why) => {
                    self.unused.insert(&source.key, why.clone());
                    without.push(format!("FRRConfiguration {} {why}", source.key));
                }
            }
        }
        if self.ra.target_vrf == TargetVrf::Auto {
            for name in announced.keys().filter(|name| !routed.contains(*name)) {
                self.unrouted.entry(*name).or_default().push(node);
            }
            self.routed.extend(routed);
        }
        if !any {
            let text = if self.any_unreadable {
                "none of the selected FRRConfigurations that can be read matches this node"
            } else {
                "no selected FRRConfiguration matches this node"
            };
            self.draft.left_out.node(node, text);
        } else if !self.draft.of_node.contains_key(&node.name)
            && !self.draft.announced.contains_key(&node.name)
        {
            for why in without {
                self.draft.left_out.node(node, &why);
            }
        }
    }

    /// What the node announces of each network, sorted as text; what it lacks is named. A network that it cannot take part in
    /// now, but whose prefixes it announces, it goes on announcing.
    fn announced(&mut self, node: &'a Node) -> Announced<'a> {
        let mut out = Announced::new();
        let kept = self.kept_egress_ips(node);
        let overlay = |served: &Served<'_>| served.network.transport.no_overlay().is_none();
        let mut networks = self.selection.networks.iter();
        if let Some((name, _)) = networks.find(|(_, served)| overlay(served) && !kept.is_empty()) {
            out.insert(name, kept);
        }
        for (name, served) in &self.selection.networks {
            let mut list = self
                .facts
                .egress
                .prefixes(self.ra, served.network, &node.name);
            if self.ra.pod_network {
                match self.pods(node, served.network) {
                    Ok(pods) => list.extend(pods),
                    Err(why) => {
                        let why = if name.is_default() {
                            why
                        } else {
                            format!("network {name}: {why}")
                        };
                        self.draft.left_out.node(node, &why);
                        let existing = self.existing(node, served.network);
                        list.extend(existing);
                    }
                }
            }
            if !list.is_empty() {
                let of_network = out.entry(name).or_default();
                of_network.append(&mut list);
                *of_network = sorted(std::mem::take(of_network));
            }
        }
        // Nothing but what it has: it keeps that, to the letter.
        let has_own = |name: &NetworkName| {
            let excluded = self.facts.excluded.get(name);
            excluded.is_none_or(|map| !map.contains_key(&node.name))
                && self.world.subnets(node, name).is_some()
        };
        let is_own = |served: &&Served<'_>| {
            let network = served.network;
            network.topology == Topology::Layer2
                || has_own(&network.name)
                || !self
                    .facts
                    .egress
                    .prefixes(self.ra, network, &node.name)
                    .is_empty()
        };
        let has_kept = !self.facts.egress.kept(self.ra, &node.name).is_empty();
        if !has_kept && !self.selection.networks.values().any(|s| is_own(&s)) {
            out.clear();
        }
        out
    }

    /// Addresses of EgressIPs that the node announces and that nobody can tell the networks of now.
    fn kept_egress_ips(&self, node: &Node) -> Vec<Prefix> {
        let of_unreadable = self.facts.egress.kept(self.ra, &node.name);
        let owned = self.draft.owned.iter();
        let objects = owned.filter(|o| o.node() == Some(node.name.as_str()));
        let objects = objects.filter_map(|o| o.object());
        let announced: BTreeSet<Prefix> = objects
            .flat_map(|object| &object.routers)
            .flat_map(|router| router.prefixes.iter().copied())
            .collect();
        let kept = of_unreadable.into_iter();
        kept.filter(|prefix| announced.contains(prefix)).collect()
    }

    /// The node's pod subnets of a network.
    fn pods(&self, node: &Node, network: &Network) -> Result<Vec<Prefix>, String> {
        if network.topology == Topology::Layer2 {
            return Ok(network.prefixes().collect());
        }
        if let Some(why) = self
            .facts
            .excluded
            .get(&network.name)
            .and_then(|map| map.get(&node.name))
        {
            return Err(why.clone());
        }
        match &node.subnets {
            Fact::Absent => Err("waiting for subnet annotation to be set: could not find \"k8s.ovn.org/node-subnets\" annotation".to_owned()),
            Fact::Malformed(why) => Err(why.clone()),
            Fact::Known(_) => self.world.subnets(node, &network.name).ok_or_else(|| {
                format!("annotation k8s.ovn.org/node-subnets has no entry for network {}", network.name)
            }),
        }
    }

    /// What was generated for the node announces of a network.
    fn existing(&self, node: &Node, network: &Network) -> Vec<Prefix> {
        let own = generated::label_value(&self.ra.name);
        let of_fabric = self.template.is_some();
        let of_fabric = of_fabric.then(|| generated::label_value(&fabric::base_name()));
        let of_label = |label: String| {
            let by_node = self.facts.originated(&label, &network.name)?;
            by_node.get(node.name.as_str()).cloned()
        };
        let all = std::iter::once(own).chain(of_fabric);
        all.filter_map(of_label).flatten().collect()
    }

    /// The object of a node, or why this source leads to none.
    fn object(
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
            routers.extend(leaking(
                source, auto, target, &networks, prefixes, neighbors,
            ));
        }
        if let Some(why) = without.filter(|_| routers.is_empty()) {
            return Err(why);
        }
        let name = &self.ra.name;
        let identity = format!("{name}/{}/{}", source.key.name, node.name);
        let raw = (!raws.is_empty()).then(|| Raw {
            priority: 10,
            config: raws.concat(),
        });
        Ok(FrrConfiguration {
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
        })
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

    /// Objects made from a source that cannot be read now stay; sources that lead to nothing anywhere are named.
    pub(super) fn finish(mut self) -> Draft<'a> {
        let unreadable: BTreeSet<&str> = self
            .world
            .frr
            .iter()
            .filter(|(key, object)| object.is_err() && key.namespace == self.world.frr_namespace)
            .map(|(key, _)| key.name.as_str())
            .collect();
        let owned = self.draft.owned.iter();
        let kept = owned.filter(|o| o.source().is_some_and(|s| unreadable.contains(s)));
        self.draft.keep.extend(kept.map(|o| o.key.clone()));
        for (key, why) in &self.unused {
            if !self.used.contains(key) {
                self.draft
                    .left_out
                    .source(key, &format!("on some nodes it {why}"));
            }
        }
        self.name_unrouted();
        self.draft.refusal = self.draft.refusal.take().or_else(|| self.refusal());
        self.draft
    }

    /// Nodes without a router for a network that others have one for.
    fn name_unrouted(&mut self) {
        for (name, nodes) in &self.unrouted {
            for node in nodes.iter().filter(|_| self.routed.contains(name)) {
                let text =
                    format!("network {name}: no selected FRRConfiguration has a router of its VRF");
                self.draft.left_out.node(node, &text);
            }
        }
    }

    /// Why the RA is not accepted although its own fields are right: no node has a router for one of its networks (`auto`), or
    /// nothing at all can be made of its sources and nothing of before is in force.
    fn refusal(&mut self) -> Option<Refusal> {
        let nowhere = self
            .unrouted
            .iter()
            .find(|(name, _)| !self.routed.contains(*name));
        let text = match nowhere.and_then(|(_, nodes)| nodes.first()) {
            Some(node) => format!(
                "selected FRRConfigurations for node {:?} don't match all selected networks with target VRF 'auto'",
                node.name.as_str()
            ),
            None if self.draft.desired.is_empty()
                && self.draft.keep.is_empty()
                && self.draft.announced.is_empty() =>
            {
                self.fault.clone()?
            }
            None => return None,
        };
        self.draft.desired.clear();
        self.draft.of_node.clear();
        self.draft.keep = self.draft.owned.iter().map(|o| o.key.clone()).collect();
        self.draft.serves = None;
        Some(wrong(text))
    }
}

/// The router that announces, and those that leak routes between it and the other networks' VRFs; with `targetVRF: auto` each
/// network keeps to its own.
pub(super) fn leaking(
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
            asn: own.asn,
            id: own.id.clone(),
            vrf: if vrf == DEFAULT_VRF {
                String::new()
            } else {
                vrf.to_owned()
            },
            neighbors: Vec::new(),
            prefixes: Vec::new(),
            imports,
            evpn: None,
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

/// What is wrong with a source that cannot be read, in OVN-Kubernetes' words where it has any.
fn fault_of(key: &ObjectKey, problem: &Problem) -> String {
    if problem.message.ends_with(NAMELESS_NEIGHBOR) {
        format!("neighbor with neither address nor interface on FRRConfiguration {key}")
    } else {
        problem.message.clone()
    }
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

pub(super) fn sorted(mut list: Vec<Prefix>) -> Vec<Prefix> {
    list.sort_by_key(ToString::to_string);
    list.dedup();
    list
}
