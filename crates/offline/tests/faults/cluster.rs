//! A cluster with a bit of everything: the managed default network, a managed network of users, one that the administrator
//! routes in a VRF of its own, one over Geneve that is announced all the same, EgressIPs.
//! In: how many nodes. Out: objects as people write them. Invariant: nothing of it is wrong.
//! Not here: what the planners make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use model::NetworkName;
use offline::kind::{CUDN, FRR, NAMESPACE, NODE, RA};
use offline::{Objects, Plans};
use plan_cluster::fabric;
use serde_json::{Value, json};
use settings::Settings;
use testkit::labels::selects;

pub(crate) const SUBNETS: &str = "k8s.ovn.org/node-subnets";
pub(crate) const ID: &str = "k8s.ovn.org/node-id";

/// The configuration file, with this topology of the managed fabric.
pub(crate) fn settings(topology: &str) -> Settings {
    let text = format!(
        r#"
[default]
transport = "no-overlay"
cluster-subnets = "10.128.0.0/14/24"
[no-overlay]
outbound-snat = "enabled"
routing = "managed"
[bgp-managed]
topology = "{topology}"
[ovn]
topology = "build"
[gateway]
mode = "local"
[ovnkubernetesfeature]
enable-egress-ip = true
"#
    );
    settings_of(&text)
}

/// Those of a configuration file.
pub(crate) fn settings_of(text: &str) -> Settings {
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
    settings::parse("noverlay.toml", text, metrics).unwrap()
}

/// Nodes `n01` on, addresses from 172.30.0.1; every third may hold EgressIPs.
pub(crate) fn cluster(nodes: u8) -> Objects {
    let mut objects = Objects::default();
    for n in 1..=nodes {
        objects.put(node(n)).unwrap();
    }
    network(
        &mut objects,
        "green",
        "00:00:01",
        "10.61.0.0/16",
        &no_overlay("Enabled", "Managed"),
    );
    network(
        &mut objects,
        "blue",
        "00:00:02",
        "10.62.0.0/16",
        &no_overlay("Disabled", "Unmanaged"),
    );
    network(&mut objects, "grey", "00:00:03", "10.63.0.0/16", &json!({}));
    for (name, export) in [("blue", "blue"), ("grey", "pods")] {
        objects.get_mut(CUDN, name).unwrap()["metadata"]["labels"]["export"] = export.into();
    }
    let labels = json!({"tenant": "shop"});
    let shop = json!({"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": "shop", "labels": labels}});
    objects.put(shop).unwrap();
    objects.read(ADMINISTRATOR).unwrap();
    objects
}

fn node(n: u8) -> Value {
    let address = format!("172.30.0.{n}");
    let mut node = testkit::objects::node(&node_name(n), &[&address]);
    if n.is_multiple_of(3) {
        node["metadata"]["labels"]["egress"] = "yes".into();
    }
    node
}

/// One more node, and `teal`, a managed network.
pub(crate) fn grow(objects: &mut Objects, n: u8) {
    objects.put(node(n)).unwrap();
    network(
        objects,
        "teal",
        "00:02:00",
        "10.64.0.0/16",
        &no_overlay("Enabled", "Managed"),
    );
}

pub(crate) fn node_name(n: u8) -> String {
    format!("n{n:02}")
}

/// A primary network of layer 3 with this range, and its namespace.
fn network(objects: &mut Objects, name: &str, created: &str, range: &str, rest: &Value) {
    let subnets = json!([{"cidr": range, "hostSubnet": 24}]);
    let mut network = rest.clone();
    network["topology"] = "Layer3".into();
    network["layer3"] = json!({"role": "Primary", "subnets": subnets});
    let created = format!("2026-01-01T{created}Z");
    let object = testkit::objects::network(name, &created, &network);
    objects.put(object).unwrap();
    let namespace = testkit::objects::namespace(&format!("ns-{name}"), name);
    objects.put(namespace).unwrap();
}

fn no_overlay(snat: &str, routing: &str) -> Value {
    json!({"transport": "NoOverlay", "noOverlay": {"outboundSNAT": snat, "routing": routing}})
}

const ADMINISTRATOR: &str = r#"
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: uplink, namespace: frr-k8s-system, labels: {use: pods}}
spec:
  bgp:
    routers:
    - asn: 64512
      neighbors:
      - {address: 172.31.0.1, asn: 65100, disableMP: true}
---
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: uplink-blue, namespace: frr-k8s-system, labels: {use: blue}}
spec:
  bgp:
    routers:
    - asn: 64512
      vrf: blue
      neighbors:
      - {address: 10.90.0.1, asn: 65101, disableMP: true}
---
apiVersion: k8s.ovn.org/v1
kind: RouteAdvertisements
metadata: {name: pods, creationTimestamp: "2026-01-01T00:00:04Z"}
spec:
  nodeSelector: {}
  frrConfigurationSelector: {matchLabels: {use: pods}}
  networkSelectors:
  - networkSelectionType: DefaultNetwork
  - networkSelectionType: ClusterUserDefinedNetworks
    clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {export: pods}}}
  advertisements: [PodNetwork]
---
apiVersion: k8s.ovn.org/v1
kind: RouteAdvertisements
metadata: {name: blue, creationTimestamp: "2026-01-01T00:00:05Z"}
spec:
  targetVRF: auto
  nodeSelector: {}
  frrConfigurationSelector: {matchLabels: {use: blue}}
  networkSelectors:
  - networkSelectionType: ClusterUserDefinedNetworks
    clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {export: blue}}}
  advertisements: [PodNetwork]
---
apiVersion: k8s.ovn.org/v1
kind: RouteAdvertisements
metadata: {name: egress, creationTimestamp: "2026-01-01T00:00:06Z"}
spec:
  nodeSelector: {matchLabels: {egress: "yes"}}
  frrConfigurationSelector: {matchLabels: {use: pods}}
  networkSelectors:
  - networkSelectionType: ClusterUserDefinedNetworks
    clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {export: pods}}}
  advertisements: [EgressIP]
---
apiVersion: k8s.ovn.org/v1
kind: EgressIP
metadata: {name: shop-out}
spec:
  egressIPs: [172.30.9.1]
  namespaceSelector: {matchLabels: {tenant: grey}}
status: {items: [{node: n03, egressIP: 172.30.9.1}]}
"#;

/// The networks whose RouteAdvertisements are the fabric's.
pub(crate) const OF_FABRIC: [&str; 4] = [
    "default",
    "cluster_udn_green",
    "cluster_udn_pink",
    "cluster_udn_teal",
];

/// Conditions of all objects, as `KIND NAME TYPE` and `STATUS REASON: MESSAGE`. The fabric's RouteAdvertisements are called
/// by their network, `fabric:NETWORK`.
pub(crate) fn conditions(plans: &Plans) -> BTreeMap<String, String> {
    let names: BTreeMap<String, String> = OF_FABRIC
        .map(|network| {
            let name = fabric::advertisement_name(&NetworkName::from(network));
            (name, format!("fabric:{network}"))
        })
        .into();
    let ras = plans.advertisements.iter().map(|(name, plan)| {
        let name = names.get(name).unwrap_or(name);
        (RA, name, &plan.conditions)
    });
    let cudns = plans.conditions.iter();
    let cudns = cudns.map(|(name, list)| (CUDN, name, list));
    let mut out = BTreeMap::new();
    for (kind, name, list) in ras.chain(cudns) {
        out.extend(list.iter().map(|c| {
            let text = format!("{} {}: {}", c.word(), c.reason, c.message);
            (format!("{kind} {name} {}", c.kind), text)
        }));
    }
    out
}

/// All that FRR of a node is told of prefixes and neighbors: `VRF originates PREFIX`, `VRF has neighbor ADDRESS`.
pub(crate) fn loaded(objects: &Objects, node: &str) -> BTreeSet<String> {
    let labels = &objects.get(NODE, node).unwrap()["metadata"]["labels"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = BTreeSet::new();
    for object in objects.all(FRR) {
        if !selects(&object["spec"]["nodeSelector"], labels) {
            continue;
        }
        for router in list(&object["spec"]["bgp"]["routers"]) {
            let vrf = router["vrf"].as_str().unwrap_or("default");
            let prefixes = list(&router["prefixes"]).into_iter();
            out.extend(prefixes.map(|prefix| format!("{vrf} originates {prefix}")));
            let neighbors = list(&router["neighbors"]).into_iter();
            out.extend(neighbors.map(|n| format!("{vrf} has neighbor {}", n["address"])));
        }
    }
    out
}
