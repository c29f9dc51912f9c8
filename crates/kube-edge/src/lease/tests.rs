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
    down: bool,
}

async fn serve(mut handle: Handle<Request<Body>, Response<Body>>, server: Arc<Mutex<Server>>) {
    while let Some((request, send)) = handle.next_request().await {
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
        send.send_response(response);
    }
}

struct Bench {
    server: Arc<Mutex<Server>>,
    leads: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: Server) -> Bench {
    let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let server = Arc::new(Mutex::new(server));
    tokio::spawn(serve(handle, Arc::clone(&server)));
    let elector = Elector::new(kube::Client::new(service, "ns"), "ns", "leader", "me");
    let (tx, leads) = watch::channel(false);
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(elector.run(tx, stopped));
    Bench {
        server,
        leads,
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
    assert!(*b.leads.borrow());
    b.stop.send(true).unwrap();
    b.task.await.unwrap();
    assert!(!*b.leads.borrow());
    assert_eq!(
        b.server.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"],
        ""
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_renew_time_alone_takes_nothing_only_what_we_have_seen_unchanged_for_its_whole_life()
{
    let b = start(Server {
        lease: Some(foreign("1999-01-01T00:00:00.000000Z")),
        ..Server::default()
    });
    secs(14).await;
    assert!(!*b.leads.borrow());
    secs(5).await;
    assert!(*b.leads.borrow());
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
        assert!(!*b.leads.borrow());
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
    assert!(!*b.leads.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_leading_before_anybody_may_take_over() {
    let b = start(Server::default());
    secs(1).await;
    assert!(*b.leads.borrow());
    b.server.lock().unwrap().down = true;
    secs(13).await;
    assert!(!*b.leads.borrow());
    b.server.lock().unwrap().down = false;
    secs(3).await;
    assert!(*b.leads.borrow());
}
