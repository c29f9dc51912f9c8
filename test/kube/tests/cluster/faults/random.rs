//! Random changes of everything for three minutes (`NOVERLAY_RANDOM_SECONDS`), while the API server and the managers die and freeze.
//! In: a seed (`NOVERLAY_SEED`; printed). Out: at the end, what the planners still would write, and what a fresh manager writes.
//! Invariant: nothing; whatever happened on the way.
//! Not here: which single fault costs what (the other tests).
#![expect(clippy::print_stdout, reason = "what was done is told")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kube_tests::{ApiServer, tools, until};
use serde_json::{Value, json};
use testkit::rng::Rng;

use super::process::{Daemon, MANAGED};
use crate::harness::planned_writes;

/// How long changes go on, unless `NOVERLAY_RANDOM_SECONDS` says something else.
const CHANGES: u64 = 180;
/// How long nothing is written before all counts as done: longer than any pause between attempts.
const QUIET: Duration = Duration::from_secs(40);

const FRR: &str = "/apis/frrk8s.metallb.io/v1beta1/namespaces/frr-k8s-system/frrconfigurations";
const RAS: &str = "/apis/k8s.ovn.org/v1/routeadvertisements";
const CUDNS: &str = "/apis/k8s.ovn.org/v1/clusteruserdefinednetworks";
const EGRESS_IPS: &str = "/apis/k8s.ovn.org/v1/egressips";

/// Requests that were granted.
static GRANTED: AtomicU64 = AtomicU64::new(0);

/// A request with a JSON body; a random change goes on whether it was granted or not.
async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Option<Value> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", kind);
    let body = serde_json::to_vec(body).unwrap();
    let answer = client.request(request.body(body).unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(2), answer).await;
    let answer = answer.ok()?.ok()?;
    GRANTED.fetch_add(1, Ordering::Relaxed);
    Some(answer)
}

fn node(rng: &mut Rng) -> (String, Value) {
    let n = 1 + rng.below(9);
    let name = format!("n{n}");
    // Now and then two nodes have one address, or none.
    let last = if rng.percent(10) { 1 } else { n };
    let mut addresses = vec![json!({"type": "InternalIP", "address": format!("172.30.0.{last}")})];
    if rng.percent(5) {
        addresses.clear();
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", n % 3)}},
        "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    (name, object)
}

async fn of_nodes(client: &kube::Client, rng: &mut Rng) {
    let (name, object) = node(rng);
    let path = format!("/api/v1/nodes/{name}");
    match rng.below(8) {
        0 => drop(send(client, "DELETE", &path, &json!({})).await),
        1 => {
            let mark = json!({"spec": {"unschedulable": rng.percent(50)}});
            send(client, "PATCH", &path, &mark).await;
        }
        2 => {
            // Somebody's slip in what the manager itself writes.
            let value = *rng.pick(&[
                "{",
                "{\"default\":[\"10.128.1.0/24\"]}",
                "{\"default\":[\"10.200.0.0/24\"]}",
            ]);
            let slip = json!({"metadata": {"annotations": {"k8s.ovn.org/node-subnets": value}}});
            send(client, "PATCH", &path, &slip).await;
        }
        _ => {
            send(client, "POST", "/api/v1/nodes", &object).await;
            let status = json!({"status": object["status"]});
            send(client, "PATCH", &format!("{path}/status"), &status).await;
        }
    }
}

async fn of_networks(client: &kube::Client, rng: &mut Rng) {
    let n = rng.below(5);
    let name = format!("net{n}");
    let path = format!("{CUDNS}/{name}");
    match rng.below(6) {
        0 => drop(send(client, "DELETE", &path, &json!({})).await),
        1 => {
            let labels = json!({"metadata": {"labels": {"use": *rng.pick(&["pods", "none"])}}});
            send(client, "PATCH", &path, &labels).await;
        }
        2 => {
            let primary = rng.percent(70).then_some("");
            let labels = json!({"metadata": {"labels": {
                "tenant": format!("net{}", rng.below(5)),
                "k8s.ovn.org/primary-user-defined-network": primary,
            }}});
            let space = format!("/api/v1/namespaces/space{}", rng.below(4));
            send(client, "PATCH", &space, &labels).await;
        }
        _ => {
            // The last one overlaps the first.
            let second = if n == 4 { 60 } else { 60 + n };
            let routing = *rng.pick(&["Managed", "Unmanaged"]);
            let mut network = json!({
                "topology": "Layer3", "transport": "NoOverlay",
                "noOverlay": {"outboundSNAT": "Enabled", "routing": routing},
                "layer3": {"role": "Primary", "subnets": [{"cidr": format!("10.{second}.0.0/16"), "hostSubnet": 24}]},
            });
            match rng.below(6) {
                0 => {
                    network["transport"] = "Geneve".into();
                    network.as_object_mut().unwrap().remove("noOverlay");
                }
                1 => {
                    network = json!({"topology": "Layer2", "layer2": {"role": "Primary", "subnets": [format!("10.{second}.0.0/16")]}});
                }
                _ => {}
            }
            let object = json!({
                "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
                "metadata": {"name": name, "labels": {"use": "pods"}},
                "spec": {"namespaceSelector": {"matchLabels": {"tenant": name}}, "network": network},
            });
            send(client, "POST", CUDNS, &object).await;
        }
    }
}

async fn of_advertisements(client: &kube::Client, rng: &mut Rng) {
    let name = format!("ra{}", rng.below(3));
    let path = format!("{RAS}/{name}");
    if rng.percent(25) {
        drop(send(client, "DELETE", &path, &json!({})).await);
        return;
    }
    let networks = match rng.below(3) {
        0 => json!([{"networkSelectionType": "DefaultNetwork"}]),
        _ => {
            json!([{"networkSelectionType": "ClusterUserDefinedNetworks", "clusterUserDefinedNetworkSelector": {"networkSelector": {"matchLabels": {"use": "pods"}}}}])
        }
    };
    let spec = json!({
        "targetVRF": *rng.pick(&["default", "auto", "net1"]), "networkSelectors": networks,
        "nodeSelector": {}, "frrConfigurationSelector": {"matchLabels": {"use": "uplink"}},
        "advertisements": *rng.pick(&[&["PodNetwork"][..], &["PodNetwork", "EgressIP"]]),
    });
    let object = json!({"apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements", "metadata": {"name": name}, "spec": spec});
    if send(client, "POST", RAS, &object).await.is_none() {
        send(client, "PATCH", &path, &json!({"spec": spec})).await;
    }
}

async fn of_sources(client: &kube::Client, rng: &mut Rng) {
    let name = format!("uplink{}", rng.below(2));
    let path = format!("{FRR}/{name}");
    if rng.percent(20) {
        drop(send(client, "DELETE", &path, &json!({})).await);
        return;
    }
    // One of them is a node itself, one has another AS number than the fabric.
    let peer = *rng.pick(&["172.31.0.1", "172.30.0.2"]);
    let asn = if rng.percent(20) { 64_999 } else { 64_777 };
    let spec =
        json!({"bgp": {"routers": [{"asn": asn, "neighbors": [{"address": peer, "asn": asn}]}]}});
    let object = json!({"apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration", "metadata": {"name": name, "namespace": "frr-k8s-system", "labels": {"use": "uplink"}}, "spec": spec});
    if send(client, "POST", FRR, &object).await.is_none() {
        send(client, "PATCH", &path, &json!({"spec": spec})).await;
    }
}

async fn of_egress_ips(client: &kube::Client, rng: &mut Rng) {
    let n = rng.below(3);
    let path = format!("{EGRESS_IPS}/out{n}");
    if rng.percent(20) {
        drop(send(client, "DELETE", &path, &json!({})).await);
        return;
    }
    let object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": format!("out{n}")},
        "spec": {"egressIPs": [format!("192.0.2.{n}")], "namespaceSelector": {"matchLabels": {"tenant": "net1"}}},
    });
    send(client, "POST", EGRESS_IPS, &object).await;
    let items =
        json!([{"node": format!("n{}", 1 + rng.below(9)), "egressIP": format!("192.0.2.{n}")}]);
    send(client, "PATCH", &path, &json!({"status": {"items": items}})).await;
}

/// Somebody else changes or deletes what the manager made.
async fn of_generated(client: &kube::Client, rng: &mut Rng) {
    let kinds = [
        FRR,
        RAS,
        "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
    ];
    let kind: &str = rng.pick::<&str>(&kinds);
    let listed = send(client, "GET", kind, &json!({})).await;
    let items = listed.and_then(|list| list.get("items")?.as_array().cloned());
    let mut items = items.unwrap_or_default();
    items.retain(|o| o["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "noverlay");
    if items.is_empty() {
        return;
    }
    let object = rng.pick(&items);
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let plural = match text("/kind") {
        "FRRConfiguration" => "frrconfigurations",
        "RouteAdvertisements" => "routeadvertisements",
        _ => "network-attachment-definitions",
    };
    let namespace = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let path = format!(
        "/apis/{}{namespace}/{plural}/{}",
        text("/apiVersion"),
        text("/metadata/name")
    );
    if rng.percent(50) {
        send(client, "DELETE", &path, &json!({})).await;
    } else {
        let slip = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}, "annotations": {"k8s.ovn.org/route-advertisements": "[]"}}});
        send(client, "PATCH", &path, &slip).await;
    }
}

async fn change(client: &kube::Client, rng: &mut Rng) {
    match rng.below(12) {
        0..=3 => of_nodes(client, rng).await,
        4..=6 => of_networks(client, rng).await,
        7 | 8 => of_advertisements(client, rng).await,
        9 => of_sources(client, rng).await,
        10 => of_egress_ips(client, rng).await,
        _ => of_generated(client, rng).await,
    }
}

/// So many kinds of faults there are.
const FAULTS: u64 = 4;

/// What dies or freezes. `long`: for longer than the lease lasts.
async fn fault(
    (what, long): (u64, bool),
    (api, managers): (&mut ApiServer, &mut [Daemon; 2]),
    rng: &mut Rng,
) {
    let pause = match long {
        true => Duration::from_millis(16_000 + rng.below(4000)),
        false => Duration::from_millis(200 + rng.below(6000)),
    };
    let at = usize::try_from(rng.below(2)).unwrap();
    println!("fault {what} of {at} for {} ms", pause.as_millis());
    match what {
        0 => {
            api.stop();
            tokio::time::sleep(pause).await;
            api.start_again();
        }
        1 => {
            api.signal("-STOP");
            tokio::time::sleep(pause).await;
            api.signal("-CONT");
        }
        2 => {
            let manager = managers.get_mut(at).unwrap();
            manager.signal("-STOP");
            tokio::time::sleep(pause).await;
            manager.signal("-CONT");
        }
        _ => {
            let manager = managers.get_mut(at).unwrap();
            manager.signal("-KILL");
            tokio::time::sleep(pause).await;
            *manager = Daemon::managed(api, ["a", "b"].get(at).unwrap());
        }
    }
}

/// Writes of managers so far.
fn written(api: &ApiServer) -> Vec<String> {
    let mut writes = api.writes("serviceaccount:noverlay-system:cluster-manager");
    writes.retain(|w| !w.contains(" leases/") && !w.contains("events"));
    writes
}

fn quiet(api: &ApiServer) {
    let mut last = (written(api).len(), Instant::now());
    until("the managers have nothing left to write", 60, || {
        let now = written(api).len();
        if now != last.0 {
            last = (now, Instant::now());
        }
        if last.1.elapsed() >= QUIET {
            Ok(())
        } else {
            Err(format!("{now} writes"))
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_random_changes_and_faults_the_objects_are_those_of_a_fresh_manager() {
    let Some(tools) = tools() else { return };
    let mut rng = Rng::of_this_run();
    let mut api = ApiServer::start(tools);
    for n in 0..4 {
        api.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: space{n}}}\n"
        ));
    }
    let client = kube_edge::connect(Some(&api.kubeconfig("admin")))
        .await
        .unwrap();
    let mut managers = [Daemon::managed(&api, "a"), Daemon::managed(&api, "b")];
    let seconds = std::env::var("NOVERLAY_RANDOM_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(CHANGES));
    let begun = Instant::now();
    let mut changes = rng.fork();
    let changing = tokio::spawn({
        let client = client.clone();
        async move {
            let mut count = 0;
            while begun.elapsed() < limit {
                change(&client, &mut changes).await;
                count += 1;
                tokio::time::sleep(Duration::from_millis(changes.below(300))).await;
            }
            count
        }
    });
    let mut faults = 0;
    while begun.elapsed() < limit || faults < FAULTS {
        tokio::time::sleep(Duration::from_millis(2000 + rng.below(8000))).await;
        // Each kind once, and for long, then any.
        let what = if faults < FAULTS {
            (faults, true)
        } else {
            (rng.below(FAULTS), rng.below(4) == 0)
        };
        fault(what, (&mut api, &mut managers), &mut rng).await;
        faults += 1;
    }
    let count = changing.await.unwrap();
    let (granted, writes) = (GRANTED.load(Ordering::Relaxed), written(&api).len());
    println!("{count} changes, {granted} requests granted, {writes} writes of the managers");
    assert!(
        granted > 50 && writes > 50,
        "no load: {granted} granted, {writes} writes"
    );
    quiet(&api);
    assert_eq!(planned_writes(&api), Vec::<String>::new());
    drop(managers);
    a_fresh_one_writes_nothing(&api).await;
}

async fn a_fresh_one_writes_nothing(api: &ApiServer) {
    let before = written(api);
    let fresh = Daemon::start(api, "fresh", &api.kubeconfig("cluster-manager"), MANAGED);
    until("the fresh manager has looked at everything", 60, || {
        let (line, body) = fresh.get("/readyz")?;
        let leads = fresh.metric("noverlay_cluster_manager_leader")?;
        if line.contains(" 200 ") && leads > 0.5 {
            Ok(())
        } else {
            Err(body)
        }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = written(api);
    assert_eq!(after.get(before.len()..).unwrap_or_default(), [""; 0]);
}
