//! The planner against a recorded run of OVN-Kubernetes' own cluster manager.
//! In: the world of a case. Out: equality in what has to agree: neighbors, prefixes both ways, AS number, raw text.
//! Not here: names, labels and the self-neighbor of the base object, where we differ on purpose.
#![expect(clippy::expect_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;

use api::frr_configuration::FRRConfiguration;
use k8s_openapi::api::core::v1::Node as KubeNode;
use model::Asn;
use model::frr::FrrConfiguration;
use plan_cluster::world::{FabricSettings, World};
use plan_cluster::{advertise, fabric};
use serde_json::Value;

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("test data are YAML")
}

#[test]
fn managed_default_network_of_three_nodes_agrees() {
    let mut world = World {
        cluster_subnets: vec!["10.240.0.0/16/24".parse().unwrap()],
        join_subnets: vec!["100.64.0.0/16".parse().unwrap()],
        no_overlay: true,
        frr_namespace: "frr-k8s-system".to_owned(),
        fabric: Some(FabricSettings {
            asn: Asn::try_from(64_777).unwrap(),
            namespace: "frr-k8s-system".to_owned(),
            resilient: false,
        }),
        ..World::default()
    };
    for object in documents(include_str!(
        "ra-conformance/22-managed-default-three-nodes/world.yaml"
    )) {
        if object["kind"] == "Node" {
            let node = api::lift_node(&serde_json::from_value::<KubeNode>(object).unwrap());
            world.nodes.insert(node.name.clone(), node);
        }
    }
    assert_eq!(world.nodes.len(), 3);
    let fabric = fabric::plan(&world);
    let base = fabric.base.unwrap();
    world.frr.insert(base.key.clone(), Ok(base));
    let ra = fabric.advertisement.unwrap();
    let name = ra.name.clone();
    world.ras.insert(name.clone(), Ok(ra));
    let plan = advertise::plan(&world, &name);
    assert!(plan.accepted(), "{:?}", plan.conditions);

    let expected: Value = documents(include_str!(
        "ra-conformance/22-managed-default-three-nodes/expected.yaml"
    ))
    .remove(0);
    let mut seen = BTreeMap::new();
    for object in plan.desired.values() {
        let node = object.node_selector.match_labels["kubernetes.io/hostname"].clone();
        seen.insert(node, object);
    }
    let recorded = expected["frrconfigurations"].as_array().unwrap();
    assert_eq!(recorded.len(), seen.len());
    for object in recorded {
        let node = object["nodeSelector"]["matchLabels"]["kubernetes.io/hostname"]
            .as_str()
            .unwrap();
        let theirs: FRRConfiguration = serde_json::from_value(serde_json::json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {"name": "x", "namespace": object["namespace"]}, "spec": object["spec"],
        }))
        .unwrap();
        let theirs = FrrConfiguration::try_from(&theirs).unwrap();
        assert_eq!(seen[node].routers, theirs.routers, "node {node}");
        assert_eq!(seen[node].raw, theirs.raw, "node {node}");
        assert_eq!(seen[node].key.namespace, theirs.key.namespace);
    }
}
