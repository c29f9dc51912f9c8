//! What belongs to others: OVN-Kubernetes' objects under the names and labels that ours have too.

use kube_tests::{ApiServer, tools, until};

use crate::configuration::publish;

use super::process::{Daemon, MANAGED, settled, text, writes_of};

const BUILD: &str = "[ovn]\ntopology = \"build\"\n";

#[test]
fn two_writers_of_networks_are_refused_in_words_and_nothing_is_written() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let build = BUILD;
    for (ovn, words) in [
        (
            "[ovn]\ntopology = \"adopt\"\nnetworks = \"own\"\n",
            ["[ovn] networks = own", "allowed: observe"],
        ),
        // The settings have no such pair.
        (
            "[ovn]\ntopology = \"build\"\nnetworks = \"observe\"\n",
            [
                "[ovn] networks = \"observe\"",
                "must be \"own\" when topology=build",
            ],
        ),
    ] {
        let settings = MANAGED.replace(build, ovn);
        let kubeconfig = api.kubeconfig("cluster-manager");
        let (ok, said) = Daemon::start(&api, "a", &kubeconfig, &settings).ended();
        assert!(!ok && words.iter().all(|w| said.contains(w)), "{said}");
    }
    assert_eq!(writes_of(&api, "cluster-manager"), []);
}

/// Prefixes that a node's generated FRRConfigurations announce.
pub(super) fn announced(api: &ApiServer, node: &str) -> Vec<String> {
    let all = api.items("frrconfigurations");
    let of_node = all.iter().filter(|object| {
        object.pointer("/spec/nodeSelector/matchLabels/kubernetes.io~1hostname")
            == Some(&node.into())
    });
    let routers = of_node.filter_map(|object| object.pointer("/spec/bgp/routers")?.as_array());
    let prefixes = routers
        .flatten()
        .filter_map(|router| router.get("prefixes")?.as_array());
    let mut all: Vec<String> = prefixes
        .flatten()
        .map(|prefix| prefix.as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

/// Neither ids nor subnets are given out, and no network is made; n3 was without any.
fn nothing_of_networks_is_ours(api: &ApiServer) {
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(api.items("network-attachment-definitions").len(), 0);
    let nodes = api.items_with_managers("nodes");
    for node in &nodes {
        let managers = node.pointer("/metadata/managedFields").unwrap();
        let managers = managers.as_array().unwrap();
        let ours = managers
            .iter()
            .filter(|entry| entry.get("manager") == Some(&"noverlay-cluster-manager".into()));
        for entry in ours {
            let fields = entry.pointer("/fieldsV1/f:metadata/f:annotations");
            let none = fields.is_none_or(|fields| *fields == serde_json::json!({}));
            assert!(none, "{}: {fields:?}", text(node, "/metadata/name"));
        }
    }
    let n3 = nodes
        .iter()
        .find(|node| text(node, "/metadata/name") == "n3")
        .unwrap();
    assert_eq!(
        n3.pointer("/metadata/annotations/k8s.ovn.org~1node-subnets"),
        None
    );
}

#[test]
fn beside_ovn_kubernetes_nodes_are_announced_when_they_are_ready_and_their_networks_are_left_alone()
{
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    // As OVN-Kubernetes writes them; n3 has none yet.
    for n in 1..=2 {
        let subnets = format!(r#"k8s.ovn.org/node-subnets={{"default":["10.128.{n}.0/24"]}}"#);
        api.kubectl(&[
            "annotate",
            "node",
            &format!("n{n}"),
            &subnets,
            &format!("k8s.ovn.org/node-id={}", n + 1),
        ]);
    }
    api.node("n3", "172.30.0.3");
    let kubeconfig = api.kubeconfig("cluster-manager");
    let daemon = Daemon::start(&api, "a", &kubeconfig, &beside());
    let is = |node: &str, wanted: &[&str]| announces(&api, node, wanted);
    until("members have their sessions", 30, || {
        let all = api.items("frrconfigurations");
        if all.len() >= 5 {
            Ok(())
        } else {
            Err(format!("{}", all.len()))
        }
    });
    is("n1", &[]);
    let ready = r#"noverlay.io/underlay-ready={"boot":"b","networks":["default"]}"#;
    api.kubectl(&["annotate", "node", "n1", ready]);
    is("n1", &["10.128.1.0/24"]);
    api.kubectl(&["annotate", "node", "n1", "noverlay.io/underlay-ready-"]);
    is("n1", &[]);
    api.kubectl(&["annotate", "node", "n1", ready]);
    is("n1", &["10.128.1.0/24"]);
    stay(&api);
    nothing_of_networks_is_ours(&api);
    back_to_the_tunnels(&api, &daemon);
    drop(daemon);
}

/// The configuration goes back to the tunnels while n1 is past them: it is announced until it is not.
fn back_to_the_tunnels(api: &ApiServer, daemon: &Daemon) {
    let config = api.path("a.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let (head, rest) = text.split_once("[no-overlay]").unwrap();
    let (_, rest) = rest.split_once("[ovn]").unwrap();
    let geneve = format!("{}[ovn]{rest}", head.replace("no-overlay", "geneve"));
    publish(&config, &geneve);
    until("it is said what is waited for", 30, || {
        let said = daemon.said();
        if said.contains("until none does; still: n1 ") {
            Ok(())
        } else {
            Err(said)
        }
    });
    stay(api);
    api.kubectl(&["annotate", "node", "n1", "noverlay.io/underlay-ready-"]);
    until("nothing is announced any more", 30, || {
        let left = ["routeadvertisements", "frrconfigurations"].map(|kind| api.items(kind).len());
        if left == [0, 0] {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

/// The manager's configuration beside OVN-Kubernetes.
pub(super) fn beside() -> String {
    MANAGED.replace(BUILD, "[ovn]\ntopology = \"adopt\"\n")
}

pub(super) fn announces(api: &ApiServer, node: &str, wanted: &[&str]) {
    until(&format!("{node} announces {wanted:?}"), 30, || {
        let seen = announced(api, node);
        if seen == *wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
}

/// n1 is announced for a while, and n2 is not.
fn stay(api: &ApiServer) {
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let both = ["n1", "n2"].map(|node| announced(api, node));
        assert_eq!(both, [vec!["10.128.1.0/24".to_owned()], Vec::new()]);
    }
}

#[test]
fn what_does_not_bear_our_label_is_never_deleted() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    let fabric = text(&api.items("routeadvertisements")[0], "/metadata/name");
    // As OVN-Kubernetes generates them: for the default network, for networks of users, and reports of a node that is gone.
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: users}\nspec: {networkSelectors: [{networkSelectionType: ClusterUserDefinedNetworks, clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {a: b}}}}], nodeSelector: {}, frrConfigurationSelector: {}, advertisements: [PodNetwork]}\n");
    for (name, ra) in [
        ("abcde", fabric.as_str()),
        ("fghij", "users"),
        ("klmno", "gone"),
    ] {
        api.apply(&format!(
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\n\
             metadata: {{name: ovnk-generated-{name}, namespace: frr-k8s-system, labels: {{k8s.ovn.org/route-advertisements: {ra}}}, annotations: {{k8s.ovn.org/route-advertisements: {ra}/x/n1}}}}\n\
             spec: {{nodeSelector: {{matchLabels: {{kubernetes.io/hostname: n1}}}}, bgp: {{routers: [{{asn: 64777, prefixes: [10.128.0.0/24]}}]}}}}\n"
        ));
    }
    api.apply(
        "apiVersion: noverlay.io/v1alpha1\nkind: NodeRoutes\nmetadata: {name: gone}\nspec: {}\n---\n\
         apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {name: gone}\nspec: {}\n",
    );
    // Both a change of nodes, which lets leftovers be looked for, and passes of all RouteAdvertisements.
    api.node("n3", "172.30.0.3");
    std::thread::sleep(std::time::Duration::from_secs(5));
    api.kubectl(&["delete", "ra", "users"]);
    settled(&api, 3, 30);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let deletes: Vec<_> = writes_of(&api, "cluster-manager")
        .into_iter()
        .filter(|(w, _)| w.starts_with("delete"))
        .collect();
    assert_eq!(deletes, []);
    drop(daemon);
}
