//! Which objects are told, which networks are named.

use model::LabelSelector;
use model::network::Transport;
use model::user_network::EgressIp;

use super::*;
use crate::samples::{default_of, mk_cudn, mk_managed, put_network};

/// The default network and `red` have no overlay, `green` has one; each of the two has a namespace of its own.
fn mk() -> World {
    let mut world = mk_managed();
    for (n, name) in (1..).zip(["red", "green"]) {
        put_network(&mut world, mk_cudn(name, n), n);
    }
    let green = world
        .networks
        .get_mut(&NetworkName::from("cluster_udn_green"));
    green.unwrap().transport = Transport::Geneve;
    for name in ["of-red", "of-green", "shop", "bank"] {
        let labels = [("kind".to_owned(), name.to_owned())].into();
        let namespace = Namespace {
            labels,
            ..Namespace::default()
        };
        world.namespaces.insert(name.to_owned(), namespace);
    }
    world
}

fn told(world: &World) -> Vec<String> {
    let plan = plan(world);
    let line = |((feature, key), message): (&(Feature, ObjectKey), &String)| {
        format!("{} {key}: {message}", feature.kind().1)
    };
    plan.iter().map(line).collect()
}

fn used(world: &mut World, feature: Feature, reach: Reach) {
    let key = ObjectKey::new("", "x");
    world.features_used.insert((feature, key), reach);
}

#[test]
fn each_feature_is_told_of_the_networks_without_overlay_that_it_reaches() {
    let mut world = mk();
    assert_eq!(told(&world), [""; 0]);
    let all = || Ok(LabelSelector::default());
    for (name, namespaces) in [
        ("all", all()),
        ("green", Ok(LabelSelector::label("kind", "of-green"))),
        ("unreadable", Err("?".to_owned())),
    ] {
        let egress = EgressIp {
            namespaces,
            assigned: BTreeSet::new(),
        };
        world.egress_ips.insert(name.to_owned(), egress);
    }
    used(
        &mut world,
        Feature::EgressService,
        Reach::Namespace("shop".to_owned()),
    );
    used(
        &mut world,
        Feature::ExternalGateway,
        Reach::Namespaces(LabelSelector::label("kind", "of-red")),
    );
    let red = world.cudns.get_mut("red").unwrap();
    red.labels = LabelSelector::label("use", "red").match_labels;
    let selectors = vec![
        LabelSelector::label("use", "red"),
        LabelSelector::label("use", "x"),
    ];
    used(
        &mut world,
        Feature::NetworkConnect,
        Reach::Networks(selectors),
    );
    world.namespaces.get_mut("of-red").unwrap().multicast = true;
    world.namespaces.get_mut("of-green").unwrap().multicast = true;
    let has = "has no effect on networks with transport no-overlay";
    assert_eq!(
        told(&world),
        [
            format!(
                "EgressIP all: EgressIP needs the overlay and {has}: network cluster_udn_red (namespaces of-red); network default (namespaces bank, shop)"
            ),
            format!(
                "EgressService x: EgressService needs the overlay and {has}: network default (namespaces shop)"
            ),
            format!(
                "AdminPolicyBasedExternalRoute x: an external gateway needs the overlay and {has}: network cluster_udn_red (namespaces of-red)"
            ),
            format!(
                "ClusterNetworkConnect x: a connection of networks needs the overlay and {has}: network cluster_udn_red"
            ),
            format!(
                "Namespace of-red: multicast (annotation k8s.ovn.org/multicast-enabled) needs the overlay and {has}: network cluster_udn_red (namespaces of-red)"
            ),
        ]
    );
    default_of(&mut world).transport = Transport::Geneve;
    assert!(told(&world).iter().all(|line| !line.contains("default")));
}

#[test]
fn many_namespaces_are_counted_and_what_cannot_be_read_is_nobodys() {
    let mut world = mk();
    for n in 0..10 {
        let namespace = Namespace::default();
        world.namespaces.insert(format!("a{n}"), namespace);
    }
    used(
        &mut world,
        Feature::ExternalGateway,
        Reach::Namespaces(LabelSelector::default()),
    );
    used(
        &mut world,
        Feature::EgressService,
        Reach::Unreadable("?".to_owned()),
    );
    used(
        &mut world,
        Feature::NetworkConnect,
        Reach::Networks(Vec::new()),
    );
    let told = told(&world);
    let [line] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(
        line.ends_with("network cluster_udn_red (namespaces of-red); network default (namespaces a0, a1, a2, a3, a4 and 7 more)"),
        "{line}"
    );
}
