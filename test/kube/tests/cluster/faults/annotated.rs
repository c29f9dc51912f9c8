//! Networks of users that OVN-Kubernetes built, and that an annotation wants past its tunnels.

use kube_tests::{ApiServer, tools, until};
use serde_json::{Value, json};

use super::foreign::{announced, announces, beside};
use super::process::Daemon;

const CUDN: &str = "clusteruserdefinednetworks";
const CONDITION: &str = "noverlay.io/TransportAccepted";
const ASKED: &str = r#"noverlay.io/no-overlay={"outboundSNAT":"Enabled","routing":"Managed"}"#;
const READY: &str = r#"noverlay.io/underlay-ready={"boot":"b","networks":{"cluster_udn_red":["10.150.1.0/24"],"default":["10.128.1.0/24"]}}"#;
/// For the default network alone.
const BACK: &str =
    r#"noverlay.io/underlay-ready={"boot":"b","networks":{"default":["10.128.1.0/24"]}}"#;
/// For a network red that had other subnets.
const ANOTHER: &str = r#"noverlay.io/underlay-ready={"boot":"b","networks":{"cluster_udn_red":["10.151.1.0/24"],"default":["10.128.1.0/24"]}}"#;
const BOTH: [&str; 2] = ["10.128.1.0/24", "10.150.1.0/24"];
const DEFAULT: [&str; 1] = ["10.128.1.0/24"];
/// The same of n2.
const OTHER_DEFAULT: &str = "10.128.2.0/24";

fn red(api: &ApiServer) -> Value {
    let all = api.items_with_managers(CUDN);
    all.into_iter()
        .find(|object| object["metadata"]["name"] == "red")
        .unwrap()
}

/// `status reason` of the condition of ours; nothing where there is none.
fn condition(api: &ApiServer) -> String {
    let object = red(api);
    let all = object["status"]["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|c| c["type"] == CONDITION));
    let word = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
    found.map_or_else(String::new, |c| {
        format!("{} {}", word(c, "status"), word(c, "reason"))
    })
}

fn says(api: &ApiServer, wanted: &str) {
    until(&format!("the condition is {wanted:?}"), 30, || {
        let seen = condition(api);
        if seen == wanted { Ok(()) } else { Err(seen) }
    });
}

/// Two nodes with their ids and subnets.
fn nodes(api: &ApiServer) {
    for n in 1..=2 {
        let node = format!("n{n}");
        api.node(&node, &format!("172.30.0.{n}"));
        let subnets = format!(
            r#"k8s.ovn.org/node-subnets={{"default":["10.128.{n}.0/24"],"cluster_udn_red":["10.150.{n}.0/24"]}}"#
        );
        let id = format!("k8s.ovn.org/node-id={}", n + 1);
        api.kubectl(&["annotate", "node", &node, &subnets, &id]);
    }
}

/// A network that OVN-Kubernetes runs without an overlay itself.
fn mk_theirs(api: &ApiServer) {
    api.apply(
        "{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {name: theirs}, \
         spec: {namespaceSelector: {matchLabels: {tenant: theirs}}, network: {topology: Layer3, layer3: {role: Primary, subnets: [{cidr: 10.152.0.0/16, hostSubnet: 24}]}, \
         transport: NoOverlay, noOverlay: {outboundSNAT: Enabled, routing: Managed}}}}\n",
    );
}

/// Network red as OVN-Kubernetes made it, over tunnels.
fn mk_red(api: &ApiServer) {
    api.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: red, labels: {tenant: red, k8s.ovn.org/primary-user-defined-network: ''}}}\n---\n\
         {apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {name: red, finalizers: [k8s.ovn.org/user-defined-network-protection]}, \
         spec: {namespaceSelector: {matchLabels: {tenant: red}}, network: {topology: Layer3, layer3: {role: Primary, subnets: [{cidr: 10.150.0.0/16, hostSubnet: 24}]}}}}\n",
    );
    let uid = red(api)["metadata"]["uid"].clone();
    let config = json!({
        "cniVersion": "1.1.0", "type": "ovn-k8s-cni-overlay", "name": "cluster_udn_red", "netAttachDefName": "red/red",
        "topology": "layer3", "role": "primary", "subnets": "10.150.0.0/16/24", "joinSubnet": "100.65.0.0/16,fd99::/64",
    });
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": "red", "namespace": "red", "labels": {"k8s.ovn.org/user-defined-network": ""},
            "annotations": {"k8s.ovn.org/network-id": "1", "k8s.ovn.org/network-name": "cluster_udn_red"},
            "finalizers": ["k8s.ovn.org/user-defined-network-protection"],
            "ownerReferences": [{"apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork", "name": "red",
                "uid": uid, "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"config": config.to_string()},
    });
    api.apply(&object.to_string());
}

/// What we wrote of an object but its status.
fn writers(object: &Value) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let of_object = entries
        .iter()
        .filter(|entry| entry["subresource"] != "status");
    let ours = of_object.filter(|entry| entry["manager"] == "noverlay-cluster-manager");
    ours.map(|entry| entry["fieldsV1"].clone()).collect()
}

/// n1 announces both networks for a while.
fn stays(api: &ApiServer) {
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert_eq!(announced(api, "n1"), BOTH);
    }
}

#[test]
fn a_network_of_others_is_announced_while_its_annotation_asks_for_it_and_its_objects_stay_theirs() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    nodes(&api);
    mk_red(&api);
    mk_theirs(&api);
    let daemon = Daemon::start(&api, "a", &api.kubeconfig("cluster-manager"), &beside());
    api.kubectl(&["annotate", "node", "n1", READY]);
    announces(&api, "n1", &DEFAULT);
    assert_eq!(condition(&api), "", "its annotation asks for nothing");
    api.kubectl(&["annotate", CUDN, "red", ASKED]);
    announces(&api, "n1", &BOTH);
    says(&api, "True NoOverlayTransportAccepted");
    announces(&api, "n2", &[]);
    let label = red(&api)["metadata"]["labels"]["k8s.ovn.org/metadata.name"].clone();
    assert_eq!(label, "red");
    let say = |text: &str| api.kubectl(&["annotate", "--overwrite", "node", "n1", text]);
    say(ANOTHER);
    announces(&api, "n1", &DEFAULT);
    say(READY);
    announces(&api, "n1", &BOTH);
    // What cannot be read is as if it were not there, and is said; the node has to be back before anything is withdrawn.
    let wish = |text: &str| api.kubectl(&["annotate", "--overwrite", CUDN, "red", text]);
    wish("noverlay.io/no-overlay=yes");
    says(&api, "False NoOverlayAnnotationInvalid");
    until("it is told in an event", 20, || {
        let events = api.items("events.events.k8s.io");
        let is_ours = |event: &&Value| event["reason"] == "NoOverlayAnnotationInvalid";
        match events.iter().find(is_ours) {
            Some(_) => Ok(()),
            None => Err(daemon.said()),
        }
    });
    stays(&api);
    say(BACK);
    announces(&api, "n1", &DEFAULT);
    wish(ASKED);
    say(READY);
    announces(&api, "n1", &BOTH);
    wish("noverlay.io/no-overlay-");
    says(&api, "");
    stays(&api);
    say(BACK);
    announces(&api, "n1", &DEFAULT);
    // A label is all that is ours.
    let only_label = json!({"f:metadata": {"f:labels": {"f:k8s.ovn.org/metadata.name": {}}}});
    assert_eq!(writers(&red(&api)), [only_label]);
    let all = api.items_with_managers(CUDN);
    let theirs = all
        .iter()
        .find(|object| object["metadata"]["name"] == "theirs");
    assert_eq!(writers(theirs.unwrap()), Vec::<Value>::new());
    assert_eq!(theirs.unwrap()["status"], Value::Null);
    let attachments = api.items_with_managers("network-attachment-definitions");
    assert_eq!(attachments.len(), 1);
    assert_eq!(writers(&attachments[0]), Vec::<Value>::new());
    drop(daemon);
}

#[test]
fn while_ovn_kubernetes_advertises_itself_nothing_that_is_announced_is_touched() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    nodes(&api);
    mk_red(&api);
    let daemon = Daemon::start(&api, "a", &api.kubeconfig("cluster-manager"), &beside());
    api.kubectl(&["annotate", "node", "n1", READY]);
    announces(&api, "n1", &DEFAULT);
    let attachment = ["network-attachment-definition", "-n", "red", "red"];
    let annotate = |text: &str| {
        let words = [&["annotate"], &attachment[..], &[text]].concat();
        api.kubectl(&words);
    };
    // One that exists: OVN-Kubernetes would serve ours, too.
    let advertisements = api.items("routeadvertisements");
    let name = advertisements[0]["metadata"]["name"].as_str().unwrap();
    annotate(&format!("k8s.ovn.org/route-advertisements=[{name:?}]"));
    until("it is told in an event", 20, || {
        let events = api.items("events.events.k8s.io");
        let is_ours = |event: &&Value| event["reason"] == "AdvertisedByOvnKubernetes";
        match events.iter().find(is_ours) {
            Some(event) if event["regarding"]["name"] == "red" => Ok(()),
            _ => Err(daemon.said()),
        }
    });
    let objects = || {
        let all = ["frrconfigurations", "routeadvertisements"].map(|kind| api.items(kind));
        let version = |object: &Value| object["metadata"]["resourceVersion"].to_string();
        all.map(|all| all.iter().map(version).collect::<Vec<_>>())
    };
    // Who asks for a network now is told why nothing comes of it.
    api.kubectl(&["annotate", CUDN, "red", ASKED]);
    says(&api, "False AdvertisedByOvnKubernetes");
    let before = objects();
    // Both would be written, and taken away, if they were ours to write.
    api.kubectl(&["annotate", "node", "n1", "noverlay.io/underlay-ready-"]);
    let ready = READY.replace(DEFAULT[0], OTHER_DEFAULT);
    api.kubectl(&["annotate", "node", "n2", &ready]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(objects(), before);
    annotate("k8s.ovn.org/route-advertisements-");
    announces(&api, "n1", &[]);
    announces(&api, "n2", &[OTHER_DEFAULT]);
    says(&api, "True NoOverlayTransportAccepted");
    drop(daemon);
}
