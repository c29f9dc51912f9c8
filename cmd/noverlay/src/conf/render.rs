//! What a node's FRR gets from the objects at hand.
//! In: decoded objects, the node. Out: frr.conf, or every conflict; lints; what is without effect.
//! Invariant: the same steps in the same order as frr-agent: select, merge, leave the node itself out, lint.
//! Not here: reading (`documents`), the rules (`frr`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use frr::NodeInput;
use frr::lint::{Listening, Speaker};
use model::names::NodeName;
use model::problem::Problem;
use model::selector::Labels;

use super::documents::Documents;

/// Whose configuration is asked for.
pub(crate) struct Asked {
    pub(crate) node: NodeName,
    /// Beside the hostname label; not looked at where there is a Node object.
    pub(crate) labels: Labels,
    pub(crate) namespace: String,
    /// Names of nodes, or `*`.
    pub(crate) not_listening: BTreeSet<String>,
}

/// What the node gets.
#[derive(Debug, Default)]
pub(crate) struct Forecast {
    /// frr.conf with passwords in clear text; absent where objects stand against each other.
    pub(crate) text: Option<String>,
    /// Why there is no text.
    pub(crate) conflicts: Vec<Problem>,
    /// Objects that are left out, and what FRR refuses or drops.
    pub(crate) lints: Vec<Problem>,
    /// What has no effect, and what is not known.
    pub(crate) notes: Vec<String>,
}

impl Forecast {
    /// Nothing stands against it and nothing will be refused or dropped.
    pub(crate) fn is_well(&self) -> bool {
        self.conflicts.is_empty() && self.lints.is_empty()
    }

    /// Everything that is to be said beside the text, a line each.
    pub(crate) fn messages(&self) -> String {
        let mut out = String::new();
        let kinds = [("conflict", &self.conflicts), ("lint", &self.lints)];
        for (word, problems) in kinds {
            for problem in problems {
                out.push_str(&format!("{word}: {}: {problem}\n", problem.reason));
            }
        }
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out
    }
}

impl Asked {
    /// With the label that every kubelet sets.
    fn all_labels(&self) -> Labels {
        let mut labels = self.labels.clone();
        let hostname = labels.entry("kubernetes.io/hostname".to_owned());
        hostname.or_insert_with(|| self.node.as_str().to_owned());
        labels
    }
}

/// Foresees a node's configuration.
pub(crate) fn forecast(documents: &Documents, asked: &Asked) -> Forecast {
    let mut out = Forecast {
        notes: notes(documents, asked),
        ..Forecast::default()
    };
    let node = documents.nodes.get(&asked.node);
    let labels = node.map_or_else(|| asked.all_labels(), |node| node.labels.clone());
    let here = |key: &&model::ObjectKey| key.namespace == asked.namespace;
    let sources = documents.sources.iter().filter(|(key, _)| here(key));
    let selected = frr::select(sources.map(|(_, source)| source), &labels);
    out.lints.extend(selected.left_out);
    out.conflicts.extend(selected.broken);
    for object in &selected.objects {
        let warnings = documents.warnings.get(&object.key);
        out.lints.extend(warnings.into_iter().flatten().cloned());
    }
    let passwords = documents.secrets.iter().filter(|(key, _)| here(key));
    let passwords = passwords.map(|(key, p)| (key.name.clone(), p.clone()));
    let input = NodeInput {
        name: asked.node.clone(),
        labels: &labels,
        hostname: node
            .map_or(asked.node.as_str(), |n| n.hostname())
            .to_owned(),
        objects: &selected.objects,
        passwords: &passwords.collect(),
    };
    if selected.objects.is_empty() && out.is_well() {
        out.notes.push(format!(
            "no FRRConfiguration of namespace {} selects node {}",
            asked.namespace, asked.node
        ));
    }
    match frr::merge(&input) {
        Err(problems) => out.conflicts.extend(problems),
        Ok(config) => {
            let own = node
                .map(model::node::Node::own_addresses)
                .unwrap_or_default();
            let ipv6_only = node.is_some_and(model::node::Node::is_ipv6_only);
            let config = frr::with_router_ids(config, ipv6_only);
            let (config, left_out) = frr::without_self(config, &own);
            out.lints.extend(left_out);
            out.lints.extend(frr::lint(&config, &own));
            let (me, others) = speakers(documents, asked);
            out.lints
                .extend(frr::lint::bgp_listen_disabled(&config, me, &others));
            if out.conflicts.is_empty() {
                out.text = Some(frr::render(&config));
            }
        }
    }
    for list in [&mut out.conflicts, &mut out.lints] {
        list.sort();
        list.dedup();
    }
    out
}

/// What is without effect or not known.
fn notes(documents: &Documents, asked: &Asked) -> Vec<String> {
    let mut out = Vec::new();
    for name in &documents.homeless {
        out.push(format!(
            "{name} names no namespace; taken as one of {}",
            asked.namespace
        ));
    }
    for key in documents.sources.keys() {
        if key.namespace != asked.namespace {
            out.push(format!(
                "FRRConfiguration/{key} is without effect: only namespace {} is read",
                asked.namespace
            ));
        }
    }
    if !documents.nodes.contains_key(&asked.node) {
        out.push(format!(
            "there is no Node {} among the objects: its own addresses are not known, so a neighbor that is the node itself is not found",
            asked.node
        ));
    } else if !asked.labels.is_empty() {
        out.push(format!(
            "--labels is without effect: the labels are those of the Node {}",
            asked.node
        ));
    }
    out
}

/// Whether bgpd listens, here and at the other nodes.
fn speakers(documents: &Documents, asked: &Asked) -> (Listening, Vec<Speaker>) {
    let listening = |name: &str| {
        let deaf = asked.not_listening.contains("*") || asked.not_listening.contains(name);
        if deaf {
            Listening::No
        } else {
            Listening::Unknown
        }
    };
    let others: BTreeMap<&NodeName, BTreeSet<IpAddr>> = documents
        .nodes
        .values()
        .filter(|node| node.name != asked.node)
        .map(|node| (&node.name, node.own_addresses()))
        .collect();
    let others = others.into_iter().map(|(name, addresses)| Speaker {
        node: name.clone(),
        listening: listening(name.as_str()),
        addresses,
    });
    (listening(asked.node.as_str()), others.collect())
}
