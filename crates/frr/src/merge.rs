//! All objects that select a node, united into one configuration, or everything that stands against it.
//! In: a `NodeInput`. Out: a `NodeConfig`, or every conflict with its objects, field and values.
//! Invariant: the result, problems included, does not depend on the order of the objects.
//! Not here: what FRR makes of the result (`lint`), objects that could not be read at all (`api`).
//!
//! Rules, as the code applies them (they are frr-k8s's, whose `internal/controller` conversion and merge they match):
//! 1. every object must stand for itself: prefixes, BFD profiles and imported VRFs are looked up in the same object;
//! 2. routers are united by VRF, neighbors by the text of their peer;
//! 3. session fields must be equal, where absent is a value of its own and equal to the default (179, 180 s, 60 s, 60 s);
//! 4. sets are united; receiving everything beats receiving some.

mod neighbor;
mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::address::Prefix;
use model::frr::{BfdProfile, FrrConfiguration, Router};
use model::names::ObjectKey;
use model::problem::Problem;

use crate::config::{NodeConfig, NodeInput, RawText, RouterConfig, subject, vrf_name};
use neighbor::Part;
use object::Scope;

/// Unites the objects that select the node.
///
/// # Errors
/// Every conflict at once, sorted; nothing of the node's configuration is then to be used.
pub fn merge(node: &NodeInput<'_>) -> Result<NodeConfig, Vec<Problem>> {
    let mut objects: Vec<&FrrConfiguration> = node
        .objects
        .iter()
        .map(Arc::as_ref)
        .filter(|object| object.node_selector.matches(node.labels))
        .collect();
    objects.sort_by(|a, b| a.key.cmp(&b.key));

    let mut problems = Vec::new();
    let bfd_profiles = unite_profiles(&objects, &mut problems);
    let mut by_vrf: BTreeMap<&str, Vec<(&FrrConfiguration, &Router)>> = BTreeMap::new();
    for object in &objects {
        for router in &object.routers {
            let group = by_vrf.entry(router.vrf.as_str()).or_default();
            group.push((*object, router));
        }
    }
    let mut notes = Vec::new();
    let routers = by_vrf
        .into_iter()
        .filter_map(|(vrf, parts)| unite_router(node, vrf, &parts, &mut problems, &mut notes))
        .collect();

    if !problems.is_empty() {
        problems.sort();
        problems.dedup();
        return Err(problems);
    }
    notes.sort();
    notes.dedup();
    Ok(NodeConfig {
        node: node.name.clone(),
        hostname: node.hostname.clone(),
        routers,
        bfd_profiles,
        bfd_sources: profile_sources(&objects),
        raw: raw_texts(&objects),
        notes,
    })
}

fn unite_profiles(objects: &[&FrrConfiguration], problems: &mut Vec<Problem>) -> Vec<BfdProfile> {
    let mut known: BTreeMap<&str, (&ObjectKey, &BfdProfile)> = BTreeMap::new();
    for object in objects {
        let mut own = BTreeSet::new();
        for profile in &object.bfd_profiles {
            let name = profile.name.as_str();
            if !own.insert(name) {
                problems.push(Problem::new(
                    subject(&object.key),
                    "BfdProfileConflict",
                    format!("bfdProfiles[{name}] is there twice in {}", object.key),
                ));
                continue;
            }
            let (first, seen) = *known.entry(name).or_insert((&object.key, profile));
            if seen != profile {
                problems.push(Problem::new(
                    subject(&object.key),
                    "BfdProfileConflict",
                    format!(
                        "bfdProfiles[{name}] has other values in {} ({}) than in {first} ({})",
                        object.key,
                        profile_text(profile),
                        profile_text(seen)
                    ),
                ));
            }
        }
    }
    known.into_values().map(|(_, p)| p.clone()).collect()
}

fn profile_sources(objects: &[&FrrConfiguration]) -> BTreeMap<String, BTreeSet<ObjectKey>> {
    let mut out: BTreeMap<String, BTreeSet<ObjectKey>> = BTreeMap::new();
    for object in objects {
        for profile in &object.bfd_profiles {
            let sources = out.entry(profile.name.clone()).or_default();
            sources.insert(object.key.clone());
        }
    }
    out
}

fn profile_text(profile: &BfdProfile) -> String {
    let numbers = [
        ("receiveInterval", profile.receive_interval),
        ("transmitInterval", profile.transmit_interval),
        ("detectMultiplier", profile.detect_multiplier),
        ("echoInterval", profile.echo_interval),
        ("minimumTtl", profile.minimum_ttl),
    ];
    let flags = [
        ("echoMode", profile.echo_mode),
        ("passiveMode", profile.passive_mode),
    ];
    let mut words: Vec<String> = numbers
        .iter()
        .filter_map(|(name, value)| value.map(|v| format!("{name} {v}")))
        .collect();
    words.extend(
        flags
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| (*name).to_owned()),
    );
    if words.is_empty() {
        "nothing set".to_owned()
    } else {
        words.join(", ")
    }
}

/// The routers of one VRF as one; `None` only for an empty group.
fn unite_router<'a>(
    node: &NodeInput<'a>,
    vrf: &str,
    parts: &[(&'a FrrConfiguration, &'a Router)],
    problems: &mut Vec<Problem>,
    notes: &mut Vec<Problem>,
) -> Option<RouterConfig> {
    let (first_object, first) = *parts.first()?;
    let mut id: Option<(&ObjectKey, &str)> = None;
    let mut owners: BTreeMap<Prefix, &ObjectKey> = BTreeMap::new();
    let mut imports = BTreeSet::new();
    let mut by_peer: BTreeMap<&str, Vec<Part<'a>>> = BTreeMap::new();
    for &(object, router) in parts {
        if router.asn != first.asn {
            problems.push(conflict(
                "RouterAsnConflict",
                &format!("routers[vrf {}].asn", vrf_name(vrf)),
                (&object.key, &router.asn.to_string()),
                (&first_object.key, &first.asn.to_string()),
                "one VRF of a node has one AS number",
            ));
        }
        if let Some(own) = router.id.as_deref().filter(|text| !text.is_empty()) {
            let (other, text) = *id.get_or_insert((&object.key, own));
            if text != own {
                problems.push(conflict(
                    "RouterIdConflict",
                    &format!("routers[vrf {}].id", vrf_name(vrf)),
                    (&object.key, own),
                    (other, text),
                    "one VRF of a node has one router id",
                ));
            }
        }
        for prefix in &router.prefixes {
            owners.entry(*prefix).or_insert(&object.key);
        }
        imports.extend(router.imports.iter().cloned());
        let scope = Scope::new(object, router, node.passwords, problems);
        for neighbor in &router.neighbors {
            let part = scope.decode(neighbor, problems);
            by_peer
                .entry(neighbor.peer.as_str())
                .or_default()
                .push(part);
        }
    }
    let neighbors = by_peer
        .into_values()
        .filter_map(|parts| neighbor::unite(vrf, &parts, &owners, problems, notes))
        .collect();
    Some(RouterConfig {
        asn: first.asn,
        id: id.map(|(_, text)| text.to_owned()),
        vrf: vrf.to_owned(),
        neighbors,
        prefixes: owners.into_keys().collect(),
        imports,
        sources: parts.iter().map(|(object, _)| object.key.clone()).collect(),
    })
}

fn raw_texts(objects: &[&FrrConfiguration]) -> Vec<RawText> {
    let mut texts: Vec<RawText> = objects
        .iter()
        .filter_map(|object| {
            let raw = object.raw.as_ref().filter(|raw| !raw.config.is_empty())?;
            Some(RawText {
                source: object.key.clone(),
                priority: raw.priority,
                config: raw.config.clone(),
            })
        })
        .collect();
    texts.sort_by(|a, b| {
        (a.priority, &a.source.name, &a.source.namespace).cmp(&(
            b.priority,
            &b.source.name,
            &b.source.namespace,
        ))
    });
    texts
}

/// Two values of one field; the subject is the object that comes later in the alphabet.
fn conflict(
    reason: &'static str,
    field: &str,
    (key, value): (&ObjectKey, &str),
    (first, first_value): (&ObjectKey, &str),
    rule: &str,
) -> Problem {
    Problem::new(
        subject(key),
        reason,
        format!("{field} is {value} in {key} and {first_value} in {first}: {rule}"),
    )
}

#[cfg(test)]
mod tests;
