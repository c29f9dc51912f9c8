//! What holds in every cluster, whatever is in it and however wrong.
//! In: worlds of a generator. Out: failed tests, with the smallest world that fails and how to make it again.
//! Invariant: what is compared is all that is planned and all that is written.
//! Not here: what a plan is in one world (scripts, recorded worlds).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod by_hand;
mod generator;
mod order;

use std::collections::BTreeSet;

use by_hand::{Change, changes};
use generator::{any_spec, sound_spec};
use model::intent::Condition;
use model::node::annotation::NODE_ID;
use offline::kind::{CUDN, NAD};
use offline::{Objects, Plans, settle, state, world, write};
use order::{all_shuffled, as_sets, other_family_first, shuffled};
use proptest::prelude::*;
use settings::Settings;
use testkit::rng::Rng;

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

/// Does about half of the writes that lead from the objects to others.
fn some_of(objects: &mut Objects, after: &Objects, rng: &mut Rng) {
    let all = objects.iter().chain(after.iter());
    let keys: BTreeSet<(String, String)> = all.map(|(key, _)| key.clone()).collect();
    for (kind, name) in keys {
        if rng.percent(50) {
            continue;
        }
        match after.get(&kind, &name) {
            Some(object) => objects.put(object.clone()).unwrap(),
            None => drop(objects.remove(&kind, &name)),
        }
    }
}

/// The first line that differs, in both.
fn difference<'a>(a: &'a str, b: &'a str) -> Option<(&'a str, &'a str)> {
    let all = a.lines().chain([""]).zip(b.lines().chain([""]));
    all.into_iter().find(|(a, b)| a != b)
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn no_order_of_anything_makes_another_plan(spec in any_spec(), seed in any::<u64>()) {
        let settings = spec.settings();
        let settled = |mut objects: Objects| {
            let first = Plans::of(&world(&settings, &objects), &settings);
            let plans = settle(&settings, &mut objects).unwrap();
            format!("{first:#?}\n{}", whole(&settings, &plans, &objects))
        };
        let straight = settled(spec.objects());
        let other = settled(shuffled(&spec.objects(), seed));
        prop_assert_eq!(difference(&straight, &other), None);
    }

    #[test]
    fn no_order_of_what_is_copied_makes_more_than_another_order(spec in any_spec(), seed in any::<u64>()) {
        let settings = spec.settings();
        let settled = |mut objects: Objects| {
            let plans = settle(&settings, &mut objects).unwrap();
            let mut written = state(&plans, &objects);
            as_sets(&mut written);
            serde_json::to_string_pretty(&written).unwrap()
        };
        let straight = settled(spec.objects());
        let other = settled(all_shuffled(&spec.objects(), seed));
        prop_assert_eq!(difference(&straight, &other), None);
    }

    #[test]
    fn which_family_of_a_nodes_addresses_comes_first_changes_no_object(spec in any_spec()) {
        let settings = spec.settings();
        let (mut straight, mut other) = (spec.objects(), other_family_first(&spec.objects()));
        settle(&settings, &mut straight).unwrap();
        settle(&settings, &mut other).unwrap();
        let (straight, other) = (dump(&other_family_first(&straight)), dump(&other));
        prop_assert_eq!(difference(&straight, &other), None);
    }

    #[test]
    fn what_is_planned_of_what_was_planned_is_nothing(spec in any_spec()) {
        let settings = spec.settings();
        let mut objects = spec.objects();
        let settled = settle(&settings, &mut objects);
        prop_assert!(settled.is_ok(), "{:?}", settled.err());
        let before = dump(&objects);
        for (form, text) in texts(&objects) {
            let mut read = Objects::default();
            read.read(&text).unwrap();
            let plans = Plans::of(&world(&settings, &read), &settings);
            write(&plans, &settings, &mut read).unwrap();
            let after = dump(&read);
            prop_assert_eq!(difference(&before, &after), None, "{}", form);
        }
        let plans = Plans::of(&world(&settings, &objects), &settings);
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
    fn a_manager_that_dies_between_any_two_writes_leads_to_the_same_end(spec in sound_spec(), seed in any::<u64>()) {
        let settings = spec.settings();
        let mut whole = spec.objects();
        settle(&settings, &mut whole).unwrap();
        let (mut objects, mut rng) = (spec.objects(), Rng::new(seed));
        for _ in 0..4 {
            let plans = Plans::of(&world(&settings, &objects), &settings);
            let mut after = objects.clone();
            write(&plans, &settings, &mut after).unwrap();
            some_of(&mut objects, &after, &mut rng);
        }
        settle(&settings, &mut objects).unwrap();
        let (whole, objects) = (dump(&whole), dump(&objects));
        prop_assert_eq!(difference(&whole, &objects), None);
    }

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

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn whatever_somebody_does_to_what_was_written_is_undone(spec in sound_spec(), seed in any::<u64>()) {
        let settings = spec.settings();
        let given = spec.objects();
        let mut objects = given.clone();
        let plans = settle(&settings, &mut objects).unwrap();
        let before = format!("{}\n{}", dump(&objects), whole(&settings, &plans, &objects));
        let all = changes(&given, &objects);
        let mut rng = Rng::new(seed);
        for _ in 0..16 {
            let Change { key: (kind, name), place, object } = rng.pick(&all);
            let mut changed = objects.clone();
            match object {
                Some(object) => changed.put(object.clone()).unwrap(),
                None => assert!(changed.remove(kind, name)),
            }
            let plans = settle(&settings, &mut changed).unwrap();
            let after = format!("{}\n{}", dump(&changed), whole(&settings, &plans, &changed));
            prop_assert_eq!(difference(&before, &after), None, "{} {} {}", kind, name, place);
        }
    }
}

/// The objects as documents of JSON and of YAML.
fn texts(objects: &Objects) -> [(&'static str, String); 2] {
    let all: Vec<&serde_json::Value> = objects.iter().map(|(_, object)| object).collect();
    let json: Vec<String> = all.iter().map(ToString::to_string).collect();
    let yaml = all
        .iter()
        .map(|object| serde_saphyr::to_string(object).unwrap());
    [
        ("JSON", format!("{{\"items\":[{}]}}", json.join(","))),
        ("YAML", yaml.collect::<Vec<_>>().join("\n---\n")),
    ]
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
