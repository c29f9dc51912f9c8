//! Which changes of objects are changes of what passes look at: a cache calls for a pass only then.

use std::fmt::Debug;

use serde_json::{Value, json};

use super::*;

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    for (key, value) in fields {
        merge(&mut object[key.as_str()], value);
    }
}

/// What changes, how, and whether a pass is needed for it.
type Row = (&'static str, Value, bool);

/// Nobody plans by these, of whatever kind the object is.
fn of_the_server() -> Vec<Row> {
    vec![
        (
            "version",
            json!({"metadata": {"resourceVersion": "9"}}),
            false,
        ),
        (
            "managed fields",
            json!({"metadata": {"managedFields": [{"manager": "kubectl", "operation": "Apply"}]}}),
            false,
        ),
    ]
}

/// Decodes before and after each row.
fn check<T: PartialEq + Debug>(base: &Value, decode: impl Fn(&Value) -> T, rows: Vec<Row>) {
    for (what, patch, matters) in rows.into_iter().chain(of_the_server()) {
        let mut changed = base.clone();
        merge(&mut changed, &patch);
        assert_ne!(&changed, base, "{what}: nothing is changed");
        let (before, after) = (decode(base), decode(&changed));
        assert_eq!(before != after, matters, "{what}: {before:?} {after:?}");
    }
}

fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

const SUBNETS: &str = "k8s.ovn.org/node-subnets";

fn node() -> Value {
    let subnets = r#"{"default":["10.1.0.0/24"],"b":["10.2.0.0/24"]}"#;
    let heartbeat = "2026-01-01T00:00:00Z";
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {SUBNETS: subnets}},
        "spec": {"podCIDR": "10.9.0.0/24"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "172.30.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
        },
    })
}

fn decode_node(object: &Value) -> model::node::Node {
    let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(object.clone()).unwrap();
    api::decode_node(&node)
}

#[test]
fn of_a_nodes_annotations_those_that_are_planned_by() {
    let rows = [
        ("subnets", SUBNETS, r#"{"default":["10.1.1.0/24"]}"#, true),
        (
            "subnets in another order",
            SUBNETS,
            r#"{"b": ["10.2.0.0/24"], "default": ["10.1.0.0/24"]}"#,
            false,
        ),
        ("an id", "k8s.ovn.org/node-id", "2", true),
        (
            "an uplink",
            "k8s.ovn.org/node-primary-ifaddr",
            r#"{"ipv4":"172.30.0.1/24"}"#,
            true,
        ),
        (
            "host addresses",
            "k8s.ovn.org/host-cidrs",
            r#"["172.30.0.1/24"]"#,
            true,
        ),
        (
            "what the uplink carries",
            "noverlay.io/host-mtu",
            "1500",
            true,
        ),
        ("a gateway", "k8s.ovn.org/l3-gateway-config", "{}", false),
        ("a chassis", "k8s.ovn.org/node-chassis-id", "c", true),
        ("EVPN tunnel ends", "k8s.ovn.org/vteps", "{}", false),
        ("an annotation of somebody", "example.com/a", "b", false),
    ];
    let rows = rows.map(|(what, key, value, matters)| {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        (what, patch, matters)
    });
    check(&node(), decode_node, rows.into());
}

#[test]
fn of_a_node_labels_addresses_and_whether_it_is_ready() {
    let ready = |status: &str, time: &str| {
        let condition = json!({"type": "Ready", "status": status, "lastHeartbeatTime": time});
        json!({"status": {"conditions": [condition]}})
    };
    let addresses = |list: Value| json!({"status": {"addresses": list}});
    let own = json!({"type": "InternalIP", "address": "172.30.0.1"});
    let other = json!({"type": "InternalIP", "address": "172.30.0.2"});
    let name = json!({"type": "Hostname", "address": "n1"});
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    let rows = vec![
        ("a label", label("zone", "b"), true),
        ("a label more", label("rack", "1"), true),
        ("an address", addresses(json!([other])), true),
        ("no address", addresses(json!([])), true),
        ("a name", addresses(json!([own, name])), false),
        ("a heartbeat", ready("True", "2026-01-01T00:00:10Z"), false),
        ("not ready", ready("Unknown", "2026-01-01T00:00:00Z"), true),
        ("cordoned", json!({"spec": {"unschedulable": true}}), true),
        ("a taint", json!({"spec": {"taints": [taint]}}), false),
        (
            "allocatable resources",
            json!({"status": {"allocatable": {"cpu": "1"}}}),
            false,
        ),
        (
            "images",
            json!({"status": {"images": [{"names": ["a"]}]}}),
            false,
        ),
    ];
    check(&node(), decode_node, rows);
}

#[test]
fn of_a_namespace_labels_and_that_it_goes() {
    let base = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}});
    let rows = vec![
        (
            "a label",
            json!({"metadata": {"labels": {"tenant": "blue"}}}),
            true,
        ),
        (
            "its end",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            true,
        ),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            false,
        ),
        ("a phase", json!({"status": {"phase": "Active"}}), false),
    ];
    let decode = |object: &Value| {
        let namespace = serde_json::from_value(object.clone()).unwrap();
        api::decode_namespace(&namespace)
    };
    check(&base, decode, rows);
}

#[test]
fn of_an_frrconfiguration_all_but_its_status() {
    let base = json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
        "metadata": {"name": "up", "namespace": "frr-k8s-system", "labels": {"use": "pods"}},
        "spec": {"bgp": {"routers": [{"asn": 64512}]}},
    });
    let rows = vec![
        (
            "a label",
            json!({"metadata": {"labels": {"use": "none"}}}),
            true,
        ),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            true,
        ),
        (
            "a router",
            json!({"spec": {"bgp": {"routers": [{"asn": 64513}]}}}),
            true,
        ),
        (
            "nodes",
            json!({"spec": {"nodeSelector": {"matchLabels": {"a": "b"}}}}),
            true,
        ),
        ("text", json!({"spec": {"raw": {"rawConfig": "!"}}}), true),
        ("something unreadable", json!({"spec": {"bgp": 5}}), true),
        ("nothing more", json!({"spec": {"nodeSelector": {}}}), false),
        ("a status", json!({"status": {}}), false),
    ];
    check(&base, |object| frr(&dynamic(object)), rows);
}

#[test]
fn of_a_routeadvertisements_its_spec_its_labels_and_its_conditions() {
    let base = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements", "metadata": {"name": "ra", "generation": 1},
        "spec": {
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}], "nodeSelector": {},
            "frrConfigurationSelector": {}, "advertisements": ["PodNetwork"],
        },
    });
    let rows = vec![
        ("a VRF", json!({"spec": {"targetVRF": "auto"}}), true),
        (
            "the same VRF by its name",
            json!({"spec": {"targetVRF": "default"}}),
            false,
        ),
        (
            "what is advertised",
            json!({"spec": {"advertisements": ["EgressIP"]}}),
            true,
        ),
        (
            "sources",
            json!({"spec": {"frrConfigurationSelector": {"matchLabels": {"a": "b"}}}}),
            true,
        ),
        (
            "something unreadable",
            json!({"spec": {"networkSelectors": 5}}),
            true,
        ),
        ("a generation", json!({"metadata": {"generation": 2}}), true),
        ("a label", json!({"metadata": {"labels": {"a": "b"}}}), true),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            false,
        ),
        (
            "a condition, which may not be ours",
            status("Accepted"),
            true,
        ),
    ];
    check(&base, |object| advertisement(&dynamic(object)), rows);
}

/// Else they would be written again and again, and told as news.
#[test]
fn the_status_of_a_routeadvertisements_that_cannot_be_read_is_known() {
    let mut object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements", "metadata": {"name": "ra", "generation": 3},
        "spec": {"networkSelectors": 5},
    });
    merge(&mut object, &status("Accepted"));
    merge(&mut object, &json!({"status": {"status": "Not Accepted"}}));
    let decoded = advertisement(&dynamic(&object));
    assert!(decoded.spec.is_err());
    assert_eq!(decoded.status, "Not Accepted");
    let conditions = decoded.conditions.iter();
    let kinds: Vec<&str> = conditions.map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds, ["Accepted"]);
    assert_eq!(decoded.conditions[0].since, "2026-01-01T00:00:00Z");
}

fn network() -> Value {
    let layer3 = json!({"role": "Primary", "subnets": [{"cidr": "10.61.0.0/16"}]});
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {"name": "blue", "uid": "u", "generation": 1},
        "spec": {
            "namespaceSelector": {"matchLabels": {"tenant": "blue"}},
            "network": {"topology": "Layer3", "layer3": layer3},
        },
    })
}

/// A status with a condition of this type.
fn status(kind: &str) -> Value {
    let condition = json!({
        "type": kind, "status": "False", "reason": "A", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({"status": {"conditions": [condition]}})
}

fn unreadable_network() -> Value {
    json!({"spec": {"network": {"topology": "Layer9"}}})
}

#[test]
fn of_a_network_its_spec_its_conditions_and_what_its_objects_copy() {
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let selector = json!({"matchLabels": {"tenant": "red"}});
    let subnets = json!([{"cidr": "10.61.0.0/16"}, {"cidr": "10.62.0.0/16"}]);
    let subnets = json!({"spec": {"network": {"layer3": {"subnets": subnets}}}});
    let rows = vec![
        (
            "a label",
            metadata("labels", json!({"export": "yes"})),
            true,
        ),
        (
            "an annotation",
            metadata("annotations", json!({"a": "b"})),
            true,
        ),
        ("a finalizer", metadata("finalizers", json!(["a"])), true),
        (
            "its end",
            metadata("deletionTimestamp", "2026-01-01T00:00:00Z".into()),
            true,
        ),
        (
            "namespaces",
            json!({"spec": {"namespaceSelector": selector}}),
            true,
        ),
        ("a subnet more", subnets, true),
        ("something unreadable", unreadable_network(), true),
        (
            "a condition, which may not be ours",
            status("NetworkCreated"),
            true,
        ),
        ("nothing more", json!({"status": {}}), false),
    ];
    check(&network(), |object| cudn(&dynamic(object), false), rows);
}

/// Else they would be written again and again.
#[test]
fn conditions_of_a_network_that_cannot_be_read_are_known() {
    let mut object = network();
    merge(&mut object, &unreadable_network());
    merge(&mut object, &status("NetworkCreated"));
    let decoded = cudn(&dynamic(&object), false);
    assert_eq!(decoded.conditions.len(), 1);
    assert!(decoded.spec.network.is_err());
}

#[test]
fn of_a_networkattachmentdefinition_all_that_it_says() {
    let config = r#"{"type":"ovn-k8s-cni-overlay","name":"cluster_udn_blue","role":"primary"}"#;
    let base = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "blue", "namespace": "shop", "uid": "u"}, "spec": {"config": config},
    });
    let owner = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork", "name": "blue", "uid": "v",
        "controller": true,
    });
    let rows = vec![
        ("a label", json!({"metadata": {"labels": {"a": "b"}}}), true),
        (
            "an annotation",
            json!({"metadata": {"annotations": {"k8s.ovn.org/network-id": "1"}}}),
            true,
        ),
        (
            "an owner",
            json!({"metadata": {"ownerReferences": [owner]}}),
            true,
        ),
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["a"]}}),
            true,
        ),
        (
            "its end",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            true,
        ),
        ("a configuration", json!({"spec": {"config": "{}"}}), true),
        (
            "a generation",
            json!({"metadata": {"generation": 2}}),
            false,
        ),
    ];
    check(&base, |object| api::read_attachment(&dynamic(object)), rows);
}

#[test]
fn of_an_egressip_who_has_which_address_and_whose_it_is() {
    let item = json!({"node": "n1", "egressIP": "172.30.9.1"});
    let base = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "out"},
        "spec": {"egressIPs": ["172.30.9.1"], "namespaceSelector": {"matchLabels": {"a": "b"}}},
        "status": {"items": [item]},
    });
    let items = |list: Value| json!({"status": {"items": list}});
    let rows = vec![
        (
            "another node",
            items(json!([{"node": "n2", "egressIP": "172.30.9.1"}])),
            true,
        ),
        ("nobody", items(json!([])), true),
        (
            "an address without a node",
            items(json!([item, {"node": "", "egressIP": "172.30.9.2"}])),
            false,
        ),
        ("no status", json!({"status": null}), true),
        (
            "namespaces",
            json!({"spec": {"namespaceSelector": {"matchLabels": {"a": "c"}}}}),
            true,
        ),
        (
            "a wish",
            json!({"spec": {"egressIPs": ["172.30.9.1", "172.30.9.2"]}}),
            false,
        ),
        (
            "pods",
            json!({"spec": {"podSelector": {"matchLabels": {"a": "c"}}}}),
            false,
        ),
        (
            "a label",
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
    ];
    check(&base, |object| api::read_egress_ip(&dynamic(object)), rows);
}

#[test]
fn of_a_session_its_ends_and_its_state_in_the_default_vrf() {
    let base = json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "BGPSessionState",
        "metadata": {"name": "s", "namespace": "frr-k8s-system"}, "spec": {},
        "status": {"node": "n1", "peer": "172.30.0.2", "vrf": "", "bgpStatus": "Active", "bfdStatus": "Down"},
    });
    let status = |key: &str, value: &str| json!({"status": {key: value}});
    let rows = vec![
        ("established", status("bgpStatus", "Established"), true),
        ("BFD", status("bfdStatus", "Up"), false),
        ("the VRF by its name", status("vrf", "default"), false),
        ("another VRF", status("vrf", "blue"), true),
        ("a peer", status("peer", "172.30.0.3"), true),
        (
            "a label",
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
    ];
    check(&base, |object| session(&dynamic(object)), rows);
}
