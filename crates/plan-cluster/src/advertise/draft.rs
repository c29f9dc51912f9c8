//! What one RA would like to have, before it is checked beside all others.
//! In: the world and the RA. Out: objects by node, objects to keep, who is left out.
//! Invariant: a node that cannot be read keeps what it has. Not here: conditions, conflicts.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::{FrrConfiguration, Neighbor, Raw, Receive, Router};
use model::intent::RouteAdvertisements;
use model::node::{Fact, HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels};
use model::{Family, NetworkName, NodeName, ObjectKey, Prefix};

use super::{ENTRIES_OF_ONE, LeftOut, Refusal, neighbors, pending, raw};
use crate::fabric;
use crate::generated::{self, Generated, is_generated};
use crate::ranges::Ranges;
use crate::world::World;
use crate::{GENERATED_PREFIX, MANAGED_BY, RA_KEY};

/// What is the same for every RA.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// Nodes that cannot take part.
    pub(crate) excluded: BTreeMap<NodeName, String>,
    /// What routers receive, by the neighbor's family; `None` is both.
    received: BTreeMap<Option<Family>, Receive>,
    owned: BTreeMap<&'a str, Vec<Generated<'a>>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(world: &'a World) -> Self {
        let mut owned: BTreeMap<&str, Vec<Generated<'a>>> = BTreeMap::new();
        for object in generated::all(world).filter(Generated::is_ours) {
            if let Some(label) = object.label() {
                owned.entry(label).or_default().push(object);
            }
        }
        let default = world.default_network();
        let ranges = default.map(|network| Ranges::of(world, network));
        let ranges = ranges.unwrap_or_default();
        let received = [None, Some(Family::V4), Some(Family::V6)].map(|family| {
            let prefixes = ranges.received(family);
            let all = false;
            (family, Receive { all, prefixes })
        });
        Self {
            excluded: default
                .map(|network| world.excluded_nodes(network))
                .unwrap_or_default(),
            received: received.into(),
            owned,
        }
    }

    /// Objects of ours with this label.
    pub(super) fn owned(&self, label: &str) -> Vec<Generated<'a>> {
        self.owned.get(label).cloned().unwrap_or_default()
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
            refusal: Some(refusal),
            ..Self::default()
        }
    }

    /// The node gets nothing new, and what was generated for it stays.
    pub(crate) fn leave_out(&mut self, node: &Node, why: &str) {
        self.left_out.node(node, why);
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
}

/// Makes a draft, node by node.
pub(super) struct Maker<'a, 'f> {
    world: &'a World,
    facts: &'f Facts<'a>,
    ra: &'a RouteAdvertisements,
    sources: Vec<&'a FrrConfiguration>,
    /// A selected source cannot be read.
    any_unreadable: bool,
    /// Sources that have led to an object, and those that have not, with what they lack.
    used: BTreeSet<&'a ObjectKey>,
    unused: BTreeMap<&'a ObjectKey, String>,
    pub(super) draft: Draft<'a>,
}

impl<'a, 'f> Maker<'a, 'f> {
    pub(super) fn new(world: &'a World, facts: &'f Facts<'a>, ra: &'a RouteAdvertisements) -> Self {
        let owned = facts.owned(&generated::label_value(&ra.name));
        Self {
            world,
            facts,
            ra,
            sources: Vec::new(),
            any_unreadable: false,
            used: BTreeSet::new(),
            unused: BTreeMap::new(),
            draft: Draft {
                owned,
                ..Draft::default()
            },
        }
    }

    /// Finds the sources; those of another namespace and those that cannot be read are named.
    pub(super) fn find_sources(&mut self) -> Result<(), Refusal> {
        let namespace = &self.world.frr_namespace;
        let (mut any, mut elsewhere) = (false, Vec::new());
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
                        }
                    }
                }
                Ok(source) if is_generated(source) || !selector.matches(&source.labels) => {}
                Ok(_) if key.namespace != *namespace => {
                    let why = format!("it is without effect: only namespace {namespace} is read");
                    self.draft.left_out.source(key, &why);
                    elsewhere.push(format!("FRRConfiguration {key}: {why}"));
                }
                Ok(source) => self.sources.push(source),
            }
        }
        if any || !self.sources.is_empty() {
            return Ok(());
        }
        let mut text = "no FRRConfigurations selected".to_owned();
        for why in elsewhere.iter().take(ENTRIES_OF_ONE) {
            text.push_str(&format!("; {why}"));
        }
        Err(pending(&text))
    }

    pub(super) fn node(&mut self, node: &'a Node) {
        if let Some(why) = self.facts.excluded.get(&node.name) {
            return self.draft.leave_out(node, why);
        }
        let prefixes = match &node.subnets {
            Fact::Absent => {
                let why = "waiting for subnet annotation to be set: could not find \"k8s.ovn.org/node-subnets\" annotation";
                return self.draft.leave_out(node, why);
            }
            Fact::Malformed(why) => return self.draft.leave_out(node, why),
            Fact::Known(_) => match self.world.subnets(node, &NetworkName::default_network()) {
                Some(list) => sorted(list),
                None => {
                    let why =
                        "annotation k8s.ovn.org/node-subnets has no entry for network default";
                    return self.draft.leave_out(node, why);
                }
            },
        };
        let (mut any, mut without) = (false, Vec::new());
        for source in self.sources.clone() {
            if !(fabric::is_template(source) || source.node_selector.matches(&node.labels)) {
                continue;
            }
            any = true;
            match self.object(source, node, &prefixes) {
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
        if !any {
            let text = if self.any_unreadable {
                "none of the selected FRRConfigurations that can be read matches this node"
            } else {
                "no selected FRRConfiguration matches this node"
            };
            self.draft.left_out.node(node, text);
        } else if !self.draft.of_node.contains_key(&node.name) {
            for why in without {
                self.draft.left_out.node(node, &why);
            }
        }
    }

    /// The object of a node, or why this source leads to none.
    fn object(
        &mut self,
        source: &'a FrrConfiguration,
        node: &Node,
        prefixes: &[Prefix],
    ) -> Result<FrrConfiguration, String> {
        let mut routers = source.routers.iter();
        let router = routers
            .find(|r| r.vrf.is_empty() || r.vrf == "default")
            .ok_or("has no router of the default VRF")?;
        let own = node.own_addresses();
        let is_self = |n: &&Neighbor| {
            n.peer
                .ip()
                .is_some_and(|ip| own.contains(&ip) || own.contains(&ip.to_canonical()))
        };
        let mut neighbors = Vec::new();
        for neighbor in router.neighbors.iter().filter(|n| !is_self(n)) {
            if neighbor.session.dual_stack {
                let text = format!(
                    "DualStackAddressFamily==true not supported, seen on FRRConfiguration {} neighbor {}",
                    source.key,
                    neighbor.peer.as_str()
                );
                self.draft.left_out.neighbor(neighbor.peer.as_str(), &text);
                continue;
            }
            let taken = self.received(neighbor);
            neighbors.extend(neighbors::neighbor(neighbor, prefixes, taken));
        }
        // A template without other nodes yet is no fault: the only node of a cluster has no neighbor.
        if neighbors.is_empty() && !fabric::is_template(source) {
            return Err(without_neighbors(router, &is_self, prefixes));
        }
        let name = &self.ra.name;
        let identity = format!("{name}/{}/{}", source.key.name, node.name);
        let raw = (!neighbors.is_empty()).then(|| Raw {
            priority: 10,
            config: raw::allowas_in(router.asn, &neighbors),
        });
        Ok(FrrConfiguration {
            key: ObjectKey::new(
                &source.key.namespace,
                generated::name(name, &source.key, node.name.as_str()),
            ),
            labels: labels(name),
            annotations: [(RA_KEY.to_owned(), identity)].into(),
            node_selector: LabelSelector::label(HOSTNAME_LABEL, node.hostname()),
            routers: vec![Router {
                asn: router.asn,
                id: router.id.clone(),
                vrf: String::new(),
                neighbors,
                prefixes: prefixes.to_vec(),
                imports: Vec::new(),
            }],
            bfd_profiles: source.bfd_profiles.clone(),
            raw,
        })
    }

    /// What is taken from a neighbor: the pod subnets of the cluster, or with an overlay what the source says.
    fn received(&self, neighbor: &Neighbor) -> Receive {
        let network = self.world.default_network();
        if network.is_none_or(|network| network.transport.no_overlay().is_none()) {
            return neighbor.receive.clone();
        }
        let family = neighbor.peer.ip().map(Family::of);
        self.facts
            .received
            .get(&family)
            .cloned()
            .unwrap_or_default()
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
        self.draft
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

fn sorted(mut list: Vec<Prefix>) -> Vec<Prefix> {
    list.sort_by_key(ToString::to_string);
    list.dedup();
    list
}
