//! What belongs to others: OVN-Kubernetes' objects under the names and labels that ours have too.

use kube_tests::{ApiServer, tools};

use super::process::{Daemon, MANAGED, settled, text, writes_of};

#[test]
fn adopt_and_observe_are_refused_in_words_and_nothing_is_written() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let build = "[ovn]\ntopology = \"build\"\n";
    let adopt = ["[ovn] topology = adopt", "allowed: build"];
    for (ovn, words) in [
        ("[ovn]\ntopology = \"adopt\"\n", adopt),
        ("[ovn]\ntopology = \"adopt\"\nnetworks = \"own\"\n", adopt),
        (
            "[ovn]\ntopology = \"adopt\"\nnetworks = \"observe\"\n",
            adopt,
        ),
        // The settings have no such pair.
        (
            "[ovn]\ntopology = \"build\"\nnetworks = \"observe\"\n",
            [
                "[ovn] networks = \"observe\"",
                "must be \"own\" when topology=build",
            ],
        ),
        ("", adopt),
    ] {
        let settings = MANAGED.replace(build, ovn);
        let kubeconfig = api.kubeconfig("cluster-manager");
        let (ok, said) = Daemon::start(&api, "a", &kubeconfig, &settings).ended();
        assert!(!ok && words.iter().all(|w| said.contains(w)), "{said}");
    }
    assert_eq!(writes_of(&api, "cluster-manager"), []);
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
