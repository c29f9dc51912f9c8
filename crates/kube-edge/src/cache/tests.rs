//! What a cache tells, event by event.

use super::*;
use k8s_openapi::api::core::v1::ConfigMap;

fn object(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{name}"));
    object.data = Some([("v".to_owned(), value.to_owned())].into());
    object
}

fn lift(object: &ConfigMap) -> String {
    object
        .data
        .as_ref()
        .map(|d| d["v"].clone())
        .unwrap_or_default()
}

#[test]
fn a_cache_tells_changes_of_the_lifted_value_only_and_replaces_itself_in_one_step() {
    let inner = RwLock::new(Inner {
        map: BTreeMap::new(),
        ready: false,
    });
    let mut fresh = BTreeMap::new();
    let mut go = |event| step(&inner, &mut fresh, event, lift);
    let told = |names: &[&str]| {
        names
            .iter()
            .map(|n| Some(ObjectKey::new("", *n)))
            .collect::<Vec<_>>()
    };
    assert!(go(Event::Init).is_empty());
    assert!(go(Event::InitApply(object("a", "1"))).is_empty());
    assert!(!inner.read().unwrap().ready);
    assert_eq!(go(Event::InitDone), vec![None]);
    assert!(
        go(Event::Apply(object("a", "1"))).is_empty(),
        "nothing that we look at changed"
    );
    assert_eq!(go(Event::Apply(object("a", "2"))), told(&["a"]));
    assert_eq!(go(Event::Apply(object("b", "1"))), told(&["b"]));
    // The watch restarts: b is gone meanwhile, c is new, a is the same.
    assert!(go(Event::Init).is_empty());
    go(Event::InitApply(object("a", "2")));
    go(Event::InitApply(object("c", "1")));
    assert_eq!(
        inner.read().unwrap().map.len(),
        2,
        "the old state is served until the listing is complete"
    );
    assert_eq!(go(Event::InitDone), told(&["b", "c"]));
    assert_eq!(go(Event::Delete(object("c", "1"))), told(&["c"]));
    assert!(go(Event::Delete(object("c", "1"))).is_empty());
}

#[test]
fn retries_begin_fast_and_stop_growing() {
    let mut retry = Retry(FIRST_RETRY);
    let delays: Vec<u128> = (0..7)
        .filter_map(|_| retry.next())
        .map(|d| d.as_millis())
        .collect();
    assert_eq!(delays, [200, 400, 800, 1600, 3200, 5000, 5000]);
    retry.reset();
    assert_eq!(retry.next().unwrap(), FIRST_RETRY);
}
