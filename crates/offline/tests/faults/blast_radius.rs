//! One thing is broken in a cluster of fifty nodes that was in order. What it costs is what is listed here, and nothing else.
//! In: a settled cluster, one fault. Out: what is written because of it, what is lost, what is said.
//! Invariant: an object that the fault does not touch keeps its bytes; no node but those listed loses a prefix or a neighbor;
//! every condition that is another than before names the culprit.
//! Not here: what happens while the fault lasts (scripts).

use std::collections::BTreeMap;

use offline::kind::{FRR, NODE};
use offline::{Objects, settle};
use plan_cluster::{RA_KEY, fabric};
use serde_json::Value;
use testkit::labels::selects;

use crate::cluster::{SUBNETS, cluster, conditions, loaded, node_name, settings};
use crate::table::{Fault, OF_ADVERTISEMENTS, OF_FRR, OF_NETWORKS, OF_NODES};

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

fn check(topology: &str, nodes: u8, faults: &[Fault]) {
    let settings = settings(topology);
    let mut before = cluster(nodes);
    let plans = settle(&settings, &mut before).unwrap();
    let said = conditions(&plans);
    let (denied, wrong): (Vec<_>, Vec<_>) = (
        said.iter()
            .filter(|(_, text)| text.starts_with("False"))
            .collect(),
        plans
            .networks
            .problems
            .iter()
            .chain(&plans.fabric.problems)
            .collect(),
    );
    assert!(
        denied.is_empty() && wrong.is_empty(),
        "{denied:?} {wrong:?}"
    );
    let nodes: Vec<String> = (1..=nodes).map(node_name).collect();
    let mut failed = Vec::new();
    for fault in faults {
        let mut given = before.clone();
        (fault.make)(&mut given);
        assert!(given != before, "{}: nothing is broken", fault.what);
        let mut after = given.clone();
        let plans = settle(&settings, &mut after).unwrap();
        let mut problems: Vec<String> = Vec::new();
        for list in [&plans.networks.problems, &plans.fabric.problems] {
            problems.extend(list.iter().map(|p| format!("{} {p}", p.reason)));
        }
        let mut wrong = unwanted(fault, &given, &after);
        wrong.extend(lost(fault, &nodes, &before, &after));
        wrong.extend(misreported(fault, &said, &conditions(&plans), &problems));
        failed.extend(wrong.iter().map(|text| format!("{}: {text}", fault.what)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
fn lost(fault: &Fault, nodes: &[String], before: &Objects, after: &Objects) -> Vec<String> {
    let mut out = Vec::new();
    for node in nodes
        .iter()
        .filter(|node| !fault.costs.contains(&node.as_str()))
    {
        let (had, has) = (loaded(before, node), loaded(after, node));
        assert!(had.len() > 4, "{had:?}");
        out.extend(
            had.difference(&has)
                .map(|what| format!("{node} lacks {what}")),
        );
        let subnets = |objects: &Objects| -> Value {
            let annotations = &objects.get(NODE, node).unwrap()["metadata"]["annotations"];
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

/// What is not said, or is said without the name of the culprit.
fn misreported(
    fault: &Fault,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    problems: &[String],
) -> Vec<String> {
    let mut out = Vec::new();
    for (place, words) in fault.says {
        let texts: Vec<&String> = match *place {
            "problem" => problems.iter().collect(),
            place => after.get(place).into_iter().collect(),
        };
        let is_said = |text: &&String| {
            text.contains(words)
                && text.contains(fault.culprit)
                && before.get(*place) != Some(*text)
        };
        let own = place.contains(" pink ");
        if !own && !texts.iter().any(is_said) {
            out.push(format!(
                "{place} does not say {words:?} of {:?}: {texts:?}",
                fault.culprit
            ));
        } else if own && !texts.iter().any(|text| text.contains(words)) {
            out.push(format!("{place} does not say {words:?}: {texts:?}"));
        }
    }
    let listed = |place: &str| {
        let mut places = fault.says.iter().map(|(place, _)| place.rsplit_once(' '));
        places.any(|listed| listed.is_some_and(|(object, _)| place.starts_with(object)))
    };
    for (place, text) in after
        .iter()
        .filter(|(place, text)| before.get(*place) != Some(*text))
    {
        if !listed(place) {
            out.push(format!("{place} is now {text}"));
        }
    }
    let gone = before.keys().filter(|place| !after.contains_key(*place));
    out.extend(gone.map(|place| format!("{place} is gone")));
    if fault.says.iter().all(|(place, _)| *place != "problem") && !problems.is_empty() {
        out.push(format!("problems: {problems:?}"));
    }
    out
}
