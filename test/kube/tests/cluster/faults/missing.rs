//! Kinds that the API server does not have, or does not show: they cost only themselves.

use kube_tests::{ApiServer, tools, until};

use super::events::without;
use super::process::{Daemon, MANAGED, settled, text};

const ROLE: [&str; 3] = ["patch", "clusterrole", "noverlay-cluster-manager"];

/// What the manager's series says of EgressIPs.
fn series(daemon: &Daemon) -> Result<f64, String> {
    daemon.metric("noverlay_cluster_manager_kind_missing{kind=\"egressips\"}")
}

fn is(daemon: &Daemon, value: f64) {
    until(
        &format!("egressips are missing: {value}"),
        20,
        || match series(daemon)? {
            seen if (seen - value).abs() < 0.5 => Ok(()),
            other => Err(other.to_string()),
        },
    );
}

#[test]
fn without_the_kind_egressip_all_else_is_served_and_it_is_named() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let name = "egressips.k8s.ovn.org";
    let crd = api.path("egressips.yaml");
    std::fs::write(&crd, api.output(&["get", "crd", name, "-o", "json"])).unwrap();
    api.kubectl(&["delete", "crd", name]);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    let id = "/metadata/annotations/k8s.ovn.org~1node-id";
    assert_ne!(text(&api.items("nodes")[0], id), "");
    is(&daemon, 1.0);
    assert!(daemon.said().contains("egressips"), "{}", daemon.said());
    let (line, body) = daemon.get("/readyz").unwrap();
    assert!(line.contains(" 200 "), "{line} {body}");
    // It is asked for again.
    api.kubectl(&["create", "-f", crd.to_str().unwrap()]);
    is(&daemon, 0.0);
}

#[test]
fn egressips_that_may_not_be_listed_or_are_not_wanted_keep_nothing_back() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let patch = without(&api, "egressips");
    api.kubectl(&[ROLE.as_slice(), &["--type=json", "-p", &patch]].concat());
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    is(&daemon, 1.0);
    drop(daemon);
    let off = format!("{MANAGED}[ovnkubernetesfeature]\nenable-egress-ip = false\n");
    let account = api.kubeconfig("cluster-manager");
    let daemon = Daemon::start(&api, "b", &account, &off);
    api.node("n3", "172.30.0.3");
    settled(&api, 3, 60);
    assert!(series(&daemon).is_err(), "nobody asks for them");
    assert!(
        !daemon.said().contains("watch is broken"),
        "{}",
        daemon.said()
    );
}

#[test]
fn networks_say_that_their_objects_have_no_kind_and_can_be_deleted_without_it() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let network = |name: &str, n: u8| {
        format!(
            "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, \
             network: {{topology: Layer3, layer3: {{role: Primary, subnets: [{{cidr: 10.{n}.0.0/16, hostSubnet: 24}}]}}}}}}}}\n---\n"
        )
    };
    let namespace = |tenant: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: of-{tenant}, labels: {{tenant: {tenant}, k8s.ovn.org/primary-user-defined-network: ''}}}}}}\n---\n"
        )
    };
    let parts = [network("amber", 61), network("cobalt", 62)];
    api.apply(&[parts.concat(), namespace("amber")].concat());
    let _daemon = Daemon::managed(&api, "a");
    let kind = "clusteruserdefinednetworks";
    let says = |name: &str, words: &str| {
        let path = "jsonpath={.status.conditions[?(@.type==\"NetworkCreated\")]}";
        until(&format!("{name}: {words}"), 20, || {
            let said = api.try_kubectl(&["get", kind, name, "-o", path])?;
            said.contains(words).then_some(()).ok_or(said)
        });
    };
    says("amber", "in following namespaces: [of-amber]");
    says("cobalt", "in following namespaces: []");
    let crd = "network-attachment-definitions.k8s.cni.cncf.io";
    api.kubectl(&["delete", "crd", crd, "--wait=false"]);
    api.kubectl(&["delete", kind, "amber", "--timeout=60s"]);
    api.kubectl(&["wait", "--for=delete", "crd", crd, "--timeout=60s"]);
    api.apply(&namespace("cobalt"));
    says(
        "cobalt",
        "cannot apply NetworkAttachmentDefinition of-cobalt/cobalt: ",
    );
    says("cobalt", "\"status\":\"False\"");
    api.kubectl(&["delete", kind, "cobalt", "--timeout=60s"]);
}

#[test]
fn reports_of_kinds_that_are_not_installed_are_not_looked_for_again_and_again() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for kind in ["frrnodestates", "bgpsessionstates"] {
        api.kubectl(&["delete", "crd", &format!("{kind}.frrk8s.metallb.io")]);
    }
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    api.apply("{apiVersion: noverlay.io/v1alpha1, kind: NodeRoutes, metadata: {name: gone, labels: {app.kubernetes.io/managed-by: noverlay}}, spec: {}}");
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    let passes = |result: &str| {
        let labels = format!("{{reconciler=\"leftovers\",result=\"{result}\"}}");
        daemon.metric(&format!(
            "noverlay_cluster_manager_reconciles_total{labels}"
        ))
    };
    until("reports were looked for", 20, || {
        let seen = [passes("done"), passes("requeue")];
        let any = seen.iter().any(Result::is_ok);
        any.then_some(()).ok_or(format!("{seen:?}"))
    });
    assert!(api.items("noderoutes").is_empty());
    assert!(passes("requeue").is_err(), "{:?}", passes("requeue"));
}
