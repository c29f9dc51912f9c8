//! When it is worth asking again for a kind that is not served, by a clock that the tests turn.

use futures::channel::mpsc::{UnboundedSender, unbounded};
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::*;

type Meta = PartialObjectMeta<CustomResourceDefinition>;
type Said = Result<Event<Meta>, watcher::Error>;

const NAME: &str = "egressips.k8s.ovn.org";

fn definition(name: &str, version: &str) -> Meta {
    let mut object = Meta::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{name}"));
    object.metadata.resource_version = Some(version.to_owned());
    object
}

/// A wait for the kind of [`NAME`], and what the API server says of definitions.
fn waiting() -> (Unserved, UnboundedSender<Said>) {
    let (say, said) = unbounded();
    let installed = Installed::of(|changed| {
        cache::follow("definitions".to_owned(), said, Installed::version, changed)
    });
    let unserved = Unserved::new(Some((installed, NAME.to_owned())));
    (unserved, say)
}

/// A call's answer.
fn answer(code: u16) -> kube::Error {
    let status = kube::core::Status::failure("no", "reason").with_code(code);
    kube::Error::Api(Box::new(status))
}

/// The watch of definitions cannot be begun again.
fn broken(say: &UnboundedSender<Said>, code: u16) {
    let error = watcher::Error::WatchStartFailed(answer(code));
    say.unbounded_send(Err(error)).unwrap();
}

/// Lists definitions.
fn list(say: &UnboundedSender<Said>, names: &[&str]) {
    say.unbounded_send(Ok(Event::Init)).unwrap();
    for name in names {
        let object = definition(name, "1");
        say.unbounded_send(Ok(Event::InitApply(object))).unwrap();
    }
    say.unbounded_send(Ok(Event::InitDone)).unwrap();
}

fn change(say: &UnboundedSender<Said>, name: &str, version: &str) {
    let event = Event::Apply(definition(name, version));
    say.unbounded_send(Ok(event)).unwrap();
}

async fn waits(unserved: &mut Unserved) -> Duration {
    let begun = Instant::now();
    unserved.wait().await;
    begun.elapsed()
}

/// How long it waits, and what is said after a while of it.
async fn hears(unserved: &mut Unserved, after: Duration, say: impl FnOnce()) -> Duration {
    let said = async {
        tokio::time::sleep(after).await;
        say();
    };
    let begun = Instant::now();
    tokio::join!(unserved.wait(), said);
    begun.elapsed() - after
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_name_of_a_definition_is_that_of_its_plural_and_group() {
    assert_eq!(
        name("/apis/k8s.ovn.org/v1/egressips").as_deref(),
        Some(NAME)
    );
    assert_eq!(
        name("/apis/frrk8s.metallb.io/v1beta1/namespaces/frr/bgpsessionstates").as_deref(),
        Some("bgpsessionstates.frrk8s.metallb.io")
    );
    assert_eq!(name("/api/v1/nodes"), None);
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_known_of_definitions_a_kind_is_asked_for_at_least_every_half_minute() {
    let refused = watcher::Error::InitialListFailed(answer(403));
    let (mut silent, _say) = waiting();
    let (mut forbidden, say) = waiting();
    say.unbounded_send(Err(refused)).unwrap();
    let mut of_server = Unserved::new(None);
    for unserved in [&mut silent, &mut forbidden, &mut of_server] {
        assert!(waits(unserved).await <= 5 * SECOND);
        for _ in 0..8 {
            waits(unserved).await;
        }
        let longest = waits(unserved).await;
        assert!((15 * SECOND..=30 * SECOND).contains(&longest));
        unserved.is_over();
        assert!(waits(unserved).await <= 5 * SECOND, "it was served since");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_a_definition_is_asked_for_soon_after_it_has_one_and_seldom_before() {
    let (mut unserved, say) = waiting();
    list(&say, &["egressservices.k8s.ovn.org"]);
    for _ in 0..3 {
        let alone = waits(&mut unserved).await;
        assert!(
            (600 * SECOND..=1200 * SECOND).contains(&alone),
            "it may be served otherwise: {alone:?}"
        );
    }
    let other = "egressservices.k8s.ovn.org";
    let after = hears(&mut unserved, 100 * SECOND, || change(&say, other, "2")).await;
    assert!(after >= 500 * SECOND, "that is another kind: {after:?}");
    let after = hears(&mut unserved, 100 * SECOND, || change(&say, NAME, "3")).await;
    assert!(after <= SECOND / 5, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_and_not_served_is_asked_for_ever_more_seldom_until_it_changes() {
    let (mut unserved, say) = waiting();
    list(&say, &[NAME]);
    // The listing is heard during the first of them.
    let mut pauses = vec![waits(&mut unserved).await];
    for _ in 0..15 {
        pauses.push(waits(&mut unserved).await);
    }
    assert!(pauses[0] <= SECOND / 5, "{pauses:?}");
    let first: Duration = pauses[..5].iter().sum();
    assert!(first <= 7 * SECOND, "it is served soon: {pauses:?}");
    let longest = 15 * SECOND..=30 * SECOND;
    assert!(longest.contains(&pauses[15]), "{pauses:?}");
    let after = hears(&mut unserved, 5 * SECOND, || change(&say, NAME, "2")).await;
    assert!(after <= SECOND / 5, "{after:?}");
    assert!(waits(&mut unserved).await <= 2 * SECOND / 5);
    let gone = definition(NAME, "2");
    let after = hears(&mut unserved, SECOND / 100, || {
        say.unbounded_send(Ok(Event::Delete(gone))).unwrap();
    });
    assert!(after.await >= 600 * SECOND, "it is not installed any more");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_listed_before_is_asked_for_soon_by_the_clock() {
    for mut unserved in [Unserved::new(None), waiting().0] {
        unserved.is_over();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pauses.push(waits(&mut unserved).await);
        }
        let first: Duration = pauses[..4].iter().sum();
        assert!(first <= 3 * SECOND, "{pauses:?}");
        let longest = 15 * SECOND..=30 * SECOND;
        assert!(longest.contains(&pauses[11]), "{pauses:?}");
        unserved.begins_anew();
        assert!(waits(&mut unserved).await <= SECOND / 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_silent_for_long_is_asked_for_soon_after_a_404() {
    let (defined, say_definitions) = waiting();
    list(&say_definitions, &[NAME]);
    for unserved in [defined, Unserved::new(None)] {
        let (say, said) = unbounded();
        let what = "kind".to_owned();
        let kind = cache::follow_kind(what, said, unserved, Installed::version, |_| {});
        list(&say, &[]);
        for _ in 0..14 {
            broken(&say, 404);
            tokio::time::sleep(3600 * SECOND).await;
        }
        broken(&say, 404);
        change(&say, "late", "1");
        tokio::time::sleep(SECOND).await;
        let late = kind.get(&ObjectKey::new("", "late"));
        assert!(late.is_some(), "nothing failed for an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_that_can_no_longer_be_watched_are_unknown() {
    for code in [403, 500] {
        let (mut unserved, say) = waiting();
        list(&say, &["egressservices.k8s.ovn.org"]);
        assert!(waits(&mut unserved).await >= 600 * SECOND, "it is absent");
        let after = hears(&mut unserved, 100 * SECOND, || broken(&say, code)).await;
        assert!(after <= 10 * SECOND, "{code}: {after:?}");
        // As long as it fails.
        let fails = async {
            for _ in 0..60 {
                broken(&say, code);
                tokio::time::sleep(10 * SECOND).await;
            }
        };
        let asks = async {
            for _ in 0..16 {
                let alone = waits(&mut unserved).await;
                assert!(alone <= 30 * SECOND, "{code}: {alone:?}");
            }
        };
        tokio::join!(fails, asks);
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_are_known_again_once_their_watch_says_something_or_is_sound_in_silence() {
    let (mut unserved, say) = waiting();
    list(&say, &[]);
    let other = "egressservices.k8s.ovn.org";
    assert!(waits(&mut unserved).await >= 600 * SECOND);
    // A short break brings nobody to ask.
    let after = hears(&mut unserved, 100 * SECOND, || {
        broken(&say, 500);
        change(&say, other, "2");
    });
    assert!(after.await >= 500 * SECOND);
    broken(&say, 500);
    let mut by_clock = 0;
    while waits(&mut unserved).await <= 30 * SECOND {
        by_clock += 1;
        assert!(by_clock < 30, "nothing failed for long");
    }
    assert!(by_clock > 2, "{by_clock}");
    // Whoever waits by the long clock hears of a definition as before.
    let after = hears(&mut unserved, 100 * SECOND, || change(&say, NAME, "3")).await;
    assert!(after <= SECOND / 5, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn definitions_whose_watch_breaks_again_and_again_defer_no_question_for_ever() {
    let (mut unserved, say) = waiting();
    list(&say, &[NAME]);
    for _ in 0..12 {
        waits(&mut unserved).await;
    }
    let flaps = async {
        for number in 0..100 {
            broken(&say, 500);
            tokio::time::sleep(3 * SECOND).await;
            change(&say, "other", &number.to_string());
            tokio::time::sleep(3 * SECOND).await;
        }
    };
    let asks = async {
        for _ in 0..3 {
            let alone = waits(&mut unserved).await;
            let seldom = 2 * SECOND..=36 * SECOND;
            assert!(seldom.contains(&alone), "{alone:?}");
        }
    };
    tokio::join!(flaps, asks);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_all_that_is_told_ends_no_wait() {
    let (mut unserved, say) = waiting();
    list(&say, &[]);
    let after = hears(&mut unserved, 100 * SECOND, || drop(say)).await;
    assert!(after >= 500 * SECOND, "{after:?}");
}
