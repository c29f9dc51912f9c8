//! Writes that the API server refuses, as a whole or for one field: all else goes on, and the words are reported.

use std::time::Duration;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use super::process::{Daemon, MANAGED, condition, generated, settled, text, writes_of};

/// A policy that refuses what does not meet `expression`, in the words `not here`.
fn policy(name: &str, operations: &str, resources: &str, expression: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  failurePolicy: Fail\n  matchConstraints:\n    resourceRules:\n\
         \x20   - {{apiGroups: ['*'], apiVersions: ['*'], operations: [{operations}], resources: [{resources}]}}\n\
         \x20 validations:\n  - {{expression: \"{expression}\", message: not here}}\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\n\
         spec: {{policyName: {name}, validationActions: [Deny]}}\n"
    )
}

/// Puts a policy in force: `probe` is refused from then on.
fn enforce(api: &ApiServer, policy: &str, probe: &[&str]) {
    api.apply(policy);
    until("the policy is in force", 30, || {
        match api.try_kubectl(probe) {
            Err(said) if said.contains("not here") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn a_refused_write_costs_its_own_object_only_and_the_status_says_it_in_the_servers_words() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let expression = "!has(object.spec.nodeSelector.matchLabels) || object.spec.nodeSelector.matchLabels['kubernetes.io/hostname'] != 'n2'";
    let probe = api.path("probe.yaml");
    std::fs::write(&probe, "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: probe, namespace: default}\nspec: {nodeSelector: {matchLabels: {kubernetes.io/hostname: n2}}}\n").unwrap();
    let probe = ["create", "--dry-run=server", "-f", probe.to_str().unwrap()];
    enforce(
        &api,
        &policy("no-n2", "CREATE, UPDATE", "frrconfigurations", expression),
        &probe,
    );
    let daemon = Daemon::managed(&api, "a");
    let reported = |nodes: &[&str]| {
        until(
            "all others are served and the words stand there",
            30,
            || {
                let seen: Vec<String> = generated(&api).into_keys().collect();
                let (status, reason, message) = condition(&api, "Complete");
                let words = message.contains(
                    "node n2: cannot apply FRRConfiguration frr-k8s-system/ovnk-generated-",
                ) && message.contains("not here");
                if seen == nodes && status == "False" && reason == "WriteRefused" && words {
                    Ok(())
                } else {
                    Err(format!("{seen:?} {status} {reason} {message}"))
                }
            },
        );
    };
    reported(&["n1", "n3"]);
    assert_eq!(condition(&api, "Accepted").0, "True");
    // A node that goes takes its object with it, one that comes gets its own.
    api.kubectl(&["delete", "node", "n3"]);
    reported(&["n1"]);
    api.node("n4", "172.30.0.4");
    reported(&["n1", "n4"]);
    assert_eq!(
        generated(&api)["n4"],
        2,
        "the refused node stays a neighbor of the others"
    );
    assert_eq!(
        daemon.metric("noverlay_cluster_manager_refused_objects"),
        Ok(1.0)
    );
    // It is tried again, less and less often.
    std::thread::sleep(Duration::from_secs(8));
    let refused = || {
        writes_of(&api, "cluster-manager")
            .iter()
            .filter(|(_, code)| *code >= 400)
            .count()
    };
    let before = refused();
    std::thread::sleep(Duration::from_secs(10));
    assert!(
        refused() - before <= 2,
        "{} attempts in 10 s",
        refused() - before
    );
    // All others stand: the leader is no less ready for it, and a rollout goes on.
    let ready = daemon.get("/readyz").unwrap();
    assert!(ready.0.contains(" 200 "), "{ready:?}");
    api.kubectl(&["delete", "validatingadmissionpolicybinding", "no-n2"]);
    settled(&api, 3, 60);
    assert_eq!(
        daemon.metric("noverlay_cluster_manager_refused_objects"),
        Ok(0.0)
    );
    deletes(&api);
}

/// A report that may not be deleted keeps no other one.
fn deletes(api: &ApiServer) {
    let ours = "app.kubernetes.io/managed-by: noverlay";
    let report = |kind: &str, name: &str| {
        format!("{kind}\nmetadata: {{name: {name}, labels: {{{ours}}}}}\nspec: {{}}\n---\n")
    };
    let routes = "apiVersion: noverlay.io/v1alpha1\nkind: NodeRoutes";
    let states = "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState";
    let all = ["gone-a", "gone-b"].map(|n| report(routes, n) + &report(states, n));
    api.apply(&all.concat());
    enforce(
        api,
        &policy("keep", "DELETE", "noderoutes", "request.name != 'gone-a'"),
        &["delete", "--dry-run=server", "noderoutes", "gone-a"],
    );
    api.node("n5", "172.30.0.5");
    until("all others are deleted", 30, || {
        let kinds = ["noderoutes", "frrnodestates"];
        let left: Vec<String> = kinds
            .iter()
            .flat_map(|kind| api.items(kind))
            .map(|o| text(&o, "/metadata/name"))
            .collect();
        if left == ["gone-a"] {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    settled(api, 4, 30);
}

#[test]
fn fields_that_an_older_frr_k8s_does_not_know_are_named_and_not_tried_again_and_again() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let name = "frrconfigurations.frrk8s.metallb.io";
    let crd: Value =
        serde_json::from_str(&api.output(&["get", "crd", name, "-o", "json"])).unwrap();
    let mut older = crd.clone();
    let neighbor = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/bgp/properties/routers/items/properties/neighbors/items";
    let fields = older
        .pointer_mut(&format!("{neighbor}/properties"))
        .unwrap();
    fields
        .as_object_mut()
        .unwrap()
        .remove("connectTime")
        .unwrap();
    older
        .pointer_mut(neighbor)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("x-kubernetes-validations");
    api.try_kubectl_with(&["replace", "-f", "-"], &older.to_string())
        .unwrap();
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    until("what the server does not know is reported", 30, || {
        let (status, reason, message) = condition(&api, "Complete");
        let words = message.contains("connectTime: field not declared in schema");
        if status == "False" && reason == "WriteRefused" && words && message.contains("node n1: ") {
            Ok(())
        } else {
            Err(format!("{status} {reason} {message}"))
        }
    });
    // Three objects, each tried again after a growing time whatever happens meanwhile.
    std::thread::sleep(Duration::from_secs(10));
    let before = writes_of(&api, "cluster-manager").len();
    for n in 0..10 {
        api.kubectl(&["label", "--overwrite", "node", "n1", &format!("x=y{n}")]);
    }
    let new = writes_of(&api, "cluster-manager").split_off(before);
    assert!(new.len() <= 6, "{new:?}");
    drop(daemon);
}

#[test]
fn an_object_of_a_network_that_may_not_be_deleted_keeps_its_finalizer_and_is_tried_again_ever_later()
 {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    api.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tenant: amber, k8s.ovn.org/primary-user-defined-network: ''}}}\n---\n\
         {apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {name: amber}, spec: {namespaceSelector: {matchLabels: {tenant: amber}}, \
         network: {topology: Layer3, layer3: {role: Primary, subnets: [{cidr: 10.61.0.0/16, hostSubnet: 24}]}}}}",
    );
    let daemon = Daemon::managed(&api, "a");
    let said = || {
        api.output(&[
            "get",
            "clusteruserdefinednetworks",
            "amber",
            "-o",
            "jsonpath={.status.conditions[?(@.type==\"NetworkCreated\")].message}",
        ])
    };
    let says = |words: &str| {
        until(words, 30, || {
            let said = said();
            if said.contains(words) {
                Ok(())
            } else {
                Err(said)
            }
        });
    };
    says("has been created in following namespaces: [shop]");
    let nad = "network-attachment-definitions";
    enforce(
        &api,
        &policy("keep", "DELETE", nad, "false"),
        &["delete", "--dry-run=server", nad, "amber", "-n", "shop"],
    );
    api.kubectl(&["label", "namespace", "shop", "tenant-"]);
    let words = "cannot delete NetworkAttachmentDefinition shop/amber: ";
    says(words);
    let deletes = || {
        let mut all = writes_of(&api, "cluster-manager");
        all.retain(|(write, _)| write.starts_with("delete network-attachment-definitions/"));
        all.len()
    };
    let (before, first) = (deletes(), said());
    for _ in 0..10 {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(said(), first);
    }
    let new = deletes() - before;
    assert!((1..10).contains(&new), "{new} attempts in 10 s");
    let object = api.output(&["get", nad, "amber", "-n", "shop", "-o", "json"]);
    let object: Value = serde_json::from_str(&object).unwrap();
    let finalizer = "k8s.ovn.org/user-defined-network-protection";
    assert_eq!(text(&object, "/metadata/finalizers/0"), finalizer);
    assert_eq!(text(&object, "/metadata/deletionTimestamp"), "");
    api.kubectl(&["delete", "validatingadmissionpolicybinding", "keep"]);
    says("has been created in following namespaces: []");
    drop(daemon);
}

#[test]
fn another_as_number_is_told_once_and_not_before_it_is_written() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    daemon.signal("-TERM");
    daemon.ended();
    let frr = "frrconfigurations";
    let objects = api.items(frr).into_iter();
    let mut names = objects.map(|o| text(&o, "/metadata/name"));
    let base = names
        .find(|name| name.starts_with("ovnk-managed-"))
        .unwrap();
    enforce(
        &api,
        &policy("keep", "UPDATE", frr, &format!("request.name != '{base}'")),
        &[
            "annotate",
            "--dry-run=server",
            "-n",
            "frr-k8s-system",
            frr,
            &base,
            "a=b",
        ],
    );
    let told = || {
        let mut events = api.items("events.events.k8s.io");
        events.retain(|e| text(e, "/reason") == "ASNumberChanged");
        let counts = events.iter().map(|e| e.pointer("/series/count"));
        let counts = counts.map(|count| count.and_then(Value::as_u64).unwrap_or(1));
        counts.sum::<u64>()
    };
    let account = api.kubeconfig("cluster-manager");
    let _daemon = Daemon::start(&api, "b", &account, &MANAGED.replace("64777", "64778"));
    until("the write is refused again and again", 20, || {
        let write = (format!("patch {frr}/{base}"), 422);
        let mut all = writes_of(&api, "cluster-manager");
        all.retain(|w| *w == write);
        if all.len() > 2 {
            Ok(())
        } else {
            Err(format!("{all:?} {:?}", writes_of(&api, "cluster-manager")))
        }
    });
    assert_eq!(told(), 0, "nothing has changed yet");
    api.kubectl(&["delete", "validatingadmissionpolicybinding", "keep"]);
    until("it is told", 30, || match told() {
        0 => Err(String::new()),
        _ => Ok(()),
    });
    settled(&api, 2, 30);
    assert_eq!(told(), 1);
}
