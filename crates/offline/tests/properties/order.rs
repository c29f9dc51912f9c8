//! The same cluster, said in another order.
//! In: objects, a seed. Out: the same objects. Invariant: only that changes in which no order means anything.
//! Not here: subnets and InternalIPs of one family, of which the first comes first; which family comes first is what a message names
//! ([`other_family_first`]).

use offline::Objects;
use offline::kind::NODE;
use serde_json::{Map, Value};
use testkit::rng::Rng;

/// Lists in which no order means anything and that are made anew, by their field.
const SETS: &[&str] = &[
    "advertisements",
    "egressIPs",
    "finalizers",
    "imports",
    "items",
    "matchExpressions",
    "networkSelectors",
    "ownerReferences",
    "prefixes",
    "routers",
    "values",
];

/// Lists in which no order means anything either, but which are copied from a source to what is generated of it, in the order
/// in which their author reads them.
const COPIED: &[&str] = &[
    "bfdProfiles",
    "neighbors",
    RANGES,
    "withCommunity",
    "withLocalPref",
];

/// Those of `toReceive`, which bear the same name as the prefixes of a router and of `toAdvertise`.
const RANGES: &str = "prefixes with lengths";

/// Annotations whose text is JSON, and lists in them sets.
const TEXTS: &[&str] = &[
    "k8s.ovn.org/host-cidrs",
    "k8s.ovn.org/node-subnets",
    "k8s.ovn.org/route-advertisements",
    "config",
];

/// The objects in another order, with the lists and maps in them in another order.
pub(crate) fn shuffled(objects: &Objects, seed: u64) -> Objects {
    shuffled_in(objects, seed, SETS)
}

/// The same, and what is copied is in another order too.
pub(crate) fn all_shuffled(objects: &Objects, seed: u64) -> Objects {
    shuffled_in(objects, seed, &[SETS, COPIED].concat())
}

/// With copied lists in one order.
pub(crate) fn as_sets(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(as_sets),
        Value::Object(map) => {
            for (key, value) in map {
                as_sets(value);
                if let Value::Array(list) = value
                    && COPIED.contains(&name_of(key, list))
                {
                    list.sort_by_cached_key(Value::to_string);
                }
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn shuffled_in(objects: &Objects, seed: u64, sets: &[&str]) -> Objects {
    let mut rng = Rng::new(seed);
    let mut all: Vec<Value> = objects.iter().map(|(_, object)| object.clone()).collect();
    shuffle(&mut all, &mut rng);
    let mut out = Objects::default();
    for mut object in all {
        turn("", &mut object, sets, &mut rng);
        out.put(object).unwrap();
    }
    out
}

fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for at in (1..list.len()).rev() {
        let other = rng.below(at as u64 + 1);
        list.swap(at, usize::try_from(other).unwrap());
    }
}

fn turn(field: &str, value: &mut Value, sets: &[&str], rng: &mut Rng) {
    match value {
        Value::Array(list) => {
            list.iter_mut().for_each(|entry| turn("", entry, sets, rng));
            if sets.contains(&name_of(field, list)) {
                shuffle(list, rng);
            } else if field == "addresses" {
                addresses(list, rng);
            }
        }
        Value::Object(map) => map
            .iter_mut()
            .for_each(|(key, value)| turn(key, value, sets, rng)),
        Value::String(text) if TEXTS.contains(&field) => {
            if let Ok(inner) = serde_json::from_str::<Value>(text) {
                *text = written(&inner, rng);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn name_of<'a>(field: &'a str, list: &[Value]) -> &'a str {
    let is_range = field == "prefixes" && list.iter().all(Value::is_object);
    if is_range { RANGES } else { field }
}

/// InternalIPs keep their order.
fn addresses(list: &mut [Value], rng: &mut Rng) {
    let mut turned = list.to_vec();
    shuffle(&mut turned, rng);
    let internal = |entry: &&Value| entry["type"] == "InternalIP";
    let mut in_order = list.iter().filter(internal);
    for place in turned.iter_mut().filter(|place| internal(&&**place)) {
        *place = in_order.next().unwrap().clone();
    }
    list.clone_from_slice(&turned);
}

/// Of each Node the last address first: of two families the other one.
pub(crate) fn other_family_first(objects: &Objects) -> Objects {
    let mut out = objects.clone();
    let names = objects.all(NODE).map(|node| &node["metadata"]["name"]);
    for name in names.filter_map(Value::as_str) {
        let node = out.get_mut(NODE, name).unwrap();
        if let Some(Value::Array(list)) = node.pointer_mut("/status/addresses") {
            list.reverse();
        }
    }
    out
}

/// JSON with lists and maps in another order.
fn written(value: &Value, rng: &mut Rng) -> String {
    let mut join = |mut parts: Vec<String>| {
        shuffle(&mut parts, rng);
        parts.join(", ")
    };
    match value {
        Value::Array(list) => format!("[{}]", join(list.iter().map(Value::to_string).collect())),
        Value::Object(map) => {
            let entries = entries(map);
            format!("{{{}}}", join(entries))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn entries(map: &Map<String, Value>) -> Vec<String> {
    map.iter()
        .map(|(key, value)| format!("{key:?}: {value}"))
        .collect()
}
