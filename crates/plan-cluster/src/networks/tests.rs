//! Who gets which id and subnet.

use super::*;
use crate::samples::{add, default_of, mk_cudn, mk_managed, mk_node, mk_world, settle};
use crate::{MANAGED_BY, RA_KEY, advertise};
use model::frr::{FrrConfiguration, Router};
use model::selector::LabelSelector;
use model::user_network::Attachment;
use model::{Asn, ObjectKey};
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
    let written = plan.applied(world.clone());
    assert!(super::plan(&written).allocations.is_empty());
    let (a, b) = (&written.nodes[&NodeName::from("a")], NodeName::from("b"));
    assert_eq!(a.node_id, Fact::Known(3));
    assert_eq!(written.nodes[&b], world.nodes[&b]);
    assert!(!plan.allocations.contains_key(&NodeName::from("b")));
}

#[test]
fn other_networks_entries_are_kept_and_those_of_a_network_that_is_gone_are_not() {
    let mut node = mk_node("a", "1.0.0.1", Some(2), None);
    let (blue, theirs) = ("cluster_udn_blue", "shop_own");
    let subnets = [blue, theirs].map(|name| (name.into(), vec!["10.10.1.0/24".parse().unwrap()]));
    node.subnets = Fact::Known(subnets.into());
    let names = |world: &World| -> Vec<String> {
        let plan = plan(world);
        let map = plan.allocations[&NodeName::from("a")].subnets.clone();
        map.unwrap().keys().map(ToString::to_string).collect()
    };
    let mut world = world_of(vec![node]);
    assert_eq!(
        names(&world),
        ["default", theirs],
        "its last attachment went with it"
    );
    let mut unreadable = mk_cudn("blue", 1);
    unreadable.network = Err("it cannot be read".to_owned());
    // One that cannot be read is there, and one with an attachment left is in use.
    world.cudns.insert("blue".to_owned(), unreadable);
    assert_eq!(names(&world), [blue, "default", theirs]);
    world.cudns.clear();
    let left = Attachment {
        network: Some((blue.into(), true)),
        ..Attachment::default()
    };
    world
        .attachments
        .insert(ObjectKey::new("shop", "blue"), left);
    assert_eq!(names(&world), [blue, "default", theirs]);
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
    default_of(&mut world).subnets = vec!["10.128.0.0/24/25".parse().unwrap()];
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
    default_of(&mut world).join_subnets = vec!["100.64.0.0/29".parse().unwrap()];
    let plan = plan(&world);
    assert_eq!(plan.problems.len(), 1);
    assert!(plan.problems[0].message.contains("no node id is left"));
}

const BROKEN: &str = "annotation k8s.ovn.org/node-subnets = \"x\" is not JSON";

fn malformed(mut node: Node) -> Node {
    node.subnets = Fact::Malformed(BROKEN.to_owned());
    node
}

/// What was generated for a node, which originates one prefix.
fn generated_for(node: &str, prefix: &str) -> FrrConfiguration {
    FrrConfiguration {
        key: ObjectKey::new("frr-k8s-system", format!("ovnk-generated-{node}")),
        labels: [(RA_KEY, "ra"), MANAGED_BY]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        annotations: [(RA_KEY.to_owned(), format!("ra/src/{node}"))].into(),
        node_selector: LabelSelector::label("kubernetes.io/hostname", node),
        routers: vec![Router {
            prefixes: vec![prefix.parse().unwrap()],
            ..Router::new(Asn::try_from(64_512).unwrap())
        }],
        bfd_profiles: Vec::new(),
        raw: None,
    }
}

#[test]
fn a_node_that_joins_never_gets_what_a_node_with_a_broken_annotation_still_announces() {
    let mut world = mk_managed();
    settle(&mut world);
    let n1 = malformed(world.nodes[&NodeName::from("n1")].clone());
    world.nodes.insert(n1.name.clone(), n1);
    let zero = mk_node("n0", "172.30.0.9", Some(9), Some("10.128.0.0/24"));
    world.nodes.insert(zero.name.clone(), zero);
    let n4 = mk_node("n4", "172.30.0.4", None, None);
    world.nodes.insert(n4.name.clone(), n4);
    assert_eq!(subnet_of(&plan(&world), "n4"), "10.128.4.0/24");
}

#[test]
fn what_is_still_announced_for_a_node_that_is_gone_is_not_given_to_another() {
    let mut world = world_of(vec![mk_node("b", "1.0.0.2", Some(2), None)]);
    add(&mut world, generated_for("gone", "10.128.0.0/24"));
    assert_eq!(subnet_of(&plan(&world), "b"), "10.128.1.0/24");
}

#[test]
fn what_somebody_elses_objects_announce_neither_takes_subnets_nor_changes_the_host_length() {
    let mut world = mk_managed();
    let n4 = mk_node("n4", "172.30.0.4", None, None);
    world.nodes.insert(n4.name.clone(), n4);
    let foreign = |name: &str, prefix: &str| {
        let mut object = generated_for(name, prefix);
        object.key = ObjectKey::new("tenant", format!("ovnk-generated-{name}"));
        object.labels.remove(MANAGED_BY.0);
        object
    };
    add(&mut world, foreign("x", "10.128.0.0/14"));
    for number in 1..=5 {
        add(
            &mut world,
            foreign(&format!("fake{number}"), &format!("10.128.{number}.0/25")),
        );
    }
    assert_eq!(subnet_of(&plan(&world), "n4"), "10.128.0.0/24");
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        24
    );
    assert_eq!(
        world.excluded_nodes(world.default_network().unwrap()),
        BTreeMap::new()
    );
}

#[test]
fn a_node_whose_annotation_was_deleted_gets_back_what_its_objects_announce() {
    let mut world = world_of(vec![
        mk_node("a", "1.0.0.1", Some(2), None),
        mk_node("b", "1.0.0.2", Some(3), None),
        mk_node("c", "1.0.0.3", Some(4), Some("10.128.9.0/24")),
    ]);
    add(&mut world, generated_for("b", "10.128.7.0/24"));
    // Another node has it by now, or it lies elsewhere: then a new one.
    add(&mut world, generated_for("a", "10.128.9.0/24"));
    let first = plan(&world);
    assert_eq!(subnet_of(&first, "b"), "10.128.7.0/24");
    assert_eq!(subnet_of(&first, "a"), "10.128.0.0/24");
    add(&mut world, generated_for("b", "10.99.7.0/24"));
    assert_eq!(subnet_of(&plan(&world), "b"), "10.128.1.0/24");
}

#[test]
fn a_new_host_prefix_is_refused_and_the_one_in_use_stays() {
    let mut world = mk_managed();
    default_of(&mut world).subnets = vec!["10.128.0.0/16/23".parse().unwrap()];
    let n4 = mk_node("n4", "172.30.0.4", None, None);
    world.nodes.insert(n4.name.clone(), n4);
    let plan = plan(&world);
    assert_eq!(subnet_of(&plan, "n4"), "10.128.0.0/24");
    let reported = plan.problems.iter().any(|p| {
        p.reason == "HostPrefixRefused"
            && ["10.128.0.0/16/23", "/24", "[default] cluster-subnets"]
                .iter()
                .all(|w| p.message.contains(w))
    });
    assert!(reported, "{:?}", plan.problems);
    // And nobody is left out for it.
    assert_eq!(
        world.excluded_nodes(world.default_network().unwrap()),
        BTreeMap::new()
    );
    let base = crate::fabric::plan(&world).base.unwrap();
    let taken = &base.routers[0].neighbors[0].receive.prefixes[0];
    assert_eq!((taken.ge, taken.le), (Some(24), Some(24)));
}

fn holds(world: &mut World, node: &str, subnets: &[&str]) {
    let list = subnets.iter().map(|s| s.parse().unwrap()).collect();
    let map = BTreeMap::from([(NetworkName::default_network(), list)]);
    world.nodes.get_mut(&NodeName::from(node)).unwrap().subnets = Fact::Known(map.into());
}

#[test]
fn many_entries_of_one_node_are_one_vote() {
    let four = [
        "10.128.3.0/26",
        "10.128.3.64/26",
        "10.128.3.128/26",
        "10.128.3.192/26",
    ];
    // In the annotation, or in many objects that were generated for it.
    for announced in [false, true] {
        let mut world = mk_world();
        let n4 = mk_node("n4", "172.30.0.4", None, None);
        world.nodes.insert(n4.name.clone(), n4);
        if announced {
            for (at, prefix) in four.iter().enumerate() {
                let mut object = generated_for("n3", prefix);
                object.key.name.push_str(&format!("-{at}"));
                add(&mut world, object);
            }
        }
        holds(&mut world, "n3", &four);
        let ranges = Ranges::of(&world, world.default_network().unwrap());
        assert_eq!((ranges.list[0].host_len, ranges.problems), (24, Vec::new()));
        let excluded = world.excluded_nodes(world.default_network().unwrap());
        let [(name, _)] = Vec::from_iter(&excluded)[..] else {
            panic!("{excluded:?}");
        };
        assert_eq!(name.as_str(), "n3");
        assert_eq!(subnet_of(&plan(&world), "n4"), "10.128.0.0/24");
    }
}

#[test]
fn a_node_that_holds_prefixes_of_several_lengths_has_no_vote() {
    let mut world = mk_world();
    default_of(&mut world).subnets = vec!["10.128.0.0/16/25".parse().unwrap()];
    world.nodes.remove(&NodeName::from("n3"));
    holds(&mut world, "n1", &["10.128.1.0/25"]);
    holds(&mut world, "n2", &["10.128.2.0/24", "10.128.9.0/26"]);
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        25
    );
    // What was generated for it counts where its annotation has none, also for a node that is gone.
    world.nodes.remove(&NodeName::from("n2"));
    default_of(&mut world).subnets = vec!["10.128.0.0/16/24".parse().unwrap()];
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        25
    );
    add(&mut world, generated_for("n2", "10.128.2.0/24"));
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        24
    );
    let mut second = generated_for("n2", "10.128.9.0/26");
    second.key.name.push_str("-b");
    add(&mut world, second);
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        25
    );
    // Its annotation counts for more than what it may have had before.
    let n2 = mk_node("n2", "172.30.0.2", Some(3), Some("10.128.2.0/24"));
    world.nodes.insert(n2.name.clone(), n2);
    assert_eq!(
        Ranges::of(&world, world.default_network().unwrap()).list[0].host_len,
        24
    );
}

#[test]
fn an_overlap_with_a_node_that_is_left_out_is_reported_and_a_claim_on_everything_is_not_believed() {
    let mut world = mk_world();
    let first = NodeName::from("n1");
    world.nodes.get_mut(&first).unwrap().internal_ips.clear();
    holds(&mut world, "n1", &["10.128.2.64/26"]);
    let excluded = world.excluded_nodes(world.default_network().unwrap());
    assert_eq!(
        excluded.keys().map(NodeName::as_str).collect::<Vec<_>>(),
        ["n1", "n2"]
    );
    let why = &excluded[&NodeName::from("n2")];
    assert!(
        why.contains("10.128.2.0/24 overlaps 10.128.2.64/26 of node n1"),
        "{why}"
    );
    for wide in ["0.0.0.0/0", "10.128.0.0/16", "10.128.0.0/20"] {
        holds(&mut world, "n1", &[wide]);
        assert_eq!(
            Vec::from_iter(
                world
                    .excluded_nodes(world.default_network().unwrap())
                    .keys()
            ),
            [&first]
        );
    }
}

#[test]
fn what_can_be_read_of_a_broken_annotation_is_reserved() {
    let mut bad = malformed(mk_node("a", "1.0.0.1", None, None));
    bad.node_id = Fact::Malformed("annotation k8s.ovn.org/node-id = \" 2\"".to_owned());
    bad.salvaged.ids = vec![2];
    // One without length, one of which the length was cut.
    bad.salvaged.subnets = vec![
        "10.128.0.7/32".parse().unwrap(),
        "10.128.1.0/2".parse().unwrap(),
    ];
    let plan = plan(&world_of(vec![bad, mk_node("b", "1.0.0.2", None, None)]));
    assert_eq!(subnet_of(&plan, "b"), "10.128.2.0/24");
    assert_eq!(plan.allocations[&NodeName::from("b")].node_id, Some(3));
}

#[test]
fn a_readable_claim_on_everything_stops_new_allocations_and_its_holder_is_named() {
    for everything in ["10.128.0.0/16", "0.0.0.0/0"] {
        let mut world = mk_world();
        let odd = mk_node("odd", "172.30.0.8", Some(8), Some(everything));
        world.nodes.insert(odd.name.clone(), odd);
        let n4 = mk_node("n4", "172.30.0.4", None, None);
        world.nodes.insert(n4.name.clone(), n4);
        // And it takes neither subnets nor sessions from those that are there.
        assert_eq!(
            world.excluded_nodes(world.default_network().unwrap()).len(),
            world.nodes.len() - 4
        );
        let plan = plan(&world);
        let text = &plan.problems[0].message;
        assert!(
            text.contains("node n4: ") && text.contains("node odd has"),
            "{text}"
        );
    }
}

#[test]
fn an_allocation_bears_the_version_of_the_node_that_it_was_made_from() {
    let mut world = world_of(vec![
        mk_node("a", "1.0.0.1", None, None),
        mk_node("b", "1.0.0.2", Some(9), Some("10.128.0.0/24")),
    ]);
    for (node, version) in [("a", "17"), ("b", "18")] {
        world.node_versions.insert(node.into(), version.to_owned());
    }
    let plan = plan(&world);
    let [(name, allocation)] = Vec::from_iter(&plan.allocations)[..] else {
        panic!("{:?}", plan.allocations);
    };
    assert_eq!(name.as_str(), "a");
    assert_eq!(allocation.resource_version.as_deref(), Some("17"));
}

#[test]
fn two_nodes_with_one_id_are_reported() {
    let world = world_of(vec![
        mk_node("a", "1.0.0.1", Some(7), Some("10.128.0.0/24")),
        mk_node("b", "1.0.0.2", Some(7), Some("10.128.1.0/24")),
    ]);
    let plan = plan(&world);
    let [problem] = plan.problems.as_slice() else {
        panic!("{:?}", plan.problems);
    };
    assert_eq!(
        (problem.subject.as_str(), problem.reason),
        ("Node/b", "DuplicateNodeId")
    );
    assert!(problem.message.contains("node id 7 is also node a's"));
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

/// One node of a random cluster: what its annotation says and what is announced for it, in a range of 16 subnets.
#[derive(Debug, Clone)]
struct Story {
    annotation: Option<(u8, u8)>,
    readable: bool,
    announced: Option<(u8, u8)>,
}

fn any_prefix() -> impl Strategy<Value = (u8, u8)> {
    (0_u8..16, 21_u8..=26)
}

fn any_story() -> impl Strategy<Value = Story> {
    let annotation = prop::option::of(any_prefix());
    let announced = prop::option::of(any_prefix());
    (annotation, any::<bool>(), announced).prop_map(|(annotation, readable, announced)| Story {
        annotation,
        readable,
        announced,
    })
}

fn prefix_of((third, bits): (u8, u8)) -> Prefix {
    format!("10.128.{third}.0/{bits}").parse().unwrap()
}

proptest! {
    #[test]
    fn no_allocation_overlaps_what_anybody_has_or_announces(
        stories in prop::collection::vec(any_story(), 1..8),
    ) {
        let mut world = world_of(Vec::new());
        default_of(&mut world).subnets = vec!["10.128.0.0/20/24".parse().unwrap()];
        let mut held: Vec<(String, Prefix)> = Vec::new();
        for (n, story) in stories.iter().enumerate() {
            let name = format!("n{n}");
            let mut node = mk_node(&name, &format!("1.0.0.{n}"), None, None);
            if let Some(prefix) = story.annotation.map(prefix_of) {
                held.push((name.clone(), prefix));
                if story.readable {
                    let map = BTreeMap::from([(NetworkName::default_network(), vec![prefix])]);
                    node.subnets = Fact::Known(map.into());
                } else {
                    node = malformed(node);
                    let address = model::InterfaceAddr { ip: prefix.network(), len: prefix.bits() };
                    node.salvaged.subnets = vec![address];
                }
            }
            if let Some(prefix) = story.announced.map(prefix_of) {
                held.push((name.clone(), prefix));
                add(&mut world, generated_for(&name, &prefix.to_string()));
            }
            world.nodes.insert(node.name.clone(), node);
        }
        let host_len = Ranges::of(&world, world.default_network().unwrap()).list[0].host_len;
        let first = plan(&world);
        let mut given: Vec<(String, Prefix)> = Vec::new();
        for (name, allocation) in &first.allocations {
            for prefix in allocation.subnets.iter().flat_map(|map| map.values()).flatten() {
                prop_assert_eq!(prefix.bits(), host_len);
                // A salvaged length that is too short is not believed, its address is.
                let others = held.iter().filter(|(n, _)| n != name.as_str());
                for (other, p) in others {
                    let believed = p.bits() >= host_len || !stories.iter().enumerate().any(|(n, s)| {
                        format!("n{n}") == *other && !s.readable && s.annotation.map(prefix_of) == Some(*p)
                            && s.announced.map(prefix_of) != Some(*p)
                    });
                    let p = if believed { *p } else { Prefix::new(p.network(), host_len).unwrap() };
                    prop_assert!(!p.overlaps(prefix), "{} gets {}, {} has {}", name, prefix, other, p);
                }
                for (other, p) in &given {
                    prop_assert!(!p.overlaps(prefix), "{} and {} get {}", name, other, prefix);
                }
                given.push((name.to_string(), *prefix));
            }
        }
        apply(&mut world, &first);
        prop_assert!(plan(&world).allocations.is_empty());
    }

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

/// A world with a second network, of which each node has a subnet.
fn with_blue() -> World {
    let mut world = mk_managed();
    let mut blue = default_of(&mut world).clone();
    blue.name = NetworkName::from("cluster_udn_blue");
    blue.id = 5;
    blue.subnets = vec!["10.200.0.0/16/24".parse().unwrap()];
    for (number, node) in (1..).zip(world.nodes.values_mut()) {
        if let Fact::Known(subnets) = &mut node.subnets {
            let subnet = format!("10.200.{number}.0/24").parse().unwrap();
            subnets.insert(blue.name.clone(), vec![subnet]);
        }
    }
    world.networks.insert(blue.name.clone(), blue);
    world
}

#[test]
fn what_is_wrong_with_one_network_of_a_node_costs_it_no_other() {
    let sound = with_blue();
    let none = |of: &World| of.excluded_by_network().values().all(BTreeMap::is_empty);
    assert!(none(&sound));
    let blue = NetworkName::from("cluster_udn_blue");
    for (subnet, why) in [
        ("10.201.3.0/24", "lies outside"),
        ("10.200.3.0/25", "allowed: a /24"),
        ("10.200.0.0/15", "allowed: a /24"),
        ("10.200.1.0/24", "overlaps"),
    ] {
        let mut world = sound.clone();
        let n3 = world.nodes.get_mut(&NodeName::from("n3")).unwrap();
        if let Fact::Known(subnets) = &mut n3.subnets {
            subnets.insert(blue.clone(), vec![subnet.parse().unwrap()]);
        }
        let excluded = world.excluded_by_network();
        let of_blue: Vec<(&NodeName, &String)> = excluded[&blue].iter().collect();
        assert!(
            matches!(of_blue.as_slice(), [(name, text)] if name.as_str() == "n3" && text.contains(why)),
            "{subnet}: {of_blue:?}"
        );
        assert_eq!(excluded[&NetworkName::default_network()], BTreeMap::new());
        // The fabric and the default network's objects are as if nothing were wrong.
        let ra = crate::fabric::advertisement_name(&NetworkName::default_network());
        let (before, after) = (advertise::plan(&sound, &ra), advertise::plan(&world, &ra));
        assert_eq!(before, after, "{subnet}");
        let base = crate::fabric::base_name();
        assert_eq!(advertise::plan(&world, &base).desired.len(), 6);
        assert_eq!(crate::fabric::plan(&sound), crate::fabric::plan(&world));
    }
}

#[test]
fn each_network_gives_its_own_subnets_and_one_without_any_left_keeps_no_other_from_giving() {
    let mut world = with_blue();
    let blue = NetworkName::from("cluster_udn_blue");
    let n4 = mk_node("n4", "172.30.0.4", Some(5), None);
    world.nodes.insert(n4.name.clone(), n4);
    let plan = plan(&world);
    assert_eq!(plan.problems, []);
    let subnets = plan.allocations[&NodeName::from("n4")].subnets.as_ref();
    let subnets = subnets.unwrap();
    assert_eq!(subnets[&blue][0].to_string(), "10.200.0.0/24");
    let default = NetworkName::default_network();
    assert_eq!(subnets[&default][0].to_string(), "10.128.0.0/24");
    // The other network is as large as its three nodes.
    let of_blue = world.networks.get_mut(&blue).unwrap();
    of_blue.subnets = vec!["10.200.0.0/22/24".parse().unwrap()];
    let n5 = mk_node("n5", "172.30.0.5", Some(6), Some("10.128.9.0/24"));
    world.nodes.insert(n5.name.clone(), n5);
    let plan = super::plan(&world);
    let subnets = plan.allocations[&NodeName::from("n4")].subnets.as_ref();
    assert_eq!(subnets.unwrap().len(), 2);
    assert!(!plan.allocations.contains_key(&NodeName::from("n5")));
    let reasons: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
    assert!(
        matches!(reasons.as_slice(), [one] if one.contains("node n5: no subnet is left")),
        "{reasons:?}"
    );
}

#[test]
fn a_node_that_takes_part_in_nothing_keeps_its_address_from_nobody() {
    // The machine was registered again under another name after the cluster subnets had changed.
    let mut world = mk_managed();
    let old = mk_node("a-old", "172.30.0.9", Some(9), Some("192.0.2.0/24"));
    let new = mk_node("b-new", "172.30.0.9", Some(10), Some("10.128.9.0/24"));
    for node in [old, new] {
        world.nodes.insert(node.name.clone(), node);
    }
    let excluded = world.excluded_nodes(world.default_network().unwrap());
    assert_eq!(Vec::from_iter(excluded.keys()), [&NodeName::from("a-old")]);
}

#[test]
fn a_bad_subnet_of_the_default_network_costs_a_node_no_network_of_users() {
    let mut world = with_blue();
    let default = NetworkName::default_network();
    let n3 = world.nodes.get_mut(&NodeName::from("n3")).unwrap();
    if let Fact::Known(subnets) = &mut n3.subnets {
        subnets.insert(default.clone(), vec!["192.0.2.0/24".parse().unwrap()]);
    }
    let excluded = world.excluded_by_network();
    assert_eq!(
        Vec::from_iter(excluded[&default].keys()),
        [&NodeName::from("n3")]
    );
    assert_eq!(
        excluded[&NetworkName::from("cluster_udn_blue")],
        BTreeMap::new()
    );
}

#[test]
fn small_join_subnets_of_a_network_of_users_keep_no_node_from_its_id() {
    let mut world = with_blue();
    let blue = world
        .networks
        .get_mut(&NetworkName::from("cluster_udn_blue"));
    blue.unwrap().join_subnets = vec!["100.70.0.0/30".parse().unwrap()];
    let n4 = mk_node("n4", "172.30.0.4", None, None);
    world.nodes.insert(n4.name.clone(), n4);
    let plan = plan(&world);
    assert_eq!(plan.problems, []);
    assert_eq!(plan.allocations[&NodeName::from("n4")].node_id, Some(5));
}

#[test]
fn subnets_of_a_network_that_is_gone_are_not_those_of_one_of_the_same_name() {
    let mut world = with_blue();
    let blue = NetworkName::from("cluster_udn_blue");
    let of_blue = world.networks.get_mut(&blue).unwrap();
    of_blue.subnets = vec!["10.99.0.0/16/24".parse().unwrap()];
    let plan = plan(&world);
    for name in ["n1", "n2", "n3"] {
        let subnets = plan.allocations[&NodeName::from(name)].subnets.as_ref();
        let subnet = subnets.unwrap()[&blue][0].to_string();
        assert!(subnet.starts_with("10.99."), "{name}: {subnet}");
    }
    // The default network's stay, whatever the settings say: its pods run in them.
    let mut world = with_blue();
    world
        .networks
        .get_mut(&NetworkName::default_network())
        .unwrap()
        .subnets = vec!["10.98.0.0/16/24".parse().unwrap()];
    assert!(super::plan(&world).allocations.is_empty());
}

#[test]
fn what_one_network_announces_in_the_default_vrf_says_nothing_of_another_of_its_range() {
    let mut world = with_blue();
    let blue = world.networks[&NetworkName::from("cluster_udn_blue")].clone();
    let mut red = Network {
        name: NetworkName::from("cluster_udn_red"),
        id: blue.id + 1,
        ..blue.clone()
    };
    red.subnets = vec!["10.200.0.0/16/25".parse().unwrap()];
    world.networks.insert(red.name.clone(), red.clone());
    let mut object = generated_for("n1", "10.200.1.0/24");
    object.routers[0].imports = vec![blue.name.vrf_device(blue.id).unwrap()];
    add(&mut world, object);
    let ranges = Ranges::of(&world, &red);
    assert_eq!((ranges.list[0].host_len, ranges.problems.len()), (25, 0));
    assert_eq!(Ranges::of(&world, &blue).list[0].host_len, 24);
    let nodes = world.nodes.values_mut();
    nodes.for_each(|node| node.subnets = Fact::Absent);
    assert_eq!(Ranges::of(&world, &blue).list[0].host_len, 24);
}

#[test]
fn it_is_told_how_far_the_subnets_of_each_family_are_used_up() {
    let mut world = world_of(vec![
        mk_node("n1", "172.30.0.1", Some(2), None),
        mk_node("n2", "172.30.0.2", Some(3), None),
    ]);
    let default = NetworkName::default_network();
    let network = world.networks.get_mut(&default).unwrap();
    network.subnets = ["10.128.0.0/16/24", "10.130.0.0/17/24", "fd01::/48/64"]
        .map(|text| text.parse().unwrap())
        .into();
    let plan = plan(&world);
    let of = |family| plan.usage[&(default.clone(), family)];
    assert_eq!((of(Family::V4).total, of(Family::V6).total), (384, 65_536));
    assert_eq!((of(Family::V4).given, of(Family::V6).given), (2, 2));
    let again = super::plan(&plan.applied(world));
    assert_eq!(again.usage, plan.usage);
}

#[test]
fn what_lies_in_the_default_networks_subnets_is_named_and_nothing_is_kept_back_for_it() {
    let mut world = mk_world();
    assert_eq!(plan(&world).problems, []);
    let own = default_of(&mut world).prefixes().next().unwrap();
    for (reserved, needle) in [
        (
            Some(("a service subnet".to_owned(), own)),
            "a service subnet",
        ),
        (None, "an address of node n2"),
    ] {
        let mut world = world.clone();
        world.reserved.extend(reserved.clone());
        if reserved.is_none() {
            let n2 = world.nodes.get_mut(&NodeName::from("n2")).unwrap();
            n2.internal_ips = vec![own.nth(9).unwrap()];
        }
        let told = plan(&world);
        let [problem] = told.problems.as_slice() else {
            panic!("{:?}", told.problems);
        };
        assert_eq!(
            (problem.subject.as_str(), problem.reason),
            ("Network/default", IN_USE)
        );
        assert!(problem.message.contains(needle), "{problem}");
        assert_eq!(told.allocations, plan(&mk_world()).allocations);
    }
}
