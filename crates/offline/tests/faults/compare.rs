//! Two clusters compared: what was given to whom by its turn is told apart by the name of who has it.
//! In: objects. Out: where they differ. Invariant: two objects that differ in more than the order of a list, and which of the free
//! subnets and numbers a node or network was given, are different.
//! Not here: what may differ (`table`).

use std::collections::{BTreeMap, BTreeSet};

use model::NetworkName;
use offline::Objects;
use offline::kind::{CUDN, FRR, NAD, NODE};
use plan_cluster::{RA_KEY, fabric};
use serde_json::{Map, Value};

use crate::cluster::{ID, OF_FABRIC, SUBNETS};

const NETWORK_ID: &str = "k8s.ovn.org/network-id";
const NETWORK_NAME: &str = "k8s.ovn.org/network-name";

/// Whether a text names something, and not a thing with a longer name.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(inner) && !text[at + name.len()..].starts_with(inner))
}

/// Names of what people made; names that are made here stand for what they are made of.
pub(crate) struct Names {
    by_people: BTreeSet<String>,
    made: BTreeMap<String, String>,
}

impl Names {
    pub(crate) fn of(objects: &Objects) -> Self {
        let mut made: BTreeMap<String, String> = OF_FABRIC
            .map(|network| {
                let name = fabric::advertisement_name(&NetworkName::from(network));
                (name, format!("fabric:{network}"))
            })
            .into();
        made.insert(fabric::base_name(), "FABRIC".to_owned());
        let mut names = Self {
            by_people: BTreeSet::new(),
            made,
        };
        for ((kind, key), object) in objects.iter() {
            let name = key.rsplit('/').next().unwrap().to_owned();
            if kind == CUDN {
                names.by_people.insert(format!("cluster_udn_{name}"));
            }
            let identity = object["metadata"]["annotations"][RA_KEY].as_str();
            if let Some(identity) = identity.filter(|_| kind == FRR) {
                let identity = names.within(identity);
                names.made.insert(name, identity);
            } else if kind != NAD && !names.made.contains_key(&name) {
                names.by_people.insert(name);
            }
        }
        names
    }

    /// A text with what made names are made of.
    pub(crate) fn within(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("ovnk-") {
            let (before, name) = rest.split_at(at);
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let (name, after) = name.split_at(end.unwrap_or(name.len()));
            out.push_str(before);
            out.push_str(self.made.get(name).map_or(name, String::as_str));
            rest = after;
        }
        out + rest
    }

    /// What a text names.
    pub(crate) fn named(&self, text: &str) -> BTreeSet<String> {
        let named = self.by_people.iter().filter(|name| mentions(text, name));
        named.cloned().collect()
    }

    /// `KIND NAME` of an object.
    pub(crate) fn of_object(&self, kind: &str, name: &str) -> String {
        format!("{kind} {}", self.within(name))
    }
}

/// A cluster's objects, in words that do not depend on who came first.
pub(crate) struct Canonical {
    /// By [`Names::of_object`].
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) names: Names,
    /// Ids and subnets that two have.
    pub(crate) shared: Vec<String>,
    subnets: BTreeMap<String, String>,
}

impl Canonical {
    /// Subnets of these nodes, which may be anybody's, stay as they are.
    pub(crate) fn of(objects: &Objects, culprits: &[&str]) -> Self {
        let mut out = Self {
            objects: BTreeMap::new(),
            names: Names::of(objects),
            shared: Vec::new(),
            subnets: BTreeMap::new(),
        };
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for ((kind, name), object) in objects.iter() {
            let annotations = &object["metadata"]["annotations"];
            let (key, holder) = match kind.as_str() {
                NODE => (ID, name.as_str()),
                NAD => (
                    NETWORK_ID,
                    annotations[NETWORK_NAME].as_str().unwrap_or(name),
                ),
                _ => continue,
            };
            if let Some(id) = annotations[key].as_str() {
                let other = ids.insert(format!("{key} {id}"), holder.to_owned());
                let shared = other.filter(|other| other != holder);
                out.shared
                    .extend(shared.map(|other| format!("{holder} and {other} have {key} {id}")));
            }
            if kind == NODE && !culprits.contains(&name.as_str()) {
                out.hold(name, annotations[SUBNETS].as_str().unwrap_or_default());
            }
        }
        for ((kind, name), object) in objects.iter() {
            let mut object = object.clone();
            let key = out.names.of_object(kind, name);
            if out.names.within(name) != *name {
                object["metadata"]["name"] = Value::Null;
            }
            let object = out.value(&object);
            out.objects.insert(key, object);
        }
        out
    }

    fn hold(&mut self, node: &str, annotation: &str) {
        let subnets: BTreeMap<String, Vec<String>> =
            serde_json::from_str(annotation).unwrap_or_default();
        for (network, list) in subnets {
            for subnet in list {
                let other = self
                    .subnets
                    .insert(subnet.clone(), format!("<{network} of {node}>"));
                let shared = other.map(|other| format!("{subnet} is {other} and of {node}"));
                self.shared.extend(shared);
            }
        }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(list) => sorted(list.iter().map(|entry| self.value(entry)).collect()),
            Value::Object(map) => {
                let given = |key: &str| [ID, NETWORK_ID].contains(&key);
                let entries = map.iter().map(|(key, value)| {
                    let value = if given(key) {
                        "ID".into()
                    } else {
                        self.value(value)
                    };
                    (key.clone(), value)
                });
                entries.collect::<Map<_, _>>().into()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A text, or what is written in it.
    fn text(&self, text: &str) -> Value {
        if text.starts_with(['{', '['])
            && let Ok(inner) = serde_json::from_str::<Value>(text)
        {
            return self.value(&inner);
        }
        if text.contains('\n') {
            // Entries of prefix lists are numbered by their turn.
            let lines = text.lines().map(|line| {
                let words = line.split(' ').map(|word| self.word(word));
                let words: Vec<String> = words.collect();
                let numbered = words.iter().position(|word| word == "seq");
                let words = words.iter().enumerate();
                let words = words.filter(|(at, _)| Some(*at) != numbered.map(|seq| seq + 1));
                words
                    .map(|(_, word)| word.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            return sorted(lines.map(Value::from).collect());
        }
        self.names.within(&self.word(text)).into()
    }

    fn word(&self, word: &str) -> String {
        self.subnets
            .get(word)
            .map_or(word, String::as_str)
            .to_owned()
    }
}

fn sorted(mut list: Vec<Value>) -> Value {
    list.sort_by_cached_key(Value::to_string);
    list.into()
}

/// What differs, of each object the first field.
pub(crate) fn difference(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> Vec<String> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differ
        .map(|key| match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => format!("{key}{}", first(a, b)),
            (Some(_), None) => format!("{key} is not there"),
            _ => format!("{key} is there"),
        })
        .collect()
}

fn first(a: &Value, b: &Value) -> String {
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        let mut keys = a.keys().chain(b.keys());
        let null = Value::Null;
        let (get, has) = (
            |key| a.get(key).unwrap_or(&null),
            |key| b.get(key).unwrap_or(&null),
        );
        if let Some(key) = keys.find(|key| get(*key) != has(*key)) {
            return format!(".{key}{}", first(get(key), has(key)));
        }
    }
    format!(" is {b}, wanted {a}")
}

/// A value without what names something; `None` where nothing is left.
pub(crate) fn pruned(value: &Value, named: &impl Fn(&str) -> bool) -> Option<Value> {
    match value {
        Value::String(text) => (!named(text)).then(|| value.clone()),
        Value::Array(list) => {
            let kept: Vec<Value> = list
                .iter()
                .filter_map(|entry| pruned(entry, named))
                .collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !named(key));
            let kept: Map<String, Value> = kept
                .filter_map(|(key, value)| Some((key.clone(), pruned(value, named)?)))
                .collect();
            // A neighbor without its address is none, and a range not without its prefix.
            let mut marks = ["address", "prefix"].into_iter();
            let is_whole = marks.all(|key| map.contains_key(key) == kept.contains_key(key));
            (!kept.is_empty() && is_whole).then(|| kept.into())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.clone()),
    }
}

/// Changes back in `now` what `given` has other than `before`; what was created is deleted as an API server does.
pub(crate) fn revert(before: &Objects, given: &Objects, now: &mut Objects) {
    let keys: BTreeSet<_> = before
        .iter()
        .chain(given.iter())
        .map(|(key, _)| key)
        .collect();
    for (kind, name) in keys {
        match (before.get(kind, name), given.get(kind, name)) {
            (Some(old), Some(new)) => undo(old, new, now.get_mut(kind, name).unwrap()),
            (Some(old), None) => now.put(old.clone()).unwrap(),
            (None, _) if kind == CUDN => {
                let object = now.get_mut(kind, name).unwrap();
                object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
            }
            (None, _) => assert!(now.remove(kind, name)),
        }
    }
}

fn undo(old: &Value, new: &Value, now: &mut Value) {
    match (old, new, &mut *now) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new), Value::Object(now)) => {
            for key in old.keys().chain(new.keys()) {
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => {
                        undo(old, new, now.entry(key.as_str()).or_insert(Value::Null))
                    }
                    (Some(old), None) => {
                        now.insert(key.clone(), old.clone());
                    }
                    (None, _) => {
                        now.remove(key);
                    }
                }
            }
        }
        _ => *now = old.clone(),
    }
}
