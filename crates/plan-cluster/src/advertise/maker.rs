//! The draft of one RA, node by node.
//! In: the world and the RA. Out: objects by node, objects to keep, who is left out.
//! Invariant: a node that cannot be read keeps what it has.
//! Not here: what an object of a node says (`object`), conditions, conflicts.

mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::frr::{FrrConfiguration, NAMELESS_NEIGHBOR};
use model::intent::{RouteAdvertisements, TargetVrf};
use model::network::Topology;
use model::node::{Fact, Node};
use model::user_network::NO_OVERLAY;
use model::{Network, NetworkName, ObjectKey, Prefix, Problem};

use super::draft::{Draft, Facts};
use super::select::{Selection, Served};
use super::{Refusal, pending, wrong};
use crate::GENERATED_PREFIX;
use crate::fabric;
use crate::generated::{self, Generated, is_generated};
use crate::world::World;
pub(super) use object::leaking;

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
        // A node that awaits to be ready has its sessions by the sources themselves.
        let mut said = announced.clone();
        said.retain(|_, list| !list.is_empty());
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
            if said.is_empty() {
                self.used.insert(&source.key);
                continue;
            }
            match self.object(source, node, &said, &mut routed) {
                Ok(object) => {
                    self.used.insert(&source.key);
                    self.want(node, object);
                }
                Err(why) => {
                    self.unused.insert(&source.key, why.clone());
                    without.push(format!("FRRConfiguration {} {why}", source.key));
                }
            }
        }
        if self.ra.target_vrf == TargetVrf::Auto {
            for name in said.keys().filter(|name| !routed.contains(*name)) {
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

    fn want(&mut self, node: &Node, object: FrrConfiguration) {
        let keys = self.draft.of_node.entry(node.name.clone()).or_default();
        keys.push(object.key.clone());
        let desired = &mut self.draft.desired;
        desired.insert(object.key.clone(), Arc::new(object));
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
            if self.ra.pod_network && self.awaits(node, served.network) {
                // It has its sessions, and learns; what it would be sent goes by the tunnel.
                out.entry(name).or_default();
            } else if self.ra.pod_network && self.is_unguarded(node, served.network) {
                self.draft.left_out.node(node, &unguarded(name));
                // What it announced until now it announces no more.
                out.entry(name).or_default();
            } else if self.ra.pod_network {
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
        let has_any = self.selection.networks.values().any(|s| is_own(&s));
        if !has_kept && !has_any {
            out.clear();
        }
        out
    }

    /// Whether nothing is to be sent to the node's pods yet, or any more.
    fn awaits(&self, node: &Node, network: &Network) -> bool {
        let no_overlay = network.transport.no_overlay().is_some();
        self.world.beside && no_overlay && !node.underlay_ready.contains_key(&network.name)
    }

    /// Whether anybody could come in to pods by a node beside OVN-Kubernetes, since nothing of ours stands there.
    fn is_unguarded(&self, node: &Node, network: &Network) -> bool {
        self.world.beside && !node.underlay_ready.contains_key(&network.name)
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
            Fact::Known(_) => {
                let all = self.world.subnets(node, &network.name).ok_or_else(|| {
                    format!("annotation k8s.ovn.org/node-subnets has no entry for network {}", network.name)
                })?;
                // Beside OVN-Kubernetes one that it has got a moment ago is not taken yet.
                let takes = |subnet: &&Prefix| {
                    !self.world.beside || node.underlay_ready.has(&network.name, subnet)
                };
                Ok(all.iter().filter(takes).copied().collect())
            }
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

/// What is wrong with a source that cannot be read, in OVN-Kubernetes' words where it has any.
fn fault_of(key: &ObjectKey, problem: &Problem) -> String {
    if problem.message.ends_with(NAMELESS_NEIGHBOR) {
        format!("neighbor with neither address nor interface on FRRConfiguration {key}")
    } else {
        problem.message.clone()
    }
}

pub(super) fn sorted(mut list: Vec<Prefix>) -> Vec<Prefix> {
    list.sort_by_key(ToString::to_string);
    list.dedup();
    list
}

/// Why a node's pods of a network are not announced.
fn unguarded(network: &NetworkName) -> String {
    format!(
        "network {network}: its pods' packets take OVN-Kubernetes' tunnels on the node, and nothing would keep others from its pods; allowed: a network that is led past them ([default] transport = no-overlay, annotation {NO_OVERLAY})"
    )
}
