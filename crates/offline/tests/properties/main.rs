//! What holds in every cluster, whatever is in it and however wrong.
//! In: worlds of a generator. Out: failed tests, with the smallest world that fails and how to make it again.
//! Invariant: what is compared is all that is planned and all that is written.
//! Not here: what a plan is in one world (scripts, recorded worlds).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod generator;

use generator::{Spec, any_spec, sound_spec};
use model::intent::Condition;
use model::node::annotation::NODE_ID;
use offline::kind::{CUDN, NAD, NODE};
use offline::{Objects, Plans, settle, state, world};
use proptest::prelude::*;
use serde_json::Value;
use settings::Settings;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        // The smallest failing world is printed; nothing is left in the tree.
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..ProptestConfig::with_cases(cases)
    }
}

/// All that is planned, and all that has been written beside what people said themselves, as text.
fn whole(settings: &Settings, plans: &Plans, objects: &Objects) -> String {
    let now = Plans::of(&world(settings, objects), settings);
    let mut written = serde_json::to_string_pretty(&state(plans, objects)).unwrap();
    for ((kind, name), object) in objects.iter() {
        let metadata = &object["metadata"];
        let (labels, id) = (&metadata["labels"], &metadata["annotations"][NODE_ID]);
        written.push_str(&format!("\n{kind} {name} {labels} {id}"));
    }
    format!("{written}\n{plans:#?}\n{now:#?}")
}

/// Every object, as text.
fn dump(objects: &Objects) -> String {
    let texts = objects.iter().map(|(_, object)| format!("{object:#}"));
    texts.collect::<Vec<_>>().join("\n")
}

/// The first line that differs, in both.
fn difference<'a>(a: &'a str, b: &'a str) -> Option<(&'a str, &'a str)> {
    let all = a.lines().chain([""]).zip(b.lines().chain([""]));
    all.into_iter().find(|(a, b)| a != b)
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn no_order_of_anything_makes_another_plan(spec in any_spec(), turn in 1..5_usize) {
        let settings = spec.settings();
        let settled = |turn: usize| {
            let mut objects = turned(&spec, turn);
            let first = Plans::of(&world(&settings, &objects), &settings);
            let plans = settle(&settings, &mut objects).unwrap();
            format!("{first:#?}\n{}", whole(&settings, &plans, &objects))
        };
        let (straight, other) = (settled(0), settled(turn));
        prop_assert_eq!(difference(&straight, &other), None);
    }

    #[test]
    fn what_is_planned_of_what_was_planned_is_nothing(spec in any_spec()) {
        let settings = spec.settings();
        let mut objects = spec.objects();
        let settled = settle(&settings, &mut objects);
        prop_assert!(settled.is_ok(), "{:?}", settled.err());
        let before = objects.clone();
        let plans = settle(&settings, &mut objects).unwrap();
        prop_assert!(objects == before);
        prop_assert!(plans.networks.allocations.is_empty(), "{:?}", plans.networks.allocations);
        let of_ras = plans.advertisements.values().flat_map(|plan| &plan.conditions);
        for condition in of_ras.chain(plans.conditions.values().flatten()) {
            prop_assert!(is_acceptable(condition), "{condition:?}");
        }
        for (name, plan) in &plans.advertisements {
            prop_assert!(plan.surplus.is_empty(), "{name}: {:?}", plan.surplus);
        }
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn what_goes_and_comes_back_leaves_nothing_behind(spec in sound_spec(), which in 0..1000_usize) {
        let settings = spec.settings();
        let mut objects = spec.objects();
        let given = objects.clone();
        let plans = settle(&settings, &mut objects).unwrap();
        let before = format!("{}\n{}", dump(&objects), whole(&settings, &plans, &objects));
        let keys: Vec<(String, String)> = objects.iter().map(|(key, _)| key.clone()).collect();
        let (kind, name) = &keys[which % keys.len()];
        take_away(&mut objects, kind, name);
        settle(&settings, &mut objects).unwrap();
        if let Some(object) = given.get(kind, name) {
            objects.put(object.clone()).unwrap();
        }
        let plans = settle(&settings, &mut objects).unwrap();
        let after = format!("{}\n{}", dump(&objects), whole(&settings, &plans, &objects));
        prop_assert_eq!(difference(&before, &after), None, "{} {}", kind, name);
    }
}

/// Whether the API server takes a condition (`metav1.Condition`): else it refuses the whole status.
fn is_acceptable(condition: &Condition) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    let reason = condition.reason.as_str();
    (1..=1024).contains(&reason.len())
        && reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.chars().all(inner)
        && !reason.ends_with([',', ':'])
        && condition.message.chars().count() <= 32_768
}

/// As the API server deletes: a network waits for its finalizer, and a namespace goes with what is in it.
fn take_away(objects: &mut Objects, kind: &str, name: &str) {
    match kind {
        CUDN => {
            let cudn = objects.get_mut(kind, name).unwrap();
            cudn["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        }
        "Namespace" => {
            let inside =
                |key: &&(String, String)| key.0 == NAD && key.1.split('/').next() == Some(name);
            let keys = objects.iter().map(|(key, _)| key);
            let keys: Vec<_> = keys.filter(inside).cloned().collect();
            for (kind, name) in keys {
                objects.remove(&kind, &name);
            }
            objects.remove(kind, name);
        }
        _ => assert!(objects.remove(kind, name)),
    }
}

/// The objects, given in another order and with their lists and maps turned.
fn turned(spec: &Spec, turn: usize) -> Objects {
    let mut all: Vec<Value> = spec.objects().iter().map(|(_, o)| o.clone()).collect();
    if turn % 2 == 1 {
        all.reverse();
    }
    let at = turn % all.len();
    all.rotate_left(at);
    let mut out = Objects::default();
    for mut object in all {
        for path in [
            "/spec/networkSelectors",
            "/spec/advertisements",
            "/spec/egressIPs",
            "/status/items",
            "/metadata/finalizers",
        ] {
            if let Some(Value::Array(list)) = object.pointer_mut(path) {
                let at = turn % list.len().max(1);
                list.rotate_left(at);
            }
        }
        let subnets = "/metadata/annotations/k8s.ovn.org~1node-subnets";
        if object["kind"] == NODE
            && let Some(Value::String(text)) = object.pointer_mut(subnets)
        {
            *text = turned_map(text, turn);
        }
        out.put(object).unwrap();
    }
    out
}

/// A JSON map with its keys in another order; what is none stays as it is.
fn turned_map(text: &str, turn: usize) -> String {
    let Ok(Value::Object(map)) = serde_json::from_str(text) else {
        return text.to_owned();
    };
    let mut entries: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key:?}:{value}"))
        .collect();
    let at = turn % entries.len().max(1);
    entries.rotate_left(at);
    format!("{{{}}}", entries.join(","))
}
