//! What is remembered of refusals, and how writes are evaluated.

use super::*;
use serde_json::json;

fn job(value: u32) -> Job {
    Job {
        key: ObjectKey::new("ns", "a"),
        node: None,
        what: What::Apply {
            uid: None,
            version: None,
            body: json!({"spec": value}),
        },
    }
}

fn words(refusals: &Refusals) -> Vec<String> {
    let all = refusals.of(&Key::Fabric).into_iter();
    all.map(|r| r.words).collect()
}

#[test]
fn words_that_change_with_each_attempt_are_reported_once() {
    let mut refusals = Refusals::default();
    let target = || ("FRRConfiguration".to_owned(), job(1).key);
    let mut refuse = |value: u32, code: Option<u16>, said: &str| {
        refusals.refuse(&Key::Fabric, target(), job(value), code, said.to_owned());
        words(&refusals)
    };
    for port in 50_000..50_010 {
        let said = format!("failed calling webhook: dial tcp 10.0.0.1:{port}: refused");
        let first = "failed calling webhook: dial tcp 10.0.0.1:50000: refused";
        assert_eq!(refuse(1, Some(500), &said), [first]);
    }
    // Another code, no answer, or another wish: those are news.
    assert_eq!(refuse(1, Some(403), "denied"), ["denied"]);
    assert_eq!(refuse(1, None, "reset, port 1"), ["reset, port 1"]);
    assert_eq!(refuse(1, None, "reset, port 2"), ["reset, port 1"]);
    assert_eq!(refuse(2, None, "reset, port 3"), ["reset, port 3"]);
    // What was written in between is news again.
    refusals.written(&Key::Fabric, &target());
    assert_eq!(words(&refusals), [""; 0]);
    let said = "reset, port 4".to_owned();
    refusals.refuse(&Key::Fabric, target(), job(2), None, said.clone());
    assert_eq!(words(&refusals), [said]);
}

#[test]
fn attempts_grow_apart_whatever_the_words_are() {
    let mut refusals = Refusals::default();
    let target = ("FRRConfiguration".to_owned(), job(1).key);
    for n in 0..12_u16 {
        let code = Some(500 + n % 2);
        refusals.refuse(&Key::Fabric, target.clone(), job(1), code, n.to_string());
    }
    let refused = &refusals.0[&Key::Fabric][&target];
    assert!(refused.again > Instant::now() + Duration::from_secs(20));
}

#[test]
fn writes_came_to_nothing_only_where_none_of_the_wanted_objects_stands() {
    let done = |applies: usize, deletes: usize| {
        let mut done = Done::default();
        (0..applies).for_each(|_| done.missed(&job(1).what));
        let delete = What::Delete { uid: String::new() };
        (0..deletes).for_each(|_| done.missed(&delete));
        assert_eq!(done.bad, applies + deletes);
        done
    };
    for (applies, deletes, wanted, nothing) in [
        (0, 0, 0, false),
        (0, 0, 3, false),
        (1, 0, 3, false),
        (3, 0, 3, true),
        (1, 0, 1, true),
        // What may not be deleted takes nothing away from what stands.
        (0, 3, 3, false),
        (0, 1, 0, false),
        (2, 1, 3, false),
    ] {
        let row = format!("{applies} {deletes} of {wanted}");
        let seen = done(applies, deletes).is_nothing_of(wanted);
        assert_eq!(seen, nothing, "{row}");
    }
    let both = done(1, 1).and(done(2, 0));
    assert_eq!((both.bad, both.unapplied), (4, 3));
}
