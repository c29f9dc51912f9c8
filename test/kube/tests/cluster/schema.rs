//! The manifests on a real API server: they apply, and the schema holds its rules in the words of the documents.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use api::node_routes::{NetworkRoutes, NodeRoutesStatus};
use kube_tests::{ApiServer, tools, top};

#[test]
fn the_manifests_apply_twice_and_frr_configurations_keep_frr_k8s_rules() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    // OpenShift has it.
    api.kubectl(&["create", "namespace", "openshift-dns"]);
    for folder in [
        "base",
        "overlays/standalone",
        "overlays/openshift",
        "overlays/with-ovn-kubernetes",
    ] {
        let folder = top().join("manifests").join(folder);
        api.kubectl(&["apply", "--server-side", "-k", folder.to_str().unwrap()]);
    }
    the_shipped_configuration_is_taken(&api);
    let short = api.output(&["get", "ra,cudn,udn,eip", "-A"]);
    assert_eq!(short, "", "the short names are known, and nothing is there");
    the_status_of_route_advertisements_is_a_column(&api);
    a_report_whose_last_network_goes_is_taken(&api);
    frr_configurations(&api);
}

fn the_status_of_route_advertisements_is_a_column(api: &ApiServer) {
    api.apply(
        "apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: pods}\n\
         spec: {networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {}, advertisements: [PodNetwork]}\n",
    );
    let patch = r#"{"status": {"status": "Accepted"}}"#;
    let on_status = ["--subresource=status", "--type=merge", "--patch", patch];
    api.kubectl(&[&["patch", "ra", "pods"][..], &on_status[..]].concat());
    let shown = api.output(&["get", "ra"]);
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows, [["NAME", "STATUS"], ["pods", "Accepted"]]);
}

/// As the node-agent applies its reports.
fn a_report_whose_last_network_goes_is_taken(api: &ApiServer) {
    api.apply(
        "apiVersion: noverlay.io/v1alpha1\nkind: NodeRoutes\nmetadata: {name: n1}\nspec: {}\n",
    );
    let default = NetworkRoutes {
        name: "default".to_owned(),
        ..NetworkRoutes::default()
    };
    let folder = tempfile::tempdir().unwrap();
    for networks in [vec![default.clone()], vec![], vec![default]] {
        let count = networks.len();
        let object = serde_json::json!({
            "apiVersion": "noverlay.io/v1alpha1", "kind": "NodeRoutes", "metadata": {"name": "n1"},
            "status": NodeRoutesStatus { networks },
        });
        let file = folder.path().join("status.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let apply = ["apply", "--server-side", "--subresource=status", "-f"];
        api.kubectl(&[&apply[..], &[file.to_str().unwrap()]].concat());
        let names = [
            "get",
            "noderoutes",
            "n1",
            "-o",
            "jsonpath={.status.networks[*].name}",
        ];
        assert_eq!(api.output(&names).split_whitespace().count(), count);
    }
}

/// Every ConfigMap that is shipped says what it needs: no daemon is left to a default that it refuses.
fn the_shipped_configuration_is_taken(api: &ApiServer) {
    let build = (settings::OvnTopology::Build, settings::OvnNetworks::Own);
    let adopt = (settings::OvnTopology::Adopt, settings::OvnNetworks::Observe);
    for (folder, of_ovn) in [
        ("base", build),
        ("overlays/standalone", build),
        ("overlays/openshift", build),
        ("overlays/with-ovn-kubernetes", adopt),
    ] {
        let folder = top().join("manifests").join(folder);
        let list = api.output(&["kustomize", folder.to_str().unwrap()]);
        let config = list
            .split("\n---\n")
            .find(|o| o.contains("kind: ConfigMap"))
            .unwrap();
        let text: Vec<&str> = config
            .lines()
            .skip_while(|l| !l.contains("noverlay.conf: |"))
            .skip(1)
            .take_while(|l| l.is_empty() || l.starts_with("    "))
            .map(str::trim)
            .collect();
        let address = "127.0.0.1:0".parse().unwrap();
        let settings = settings::parse("noverlay.conf", &text.join("\n"), address).unwrap();
        assert_eq!((settings.ovn.topology, settings.ovn.networks), of_ovn);
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
        assert_eq!(settings.allowed_services.len(), 2);
        for service in &settings.allowed_services {
            let is_its_role = |object: &&str| {
                ["kind: Role\n", "- services\n"]
                    .iter()
                    .all(|part| object.contains(part))
                    && object.contains(&format!("  namespace: {}\n", service.namespace))
                    && object.contains(&format!("  - {}\n", service.name))
            };
            let roles = list.split("\n---\n").filter(is_its_role).count();
            assert_eq!(roles, 1, "{service} in {}", folder.display());
        }
    }
}

fn frr_configurations(api: &ApiServer) {
    let object = |neighbor: &str| {
        format!(
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: f, namespace: frr-k8s-system}}\n\
             spec: {{bgp: {{routers: [{{asn: 64512, neighbors: [{neighbor}]}}]}}}}\n"
        )
    };
    api.apply(&object(
        "{address: 10.0.0.1, asn: 64512, connectTime: 5s, toReceive: {allowed: {}}}",
    ));
    let mode = api.output(&[
        "get", "frrconfiguration", "f", "-n", "frr-k8s-system", "-o",
        "jsonpath={.spec.bgp.routers[0].neighbors[0].toReceive.allowed.mode} {.spec.bgp.routers[0].neighbors[0].disableMP}",
    ]);
    assert_eq!(mode, "filtered false", "defaults are frr-k8s's");
    for (neighbor, needle) in [
        (
            "{address: 10.0.0.1, asn: 64512, connectTime: 0s}",
            "connect time should be between 1 seconds to 65535",
        ),
        (
            "{address: 10.0.0.1, asn: 64512, connectTime: 1500ms}",
            "connect time should contain a whole number of seconds",
        ),
        (
            "{address: 10.0.0.1, asn: 4294967296}",
            "less than or equal to 4294967295",
        ),
        (
            "{address: 10.0.0.1, asn: 1, dynamicASN: both}",
            "Unsupported value: \"both\"",
        ),
        (
            "{address: 10.0.0.1, asn: 1, port: 16385}",
            "less than or equal to 16384",
        ),
    ] {
        let error = api
            .try_kubectl_with(&["apply", "-f", "-"], &object(neighbor))
            .unwrap_err();
        assert!(
            error.contains(needle),
            "{neighbor}\nwanted: {needle}\nsaid: {error}"
        );
    }
}
