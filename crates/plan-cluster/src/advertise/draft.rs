//! What is the same for every RA, and what one RA would like to have before it is checked beside all others.
//! In: the world. Out: facts, a draft. Invariant: a node for which nothing new can be made keeps what it has.
//! Not here: how a draft is made (`maker`), conditions, conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::frr::FrrConfiguration;
use model::node::Node;
use model::{NetworkName, NodeName, ObjectKey, Prefix};

use super::egress::EgressIps;
use super::isolation::Isolation;
use super::maker::Announced;
use super::members::Shared;
use super::{LeftOut, Refusal};
use crate::generated::{self, Generated, Originated};
use crate::ranges::Ranges;
use crate::world::{Exclusions, World};

/// What is the same for every RA.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// Nodes that cannot take part in anything.
    pub(crate) unfit: BTreeMap<NodeName, String>,
    /// Nodes that cannot take part in a network, those of `unfit` among them.
    pub(super) excluded: BTreeMap<NetworkName, BTreeMap<NodeName, String>>,
    /// Subnets with the host lengths in force.
    pub(super) ranges: BTreeMap<&'a NetworkName, Ranges>,
    /// Addresses of EgressIPs.
    pub(super) egress: EgressIps<'a>,
    /// What VRFs must not take over from one another.
    pub(super) isolation: Isolation,
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
            egress: EgressIps::of(world, owned.values().flatten().copied()),
            isolation: Isolation::of(world, owned.values().flatten().copied()),
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
    pub(crate) desired: BTreeMap<ObjectKey, Arc<FrrConfiguration>>,
    /// Keys of `desired` by node.
    pub(crate) of_node: BTreeMap<NodeName, Vec<ObjectKey>>,
    /// Objects to leave as they are.
    pub(crate) keep: BTreeSet<ObjectKey>,
    /// Those that never stay: what is to come could not be loaded beside them.
    pub(super) obsolete: BTreeSet<ObjectKey>,
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
    pub(super) fn keep_node(&mut self, node: &'a Node) {
        self.kept.insert(&node.name);
        for key in self.of_node.remove(&node.name).unwrap_or_default() {
            self.desired.remove(&key);
            self.keep.insert(key);
        }
        let of_node = self
            .owned
            .iter()
            .filter(|o| o.node() == Some(node.name.as_str()))
            .filter(|o| !self.obsolete.contains(o.key));
        self.keep.extend(of_node.map(|o| o.key.clone()));
    }

    /// Keys of what it wants the node to load.
    pub(crate) fn keys_of<'d>(&'d self, node: &'d NodeName) -> impl Iterator<Item = &'d ObjectKey> {
        let own = self.of_node.get(node).into_iter().flatten();
        let shared = self.fabric.iter().flat_map(|fabric| fabric.keys_of(node));
        own.chain(shared)
    }
}
