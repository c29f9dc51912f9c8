//! What can be broken, and what it may cost.
//! In: a settled cluster. Out: the same with one fault. Invariant: each fault is one that people or other programs can make.
//! Not here: the comparison (`blast_radius`).

use offline::Objects;
use offline::kind::{CUDN, FRR, NAD, NODE, RA};
use serde_json::{Value, json};

use crate::cluster::{ID, SUBNETS};

pub(crate) struct Fault {
    pub(crate) what: &'static str,
    pub(crate) make: fn(&mut Objects),
    /// Whoever is named by what is said.
    pub(crate) culprit: &'static str,
    /// Where something is said: `KIND NAME TYPE`, or `problem` for what becomes an event on a Node; each with words of it.
    pub(crate) says: &'static [(&'static str, &'static str)],
    /// The nodes that FRR is told less on.
    pub(crate) costs: &'static [&'static str],
    /// What is written because of it: kind and beginning of the name; of generated objects RA, source and node.
    pub(crate) writes: &'static [&'static str],
}

/// A fault that costs nobody what it has, and that nothing is written for.
const NO_FAULT: Fault = Fault {
    what: "",
    make: |_| {},
    culprit: "",
    says: &[],
    costs: &[],
    writes: &[],
};

fn node<'a>(objects: &'a mut Objects, name: &str) -> &'a mut Value {
    objects.get_mut(NODE, name).unwrap()
}

fn annotate(objects: &mut Objects, key: &str, value: &str) {
    node(objects, "n25")["metadata"]["annotations"][key] = value.into();
}

/// The subnets of n25, that of the default network another one.
fn default_subnet(objects: &mut Objects, subnet: &str) {
    let others = r#""cluster_udn_green":["10.61.24.0/24"],"cluster_udn_blue":["10.62.24.0/24"],"cluster_udn_grey":["10.63.24.0/24"]"#;
    annotate(
        objects,
        SUBNETS,
        &format!(r#"{{"default":["{subnet}"],{others}}}"#),
    );
}

fn internal_ip(objects: &mut Objects, address: &str) {
    let addresses = json!([{"type": "InternalIP", "address": address}]);
    node(objects, "n25")["status"]["addresses"] = addresses;
}

/// An FRRConfiguration of somebody, for all nodes or one.
fn foreign(objects: &mut Objects, name: &str, host: Option<&str>, routers: &Value) {
    let mut spec = json!({"bgp": {"routers": routers}});
    if let Some(host) = host {
        spec["nodeSelector"] = json!({"matchLabels": {"kubernetes.io/hostname": host}});
    }
    let object = json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": FRR,
        "metadata": {"name": name, "namespace": "frr-k8s-system"}, "spec": spec,
    });
    objects.put(object).unwrap();
}

/// A RouteAdvertisements of pods by the source of `pods`, with this field another one.
fn advertisement(objects: &mut Objects, name: &str, field: &str, value: Value) {
    let mut object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": RA,
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:01:00Z"},
        "spec": {
            "nodeSelector": {}, "frrConfigurationSelector": {"matchLabels": {"use": "pods"}},
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
            "advertisements": ["PodNetwork"],
        },
    });
    object["spec"][field] = value;
    objects.put(object).unwrap();
}

/// A managed network of users, of namespace `shop`, with this `network` instead.
fn pink(objects: &mut Objects, network: Option<Value>) {
    let managed = json!({
        "topology": "Layer3",
        "layer3": {"role": "Primary", "subnets": [{"cidr": "10.60.0.0/15", "hostSubnet": 24}]},
        "transport": "NoOverlay", "noOverlay": {"outboundSNAT": "Enabled", "routing": "Managed"},
    });
    let object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": CUDN,
        "metadata": {"name": "pink", "uid": "uid-of-pink", "creationTimestamp": "2026-01-01T00:01:00Z"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"tenant": "shop"}},
            "network": network.unwrap_or(managed),
        },
    });
    objects.put(object).unwrap();
    let shop = objects.get_mut("Namespace", "shop").unwrap();
    shop["metadata"]["labels"]["k8s.ovn.org/primary-user-defined-network"] = "".into();
}

fn egress_ip(objects: &mut Objects, node: &str, selector: Value) {
    let object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "astray"},
        "spec": {"egressIPs": ["172.30.9.2"], "namespaceSelector": selector},
        "status": {"items": [{"node": node, "egressIP": "172.30.9.2"}]},
    });
    objects.put(object).unwrap();
}

fn bad_selector() -> Value {
    json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})
}

fn spec<'a>(objects: &'a mut Objects, kind: &str, name: &str) -> &'a mut Value {
    &mut objects.get_mut(kind, name).unwrap()["spec"]
}

const FABRIC: &str = "RouteAdvertisements fabric:default Complete";
const GREEN: &str = "RouteAdvertisements fabric:cluster_udn_green Complete";
const PODS: &str = "RouteAdvertisements pods Complete";
const BLUE: &str = "RouteAdvertisements blue Complete";

pub(crate) const OF_NODES: &[Fault] = &[
    Fault {
        what: "what a Node says of its subnets cannot be read",
        make: |o| annotate(o, SUBNETS, r#"{"default":["10.128.24.0/24"]"#),
        culprit: "n25",
        says: &[
            (FABRIC, "k8s.ovn.org/node-subnets"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "AllocationFailed"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is none of the cluster's",
        make: |o| default_subnet(o, "10.99.24.0/24"),
        culprit: "n25",
        says: &[
            (FABRIC, "10.99.24.0/24 lies outside"),
            (PODS, "10.99.24.0/24 lies outside"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is another node's",
        make: |o| default_subnet(o, "10.128.23.0/24"),
        culprit: "n25",
        says: &[(FABRIC, "of node n24"), (PODS, "of node n24")],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is the whole cluster's",
        make: |o| default_subnet(o, "10.128.0.0/14"),
        culprit: "n25",
        says: &[(FABRIC, "allowed: a /24"), (PODS, "allowed: a /24")],
        ..NO_FAULT
    },
    Fault {
        what: "a Node has no InternalIP",
        make: |o| node(o, "n25")["status"]["addresses"] = json!([]),
        culprit: "n25",
        says: &[
            (FABRIC, "no InternalIP"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "NodeLeftOut"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its InternalIP is no address",
        make: |o| internal_ip(o, "172.30.0.999"),
        culprit: "n25",
        says: &[
            (FABRIC, "172.30.0.999"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "NodeLeftOut"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its InternalIP is that of an elder node: it must not have that node, which is now itself, as a neighbor",
        make: |o| internal_ip(o, "172.30.0.24"),
        culprit: "n25",
        says: &[
            (FABRIC, "172.30.0.24 is also node n24's"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "NodeLeftOut"),
        ],
        costs: &["n25"],
        writes: &["FRRConfiguration FABRIC/FABRIC/n24"],
    },
    Fault {
        what: "its id is that of an elder node",
        make: |o| annotate(o, ID, "25"),
        culprit: "n25",
        says: &[("problem", "DuplicateNodeId")],
        ..NO_FAULT
    },
    Fault {
        what: "its id is no number",
        make: |o| annotate(o, ID, "one"),
        culprit: "n25",
        says: &[
            (FABRIC, "k8s.ovn.org/node-id"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "AllocationFailed"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a Node lost the label that its objects select it by",
        make: |o| {
            node(o, "n25")["metadata"]["labels"] = json!({"noverlay.io/bgp-fabric": "member"})
        },
        culprit: "n25",
        says: &[
            (FABRIC, "kubernetes.io/hostname"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "NodeLeftOut"),
        ],
        costs: &["n25"],
        ..NO_FAULT
    },
    Fault {
        what: "a Node took another's label, so that it loads what is that one's",
        make: |o| node(o, "n25")["metadata"]["labels"]["kubernetes.io/hostname"] = "n24".into(),
        culprit: "n25",
        says: &[
            (FABRIC, "is also node n24's"),
            (GREEN, ""),
            (PODS, ""),
            (BLUE, ""),
            ("problem", "NodeLeftOut"),
        ],
        costs: &["n25"],
        ..NO_FAULT
    },
];

pub(crate) const OF_FRR: &[Fault] = &[
    Fault {
        what: "an FRRConfiguration of one node has a neighbor that is no address",
        make: |o| {
            foreign(
                o,
                "broken",
                Some("n25"),
                &json!([{"asn": 64512, "neighbors": [{"address": "999.1.1.1", "asn": 65001}]}]),
            )
        },
        culprit: "frr-k8s-system/broken",
        says: &[
            (FABRIC, "n25"),
            (GREEN, ""),
            (PODS, "999.1.1.1"),
            (BLUE, ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration of one node is of another shape",
        make: |o| foreign(o, "broken", Some("n25"), &json!([{"asn": "many"}])),
        culprit: "frr-k8s-system/broken",
        says: &[(FABRIC, "n25"), (GREEN, ""), (PODS, "many"), (BLUE, "")],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration of all nodes cannot be read: all keep what they have",
        make: |o| {
            foreign(
                o,
                "broken",
                None,
                &json!([{"asn": 64512, "neighbors": [{"address": "999.1.1.1", "asn": 65001}]}]),
            )
        },
        culprit: "frr-k8s-system/broken",
        says: &[
            (FABRIC, "n01"),
            (GREEN, ""),
            (PODS, "and 9 more"),
            (BLUE, ""),
            ("RouteAdvertisements egress Complete", "n03"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration that asks for nothing",
        make: |o| {
            let metadata = json!({"name": "empty", "namespace": "frr-k8s-system"});
            o.put(json!({"apiVersion": "frrk8s.metallb.io/v1beta1", "kind": FRR, "metadata": metadata})).unwrap();
        },
        ..NO_FAULT
    },
    Fault {
        what: "the source of two RouteAdvertisements cannot be read any more",
        make: |o| {
            spec(o, FRR, "frr-k8s-system/uplink")["bgp"]["routers"][0]["neighbors"][0]["asn"] =
                0.into()
        },
        culprit: "frr-k8s-system/uplink",
        says: &[
            (FABRIC, ""),
            (GREEN, ""),
            (
                PODS,
                "none of the selected FRRConfigurations that can be read",
            ),
            (BLUE, ""),
            ("RouteAdvertisements egress Complete", ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "two objects of one node differ about a neighbor",
        make: |o| {
            foreign(
                o,
                "other",
                Some("n25"),
                &json!([{"asn": 64512, "neighbors": [{"address": "172.31.0.1", "asn": 65100, "holdTime": "30s", "keepaliveTime": "10s"}]}]),
            )
        },
        culprit: "frr-k8s-system/other",
        says: &[(FABRIC, "n25"), (GREEN, ""), (PODS, "holdTime"), (BLUE, "")],
        ..NO_FAULT
    },
    Fault {
        what: "two objects of one node differ about its AS number",
        make: |o| {
            foreign(
                o,
                "other",
                Some("n25"),
                &json!([{"asn": 64999, "neighbors": [{"address": "172.31.9.1", "asn": 65100}]}]),
            )
        },
        culprit: "frr-k8s-system/other",
        says: &[(FABRIC, "n25"), (GREEN, ""), (PODS, "64999"), (BLUE, "")],
        ..NO_FAULT
    },
];

pub(crate) const OF_NETWORKS: &[Fault] = &[
    Fault {
        what: "a managed network's subnet holds that of an elder one",
        make: |o| pink(o, None),
        culprit: "pink",
        says: &[
            ("ClusterUserDefinedNetwork pink NetworkCreated", "True"),
            ("ClusterUserDefinedNetwork pink TransportAccepted", "False"),
            (
                "RouteAdvertisements fabric:cluster_udn_pink Accepted",
                "10.60.0.0/15 overlaps 10.61.0.0/16 of network cluster_udn_green",
            ),
        ],
        // Its own objects; the subnets that nodes have of it, beside those of before.
        writes: &[
            "ClusterUserDefinedNetwork pink",
            "NetworkAttachmentDefinition shop/pink",
            "RouteAdvertisements fabric:cluster_udn_pink",
            "Node n",
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a new network cannot be read",
        make: |o| pink(o, Some(json!({"topology": "Layer9"}))),
        culprit: "Layer9",
        says: &[("ClusterUserDefinedNetwork pink NetworkCreated", "False")],
        ..NO_FAULT
    },
    Fault {
        what: "a managed network cannot be read any more",
        make: |o| spec(o, CUDN, "green")["network"]["topology"] = "Layer9".into(),
        culprit: "Layer9",
        says: &[
            ("ClusterUserDefinedNetwork green NetworkCreated", "False"),
            (GREEN, "cluster_udn_green"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a managed network has no readable subnet any more",
        make: |o| {
            spec(o, CUDN, "green")["network"]["layer3"]["subnets"][0]["cidr"] = "10.61.0.0".into()
        },
        culprit: "subnets[0].cidr",
        says: &[
            ("ClusterUserDefinedNetwork green NetworkCreated", "False"),
            (GREEN, "cluster_udn_green"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a network in a VRF of its own cannot be read any more",
        make: |o| spec(o, CUDN, "blue")["network"]["topology"] = "Layer9".into(),
        culprit: "Layer9",
        says: &[
            ("ClusterUserDefinedNetwork blue NetworkCreated", "False"),
            (BLUE, "cluster_udn_blue"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a network that shares a RouteAdvertisements with the default one cannot be read any more",
        make: |o| spec(o, CUDN, "grey")["network"]["layer3"] = Value::Null,
        culprit: "layer3 is missing",
        says: &[
            ("ClusterUserDefinedNetwork grey NetworkCreated", "False"),
            (PODS, "cluster_udn_grey"),
            ("RouteAdvertisements egress Complete", "cluster_udn_grey"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "the selector of a network's namespaces cannot be read",
        make: |o| spec(o, CUDN, "green")["namespaceSelector"] = bad_selector(),
        culprit: "Near",
        says: &[(
            "ClusterUserDefinedNetwork green NetworkCreated",
            "spec.namespaceSelector",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "an object of somebody else says that it is the network's",
        make: |o| {
            let config = r#"{"cniVersion":"1.1.0","type":"ovn-k8s-cni-overlay","name":"cluster_udn_green","role":"primary","topology":"layer3","subnets":"10.128.0.0/14/24"}"#;
            let annotations = json!({"k8s.ovn.org/network-name": "cluster_udn_green", "k8s.ovn.org/network-id": "2"});
            o.put(json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD,
                "metadata": {"name": "green", "namespace": "shop", "uid": "u1", "annotations": annotations},
                "spec": {"config": config},
            })).unwrap();
        },
        ..NO_FAULT
    },
];

pub(crate) const OF_ADVERTISEMENTS: &[Fault] = &[
    Fault {
        what: "a RouteAdvertisements selects no network",
        make: |o| {
            advertisement(
                o,
                "astray",
                "networkSelectors",
                json!([{
                    "networkSelectionType": "ClusterUserDefinedNetworks",
                    "clusterUserDefinedNetworkSelector": {"networkSelector": {"matchLabels": {"export": "nobody"}}},
                }]),
            )
        },
        says: &[(
            "RouteAdvertisements astray Accepted",
            "False ConfigurationPending: configuration pending: no networks selected",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "a RouteAdvertisements names a VRF that is not there",
        make: |o| advertisement(o, "astray", "targetVRF", "elsewhere".into()),
        culprit: "elsewhere",
        says: &[(
            "RouteAdvertisements astray Accepted",
            "False ConfigurationError",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "a RouteAdvertisements selects no source",
        make: |o| {
            advertisement(
                o,
                "astray",
                "frrConfigurationSelector",
                json!({"matchLabels": {"use": "nobody"}}),
            )
        },
        says: &[(
            "RouteAdvertisements astray Accepted",
            "False ConfigurationPending",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "one that was in order names a VRF that is not there",
        make: |o| spec(o, RA, "pods")["targetVRF"] = "elsewhere".into(),
        culprit: "elsewhere",
        says: &[(
            "RouteAdvertisements pods Accepted",
            "False ConfigurationError",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "one that was in order cannot be read any more",
        make: |o| spec(o, RA, "pods")["nodeSelector"] = bad_selector(),
        culprit: "Near",
        says: &[("RouteAdvertisements pods Accepted", "spec.nodeSelector")],
        ..NO_FAULT
    },
    Fault {
        what: "a node that is not selected has an EgressIP",
        make: |o| egress_ip(o, "n25", json!({"matchLabels": {"tenant": "grey"}})),
        culprit: "EgressIP astray",
        says: &[("RouteAdvertisements egress Complete", "n25")],
        ..NO_FAULT
    },
    Fault {
        what: "the selector of an EgressIP cannot be read",
        make: |o| egress_ip(o, "n06", bad_selector()),
        culprit: "EgressIP astray",
        says: &[(
            "RouteAdvertisements egress Complete",
            "spec.namespaceSelector",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "an EgressIP is of another shape",
        make: |o| egress_ip(o, "n06", "all".into()),
        culprit: "EgressIP astray",
        says: &[("RouteAdvertisements egress Complete", "cannot be read")],
        ..NO_FAULT
    },
    Fault {
        what: "an EgressIP that was in order is of another shape",
        make: |o| spec(o, "EgressIP", "shop-out")["namespaceSelector"] = "all".into(),
        culprit: "EgressIP shop-out",
        says: &[("RouteAdvertisements egress Complete", "cannot be read")],
        ..NO_FAULT
    },
];
