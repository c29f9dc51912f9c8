//! `noverlay frr diff` on a real API server, with the rights of the account that only looks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod ran;

use kube_tests::{ApiServer, tools, until};
use ran::{Ran, noverlay};

const OBJECT: &str = "apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: c1, namespace: frr-k8s-system}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: n1}}
  bgp:
    routers:
    - asn: 64512
      neighbors:
      - {address: 172.30.0.2, asn: 64512, passwordSecret: {name: peering}}
      - {address: 172.30.0.1, asn: 64512, passwordSecret: {name: peering}}
---
apiVersion: v1
kind: Secret
metadata: {name: peering, namespace: frr-k8s-system}
type: kubernetes.io/basic-auth
stringData: {password: s3cret}
";

fn diff(api: &ApiServer, user: &str, words: &[&str]) -> Ran {
    let kubeconfig = api.kubeconfig(user);
    let fixed = [
        "frr",
        "diff",
        "--node",
        "n1",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    noverlay(&[&fixed, words].concat(), "")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn the_clusters_objects_are_compared_with_what_the_node_reports_to_run() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    api.apply(OBJECT);
    let ran = diff(&api, "noverlay-view", &[]);
    assert_eq!(ran.status, Some(2), "{}", ran.err);
    assert!(
        ran.err.contains("there is no FRRNodeState n1"),
        "{}",
        ran.err
    );

    // What a node that loaded it would report, as FRR shows it.
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {kubernetes.io/hostname: n1}}\nstatus: {addresses: [{type: InternalIP, address: 172.30.0.1}]}\n";
    let words = ["frr", "render", "--node", "n1", "-f", "-"];
    let running = noverlay(&words, &format!("{OBJECT}{node}")).out;
    assert!(running.contains("password <retracted>"), "{running}");
    api.apply("apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {name: n1}\nspec: {}\n");
    let patch = api.path("patch.json");
    let state = serde_json::json!({"status": {"runningConfig": running}});
    std::fs::write(&patch, state.to_string()).unwrap();
    api.kubectl(&[
        "patch",
        "frrnodestate",
        "n1",
        "--subresource=status",
        "--type=merge",
        "--patch-file",
        patch.to_str().unwrap(),
    ]);
    // The one may read Secrets, the other not: passwords are not compared anyway.
    for user in ["admin", "noverlay-view"] {
        let ran = diff(&api, user, &[]);
        assert_eq!(
            (ran.status, ran.out.as_str()),
            (Some(0), ""),
            "{user}: {}",
            ran.err
        );
        assert!(ran.err.contains("lint: SelfNeighbor"), "{}", ran.err);
    }
    let changed = api.path("changed.yaml");
    std::fs::write(
        &changed,
        OBJECT.replace("172.30.0.2, asn: 64512", "172.30.0.2, asn: 65001"),
    )
    .unwrap();
    let ran = diff(
        &api,
        "noverlay-view",
        &[
            "-f",
            changed.to_str().unwrap(),
            "--labels",
            "kubernetes.io/hostname=n1",
        ],
    );
    assert_eq!(ran.status, Some(1), "{}", ran.err);
    for line in [
        "- neighbor 172.30.0.2 remote-as 64512\n",
        "+ neighbor 172.30.0.2 remote-as 65001\n",
    ] {
        assert!(ran.out.contains(line), "{}", ran.out);
    }
}

#[test]
fn what_convert_makes_of_older_examples_is_taken_and_plan_reads_the_cluster_with_the_right_to_look_only()
 {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for namespace in ["metallb-system", "openshift-frr-k8s"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    let text = std::fs::read_to_string("../../test/kube/tests/data/documents.yaml").unwrap();
    let examples: Vec<serde_json::Value> = serde_saphyr::from_str(&text).unwrap();
    let older = examples.iter().filter(|e| e.get("refused").is_some());
    let mut taken = 0;
    for object in older.filter_map(|e| e.get("object").and_then(serde_json::Value::as_str)) {
        let converted = noverlay(&["convert", "-f", "-"], object);
        if converted.out.is_empty() {
            continue;
        }
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = api.try_kubectl_with(&arguments, &converted.out);
        assert!(said.is_ok(), "{}\n{said:?}", converted.out);
        taken += 1;
    }
    assert_eq!(taken, 7);

    // From the cluster: two nodes, the managed fabric, nothing written yet.
    for (name, ip) in [("n1", "172.30.0.1"), ("n2", "172.30.0.2")] {
        api.node(name, ip);
    }
    let config = tempfile::NamedTempFile::with_suffix(".conf").unwrap();
    let text = "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n[bgp-managed]\ntopology = full-mesh\n";
    std::fs::write(config.path(), text).unwrap();
    let kubeconfig = api.kubeconfig("noverlay-view");
    let words = [
        "plan",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--config",
        config.path().to_str().unwrap(),
    ];
    // The server's storage of a new kind takes a moment to begin.
    let ran = until("the cluster is read", 10, || {
        let ran = noverlay(&words, "");
        if ran.err.contains("TooManyRequests") {
            Err(ran.err)
        } else {
            Ok(ran)
        }
    });
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    for words in [
        "change Node n1",
        "create RouteAdvertisements ovnk-managed-",
        "(node n2)",
        "neighbor 172.30.0.2 remote-as 64512",
    ] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    assert!(
        api.items("routeadvertisements").is_empty(),
        "nothing is written"
    );
}
