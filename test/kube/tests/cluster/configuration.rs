//! A configuration file that changes under a manager, and between two of them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use crate::harness::{Manager, configuration, served};

/// Replaces the file as kubelet does: in one step.
pub(crate) fn publish(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// Of the fabric's objects: AS numbers of routers and neighbors, namespaces, and versions by name.
fn fabric(api: &ApiServer) -> (BTreeSet<u64>, BTreeSet<String>, BTreeMap<String, String>) {
    let (mut numbers, mut namespaces, mut versions) =
        <(BTreeSet<_>, BTreeSet<_>, BTreeMap<_, _>)>::default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for object in api.items("frrconfigurations") {
        let metadata = &object["metadata"];
        namespaces.insert(text(&metadata["namespace"]));
        versions.insert(text(&metadata["name"]), text(&metadata["resourceVersion"]));
        let routers = object["spec"]["bgp"]["routers"].as_array().cloned();
        for router in routers.unwrap_or_default() {
            numbers.extend(router["asn"].as_u64());
            let neighbors = router["neighbors"].as_array().cloned();
            let neighbors = neighbors.unwrap_or_default();
            numbers.extend(neighbors.iter().filter_map(|n| n["asn"].as_u64()));
        }
    }
    (numbers, namespaces, versions)
}

fn whole(api: &ApiServer, asn: u64, namespace: &str) {
    until("all objects of the fabric are as the file says", 30, || {
        let (numbers, namespaces, versions) = fabric(api);
        let full = served(api)
            .values()
            .filter(|peers| peers.len() == 2)
            .count()
            == 3;
        // The template, and two for each node.
        let is_whole = full && versions.len() == 7;
        if is_whole && numbers == [asn].into() && namespaces == [namespace.to_owned()].into() {
            Ok(())
        } else {
            Err(format!("{numbers:?} {namespaces:?} {versions:?}"))
        }
    });
}

fn annotations(api: &ApiServer) -> Value {
    let objects = api.items("network-attachment-definitions");
    let [object] = objects.as_slice() else {
        return Value::Null;
    };
    object["metadata"]["annotations"].clone()
}

/// Waits until what is refused is told so often, and contains this.
fn refused(api: &ApiServer, contains: Option<&str>) {
    until("the object tells what is refused", 30, || {
        let all = annotations(api);
        let text = all["noverlay.io/configuration-refused"].as_str();
        let same = match (contains, text) {
            (Some(part), Some(text)) => text.contains(part),
            (part, text) => part.is_none() && text.is_none(),
        };
        if same { Ok(()) } else { Err(all.to_string()) }
    });
}

fn events(api: &ApiServer, reason: &str) -> usize {
    let all = api.items("events.events.k8s.io");
    all.iter().filter(|e| e["reason"] == reason).count()
}

fn told(api: &ApiServer, reason: &str, times: usize) {
    until("the event is there", 10, || {
        let seen = events(api, reason);
        if seen == times {
            Ok(())
        } else {
            Err(format!("{reason}: {seen}"))
        }
    });
}

#[test]
fn a_file_that_changes_is_taken_over_but_for_transport_and_routing_which_stay_over_restarts_too() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let text = configuration(&api);
    let path = api.path("noverlay.toml");
    publish(&path, &text);
    let manager = Manager::follow("a", &path);
    whole(&api, 64777, "frr-k8s-system");
    let in_force = annotations(&api)["noverlay.io/configuration-in-force"].clone();
    assert!(
        in_force.as_str().unwrap().contains("as-number = 64777"),
        "{in_force}"
    );

    let other = text.replace("64777", "64778");
    publish(&path, &other);
    whole(&api, 64778, "frr-k8s-system");
    refused(&api, None);

    // What is wrong costs nothing.
    publish(&path, &other.replace("full-mesh", "star"));
    refused(&api, Some("[bgp-managed] topology"));
    told(&api, "ConfigurationRefused", 1);
    publish(&path, &other);
    refused(&api, None);
    told(&api, "ConfigurationInForce", 1);

    let geneve = geneve_of(&other);
    publish(&path, &geneve);
    refused(&api, Some("that stays in force"));
    told(&api, "ConfigurationRefused", 2);
    let before = fabric(&api);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fabric(&api), before, "the fabric stays");
    manager.stop();

    restarted(&api, &path, &other);
}

/// The same without its sections of the default network and the fabric.
fn geneve_of(text: &str) -> String {
    let (_, rest) = text.split_once("[ovn]").unwrap();
    format!("[default]\ncluster-subnets = \"10.128.0.0/16/24\"\n[ovn]{rest}")
}

/// A new manager leads and plans: the objects of a node that is gone go.
fn without_n3(api: &ApiServer) {
    api.kubectl(&["delete", "node", "n3"]);
    until("the objects of a node that is gone go", 30, || {
        let (_, _, versions) = fabric(api);
        if versions.len() == 5 {
            Ok(())
        } else {
            Err(format!("{versions:?}"))
        }
    });
}

/// A manager that starts with a file of another transport works with what is in force, and with the file again once it agrees.
fn restarted(api: &ApiServer, path: &Path, text: &str) {
    let before = fabric(api);
    let manager = Manager::follow("b", path);
    without_n3(api);
    let (numbers, _, versions) = fabric(api);
    assert_eq!(numbers, [64778].into());
    let kept = versions
        .iter()
        .filter(|(name, version)| before.2.get(*name) == Some(version));
    assert_eq!(kept.count(), 4, "{versions:?} {before:?}");
    refused(api, Some("that stays in force"));
    api.node("n3", "172.30.0.3");
    whole(api, 64778, "frr-k8s-system");

    api.kubectl(&["create", "namespace", "elsewhere"]);
    let moved = text.replace("as-number", "frr-namespace = \"elsewhere\"\nas-number");
    publish(path, &moved);
    whole(api, 64778, "elsewhere");
    refused(api, None);
    manager.stop();

    // On purpose: whoever takes the annotation away has the file followed at the next start.
    let object = "net-attach-def/default";
    let gone = "noverlay.io/configuration-in-force-";
    api.kubectl(&["annotate", "-n", "ovn-kubernetes", object, gone]);
    publish(path, &geneve_of(text));
    let manager = Manager::follow("c", path);
    until("there is no fabric any more", 30, || {
        let (_, _, versions) = fabric(api);
        if versions.is_empty() {
            Ok(())
        } else {
            Err(format!("{versions:?}"))
        }
    });
    manager.stop();
    overlay_that_nobody_advertises(api, path, text);
}

/// Of such a network there is no object until something else is asked for; then it tells, after a start too.
fn overlay_that_nobody_advertises(api: &ApiServer, path: &Path, text: &str) {
    api.kubectl(&["delete", "-n", "ovn-kubernetes", "net-attach-def/default"]);
    let manager = Manager::follow("d", path);
    without_fabric(api);
    assert_eq!(annotations(api), Value::Null);
    publish(path, text);
    refused(api, Some("that stays in force"));
    manager.stop();
    let manager = Manager::follow("e", path);
    without_fabric(api);
    refused(api, Some("that stays in force"));
    manager.stop();
}

/// Nothing of the fabric is made within a few seconds.
fn without_fabric(api: &ApiServer) {
    std::thread::sleep(Duration::from_secs(3));
    let (_, _, versions) = fabric(api);
    assert!(versions.is_empty(), "{versions:?}");
}

fn operator_object(config: &str) -> String {
    format!(
        "apiVersion: operator.openshift.io/v1\nkind: Network\nmetadata: {{name: cluster}}\n\
         spec: {{additionalRoutingCapabilities: {{providers: [FRR]}}, defaultNetwork: {{type: OVNKubernetes, ovnKubernetesConfig: {config}}}}}\n"
    )
}

/// The text that other daemons read over their file.
fn rendered(api: &ApiServer) -> String {
    let maps = api.items("configmaps");
    let own = maps
        .iter()
        .find(|map| map["metadata"]["name"] == "noverlay-operator");
    let text = own.and_then(|map| map["data"]["operator.toml"].as_str());
    text.unwrap_or_default().to_owned()
}

fn renders(api: &ApiServer, parts: &[&str]) {
    until("the ConfigMap says what is in force", 30, || {
        let text = rendered(api);
        if parts.iter().all(|part| text.contains(part)) {
            Ok(())
        } else {
            Err(text)
        }
    });
}

/// `ovnKubernetesConfig`, as the design document has it.
const MANAGED: &str = "{routeAdvertisements: Enabled, transport: NoOverlay, noOverlayConfig: {outboundSNAT: Enabled, routing: Managed}, bgpManagedConfig: {bgpTopology: FullMesh, asNumber: 64900}}";

#[test]
fn what_openshifts_operator_object_asks_for_is_served_and_given_to_the_other_daemons() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.install("operator.openshift.io_networks.yaml");
    until("the kind is served", 20, || {
        api.try_kubectl(&["get", "networks.operator.openshift.io"])
            .map(drop)
    });
    for name in ["openshift-frr-k8s", "openshift-ovn-kubernetes"] {
        api.kubectl(&["create", "namespace", name]);
    }
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    // What is there at installation, when transport can be set at all.
    api.apply(&operator_object(MANAGED));
    let path = api.path("noverlay.toml");
    let text = geneve_of(&configuration(&api));
    publish(&path, &format!("{text}[openshift]\nenable = true\n"));
    let manager = Manager::follow("a", &path);
    whole(&api, 64900, "openshift-frr-k8s");
    renders(
        &api,
        &[
            "transport = \"no-overlay\"",
            "outbound-snat = \"enabled\"",
            "as-number = 64900",
            "enable-route-advertisements = true",
        ],
    );
    refused(&api, None);

    api.apply(&operator_object(
        &MANAGED
            .replace("Enabled, routing", "Disabled, routing")
            .replace("64900", "64901"),
    ));
    whole(&api, 64901, "openshift-frr-k8s");
    renders(&api, &["outbound-snat = \"disabled\"", "as-number = 64901"]);

    wrong_objects(&api);
    // Without the object all stays, over a start too.
    api.kubectl(&["delete", "networks.operator.openshift.io", "cluster"]);
    refused(&api, Some("what it said last stays in force"));
    whole(&api, 64900, "openshift-frr-k8s");
    let before = rendered(&api);
    manager.stop();
    let manager = Manager::follow("b", &path);
    without_n3(&api);
    api.node("n3", "172.30.0.3");
    whole(&api, 64900, "openshift-frr-k8s");
    assert_eq!(rendered(&api), before);
    refused(&api, Some("what it said last stays in force"));
    assert!(before.contains("topology = \"auto\""), "{before}");
    api.apply(&operator_object(&MANAGED.replace("64900", "64902")));
    whole(&api, 64902, "openshift-frr-k8s");
    refused(&api, None);
    api.apply(&operator_object(MANAGED));
    whole(&api, 64900, "openshift-frr-k8s");
    manager.stop();
    node_reads(&api, &path);
}

/// The schema takes an AS number that nobody may have, and any annotation.
fn wrong_objects(api: &ApiServer) {
    api.apply(&operator_object(&MANAGED.replace("64900", "23456")));
    refused(api, Some("23456"));
    told(api, "ConfigurationRefused", 1);
    whole(api, 64901, "openshift-frr-k8s");
    renders(api, &["outbound-snat = \"disabled\"", "as-number = 64901"]);
    api.kubectl(&[
        "annotate",
        "networks.operator.openshift.io",
        "cluster",
        "noverlay.io/bgp-topology=star",
    ]);
    refused(api, Some("star"));
    api.kubectl(&[
        "annotate",
        "--overwrite",
        "networks.operator.openshift.io",
        "cluster",
        "noverlay.io/bgp-topology=auto",
    ]);
    api.apply(&operator_object(MANAGED));
    whole(api, 64900, "openshift-frr-k8s");
    renders(
        api,
        &[
            "topology = \"auto\"",
            "outbound-snat = \"enabled\"",
            "as-number = 64900",
        ],
    );
    refused(api, None);
}

/// The daemons of the nodes read their file with the ConfigMap's over it.
fn node_reads(api: &ApiServer, path: &Path) {
    let over = rendered(api);
    let file = std::fs::read_to_string(path).unwrap();
    let settings = settings::parse_over(
        "noverlay.toml",
        &file,
        ("operator.toml", &over),
        settings::Daemon::NodeAgent,
    );
    let settings = settings.unwrap();
    assert_eq!(settings.warnings, Vec::<String>::new());
    assert!(
        settings
            .network
            .transport
            .no_overlay()
            .unwrap()
            .outbound_snat
    );
    assert_eq!(settings.managed.asn.to_string(), "64900");
}
