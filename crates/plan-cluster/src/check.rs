//! Invariants of a plan, above all: what each node gets will load together with everything else that selects it.
//! In: the world and the drafts of all RAs. Out: drafts without what would not load, each with the reason; notes on other
//! people's objects.
//! Invariant: an object with which a node's configuration would not merge, or FRR refuse the file, is never written. What is
//! counted of other RAs is what they will have, not what they have: else two that share a source could never change.
//! Not here: the merge itself and what FRR refuses (`frr`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frr::NodeConfig;
use frr::config::{NodeInput, Passwords};
use model::frr::FrrConfiguration;
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::Labels;
use model::{LabelSelector, ObjectKey, Problem};

use crate::advertise::{Draft, Facts};
use crate::fabric::roles::Role;
use crate::world::World;

type Drafts<'a> = BTreeMap<String, Draft<'a>>;

/// A node with the labels that it will have.
struct Target<'a> {
    node: &'a Node,
    labels: Labels,
}

impl<'a> Target<'a> {
    fn of(node: &'a Node, drafts: &Drafts<'_>) -> Self {
        let mut labels = node.labels.clone();
        for fabric in drafts.values().filter_map(|draft| draft.fabric.as_ref()) {
            labels.extend(fabric.label_of(&node.name));
        }
        Self { node, labels }
    }
}

/// What is wrong with a node whose own configuration is, whatever we add to it.
const DOES_NOT_LOAD: &str = "its FRR configuration does not load, whatever is added to it";
/// What is wrong with a node that would lose its configuration by what we add.
const WOULD_NOT_LOAD: &str = "its FRR configuration would not load";

/// What is said of other people's objects although it stops nothing here.
const NOTED: [&str; 3] = ["SelfNeighbor", "TwoSpellings", "RawUnknownNeighbor"];

/// Takes out of the drafts what would not load on its node, and says why.
pub(crate) fn evaluate<'a>(world: &'a World, facts: &Facts<'a>, drafts: &mut Drafts<'a>) {
    let beside = Beside::of(world, facts, drafts);
    // Members of the fabric with nothing else on them differ in addresses only: one of each role stands for all.
    let mut alike: BTreeSet<Role> = BTreeSet::new();
    for node in world.nodes.values() {
        if let Some(role) = fabric_alone(node, drafts)
            && beside.has_nothing(node)
            && !alike.insert(role)
        {
            continue;
        }
        let wanting: Vec<String> = drafts
            .iter()
            .filter(|(_, draft)| draft.keys_of(&node.name).next().is_some())
            .map(|(name, _)| name.clone())
            .collect();
        if !wanting.is_empty() {
            let target = Target::of(node, drafts);
            evaluate_node(world, &target, &beside, &wanting, drafts);
        }
    }
}

/// The role of a node that nothing but the fabric wants anything of.
fn fabric_alone(node: &Node, drafts: &Drafts<'_>) -> Option<Role> {
    let mut roles = drafts.values().filter_map(|draft| draft.fabric.as_ref());
    let role = roles.find_map(|fabric| fabric.role_of(&node.name))?;
    let mut others = drafts.values().filter(|draft| draft.fabric.is_none());
    let wanted = others.any(|draft| draft.of_node.contains_key(&node.name));
    (!wanted).then_some(role)
}

fn evaluate_node<'a>(
    world: &World,
    target: &Target<'a>,
    beside: &Beside<'_>,
    wanting: &[String],
    drafts: &mut Drafts<'a>,
) {
    let node = target.node;
    let (mut stopping, evpn) = (beside.unreadable(node), beside.evpn(node));
    let mut others = beside.readable(node);
    if let Err(why) = merged(target, &others, Vec::new()) {
        stopping.extend(why);
    }
    if !stopping.is_empty() {
        // The node loads nothing new, with ours or without: who brings that in order finds ours in place.
        for (name, why) in wanting
            .iter()
            .flat_map(|name| stopping.iter().map(move |why| (name, why)))
        {
            if let Some(draft) = drafts.get_mut(name) {
                draft.unloadable.insert(node.name.clone());
                draft
                    .left_out
                    .node(node, &format!("{DOES_NOT_LOAD}: {why}"));
            }
        }
        others.clear();
    }
    match merged(target, &others, taken(world, drafts, wanting, node)) {
        // Nobody else's object is on the node: there is nothing to say of others.
        Ok(_) if others.is_empty() && evpn.is_empty() => {}
        Ok(config) => {
            let lints = frr::lint(&config, &node.own_addresses()).into_iter();
            let noted: Vec<Problem> = lints
                .filter(|p| NOTED.contains(&p.reason))
                .chain(evpn)
                .collect();
            for name in wanting {
                if let Some(draft) = drafts.get_mut(name) {
                    let notes = noted.iter().map(|p| (p.reason, p.message.clone()));
                    draft.notes.extend(notes);
                }
            }
        }
        Err(why) => match wanting {
            [only] => refuse(drafts, only, node, &why),
            several => one_by_one(world, target, &others, several, drafts),
        },
    }
}

/// Several RAs, and not all of them fit: as many as do, those first that have what they want already.
fn one_by_one<'a>(
    world: &World,
    target: &Target<'a>,
    others: &[&Arc<FrrConfiguration>],
    wanting: &[String],
    drafts: &mut Drafts<'a>,
) {
    let node = target.node;
    let mut order: Vec<String> = wanting.to_vec();
    order.sort_by_key(|name| changes(world, drafts, name, node));
    let mut accepted: Vec<String> = Vec::new();
    let mut refused: Vec<(String, Vec<String>)> = Vec::new();
    for name in &order {
        accepted.push(name.clone());
        if let Err(why) = merged(target, others, taken(world, drafts, &accepted, node)) {
            accepted.pop();
            refused.push((name.clone(), why));
        }
    }
    // What the refused ones have stays and has to fit as well; else it is one step after the other from what stands now.
    let losers: Vec<String> = refused.iter().map(|(name, _)| name.clone()).collect();
    let mut whole = taken(world, drafts, &accepted, node);
    whole.extend(existing(drafts, &losers, node));
    if merged(target, others, whole).is_err() {
        accepted.clear();
        refused.clear();
        for name in &order {
            accepted.push(name.clone());
            let rest: Vec<String> = order
                .iter()
                .filter(|n| !accepted.contains(n))
                .cloned()
                .collect();
            let mut whole = taken(world, drafts, &accepted, node);
            whole.extend(existing(drafts, &rest, node));
            if let Err(why) = merged(target, others, whole) {
                accepted.pop();
                refused.push((name.clone(), why));
            }
        }
    }
    for (name, why) in refused {
        refuse(drafts, &name, node, &why);
    }
}

fn refuse<'a>(drafts: &mut Drafts<'a>, name: &str, node: &'a Node, reasons: &[String]) {
    let Some(draft) = drafts.get_mut(name) else {
        return;
    };
    for why in reasons {
        let text = format!("{WOULD_NOT_LOAD}: {why}");
        draft.leave_out(node, &text);
    }
}

/// Copies of what these RAs want on a node.
fn taken(
    world: &World,
    drafts: &Drafts<'_>,
    names: &[String],
    node: &Node,
) -> Vec<Arc<FrrConfiguration>> {
    let drafts = names.iter().filter_map(|name| drafts.get(name));
    drafts
        .flat_map(|draft| {
            let keys = draft.keys_of(&node.name);
            // Nobody reads those of another namespace.
            let read = keys.filter(|key| key.namespace == world.frr_namespace);
            let objects = read.filter_map(|key| draft.desired.get(key));
            objects.filter(|object| object.evpn().is_none()).cloned()
        })
        .collect()
}

/// Copies of what these RAs have on a node.
fn existing(drafts: &Drafts<'_>, names: &[String], node: &Node) -> Vec<Arc<FrrConfiguration>> {
    let drafts = names.iter().filter_map(|name| drafts.get(name));
    let owned = drafts.flat_map(|draft| &draft.owned);
    owned
        .filter_map(|o| o.object())
        .filter(|object| object.node_selector.matches(&node.labels))
        .cloned()
        .collect()
}

/// Whether the node lacks anything that the RA wants of it.
fn changes(world: &World, drafts: &Drafts<'_>, name: &str, node: &Node) -> bool {
    let draft = drafts.get(name);
    let mut keys = draft.into_iter().flat_map(|d| d.keys_of(&node.name));
    keys.any(|key| {
        let wanted = draft.and_then(|d| d.desired.get(key));
        let has = world.frr.get(key).and_then(|o| o.as_ref().ok());
        match (wanted, has) {
            (Some(wanted), Some(has)) => wanted.routers != has.routers,
            _ => true,
        }
    })
}

/// What stands beside the drafts: other people's objects, and those of ours that stay as they are.
struct Beside<'a> {
    /// Of those that select one host by its label, by that label.
    by_host: BTreeMap<&'a str, Vec<&'a Arc<FrrConfiguration>>>,
    rest: Vec<&'a Arc<FrrConfiguration>>,
    unreadable: Vec<(Option<&'a LabelSelector>, &'a Vec<Problem>)>,
    /// Those that use EVPN, which is not ours to merge.
    evpn: Vec<&'a Arc<FrrConfiguration>>,
}

impl<'a> Beside<'a> {
    fn of(world: &'a World, facts: &Facts<'_>, drafts: &Drafts<'_>) -> Self {
        let mut out = Self {
            by_host: BTreeMap::new(),
            rest: Vec::new(),
            unreadable: Vec::new(),
            evpn: Vec::new(),
        };
        let ours: BTreeSet<&ObjectKey> = facts.all_owned().map(|o| o.key).collect();
        for (key, object) in &world.frr {
            let kept = || drafts.values().any(|d| d.keep.contains(key));
            let replaced = drafts.values().any(|d| d.desired.contains_key(key));
            if key.namespace != world.frr_namespace || replaced || (ours.contains(key) && !kept()) {
                continue;
            }
            match object {
                Err(problems) => {
                    let selector = world.unreadable.get(key);
                    let selector = selector.and_then(|r| r.node_selector.as_ref());
                    out.unreadable.push((selector, problems));
                }
                Ok(object) if object.evpn().is_some() => out.evpn.push(object),
                Ok(object) => match one_host(&object.node_selector) {
                    Some(host) => out.by_host.entry(host).or_default().push(object),
                    None => out.rest.push(object),
                },
            }
        }
        out
    }

    fn has_nothing(&self, node: &Node) -> bool {
        self.readable(node).is_empty()
            && self.unreadable(node).is_empty()
            && self.evpn(node).is_empty()
    }

    fn readable(&self, node: &Node) -> Vec<&'a Arc<FrrConfiguration>> {
        let host = node.hostname_label().and_then(|h| self.by_host.get(h));
        let rest = self.rest.iter();
        let rest = rest.filter(|o| o.node_selector.matches(&node.labels));
        host.into_iter().flatten().chain(rest).copied().collect()
    }

    /// What is wrong with objects that cannot be read, and that no node loads anything with.
    fn unreadable(&self, node: &Node) -> Vec<String> {
        let of_node = self.unreadable.iter();
        let of_node = of_node.filter(|(s, _)| s.is_none_or(|s| s.matches(&node.labels)));
        let problems = of_node.flat_map(|(_, problems)| problems.iter());
        problems.map(|problem| problem.message.clone()).collect()
    }

    /// Objects of the node that use EVPN; each costs itself only.
    fn evpn(&self, node: &Node) -> Vec<Problem> {
        let of_node = self
            .evpn
            .iter()
            .filter(|o| o.node_selector.matches(&node.labels));
        of_node.filter_map(|object| object.evpn()).collect()
    }
}

/// The host that a selector of nothing but the hostname label selects.
fn one_host(selector: &LabelSelector) -> Option<&str> {
    let plain = selector.match_expressions.is_empty() && selector.match_labels.len() == 1;
    let label = selector.match_labels.get(HOSTNAME_LABEL);
    label.filter(|_| plain).map(String::as_str)
}

/// The configuration that the objects make on the node, or why they make none, or one that FRR would refuse.
fn merged(
    target: &Target<'_>,
    others: &[&Arc<FrrConfiguration>],
    mut objects: Vec<Arc<FrrConfiguration>>,
) -> Result<NodeConfig, Vec<String>> {
    objects.extend(others.iter().copied().cloned());
    let input = NodeInput {
        name: target.node.name.clone(),
        labels: &target.labels,
        hostname: target.node.hostname().to_owned(),
        objects: &objects,
        passwords: &stand_ins(&objects),
    };
    let problems = match frr::merge::merge(&input) {
        Ok(config) => match frr::lint::refused(&config) {
            none if none.is_empty() => return Ok(config),
            problems => problems,
        },
        Err(problems) => problems,
    };
    Err(problems.into_iter().map(|p| p.message).collect())
}

/// Secrets are not the manager's to read. One password stands for all of them: a Secret beside none is a conflict
/// whatever it holds, and whether two Secrets agree, or exist, is seen on the node.
fn stand_ins(objects: &[Arc<FrrConfiguration>]) -> Passwords {
    let neighbors = objects
        .iter()
        .flat_map(|o| o.routers.iter())
        .flat_map(|r| r.neighbors.iter());
    let names: BTreeSet<&String> = neighbors
        .filter_map(|n| n.session.password_secret.as_ref())
        .collect();
    names
        .into_iter()
        .map(|name| (name.clone(), Ok("of-a-secret".to_owned())))
        .collect()
}

#[cfg(test)]
mod tests;
