//! `noverlay plan` as a person runs it: what it prints where, and its exit status.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod ran;

use ran::{Ran, noverlay};
use serde_json::Value;

const WORLDS: &str = "../../crates/offline/tests/ra-conformance";

/// A configuration file with an overlay for the default network, whose topology is made here.
fn config() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(
        file.path(),
        "[default]\ntransport = \"geneve\"\ncluster-subnets = \"10.240.0.0/16/24\"\n[ovn]\ntopology = \"build\"\n",
    )
    .unwrap();
    file
}

fn plan(world: &str, more: &[&str], change: &str) -> Ran {
    let config = config();
    let config = config.path().to_str().unwrap();
    let words = [&["plan", "--world", world, "--config", config], more].concat();
    noverlay(&words, change)
}

#[test]
fn a_world_leads_to_objects_conditions_and_the_frr_conf_of_each_node() {
    let world = format!("{WORLDS}/09-cudn-layer3/world.yaml");
    let ran = plan(&world, &[], "");
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
    for words in [
        "create NetworkAttachmentDefinition shop/amber\n",
        "create NetworkAttachmentDefinition till/amber\n",
        "(node elm)\n",
        "frr.conf of node oak:\n",
        "network 10.61.3.0/24",
        "import vrf amber",
    ] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    // The same as YAML is what the recording says, in its shape.
    let ran = plan(&world, &["-o", "yaml"], "");
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let state: Value = serde_saphyr::from_str(&ran.out).unwrap();
    let expected =
        std::fs::read_to_string(format!("{WORLDS}/09-cudn-layer3/expected.yaml")).unwrap();
    let expected: Value = serde_saphyr::from_str(&expected).unwrap();
    assert_eq!(state["nodes"], expected["nodes"]);
    let raws = |v: &Value| -> Vec<Value> {
        let list = v["frrconfigurations"].as_array().unwrap();
        list.iter().map(|o| o["spec"]["raw"].clone()).collect()
    };
    assert_eq!(raws(&state), raws(&expected));
    assert_eq!(state["nads"][0]["config"], expected["nads"][0]["config"]);
}

#[test]
fn a_change_shows_what_it_would_do_and_what_it_would_break() {
    let world = format!("{WORLDS}/09-cudn-layer3/world.yaml");
    // Nothing but one label.
    let harmless = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}}}";
    let ran = plan(&world, &["-f", "-"], harmless);
    assert_eq!(
        (ran.status, ran.out.as_str()),
        (Some(0), "change Namespace shop\n")
    );
    // The network goes.
    let ran = plan(
        &world,
        &["--delete", "ClusterUserDefinedNetwork/amber", "--diff"],
        "",
    );
    assert_eq!(ran.status, Some(1), "{}", ran.out);
    for words in [
        "delete ClusterUserDefinedNetwork amber",
        "delete NetworkAttachmentDefinition till/amber",
        "-  network 10.61.3.0/24",
        "RouteAdvertisements amber-pods: Accepted is False, ConfigurationPending: configuration pending: no networks selected",
    ] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    // Somebody else's object that gives the default VRF another AS number.
    let foreign = "{apiVersion: frrk8s.metallb.io/v1beta1, kind: FRRConfiguration, metadata: {name: other, namespace: frr-k8s-system}, spec: {bgp: {routers: [{asn: 64999}]}}}";
    let ran = plan(&world, &["-f", "-"], foreign);
    assert_eq!(ran.status, Some(1), "{}", ran.out);
    for words in [
        "node oak would load nothing:\n",
        "64999",
        "Complete is False",
    ] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
}

/// Nothing of ours stands on a node for a network of the tunnels beside OVN-Kubernetes: it is not announced, and the plan says so.
#[test]
fn beside_ovn_kubernetes_a_network_of_the_tunnels_is_left_out_in_words() {
    let world = std::fs::read_to_string(format!("{WORLDS}/09-cudn-layer3/world.yaml")).unwrap();
    let config = "[default]\ntransport = \"geneve\"\ncluster-subnets = \"10.240.0.0/16/24\"\n[ovn]\ntopology = \"adopt\"\n";
    let ran = plan_of(config, &world, &[], "");
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    let said = "RouteAdvertisements amber-pods: Complete is False, LeftOut: node elm: network cluster_udn_amber: its pods' packets take OVN-Kubernetes' tunnels";
    assert!(ran.out.contains(said), "{}", ran.out);
    assert!(!ran.out.contains("network 10.61.3.0/24"), "{}", ran.out);
}

/// Runs `noverlay plan` over a world of the text, with a configuration file of the other.
fn plan_of(config: &str, world: &str, more: &[&str], change: &str) -> Ran {
    let file = |text: &str, suffix: &str| {
        let file = tempfile::NamedTempFile::with_suffix(suffix).unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    };
    let (config, world) = (file(config, ".toml"), file(world, ".yaml"));
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_owned();
    let (config, world) = (path(&config), path(&world));
    let words = ["plan", "--world", &world, "--config", &config];
    noverlay(&[&words, more].concat(), change)
}

const SUBNETS: &str = "cluster-subnets = \"10.240.0.0/16/24\"\n";

#[test]
fn what_the_default_network_runs_with_stays_and_is_told() {
    let geneve = format!("[default]\ntransport = \"geneve\"\n{SUBNETS}");
    let world = "{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: default, namespace: ovn-kubernetes, annotations: {noverlay.io/configuration-in-force: \"[default]\\ntransport = 'no-overlay'\\n[no-overlay]\\noutbound-snat = 'enabled'\\nrouting = 'managed'\\n[bgp-managed]\\ntopology = 'full-mesh'\\nas-number = 64777\\n\"}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: oak, labels: {kubernetes.io/hostname: oak}}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}";
    let ran = plan_of(&geneve, world, &[], "");
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    let told = "the configuration says [default] transport = geneve, the default network runs with [default] transport = no-overlay with [no-overlay] routing = managed: that stays in force";
    for words in ["not as it is asked for:\n", told, "router bgp 64777"] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    let ran = plan_of(&geneve, world, &["-o", "yaml"], "");
    let state: Value = serde_saphyr::from_str(&ran.out).unwrap();
    let managed = state["managed"].as_array().unwrap();
    let kinds = managed
        .iter()
        .map(|object| object["kind"].as_str().unwrap());
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        ["FRRConfiguration", "RouteAdvertisements"]
    );
    assert_eq!(managed[0]["spec"]["bgp"]["routers"][0]["asn"], 64777);
    // What cannot be read the manager goes on without.
    let broken = world.replace("'no-overlay'", "'none'");
    let ran = plan_of(&geneve, &broken, &[], "");
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    let unread = "annotation noverlay.io/configuration-in-force of NetworkAttachmentDefinition ovn-kubernetes/default";
    for words in [unread, "; what the file says is in force"] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    assert!(!ran.out.contains("router bgp"), "{}", ran.out);
}

#[test]
fn what_openshifts_operator_object_says_is_planned_and_a_change_of_it_shown() {
    let config =
        format!("[default]\ntransport = \"geneve\"\n{SUBNETS}[openshift]\nenable = true\n");
    let world = "{apiVersion: v1, kind: Node, metadata: {name: oak, labels: {kubernetes.io/hostname: oak}}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}";
    let network = |asn: u32| {
        format!(
            "{{apiVersion: operator.openshift.io/v1, kind: Network, metadata: {{name: cluster}}, spec: {{additionalRoutingCapabilities: {{providers: [FRR]}}, defaultNetwork: {{ovnKubernetesConfig: {{transport: NoOverlay, routeAdvertisements: Enabled, noOverlayConfig: {{outboundSNAT: Enabled, routing: Managed}}, bgpManagedConfig: {{asNumber: {asn}, bgpTopology: FullMesh}}}}}}}}}}"
        )
    };
    let world = format!("{world}\n---\n{}", network(64778));
    let ran = plan_of(&config, &world, &[], "");
    assert!(
        ran.out.contains("router bgp 64778"),
        "{}{}",
        ran.out,
        ran.err
    );
    let ran = plan_of(&config, &world, &["-f", "-"], &network(64779));
    for words in ["-router bgp 64778", "+router bgp 64779"] {
        assert!(ran.out.contains(words), "{words:?} not in\n{}", ran.out);
    }
    // A number that nobody may have: what was in force stays.
    let ran = plan_of(&config, &world, &["-f", "-"], &network(23456));
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("23456") && !ran.out.contains("-router bgp"),
        "{}",
        ran.out
    );
    // Without OpenShift nobody reads it.
    let ran = plan_of(&config.replace("true", "false"), &world, &[], "");
    assert!(!ran.out.contains("router bgp"), "{}", ran.out);
}

#[test]
fn a_fabric_of_more_nodes_than_auto_takes_for_a_mesh_is_planned_with_reflectors() {
    let config = |numbers: &str| {
        format!(
            "[default]\ntransport = \"no-overlay\"\n{SUBNETS}[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"auto\"\n{numbers}[ovn]\ntopology = \"build\"\n"
        )
    };
    let node = |n: u8| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n{n}, labels: {{kubernetes.io/hostname: n{n}}}}}, status: {{addresses: [{{type: InternalIP, address: 192.0.2.{n}}}]}}}}"
        )
    };
    let world: Vec<String> = (1..=4).map(node).collect();
    let world = world.join("\n---\n");
    for (numbers, reflectors) in [
        ("", 0),
        ("auto-reflectors-above = 4\n", 0),
        ("auto-reflectors-above = 3\n", 3),
    ] {
        let ran = plan_of(&config(numbers), &world, &["-o", "yaml"], "");
        assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
        // What lets a node pass on the pod subnets of all.
        let list = "prefix-list noverlay-announced seq 10 permit 10.240.0.0/16 ge 24 le 24";
        let found = ran.out.matches(list).count();
        assert_eq!(found, reflectors, "{numbers}: {}", ran.out);
    }
    let ran = plan_of(&config("auto-full-mesh-below = 65\n"), &world, &[], "");
    assert_eq!(ran.status, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("auto-full-mesh-below"), "{}", ran.err);
}

#[test]
fn what_cannot_be_read_is_named_with_status_2() {
    let world = format!("{WORLDS}/09-cudn-layer3/world.yaml");
    for (words, needle) in [
        (
            vec!["plan", "--world", "gone.yaml", "--config", "gone.toml"],
            "cannot read configuration file gone.toml",
        ),
        (vec!["plan", "--world", &world], "--config"),
    ] {
        let ran = noverlay(&words, "");
        assert_eq!(ran.status, Some(2), "{words:?}");
        assert!(ran.err.contains(needle), "{words:?}: {}", ran.err);
    }
    for (more, change, needle) in [
        (["-f", "-"], "{{", "standard input"),
        (["-f", "-"], "{kind: Node}", "a Node without metadata.name"),
        (["--delete", "Node/nobody"], "", "there is no Node nobody"),
        (["--delete", "nobody"], "", "allowed is KIND/NAME"),
    ] {
        let ran = plan(&world, &more, change);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{more:?}");
        assert!(ran.err.contains(needle), "{needle:?}: {}", ran.err);
    }
}
