//! `noverlay frr diff` on a real API server, with the rights of the account that only looks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

use kube_tests::{ApiServer, tools};

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

struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

fn diff(api: &ApiServer, user: &str, words: &[&str]) -> Ran {
    let done = Command::new(env!("CARGO_BIN_EXE_noverlay"))
        .args(["frr", "diff", "--node", "n1", "--kubeconfig"])
        .arg(api.kubeconfig(user))
        .args(words)
        .output()
        .unwrap();
    Ran {
        status: done.status.code(),
        out: String::from_utf8(done.stdout).unwrap(),
        err: String::from_utf8(done.stderr).unwrap(),
    }
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
    let rendered = Command::new(env!("CARGO_BIN_EXE_noverlay"))
        .args(["frr", "render", "--node", "n1", "-f"])
        .arg({
            let file = api.path("objects.yaml");
            let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {kubernetes.io/hostname: n1}}\nstatus: {addresses: [{type: InternalIP, address: 172.30.0.1}]}\n";
            std::fs::write(&file, format!("{OBJECT}{node}")).unwrap();
            file
        })
        .output()
        .unwrap();
    let running = String::from_utf8(rendered.stdout).unwrap();
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
