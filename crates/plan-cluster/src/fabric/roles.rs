//! Who reflects routes, and who peers with whom.
//! In: the members, their labels, what they report. Out: the reflectors, and whose peer object every member loads.
//! Invariant: no session and no reflector is given up before what replaces it is reported to work; nothing reported means that
//! both stay. Who reflects already goes on doing so where it can.
//! Not here: objects, labels on Nodes, who is a member.

use std::collections::{BTreeMap, BTreeSet};

use model::node::{Node, ZONE_LABEL};
use model::{LabelSelector, NodeName};

use crate::world::{FabricSettings, FabricTopology, World};

/// Label that a Node bears as long as it takes part in the fabric: its [`Role`]. Peer objects select by it.
pub const ROLE_LABEL: &str = "noverlay.io/bgp-fabric";

/// Label, and its value, by which an administrator names the reflectors (design document of the no-overlay mode, future goals).
pub const REQUESTED_LABEL: (&str, &str) = ("k8s.ovn.org/internal-bgp-role", "route-reflector");

/// So many reflectors are chosen: one may fail while another is drained.
pub const CHOSEN: usize = 3;

/// What a node is in the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It announces its own subnets.
    Member,
    /// It passes on those of others, too.
    Reflector,
}

impl Role {
    /// The value of [`ROLE_LABEL`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Reflector => "route-reflector",
        }
    }

    /// The role that a Node's label says it has.
    #[must_use]
    pub fn of(node: &Node) -> Option<Self> {
        let word = node.labels.get(ROLE_LABEL)?;
        let all = [Self::Member, Self::Reflector];
        all.into_iter().find(|role| role.word() == word)
    }
}

/// What has to be reported for a change of topology, until all of it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// That these reflect, and have a session with every member.
    Reflectors(BTreeSet<NodeName>),
    /// That every two members have a session.
    Mesh,
}

/// Who does what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// Those that reflect.
    pub reflectors: BTreeSet<NodeName>,
    /// Members whose peer object every other member loads; that of the rest is loaded by reflectors only.
    pub peers_of_all: BTreeSet<NodeName>,
    /// What a change that is under way waits for.
    pub awaited: Option<Awaited>,
}

/// The roles of these members; `unusable` ones cannot load what makes a reflector of them.
#[must_use]
pub fn plan(
    world: &World,
    settings: &FabricSettings,
    members: &BTreeSet<NodeName>,
    unusable: &BTreeSet<NodeName>,
) -> Roles {
    let nodes = members.iter().filter_map(|name| world.nodes.get(name));
    let nodes: Vec<&Node> = nodes.collect();
    let current = nodes
        .iter()
        .filter(|node| Role::of(node) == Some(Role::Reflector));
    let current: BTreeSet<NodeName> = current.map(|node| node.name.clone()).collect();
    let scopes = scopes(world, settings, &nodes);
    let is_mesh = scopes.values().all(|of_all| *of_all);
    let reflected = match settings.topology {
        FabricTopology::FullMesh => false,
        FabricTopology::RouteReflector => true,
        // By the objects that stand, not by labels: anybody may set those, and they go with their Nodes.
        FabricTopology::Auto(sizes) if is_mesh => nodes.len() > sizes.reflectors_above,
        FabricTopology::Auto(sizes) => nodes.len() >= sizes.full_mesh_below,
    };
    let wanted = if reflected {
        choose(&nodes, unusable)
    } else {
        BTreeSet::new()
    };
    if wanted.is_empty() {
        return mesh(world, members, current, &scopes);
    }
    let steady = is_steady(world, &wanted);
    let retiring = !current.is_subset(&wanted);
    let mut reflectors = wanted.clone();
    if !steady {
        reflectors.extend(current);
    }
    // A node that joins gets what the others have.
    let any_of_all = members
        .iter()
        .any(|name| !wanted.contains(name) && scopes.get(name) == Some(&true));
    let is_of_all = |name: &&NodeName| match scopes.get(*name) {
        _ if reflectors.contains(*name) => true,
        Some(of_all) => *of_all && !steady,
        None => any_of_all && !steady,
    };
    let peers_of_all: BTreeSet<NodeName> = members.iter().filter(is_of_all).cloned().collect();
    // What is reported counts until all of it is written.
    let waits = any_of_all || retiring;
    Roles {
        awaited: waits.then_some(Awaited::Reflectors(wanted)),
        peers_of_all,
        reflectors,
    }
}

/// Whether the reflectors do their work: all that can be expected to, and two of several.
pub(super) fn is_steady(world: &World, wanted: &BTreeSet<NodeName>) -> bool {
    let reflecting = &world.evidence.reflecting;
    let is_ready =
        |name: &&NodeName| world.nodes.get(*name).and_then(|node| node.ready) != Some(false);
    let mut expected = wanted.iter().filter(is_ready);
    expected.all(|name| reflecting.contains(name))
        && wanted.intersection(reflecting).count() >= wanted.len().min(2)
}

/// A mesh: reflectors of before go on until it stands.
fn mesh(
    world: &World,
    members: &BTreeSet<NodeName>,
    current: BTreeSet<NodeName>,
    scopes: &BTreeMap<NodeName, bool>,
) -> Roles {
    let whole = world.evidence.meshed && scopes.values().all(|of_all| *of_all);
    Roles {
        awaited: (!current.is_empty()).then_some(Awaited::Mesh),
        reflectors: if whole { BTreeSet::new() } else { current },
        peers_of_all: members.clone(),
    }
}

/// Whose peer object stands there, and whether every member loads it.
fn scopes(world: &World, settings: &FabricSettings, nodes: &[&Node]) -> BTreeMap<NodeName, bool> {
    let stands = nodes.iter().filter_map(|node| {
        let object = world
            .frr
            .get(&super::members::peer_key(settings, &node.name))?;
        let object = object.as_ref().ok()?;
        Some((node.name.clone(), is_of_all(&object.node_selector)))
    });
    stands.collect()
}

/// Whether a peer object's selector is that of all members, not of reflectors only.
fn is_of_all(selector: &LabelSelector) -> bool {
    !selector.match_labels.contains_key(ROLE_LABEL)
}

/// The reflectors to have: those that the administrator names, or a few that are likely to stay, spread over zones.
fn choose(nodes: &[&Node], unusable: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    let usable = || nodes.iter().filter(|node| !unusable.contains(&node.name));
    let requested = usable().filter(|node| {
        node.labels.get(REQUESTED_LABEL.0).map(String::as_str) == Some(REQUESTED_LABEL.1)
    });
    let requested: BTreeSet<NodeName> = requested.map(|node| node.name.clone()).collect();
    if !requested.is_empty() {
        return requested;
    }
    let mut rest: Vec<&Node> = usable().copied().collect();
    let mut taken: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    while chosen.len() < CHOSEN {
        let best = rest.iter().enumerate().min_by_key(|(_, node)| {
            let in_zone = taken.get(&zone(node)).copied().unwrap_or_default();
            let id = node.node_id.known().copied().unwrap_or(u32::MAX);
            let leaving = node.cordoned || node.ready == Some(false);
            let is_new = Role::of(node) != Some(Role::Reflector);
            (leaving, in_zone, is_new, id, &node.name)
        });
        let Some((at, _)) = best else {
            break;
        };
        let node = rest.swap_remove(at);
        *taken.entry(zone(node)).or_default() += 1;
        chosen.insert(node.name.clone());
    }
    chosen
}

fn zone(node: &Node) -> Option<&str> {
    node.labels.get(ZONE_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests;
