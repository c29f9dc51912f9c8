//! ClusterUserDefinedNetworks that the schema takes and that are wrong all the same.

use serde_json::{Value, json};

use super::*;

fn decoded(selector: Value, subnets: Value) -> m::ClusterUserDefinedNetwork {
    let object: ClusterUserDefinedNetwork = serde_json::from_value(json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {"name": "blue"},
        "spec": {
            "namespaceSelector": selector,
            "network": {"topology": "Layer3", "layer3": {"role": "Primary", "subnets": subnets}},
        },
    }))
    .unwrap();
    m::ClusterUserDefinedNetwork::try_from(&object).unwrap()
}

#[test]
fn a_subnet_that_cannot_be_used_costs_itself_and_the_only_one_the_network() {
    let good = json!({"cidr": "10.70.0.0/16"});
    for (cidr, words) in [
        (
            "10.71.0.0/25",
            "subnets[1].hostSubnet is absent, which is 24; allowed: 26 to 31",
        ),
        (
            "fd00:10::/64",
            "subnets[1].hostSubnet is absent, which is 64; allowed: 65 to 127",
        ),
    ] {
        let both = decoded(json!({}), json!([good, {"cidr": cidr}]))
            .network
            .unwrap();
        assert_eq!(both.subnets.len(), 1);
        assert_eq!(both.subnets[0].to_string(), "10.70.0.0/16/24");
        assert_eq!(both.refused.len(), 1);
        assert!(both.refused[0].contains(words), "{:?}", both.refused);
        let alone = decoded(json!({}), json!([{"cidr": cidr}])).network;
        assert!(alone.unwrap_err().contains("hostSubnet is absent"));
    }
}

#[test]
fn a_selector_that_cannot_be_read_costs_the_selector_only() {
    let selector =
        json!({"matchExpressions": [{"key": "team", "operator": "in", "values": ["a"]}]});
    let cudn = decoded(selector, json!([{"cidr": "10.70.0.0/16"}]));
    let why = cudn.namespaces.clone().unwrap_err();
    assert!(why.starts_with("spec.namespaceSelector: "), "{why}");
    assert!(cudn.network.is_ok());
    let namespace = m::Namespace {
        labels: [("team".to_owned(), "a".to_owned())].into(),
        deleting: false,
    };
    assert!(!cudn.selects(&namespace));
}
