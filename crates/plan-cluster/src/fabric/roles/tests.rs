//! Who reflects, and in which steps that changes.

use super::*;
use crate::World;
use crate::fabric::{self, members};
use crate::samples::{add, mk_node, mk_world, neighbors, settle};
use crate::world::{AutoSizes, Evidence};

/// Nodes n01.. with subnets, in three zones, and this topology.
fn mk_cluster(topology: FabricTopology, nodes: u8) -> World {
    let mut world = mk_world();
    world.nodes.clear();
    world.fabric.as_mut().unwrap().topology = topology;
    for n in 1..=nodes {
        join(&mut world, n);
    }
    world
}

fn awaited(world: &World) -> Option<Awaited> {
    let mut plans = crate::advertise::plan_all(world);
    plans.remove(&fabric::base_name())?.awaited
}

fn join(world: &mut World, n: u8) {
    let subnet = format!("10.128.{n}.0/24");
    let id = Some(u32::from(n) + 1);
    let mut node = mk_node(
        &format!("n{n:02}"),
        &format!("172.30.0.{n}"),
        id,
        Some(&subnet),
    );
    let zone = format!("z{}", n % 3);
    node.labels.insert(ZONE_LABEL.to_owned(), zone);
    world.nodes.insert(node.name.clone(), node);
}

fn reflectors(world: &World) -> Vec<String> {
    let nodes = world.nodes.values();
    let reflectors = nodes.filter(|node| Role::of(node) == Some(Role::Reflector));
    reflectors.map(|node| node.name.to_string()).collect()
}

fn node<'w>(world: &'w mut World, name: &str) -> &'w mut Node {
    world.nodes.get_mut(&NodeName::from(name)).unwrap()
}

fn reports(names: &[&str]) -> Evidence {
    Evidence {
        reflecting: names.iter().map(|name| NodeName::from(*name)).collect(),
        meshed: false,
    }
}

#[test]
fn in_a_mesh_every_node_has_every_other_as_neighbor_and_none_reflects() {
    let mut world = mk_cluster(FabricTopology::FullMesh, 5);
    settle(&mut world);
    for (name, neighbors) in neighbors(&world) {
        assert_eq!(neighbors.len(), 4, "{name}: {neighbors:?}");
    }
    assert!(reflectors(&world).is_empty());
    assert_eq!(awaited(&world), None);
}

#[test]
fn three_reflectors_of_three_zones_have_everybody_as_neighbor_and_nobody_else_has() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 9);
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n02", "n03"]);
    for (name, neighbors) in neighbors(&world) {
        let expected = match name.as_str() {
            "n01" | "n02" | "n03" => 8,
            _ => 3,
        };
        assert_eq!(neighbors.len(), expected, "{name}: {neighbors:?}");
    }
    assert_eq!(awaited(&world), None);
}

#[test]
fn a_node_that_joins_reflectors_changes_no_object_but_brings_two() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 9);
    settle(&mut world);
    let before = world.frr.clone();
    join(&mut world, 10);
    settle(&mut world);
    let changed: Vec<_> = world
        .frr
        .iter()
        .filter(|(key, object)| before.get(*key) != Some(*object))
        .collect();
    assert_eq!(changed.len(), 2, "{changed:#?}");
    assert_eq!(reflectors(&world), ["n01", "n02", "n03"]);
}

#[test]
fn in_a_mesh_a_node_that_joins_brings_two_objects_and_the_template_names_it() {
    let mut world = mk_cluster(FabricTopology::FullMesh, 9);
    settle(&mut world);
    let before = world.frr.clone();
    join(&mut world, 10);
    settle(&mut world);
    let changed = world
        .frr
        .iter()
        .filter(|(key, object)| before.get(*key) != Some(*object));
    let mut changed: Vec<&str> = changed.map(|(key, _)| key.name.as_str()).collect();
    changed.retain(|name| *name != fabric::base_name());
    assert_eq!(changed.len(), 2, "{changed:?}");
}

#[test]
fn labelled_nodes_are_the_reflectors_whatever_would_be_chosen() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 6);
    for name in ["n05", "n06"] {
        let (key, value) = REQUESTED_LABEL;
        let labels = &mut node(&mut world, name).labels;
        labels.insert(key.to_owned(), value.to_owned());
    }
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n05", "n06"]);
    // Another value of the label requests nothing.
    let labels = &mut node(&mut world, "n06").labels;
    labels.insert(REQUESTED_LABEL.0.to_owned(), "client".to_owned());
    world.evidence = reports(&["n05"]);
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n05"]);
    let problems = fabric::plan(&world).problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (problems[0].reason, problems[0].subject.as_str()),
        ("SingleRouteReflector", "Node/n05")
    );
}

#[test]
fn a_reflector_that_is_drained_stays_until_the_one_in_its_place_is_reported_to_reflect() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 9);
    settle(&mut world);
    node(&mut world, "n02").cordoned = true;
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n02", "n03", "n05"]);
    let wanted = ["n01", "n03", "n05"].map(NodeName::from).into();
    assert_eq!(awaited(&world), Some(Awaited::Reflectors(wanted)));
    let had = neighbors(&world);
    assert_eq!(had["n09"].len(), 4);
    // Two of three are not enough while the third is Ready.
    world.evidence = reports(&["n01", "n03"]);
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 4);
    world.evidence = reports(&["n01", "n03", "n05"]);
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n03", "n05"]);
    assert_eq!(neighbors(&world)["n09"].len(), 3);
    assert_eq!(awaited(&world), None);
    // It is uncordoned: those that do the work go on doing it.
    node(&mut world, "n02").cordoned = false;
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n03", "n05"]);
}

#[test]
fn a_reflector_that_is_not_ready_or_gone_is_replaced_at_once() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 9);
    settle(&mut world);
    node(&mut world, "n02").ready = Some(false);
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n02", "n03", "n05"]);
    world.nodes.remove(&NodeName::from("n02"));
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n01", "n03", "n05"]);
    let objects = world.frr.values().filter_map(|object| object.as_ref().ok());
    let mut named = objects.flat_map(|object| members::addresses(object));
    assert!(!named.any(|ip| ip.to_string() == "172.30.0.2"));
}

#[test]
fn a_mesh_becomes_one_of_reflectors_only_when_they_are_reported_to_reflect_and_back() {
    let mut world = mk_cluster(FabricTopology::FullMesh, 9);
    settle(&mut world);
    world.fabric.as_mut().unwrap().topology = FabricTopology::RouteReflector;
    settle(&mut world);
    // Reflectors on top of the mesh: nobody has lost a neighbor.
    assert_eq!(reflectors(&world), ["n01", "n02", "n03"]);
    assert!(neighbors(&world).values().all(|all| all.len() == 8));
    // Who joins now has all neighbors, too.
    join(&mut world, 10);
    settle(&mut world);
    assert!(neighbors(&world).values().all(|all| all.len() == 9));
    world.evidence = reports(&["n01", "n02", "n03"]);
    settle(&mut world);
    assert_eq!(neighbors(&world)["n09"].len(), 3);
    assert_eq!(neighbors(&world)["n01"].len(), 9);
    assert_eq!(awaited(&world), None);
    // What is no longer reported brings no mesh back.
    world.evidence = Evidence::default();
    settle(&mut world);
    assert_eq!(neighbors(&world)["n09"].len(), 3);

    world.fabric.as_mut().unwrap().topology = FabricTopology::FullMesh;
    settle(&mut world);
    assert!(neighbors(&world).values().all(|all| all.len() == 9));
    assert_eq!(reflectors(&world), ["n01", "n02", "n03"]);
    assert_eq!(awaited(&world), Some(Awaited::Mesh));
    world.evidence.meshed = true;
    settle(&mut world);
    assert!(reflectors(&world).is_empty());
    assert_eq!(awaited(&world), None);
}

#[test]
fn auto_is_a_mesh_up_to_64_nodes_and_keeps_reflectors_down_to_48() {
    let sizes = AutoSizes {
        reflectors_above: 64,
        full_mesh_below: 48,
    };
    let mut world = mk_cluster(FabricTopology::Auto(sizes), 64);
    settle(&mut world);
    assert!(reflectors(&world).is_empty());
    join(&mut world, 65);
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 3);
    world.evidence = reports(&["n01", "n02", "n03"]);
    settle(&mut world);
    assert_eq!(neighbors(&world)["n40"].len(), 3);
    for n in 49..=65 {
        world
            .nodes
            .remove(&NodeName::from(format!("n{n:02}").as_str()));
    }
    settle(&mut world);
    assert_eq!(neighbors(&world)["n40"].len(), 3);
    world.nodes.remove(&NodeName::from("n48"));
    settle(&mut world);
    assert_eq!(neighbors(&world)["n40"].len(), 46);
    assert_eq!(reflectors(&world).len(), 3);
}

#[test]
fn with_equal_numbers_auto_stays_what_it_is_at_that_many_nodes_and_other_numbers_change_it_at_once()
{
    let auto = |reflectors_above, full_mesh_below| {
        FabricTopology::Auto(AutoSizes {
            reflectors_above,
            full_mesh_below,
        })
    };
    let mut world = mk_cluster(auto(5, 5), 5);
    settle(&mut world);
    assert!(reflectors(&world).is_empty());
    join(&mut world, 6);
    world.evidence = reports(&["n01", "n02", "n03"]);
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 3);
    world.nodes.remove(&NodeName::from("n06"));
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 3);
    world.nodes.remove(&NodeName::from("n05"));
    world.evidence.meshed = true;
    settle(&mut world);
    assert!(reflectors(&world).is_empty());
    world.fabric.as_mut().unwrap().topology = auto(3, 2);
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 3);
}

/// Somebody else's router of another AS on n01.
fn add_router_of_another_as(world: &mut World) {
    let mut foreign = model::frr::FrrConfiguration::clone(&fabric::plan(world).base.unwrap());
    foreign.key.name = "metallb".to_owned();
    foreign.labels.clear();
    foreign.node_selector = LabelSelector::label("kubernetes.io/hostname", "n01");
    foreign.routers[0].asn = model::Asn::try_from(65_000).unwrap();
    foreign.routers[0].neighbors.clear();
    foreign.bfd_profiles.clear();
    add(world, foreign);
}

#[test]
fn a_node_that_cannot_load_what_makes_a_reflector_is_none() {
    let mut world = mk_cluster(FabricTopology::RouteReflector, 6);
    add_router_of_another_as(&mut world);
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n02", "n03", "n04"]);
    // It is nobody's neighbor: it has nothing to say yet.
    let all = neighbors(&world);
    assert!(
        all.iter()
            .all(|(name, n)| name == "n01" || !n.contains("172.30.0.1")),
        "{all:?}"
    );
    assert!(all["n01"].is_empty());
}

#[test]
fn what_is_reported_counts_until_all_of_a_change_is_written() {
    let mut world = mk_cluster(FabricTopology::FullMesh, 9);
    settle(&mut world);
    world.fabric.as_mut().unwrap().topology = FabricTopology::RouteReflector;
    settle(&mut world);
    let before = world.clone();
    world.evidence = reports(&["n01", "n02", "n03"]);
    settle(&mut world);
    assert_eq!(awaited(&world), None);
    // One write of them was refused.
    let settings = world.fabric.clone().unwrap();
    let key = members::peer_key(&settings, &NodeName::from("n09"));
    world.frr.insert(key.clone(), before.frr[&key].clone());
    let wanted = ["n01", "n02", "n03"].map(NodeName::from).into();
    assert_eq!(awaited(&world), Some(Awaited::Reflectors(wanted)));
    settle(&mut world);
    assert_eq!(awaited(&world), None);

    world.fabric.as_mut().unwrap().topology = FabricTopology::FullMesh;
    settle(&mut world);
    let labelled = world.nodes.clone();
    world.evidence.meshed = true;
    settle(&mut world);
    assert_eq!(awaited(&world), None);
    world.nodes = labelled;
    assert_eq!(awaited(&world), Some(Awaited::Mesh));
}

#[test]
fn what_is_awaited_are_the_route_reflectors_that_are_planned() {
    let mut world = mk_cluster(FabricTopology::FullMesh, 6);
    settle(&mut world);
    add_router_of_another_as(&mut world);
    world.fabric.as_mut().unwrap().topology = FabricTopology::RouteReflector;
    settle(&mut world);
    assert_eq!(reflectors(&world), ["n02", "n03", "n04"]);
    let wanted = ["n02", "n03", "n04"].map(NodeName::from).into();
    assert_eq!(awaited(&world), Some(Awaited::Reflectors(wanted)));
}

#[test]
fn with_auto_the_objects_that_stand_tell_the_topology_and_no_label() {
    let sizes = AutoSizes {
        reflectors_above: 10,
        full_mesh_below: 3,
    };
    let mut world = mk_cluster(FabricTopology::Auto(sizes), 9);
    settle(&mut world);
    // A label that somebody set.
    let labels = &mut node(&mut world, "n07").labels;
    labels.insert(ROLE_LABEL.to_owned(), "route-reflector".to_owned());
    world.evidence.meshed = true;
    settle(&mut world);
    assert!(reflectors(&world).is_empty());
    assert!(neighbors(&world).values().all(|all| all.len() == 8));

    join(&mut world, 10);
    join(&mut world, 11);
    world.evidence = reports(&["n01", "n02", "n03"]);
    settle(&mut world);
    assert_eq!(neighbors(&world)["n09"].len(), 3);
    // All reflectors go at once: others take their place, and no mesh of the rest.
    world.evidence = Evidence::default();
    for name in ["n01", "n02", "n03"] {
        world.nodes.remove(&NodeName::from(name));
    }
    settle(&mut world);
    assert_eq!(reflectors(&world).len(), 3);
    assert_eq!(neighbors(&world)["n09"].len(), 3);
}
