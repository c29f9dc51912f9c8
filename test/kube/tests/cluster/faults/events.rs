//! What the manager tells of itself and of others: events, readiness, series, generations.

use std::time::Duration;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use super::process::{Daemon, settled, text, unmanaged};

#[test]
fn the_state_of_the_default_networks_transport_reaches_its_object_as_an_event() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let settings = unmanaged();
    let daemon = Daemon::start(&api, "a", &api.kubeconfig("cluster-manager"), &settings);
    let event = |reason: &str| {
        until(reason, 20, || {
            let events = api.items("events.events.k8s.io");
            let found = events.iter().find(|e| {
                text(e, "/regarding/kind") == "NetworkAttachmentDefinition"
                    && text(e, "/regarding/name") == "default"
                    && text(e, "/regarding/namespace") == "ovn-kubernetes"
                    && text(e, "/reason") == reason
            });
            found
                .cloned()
                .ok_or(format!("{} events\n{}", events.len(), daemon.said()))
        })
    };
    assert_eq!(text(&event("NoRouteAdvertisements"), "/type"), "Warning");
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: mine}\nspec: {targetVRF: red, networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {}, advertisements: [PodNetwork]}\n");
    assert!(text(&event("RouteAdvertisementsNotAccepted"), "/note").contains("mine"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn readiness_series_and_generations_are_those_of_what_there_is() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    let ready = |code: &str, words: &str| {
        until(code, 30, || {
            let (line, body) = daemon.get("/readyz")?;
            if line.contains(code) && body.contains(words) {
                Ok(())
            } else {
                Err(format!("{line} {body}"))
            }
        });
    };
    ready("200", "ok");
    // An object that cannot be read: the condition is about this generation of it.
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: a-user}\nspec: {networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {matchExpressions: [{key: a, operator: In}]}, advertisements: [PodNetwork]}\n");
    let ra = || -> Value {
        let text = api.output(&["get", "ra", "a-user", "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    };
    let observed = || {
        until(
            "the conditions are about the current generation",
            15,
            || {
                let ra = ra();
                let list = ra.pointer("/status/conditions").and_then(Value::as_array);
                let list = list.cloned().unwrap_or_default();
                let wanted = &ra["metadata"]["generation"];
                let right =
                    list.len() == 2 && list.iter().all(|c| c["observedGeneration"] == *wanted);
                if right { Ok(()) } else { Err(ra.to_string()) }
            },
        );
    };
    observed();
    api.kubectl(&[
        "patch",
        "ra",
        "a-user",
        "--type=merge",
        "-p",
        r#"{"spec":{"advertisements":["EgressIP","PodNetwork"]}}"#,
    ]);
    assert_eq!(ra()["metadata"]["generation"], 2);
    observed();
    let series = || -> bool {
        let (_, body) = daemon.get("/metrics").unwrap();
        body.contains("name=\"a-user\"")
    };
    assert!(series());
    api.kubectl(&["delete", "ra", "a-user"]);
    until("its series are gone with it", 10, || {
        if series() { Err(String::new()) } else { Ok(()) }
    });

    // No pass of any RouteAdvertisements comes to an end.
    api.kubectl(&[
        "patch",
        "clusterrole",
        "noverlay-cluster-manager",
        "--type=json",
        "-p",
        &without(&api, "routeadvertisements/status"),
    ]);
    api.node("n3", "");
    ready("503", "route advertisements");
    std::thread::sleep(Duration::from_secs(1));
    let folder = kube_tests::top().join("manifests/base");
    api.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        folder.to_str().unwrap(),
    ]);
    ready("200", "ok");
}

#[test]
fn conditions_of_networks_are_about_their_generation_and_their_series_go_with_them() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let daemon = Daemon::managed(&api, "a");
    // The second one cannot be read.
    for (name, selector) in [
        ("amber", "{matchLabels: {tenant: amber}}"),
        ("cobalt", "{matchExpressions: [{key: a, operator: In}]}"),
    ] {
        api.apply(&format!(
            "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: {{namespaceSelector: {selector}, \
             network: {{topology: Layer3, layer3: {{role: Primary, subnets: [{{cidr: 10.61.0.0/16, hostSubnet: 24}}]}}}}}}}}"
        ));
    }
    let networks = "clusteruserdefinednetworks";
    for (name, generation, status) in [("amber", 1, "True"), ("cobalt", 1, "False")] {
        until(name, 20, || {
            let object = api.output(&["get", networks, name, "-o", "json"]);
            let object: Value = serde_json::from_str(&object).unwrap();
            let condition = &object["status"]["conditions"][0];
            let right = condition["observedGeneration"] == generation
                && object["metadata"]["generation"] == generation
                && condition["status"] == status;
            if right {
                Ok(())
            } else {
                Err(object.to_string())
            }
        });
    }
    let series = |name: &str| {
        let (_, body) = daemon.get("/metrics").unwrap();
        body.contains(&format!(
            "noverlay_cluster_user_defined_network_condition{{condition=\"NetworkCreated\",name=\"{name}\"}}"
        ))
    };
    assert!(series("amber") && series("cobalt"));
    api.kubectl(&["delete", networks, "amber"]);
    until("its series are gone with it", 10, || {
        if series("amber") {
            Err(String::new())
        } else {
            Ok(())
        }
    });
    assert!(series("cobalt"));
}

/// Lists that the manager asked for.
fn lists(api: &ApiServer) -> Vec<String> {
    let mut reads = api.reads();
    reads.retain(|read| read.starts_with("list "));
    reads
}

#[test]
fn a_change_is_heard_by_watches_and_lists_nothing() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let _daemon = Daemon::managed(&api, "a");
    settled(&api, 3, 30);
    std::thread::sleep(Duration::from_secs(3));
    let before = lists(&api);
    assert!(
        before
            .iter()
            .any(|read| read.contains("/api/v1/nodes?") && read.contains("limit=")),
        "pages: {before:?}"
    );
    for n in 0..20 {
        let label = format!("rack=r{n}");
        api.kubectl(&["label", "node", "n1", &label, "--overwrite"]);
        let labels = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: shop, labels: {{n: 'v{n}'}}}}}}\n---\n"
        );
        api.apply(&format!("{labels}{{apiVersion: frrk8s.metallb.io/v1beta1, kind: FRRConfiguration, metadata: {{name: other, namespace: frr-k8s-system, labels: {{n: 'v{n}'}}}}, spec: {{nodeSelector: {{matchLabels: {{rack: none}}}}}}}}"));
    }
    std::thread::sleep(Duration::from_secs(3));
    let after: Vec<String> = lists(&api).into_iter().skip(before.len()).collect();
    assert_eq!(after, [""; 0], "kinds that are not installed, neither");
}

#[test]
fn watches_ask_for_bookmarks() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let daemon = Daemon::managed(&api, "a");
    until("it works", 30, || {
        let (line, body) = daemon.get("/readyz")?;
        line.contains(" 200 ").then_some(()).ok_or(body)
    });
    drop(daemon);
    // The API server notes a watch when it is over.
    until("watches are over", 20, || {
        let mut reads = api.reads();
        reads.retain(|read| read.starts_with("watch "));
        if reads.len() >= 5 {
            Ok(())
        } else {
            Err(format!("{reads:?}"))
        }
    });
    let mut watches = api.reads();
    watches.retain(|read| read.starts_with("watch "));
    let bare: Vec<&String> = watches
        .iter()
        .filter(|read| !read.contains("allowWatchBookmarks=true"))
        .collect();
    assert!(bare.is_empty(), "{bare:?}");
}

/// The patch that takes away what the manager may do with a resource, by the rule whose first it is.
pub(super) fn without(api: &ApiServer, resource: &str) -> String {
    let role = api.output(&[
        "get",
        "clusterrole",
        "noverlay-cluster-manager",
        "-o",
        "json",
    ]);
    let role: Value = serde_json::from_str(&role).unwrap();
    let rules = role["rules"].as_array().unwrap();
    let at = rules
        .iter()
        .position(|r| r["resources"][0] == resource)
        .unwrap();
    format!(r#"[{{"op":"remove","path":"/rules/{at}"}}]"#)
}
