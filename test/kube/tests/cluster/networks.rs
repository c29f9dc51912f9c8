//! The life of networks of users on a real API server, with the rights that the cluster-manager is shipped with.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use crate::harness::Manager;

const CUDN: &str = "clusteruserdefinednetworks";
const NAD: &str = "network-attachment-definitions";

fn namespace(name: &str, labels: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{labels}}}}}}}\n---\n"
    )
}

fn cudn(name: &str, subnet: &str, options: &str) -> String {
    format!(
        "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: \
         {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, network: {{topology: Layer3, \
         layer3: {{role: Primary, subnets: [{{cidr: {subnet}, hostSubnet: 24}}]}}{options}}}}}}}\n---\n"
    )
}

/// The finalizer of networks and their objects.
const FINALIZER: &str = "k8s.ovn.org/user-defined-network-protection";
/// The label of namespaces that may have a primary network.
const PRIMARY: &str = "k8s.ovn.org/primary-user-defined-network: ''";

const MANAGED: &str =
    ", transport: NoOverlay, noOverlayOptions: {outboundSNAT: Enabled, routing: Managed}";

/// `status reason: message` of a condition of a ClusterUserDefinedNetwork.
fn condition(api: &ApiServer, name: &str, kind: &str) -> String {
    let all = api.items(CUDN);
    let object = all.iter().find(|o| o["metadata"]["name"] == name);
    let list = object.and_then(|o| o["status"]["conditions"].as_array());
    let found = list.and_then(|list| list.iter().find(|c| c["type"] == kind));
    found.map_or_else(String::new, |c| {
        let text = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    })
}

fn says(api: &ApiServer, name: &str, kind: &str, wanted: &str) {
    until(&format!("{kind} of {name} is {wanted:?}"), 20, || {
        let seen = condition(api, name, kind);
        if seen.contains(wanted) {
            Ok(())
        } else {
            Err(seen)
        }
    });
}

/// `namespace/name` of all NetworkAttachmentDefinitions.
fn attachments(api: &ApiServer) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let key = |o: &Value| {
        format!(
            "{}/{}",
            text(&o["metadata"]["namespace"]),
            text(&o["metadata"]["name"])
        )
    };
    api.items(NAD).iter().map(key).collect()
}

fn has(api: &ApiServer, wanted: &[&str]) {
    until(&format!("the objects are {wanted:?}"), 20, || {
        let seen = attachments(api);
        if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
}

/// The subnets of a node's annotation, as JSON.
fn subnets(api: &ApiServer, node: &str) -> Value {
    let all = api.items("nodes");
    let node = all.iter().find(|o| o["metadata"]["name"] == node).unwrap();
    let text = node["metadata"]["annotations"]["k8s.ovn.org/node-subnets"].as_str();
    text.map_or(Value::Null, |t| serde_json::from_str(t).unwrap())
}

/// What all generated FRRConfigurations announce.
fn announced(api: &ApiServer) -> Vec<String> {
    let mut out = Vec::new();
    for object in api.items("frrconfigurations") {
        let name = object["metadata"]["name"].as_str().unwrap();
        for router in object["spec"]["bgp"]["routers"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let prefixes = router["prefixes"].as_array().into_iter().flatten();
            let prefixes = prefixes.map(|p| p.as_str().unwrap().to_owned());
            if name.starts_with("ovnk-generated-") {
                out.extend(prefixes);
            }
        }
    }
    out.sort();
    out
}

#[test]
#[expect(clippy::too_many_lines, reason = "one life from beginning to end")]
fn a_network_comes_is_routed_meets_a_foreign_object_and_goes_when_no_pod_uses_it() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for (name, ip) in [("n1", "172.30.0.1"), ("n2", "172.30.0.2")] {
        api.node(name, ip);
    }
    let primary = "k8s.ovn.org/primary-user-defined-network: ''";
    api.apply(
        &[
            namespace("shop", &format!("tenant: amber, {primary}")),
            namespace("till", &format!("tenant: amber, {primary}")),
            namespace("bare", "tenant: amber"),
            namespace("mine", &format!("tenant: cobalt, {primary}")),
            cudn("amber", "10.61.0.0/16", MANAGED),
            cudn("cobalt", "10.62.0.0/16", ""),
        ]
        .concat(),
    );
    let manager = Manager::start(&api, "a");

    // Objects in the namespaces that may have them, and what the one without the label is told.
    has(
        &api,
        &[
            "mine/cobalt",
            "ovn-kubernetes/default",
            "shop/amber",
            "till/amber",
        ],
    );
    says(
        &api,
        "amber",
        "NetworkCreated",
        "False NetworkAttachmentDefinitionSyncError: namespace bare lacks label",
    );
    says(
        &api,
        "amber",
        "TransportAccepted",
        "True NoOverlayTransportAccepted: Transport has been configured as 'no-overlay'.",
    );
    says(
        &api,
        "cobalt",
        "NetworkCreated",
        "True NetworkAttachmentDefinitionCreated: NetworkAttachmentDefinition has been created in following namespaces: [mine]",
    );
    says(
        &api,
        "cobalt",
        "TransportAccepted",
        "True GeneveTransportAccepted: Geneve transport has been configured.",
    );
    api.kubectl(&["label", "namespace", "bare", "tenant-"]);
    says(
        &api,
        "amber",
        "NetworkCreated",
        "True NetworkAttachmentDefinitionCreated: NetworkAttachmentDefinition has been created in following namespaces: [shop, till]",
    );
    until("both nodes have a subnet of each network", 20, || {
        let seen = [subnets(&api, "n1"), subnets(&api, "n2")];
        let whole = |s: &Value| {
            ["default", "cluster_udn_amber", "cluster_udn_cobalt"]
                .iter()
                .all(|n| s[n].is_array())
        };
        if seen.iter().all(whole) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    until(
        "the managed networks are announced, the overlay is not",
        20,
        || {
            let seen = announced(&api);
            if seen
                == [
                    "10.128.0.0/24",
                    "10.128.1.0/24",
                    "10.61.0.0/24",
                    "10.61.1.0/24",
                ]
            {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    );
    // The second namespace's object names the same network and id.
    for key in ["shop", "till"] {
        let text = api.output(&[
            "get",
            NAD,
            "amber",
            "-n",
            key,
            "-o",
            "jsonpath={.metadata.annotations.k8s\\.ovn\\.org/network-id} {.spec.config}",
        ]);
        let (id, config) = text.split_once(' ').unwrap();
        let config: Value = serde_json::from_str(config).unwrap();
        assert_eq!(
            (
                id,
                config["transport"].as_str(),
                config["outboundSNAT"].as_str()
            ),
            ("1", Some("noOverlay"), Some("enabled"))
        );
        assert_eq!(config["netAttachDefName"], format!("{key}/amber"));
    }

    // Everything stands: nothing is written but the lease.
    std::thread::sleep(Duration::from_secs(2));
    let before = api.writes("cluster-manager").len();
    std::thread::sleep(Duration::from_secs(5));
    let writes = api.writes("cluster-manager");
    let quiet = writes
        .iter()
        .skip(before)
        .filter(|w| !w.contains("leases/"));
    assert_eq!(quiet.collect::<Vec<_>>(), Vec::<&String>::new());

    // Another namespace; where somebody else has taken the name, that object is left alone and named, and the rest stands.
    let foreign = "{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: amber, namespace: fair}, spec: {config: '{}'}}";
    api.apply(&format!("{}{foreign}", namespace("fair", primary)));
    api.kubectl(&["label", "namespace", "fair", "tenant=amber"]);
    says(
        &api,
        "amber",
        "NetworkCreated",
        "foreign NetworkAttachmentDefinition with the desired name already exist [fair/amber]",
    );
    assert_eq!(
        api.output(&[
            "get",
            NAD,
            "amber",
            "-n",
            "fair",
            "-o",
            "jsonpath={.spec.config}"
        ]),
        "{}"
    );
    says(
        &api,
        "amber",
        "TransportAccepted",
        "True NoOverlayTransportAccepted",
    );
    api.kubectl(&["delete", NAD, "amber", "-n", "fair"]);
    says(&api, "amber", "NetworkCreated", "[fair, shop, till]");

    // A namespace that is no longer selected keeps its object as long as a pod is in the network.
    api.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: till}}");
    api.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: user, namespace: till, annotations: {k8s.ovn.org/pod-networks: '{\"till/amber\":{}}'}}, \
         spec: {automountServiceAccountToken: false, nodeName: n1, containers: [{name: c, image: none}]}}",
    );
    api.kubectl(&["label", "namespace", "till", "tenant-"]);
    says(
        &api,
        "amber",
        "NetworkCreated",
        "failed to delete NetworkAttachmentDefinition [till/amber]: network in use by the following pods: [user]",
    );
    assert!(attachments(&api).contains(&"till/amber".to_owned()));
    api.kubectl(&[
        "delete",
        "pod",
        "user",
        "-n",
        "till",
        "--force",
        "--grace-period=0",
    ]);
    has(
        &api,
        &[
            "fair/amber",
            "mine/cobalt",
            "ovn-kubernetes/default",
            "shop/amber",
        ],
    );

    // It goes, with its objects, its subnets and what announced them; the others stay.
    api.kubectl(&["delete", CUDN, "amber", "--wait=false"]);
    until("the network is gone", 20, || {
        let left = api.items(CUDN).len();
        if left == 1 {
            Ok(())
        } else {
            Err(condition(&api, "amber", "NetworkCreated"))
        }
    });
    has(&api, &["mine/cobalt", "ovn-kubernetes/default"]);
    until("its subnets and announcements are gone", 20, || {
        let (subnets, seen) = (subnets(&api, "n1"), announced(&api));
        let gone =
            subnets["cluster_udn_amber"].is_null() && subnets["cluster_udn_cobalt"].is_array();
        if gone && seen == ["10.128.0.0/24", "10.128.1.0/24"] {
            Ok(())
        } else {
            Err(format!("{subnets} {seen:?}"))
        }
    });
    assert_eq!(
        api.items("routeadvertisements").len(),
        1,
        "the default network's"
    );
    manager.stop();
}

fn pod(name: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop{rest}}}, spec: {{automountServiceAccountToken: false, \
         nodeName: n1, hostNetwork: {}, containers: [{{name: c, image: none}}]}}}}\n---\n",
        rest.is_empty()
    )
}

#[test]
fn finalizers_go_whoever_put_them_there() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    api.apply(&namespace("shop", &format!("tenant: amber, {PRIMARY}")));
    let network = cudn("amber", "10.61.0.0/16", MANAGED).replace(
        "{name: amber}",
        &format!("{{name: amber, finalizers: [{FINALIZER}, example.com/mine]}}"),
    );
    let create = |yaml: &str| {
        api.try_kubectl_with(&["create", "-f", "-"], yaml).unwrap();
    };
    create(&network);
    let uid = api.output(&["get", CUDN, "amber", "-o", "jsonpath={.metadata.uid}"]);
    create(&format!(
        "{{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {{name: amber, namespace: shop, \
         labels: {{k8s.ovn.org/user-defined-network: ''}}, finalizers: [{FINALIZER}], ownerReferences: \
         [{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, name: amber, uid: {uid}, controller: true}}]}}, spec: {{}}}}"
    ));
    let manager = Manager::start(&api, "a");
    says(&api, "amber", "NetworkCreated", "True");
    api.kubectl(&["delete", CUDN, "amber", "--wait=false"]);
    let finalizers = [
        "get",
        CUDN,
        "amber",
        "-o",
        "jsonpath={.metadata.finalizers}",
    ];
    until("others' finalizers are left", 20, || {
        match api.output(&finalizers).as_str() {
            "[\"example.com/mine\"]" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    has(&api, &["ovn-kubernetes/default"]);
    let nothing = r#"{"metadata":{"finalizers":null}}"#;
    api.kubectl(&["patch", CUDN, "amber", "--type=merge", "-p", nothing]);
    // As its owner made it, and alone.
    create(&network.replace(", example.com/mine", ""));
    says(&api, "amber", "NetworkCreated", "True");
    api.kubectl(&["delete", CUDN, "amber", "--wait=false"]);
    until("the network is gone", 20, || {
        let left = api.items(CUDN);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    manager.stop();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn an_object_that_somebody_deletes_is_made_again_when_no_pod_uses_it() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let in_network = r#", annotations: {k8s.ovn.org/pod-networks: '{"shop/amber":{}}'}"#;
    api.apply(
        &[
            namespace("shop", &format!("tenant: amber, {PRIMARY}")),
            "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}\n---\n".to_owned(),
            cudn("amber", "10.61.0.0/16", MANAGED),
            pod("user", in_network),
            // On its host's network: it holds nothing.
            pod("agent", ""),
        ]
        .concat(),
    );
    let manager = Manager::start(&api, "a");
    says(&api, "amber", "NetworkCreated", "True");
    let uid = || {
        api.output(&[
            "get",
            NAD,
            "amber",
            "-n",
            "shop",
            "-o",
            "jsonpath={.metadata.uid}",
        ])
    };
    let first = uid();
    api.kubectl(&["delete", NAD, "amber", "-n", "shop", "--wait=false"]);
    for words in [
        "False NetworkAttachmentDefinitionSyncError: failed to delete NetworkAttachmentDefinition [shop/amber]: network in use by the following pods: [user]",
        "NetworkAttachmentDefinition [shop/amber] is being deleted",
    ] {
        says(&api, "amber", "NetworkCreated", words);
    }
    assert_eq!(uid(), first);
    // Pods are not asked for with each change of the world.
    let lists = || {
        let all = api.output(&["get", "--raw", "/metrics"]);
        let of_pods = all.lines().filter(|line| {
            let words = [
                "apiserver_request_total{",
                "resource=\"pods\"",
                "verb=\"LIST\"",
            ];
            words.iter().all(|word| line.contains(word))
        });
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u32>().ok();
        of_pods.filter_map(count).sum::<u32>()
    };
    let before = lists();
    for n in 0..20 {
        api.kubectl(&[
            "label",
            "--overwrite",
            "namespace",
            "shop",
            &format!("x=y{n}"),
        ]);
        std::thread::sleep(Duration::from_millis(150));
    }
    until("pods are looked at again", 40, || {
        (lists() > before)
            .then_some(())
            .ok_or_else(|| "never".to_owned())
    });
    // Not once for each change of the world.
    let new = lists() - before;
    assert!(new <= 10, "{new} lists of pods for 20 changes");
    // A label of somebody else's is no reason to write.
    let label = ["label", NAD, "amber", "-n", "shop", "backup=nightly"];
    api.kubectl(&label);
    api.kubectl(&[
        "delete",
        "pod",
        "user",
        "-n",
        "shop",
        "--force",
        "--grace-period=0",
    ]);
    says(&api, "amber", "NetworkCreated", "True");
    until("there is another object", 20, || {
        match api.try_kubectl(&[
            "get",
            NAD,
            "amber",
            "-n",
            "shop",
            "-o",
            "jsonpath={.metadata.uid}",
        ]) {
            Ok(now) if now != first => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    api.kubectl(&label);
    std::thread::sleep(Duration::from_secs(2));
    let writes = || {
        let all = api.writes("cluster-manager");
        let mut of_networks = all;
        of_networks.retain(|write| write.ends_with("/amber"));
        of_networks.len()
    };
    let before = writes();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(writes(), before);
    manager.stop();
}

/// What the uplink of a node carries is in the node-agent's annotation; 100 bytes of it are an overlay's.
#[test]
fn a_network_whose_packets_a_node_does_not_carry_has_no_object_until_it_does() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for (name, ip, mtu) in [("n1", "172.30.0.1", "9100"), ("n2", "172.30.0.2", "1500")] {
        api.node(name, ip);
        api.kubectl(&[
            "annotate",
            "node",
            name,
            &format!("noverlay.io/host-mtu={mtu}"),
        ]);
    }
    let large = |name: &str, transport: &str| {
        let network = cudn(name, "10.61.0.0/16", transport);
        network.replace("role: Primary", "role: Primary, mtu: 9000")
    };
    let of = |name: &str| namespace(name, &format!("tenant: {name}, {PRIMARY}"));
    api.apply(&[of("amber"), large("amber", MANAGED)].concat());
    let _manager = Manager::start(&api, "a");
    says(
        &api,
        "amber",
        "NetworkCreated",
        "False MTUTooLarge: spec.network mtu 9000",
    );
    says(&api, "amber", "NetworkCreated", "n2");
    assert_eq!(attachments(&api), ["ovn-kubernetes/default"]);
    api.kubectl(&[
        "annotate",
        "--overwrite",
        "node",
        "n2",
        "noverlay.io/host-mtu=9000",
    ]);
    says(&api, "amber", "NetworkCreated", "True");
    has(&api, &["amber/amber", "ovn-kubernetes/default"]);
    // A node that comes later with less takes nothing away.
    api.node("n3", "172.30.0.3");
    api.kubectl(&["annotate", "node", "n3", "noverlay.io/host-mtu=1500"]);
    says(&api, "amber", "NetworkCreated", "n3");
    let said = condition(&api, "amber", "NetworkCreated");
    assert!(said.starts_with("True "), "{said}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(attachments(&api), ["amber/amber", "ovn-kubernetes/default"]);
}
