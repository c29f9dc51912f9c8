//! Objects of what is not served here: EVPN, other topologies, networks of one namespace, hosts of DPUs.
//! In: a settled cluster, and such objects as OVN-Kubernetes leaves them. Out: the same objects; a condition where there is a
//! place for one. Invariant: nothing of them is written or deleted, and nobody else's plan is another for them.
//! Not here: a network that goes (`attachments`).

use std::collections::BTreeSet;

use offline::kind::{CUDN, NAD, NODE};
use offline::{Objects, settle};
use serde_json::{Value, json};

use crate::cluster::{cluster, conditions, settings};

/// A ClusterUserDefinedNetwork, its namespace, and the object that OVN-Kubernetes has made there.
fn foreign(objects: &mut Objects, name: &str, mut spec: Value, mut config: Value) {
    let namespace = format!("ns-{name}");
    let network = format!("cluster_udn_{name}");
    let uid = format!("uid-of-{name}");
    let protection = ["k8s.ovn.org/user-defined-network-protection"];
    spec["namespaceSelector"] = json!({"matchLabels": {"tenant": name}});
    config["cniVersion"] = "1.1.0".into();
    config["type"] = "ovn-k8s-cni-overlay".into();
    config["name"] = network.clone().into();
    config["netAttachDefName"] = format!("{namespace}/{name}").into();
    let owner = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": CUDN, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    for object in [
        testkit::objects::namespace(&namespace, name),
        json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": CUDN,
            "metadata": {
                "name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:02:00Z",
                "labels": {"export": name}, "finalizers": protection,
            },
            "spec": spec,
        }),
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD,
            "metadata": {
                "namespace": namespace, "name": name, "uid": format!("nad-{name}"),
                "labels": {"k8s.ovn.org/user-defined-network": ""}, "finalizers": protection,
                "annotations": {"k8s.ovn.org/network-name": network, "k8s.ovn.org/network-id": "77"},
                "ownerReferences": [owner],
            },
            "spec": {"config": config.to_string()},
        }),
    ] {
        objects.put(object).unwrap();
    }
}

/// A RouteAdvertisements of networks with this label, by the source of `pods`.
fn advertisement(label: &str, with_default: bool) -> Value {
    let mut selectors = vec![json!({
        "networkSelectionType": "ClusterUserDefinedNetworks",
        "clusterUserDefinedNetworkSelector": {"networkSelector": {"matchLabels": {"export": label}}},
    })];
    if with_default {
        selectors.push(json!({"networkSelectionType": "DefaultNetwork"}));
    }
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
        "metadata": {"name": "theirs", "creationTimestamp": "2026-01-01T00:03:00Z"},
        "spec": {
            "nodeSelector": {}, "frrConfigurationSelector": {"matchLabels": {"use": "pods"}},
            "networkSelectors": selectors, "advertisements": ["PodNetwork"],
        },
    })
}

/// Names of objects that are other than they were given, new or gone.
fn written(given: &Objects, after: &Objects) -> BTreeSet<String> {
    let all = given.iter().chain(after.iter()).map(|(key, _)| key);
    let other = all.filter(|(kind, name)| given.get(kind, name) != after.get(kind, name));
    other.map(|(kind, name)| format!("{kind} {name}")).collect()
}

/// Name, `spec`, the configuration of its object, and what is said of it.
fn unserved() -> [(&'static str, Value, Value, &'static str); 3] {
    let layer3 =
        json!({"role": "Primary", "subnets": [{"cidr": "10.70.0.0/16", "hostSubnet": 24}]});
    let plain = json!({"topology": "layer3", "role": "primary", "subnets": "10.70.0.0/16/24"});
    let mut evpn = plain.clone();
    evpn["transport"] = "evpn".into();
    let vrf = json!({"vtep": "v", "ipVRF": {"vni": 100}});
    let localnet = json!({"role": "Secondary", "physicalNetworkName": "p"});
    [
        (
            "evpn",
            json!({"network": {"topology": "Layer3", "layer3": layer3, "transport": "EVPN", "evpn": vrf}}),
            evpn,
            "transport EVPN is not supported",
        ),
        (
            "local",
            json!({"network": {"topology": "Localnet", "localnet": localnet}}),
            json!({"topology": "localnet", "role": "secondary"}),
            "Localnet is not supported",
        ),
        (
            "uplinked",
            json!({"network": {"topology": "Layer3", "layer3": layer3}, "uplinks": ["u"]}),
            plain,
            "spec.uplinks is not supported",
        ),
    ]
}

#[test]
fn networks_that_are_not_served_are_named_and_left_alone() {
    let settings = settings("full-mesh");
    let mut before = cluster(4);
    let plans = settle(&settings, &mut before).unwrap();
    let said = conditions(&plans);
    for (name, spec, config, words) in unserved() {
        let mut given = before.clone();
        foreign(&mut given, name, spec, config);
        given.put(advertisement(name, false)).unwrap();
        let mut after = given.clone();
        let plans = settle(&settings, &mut after).unwrap();
        assert_eq!(written(&given, &after), BTreeSet::new(), "{name}");
        let now = conditions(&plans);
        let created = &now[&format!("{CUDN} {name} NetworkCreated")];
        assert!(created.starts_with("False"), "{created}");
        assert!(created.contains(words), "{created}");
        assert!(!now.contains_key(&format!("{CUDN} {name} TransportAccepted")));
        let accepted = &now["RouteAdvertisements theirs Accepted"];
        let who = format!("cluster_udn_{name}");
        assert!(accepted.starts_with("False"), "{accepted}");
        assert!(accepted.contains(&who), "{accepted}");
        assert!(accepted.contains(words), "{accepted}");
        for (place, text) in &said {
            assert_eq!(&now[place], text, "{name}: {place}");
        }

        // Beside another network it costs itself.
        after.put(advertisement(name, true)).unwrap();
        let plans = settle(&settings, &mut after).unwrap();
        let now = conditions(&plans);
        let accepted = &now["RouteAdvertisements theirs Accepted"];
        assert!(accepted.starts_with("True"), "{accepted}");
        let complete = &now["RouteAdvertisements theirs Complete"];
        assert!(complete.starts_with("False"), "{complete}");
        assert!(complete.contains(&who), "{complete}");
        let served = plans.advertisements["theirs"].serves.clone().unwrap();
        let served: Vec<&str> = served.iter().map(|network| network.as_str()).collect();
        assert_eq!(served, ["default"], "{name}");
    }
}

#[test]
fn what_ovn_kubernetes_has_generated_itself_and_networks_of_one_namespace_stay() {
    let settings = settings("full-mesh");
    let mut given = cluster(3);
    settle(&settings, &mut given).unwrap();
    let config = r#"{"cniVersion":"1.1.0","type":"ovn-k8s-cni-overlay","name":"shop_own","netAttachDefName":"shop/own","role":"primary","topology":"layer3","subnets":"10.61.0.0/16/24"}"#;
    let owner = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "UserDefinedNetwork", "name": "own", "uid": "u9",
        "controller": true,
    });
    let router = json!({"asn": 64512, "vrf": "v", "evpn": {"l2VNIs": [{"vni": 10}]}});
    for object in [
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD,
            "metadata": {
                "namespace": "shop", "name": "own", "uid": "u8", "ownerReferences": [owner],
                "labels": {"k8s.ovn.org/user-defined-network": ""},
                "annotations": {"k8s.ovn.org/network-name": "shop_own", "k8s.ovn.org/network-id": "78"},
                "finalizers": ["k8s.ovn.org/user-defined-network-protection"],
            },
            "spec": {"config": config},
        }),
        json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {
                "namespace": "frr-k8s-system", "name": "ovnk-generated-x7x7x",
                "labels": {"k8s.ovn.org/route-advertisements": "evpn"},
                "annotations": {"k8s.ovn.org/route-advertisements": "evpn/uplink/n02"},
            },
            "spec": {
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "n02"}},
                "bgp": {"routers": [router]},
            },
        }),
        json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "VTEP", "metadata": {"name": "v"},
            "spec": {"cidrs": ["100.64.1.0/24"]},
        }),
    ] {
        given.put(object).unwrap();
    }
    let mut after = given.clone();
    settle(&settings, &mut after).unwrap();
    assert_eq!(written(&given, &after), BTreeSet::new());
}

#[test]
fn facts_of_other_functions_on_a_node_change_no_plan() {
    let settings = settings("full-mesh");
    let mut given = cluster(3);
    let before = settle(&settings, &mut given).unwrap();
    let metadata = &mut given.get_mut(NODE, "n02").unwrap()["metadata"];
    metadata["labels"]["k8s.ovn.org/dpu-host"] = "".into();
    let tunnels = "k8s.ovn.org/udn-layer2-node-gateway-router-lrp-tunnel-ids";
    for (key, value) in [
        (
            "k8s.ovn.org/primary-dpu-host-addr",
            r#"{"ipv4":"10.1.1.1/24"}"#,
        ),
        ("k8s.ovn.org/vteps", r#"{"v":{"ips":["100.64.1.2"]}}"#),
        (tunnels, r#"{"cluster_udn_grey":"5"}"#),
        ("k8s.ovn.org/l3-gateway-config", "{}"),
        ("k8s.ovn.org/node-chassis-id", "c"),
    ] {
        metadata["annotations"][key] = value.into();
    }
    let mut after = given.clone();
    let now = settle(&settings, &mut after).unwrap();
    assert_eq!(written(&given, &after), BTreeSet::new());
    assert_eq!(conditions(&now), conditions(&before));
}
