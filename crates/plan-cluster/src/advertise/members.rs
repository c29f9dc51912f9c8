//! The fabric's objects: what all managed networks' RAs want of a node, in one object of it, and one by which it is a neighbor.
//! In: the drafts of those RAs. Out: one draft more, under the name of the fabric's base object.
//! Invariant: what one network's RA cannot say anew of a node, the node goes on announcing; a node that cannot load what it
//! needs is nobody's new neighbor, and no reflector if it can be helped.
//! Not here: the objects' content (`fabric::members`), who reflects (`fabric::roles`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::frr::FrrConfiguration;
use model::node::Node;
use model::{Family, Network, NodeName, ObjectKey};

use super::Draft;
use super::draft::Facts;
use super::isolation::Isolation;
use super::maker::{Announced, leaking, sorted};
use super::select::Served;
use crate::fabric::roles::{self, Awaited, Role, Roles};
use crate::fabric::{self, layer2, members};
use crate::generated::{DEFAULT_VRF, Generated, label_value};
use crate::world::{FabricSettings, World};

/// What members load of one another, as it will be when all labels are set.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The members.
    pub(super) roles: BTreeMap<NodeName, Role>,
    /// What a change of topology that is under way waits for.
    pub(super) awaited: Option<Awaited>,
    /// Peer objects that every member loads, and those that only reflectors load, each with the members that do not.
    of_all: BTreeMap<ObjectKey, BTreeSet<NodeName>>,
    of_reflectors: BTreeMap<ObjectKey, BTreeSet<NodeName>>,
}

impl Shared {
    /// The label that a node is to have.
    pub(crate) fn label_of(&self, node: &NodeName) -> Option<(String, String)> {
        let role = self.roles.get(node)?;
        Some((roles::ROLE_LABEL.to_owned(), role.word().to_owned()))
    }

    /// The role that a node is to have.
    pub(crate) fn role_of(&self, node: &NodeName) -> Option<Role> {
        self.roles.get(node).copied()
    }

    /// Keys of the peer objects that a node loads.
    pub(super) fn keys_of<'s>(&'s self, node: &'s NodeName) -> impl Iterator<Item = &'s ObjectKey> {
        let role = self.roles.get(node).copied();
        let of_all = self.of_all.iter().filter(move |_| role.is_some());
        let of_reflectors = self.of_reflectors.iter();
        let of_reflectors = of_reflectors.filter(move |_| role == Some(Role::Reflector));
        let all = of_all.chain(of_reflectors);
        all.filter_map(move |(key, without)| (!without.contains(node)).then_some(key))
    }
}

/// What is announced by nodes that get new objects, and which nodes keep those that they have.
#[derive(Debug, Default)]
struct Shares<'a> {
    anew: BTreeMap<&'a NodeName, Announced<'a>>,
    kept: BTreeSet<&'a NodeName>,
}

/// The draft of the fabric; `unusable` nodes are to be no reflectors, and members receive the networks of `taken_in`.
pub(super) fn draft<'a>(
    world: &'a World,
    settings: &FabricSettings,
    facts: &Facts<'a>,
    ras: &BTreeMap<String, Draft<'a>>,
    unusable: &BTreeSet<NodeName>,
    taken_in: Vec<&'a Network>,
) -> Draft<'a> {
    let owned = facts.owned(&label_value(&fabric::base_name()));
    let base = world.frr.get(&fabric::base_key(settings));
    let Some(Ok(base)) = base else {
        return Draft::refused(owned, super::gone());
    };
    let shares = shares(world, facts, ras);
    let names: BTreeSet<NodeName> = shares.anew.keys().copied().cloned().collect();
    let roles = roles::plan(world, settings, &names, unusable);
    let obsolete = obsolete(settings, &owned);
    let staying = owned.iter().filter(|o| !obsolete.contains(o.key));
    let staying: Vec<Generated<'a>> = staying.copied().collect();
    let mut draft = Draft {
        keep: kept(world, settings, &shares, &names, &staying),
        obsolete,
        owned,
        ..Draft::default()
    };
    let mut objects = Objects {
        world,
        settings,
        base,
        isolation: &facts.isolation,
        received: fabric::received(taken_in, &facts.ranges),
        holders: holders(world),
        roles: &roles,
        shared: Shared {
            awaited: roles.awaited.clone(),
            ..Shared::default()
        },
    };
    for (name, announced) in &shares.anew {
        if let Some(node) = world.nodes.get(*name) {
            objects.member(node, announced, &mut draft);
        }
    }
    for name in &shares.kept {
        let role = world.nodes.get(*name).and_then(Role::of);
        let roles = &mut objects.shared.roles;
        roles.extend(role.map(|role| ((*name).clone(), role)));
    }
    let members: Vec<&Node> = names.iter().filter_map(|n| world.nodes.get(n)).collect();
    let families = objects.received.keys().copied().collect();
    for (name, why) in layer2::apart(&members, &families) {
        if let Some(node) = world.nodes.get(name) {
            draft.left_out.node(node, &why);
        }
    }
    draft.fabric = Some(objects.shared);
    draft
}

fn shares<'a>(
    world: &'a World,
    facts: &Facts<'a>,
    ras: &BTreeMap<String, Draft<'a>>,
) -> Shares<'a> {
    let mut out = Shares::default();
    let mut carried: BTreeMap<&'a NodeName, Announced<'a>> = BTreeMap::new();
    let label = label_value(&fabric::base_name());
    for network in fabric::managed_networks(world) {
        let Some(ra) = ras.get(&fabric::advertisement_name(&network.name)) else {
            continue;
        };
        let originated = facts.originated(&label, &network.name);
        let kept: Vec<&'a NodeName> = match &ra.refusal {
            Some(refusal) if refusal.withdraw => continue,
            Some(_) => world.nodes.keys().collect(),
            None => {
                for (node, announced) in &ra.announced {
                    let share = out.anew.entry(node).or_default();
                    share.extend(announced.iter().map(|(name, list)| (*name, list.clone())));
                }
                ra.kept.iter().copied().collect()
            }
        };
        for node in kept {
            // Beside OVN-Kubernetes pods that the node takes no packets for are not carried on.
            let of_node = world.nodes.get(node);
            let takes = of_node.is_some_and(|of| of.underlay_ready.contains_key(&network.name));
            let originated = originated.filter(|_| !world.beside || takes);
            let own = originated.and_then(|by_node| by_node.get(node.as_str()));
            let list = sorted(own.cloned().unwrap_or_default());
            let of_node = carried.entry(node).or_default();
            if !list.is_empty() {
                of_node.insert(&network.name, list);
            }
        }
    }
    for (node, announced) in carried {
        match out.anew.get_mut(node) {
            Some(share) => {
                for (network, list) in announced {
                    share.entry(network).or_insert(list);
                }
            }
            None => {
                out.kept.insert(node);
            }
        }
    }
    out
}

/// Objects of nodes for which there is nothing new. One by which others would have a member as neighbor under an address
/// that is now another member's goes all the same.
fn kept(
    world: &World,
    settings: &FabricSettings,
    shares: &Shares<'_>,
    members: &BTreeSet<NodeName>,
    owned: &[Generated<'_>],
) -> BTreeSet<ObjectKey> {
    let of_kept = |o: &&Generated<'_>| {
        let node = o.node().and_then(|name| {
            let name = NodeName::from(name);
            shares
                .kept
                .contains(&name)
                .then(|| world.nodes.get(&name))?
        });
        node.is_some_and(|node| {
            let is_peer = *o.key == members::peer_key(settings, &node.name);
            !is_peer || !fabric::kept_addresses(world, settings, node, members).is_empty()
        })
    };
    owned
        .iter()
        .filter(of_kept)
        .map(|o| o.key.clone())
        .collect()
}

/// Those of another AS number: the fabric has no use for them, no node can load them beside the others, and a webhook refuses
/// both on one node.
fn obsolete(settings: &FabricSettings, owned: &[Generated<'_>]) -> BTreeSet<ObjectKey> {
    let is_of_fabric = |o: &&Generated<'_>| {
        let mut routers = o.object().into_iter().flat_map(|object| &object.routers);
        routers.all(|router| !router.vrf.is_empty() || router.asn == settings.asn)
    };
    let others = owned.iter().filter(|o| !is_of_fabric(o));
    others.map(|o| o.key.clone()).collect()
}

/// The nodes that have an address.
fn holders(world: &World) -> BTreeMap<IpAddr, Vec<&Node>> {
    let mut out: BTreeMap<IpAddr, Vec<&Node>> = BTreeMap::new();
    for node in world.nodes.values() {
        for ip in node.own_addresses() {
            out.entry(ip).or_default().push(node);
        }
    }
    out
}

struct Objects<'a, 'r> {
    world: &'a World,
    settings: &'r FabricSettings,
    base: &'a FrrConfiguration,
    isolation: &'r Isolation,
    received: members::Received,
    holders: BTreeMap<IpAddr, Vec<&'a Node>>,
    roles: &'r Roles,
    shared: Shared,
}

impl<'a> Objects<'a, '_> {
    fn member(&mut self, node: &'a Node, announced: &Announced<'a>, draft: &mut Draft<'a>) {
        let reflects = self.roles.reflectors.contains(&node.name);
        let networks = announced.keys();
        let networks: Vec<Served<'a>> = networks
            .filter_map(|name| self.world.networks.get(*name))
            .map(|network| Served { network })
            .collect();
        let prefixes = sorted(announced.values().flatten().copied().collect());
        let Some(router) = self.base.routers.first() else {
            return;
        };
        let target = (DEFAULT_VRF, router);
        let routers = leaking(self.base, false, target, &networks, prefixes, Vec::new());
        let passed_on = reflects.then_some(&self.received);
        let filters = self.isolation.text(DEFAULT_VRF, &routers);
        let own = members::own(self.settings, node, routers, passed_on, &filters);
        draft
            .of_node
            .insert(node.name.clone(), vec![own.key.clone()]);
        draft.desired.insert(own.key.clone(), Arc::new(own));
        let role = if reflects {
            Role::Reflector
        } else {
            Role::Member
        };
        self.shared.roles.insert(node.name.clone(), role);
        self.peer(node, draft);
    }

    /// Where others reach the node: its InternalIPs of the families that the networks have. Of a family that its status lacks,
    /// those that others have now: sessions do not depend on what is written there.
    fn addresses(&self, node: &'a Node, draft: &mut Draft<'a>) -> BTreeSet<IpAddr> {
        let internal = node.internal_ips.iter().copied();
        let internal = internal.filter(|ip| self.received.contains_key(&Family::of(*ip)));
        let mut addresses: BTreeSet<IpAddr> = internal.collect();
        let lacks = |family: &&Family| !addresses.iter().any(|ip| Family::of(*ip) == **family);
        let lacking: BTreeSet<Family> = self.received.keys().filter(lacks).copied().collect();
        if lacking.is_empty() {
            return addresses;
        }
        let names = self.world.nodes.keys();
        let others: BTreeSet<NodeName> = names.filter(|n| **n != node.name).cloned().collect();
        let standing = fabric::kept_addresses(self.world, self.settings, node, &others);
        // Where the node itself says that it has it no more, that is so.
        let has = |ip: &IpAddr| {
            let all = node.host_cidrs.known();
            all.is_none_or(|all| all.iter().any(|address| address.ip == *ip))
        };
        for ip in standing.into_iter().filter(has) {
            if lacking.contains(&Family::of(ip)) {
                let family = match Family::of(ip) {
                    Family::V4 => "IPv4",
                    Family::V6 => "IPv6",
                };
                let text = format!(
                    "its status has no {family} InternalIP any more; others keep it as a neighbor under {ip}"
                );
                draft.left_out.node(node, &text);
                addresses.insert(ip);
            }
        }
        addresses
    }

    fn peer(&mut self, node: &'a Node, draft: &mut Draft<'a>) {
        let of_all = self.roles.peers_of_all.contains(&node.name);
        let others: Vec<&Node> = node
            .internal_ips
            .iter()
            .filter_map(|ip| self.holders.get(ip))
            .flatten()
            .copied()
            .filter(|other| other.name != node.name)
            .collect();
        let hosts: BTreeSet<&str> = others.iter().map(|other| other.hostname()).collect();
        let addresses = self.addresses(node, draft);
        let of_node = (node, &addresses);
        let object = members::peer(self.settings, of_node, of_all, &hosts, &self.received);
        let Some(object) = object else {
            let text = "it has no InternalIP of a family that the managed networks have, so that nobody has a session with it";
            draft.left_out.node(node, text);
            return;
        };
        let names = others.iter().map(|other| other.name.clone());
        let without: BTreeSet<NodeName> = names.chain([node.name.clone()]).collect();
        let scope = if of_all {
            &mut self.shared.of_all
        } else {
            &mut self.shared.of_reflectors
        };
        scope.insert(object.key.clone(), without);
        draft.desired.insert(object.key.clone(), Arc::new(object));
    }
}

/// Nodes that cannot load what they need, where one of them would have to reflect.
pub(super) fn unusable(draft: &Draft<'_>) -> BTreeSet<NodeName> {
    let kept = draft.kept.iter().copied().cloned();
    let troubled: BTreeSet<NodeName> = kept.chain(draft.unloadable.iter().cloned()).collect();
    let roles = draft.fabric.iter().flat_map(|fabric| &fabric.roles);
    let mut reflectors = roles.filter(|(_, role)| **role == Role::Reflector);
    if reflectors.any(|(name, _)| troubled.contains(name)) {
        troubled
    } else {
        BTreeSet::new()
    }
}

/// After the check: a node that does not get its own object is nobody's new neighbor; each RA of the fabric says what the
/// node lacks.
pub(super) fn settle(
    world: &World,
    settings: &FabricSettings,
    draft: &mut Draft<'_>,
    ras: &mut BTreeMap<String, Draft<'_>>,
) {
    let Some(fabric) = &mut draft.fabric else {
        return;
    };
    for name in &draft.kept {
        let role = world.nodes.get(*name).and_then(Role::of);
        match role {
            Some(role) => {
                fabric.roles.insert((*name).clone(), role);
            }
            None => {
                fabric.roles.remove(*name);
                draft.desired.remove(&members::peer_key(settings, name));
            }
        }
    }
    for network in fabric::managed_networks(world) {
        if let Some(ra) = ras.get_mut(&fabric::advertisement_name(&network.name)) {
            ra.left_out.extend(&draft.left_out);
            ra.notes.extend(draft.notes.iter().cloned());
        }
    }
}
