//! `noverlay status`, `frr diff` and `plan` on a real API server, with the rights of the account that only looks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod ran;

use kube_tests::{ApiServer, tools, until};
use ran::{Ran, noverlay};

const OBJECT: &str = "apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: c1, namespace: frr-k8s-system}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: n1}}
  bgp:
    routers:
    - asn: 64512
      neighbors:
      - {address: 172.30.0.2, asn: 64512, passwordSecret: {name: peering}}
      - {address: 172.30.0.1, asn: 64512, passwordSecret: {name: peering}}
---
apiVersion: v1
kind: Secret
metadata: {name: peering, namespace: frr-k8s-system}
type: kubernetes.io/basic-auth
stringData: {password: s3cret}
";

fn diff(api: &ApiServer, user: &str, words: &[&str]) -> Ran {
    let kubeconfig = api.kubeconfig(user);
    let fixed = [
        "frr",
        "diff",
        "--node",
        "n1",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    noverlay(&[&fixed, words].concat(), "")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn the_clusters_objects_are_compared_with_what_the_node_reports_to_run() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    api.apply(OBJECT);
    let ran = diff(&api, "noverlay-view", &[]);
    assert_eq!(ran.status, Some(2), "{}", ran.err);
    assert!(
        ran.err.contains("there is no FRRNodeState n1"),
        "{}",
        ran.err
    );

    // What a node that loaded it would report, as FRR shows it.
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {kubernetes.io/hostname: n1}}\nstatus: {addresses: [{type: InternalIP, address: 172.30.0.1}]}\n";
    let words = ["frr", "render", "--node", "n1", "-f", "-"];
    let running = noverlay(&words, &format!("{OBJECT}{node}")).out;
    assert!(running.contains("password <retracted>"), "{running}");
    api.apply("apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {name: n1}\nspec: {}\n");
    let patch = api.path("patch.json");
    let state = serde_json::json!({"status": {"runningConfig": running}});
    std::fs::write(&patch, state.to_string()).unwrap();
    api.kubectl(&[
        "patch",
        "frrnodestate",
        "n1",
        "--subresource=status",
        "--type=merge",
        "--patch-file",
        patch.to_str().unwrap(),
    ]);
    // The one may read Secrets, the other not: passwords are not compared anyway.
    for user in ["admin", "noverlay-view"] {
        let ran = diff(&api, user, &[]);
        assert_eq!(
            (ran.status, ran.out.as_str()),
            (Some(0), ""),
            "{user}: {}",
            ran.err
        );
        assert!(ran.err.contains("lint: SelfNeighbor"), "{}", ran.err);
    }
    let changed = api.path("changed.yaml");
    std::fs::write(
        &changed,
        OBJECT.replace("172.30.0.2, asn: 64512", "172.30.0.2, asn: 65001"),
    )
    .unwrap();
    let ran = diff(
        &api,
        "noverlay-view",
        &[
            "-f",
            changed.to_str().unwrap(),
            "--labels",
            "kubernetes.io/hostname=n1",
        ],
    );
    assert_eq!(ran.status, Some(1), "{}", ran.err);
    for line in [
        "- neighbor 172.30.0.2 remote-as 64512\n",
        "+ neighbor 172.30.0.2 remote-as 65001\n",
    ] {
        assert!(ran.out.contains(line), "{}", ran.out);
    }
}

#[test]
fn what_convert_makes_of_older_examples_is_taken_and_plan_reads_the_cluster_with_the_right_to_look_only()
 {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for namespace in ["metallb-system", "openshift-frr-k8s"] {
        api.kubectl(&["create", "namespace", namespace]);
    }
    let text = std::fs::read_to_string("../../test/kube/tests/data/documents.yaml").unwrap();
    let examples: Vec<serde_json::Value> = serde_saphyr::from_str(&text).unwrap();
    let older = examples.iter().filter(|e| e.get("refused").is_some());
    let mut taken = 0;
    for object in older.filter_map(|e| e.get("object").and_then(serde_json::Value::as_str)) {
        let converted = noverlay(&["convert", "-f", "-"], object);
        if converted.out.is_empty() {
            continue;
        }
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = api.try_kubectl_with(&arguments, &converted.out);
        assert!(said.is_ok(), "{}\n{said:?}", converted.out);
        taken += 1;
    }
    assert_eq!(taken, 7);

    // From the cluster: two nodes, the managed fabric, nothing written yet.
    for (name, ip) in [("n1", "172.30.0.1"), ("n2", "172.30.0.2")] {
        api.node(name, ip);
    }
    let config = tempfile::NamedTempFile::with_suffix(".conf").unwrap();
    let text = "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n[bgp-managed]\ntopology = full-mesh\n";
    std::fs::write(config.path(), text).unwrap();
    let kubeconfig = api.kubeconfig("noverlay-view");
    let words = [
        "plan",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--config",
        config.path().to_str().unwrap(),
    ];
    // The server's storage of a new kind takes a moment to begin.
    let ran = until("the cluster is read", 10, || {
        let ran = noverlay(&words, "");
        if ran.err.contains("TooManyRequests") {
            Err(ran.err)
        } else {
            Ok(ran)
        }
    });
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    for words in [
        "change Node n1",
        "create RouteAdvertisements ovnk-managed-",
        "(node n2)",
        "neighbor 172.30.0.2 remote-as 64512",
    ] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    // The same on OpenShift, whose object and what was made of it are read too.
    let openshift = format!("{text}[openshift]\nenable = true\n");
    std::fs::write(config.path(), openshift).unwrap();
    let ran = noverlay(&words, "");
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    std::fs::write(config.path(), text).unwrap();
    assert!(
        api.items("routeadvertisements").is_empty(),
        "nothing is written"
    );
}

/// Runs the cluster-manager for as long as the runtime is there.
fn manager(api: &ApiServer) -> tokio::runtime::Runtime {
    let kubeconfig = api.kubeconfig("cluster-manager");
    let text = format!(
        "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
         [bgp-managed]\ntopology = route-reflector\n[ovn]\ntopology = build\n[metrics]\nbind-address = 127.0.0.1:0\n[kubernetes]\nkubeconfig = {}\n",
        kubeconfig.display()
    );
    let metrics = "127.0.0.1:0".parse().unwrap();
    let settings = settings::parse("noverlay.conf", &text, metrics).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.spawn(cluster_manager::serve(
        "a",
        settings,
        std::future::pending(),
    ));
    runtime
}

/// What `noverlay status` says to the account that only looks.
fn status(api: &ApiServer, words: &[&str]) -> Ran {
    let kubeconfig = api.kubeconfig("noverlay-view");
    let fixed = ["status", "--kubeconfig", kubeconfig.to_str().unwrap()];
    noverlay(&[&fixed, words].concat(), "")
}

/// Waits until the table has a row that begins with `row`, one blank between its words.
fn shows(api: &ApiServer, row: &str) {
    until(row, 20, || {
        let ran = status(api, &[]);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        if ran.out.lines().map(words).any(|line| line.starts_with(row)) {
            Ok(())
        } else {
            Err(format!("{:?}\n{}{}", ran.status, ran.out, ran.err))
        }
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn status_shows_networks_the_fabric_and_advertisements_as_the_manager_made_them() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for number in 1..=3 {
        api.node(&format!("n{number}"), &format!("172.30.0.{number}"));
    }
    let role = "k8s.ovn.org/internal-bgp-role=route-reflector";
    api.kubectl(&["label", "node", "n1", "n2", role]);
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tenant: blue, k8s.ovn.org/primary-user-defined-network: \"\"}}}");
    api.apply(
        "{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {name: blue}, spec: {namespaceSelector: {matchLabels: {tenant: blue}}, \
         network: {topology: Layer3, layer3: {role: Primary, subnets: [{cidr: 10.61.0.0/16, hostSubnet: 24}]}, \
         transport: NoOverlay, noOverlay: {outboundSNAT: Enabled, routing: Managed}}}}",
    );
    let manager = manager(&api);
    shows(&api, "blue 1 NoOverlay Managed 3/3 shop true true");
    shows(&api, "default 0 NoOverlay Managed 3/3 - true");
    shows(
        &api,
        "managed fabric: route-reflector, 3 nodes, route reflectors n1, n2",
    );
    let ras = api.items("routeadvertisements");
    let names = ras
        .iter()
        .map(|ra| ra["metadata"]["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 2);
    for name in &names {
        shows(&api, &format!("{name} true true"));
    }
    let ran = status(&api, &[]);
    assert_eq!(ran.status, Some(1), "nodes report nothing: {}", ran.out);

    // A node that cannot take part: who looks sees which one, and why.
    api.node("n4", "");
    let why = "node n4: it has no InternalIP in status.addresses";
    for name in &names {
        until("its condition says it", 20, || {
            let out = status(&api, &[]).out;
            let row = out.lines().find(|line| line.trim_start().starts_with(name));
            let row = row.unwrap_or_default();
            if row.contains("false") && row.contains(why) {
                Ok(())
            } else {
                Err(out)
            }
        });
    }
    shows(
        &api,
        "managed fabric: route-reflector, 3 nodes, route reflectors n1, n2, without n4",
    );
    let ran = status(&api, &["-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        report["fabric"],
        serde_json::json!({"topology": "route-reflector", "members": 3,
            "routeReflectors": ["n1", "n2"], "outside": ["n4"]})
    );
    let network = &report["networks"][1];
    let seen = ["name", "transport", "routing"].map(|key| network[key].as_str().unwrap());
    assert_eq!(seen, ["blue", "NoOverlay", "Managed"]);
    assert_eq!(report["routeAdvertisements"][0]["complete"], false);
    drop(manager);

    // Transport and routing are those the cluster came up with, whatever the file says now; what the file declares holds
    // where nothing is in force yet.
    let config = tempfile::NamedTempFile::with_suffix(".conf").unwrap();
    let text = "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24\n[no-overlay]\noutbound-snat = enabled\nrouting = unmanaged\n";
    std::fs::write(config.path(), text).unwrap();
    let words = ["--config", config.path().to_str().unwrap(), "-o", "json"];
    let routing = || {
        let ran = status(&api, &words);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        (report["networks"][0]["routing"].clone(), ran.err)
    };
    let (kept, err) = routing();
    assert_eq!(kept, "Managed", "{err}");
    let nad = "network-attachment-definitions.k8s.cni.cncf.io";
    let unset = format!("{}-", model::network::IN_FORCE);
    api.kubectl(&["annotate", nad, "--all", "--all-namespaces", &unset]);
    let (declared, err) = routing();
    assert_eq!(declared, "Unmanaged", "{err}");
}

#[test]
fn status_shows_what_the_installed_definitions_lack() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    api.node("n1", "172.30.0.1");
    let lacking = || {
        let ran = status(&api, &[]);
        let lines = ran.out.lines().filter(|line| line.contains("lack"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        (lines, format!("{}{}", ran.out, ran.err))
    };
    let is = |wanted: &[&str]| {
        // The API server takes a moment to publish a schema.
        until(&format!("{wanted:?}"), 20, || {
            let (lines, said) = lacking();
            (lines == wanted).then_some(()).ok_or(said)
        });
    };
    is(&[]);
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/bgp/properties/bfdProfiles";
    let patch = format!(r#"[{{"op": "remove", "path": "{field}"}}]"#);
    let crd = "frrconfigurations.frrk8s.metallb.io";
    api.kubectl(&["patch", "crd", crd, "--type=json", "-p", &patch]);
    api.kubectl(&["delete", "crd", "egressips.k8s.ovn.org"]);
    is(&[
        "custom resource definitions lack k8s.ovn.org/v1 EgressIP",
        "custom resource definitions lack field spec.bgp.bfdProfiles of frrk8s.metallb.io/v1beta1 FRRConfiguration",
    ]);
    let ran = status(&api, &["-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["definitions"].as_array().unwrap().len(), 2);
    // A kind without which the cluster cannot be read: what is lacking is told all the same.
    api.kubectl(&["delete", "crd", "bgpsessionstates.frrk8s.metallb.io"]);
    let lines = [
        "custom resource definitions lack k8s.ovn.org/v1 EgressIP",
        "custom resource definitions lack frrk8s.metallb.io/v1beta1 BGPSessionState",
        "error: cannot list bgpsessionstates: ",
    ];
    until("it is told with the error", 20, || {
        let ran = status(&api, &[]);
        let told = lines
            .iter()
            .all(|wanted| ran.err.lines().any(|line| line.starts_with(wanted)));
        let told = told && (ran.status, ran.out.as_str()) == (Some(2), "");
        let said = format!("{:?} {}{}", ran.status, ran.out, ran.err);
        told.then_some(()).ok_or(said)
    });
}
