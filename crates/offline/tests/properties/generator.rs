//! Clusters by chance: nodes in any state, networks that overlap or not, sources and advertisements that fit or not.
//! In: small numbers. Out: settings and objects. Invariant: the same numbers give the same cluster.
//! Not here: what the API server would refuse by schema.

use std::net::{Ipv4Addr, SocketAddr};

use offline::Objects;
use proptest::prelude::*;
use serde_json::{Value, json};
use settings::Settings;

/// A cluster; each number chooses one of a few forms.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    topology: u8,
    local: bool,
    dual: bool,
    nodes: Vec<(u8, u8)>,
    networks: Vec<(u8, u8, u8)>,
    advertisements: Vec<(u8, u8, u8)>,
    sources: Vec<u8>,
    egress: Vec<(u8, u8)>,
}

/// Anything.
pub(crate) fn any_spec() -> impl Strategy<Value = Spec> {
    let few = |most: u8| 0..most;
    (
        (few(3), any::<bool>(), any::<bool>()),
        prop::collection::vec((few(11), few(6)), 1..6),
        prop::collection::vec((few(5), few(5), few(5)), 0..4),
        prop::collection::vec((few(5), few(6), few(3)), 0..4),
        prop::collection::vec(few(9), 0..3),
        prop::collection::vec((few(6), few(3)), 0..3),
    )
        .prop_map(
            |(flags, nodes, networks, advertisements, sources, egress)| Spec {
                topology: flags.0,
                local: flags.1,
                dual: flags.2,
                nodes,
                networks,
                advertisements,
                sources,
                egress,
            },
        )
}

/// A cluster in which nothing is wrong and nobody waits for what another has.
pub(crate) fn sound_spec() -> impl Strategy<Value = Spec> {
    let networks = prop::collection::vec(0..4_u8, 0..4);
    let advertisements = prop::collection::vec(0..2_u8, 0..3);
    let source = prop_oneof![Just(0_u8), Just(6), Just(8)];
    (
        (any::<bool>(), any::<bool>()),
        1..6_usize,
        networks,
        advertisements,
        source,
    )
        .prop_map(
            |((local, dual), nodes, networks, advertisements, source)| Spec {
                // Where reflectors change, the old ones stay until it is reported that the new ones work, and here nobody reports.
                topology: 0,
                local,
                dual,
                nodes: vec![(0, 0); nodes],
                // One range each, and a namespace.
                networks: (0..)
                    .zip(networks)
                    .map(|(at, form)| (form, at, 0))
                    .collect(),
                advertisements: advertisements
                    .into_iter()
                    .map(|what| (what, 0, 0))
                    .collect(),
                sources: vec![source],
                egress: vec![(0, 0)],
            },
        )
}

impl Spec {
    pub(crate) fn settings(&self) -> Settings {
        let topology = ["full-mesh", "route-reflector", "auto"][usize::from(self.topology)];
        let mode = if self.local { "local" } else { "shared" };
        let second = if self.dual { ",fd00:10::/48/64" } else { "" };
        let text = format!(
            r#"
[default]
transport = "no-overlay"
cluster-subnets = "10.128.0.0/20/24{second}"
[no-overlay]
outbound-snat = "enabled"
routing = "managed"
[bgp-managed]
topology = "{topology}"
[ovn]
topology = "build"
[gateway]
mode = "{mode}"
[ovnkubernetesfeature]
enable-egress-ip = true
"#
        );
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
        settings::parse("noverlay.toml", &text, metrics).unwrap()
    }

    pub(crate) fn objects(&self) -> Objects {
        let mut all = Vec::new();
        for (at, (form, label)) in (1..).zip(&self.nodes) {
            all.push(node(at, *form, *label, self.dual));
        }
        for (at, form) in (1..).zip(&self.networks) {
            all.extend(network(at, *form));
        }
        for (at, form) in (1..).zip(&self.sources) {
            all.push(source(at, *form));
        }
        for (at, form) in (1..).zip(&self.advertisements) {
            all.push(advertisement(at, *form));
        }
        for (at, form) in (1..).zip(&self.egress) {
            all.push(egress_ip(at, *form));
        }
        let mut objects = Objects::default();
        for object in all {
            objects.put(object).unwrap();
        }
        objects
    }
}

fn node(at: u8, form: u8, label: u8, dual: bool) -> Value {
    let name = format!("n{at}");
    let last = if form == 1 { 1 } else { at };
    let (v4, v6) = (format!("172.30.0.{last}"), format!("fd00:172::{last}"));
    let internal = [v4.as_str(), v6.as_str()];
    let internal = if dual { &internal } else { &internal[..1] };
    let mut node = testkit::objects::node(&name, internal);
    let addresses = node["status"]["addresses"].as_array_mut().unwrap();
    addresses.insert(0, json!({"type": "Hostname", "address": name}));
    addresses.push(json!({"type": "ExternalIP", "address": format!("198.51.100.{last}")}));
    let labels = &mut node["metadata"]["labels"];
    labels["zone"] = format!("z{}", label % 2).into();
    match label {
        4 => *labels = json!({}),
        5 => labels["kubernetes.io/hostname"] = "n1".into(),
        _ => {}
    }
    let annotations = match form {
        2 => json!({"k8s.ovn.org/node-subnets": "{\"default\":[\"10.128.3.0/24\""}),
        3 => {
            json!({"k8s.ovn.org/node-subnets": "{\"cluster_udn_c1\":[\"10.61.7.0/24\"],\"default\":[\"10.128.7.0/24\"]}"})
        }
        4 => json!({"k8s.ovn.org/node-subnets": "{\"default\":[\"10.128.0.0/20\"]}"}),
        5 => {
            json!({"k8s.ovn.org/node-subnets": "{\"default\":[\"10.99.0.0/24\"],\"gone\":\"10.1.0.0/24\"}"})
        }
        6 => json!({"k8s.ovn.org/node-id": "3"}),
        7 => json!({"k8s.ovn.org/node-id": "three"}),
        8 => json!({"noverlay.io/host-mtu": "1400"}),
        9 => json!({"k8s.ovn.org/host-cidrs": "[\"10.61.0.9/24\"]"}),
        _ => json!({}),
    };
    node["metadata"]["annotations"] = annotations;
    if form == 10 {
        node["status"] = json!({});
    }
    node
}

/// A ClusterUserDefinedNetwork and its namespace.
fn network(at: u8, (form, range, space): (u8, u8, u8)) -> Vec<Value> {
    let name = format!("c{at}");
    // The fifth lies in the first, and so may overlap another network's.
    let cidr = match range {
        4 => "10.61.128.0/17".to_owned(),
        n => format!("10.{}.0.0/16", 61 + n),
    };
    let layer3 = json!({"role": "Primary", "subnets": [{"cidr": cidr, "hostSubnet": 24}]});
    let routed = |routing: &str| {
        json!({
            "topology": "Layer3", "layer3": layer3, "transport": "NoOverlay",
            "noOverlay": {"outboundSNAT": "Enabled", "routing": routing},
        })
    };
    let network = match form {
        0 => routed("Managed"),
        1 => routed("Unmanaged"),
        2 => json!({"topology": "Layer3", "layer3": layer3}),
        3 => json!({"topology": "Layer2", "layer2": {"role": "Primary", "subnets": [cidr]}}),
        _ => json!({"topology": "Layer9"}),
    };
    let created = format!("2026-01-01T00:00:0{at}Z");
    let mut object = testkit::objects::network(&name, &created, &network);
    object["metadata"]["labels"]["use"] = format!("u{}", at % 2).into();
    let selector = &mut object["spec"]["namespaceSelector"];
    match space {
        2 => *selector = json!({"matchLabels": {"tenant": "c1"}}),
        3 => *selector = json!({"matchExpressions": [{"key": "tenant", "operator": "Near"}]}),
        4 => {
            *selector = json!({"matchExpressions": [
                {"key": "tenant", "operator": "In", "values": [name, "c1", "nobody"]},
                {"key": "tenant", "operator": "NotIn", "values": ["c9", "c8"]},
                {"key": "tenant", "operator": "Exists"},
            ]})
        }
        _ => {}
    }
    let mut out = vec![object];
    if space != 1 {
        out.push(testkit::objects::namespace(&format!("of-{name}"), &name));
    }
    out
}

/// A router with more than one of everything that there can be more than one of.
fn everything(mut router: Value) -> Value {
    let ours = ["10.128.0.0/24", "10.128.1.0/24", "10.61.0.0/24"];
    router["prefixes"] = json!(["198.51.100.0/25", "198.51.100.128/25", "192.0.2.0/24"]);
    router["neighbors"][0]["toAdvertise"] = json!({
        "allowed": {"prefixes": ["198.51.100.0/25", "192.0.2.0/24"]},
        "withCommunity": [
            {"community": "64512:1", "prefixes": ["192.0.2.0/24", "198.51.100.0/25"]},
            {"community": "64512:3", "prefixes": ours},
            {"community": "64512:2", "prefixes": ours},
        ],
        "withLocalPref": [
            {"localPref": 200, "prefixes": ["192.0.2.0/24"]},
            {"localPref": 300, "prefixes": ours},
        ],
    });
    router["neighbors"][0]["toReceive"] = json!({"allowed": {"prefixes": [
        {"prefix": "203.0.113.0/24"}, {"prefix": "10.90.0.0/16", "ge": 24, "le": 24},
        {"prefix": "10.90.0.0/16", "ge": 25, "le": 32},
    ]}});
    let others = [("172.31.0.3", 65103), ("172.31.0.2", 65102)];
    let others = others.map(|(address, asn)| json!({"address": address, "asn": asn}));
    router["neighbors"].as_array_mut().unwrap().extend(others);
    router
}

fn source(at: u8, form: u8) -> Value {
    let mut neighbor = json!({"address": "172.31.0.1", "asn": 65100, "disableMP": true});
    match form {
        1 => neighbor["holdTime"] = "30s".into(),
        2 => neighbor["address"] = "nowhere".into(),
        3 => neighbor["address"] = "172.30.0.1".into(),
        _ => {}
    }
    let mut router = json!({"asn": 64512, "neighbors": [neighbor]});
    if form == 4 {
        router["vrf"] = "c1".into();
    }
    if form >= 6 {
        router = everything(router);
    }
    let mut spec = json!({"bgp": {"routers": [router]}});
    match form {
        5 => spec["nodeSelector"] = json!({"matchLabels": {"zone": "z1"}}),
        7 => {
            let neighbor = json!({"address": "172.31.1.1", "asn": 65101, "disableMP": true});
            let imports = json!([{"vrf": "c1"}, {"vrf": "c2"}]);
            let routers = spec["bgp"]["routers"].as_array_mut().unwrap();
            routers[0]["imports"] = imports;
            routers.push(json!({"asn": 64512, "vrf": "c1", "neighbors": [neighbor]}));
            routers.push(json!({"asn": 64512, "vrf": "c2"}));
        }
        8 => {
            let profile = |name: &str| json!({"name": name, "receiveInterval": 300});
            spec["bgp"]["bfdProfiles"] = json!([profile("fast"), profile("slow")]);
            spec["bgp"]["routers"][0]["neighbors"][0]["bfdProfile"] = "slow".into();
        }
        _ => {}
    }
    json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
        "metadata": {"name": format!("s{at}"), "namespace": "frr-k8s-system", "labels": {"use": "bgp"}},
        "spec": spec,
    })
}

fn advertisement(at: u8, (what, target, nodes): (u8, u8, u8)) -> Value {
    let default = json!({"networkSelectionType": "DefaultNetwork"});
    let labelled = |labels: Value| {
        json!({
            "networkSelectionType": "ClusterUserDefinedNetworks",
            "clusterUserDefinedNetworkSelector": {"networkSelector": labels},
        })
    };
    let of_first = labelled(json!({"matchLabels": {"use": "u1"}}));
    let selectors = match what {
        0 => json!([default]),
        1 => json!([default, of_first]),
        2 => json!([of_first]),
        3 => json!([labelled(json!({})), default]),
        _ => json!([labelled(
            json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})
        )]),
    };
    let mut spec = json!({
        "networkSelectors": selectors, "nodeSelector": {}, "advertisements": ["PodNetwork"],
        "frrConfigurationSelector": {"matchLabels": {"use": "bgp"}},
    });
    match target {
        1 => spec["targetVRF"] = "auto".into(),
        2 => spec["targetVRF"] = "c1".into(),
        3 => spec["frrConfigurationSelector"] = json!({"matchLabels": {"use": "nothing"}}),
        4 => spec["advertisements"] = json!(["EgressIP", "PodNetwork"]),
        5 => spec["advertisements"] = json!(["EgressIP"]),
        _ => {}
    }
    match (nodes, target) {
        (2, 5) => spec["nodeSelector"] = json!({"matchLabels": {"zone": "z1"}}),
        (1, 0 | 4) => {
            spec["nodeSelector"] = json!({"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["z1", "z0", "z9"]},
                {"key": "kubernetes.io/hostname", "operator": "Exists"},
            ]});
        }
        _ => {}
    }
    let created = format!("2026-01-01T00:01:0{}Z", at % 2);
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
        "metadata": {"name": format!("r{at}"), "creationTimestamp": created}, "spec": spec,
    })
}

fn egress_ip(at: u8, (node, form): (u8, u8)) -> Value {
    let (first, second) = (format!("172.30.9.{at}"), format!("172.30.8.{at}"));
    let selector = match form {
        0 => json!({}),
        1 => json!({"matchLabels": {"tenant": "c1"}}),
        _ => json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
    };
    let items = json!([
        {"node": format!("n{node}"), "egressIP": first},
        {"node": format!("n{}", node + 1), "egressIP": second},
    ]);
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": format!("e{at}")},
        "spec": {"egressIPs": [first, second], "namespaceSelector": selector},
        "status": {"items": items},
    })
}
