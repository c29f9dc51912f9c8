//! RouteAdvertisements into the FRRConfigurations of the nodes they select, and their two conditions.
//! In: the world. Out, for each RA: wanted objects, objects to leave as they are, surplus ones, conditions, problems.
//! Invariant: every wanted object has a derived name, selects one node, and never names that node as its own neighbor; all
//! RAs are planned together, so that what one of them is about to write is not held against another.
//! Not here: merging with other people's objects (`check` asks `frr`), user-defined networks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::frr::FrrConfiguration;
use model::intent::{Condition, RouteAdvertisements};
use model::node::Node;
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};

use crate::check;
use crate::fabric::{self, roles::Awaited, roles::Role};
use crate::generated::{self, label_value};
use crate::world::World;

mod draft;
mod egress;
mod isolation;
mod maker;
mod members;
mod neighbors;
mod raw;
mod select;
mod withdrawn;

pub(crate) use draft::{Draft, Facts};
use maker::Maker;
use select::Selection;

/// Message of an accepted RA, OVN-Kubernetes' own.
pub const ACCEPTED: &str = "ovn-kubernetes cluster-manager validated the resource and requested the necessary configuration changes";

/// Most characters of one entry of a message: nobody's text may hide what is said of others.
const ENTRY: usize = 300;
/// Most entries of a message about the same node or object.
const ENTRIES_OF_ONE: usize = 5;
/// Most characters of a message, well within what the API server takes in a condition (32768).
const MESSAGE: usize = 8000;

/// What an RA leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Objects to have.
    pub desired: BTreeMap<ObjectKey, Arc<FrrConfiguration>>,
    /// Objects that stay as they are, because what they were made from cannot be read just now.
    pub keep: BTreeSet<ObjectKey>,
    /// Objects of ours that were generated for this RA and are to go.
    pub surplus: BTreeSet<ObjectKey>,
    /// `Accepted` and `Complete`, in this order; none where this is the fabric, of which each of its RAs tells.
    pub conditions: Vec<Condition>,
    /// The networks that it serves; `None` where nothing new is applied, so that it serves those of before.
    pub serves: Option<BTreeSet<NetworkName>>,
    /// The label that each member of the fabric is to have, where this is the fabric.
    pub roles: BTreeMap<NodeName, Role>,
    /// What a change of topology that is under way waits for, where this is the fabric.
    pub awaited: Option<Awaited>,
    /// Who is left out, and why, and what is wrong with other people's objects beside ours; events on the RA.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// Whether nothing says that it is not accepted.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.conditions
            .iter()
            .all(|c| c.kind != "Accepted" || c.status)
    }
}

/// `status.status` of a RouteAdvertisements with these conditions, as OVN-Kubernetes writes it: the first of them in one line.
#[must_use]
pub fn status_line(conditions: &[Condition]) -> String {
    match conditions.first() {
        Some(accepted) if accepted.status => "Accepted".to_owned(),
        Some(refused) => format!("Not Accepted: {}", refused.message),
        None => String::new(),
    }
}

/// Why nothing can be made of an RA.
#[derive(Debug)]
pub(crate) struct Refusal {
    reason: &'static str,
    message: String,
    /// True where the user took the input away, so that the objects go too.
    withdraw: bool,
}

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal {
        reason: "ConfigurationError",
        message: format!("configuration error: {}", message.into()),
        withdraw: false,
    }
}

fn pending(message: &str) -> Refusal {
    Refusal {
        reason: "ConfigurationPending",
        message: format!("configuration pending: {message}"),
        withdraw: true,
    }
}

/// Plans by the RA's name.
pub type Plans = BTreeMap<String, Plan>;

/// The plans of all RAs, and of those that are gone and left objects behind.
#[must_use]
pub fn plan_all(world: &World) -> Plans {
    let facts = Facts::of(world);
    let mut unusable = BTreeSet::new();
    // Another round only where a reflector could not load what makes it one.
    let drafts = loop {
        let mut drafts = drafts(world, &facts, &unusable);
        check::evaluate(world, &facts, &mut drafts);
        let found = drafts.get(&fabric::base_name()).map(members::unusable);
        let found = found.unwrap_or_default();
        if found.is_subset(&unusable) {
            break drafts;
        }
        unusable.extend(found);
    };
    let mut drafts = drafts;
    if let Some(settings) = &world.fabric
        && let Some(mut draft) = drafts.remove(&fabric::base_name())
    {
        members::settle(world, settings, &mut draft, &mut drafts);
        drafts.insert(fabric::base_name(), draft);
    }
    withdrawn::take_out(world, drafts.values_mut());
    drafts
        .into_iter()
        .map(|(name, draft)| {
            let plan = finish(&name, draft);
            (name, plan)
        })
        .collect()
}

/// Names of what is planned: all RAs, those that are gone and left objects behind, and the fabric, under its base object's.
#[must_use]
pub fn names(world: &World) -> BTreeSet<String> {
    let fabric = world.fabric.as_ref().map(|_| fabric::base_name());
    let left_behind = generated::left_behind(world);
    let ras = world.ras.keys().cloned();
    ras.chain(left_behind).chain(fabric).collect()
}

/// What all would like to have.
fn drafts<'a>(
    world: &'a World,
    facts: &Facts<'a>,
    unusable: &BTreeSet<NodeName>,
) -> BTreeMap<String, Draft<'a>> {
    let mut selections = select::all(world, facts);
    let taken_in = select::taken_in(world, facts, &selections);
    let mut drafts: BTreeMap<String, Draft<'_>> = names(world)
        .into_iter()
        .map(|name| {
            let selection = selections.remove(name.as_str());
            let draft = draft(world, facts, &name, selection);
            (name, draft)
        })
        .collect();
    if let Some(settings) = &world.fabric {
        let draft = members::draft(world, settings, facts, &drafts, unusable, taken_in);
        drafts.insert(fabric::base_name(), draft);
    }
    drafts
}

/// The managed networks whose routes members of the fabric receive.
pub(crate) fn taken_in(world: &World) -> Vec<&Network> {
    let facts = Facts::of(world);
    select::taken_in(world, &facts, &select::all(world, &facts))
}

/// The plan of one RA, beside those of all others. An RA that is not in the world plans nothing, so that its objects go.
#[must_use]
pub fn plan(world: &World, ra: &str) -> Plan {
    plan_all(world)
        .remove(ra)
        .unwrap_or_else(|| plan_of_gone(ra))
}

/// The last plans, for as long as the world is the same one: passes of several RAs and of the state share them.
#[derive(Debug, Default)]
pub struct Planner {
    last: Option<(Arc<World>, Arc<Plans>)>,
}

impl Planner {
    /// [`plan_all`] of this world.
    pub fn plan_all(&mut self, world: &Arc<World>) -> Arc<Plans> {
        let known = self.last.take().filter(|(of, _)| Arc::ptr_eq(of, world));
        let (_, plans) = self
            .last
            .insert(known.unwrap_or_else(|| (Arc::clone(world), Arc::new(plan_all(world)))));
        Arc::clone(plans)
    }
}

/// The plan of an RA that is not in the world: its objects go.
#[must_use]
pub fn plan_of_gone(ra: &str) -> Plan {
    finish(ra, Draft::refused(Vec::new(), gone()))
}

pub(super) fn gone() -> Refusal {
    pending("the RouteAdvertisements is gone")
}

fn draft<'a>(
    world: &'a World,
    facts: &Facts<'a>,
    name: &str,
    selection: Option<Result<Selection<'a>, Refusal>>,
) -> Draft<'a> {
    let owned = facts.owned(&label_value(name));
    let outcome = match (world.ras.get(name), selection) {
        (Some(Err(why)), _) => Err(wrong(why.clone())),
        (Some(Ok(ra)), Some(selection)) => {
            selection.and_then(|selection| objects(world, facts, ra, selection))
        }
        _ => Err(gone()),
    };
    outcome.unwrap_or_else(|refusal| Draft::refused(owned, refusal))
}

fn objects<'a>(
    world: &'a World,
    facts: &Facts<'a>,
    ra: &'a RouteAdvertisements,
    mut selection: Selection<'a>,
) -> Result<Draft<'a>, Refusal> {
    let nodes: Vec<&Node> = world
        .nodes
        .values()
        .filter(|n| ra.node_selector.matches(&n.labels))
        .collect();
    if nodes.is_empty() {
        return Err(pending("no nodes selected"));
    }
    let mut left_out = std::mem::take(&mut selection.left_out);
    egress::name_left_out(world, ra, &facts.egress, &selection, &mut left_out);
    selection.left_out = left_out;
    let mut maker = Maker::new(world, facts, ra, selection);
    maker.find_sources()?;
    for node in nodes {
        maker.node(node);
    }
    Ok(maker.finish())
}

/// Who is left out and why; what concerns nodes comes first, whatever others are called.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeSet<(u8, String, String)>);

impl LeftOut {
    pub(crate) fn node(&mut self, node: &Node, why: &str) {
        self.add(0, format!("node {}", node.name), why);
    }

    pub(crate) fn field(&mut self, field: &str, why: &str) {
        self.add(1, field.to_owned(), why);
    }

    pub(crate) fn neighbor(&mut self, peer: &str, why: &str) {
        self.add(2, format!("neighbor {peer}"), why);
    }

    pub(crate) fn source(&mut self, key: &ObjectKey, why: &str) {
        self.add(3, format!("FRRConfiguration {key}"), why);
    }

    fn add(&mut self, rank: u8, who: String, why: &str) {
        self.0.insert((rank, who, why.to_owned()));
    }

    /// Those of another, too.
    fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// One entry a reason, each cut to size, and not too many of one.
    fn entries(&self) -> Vec<String> {
        let mut of_one: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, who, _) in &self.0 {
            *of_one.entry(who).or_default() += 1;
        }
        let mut reported: BTreeMap<&str, usize> = BTreeMap::new();
        let mut out = Vec::new();
        for (_, who, why) in &self.0 {
            let so_far = reported.entry(who).or_default();
            *so_far += 1;
            if *so_far <= ENTRIES_OF_ONE {
                out.push(cut(&format!("{who}: {why}")));
            } else if *so_far == ENTRIES_OF_ONE + 1 {
                let all = of_one.get(who.as_str()).copied().unwrap_or_default();
                out.push(format!("{who}: and {} more", all - ENTRIES_OF_ONE));
            }
        }
        out
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(ENTRY) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn condition(kind: &'static str, status: bool, reason: &str, message: String) -> Condition {
    Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message,
    }
}

fn finish(ra: &str, draft: Draft<'_>) -> Plan {
    let subject = format!("RouteAdvertisements/{ra}");
    let existing: BTreeSet<ObjectKey> = draft.owned.iter().map(|o| o.key.clone()).collect();
    let keep: BTreeSet<ObjectKey> = draft
        .keep
        .into_iter()
        .filter(|key| existing.contains(key) && !draft.desired.contains_key(key))
        .collect();
    let surplus = existing
        .into_iter()
        .filter(|key| !draft.desired.contains_key(key) && !keep.contains(key))
        .collect();
    let (conditions, problems) = match draft.refusal {
        Some(refusal) => {
            let mut message = refusal.message;
            let list = draft.left_out.entries();
            if !list.is_empty() {
                message.push_str(&format!("; left out: {}", shortened(&list)));
            }
            let conditions = ["Accepted", "Complete"]
                .map(|kind| condition(kind, false, refusal.reason, message.clone()));
            (
                conditions.to_vec(),
                vec![Problem::new(subject, refusal.reason, message)],
            )
        }
        None if draft.fabric.is_some() => (Vec::new(), Vec::new()),
        None => reported(&subject, &draft.left_out, &draft.notes),
    };
    let fabric = draft.fabric.unwrap_or_default();
    Plan {
        desired: draft.desired,
        roles: fabric.roles,
        awaited: fabric.awaited,
        keep,
        surplus,
        serves: draft.serves,
        conditions,
        problems,
    }
}

/// Conditions and problems of an RA that is accepted.
fn reported(
    subject: &str,
    left_out: &LeftOut,
    notes: &BTreeSet<(&'static str, String)>,
) -> (Vec<Condition>, Vec<Problem>) {
    let list = left_out.entries();
    let mut accepted = ACCEPTED.to_owned();
    let complete = if list.is_empty() {
        let text = "every selected node has its configuration".to_owned();
        condition("Complete", true, "Complete", text)
    } else {
        let text = shortened(&list);
        accepted.push_str(&format!("; left out: {text}"));
        condition("Complete", false, "LeftOut", text)
    };
    let noted: Vec<String> = notes.iter().map(|(_, text)| cut(text)).collect();
    if !noted.is_empty() {
        accepted.push_str(&format!("; beside them: {}", shortened(&noted)));
    }
    let left_out = list
        .into_iter()
        .map(|text| Problem::new(subject, "LeftOut", text));
    let noted = notes
        .iter()
        .map(|(reason, text)| Problem::new(subject, reason, cut(text)));
    (
        vec![condition("Accepted", true, "Accepted", accepted), complete],
        left_out.chain(noted).collect(),
    )
}

/// All of it, up to a size that the API server takes in a condition.
fn shortened(list: &[String]) -> String {
    let mut text = String::new();
    for (at, entry) in list.iter().enumerate() {
        let glue = if at == 0 { "" } else { "; " };
        if at > 0 && text.len() + glue.len() + entry.len() > MESSAGE {
            text.push_str(&format!("; and {} more", list.len() - at));
            return text;
        }
        text.push_str(glue);
        text.push_str(entry);
    }
    text
}

#[cfg(test)]
mod tests;
