//! A cluster with a bit of everything: the managed default network, a managed network of users, one that the administrator
//! routes in a VRF of its own, one over Geneve that is announced all the same, EgressIPs.
//! In: how many nodes. Out: objects as people write them. Invariant: nothing of it is wrong.
//! Not here: what the planners make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use model::NetworkName;
use offline::kind::{CUDN, FRR, NODE, RA};
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
    objects.read(NETWORKS).unwrap();
    objects.read(ADMINISTRATOR).unwrap();
    objects
}

fn node(n: u8) -> Value {
    let name = node_name(n);
    let mut labels = json!({"kubernetes.io/hostname": name});
    if n.is_multiple_of(3) {
        labels["egress"] = "yes".into();
    }
    let address = format!("172.30.0.{n}");
    json!({
        "apiVersion": "v1", "kind": NODE, "metadata": {"name": name, "labels": labels},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// One more node, and `teal`, a managed network.
pub(crate) fn grow(objects: &mut Objects, n: u8) {
    objects.put(node(n)).unwrap();
    objects.read(TEAL).unwrap();
}

pub(crate) fn node_name(n: u8) -> String {
    format!("n{n:02}")
}

const NETWORKS: &str = r#"
apiVersion: k8s.ovn.org/v1
kind: ClusterUserDefinedNetwork
metadata: {name: green, uid: uid-of-green, creationTimestamp: "2026-01-01T00:00:01Z"}
spec:
  namespaceSelector: {matchLabels: {tenant: green}}
  network:
    topology: Layer3
    layer3: {role: Primary, subnets: [{cidr: 10.61.0.0/16, hostSubnet: 24}]}
    transport: NoOverlay
    noOverlay: {outboundSNAT: Enabled, routing: Managed}
---
apiVersion: k8s.ovn.org/v1
kind: ClusterUserDefinedNetwork
metadata: {name: blue, uid: uid-of-blue, creationTimestamp: "2026-01-01T00:00:02Z", labels: {export: blue}}
spec:
  namespaceSelector: {matchLabels: {tenant: blue}}
  network:
    topology: Layer3
    layer3: {role: Primary, subnets: [{cidr: 10.62.0.0/16, hostSubnet: 24}]}
    transport: NoOverlay
    noOverlay: {outboundSNAT: Disabled, routing: Unmanaged}
---
apiVersion: k8s.ovn.org/v1
kind: ClusterUserDefinedNetwork
metadata: {name: grey, uid: uid-of-grey, creationTimestamp: "2026-01-01T00:00:03Z", labels: {export: pods}}
spec:
  namespaceSelector: {matchLabels: {tenant: grey}}
  network:
    topology: Layer3
    layer3: {role: Primary, subnets: [{cidr: 10.63.0.0/16, hostSubnet: 24}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns-green, labels: {tenant: green, k8s.ovn.org/primary-user-defined-network: ""}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns-blue, labels: {tenant: blue, k8s.ovn.org/primary-user-defined-network: ""}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns-grey, labels: {tenant: grey, k8s.ovn.org/primary-user-defined-network: ""}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tenant: shop}}
"#;

const TEAL: &str = r#"
apiVersion: k8s.ovn.org/v1
kind: ClusterUserDefinedNetwork
metadata: {name: teal, uid: uid-of-teal, creationTimestamp: "2026-01-01T00:02:00Z"}
spec:
  namespaceSelector: {matchLabels: {tenant: teal}}
  network:
    topology: Layer3
    layer3: {role: Primary, subnets: [{cidr: 10.64.0.0/16, hostSubnet: 24}]}
    transport: NoOverlay
    noOverlay: {outboundSNAT: Enabled, routing: Managed}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns-teal, labels: {tenant: teal, k8s.ovn.org/primary-user-defined-network: ""}}
"#;

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
