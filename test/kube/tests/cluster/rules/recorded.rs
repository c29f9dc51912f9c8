//! What OVN-Kubernetes' own schemas refuse (a case of `crates/offline/tests/ra-conformance`), on a real API server.
//! In: the case's objects, and what was said of each there.
//! Invariant: each is refused here, and of the same fields in the same words, but for what `said_here` names.
//! Not here: what the cluster-manager makes of objects that are taken (`crates/offline`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;

use kube_tests::{ApiServer, tools, top};
use serde_json::{Value, json};

use super::{CUDN_SPEC, Causes, RA, send, text, words, yaml};

const CASE: &str = "crates/offline/tests/ra-conformance/33-rejected-by-schema";

/// What OVN-Kubernetes' schemas say of each object of the case.
fn recorded() -> BTreeMap<String, Causes> {
    let expected = yaml(&format!("{CASE}/expected.yaml"));
    let of = |object: &Value| {
        let causes = object["causes"].as_array().unwrap().iter();
        let causes = causes.map(|c| (text(c, "/field"), text(c, "/message")));
        let causes = causes.filter(|(field, _)| field != "<nil>");
        let causes = causes.map(|(field, said)| (words(&field, &said), field));
        causes.map(|(said, field)| (field, said)).collect()
    };
    let rejected = expected["rejected"].as_array().unwrap();
    let pair = |object: &Value| (text(object, "/name"), of(object));
    rejected.iter().map(pair).collect()
}

/// What is said here of an object of which OVN-Kubernetes' schemas say this.
fn said_here(name: &str, mut theirs: Causes) -> Result<(), Causes> {
    let one = |field: &str, text: &str| (field.to_owned(), text.to_owned());
    match name {
        // The transport of the design document.
        "tunnel" => return Ok(()),
        // The selector's type in the singular needs its selector as the plural does.
        "singular" => {
            theirs = Causes::from([one(
                "spec.networkSelectors[0]",
                "Inconsistent selector: both networkSelectionType ClusterUserDefinedNetworks and clusterUserDefinedNetworkSelector have to be set or neither",
            )]);
        }
        // There the rule has no message.
        "twice" => {
            theirs = Causes::from([one(
                "spec.advertisements",
                "advertisements must not be repeated",
            )]);
        }
        // The message of the design document is added.
        "bare" | "stray" => {
            let text = "noOverlayOptions is required if and only if transport is 'NoOverlay'";
            theirs.insert(one("spec.network", text));
        }
        _ => {}
    }
    Err(theirs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ovn_kubernetes_schemas_refuse_is_refused_but_for_two_forms_of_the_design_document() {
    let Some(tools) = tools() else { return };
    let server = ApiServer::start(tools);
    let client = kube_edge::connect(Some(&server.kubeconfig("admin")))
        .await
        .unwrap();
    let mut recorded = recorded();
    let world = std::fs::read_to_string(top().join(CASE).join("world.yaml")).unwrap();
    for object in world.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(object).unwrap();
        let mut kinds = [CUDN_SPEC, RA].into_iter();
        let Some(subject) = kinds.find(|s| object["kind"] == s.kind) else {
            continue;
        };
        let url = format!("{}?fieldValidation=Strict&dryRun=All", subject.path);
        let said = send(&client, http::Method::POST, url.clone(), &object).await;
        let name = text(&object, "/metadata/name");
        let theirs = recorded.remove(&name);
        let theirs = theirs.unwrap_or_else(|| panic!("{name} is not refused there"));
        assert_eq!(said.map(drop), said_here(&name, theirs), "{name}");
        if name == "singular" {
            object["spec"]["networkSelectors"][0]["clusterUserDefinedNetworkSelector"] =
                json!({"networkSelector": {}});
            let said = send(&client, http::Method::POST, url, &object).await;
            assert_eq!(said.map(drop), Ok(()), "{name} with its selector");
        }
    }
    assert_eq!(recorded, BTreeMap::new(), "each is in the world");
}
