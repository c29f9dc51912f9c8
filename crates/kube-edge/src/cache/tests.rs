//! What a cache tells, event by event.

use std::time::Duration;

use super::health::*;
use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

fn object(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{name}"));
    object.data = Some([("v".to_owned(), value.to_owned())].into());
    object
}

fn decode(object: &ConfigMap) -> String {
    object
        .data
        .as_ref()
        .map(|d| d["v"].clone())
        .unwrap_or_default()
}

#[test]
fn a_cache_tells_changes_of_the_decoded_value_only_and_replaces_itself_in_one_step() {
    let inner = RwLock::new(Inner {
        map: BTreeMap::new(),
        ready: false,
        revision: 0,
        refused: None,
    });
    let mut fresh = BTreeMap::new();
    // What was made of the map is asked for by its revision: it moves with what is reported, and never without.
    let revision = || inner.read().unwrap().revision;
    let mut go = |event| {
        let before = revision();
        let reported = step(&inner, &mut fresh, event, decode);
        assert_eq!(revision() > before, !reported.is_empty());
        reported
    };
    let reported = |names: &[&str]| {
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
    assert_eq!(go(Event::Apply(object("a", "2"))), reported(&["a"]));
    assert_eq!(go(Event::Apply(object("b", "1"))), reported(&["b"]));
    // The watch restarts: b is gone meanwhile, c is new, a is the same.
    assert!(go(Event::Init).is_empty());
    go(Event::InitApply(object("a", "2")));
    go(Event::InitApply(object("c", "1")));
    assert_eq!(
        inner.read().unwrap().map.len(),
        2,
        "the old state is served until the listing is complete"
    );
    assert_eq!(go(Event::InitDone), reported(&["b", "c"]));
    assert_eq!(go(Event::Delete(object("c", "1"))), reported(&["c"]));
    assert!(go(Event::Delete(object("c", "1"))).is_empty());
}

type Times = std::sync::Arc<std::sync::Mutex<Vec<Instant>>>;

/// A cache whose API server answers each call with `code`, and when it was called.
fn refused(code: u16, calls: usize) -> (Cache<String>, Times, tokio::sync::oneshot::Receiver<()>) {
    let (service, mut handle) = tower_test::mock::pair::<
        http::Request<kube::client::Body>,
        http::Response<kube::client::Body>,
    >();
    let times = Times::default();
    let seen = std::sync::Arc::clone(&times);
    let (full, done) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut full = Some(full);
        while let Some((_, send)) = handle.next_request().await {
            let count = {
                let mut seen = seen.lock().unwrap();
                seen.push(Instant::now());
                seen.len()
            };
            let status = format!(
                r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"x","code":{code}}}"#
            );
            let response = http::Response::builder().status(code);
            send.send_response(response.body(status.into_bytes().into()).unwrap());
            if count == calls {
                full.take().unwrap().send(()).unwrap_or_default();
            }
        }
    });
    let api: Api<ConfigMap> = Api::namespaced(kube::Client::new(service, "ns"), "ns");
    (watch(api, None, decode, |_| {}), times, done)
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_a_listing_fails_and_two_caches_do_not_fail_in_step() {
    for code in [403, 404, 429, 500, 503] {
        let (_a, a, done_a) = refused(code, 20);
        let (_b, b, done_b) = refused(code, 20);
        done_a.await.unwrap();
        done_b.await.unwrap();
        let gaps = |times: &Times| -> Vec<Duration> {
            let times = times.lock().unwrap();
            times.windows(2).map(|w| w[1] - w[0]).collect()
        };
        let (a, b) = (gaps(&a), gaps(&b));
        let (first, longest) = match code {
            403 | 404 => (LONGEST_PAUSE, LONGEST_REFUSED),
            _ => (FIRST_PAUSE, LONGEST_PAUSE),
        };
        for gaps in [&a, &b] {
            assert!(gaps[0] <= first, "{code}: {gaps:?}");
            let late = &gaps[8..];
            assert!(
                late.iter().all(|g| (longest / 2..=longest).contains(g)),
                "{code}: {gaps:?}"
            );
        }
        assert_ne!(a[..18], b[..18], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_missing_or_forbidden_is_known_as_such_and_a_faulty_server_says_nothing() {
    for (code, known) in [(404, Some(404)), (403, Some(403)), (500, None), (429, None)] {
        let (cache, _, done) = refused(code, 3);
        done.await.unwrap();
        assert_eq!((cache.refused(), cache.ready()), (known, false), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_once_a_watch_has_worked_for_a_while() {
    let mut pauses = Pauses::new(Unserved::new(None));
    let wait = async |pauses: &mut Pauses| {
        let begun = Instant::now();
        pauses.after(&watcher::Error::NoResourceVersion).await;
        begun.elapsed()
    };
    for _ in 0..8 {
        pauses.works();
        wait(&mut pauses).await;
    }
    assert!(
        wait(&mut pauses).await > Duration::from_secs(2),
        "what fails at once again does not work"
    );
    pauses.works();
    tokio::time::sleep(SOUND).await;
    assert!(wait(&mut pauses).await <= FIRST_PAUSE);
    for _ in 0..8 {
        wait(&mut pauses).await;
    }
    tokio::time::sleep(SOUND_IN_SILENCE).await;
    assert!(
        wait(&mut pauses).await <= FIRST_PAUSE,
        "nothing changed for long, and nothing failed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_may_not_begin_again_is_tried_as_seldom_as_a_listing_that_is_refused() {
    let refused = |code| {
        let status = kube::core::Status::failure("no", "reason").with_code(code);
        watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status)))
    };
    let mut pauses = Pauses::new(Unserved::new(None));
    let wait = async |pauses: &mut Pauses, code| {
        let begun = Instant::now();
        pauses.after(&refused(code)).await;
        begun.elapsed()
    };
    assert!(wait(&mut pauses, 403).await <= LONGEST_PAUSE);
    for _ in 0..8 {
        wait(&mut pauses, 403).await;
    }
    let late = wait(&mut pauses, 403).await;
    assert!((LONGEST_REFUSED / 2..=LONGEST_REFUSED).contains(&late));
    tokio::time::sleep(SOUND_IN_SILENCE).await;
    assert!(wait(&mut pauses, 403).await <= LONGEST_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn a_watch_fails_from_its_error_until_it_says_something_or_is_silent_for_long() {
    let (say, said) = futures::channel::mpsc::unbounded();
    let cache = follow("maps".to_owned(), said, decode, |_| {});
    let breaks = || {
        let status = kube::core::Status::failure("no", "reason").with_code(500);
        let error = watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status)));
        say.unbounded_send(Err(error)).unwrap();
    };
    let after = async |time| {
        tokio::time::sleep(time).await;
        cache.failing()
    };
    say.unbounded_send(Ok(Event::Init)).unwrap();
    say.unbounded_send(Ok(Event::InitDone)).unwrap();
    assert!(!after(FIRST_PAUSE).await);
    breaks();
    assert!(after(FIRST_PAUSE).await);
    say.unbounded_send(Ok(Event::Init)).unwrap();
    assert!(after(FIRST_PAUSE).await, "nothing is listed yet");
    say.unbounded_send(Ok(Event::Apply(object("a", "1"))))
        .unwrap();
    assert!(!after(FIRST_PAUSE).await);
    breaks();
    assert!(after(SOUND_IN_SILENCE / 2).await);
    assert!(!after(SOUND_IN_SILENCE).await);
}
