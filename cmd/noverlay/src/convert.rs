//! `noverlay convert`: objects in older forms of the design documents, in the current one.
//! In: YAML or JSON, lists too. Out: YAML; what was changed, a line each. Invariant: an object in the current form comes out as it is.
//! Not here: whether the objects can be served (`plan`).

use anyhow::bail;
use serde_json::{Map, Value, json};

use crate::conf::Outcome;
use crate::conf::documents;

/// Kinds that have older forms.
const CONVERTED: [&str; 3] = [
    "RouteAdvertisements",
    "ClusterUserDefinedNetwork",
    "UserDefinedNetwork",
];

/// Arguments of `noverlay convert`.
#[derive(Debug, Clone, clap::Args)]
pub struct ConvertArguments {
    /// YAML or JSON; may be given several times, `-` is standard input.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    pub files: Vec<String>,
}

/// Runs it; all is well where every object has a current form.
pub(crate) fn convert(arguments: &ConvertArguments) -> anyhow::Result<Outcome> {
    let mut out = String::new();
    let mut run = Run {
        notes: String::new(),
        well: true,
    };
    for file in &arguments.files {
        let file = documents::load(file)?;
        for (at, document) in (1_usize..).zip(documents::documents(&file)?) {
            if document.is_null() {
                continue;
            }
            let place = format!("{}, document {at}", file.name);
            let Some(object) = run.take(&place, document)? else {
                continue;
            };
            if !out.is_empty() {
                out.push_str("---\n");
            }
            out.push_str(&serde_saphyr::to_string(&object)?);
        }
    }
    Ok(Outcome {
        out,
        err: run.notes,
        well: run.well,
    })
}

/// What was said so far.
struct Run {
    notes: String,
    well: bool,
}

impl Run {
    /// A document in its current form, if there is one: an object, or a list as kubectl prints it.
    fn take(&mut self, place: &str, mut document: Value) -> anyhow::Result<Option<Value>> {
        let Some(kind) = document.get("kind").and_then(Value::as_str) else {
            bail!("{place} is no object: it has no kind");
        };
        // Items of a typed list bear no kind of their own.
        let of = kind
            .strip_suffix("List")
            .filter(|of| CONVERTED.contains(of));
        if kind != "List" && of.is_none() {
            return Ok(self.object(place, document));
        }
        let of = of.map(|of| (of.to_owned(), document.get("apiVersion").cloned()));
        let Some(items) = document.get_mut("items").and_then(Value::as_array_mut) else {
            return Ok(Some(document));
        };
        let mut now = Vec::new();
        for (at, mut item) in std::mem::take(items).into_iter().enumerate() {
            if let (Some((kind, version)), Some(map)) = (&of, item.as_object_mut()) {
                map.entry("kind").or_insert_with(|| kind.as_str().into());
                let version = || version.clone().unwrap_or_default();
                map.entry("apiVersion").or_insert_with(version);
            }
            now.extend(self.take(&format!("{place}, item {at}"), item)?);
        }
        *items = now;
        Ok(Some(document))
    }

    fn object(&mut self, place: &str, object: Value) -> Option<Value> {
        let converted = current(object);
        for note in &converted.notes {
            self.notes.push_str(&format!("{place}: {note}\n"));
        }
        self.well &= converted.object.is_some();
        converted.object
    }
}

/// An object in its current form, and what was changed; without object where there is none.
struct Converted {
    object: Option<Value>,
    notes: Vec<String>,
}

fn current(mut object: Value) -> Converted {
    let mut notes = Vec::new();
    // A slip of one example.
    if let Some(map) = object.as_object_mut()
        && let Some(metadata) = map.remove("Metadata")
    {
        map.entry("metadata").or_insert(metadata);
        notes.push("Metadata is metadata".to_owned());
    }
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let object = match kind {
        "RouteAdvertisements" => Some(advertisement(object, &mut notes)),
        "ClusterUserDefinedNetwork" => Some(network(object, &mut notes)),
        "UserDefinedNetwork" => namespaced(object, &mut notes),
        _ => Some(object),
    };
    Converted { object, notes }
}

fn spec(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec").and_then(Value::as_object_mut)
}

/// Lists for `advertisements` and `networkSelectors`, both selectors, and no node selector for pods.
fn advertisement(mut object: Value, notes: &mut Vec<String>) -> Value {
    let Some(spec) = spec(&mut object) else {
        return object;
    };
    if let Some(Value::Object(old)) = spec.get("advertisements").cloned() {
        let on = |key: &str| old.get(key).and_then(Value::as_bool) == Some(true);
        let kinds = [
            ("podNetwork", "PodNetwork"),
            ("egressIP", "EgressIP"),
            ("egressIp", "EgressIP"),
        ];
        let list = kinds
            .iter()
            .filter(|(key, _)| on(key))
            .map(|(_, kind)| Value::from(*kind));
        spec.insert("advertisements".to_owned(), list.collect());
        notes.push("spec.advertisements is a list of PodNetwork and EgressIP".to_owned());
    }
    if let Some(old) = spec.remove("networkSelector") {
        let selector = json!([{
            "networkSelectionType": "ClusterUserDefinedNetworks",
            "clusterUserDefinedNetworkSelector": {"networkSelector": old},
        }]);
        spec.entry("networkSelectors").or_insert(selector);
        notes.push("spec.networkSelector is an entry of spec.networkSelectors, for ClusterUserDefinedNetworks".to_owned());
    } else if !spec.contains_key("networkSelectors") {
        let default = json!([{"networkSelectionType": "DefaultNetwork"}]);
        spec.insert("networkSelectors".to_owned(), default);
        notes.push("without a network selector the default network is meant: spec.networkSelectors DefaultNetwork".to_owned());
    }
    for key in ["nodeSelector", "frrConfigurationSelector"] {
        if !spec.contains_key(key) {
            spec.insert(key.to_owned(), json!({}));
            notes.push(format!("spec.{key} is required; empty selects everything"));
        }
    }
    let pods = spec.get("advertisements").and_then(Value::as_array);
    let pods = pods.is_some_and(|list| list.contains(&"PodNetwork".into()));
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if pods && !spec.get("nodeSelector").is_some_and(is_empty) {
        spec.insert("nodeSelector".to_owned(), json!({}));
        notes.push(
            "spec.nodeSelector is empty: pod networks are advertised from every node, or from none"
                .to_owned(),
        );
    }
    object
}

/// `transport` for `encapsulation`; a namespace has no place here.
fn network(mut object: Value, notes: &mut Vec<String>) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if metadata
        .and_then(|metadata| metadata.remove("namespace"))
        .is_some()
    {
        notes.push("metadata.namespace is gone: the object is the cluster's".to_owned());
    }
    let Some(spec) = spec(&mut object) else {
        return object;
    };
    let Some(old) = spec.remove("encapsulation") else {
        return object;
    };
    let mode = old.get("mode").and_then(Value::as_str).unwrap_or("Geneve");
    if mode == "None"
        && let Some(network) = spec.get_mut("network").and_then(Value::as_object_mut)
    {
        network.insert("transport".to_owned(), "NoOverlay".into());
        network.insert(
            "noOverlay".to_owned(),
            json!({"outboundSNAT": "Enabled", "routing": "Unmanaged"}),
        );
        notes.push("spec.encapsulation.mode None is spec.network.transport NoOverlay; outboundSNAT Enabled and routing Unmanaged are what the older form meant".to_owned());
        let vrf = old
            .get("targetVRF")
            .and_then(Value::as_str)
            .unwrap_or("default");
        notes.push(format!("the VRF is said by the RouteAdvertisements that selects the network: spec.targetVRF {vrf}"));
    } else {
        notes.push(
            "spec.encapsulation.mode Geneve is left out: it is what a network has".to_owned(),
        );
    }
    object
}

/// The default network has its transport in the configuration file; others of a namespace have none.
fn namespaced(mut object: Value, notes: &mut Vec<String>) -> Option<Value> {
    let is_default = object.pointer("/metadata/name").and_then(Value::as_str) == Some("default");
    let outer = object.pointer("/spec/encapsulation").cloned();
    let old = outer.or_else(|| object.pointer("/spec/network/encapsulation").cloned());
    let Some(old) = old else {
        let spec = spec(&mut object)?;
        if spec.remove("transport").is_some() {
            notes.push(
                "spec.transport is gone: a UserDefinedNetwork is always an overlay".to_owned(),
            );
        }
        return Some(object);
    };
    let none = old.get("mode").and_then(Value::as_str) == Some("None");
    let vrf = old
        .get("targetVRF")
        .and_then(Value::as_str)
        .unwrap_or("default")
        .to_owned();
    if is_default {
        let text = if none {
            format!(
                "the default network has no object: in the configuration file [default] transport = no-overlay with [no-overlay] outbound-snat and routing, and a RouteAdvertisements with networkSelectionType DefaultNetwork and targetVRF {vrf}"
            )
        } else {
            "the default network has no object: in the configuration file [default] transport = geneve".to_owned()
        };
        notes.push(text);
    } else if none {
        notes.push("a UserDefinedNetwork is always an overlay: make it a ClusterUserDefinedNetwork with spec.network.transport NoOverlay".to_owned());
    } else {
        spec(&mut object)?.remove("encapsulation");
        return Some(object);
    }
    None
}
