//! Two replicas: only the one that leads at that moment writes.

use std::process::Command;
use std::time::{Duration, Instant};

use kube_tests::{ApiServer, tools, until};

use super::process::{Daemon, MANAGED, generated, holder, settled, text, writes_of};
use super::proxy::Proxy;

const NODES: usize = 200;

fn leads(api: &ApiServer, who: &str, seconds: u64) {
    until(&format!("{who} leads"), seconds, || match holder(api) {
        h if h == who => Ok(()),
        h => Err(h),
    });
}

/// Nodes with all that they need, a RouteAdvertisements, and a source with one neighbor: 200 objects to write.
fn much_to_write(api: &ApiServer) -> String {
    let node = |n: usize| {
        let annotations = format!(
            "{{k8s.ovn.org/node-id: '{}', k8s.ovn.org/node-subnets: '{{\"default\":[\"10.128.{n}.0/24\"]}}'}}",
            n + 2
        );
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{n:03}, labels: {{kubernetes.io/hostname: n{n:03}}}, annotations: {annotations}}}\n\
             status: {{addresses: [{{type: InternalIP, address: 172.30.0.{}}}]}}\n---\n",
            n + 1
        )
    };
    let mut all: String = (0..NODES).map(node).collect();
    all.push_str(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: router, namespace: frr-k8s-system, labels: {use: me}}\n\
         spec: {bgp: {routers: [{asn: 64777, neighbors: [{address: 172.31.0.1, asn: 65001}]}]}}\n---\n\
         apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: mine}\n\
         spec: {networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {matchLabels: {use: me}}, advertisements: [PodNetwork]}\n",
    );
    api.try_kubectl_with(&["create", "-f", "-"], &all).unwrap();
    super::process::unmanaged()
}

/// Generated objects that a replica has written so far.
fn objects(api: &ApiServer, uid: &str) -> usize {
    let all = writes_of(api, uid);
    let ours = all
        .iter()
        .filter(|(w, _)| w.starts_with("patch frrconfigurations/ovnk-generated"));
    ours.count()
}

/// Name and resource version of each generated object: whether anybody wrote one.
fn versions_of_generated(api: &ApiServer) -> Vec<(String, String)> {
    let all = api.items("frrconfigurations");
    let version = |o: &serde_json::Value| {
        let [name, version] = ["/metadata/name", "/metadata/resourceVersion"].map(|p| text(o, p));
        name.starts_with("ovnk-generated-")
            .then_some((name, version))
    };
    all.iter().filter_map(version).collect()
}

/// This moment, as the audit log writes it (RFC 3339, UTC, six digits of a second).
fn now() -> String {
    let date = Command::new("date").args(["-u", "+%FT%T.%6NZ"]).output();
    let text = String::from_utf8(date.unwrap().stdout).unwrap();
    text.trim().to_owned()
}

/// Waits for the middle of the writes.
fn in_the_middle(api: &ApiServer, daemon: &Daemon) {
    let end = Instant::now() + Duration::from_secs(60);
    while objects(api, "cluster-manager") < 50 {
        assert!(Instant::now() < end, "{}", daemon.said());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_leader_that_was_frozen_in_the_middle_of_its_writes_writes_nothing_more_once_another_leads() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let settings = much_to_write(&api);
    let accounts = ["cluster-manager", "cluster-manager-b"].map(|user| api.kubeconfig(user));
    let first = Daemon::start(&api, "first", &accounts[0], &settings);
    leads(&api, "first", 20);
    let second = Daemon::start(&api, "second", &accounts[1], &settings);
    in_the_middle(&api, &first);
    first.signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    let written = objects(&api, "cluster-manager");
    assert!(
        (50..NODES).contains(&written),
        "it was frozen in the middle, not after {written}"
    );
    leads(&api, "second", 25);
    until("the second writes the rest", 60, || {
        match generated(&api).len() {
            NODES => Ok(()),
            count => Err(count.to_string()),
        }
    });
    assert!(objects(&api, "cluster-manager-b") >= NODES - written);
    let versions = versions_of_generated(&api);
    let thawed = now();
    first.signal("-CONT");
    std::thread::sleep(Duration::from_secs(8));
    // A request whose headers had gone out before the freeze ends meanwhile, unanswered: the server never got its body.
    let new: Vec<_> = api
        .audited()
        .iter()
        .filter(|e| text(e, "/user/uid") == "cluster-manager")
        .filter(|e| text(e, "/objectRef/resource") != "leases")
        .filter(|e| text(e, "/requestReceivedTimestamp") >= thawed)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        new, [""; 0],
        "the old leader wrote after it had lost its lease"
    );
    assert_eq!(versions_of_generated(&api), versions);
    until("it knows that it does not lead", 5, || {
        match first.metric("noverlay_cluster_manager_leader")? {
            0.0 => Ok(()),
            other => Err(other.to_string()),
        }
    });
    drop(second);
    // It is alive and leads again when it is its turn.
    leads(&api, "first", 30);
}

#[test]
fn leading_ends_in_time_beside_an_api_server_that_takes_calls_and_never_answers() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let proxy = Proxy::start(&api, "cluster-manager", Duration::ZERO);
    let first = Daemon::start(&api, "first", &proxy.kubeconfig, MANAGED);
    settled(&api, 2, 30);
    let account = api.kubeconfig("cluster-manager-b");
    let second = Daemon::start(&api, "second", &account, MANAGED);
    std::thread::sleep(Duration::from_secs(2));
    proxy.silence(true);
    let begun = Instant::now();
    let leader = || first.metric("noverlay_cluster_manager_leader");
    until("it leads no longer", 11, || match leader()? {
        0.0 => Ok(()),
        other => Err(other.to_string()),
    });
    let took = begun.elapsed();
    assert!(
        holder(&api) == "first",
        "somebody took over before it ended, after {took:?}"
    );
    let before = writes_of(&api, "cluster-manager").len();
    let (_, body) = first.get("/metrics").unwrap();
    assert!(
        !body.contains("noverlay_route_advertisements_condition{"),
        "{body}"
    );
    leads(&api, "second", 20);
    api.node("n3", "172.30.0.3");
    settled(&api, 3, 30);
    proxy.silence(false);
    std::thread::sleep(Duration::from_secs(10));
    let new = writes_of(&api, "cluster-manager").split_off(before);
    assert_eq!(new, []);
    assert_eq!(leader(), Ok(0.0));
    drop(second);
}

#[test]
fn a_leader_that_is_asked_to_stop_gives_its_lease_back_after_its_last_write() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let settings = much_to_write(&api);
    let account = api.kubeconfig("cluster-manager");
    let first = Daemon::start(&api, "first", &account, &settings);
    in_the_middle(&api, &first);
    first.signal("-TERM");
    let begun = Instant::now();
    let (ok, said) = first.ended();
    let took = begun.elapsed();
    assert!(ok, "{said}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(holder(&api), "", "{said}");
    let all = api.audited();
    let mut ours = all
        .iter()
        .filter(|e| text(e, "/user/uid") == "cluster-manager");
    let last = ours.next_back().unwrap();
    assert_eq!(text(last, "/objectRef/resource"), "leases", "{last}");
    let seen = generated(&api).len();
    assert!(
        seen < NODES,
        "it was reported in the middle, not after {seen}"
    );
}
