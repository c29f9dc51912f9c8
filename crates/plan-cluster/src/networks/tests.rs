//! Who gets which id and subnet.

use super::*;
use crate::samples::{mk_node, mk_world};
use proptest::prelude::*;

fn world_of(nodes: Vec<Node>) -> World {
    let mut world = mk_world();
    world.nodes = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
    world
}

fn subnet_of(plan: &Plan, node: &str) -> String {
    let map = plan.allocations[&NodeName::from(node)]
        .subnets
        .clone()
        .unwrap();
    map[&NetworkName::default_network()][0].to_string()
}

#[test]
fn new_nodes_get_the_smallest_free_id_and_subnet_and_old_ones_keep_theirs() {
    let world = world_of(vec![
        mk_node("a", "1.0.0.1", None, None),
        mk_node("b", "1.0.0.2", Some(2), Some("10.128.0.0/24")),
        mk_node("c", "1.0.0.3", None, Some("10.128.2.0/24")),
        mk_node("d", "1.0.0.4", None, None),
    ]);
    let plan = plan(&world);
    assert!(plan.problems.is_empty());
    assert_eq!(plan.allocations[&NodeName::from("a")].node_id, Some(3));
    assert_eq!(subnet_of(&plan, "a"), "10.128.1.0/24");
    assert_eq!(plan.allocations[&NodeName::from("c")].node_id, Some(4));
    assert_eq!(plan.allocations[&NodeName::from("c")].subnets, None);
    assert_eq!(subnet_of(&plan, "d"), "10.128.3.0/24");
    assert!(!plan.allocations.contains_key(&NodeName::from("b")));
}

#[test]
fn other_networks_entries_are_kept() {
    let mut node = mk_node("a", "1.0.0.1", Some(2), None);
    let blue = NetworkName::from("cluster_udn_blue");
    node.subnets = Fact::Known(BTreeMap::from([(
        blue.clone(),
        vec!["10.10.1.0/24".parse().unwrap()],
    )]));
    let plan = plan(&world_of(vec![node]));
    let map = plan.allocations[&NodeName::from("a")]
        .subnets
        .clone()
        .unwrap();
    assert_eq!(map[&blue][0].to_string(), "10.10.1.0/24");
    assert_eq!(map.len(), 2);
}

#[test]
fn a_malformed_annotation_or_a_full_range_costs_only_that_node() {
    let mut bad = mk_node("a", "1.0.0.1", None, None);
    bad.subnets =
        Fact::Malformed("annotation k8s.ovn.org/node-subnets = \"x\" is not JSON".to_owned());
    let mut world = world_of(vec![
        bad,
        mk_node("b", "1.0.0.2", None, None),
        mk_node("c", "1.0.0.3", None, None),
    ]);
    world.cluster_subnets = vec!["10.128.0.0/24/25".parse().unwrap()];
    world
        .nodes
        .insert(NodeName::from("d"), mk_node("d", "1.0.0.4", None, None));
    let plan = plan(&world);
    assert_eq!(subnet_of(&plan, "b"), "10.128.0.0/25");
    assert_eq!(subnet_of(&plan, "c"), "10.128.0.128/25");
    let texts: Vec<&str> = plan.problems.iter().map(|p| p.message.as_str()).collect();
    assert!(
        texts[0].contains("node a") && texts[0].contains("node-subnets"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("node d") && texts[1].contains("10.128.0.0/24/25"),
        "{texts:?}"
    );
}

#[test]
fn ids_stop_where_the_join_subnet_ends() {
    let mut world = world_of(
        (1..=6)
            .map(|n| mk_node(&format!("n{n}"), &format!("1.0.0.{n}"), None, None))
            .collect(),
    );
    world.join_subnets = vec!["100.64.0.0/29".parse().unwrap()];
    let plan = plan(&world);
    assert_eq!(plan.problems.len(), 1);
    assert!(plan.problems[0].message.contains("no node id is left"));
}

fn apply(world: &mut World, plan: &Plan) {
    for (name, allocation) in &plan.allocations {
        let node = world.nodes.get_mut(name).unwrap();
        if let Some(id) = allocation.node_id {
            node.node_id = Fact::Known(id);
        }
        if let Some(map) = &allocation.subnets {
            node.subnets = Fact::Known(map.clone());
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_given_twice_and_the_second_plan_is_empty(
        joins in prop::collection::vec((0_u8..40, any::<bool>()), 1..60),
    ) {
        let mut world = world_of(Vec::new());
        for (n, join) in joins {
            let node = mk_node(&format!("n{n}"), &format!("1.0.0.{n}"), None, None);
            if join {
                world.nodes.entry(node.name.clone()).or_insert(node);
            } else {
                world.nodes.remove(&node.name);
            }
            let first = plan(&world);
            apply(&mut world, &first);
            prop_assert!(plan(&world).allocations.is_empty());
            let ids: BTreeSet<u32> = world.nodes.values().map(|n| *n.node_id.known().unwrap()).collect();
            prop_assert_eq!(ids.len(), world.nodes.len());
            let subnets: BTreeSet<_> = world.nodes.values().map(|n| n.subnets.known().unwrap().clone()).collect();
            prop_assert_eq!(subnets.len(), world.nodes.len());
        }
    }
}
