//! The elector against a scripted API server, under paused time.

use super::*;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower_test::mock::Handle;

#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    writes: usize,
    conflict: bool,
    /// So many writes are still answered with a conflict: the lease was written in between, by this holder.
    late: usize,
    by: &'static str,
    down: bool,
    /// Calls are taken and never answered.
    silent: bool,
    /// Seconds from a call to its answer.
    slow: u64,
    /// Writes are answered as if they were done, with the lease as it was.
    lies: bool,
}

#[expect(clippy::too_many_lines, reason = "one sequence of events")]
async fn serve(mut handle: Handle<Request<Body>, Response<Body>>, server: Arc<Mutex<Server>>) {
    let mut unanswered = Vec::new();
    while let Some((request, send)) = handle.next_request().await {
        let (silent, slow) = {
            let s = server.lock().unwrap();
            (s.silent, s.slow)
        };
        if silent {
            unanswered.push(send);
            continue;
        }
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await.unwrap();
        let (code, answer) = {
            let mut s = server.lock().unwrap();
            if s.down {
                (
                    500,
                    json!({"kind": "Status", "code": 500, "status": "Failure", "message": "down", "reason": "x"}),
                )
            } else if method == http::Method::GET {
                match &s.lease {
                    Some(lease) => (200, lease.clone()),
                    None => (
                        404,
                        json!({"kind": "Status", "code": 404, "status": "Failure", "message": "", "reason": "NotFound"}),
                    ),
                }
            } else if s.late > 0 {
                s.late -= 1;
                s.version += 1;
                let (by, version) = (s.by, s.version.to_string());
                if let Some(lease) = &mut s.lease {
                    lease["metadata"]["resourceVersion"] = version.into();
                    lease["spec"]["holderIdentity"] = by.into();
                }
                (
                    409,
                    json!({"kind": "Status", "code": 409, "status": "Failure", "message": "", "reason": "Conflict"}),
                )
            } else if s.lies {
                s.writes += 1;
                (200, s.lease.clone().unwrap_or_else(|| foreign("")))
            } else if s.conflict {
                (
                    409,
                    json!({"kind": "Status", "code": 409, "status": "Failure", "message": "", "reason": "Conflict"}),
                )
            } else {
                let mut lease: Value = serde_json::from_slice(&body).unwrap();
                s.version += 1;
                s.writes += 1;
                lease["metadata"]["resourceVersion"] = s.version.to_string().into();
                s.lease = Some(lease.clone());
                (200, lease)
            }
        };
        let response = Response::builder()
            .status(StatusCode::from_u16(code).unwrap())
            .body(Body::from(serde_json::to_vec(&answer).unwrap()))
            .unwrap();
        secs(slow).await;
        send.send_response(response);
    }
}

struct Fixture {
    server: Arc<Mutex<Server>>,
    leadership: Leadership,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: Server) -> Fixture {
    let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let server = Arc::new(Mutex::new(server));
    tokio::spawn(serve(handle, Arc::clone(&server)));
    let elector = Elector::new(kube::Client::new(service, "ns"), "ns", "leader", "me");
    let leadership = Leadership::new();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(elector.run(leadership.clone(), stopped));
    Fixture {
        server,
        leadership,
        stop,
        task,
    }
}

fn foreign(renew: &str) -> Value {
    json!({"metadata": {"name": "leader", "resourceVersion": "7"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": renew}})
}

async fn secs(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_taken_at_once_and_given_back_at_the_end() {
    let b = start(Server::default());
    secs(1).await;
    assert!(b.leadership.leads());
    b.stop.send(true).unwrap();
    b.task.await.unwrap();
    assert!(!b.leadership.leads());
    assert_eq!(
        b.server.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"],
        ""
    );
}

/// Whoever holds it may not know yet that it is gone, and leads until it does not come back with a renewal.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_is_not_taken_while_its_last_holder_may_still_lead() {
    let b = start(Server {
        lease: Some(foreign("2026-01-01T00:00:00.000000Z")),
        ..Server::default()
    });
    secs(1).await;
    b.server.lock().unwrap().lease = None;
    secs(13).await;
    assert!(
        !b.leadership.leads(),
        "14 s after it was seen to be renewed"
    );
    assert_eq!(b.server.lock().unwrap().writes, 0);
    secs(4).await;
    assert!(b.leadership.leads());
    // Its own it makes again at once.
    b.server.lock().unwrap().lease = None;
    secs(3).await;
    assert!(b.leadership.leads());
    assert!(b.server.lock().unwrap().lease.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_back_and_deleted_is_taken_at_once() {
    let mut free = foreign("2026-01-01T00:00:00.000000Z");
    let b = start(Server {
        lease: Some(free.clone()),
        ..Server::default()
    });
    secs(1).await;
    free["spec"]["holderIdentity"] = "".into();
    {
        let mut server = b.server.lock().unwrap();
        (server.lease, server.conflict) = (Some(free), true);
    }
    secs(2).await;
    {
        let mut server = b.server.lock().unwrap();
        (server.lease, server.conflict) = (None, false);
    }
    secs(2).await;
    assert!(b.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn an_old_renew_time_alone_takes_nothing_only_what_we_have_seen_unchanged_for_its_whole_life()
{
    let b = start(Server {
        lease: Some(foreign("1999-01-01T00:00:00.000000Z")),
        ..Server::default()
    });
    secs(14).await;
    assert!(!b.leadership.leads());
    secs(5).await;
    assert!(b.leadership.leads());
    assert_eq!(
        b.server.lock().unwrap().lease.as_ref().unwrap()["spec"]["leaseTransitions"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_never_taken() {
    let b = start(Server {
        lease: Some(foreign("2026-01-01T00:00:00.000000Z")),
        ..Server::default()
    });
    for n in 0..60 {
        b.server.lock().unwrap().lease = Some(foreign(&format!("2026-01-01T00:00:{n:02}.000000Z")));
        secs(1).await;
        assert!(!b.leadership.leads());
    }
    assert_eq!(b.server.lock().unwrap().writes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_a_lost_race() {
    let b = start(Server {
        conflict: true,
        ..Server::default()
    });
    secs(30).await;
    assert!(!b.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_our_own_late_write_ends_no_term() {
    for late in [1, 2, 3] {
        let b = start(Server::default());
        secs(1).await;
        let term = b.leadership.term();
        assert!(term.is_some());
        {
            let mut server = b.server.lock().unwrap();
            (server.late, server.by) = (late, "me");
        }
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(b.leadership.term(), term, "{late}");
        }
        assert_eq!(b.server.lock().unwrap().late, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_another_holder_ends_leading_as_soon_as_it_is_read() {
    let b = start(Server::default());
    secs(1).await;
    assert!(b.leadership.leads());
    {
        let mut server = b.server.lock().unwrap();
        (server.late, server.by) = (1, "other");
    }
    // The next renewal is at 2 s.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(!b.leadership.leads());
    secs(5).await;
    assert!(!b.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_leading_before_anybody_may_take_over() {
    let b = start(Server::default());
    secs(1).await;
    assert!(b.leadership.leads());
    b.server.lock().unwrap().down = true;
    secs(13).await;
    assert!(!b.leadership.leads());
    b.server.lock().unwrap().down = false;
    secs(3).await;
    assert!(b.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn leading_ends_ten_seconds_after_the_last_renewal_was_sent_whatever_the_server_does() {
    for (silent, down) in [(true, false), (false, true)] {
        let b = start(Server::default());
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(b.leadership.leads(), "renewed at 0 s");
        {
            let mut server = b.server.lock().unwrap();
            server.silent = silent;
            server.down = down;
        }
        tokio::time::sleep(Duration::from_millis(9400)).await;
        assert!(b.leadership.leads(), "9.9 s");
        let reported = {
            let leadership = b.leadership.clone();
            tokio::spawn(async move {
                let term = leadership.term();
                leadership.changed(term).await;
                Instant::now()
            })
        };
        tokio::time::sleep(Duration::from_millis(101)).await;
        assert!(!b.leadership.leads(), "10 s");
        assert!(reported.await.unwrap().elapsed() < Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_when_it_was_sent_not_from_its_answer() {
    let b = start(Server {
        slow: 2,
        ..Server::default()
    });
    // Asked at 0 s, answered at 2 s; created at 2 s, answered at 4 s.
    tokio::time::sleep(Duration::from_millis(4100)).await;
    assert!(b.leadership.leads());
    b.server.lock().unwrap().silent = true;
    tokio::time::sleep(Duration::from_millis(7800)).await;
    assert!(b.leadership.leads(), "11.9 s");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!b.leadership.leads(), "12.1 s");
}

#[tokio::test(start_paused = true)]
async fn closed_leadership_writes_nothing_and_is_still_renewed_until_it_is_given_back() {
    let b = start(Server::default());
    secs(1).await;
    assert!(b.leadership.may_write());
    b.leadership.close();
    secs(20).await;
    assert!(!b.leadership.may_write() && b.leadership.leads());
    b.stop.send(true).unwrap();
    b.task.await.unwrap();
    assert!(!b.leadership.leads());
}

#[tokio::test(start_paused = true)]
async fn who_is_told_that_a_write_is_done_and_shown_anothers_lease_does_not_lead() {
    let expired = foreign("2026-01-01T00:00:00.000000Z");
    let b = start(Server {
        lease: Some(expired),
        lies: true,
        ..Server::default()
    });
    secs(60).await;
    assert!(b.server.lock().unwrap().writes > 1, "it tries");
    assert!(!b.leadership.leads());
    b.server.lock().unwrap().lies = false;
    secs(20).await;
    assert!(b.leadership.leads());
    // A leader that is lied to stops at once.
    let mine = b.server.lock().unwrap().lease.clone();
    {
        let mut server = b.server.lock().unwrap();
        server.lies = true;
        if let Some(lease) = &mut server.lease {
            lease["spec"]["holderIdentity"] = "other".into();
        }
    }
    secs(4).await;
    assert!(!b.leadership.leads(), "{mine:?}");
}

#[tokio::test(start_paused = true)]
async fn the_holders_clock_may_jump_as_it_likes() {
    let times = [
        "2026-01-01T00:00:00.000000Z",
        "2036-01-01T00:00:00.000000Z",
        "1996-01-01T00:00:00.000000Z",
    ];
    let b = start(Server {
        lease: Some(foreign(times[0])),
        ..Server::default()
    });
    for time in times.iter().cycle().skip(1).take(9) {
        secs(10).await;
        assert!(!b.leadership.leads(), "before {time}");
        let mut server = b.server.lock().unwrap();
        server.version += 1;
        server.lease = Some(foreign(time));
    }
    secs(14).await;
    assert!(!b.leadership.leads());
    secs(5).await;
    assert!(
        b.leadership.leads(),
        "it was not renewed for its whole life"
    );
}
