//! Managers with nothing to do, and with kinds that are not installed: what they ask the API server for, and what they notice.
//! In: the audit log. Out: each request that is not one of those that are due.
//! Invariant: every verb counts, reads too.
//! Not here: writes of a quiet cluster by anybody else (the lab).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use super::events::without;
use super::process::{Daemon, MANAGED, settled, text};

/// The replicas by the uid of their account: the one that leads, and one that waits for leadership.
const MANAGER: &str = "cluster-manager";
const STANDBY: &str = "cluster-manager-b";
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

/// What somebody, by the uid of the account, asked for, the oldest first.
fn requests(api: &ApiServer, uid: &str) -> Vec<Request> {
    let all = api.audit_log().into_iter();
    let of_user = all.filter(|event| text(event, "/user/uid") == uid);
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

/// A replica that asks for OpenShift's operator object, too.
fn on_openshift(api: &ApiServer, identity: &str, uid: &str) -> Daemon {
    let text = format!("{MANAGED}[openshift]\nenable = true\n");
    Daemon::start(api, identity, &api.kubeconfig(uid), &text)
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

/// What one replica asked for in the quiet time between two moments.
struct Quiet {
    of_lease: BTreeMap<String, usize>,
    others: Vec<Request>,
    /// What it watched when that time began.
    watched: BTreeSet<String>,
}

impl Quiet {
    fn of(api: &ApiServer, uid: &str, (begin, end): (&str, &str)) -> Self {
        let all = requests(api, uid);
        let open = |r: &&Request| r.verb == "watch" && r.code == 200 && *r.at < *begin;
        let watched = all.iter().filter(open).map(|r| r.path.clone()).collect();
        let quiet = all.into_iter().filter(|r| *begin < *r.at && *r.at < *end);
        let (lease, others): (Vec<_>, Vec<_>) = quiet.partition(|r| r.path == LEASE);
        let mut of_lease = BTreeMap::new();
        for request in lease {
            *of_lease.entry(request.verb).or_default() += 1;
        }
        Self {
            of_lease,
            others,
            watched,
        }
    }

    /// Of the Lease it asked with these verbs alone, every two seconds each; beside that it began watches again that were open,
    /// when the server ended them after a minute.
    fn assert_only(&self, verbs: &[&str]) {
        let seen: Vec<&str> = self.of_lease.keys().map(String::as_str).collect();
        assert_eq!(seen, verbs, "{:?}", self.of_lease);
        let paced = |count: &usize| (25..=31).contains(count);
        assert!(self.of_lease.values().all(paced), "{:?}", self.of_lease);
        assert!(self.watched.contains(DEFINITIONS), "{:?}", self.watched);
        let mut again = BTreeMap::new();
        let mut wrong = Vec::new();
        for request in &self.others {
            let count: &mut usize = again.entry(&request.path).or_default();
            *count += 1;
            // The definition of this one was deleted while it was watched.
            let is_gone = request.path.ends_with("/bgpsessionstates");
            let known = self.watched.contains(&request.path) && !is_gone;
            let due = request.verb == "watch" && request.code == 200 && known;
            if !due || *count > 2 {
                wrong.push(request);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(!again.is_empty(), "watches are ended by the server");
    }
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
    for name in ["openshift-frr-k8s", "openshift-ovn-kubernetes"] {
        api.kubectl(&["create", "namespace", name]);
    }
    let daemon = on_openshift(&api, "a", MANAGER);
    settled(&api, 2, 30);
    let standby = on_openshift(&api, "b", STANDBY);
    for replica in [&daemon, &standby] {
        missing(replica, "egressips", 1.0, 20);
        missing(replica, "networks.operator.openshift.io", 1.0, 20);
    }
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
    // A watch is in the log when it begins, and again when it ends: of a request only its reception is omitted.
    drop((standby, daemon));
    std::thread::sleep(Duration::from_secs(1));
    let between = (begin.as_str(), end.as_str());
    Quiet::of(&api, MANAGER, between).assert_only(&["get", "update"]);
    Quiet::of(&api, STANDBY, between).assert_only(&["get"]);
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
