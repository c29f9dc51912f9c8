//! Which pods hold an object, and when they are asked for.

use super::*;
use http::{Request, Response};
use kube::client::Body;

#[test]
fn a_pod_uses_what_its_annotation_names_and_without_one_the_primary_network() {
    let pod = |annotation: Option<&str>| ObjectMeta {
        annotations: annotation.map(|text| [(POD_NETWORKS.to_owned(), text.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let key = ObjectKey::new("shop", "amber");
    let named = r#"{"default":{},"shop/amber":{"role":"primary"}}"#;
    for (pod, primary, wanted) in [
        (pod(Some(named)), true, true),
        (pod(Some(named)), false, true),
        (pod(Some(r#"{"default":{}}"#)), true, false),
        (pod(None), true, true),
        (pod(None), false, false),
        (pod(Some("no JSON")), true, true),
    ] {
        assert_eq!(uses(&pod, &key, primary), wanted, "{pod:?}");
    }
}

#[test]
fn what_is_held_is_asked_for_less_and_less_often_and_at_once_where_it_changed() {
    let key = ObjectKey::new("shop", "amber");
    let entry = |deleting: bool| Entry {
        uid: "u".to_owned(),
        version: "1".to_owned(),
        value: Attachment {
            deleting,
            ..Attachment::default()
        },
    };
    let mut holding = Holding::default();
    let mut now = Instant::now();
    assert!(holding.known(&key, &entry(false), now).is_none());
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        holding.hold(&key, entry(false), "pod".to_owned(), now);
        assert!(holding.known(&key, &entry(true), now).is_none());
        let until = now + Duration::from_secs(pause);
        let before = until - Duration::from_millis(1);
        assert!(holding.known(&key, &entry(false), before).is_some());
        assert!(holding.known(&key, &entry(false), until).is_none());
        now = until;
    }
    holding.hold(&key, entry(true), "pod".to_owned(), now);
    let until = now + Duration::from_secs(1);
    assert!(holding.known(&key, &entry(true), until).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_asked_for_a_few_namespaces_and_holds_a_pass_up_once()
{
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let calls = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&calls);
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Some((request, send)) = handle.next_request().await {
            seen.lock().unwrap().push(request.uri().to_string());
            unanswered.push(send);
        }
    });
    let client = kube::Client::new(service, "ns");
    let asked = (0..20)
        .map(|n| (format!("ns-{n:02}"), Vec::new()))
        .collect();
    let begun = Instant::now();
    let answers = ask(&client, asked).await;
    assert_eq!(begun.elapsed().as_secs(), CALL_DEADLINE.as_secs());
    let left = answers.iter().filter(|(_, _, users)| users.is_none());
    assert_eq!((answers.len(), left.count()), (20, 20 - AT_ONCE));
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), AT_ONCE);
    assert!(calls[0].contains("limit=500"), "{calls:?}");
}
