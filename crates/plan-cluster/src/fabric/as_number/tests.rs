//! A change of the AS number, with and without routers of others, and with a webhook that refuses what does not fit together.

use std::sync::Arc;

use model::node::Node;

use super::*;
use crate::advertise;
use crate::fabric::{base_name, complete, members, plan};
use crate::samples::{add, mk_cudn, mk_managed, mk_source, mk_world, put_network, settle};

fn asn(number: i64) -> Asn {
    Asn::try_from(number).unwrap()
}

/// A fabric that runs with 64512, and is to have another number.
fn changed() -> World {
    let mut world = mk_world();
    settle(&mut world);
    assert_eq!(world.fabric.as_ref().unwrap().asn, asn(64512));
    world.fabric.as_mut().unwrap().asn = asn(64999);
    world
}

/// Numbers of the routers in the default VRF of what a node loads, by object.
fn numbers<'a>(world: &'a World, node: &Node) -> Vec<(&'a ObjectKey, Asn)> {
    let loaded = world.frr.iter().filter_map(|(key, object)| {
        let object = object.as_ref().ok()?;
        let router = object.routers.iter().find(|router| router.vrf.is_empty())?;
        let loads = object.node_selector.matches(&node.labels);
        loads.then_some((key, router.asn))
    });
    loaded.collect()
}

#[test]
fn the_number_stays_while_a_router_of_somebody_else_has_the_old_one() {
    let mut world = changed();
    add(&mut world, mk_source("edge", &["172.30.0.254"]));
    let plan = plan(&world);
    assert_eq!(plan.settings.as_ref().unwrap().asn, asn(64512));
    assert_eq!(plan.base.as_ref().unwrap().routers[0].asn, asn(64512));
    let [problem] = plan.problems.as_slice() else {
        panic!("{:?}", plan.problems);
    };
    assert_eq!(
        (problem.reason, problem.subject.as_str()),
        (REFUSED, "Node/n1")
    );
    for word in ["as-number 64999", "64512 stays", "/edge ", "on node n1"] {
        assert!(problem.message.contains(word), "{word:?}: {problem}");
    }
    // Nothing that stands there is touched.
    let whole = complete(world.clone());
    let objects = advertise::plan(&whole, &base_name());
    assert!(objects.surplus.is_empty(), "{:?}", objects.surplus);
    for (key, object) in &objects.desired {
        assert_eq!(world.frr.get(key), Some(&Ok(object.clone())), "{key}");
    }
}

/// What a change of a source makes of a fabric with the network blue, whose number is to change.
fn beside(change: impl FnOnce(&mut FrrConfiguration)) -> crate::fabric::Plan {
    let mut world = mk_managed();
    put_network(&mut world, mk_cudn("blue", 1), 1);
    settle(&mut world);
    world.fabric.as_mut().unwrap().asn = asn(64999);
    let mut object = mk_source("edge", &["172.30.0.254"]);
    change(&mut object);
    add(&mut world, object);
    plan(&world)
}

#[test]
fn a_router_of_the_old_number_counts_in_each_vrf_of_the_fabric_and_whoever_generated_it() {
    for change in [
        |object: &mut FrrConfiguration| object.routers[0].vrf = "blue".to_owned(),
        // Left by OVN-Kubernetes' own cluster manager.
        |object: &mut FrrConfiguration| object.key.name = "ovnk-generated-x".to_owned(),
    ] {
        let plan = beside(change);
        assert_eq!(plan.settings.as_ref().unwrap().asn, asn(64512));
        assert_eq!(plan.problems.len(), 1, "{:?}", plan.problems);
    }
    let plan = beside(|object| object.routers[0].vrf = "violet".to_owned());
    assert_eq!(plan.settings.as_ref().unwrap().asn, asn(64999));
}

#[test]
fn a_number_that_somebody_wrote_into_the_template_is_no_number_in_force() {
    let mut world = mk_world();
    settle(&mut world);
    let settings = world.fabric.clone().unwrap();
    let Some(Ok(base)) = world.frr.get_mut(&base_key(&settings)) else {
        panic!("no base object");
    };
    Arc::make_mut(base).routers[0].asn = asn(65001);
    let mut foreign = mk_source("edge", &["172.30.0.254"]);
    foreign.routers[0].asn = asn(65001);
    foreign.node_selector = model::LabelSelector::label("kubernetes.io/hostname", "n3");
    add(&mut world, foreign);
    assert_eq!(plan(&world).settings.unwrap().asn, asn(64512));
    // Without the template the nodes' own objects tell.
    let mut world = changed();
    add(&mut world, mk_source("edge", &["172.30.0.254"]));
    world.frr.remove(&base_key(&settings));
    assert_eq!(plan(&world).settings.unwrap().asn, asn(64512));
}

#[test]
fn a_router_that_no_node_loads_or_that_has_another_number_stands_in_nobodys_way() {
    for change in [
        |object: &mut FrrConfiguration| object.routers[0].asn = asn(65000),
        |object: &mut FrrConfiguration| object.routers[0].vrf = "blue".to_owned(),
        |object: &mut FrrConfiguration| {
            object.node_selector = model::LabelSelector::label("rack", "none")
        },
        |object: &mut FrrConfiguration| object.key.namespace = "elsewhere".to_owned(),
    ] {
        let mut world = changed();
        let mut object = mk_source("edge", &["172.30.0.254"]);
        change(&mut object);
        add(&mut world, object);
        let plan = plan(&world);
        assert_eq!(plan.settings.as_ref().unwrap().asn, asn(64999));
        assert!(plan.problems.is_empty(), "{:?}", plan.problems);
    }
}

/// The webhook of frr-k8s, for what matters here: an object whose number differs from that of another object of the same
/// node is refused; a deletion never is.
fn pass(world: &mut World) {
    *world = complete(world.clone());
    let plan = advertise::plan(world, &base_name());
    for (key, object) in &plan.desired {
        let number = object.routers.iter().find(|router| router.vrf.is_empty());
        let number = number.map(|router| router.asn);
        let refused = world.nodes.values().any(|node| {
            let loads = object.node_selector.matches(&node.labels);
            let mut others = numbers(world, node).into_iter();
            loads && others.any(|(other, asn)| other != key && Some(asn) != number)
        });
        if !refused {
            world.frr.insert(key.clone(), Ok(object.clone()));
        }
    }
    for key in &plan.surplus {
        world.frr.remove(key);
    }
}

#[test]
fn a_webhook_that_refuses_two_numbers_on_a_node_cannot_hold_the_change_up() {
    let mut world = changed();
    // A node that cannot be planned any more has objects of the old number too.
    world
        .nodes
        .values_mut()
        .next()
        .unwrap()
        .internal_ips
        .clear();
    for _ in 0..3 {
        pass(&mut world);
    }
    let settings = world.fabric.clone().unwrap();
    for node in world.nodes.values() {
        for (key, number) in numbers(&world, node) {
            assert_eq!(number, asn(64999), "{key} of {}", node.name);
        }
    }
    for node in world.nodes.values().skip(1) {
        for key in [
            members::own_key(&settings, &node.name),
            members::peer_key(&settings, &node.name),
        ] {
            assert!(world.frr.contains_key(&key), "{key} of {}", node.name);
        }
    }
}

#[test]
fn a_node_on_which_nothing_of_the_fabric_would_load_keeps_no_object_of_the_old_number() {
    let mut world = mk_world();
    settle(&mut world);
    // Harmless until now: the node is named, and what it has stays.
    let mut foreign = mk_source("edge", &["172.30.0.254"]);
    foreign.routers[0].asn = asn(65001);
    foreign.node_selector = model::LabelSelector::label("kubernetes.io/hostname", "n3");
    add(&mut world, foreign);
    pass(&mut world);
    world.fabric.as_mut().unwrap().asn = asn(64999);
    for _ in 0..3 {
        pass(&mut world);
    }
    let settings = world.fabric.clone().unwrap();
    for name in ["n1", "n2"] {
        let node = &world.nodes[&model::NodeName::from(name)];
        for (key, number) in numbers(&world, node) {
            assert_eq!(number, asn(64999), "{key} of {name}");
        }
        let own = members::own_key(&settings, &node.name);
        assert!(world.frr.contains_key(&own), "{own}");
    }
    let of_n3 = world.frr.values().flatten().filter(|object| {
        let names = object.annotations.values();
        crate::generated::is_ours(object) && names.into_iter().any(|of| of.ends_with("/n3"))
    });
    let old = of_n3.filter(|object| object.routers.iter().any(|r| r.asn == asn(64512)));
    assert_eq!(old.count(), 0);
}
