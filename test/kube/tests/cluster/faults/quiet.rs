//! A manager with nothing to do, and with kinds that are not installed: what it asks the API server for, and what it notices.
//! In: the audit log. Out: each request that is not one of those that are due.
//! Invariant: every verb counts, reads too.
//! Not here: writes of a quiet cluster by anybody else (the lab).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use super::events::without;
use super::process::{Daemon, MANAGED, settled, text};

const MANAGER: &str = "system:serviceaccount:noverlay-system:cluster-manager";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/noverlay-system/leases/noverlay-cluster-manager";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// One request: when it was received, verb and path, and the answer's code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    at: String,
    verb: String,
    path: String,
    code: u64,
}

/// What somebody asked for, the oldest first.
fn requests(api: &ApiServer, user: &str) -> Vec<Request> {
    let all = api.audit_log().into_iter();
    let of_user = all.filter(|event| text(event, "/user/username") == user);
    let request = |event: Value| {
        let path = text(&event, "/requestURI");
        let path = path.split('?').next().unwrap_or_default().to_owned();
        let request = Request {
            at: text(&event, "/requestReceivedTimestamp"),
            verb: text(&event, "/verb"),
            path,
            code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
        };
        (text(&event, "/auditID"), request)
    };
    // Stages of one request are one.
    let by_id: BTreeMap<String, Request> = of_user.map(request).collect();
    let sorted: BTreeSet<Request> = by_id.into_values().collect();
    sorted.into_iter().collect()
}

/// A moment as the API server's clock has it.
fn moment(api: &ApiServer, name: &str) -> String {
    api.kubectl(&["create", "configmap", name]);
    let end = format!("/{name}");
    until("it is in the audit log", 5, || {
        let all = api.audit_log();
        let mut made = all.iter().filter(|event| {
            text(event, "/verb") == "create" && text(event, "/objectRef/name") == name
                || text(event, "/requestURI").ends_with(&end)
        });
        let made = made.next().ok_or("it is not")?;
        Ok(text(made, "/requestReceivedTimestamp"))
    })
}

/// Deletes definitions; what would install each again.
fn take_away(api: &ApiServer, names: &[&str]) -> Vec<std::path::PathBuf> {
    let one = |name: &&str| {
        let file = api.path(&format!("{name}.yaml"));
        let text = api.output(&["get", "crd", name, "-o", "json"]);
        std::fs::write(&file, text).unwrap();
        api.kubectl(&["delete", "crd", name]);
        file
    };
    names.iter().map(one).collect()
}

/// Asks for OpenShift's operator object, too.
fn on_openshift(api: &ApiServer) -> Daemon {
    for name in ["openshift-frr-k8s", "openshift-ovn-kubernetes"] {
        api.kubectl(&["create", "namespace", name]);
    }
    let text = format!("{MANAGED}[openshift]\nenable = true\n");
    Daemon::start(api, "a", &api.kubeconfig("cluster-manager"), &text)
}

fn missing(daemon: &Daemon, kind: &str, value: f64, seconds: u64) {
    let series = format!("noverlay_cluster_manager_kind_missing{{kind=\"{kind}\"}}");
    until(&format!("{kind} missing: {value}"), seconds, || {
        let seen = daemon.metric(&series)?;
        let same = (seen - value).abs() < 0.5;
        same.then_some(()).ok_or(seen.to_string())
    });
}

/// Waits until the manager has written nothing for so long that every clock of its conditions has run out.
fn at_rest(api: &ApiServer) {
    let read = ["get", "list", "watch"];
    let mut last = (0, Instant::now());
    until("nothing is written", 90, || {
        let all = requests(api, MANAGER).into_iter();
        let writes = all.filter(|r| !read.contains(&r.verb.as_str()) && r.path != LEASE);
        let count = writes.count();
        if count != last.0 {
            last = (count, Instant::now());
        }
        let rests = last.1.elapsed() > Duration::from_secs(35);
        rests.then_some(()).ok_or(format!("{count} writes"))
    });
}

#[test]
fn a_quiet_minute_has_no_request_but_for_the_lease_and_for_watches_that_were_open() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let gone = take_away(
        &api,
        &["egressips.k8s.ovn.org", "frrnodestates.frrk8s.metallb.io"],
    );
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = on_openshift(&api);
    settled(&api, 2, 30);
    missing(&daemon, "egressips", 1.0, 20);
    missing(&daemon, "networks.operator.openshift.io", 1.0, 20);
    // One goes while it is watched.
    let unwatched = take_away(&api, &["bgpsessionstates.frrk8s.metallb.io"]);
    at_rest(&api);
    let begin = moment(&api, "quiet-begins");
    std::thread::sleep(Duration::from_secs(60));
    let end = moment(&api, "quiet-ends");
    // A kind that comes is noticed: before any clock would ask for it.
    api.kubectl(&["create", "-f", gone[0].to_str().unwrap()]);
    missing(&daemon, "egressips", 0.0, 2);
    api.kubectl(&["create", "-f", unwatched[0].to_str().unwrap()]);
    until("it is watched again", 2, || {
        let all = requests(&api, MANAGER);
        let mut again = all.iter().filter(|r| end < r.at && r.code == 200);
        let again = again.any(|r| r.path.ends_with("/bgpsessionstates"));
        again
            .then_some(())
            .ok_or_else(|| format!("{:?}", all.last()))
    });
    // Watches that are open are in the log when they end.
    drop(daemon);
    std::thread::sleep(Duration::from_secs(1));
    let all = requests(&api, MANAGER);
    let open = |r: &&Request| r.verb == "watch" && r.code == 200 && r.at < begin;
    let watched: BTreeSet<&str> = all.iter().filter(open).map(|r| r.path.as_str()).collect();
    assert!(watched.contains(DEFINITIONS), "{watched:?}");
    let quiet = all.iter().filter(|r| begin < r.at && r.at < end);
    let (of_lease, others): (Vec<_>, Vec<_>) = quiet.partition(|r| r.path == LEASE);
    assert!(of_lease.len() >= 5, "it lives: {of_lease:?}");
    let mut again = BTreeMap::new();
    let mut wrong = Vec::new();
    for request in others {
        let count: &mut usize = again.entry(&request.path).or_default();
        *count += 1;
        // The server ends a watch after a minute.
        let due = request.verb == "watch" && watched.contains(request.path.as_str());
        if !due || *count > 2 {
            wrong.push(request);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!again.is_empty(), "watches are ended by the server");
}

#[test]
fn where_definitions_may_not_be_read_a_kind_that_comes_is_noticed_by_the_clock() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let gone = take_away(&api, &["egressips.k8s.ovn.org"]);
    let patch = without(&api, "customresourcedefinitions");
    let role = ["patch", "clusterrole", "noverlay-cluster-manager"];
    api.kubectl(&[role.as_slice(), &["--type=json", "-p", &patch]].concat());
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    missing(&daemon, "egressips", 1.0, 20);
    let all = requests(&api, MANAGER);
    let refused = |r: &&Request| r.path == DEFINITIONS && r.code == 403;
    assert!(all.iter().any(|r| refused(&r)), "the right is taken away");
    api.kubectl(&["create", "-f", gone[0].to_str().unwrap()]);
    missing(&daemon, "egressips", 0.0, 30);
}
