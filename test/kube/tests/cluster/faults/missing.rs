//! Kinds that the API server does not have, or does not show: they cost only themselves.

use kube_tests::{ApiServer, tools, until};

use super::events::without;
use super::process::{Daemon, MANAGED, condition, settled, text};

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

fn network(name: &str, n: u8) -> String {
    format!(
        "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, \
         network: {{topology: Layer3, layer3: {{role: Primary, subnets: [{{cidr: 10.{n}.0.0/16, hostSubnet: 24}}]}}}}}}}}\n---\n"
    )
}

fn namespace(tenant: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: of-{tenant}, labels: {{tenant: {tenant}, k8s.ovn.org/primary-user-defined-network: ''}}}}}}\n---\n"
    )
}

#[test]
fn networks_say_that_their_objects_have_no_kind_and_can_be_deleted_without_it() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
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
fn a_network_that_pods_hold_stays_while_the_kind_of_its_objects_is_not_served() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let all = [
        network("amber", 61),
        network("cobalt", 62),
        namespace("amber"),
    ];
    api.apply(&all.concat());
    let _daemon = Daemon::managed(&api, "a");
    let attachments = || api.items("network-attachment-definitions");
    let of_amber = |count: usize| {
        until("amber has its object", 30, || {
            let all = attachments();
            let own = all.iter().filter(|o| text(o, "/metadata/name") == "amber");
            let seen = own.count();
            (seen == count).then_some(()).ok_or(seen.to_string())
        });
    };
    of_amber(1);
    api.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: of-amber}}",
    );
    api.apply("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: of-amber}, spec: {containers: [{name: web, image: web}]}}");
    let kind = "clusteruserdefinednetworks";
    api.kubectl(&["delete", kind, "amber", "--wait=false"]);
    let serve = |yes: bool| {
        let patch =
            format!(r#"[{{"op":"replace","path":"/spec/versions/0/served","value":{yes}}}]"#);
        let crd = "network-attachment-definitions.k8s.cni.cncf.io";
        api.kubectl(&["patch", "crd", crd, "--type=json", "-p", &patch]);
    };
    serve(false);
    until("the kind is not served", 20, || {
        let said = api.try_kubectl(&["get", "net-attach-def", "-A"]);
        said.err().map(drop).ok_or("it is".to_owned())
    });
    // Something that needs an object: what there is is asked for.
    api.apply(&namespace("cobalt"));
    std::thread::sleep(std::time::Duration::from_secs(6));
    let names = ["get", kind, "-o", "jsonpath={.items[*].metadata.name}"];
    assert_eq!(api.output(&names), "amber cobalt");
    serve(true);
    of_amber(1);
    api.kubectl(&[
        "delete",
        "pod",
        "web",
        "-n",
        "of-amber",
        "--force",
        "--grace-period=0",
    ]);
    api.kubectl(&["wait", "--for=delete", kind, "amber", "--timeout=100s"]);
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

/// Versions of all FRRConfigurations and NetworkAttachmentDefinitions, by kind and name.
fn versions(api: &ApiServer) -> Vec<(String, String)> {
    let kinds = ["frrconfigurations", "network-attachment-definitions"];
    let objects = kinds.into_iter().flat_map(|kind| api.items(kind));
    let pair = |object: serde_json::Value| {
        let name = format!(
            "{} {}",
            text(&object, "/kind"),
            text(&object, "/metadata/name")
        );
        (name, text(&object, "/metadata/resourceVersion"))
    };
    objects.map(pair).collect()
}

/// A router outside that selects every node, and an RouteAdvertisements `out` that advertises by it.
const OUTSIDE: &str = "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: router, namespace: frr-k8s-system, labels: {use: me}}\n\
    spec: {bgp: {routers: [{asn: 64512, neighbors: [{address: 172.30.0.254, asn: 64512, disableMP: true}]}]}}\n---\n\
    apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: out}\n\
    spec: {nodeSelector: {}, frrConfigurationSelector: {matchLabels: {use: me}}, ADVERTISED}\n";

fn overlay() -> String {
    "[default]\ntransport = \"geneve\"\ncluster-subnets = \"10.128.0.0/16/24\"\n[ovn]\ntopology = \"build\"\n".to_owned()
}

const EGRESSIP: &str = "apiVersion: k8s.ovn.org/v1\nkind: EgressIP\nmetadata: {name: out}\nspec: {egressIPs: [172.30.0.77], namespaceSelector: {}}\n";

/// Says that the EgressIP is on this node, as OVN-Kubernetes does.
fn place(api: &ApiServer, node: &str) {
    let status =
        format!(r#"{{"status":{{"items":[{{"node":"{node}","egressIP":"172.30.0.77"}}]}}}}"#);
    // With or without a subresource of its own, whichever the kind has.
    let patch = ["patch", "egressip", "out", "--type=merge", "-p", &status];
    let by_status = [patch.as_slice(), &["--subresource=status"]].concat();
    if api.try_kubectl(&by_status).is_err() {
        api.kubectl(&patch);
    }
}

/// The nodes that announce it.
fn announcing(api: &ApiServer) -> Vec<String> {
    let objects = api.items("frrconfigurations");
    let announce = objects
        .iter()
        .filter(|o| o.to_string().contains("172.30.0.77/32"));
    let hosts = announce.filter_map(|o| {
        let host = o.pointer("/spec/nodeSelector/matchLabels/kubernetes.io~1hostname");
        host?.as_str().map(str::to_owned)
    });
    hosts.collect()
}

#[test]
fn an_egressip_is_announced_by_the_node_that_it_is_on_and_by_none_after_its_end() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let advertised =
        "networkSelectors: [{networkSelectionType: DefaultNetwork}], advertisements: [EgressIP]";
    api.apply(&OUTSIDE.replace("ADVERTISED", advertised));
    let account = api.kubeconfig("cluster-manager");
    let _daemon = Daemon::start(&api, "a", &account, &overlay());
    let announced_by = |nodes: &[&str]| {
        until(&format!("{nodes:?} announce it"), 30, || {
            let now = announcing(&api);
            (now == nodes).then_some(()).ok_or(format!("{now:?}"))
        });
    };
    api.apply(EGRESSIP);
    place(&api, "n1");
    announced_by(&["n1"]);
    place(&api, "n2");
    announced_by(&["n2"]);
    place(&api, "n1");
    announced_by(&["n1"]);
    api.kubectl(&["delete", "egressip", "out"]);
    announced_by(&[]);
}

#[test]
fn egressips_that_are_announced_stay_while_they_may_not_be_listed() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let advertised =
        "networkSelectors: [{networkSelectionType: DefaultNetwork}], advertisements: [EgressIP]";
    api.apply(&OUTSIDE.replace("ADVERTISED", advertised));
    api.apply(EGRESSIP);
    place(&api, "n1");
    let account = api.kubeconfig("cluster-manager");
    let daemon = Daemon::start(&api, "a", &account, &overlay());
    until("the address is announced", 30, || {
        let now = announcing(&api);
        (now == ["n1"]).then_some(()).ok_or(format!("{now:?}"))
    });
    let before = versions(&api);
    drop(daemon);
    let patch = without(&api, "egressips");
    api.kubectl(&[ROLE.as_slice(), &["--type=json", "-p", &patch]].concat());
    let daemon = Daemon::start(&api, "b", &account, &overlay());
    is(&daemon, 1.0);
    until("it is told", 60, || {
        let (status, _, message) = condition(&api, "Complete");
        let told = message.contains("EgressIPs: the API server does not list them (status 403)");
        (status == "False" && told).then_some(()).ok_or(message)
    });
    assert_eq!(versions(&api), before);
}

#[test]
fn networks_whose_kind_is_not_served_just_now_keep_what_they_have() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    api.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tenant: amber, k8s.ovn.org/primary-user-defined-network: ''}}}\n---\n\
         {apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {name: amber}, spec: {namespaceSelector: {matchLabels: {tenant: amber}}, \
         network: {topology: Layer3, transport: NoOverlay, noOverlay: {outboundSNAT: Enabled, routing: Managed}, layer3: {role: Primary, subnets: [{cidr: 10.61.0.0/16, hostSubnet: 24}]}}}}\n",
    );
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    until("the network is announced", 30, || {
        let objects = api.items("frrconfigurations");
        let routers = objects
            .iter()
            .filter(|o| o.to_string().contains("\"vrf\":\"amber\""));
        let count = routers.count();
        (count == 2).then_some(()).ok_or(count.to_string())
    });
    drop(daemon);
    let before = versions(&api);
    let serve = |yes: bool| {
        let patch =
            format!(r#"[{{"op":"replace","path":"/spec/versions/0/served","value":{yes}}}]"#);
        let crd = "clusteruserdefinednetworks.k8s.ovn.org";
        api.kubectl(&["patch", "crd", crd, "--type=json", "-p", &patch]);
    };
    serve(false);
    until("the kind is not served", 20, || {
        let said = api.try_kubectl(&["get", "clusteruserdefinednetworks"]);
        said.err().map(drop).ok_or("it is".to_owned())
    });
    let daemon = Daemon::managed(&api, "b");
    until("it asks for the kind", 30, || {
        let said = daemon.said();
        let asks = said.contains("clusteruserdefinednetworks") && said.contains("404");
        asks.then_some(()).ok_or(said)
    });
    until("it is told what is waited for", 20, || {
        let series = "noverlay_cluster_manager_kind_missing{kind=\"clusteruserdefinednetworks\"}";
        let missing = daemon.metric(series)?;
        (missing > 0.5).then_some(()).ok_or(missing.to_string())
    });
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(versions(&api), before);
    serve(true);
    until("it works", 60, || {
        let (line, body) = daemon.get("/readyz")?;
        line.contains(" 200 ").then_some(()).ok_or(body)
    });
    assert_eq!(versions(&api), before);
}

/// Nodes n1 and n2, and an operator object that asks for a managed fabric.
fn on_openshift(api: &ApiServer) {
    api.install("operator.openshift.io_networks.yaml");
    until("the kind is served", 20, || {
        api.try_kubectl(&["get", "networks.operator.openshift.io"])
            .map(drop)
    });
    for name in ["openshift-frr-k8s", "openshift-ovn-kubernetes"] {
        api.kubectl(&["create", "namespace", name]);
    }
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    api.apply(
        "apiVersion: operator.openshift.io/v1\nkind: Network\nmetadata: {name: cluster}\n\
         spec: {additionalRoutingCapabilities: {providers: [FRR]}, defaultNetwork: {type: OVNKubernetes, ovnKubernetesConfig: \
         {routeAdvertisements: Enabled, transport: NoOverlay, noOverlayConfig: {outboundSNAT: Enabled, routing: Managed}, bgpManagedConfig: {bgpTopology: FullMesh, asNumber: 64900}}}}\n",
    );
}

#[test]
fn what_the_operator_object_said_is_waited_for_where_it_may_not_be_read() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    on_openshift(&api);
    let text = format!("{}[openshift]\nenable = true\n", overlay());
    let account = api.kubeconfig("cluster-manager");
    let daemon = Daemon::start(&api, "a", &account, &text);
    settled(&api, 2, 30);
    let map = [
        "get",
        "configmap",
        "noverlay-operator",
        "-n",
        "noverlay-system",
        "-o",
        "jsonpath={.data}",
    ];
    until("what it says is kept", 30, || {
        let said = api.try_kubectl(&map)?;
        said.contains("64900").then_some(()).ok_or(said)
    });
    let (before, kept) = (versions(&api), api.output(&map));
    drop(daemon);
    // The object and its kind go, and so does the right to read what was made of it.
    api.kubectl(&["delete", "crd", "networks.operator.openshift.io"]);
    let role = [
        "patch",
        "role",
        "noverlay-leader",
        "-n",
        "noverlay-system",
        "--type=json",
        "-p",
    ];
    let take = r#"[{"op":"replace","path":"/rules/1/verbs","value":["create","patch"]}]"#;
    api.kubectl(&[role.as_slice(), &[take]].concat());
    let daemon = Daemon::start(&api, "b", &account, &text);
    until("it asks for what was kept", 40, || {
        let said = daemon.said();
        let asks = said.contains("configmaps") && said.contains("403");
        asks.then_some(()).ok_or(said)
    });
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(
        (versions(&api), api.output(&map)),
        (before.clone(), kept.clone())
    );
    let give = r#"[{"op":"replace","path":"/rules/1/verbs","value":["get","list","watch","create","patch"]}]"#;
    api.kubectl(&[role.as_slice(), &[give]].concat());
    until("it works", 60, || {
        let (line, body) = daemon.get("/readyz")?;
        line.contains(" 200 ").then_some(()).ok_or(body)
    });
    assert_eq!(api.output(&map), kept);
    let frr = |all: &[(String, String)]| -> Vec<(String, String)> {
        let of_kind = all.iter().filter(|(name, _)| name.starts_with("FRR"));
        of_kind.cloned().collect()
    };
    assert_eq!(frr(&versions(&api)), frr(&before));
}
