//! Events on objects of features that need the overlay.
#![expect(
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use crate::harness::{Manager, planned_writes};

/// The kind as OVN-Kubernetes has it, as far as it is read.
const EGRESS_SERVICES: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: egressservices.k8s.ovn.org}
spec:
  group: k8s.ovn.org
  scope: Namespaced
  names: {kind: EgressService, listKind: EgressServiceList, plural: egressservices, singular: egressservice}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// By object: what was told of it.
fn told(api: &ApiServer) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in api.items("events.events.k8s.io") {
        if event["reason"] == "NotSupportedWithoutOverlay" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let about = &event["regarding"];
            let key = format!("{} {}", text(&about["kind"]), text(&about["name"]));
            assert_ne!(text(&about["uid"]), "", "{event}");
            // What is told again is a series of the first.
            assert!(event["series"].is_null(), "{event}");
            out.entry(key).or_default().push(text(&event["note"]));
        }
    }
    out
}

fn tells(api: &ApiServer, key: &str, times: usize, part: &str) {
    until(&format!("{key} is told"), 60, || {
        let told = told(api);
        let notes = told.get(key).cloned().unwrap_or_default();
        if notes.len() == times && notes.iter().any(|note| note.contains(part)) {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    });
}

#[test]
fn features_that_need_the_overlay_are_told_once_on_their_objects_and_nothing_is_written_to_them() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    api.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n");
    api.apply(
        "apiVersion: k8s.ovn.org/v1\nkind: EgressIP\nmetadata: {name: out}\nspec: {egressIPs: [192.0.2.7], namespaceSelector: {matchLabels: {team: a}}}\n",
    );
    let manager = Manager::start(&api, "a");
    tells(&api, "EgressIP out", 1, "network default (namespaces shop)");

    // Another namespace is something new.
    api.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: bank, labels: {team: a}}\n");
    tells(
        &api,
        "EgressIP out",
        2,
        "network default (namespaces bank, shop)",
    );

    api.kubectl(&[
        "annotate",
        "namespace",
        "bank",
        "k8s.ovn.org/multicast-enabled=true",
    ]);
    tells(&api, "Namespace bank", 1, "multicast");

    // A kind that is installed later.
    api.apply(EGRESS_SERVICES);
    until("the kind is served", 20, || {
        api.try_kubectl(&["get", "egressservices", "-A"]).map(drop)
    });
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: EgressService\nmetadata: {name: web, namespace: shop}\nspec: {}\n");
    tells(
        &api,
        "EgressService web",
        1,
        "network default (namespaces shop)",
    );
    assert_eq!(told(&api).len(), 3);
    // Another pass tells nothing.
    api.node("n2", "172.30.0.2");
    until("another pass", 20, || {
        match planned_writes(&api).as_slice() {
            [] => Ok(()),
            writes => Err(writes.join("; ")),
        }
    });
    assert_eq!(told(&api).len(), 3);
    let writes = api.writes("serviceaccount:noverlay-system:cluster-manager");
    let touched = writes.iter().find(|w| {
        ["egressips", "egressservices", "namespaces/"]
            .iter()
            .any(|kind| w.contains(kind) && !w.contains("events"))
    });
    assert_eq!(touched, None);
    manager.stop();
}
