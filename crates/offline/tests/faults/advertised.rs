//! What is announced to which neighbor: unnumbered ones, single families, EgressIPs beside pods and in a VRF.
//! In: small clusters. Out: routers of generated objects. Invariant: a neighbor gets prefixes of the families that it can carry.
//! Not here: what the recorded worlds show (`ra_conformance`).

use offline::kind::FRR;
use offline::{Objects, settle};
use plan_cluster::RA_KEY;
use serde_json::{Value, json};

use crate::cluster::{conditions, settings_of};

const V4: &str = "10.128.0.0/16/24";
const V6: &str = "fd00:10::/48/64";

/// A cluster over Geneve of one node `n1`, with a source of these neighbors and an RA of it that has these fields.
fn cluster(neighbors: &Value, fields: &Value) -> Objects {
    let mut objects = Objects::default();
    let mut spec = json!({
        "nodeSelector": {}, "frrConfigurationSelector": {},
        "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
        "advertisements": ["PodNetwork"],
    });
    for (key, value) in fields.as_object().unwrap() {
        spec[key.as_str()] = value.clone();
    }
    for object in [
        testkit::objects::node("n1", &["172.30.0.1", "fd00:172::1"]),
        json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": FRR,
            "metadata": {"name": "uplink", "namespace": "frr-k8s-system"},
            "spec": {"bgp": {"routers": [{"asn": 64512, "neighbors": neighbors}]}},
        }),
        json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
            "metadata": {"name": "ra", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
        }),
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "labels": {"tenant": "shop"}},
        }),
    ] {
        objects.put(object).unwrap();
    }
    objects
}

fn egress_ip(objects: &mut Objects, tenant: &str) {
    let selector = json!({"matchLabels": {"tenant": tenant}});
    let object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "out"},
        "spec": {"egressIPs": ["172.30.9.1"], "namespaceSelector": selector},
        "status": {"items": [{"node": "n1", "egressIP": "172.30.9.1"}]},
    });
    objects.put(object).unwrap();
}

/// A network of users over Geneve, `Layer2` or `Layer3`, and its namespace.
fn network(objects: &mut Objects, topology: &str) {
    let layer3 =
        json!({"role": "Primary", "subnets": [{"cidr": "10.61.0.0/16", "hostSubnet": 24}]});
    let network = match topology {
        "Layer2" => {
            let layer2 = json!({"role": "Primary", "subnets": ["10.61.0.0/16"]});
            json!({"topology": "Layer2", "layer2": layer2})
        }
        _ => json!({"topology": "Layer3", "layer3": layer3}),
    };
    let mut network = testkit::objects::network("blue", "2026-01-01T00:00:00Z", &network);
    network["metadata"]["labels"]["export"] = "blue".into();
    for object in [testkit::objects::namespace("ns-blue", "blue"), network] {
        objects.put(object).unwrap();
    }
}

/// The routers that n1 gets for the RA, and what the RA's `Accepted` says.
fn made(objects: &mut Objects, subnets: &str) -> (Value, String) {
    let settings = settings_of(&format!(
        r#"
[default]
cluster-subnets = "{subnets}"
[ovn]
topology = "build"
[gateway]
mode = "local"
[ovnkubernetesfeature]
enable-egress-ip = true
"#
    ));
    let plans = settle(&settings, objects).unwrap();
    let mut all = objects.all(FRR);
    let found = all.find(|o| o["metadata"]["annotations"][RA_KEY] == "ra/uplink/n1");
    let routers = found.map(|object| object["spec"]["bgp"]["routers"].clone());
    let accepted = conditions(&plans)["RouteAdvertisements ra Accepted"].clone();
    (routers.unwrap_or_default(), accepted)
}

/// What each neighbor of a router is told.
fn told(router: &Value) -> Vec<(String, Value)> {
    let neighbors = router["neighbors"].as_array().into_iter().flatten();
    let named = |n: &Value| {
        let name = n["address"].as_str().or_else(|| n["interface"].as_str());
        let prefixes = n["toAdvertise"]["allowed"]["prefixes"].clone();
        (name.unwrap().to_owned(), prefixes)
    };
    neighbors.map(named).collect()
}

#[test]
fn a_neighbor_gets_the_families_that_it_can_carry_and_an_interface_all_of_the_cluster() {
    let neighbors = json!([
        {"interface": "ens4", "dynamicASN": "external"},
        {"address": "172.31.0.1", "asn": 65100},
        {"address": "fd00:31::1", "asn": 65100},
    ]);
    let both = format!("{V4},{V6}");
    let (own_v4, own_v6) = ("10.128.0.0/24", "fd00:10::/64");
    let of_v4 = ("172.31.0.1", json!([own_v4]));
    let of_v6 = ("fd00:31::1", json!([own_v6]));
    for (subnets, wanted) in [
        (V4, vec![("ens4", json!([own_v4])), of_v4.clone()]),
        (V6, vec![("ens4", json!([own_v6])), of_v6.clone()]),
        (
            both.as_str(),
            vec![("ens4", json!([own_v4, own_v6])), of_v4, of_v6],
        ),
    ] {
        let (routers, accepted) = made(&mut cluster(&neighbors, &json!({})), subnets);
        assert!(accepted.starts_with("True"), "{accepted}");
        let wanted = wanted.into_iter();
        let wanted: Vec<_> = wanted.map(|(name, list)| (name.to_owned(), list)).collect();
        assert_eq!(told(&routers[0]), wanted, "{subnets}");
    }
}

#[test]
fn a_neighbor_with_neither_address_nor_interface_is_refused_by_name() {
    for subnets in [V4, V6] {
        let mut objects = cluster(&json!([{"asn": 65100}]), &json!({}));
        let (routers, accepted) = made(&mut objects, subnets);
        assert_eq!(routers, Value::Null);
        let words =
            "neighbor with neither address nor interface on FRRConfiguration frr-k8s-system/uplink";
        assert!(accepted.starts_with("False"), "{accepted}");
        assert!(accepted.contains(words), "{accepted}");
    }
}

#[test]
fn pods_and_egress_ips_of_the_default_network_go_to_one_neighbor() {
    let neighbors = json!([{"address": "172.31.0.1", "asn": 65100}]);
    let fields = json!({"advertisements": ["EgressIP", "PodNetwork"]});
    let mut objects = cluster(&neighbors, &fields);
    egress_ip(&mut objects, "shop");
    let (routers, accepted) = made(&mut objects, V4);
    assert!(accepted.starts_with("True"), "{accepted}");
    let wanted = json!(["10.128.0.0/24", "172.30.9.1/32"]);
    assert_eq!(told(&routers[0]), [("172.31.0.1".to_owned(), wanted)]);
    // No namespace, no network that the address would be of.
    egress_ip(&mut objects, "nobody");
    let (routers, _) = made(&mut objects, V4);
    let wanted = json!(["10.128.0.0/24"]);
    assert_eq!(told(&routers[0]), [("172.31.0.1".to_owned(), wanted)]);
}

#[test]
fn egress_ips_of_a_network_are_announced_in_its_vrf_and_refused_for_layer2() {
    let neighbors = json!([{"address": "172.31.0.1", "asn": 65100}]);
    let selector = json!({"networkSelector": {"matchLabels": {"export": "blue"}}});
    let fields = json!({
        "targetVRF": "blue", "advertisements": ["EgressIP"],
        "networkSelectors": [{
            "networkSelectionType": "ClusterUserDefinedNetworks",
            "clusterUserDefinedNetworkSelector": selector,
        }],
    });
    let world = |topology: &str| {
        let mut objects = cluster(&neighbors, &fields);
        let source = objects.get_mut(FRR, "frr-k8s-system/uplink").unwrap();
        source["spec"]["bgp"]["routers"][0]["vrf"] = "blue".into();
        network(&mut objects, topology);
        egress_ip(&mut objects, "blue");
        objects
    };
    let (routers, accepted) = made(&mut world("Layer3"), V4);
    assert!(accepted.starts_with("True"), "{accepted}");
    assert_eq!(routers.as_array().unwrap().len(), 1, "{routers}");
    assert_eq!(routers[0]["vrf"], "blue");
    let wanted = ("172.31.0.1".to_owned(), json!(["172.30.9.1/32"]));
    assert_eq!(told(&routers[0]), [wanted]);

    let (routers, accepted) = made(&mut world("Layer2"), V4);
    assert_eq!(routers, Value::Null);
    let words = "EgressIP advertisement is currently not supported for Layer2 networks, network: cluster_udn_blue";
    assert!(accepted.starts_with("False"), "{accepted}");
    assert!(accepted.contains(words), "{accepted}");
}
