//! What the cluster lacks of custom resources is known, by kind and field, to each daemon under its own account.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use daemon::crds::{Need, needs, probe};
use kube_tests::{ApiServer, tools, top};

/// The account, and what its daemon needs.
const DAEMONS: [(&str, &[Need]); 3] = [
    ("cluster-manager", needs::CLUSTER_MANAGER),
    ("node-agent", needs::NODE_AGENT),
    ("frr-agent", needs::FRR_AGENT),
];

/// Waits until each daemon finds so much missing: the API server takes a moment to publish a schema.
async fn lacks(api: &ApiServer, expected: [usize; 3]) {
    let mut found = [usize::MAX; 3];
    for _ in 0..100 {
        for (found, (user, needs)) in found.iter_mut().zip(DAEMONS) {
            let client = kube_edge::connect(Some(&api.kubeconfig(user))).await;
            *found = probe(client.unwrap(), needs).await;
        }
        if found == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_and_a_field_that_are_not_installed_are_missing() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for folder in ["base", "overlays/standalone"] {
        let folder = top().join("manifests").join(folder);
        api.kubectl(&["apply", "--server-side", "-k", folder.to_str().unwrap()]);
    }
    lacks(&api, [0; 3]).await;
    api.kubectl(&["delete", "crd", "noderoutes.noverlay.io"]);
    lacks(&api, [1, 1, 0]).await;
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/bgp/properties/bfdProfiles";
    let patch = format!(r#"[{{"op": "remove", "path": "{field}"}}]"#);
    let crd = "frrconfigurations.frrk8s.metallb.io";
    api.kubectl(&["patch", "crd", crd, "--type=json", "-p", &patch]);
    lacks(&api, [2, 1, 1]).await;
}
