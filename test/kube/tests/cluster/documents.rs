//! Every example of the design documents (`tests/data/documents.yaml`), on a real API server.
//! In: the examples, and what the API server says of those in an older form.
//! Invariant: no example is left out, and none has a field that would be dropped without a word.
//! Not here: what `noverlay convert` makes of the older ones (`cmd/noverlay`).

use kube_tests::{ApiServer, tools, top};
use serde_json::Value;

#[test]
fn examples_of_the_design_documents_are_taken_or_refused_with_the_current_form() {
    let Some(tools) = tools() else { return };
    let server = ApiServer::start(tools);
    server.install("operator.openshift.io_networks.yaml");
    for namespace in ["metallb-system", "openshift-frr-k8s"] {
        server.kubectl(&["create", "namespace", namespace]);
    }
    let path = top().join("test/kube/tests/data/documents.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let entries: Vec<Value> = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(entries.len(), 41, "every example of the five documents");
    for entry in &entries {
        let object = entry.get("object").and_then(Value::as_str).unwrap();
        let refused = entry.get("refused").and_then(Value::as_array);
        let refused: Vec<&str> = refused
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        // Strict: a field that the schema does not know would be dropped without a word.
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = server.try_kubectl_with(&arguments, object);
        match (&said, refused.as_slice()) {
            (Ok(_), []) => {}
            (Err(said), [_, ..]) if refused.iter().all(|part| said.contains(*part)) => {}
            _ => panic!("{object}\nwanted: {refused:?}\nsaid: {said:?}"),
        }
    }
    patches(&server);
}

/// The two patches of the document on OpenShift, the first with the brace that it lacks there.
fn patches(server: &ApiServer) {
    server.apply("{apiVersion: operator.openshift.io/v1, kind: Network, metadata: {name: cluster}, spec: {managementState: Managed}}");
    for patch in [
        r#"{"spec":{"additionalRoutingCapabilities":{"providers":["FRR"]},"defaultNetwork":{"ovnKubernetesConfig":{"routeAdvertisements":"Enabled"}}}}"#,
        r#"{"spec":{"defaultNetwork":{"ovnKubernetesConfig":{"bgpManagedConfig":{"asNumber":64512,"bgpTopology":"FullMesh"}}}}}"#,
    ] {
        server.kubectl(&[
            "patch",
            "networks.operator.openshift.io",
            "cluster",
            "--type",
            "merge",
            "--patch",
            patch,
        ]);
    }
    let state = server.output(&[
        "get",
        "networks.operator.openshift.io",
        "cluster",
        "-o",
        "jsonpath={.spec.managementState}",
    ]);
    assert_eq!(state, "Managed", "fields that are not ours stay");
}
