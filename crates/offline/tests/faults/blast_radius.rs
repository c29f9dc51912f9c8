//! One thing is broken in a cluster of fifty nodes that was in order. What it costs is what is listed here, and nothing else.
//! In: a settled cluster, one fault. Out: what is written because of it, what is lost, what is said; what a node and a network
//! get that come while it lasts; what is left of it once it is mended.
//! Invariant: an object that the fault does not touch keeps its bytes; no node but those listed loses a prefix or a neighbor;
//! exactly what is listed is said, of the culprit and of nobody else; what comes meanwhile gets what it would get without the
//! fault; a cluster that is mended is one that was never broken.
//! Not here: what happens from pass to pass while the fault lasts (scripts), how clusters are compared (`compare`).

use std::collections::{BTreeMap, BTreeSet};

use offline::kind::{FRR, NODE};
use offline::{Objects, Plans, settle};
use plan_cluster::{RA_KEY, fabric};
use serde_json::Value;
use settings::Settings;
use testkit::labels::selects;

use crate::cluster::{SUBNETS, cluster, conditions, grow, loaded, node_name, settings};
use crate::compare::{Canonical, Names, difference, mentions, revert};
use crate::table::{
    BLUE, Fault, GREEN, OF_ADVERTISEMENTS, OF_FRR, OF_NETWORKS, OF_NODES, Said, TEAL,
};

/// Enough for every node to be one of many.
const NODES: u8 = 50;

#[test]
fn a_broken_node_costs_itself() {
    check("full-mesh", NODES, OF_NODES);
}

#[test]
fn a_broken_node_costs_itself_where_others_reflect_routes() {
    check("route-reflector", 26, OF_NODES);
}

#[test]
fn a_broken_frrconfiguration_costs_what_is_new_on_the_nodes_that_it_selects() {
    check("full-mesh", NODES, OF_FRR);
}

#[test]
fn a_broken_network_costs_what_is_new_of_it() {
    check("full-mesh", NODES, OF_NETWORKS);
}

#[test]
fn a_broken_advertisement_costs_what_is_new_of_it() {
    check("full-mesh", NODES, OF_ADVERTISEMENTS);
}

/// All that is said, in words: of whom, and either type, status and reason of a condition or the reason of an event.
type Words = BTreeMap<(String, String), String>;

/// The cluster without a fault, as it was and with what comes to it.
struct Healthy {
    settings: Settings,
    nodes: u8,
    before: Objects,
    said: Words,
    grown: Objects,
    said_of_grown: Words,
}

impl Healthy {
    fn new(topology: &str, nodes: u8) -> Self {
        let settings = settings(topology);
        let mut before = cluster(nodes);
        let said = said(&settle(&settings, &mut before).unwrap());
        let mut grown = before.clone();
        grow(&mut grown, nodes + 1);
        let said_of_grown = self::said(&settle(&settings, &mut grown).unwrap());
        for ((of, what), text) in said.iter().chain(&said_of_grown) {
            assert!(what.contains(" True "), "{of} {what}: {text}");
        }
        Self {
            settings,
            nodes,
            before,
            said,
            grown,
            said_of_grown,
        }
    }

    /// What a fault costs more than it may.
    fn wrong(&self, fault: &Fault) -> Vec<String> {
        let mut given = self.before.clone();
        (fault.make)(&mut given);
        assert!(given != self.before, "{}: nothing is broken", fault.what);
        let mut now = given.clone();
        let words = said(&settle(&self.settings, &mut now).unwrap());
        let mut wrong = unwanted(fault, &given, &now);
        wrong.extend(lost(fault, self.nodes, &self.before, &now));
        wrong.extend(misreported(fault, fault.says, (&self.said, &words), &now));

        grow(&mut now, self.nodes + 1);
        let words = said(&settle(&self.settings, &mut now).unwrap());
        let mut says: Vec<Said> = fault.says.to_vec();
        // What is said of all networks is said of the new one.
        let of_green = fault.says.iter().find(|said| said.0 == GREEN);
        if fault.says.iter().any(|said| said.0 == BLUE) {
            says.extend(of_green.map(|green| Said(TEAL, green.1, green.2)));
        }
        let words = (&self.said_of_grown, &words);
        let meanwhile = [
            misreported(fault, &says, words, &now),
            self.kept_from(fault, &given, &now),
        ];
        wrong.extend(
            meanwhile
                .concat()
                .into_iter()
                .map(|t| format!("meanwhile {t}")),
        );

        match fault.mend {
            Some(mend) => mend(&mut now),
            None => revert(&self.before, &given, &mut now),
        }
        let words = said(&settle(&self.settings, &mut now).unwrap());
        let (wanted, mended) = (Canonical::of(&self.grown, &[]), Canonical::of(&now, &[]));
        let mut left = difference(&wanted.objects, &mended.objects);
        left.extend(mended.shared);
        if words != self.said_of_grown {
            left.push(format!("is said: {words:?}"));
        }
        wrong.extend(left.into_iter().map(|text| format!("once mended {text}")));
        wrong
    }

    /// What nodes and networks that nothing is wrong with have less, or more, because a fault lasts while the cluster grows.
    fn kept_from(&self, fault: &Fault, given: &Objects, now: &Objects) -> Vec<String> {
        let is_given =
            |kind: &str, name: &str| self.before.get(kind, name) != given.get(kind, name);
        let with = |objects: &Objects| -> BTreeMap<String, Value> {
            let canonical = Canonical::of(objects, fault.touches);
            let all = objects
                .iter()
                .filter(|((kind, name), _)| !is_given(kind, name));
            let all = all.map(|((kind, name), _)| canonical.names.of_object(kind, name));
            all.filter_map(|key| {
                let object = canonical.objects.get(&key)?.clone();
                Some((key, object))
            })
            .collect()
        };
        let (wanted, has) = (with(&self.grown), with(now));
        difference(
            &without(&wanted, fault.touches),
            &without(&has, fault.touches),
        )
    }
}

/// Objects without what names one of these.
fn without(objects: &BTreeMap<String, Value>, touches: &[&str]) -> BTreeMap<String, Value> {
    let named = |text: &str| touches.iter().any(|name| mentions(text, name));
    let kept = objects.iter().filter(|(key, _)| !named(key));
    kept.filter_map(|(key, object)| Some((key.clone(), crate::compare::pruned(object, &named)?)))
        .collect()
}

fn check(topology: &str, nodes: u8, faults: &[Fault]) {
    let healthy = Healthy::new(topology, nodes);
    let joins = node_name(nodes + 1);
    let mut failed = Vec::new();
    for fault in faults {
        let mut wrong = healthy.wrong(fault);
        for words in fault.except {
            let words = words.replace("n51", &joins);
            let all = wrong.len();
            wrong.retain(|text| !words.split(' ').all(|word| text.contains(word)));
            if wrong.len() == all {
                wrong.push(format!("it is not wrong any more that {words}"));
            }
        }
        failed.extend(wrong.iter().map(|text| format!("{}: {text}", fault.what)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn said(plans: &Plans) -> Words {
    let conditions = conditions(plans).into_iter().map(|(place, text)| {
        let (of, kind) = place.rsplit_once(' ').unwrap();
        let (word, message) = text.split_once(": ").unwrap();
        (
            (of.to_owned(), format!("{kind} {word}")),
            message.to_owned(),
        )
    });
    let problems = plans.networks.problems.iter().chain(&plans.fabric.problems);
    let events = problems.map(|p| ((p.subject.clone(), p.reason.to_owned()), p.message.clone()));
    let mut out = Words::new();
    for (place, text) in conditions.chain(events) {
        // Two events of one subject and reason: what both say counts.
        let said = out.entry(place).or_default();
        if !said.is_empty() {
            said.push_str("; ");
        }
        said.push_str(&text);
    }
    out
}

/// What an object is called in `writes`.
fn name_of(kind: &str, name: &str, object: &Value) -> String {
    let fabric = fabric::base_name();
    let pink = fabric::advertisement_name(&"cluster_udn_pink".into());
    let identity = object["metadata"]["annotations"][RA_KEY].as_str();
    let name = identity.filter(|_| kind == FRR).unwrap_or(name);
    let name = name.replace(&fabric, "FABRIC");
    format!("{kind} {}", name.replace(&pink, "fabric:cluster_udn_pink"))
}

/// Objects that are other than they were given, and that the fault is no reason for.
fn unwanted(fault: &Fault, given: &Objects, after: &Objects) -> Vec<String> {
    let all = given.iter().chain(after.iter());
    let all: BTreeMap<&(String, String), &Value> = all.collect();
    let mut out = Vec::new();
    for ((kind, name), object) in all {
        if given.get(kind, name) == after.get(kind, name) {
            continue;
        }
        // Who is no member is listed in the fabric's template, which no node loads.
        let mut nodes = after.all(NODE);
        let is_template = *name == format!("frr-k8s-system/{}", fabric::base_name())
            && !nodes.any(|n| selects(&object["spec"]["nodeSelector"], &n["metadata"]["labels"]));
        if is_template {
            continue;
        }
        let name = name_of(kind, name, object);
        if !fault.writes.iter().any(|wanted| name.starts_with(wanted)) {
            out.push(format!("{name} is written"));
        }
    }
    out
}

/// What nodes have no more of what FRR was told, and of their subnets.
fn lost(fault: &Fault, nodes: u8, before: &Objects, after: &Objects) -> Vec<String> {
    let mut out = Vec::new();
    let nodes = (1..=nodes).map(node_name);
    for node in nodes.filter(|node| !fault.costs.contains(&node.as_str())) {
        let (had, has) = (loaded(before, &node), loaded(after, &node));
        assert!(had.len() > 4, "{had:?}");
        out.extend(
            had.difference(&has)
                .map(|what| format!("{node} lacks {what}")),
        );
        let subnets = |objects: &Objects| -> Value {
            let annotations = &objects.get(NODE, &node).unwrap()["metadata"]["annotations"];
            let text = annotations[SUBNETS].as_str().unwrap();
            serde_json::from_str(text).unwrap_or_default()
        };
        let (had, has) = (subnets(before), subnets(after));
        if node != "n25"
            && had
                .as_object()
                .unwrap()
                .iter()
                .any(|(key, list)| has[key] != *list)
        {
            out.push(format!("{node} has subnets {has}, had {had}"));
        }
    }
    out
}

/// What is said and ought not to be, or the other way round, or of the wrong one.
fn misreported(
    fault: &Fault,
    says: &[Said],
    (before, after): (&Words, &Words),
    objects: &Objects,
) -> Vec<String> {
    let mut out = Vec::new();
    let wanted: BTreeSet<(&str, &str)> = says
        .iter()
        .flat_map(|said| said.1.iter().map(|what| (said.0, *what)))
        .collect();
    let names = Names::of(objects);
    let mut named = BTreeSet::new();
    let new = after
        .iter()
        .filter(|(key, text)| before.get(*key) != Some(*text));
    for ((of, what), text) in new.clone() {
        let text = names.within(text);
        let Some(said) = says
            .iter()
            .find(|said| said.0 == of && said.1.contains(&what.as_str()))
        else {
            out.push(format!("{of} says {what}: {text}"));
            continue;
        };
        let own = fault.culprit.trim_start_matches("cluster_udn_");
        let is_own = mentions(of, own) || mentions(of, fault.culprit);
        if !text.contains(said.2) || !(is_own || text.contains(fault.culprit)) {
            let culprit = fault.culprit;
            out.push(format!(
                "{of} does not say {:?} of {culprit:?}: {text}",
                said.2
            ));
        }
        named.extend(names.named(&text));
    }
    let new: BTreeSet<(&str, &str)> = new
        .map(|((of, what), _)| (of.as_str(), what.as_str()))
        .collect();
    out.extend(
        wanted
            .difference(&new)
            .map(|(of, what)| format!("{of} does not say {what}")),
    );
    let kind =
        |(of, what): &(String, String)| (of.clone(), what.split(' ').next().unwrap().to_owned());
    let kinds: BTreeSet<_> = after.keys().map(kind).collect();
    let gone = before.keys().filter(|key| !kinds.contains(&kind(key)));
    out.extend(gone.map(|(of, what)| format!("{of} does not say {what} any more")));
    if fault.of_all {
        named.retain(|name| objects.get(NODE, name).is_none());
    }
    let listed: BTreeSet<String> = fault.names.iter().map(|name| (*name).to_owned()).collect();
    if named != listed {
        out.push(format!("what is said names {named:?}"));
    }
    out
}
