//! Networks that want one VRF, and which of them gets it.

use std::sync::Arc;

use model::ObjectKey;
use model::selector::LabelSelector;
use model::user_network::{EgressIp, UserTransport};

use super::*;
use crate::advertise::{Plan, plan, plan_all};
use crate::samples::{
    add, add_advertisement as advertise, add_network as network, mk_source, mk_world, settle,
};
use crate::user_networks;

/// Nodes n1 to n3; the source `src` of everybody; no network of users and no RA yet.
fn mk() -> World {
    let mut world = mk_world();
    world.fabric = None;
    add(&mut world, mk_source("src", &["172.31.0.1"]));
    world
}

fn ra<'w>(world: &'w mut World, name: &str) -> &'w mut RouteAdvertisements {
    world.ras.get_mut(name).unwrap().as_mut().unwrap()
}

fn serves(plan: &Plan) -> Vec<&str> {
    let served = plan.serves.iter().flatten();
    served.map(NetworkName::as_str).collect()
}

/// What all nodes announce for an RA.
fn announced(plan: &Plan) -> Vec<String> {
    let routers = plan.desired.values().flat_map(|object| &object.routers);
    let mut all: Vec<String> = routers
        .flat_map(|router| router.prefixes.iter().map(ToString::to_string))
        .collect();
    all.sort();
    all
}

#[test]
fn an_advertisement_that_is_changed_to_auto_in_shared_mode_takes_nothing_away() {
    let mut world = mk();
    world.features.shared_gateway = true;
    network(&mut world, "blue", 5, "10.70.0.0/16/24", "b");
    advertise(&mut world, "manual", 1, "b");
    settle(&mut world);
    assert_eq!(serves(&plan(&world, "manual")), ["cluster_udn_blue"]);
    ra(&mut world, "manual").target_vrf = TargetVrf::Auto;
    let plan = plan(&world, "manual");
    assert!(plan.surplus.is_empty(), "{:?}", plan.surplus);
    let accepted = &plan.conditions[0];
    assert!(!accepted.status, "{accepted:?}");
    assert!(
        accepted.message.contains("auto needs gateway mode local"),
        "{accepted:?}"
    );
}

#[test]
fn a_network_that_is_announced_stays_when_an_elder_advertisement_begins_to_select_one_of_its_range()
{
    let mut world = mk();
    network(&mut world, "blue", 5, "10.70.0.0/16/24", "b");
    network(&mut world, "red", 6, "10.70.0.0/16/24", "none");
    network(&mut world, "green", 7, "10.71.0.0/16/24", "b");
    advertise(&mut world, "elder", 1, "a");
    advertise(&mut world, "younger", 2, "b");
    settle(&mut world);
    let before = plan(&world, "younger");
    assert_eq!(serves(&before), ["cluster_udn_blue", "cluster_udn_green"]);
    let red = world.cudns.get_mut("red").unwrap();
    red.labels = LabelSelector::label("use", "a").match_labels;
    let plans = plan_all(&world);
    assert_eq!(plans["younger"].desired, before.desired);
    assert!(serves(&plans["elder"]).is_empty());
    let text = &plans["elder"].conditions[0].message;
    assert!(
        text.contains("which RouteAdvertisements younger advertises into the same VRF"),
        "{text}"
    );
    // Of two that are new the elder's is served, whatever their names.
    world.frr.retain(|key, _| key.name == "src");
    let plans = plan_all(&world);
    assert_eq!(serves(&plans["elder"]), ["cluster_udn_red"]);
    assert_eq!(serves(&plans["younger"]), ["cluster_udn_green"]);
}

#[test]
fn an_advertisement_that_puts_no_subnet_anywhere_keeps_nobody_out() {
    type Change = fn(&mut RouteAdvertisements);
    let sourceless: Change = |ra| ra.frr_selector = LabelSelector::label("use", "nobody");
    let nodeless: Change = |ra| ra.node_selector = LabelSelector::label("rack", "none");
    let podless: Change = |ra| (ra.pod_network, ra.egress_ip) = (false, true);
    for change in [sourceless, nodeless, podless] {
        let mut world = mk();
        network(&mut world, "red", 5, "10.70.0.0/16/24", "a");
        network(&mut world, "blue", 6, "10.70.0.0/16/24", "b");
        advertise(&mut world, "elder", 1, "a");
        advertise(&mut world, "younger", 2, "b");
        change(ra(&mut world, "elder"));
        let plan = plan(&world, "younger");
        assert_eq!(serves(&plan), ["cluster_udn_blue"], "{:?}", plan.conditions);
        assert_eq!(plan.desired.len(), 3);
    }
}

#[test]
fn egress_ips_of_networks_of_one_range_are_no_conflict() {
    let mut world = mk();
    network(&mut world, "red", 5, "10.70.0.0/16/24", "a");
    network(&mut world, "blue", 6, "10.70.0.0/16/24", "a");
    for network in world.networks.values_mut() {
        network.transport = model::network::Transport::Geneve;
    }
    advertise(&mut world, "out", 1, "a");
    (
        ra(&mut world, "out").pod_network,
        ra(&mut world, "out").egress_ip,
    ) = (false, true);
    let plan = plan(&world, "out");
    assert!(plan.accepted(), "{:?}", plan.conditions);
}

#[test]
fn an_egress_ip_that_can_no_longer_be_read_stays_announced_where_it_is() {
    let mut world = mk();
    network(&mut world, "red", 5, "10.70.0.0/16/24", "a");
    for network in world.networks.values_mut() {
        network.transport = model::network::Transport::Geneve;
    }
    let namespace = model::user_network::Namespace {
        labels: LabelSelector::label("team", "red").match_labels,
        deleting: false,
        multicast: false,
    };
    world.namespaces.insert("of-red".to_owned(), namespace);
    let egress = EgressIp {
        namespaces: Ok(LabelSelector::label("team", "red")),
        assigned: [("n1".into(), "172.30.0.77".parse().unwrap())].into(),
    };
    world.egress_ips.insert("out".to_owned(), egress);
    advertise(&mut world, "user", 1, "a");
    ra(&mut world, "user").egress_ip = true;
    ra(&mut world, "user").pod_network = false;
    settle(&mut world);
    assert_eq!(announced(&plan(&world, "user")), ["172.30.0.77/32"]);
    let out = world.egress_ips.get_mut("out").unwrap();
    out.namespaces = Err("spec.namespaceSelector: operator in".to_owned());
    let now = plan(&world, "user");
    assert_eq!(announced(&now), ["172.30.0.77/32"]);
    assert!(
        now.conditions[1].message.contains("EgressIP out"),
        "{:?}",
        now.conditions
    );
    // On a node that did not announce it, it is not begun.
    let out = world.egress_ips.get_mut("out").unwrap();
    out.assigned = [("n2".into(), "172.30.0.77".parse().unwrap())].into();
    assert!(announced(&plan(&world, "user")).is_empty());
}

#[test]
fn two_routers_of_one_vrf_in_a_source_are_one() {
    let mut world = mk();
    network(&mut world, "red", 5, "10.70.0.0/16/24", "a");
    advertise(&mut world, "user", 1, "a");
    let key = ObjectKey::new("frr-k8s-system", "src");
    let source = world.frr.get_mut(&key).unwrap().as_mut().unwrap();
    let second = mk_source("src", &["172.31.0.2"]).routers.remove(0);
    Arc::make_mut(source).routers.push(second);
    let plan = plan(&world, "user");
    let object = plan.desired.values().next().unwrap();
    let peers = object.routers[0].neighbors.iter();
    let peers: Vec<&str> = peers.map(|n| n.peer.as_str()).collect();
    assert_eq!(peers, ["172.31.0.1", "172.31.0.2"]);
}

#[test]
fn a_copied_label_makes_no_other_network_part_of_the_fabric() {
    let mut world = mk_world();
    network(&mut world, "blue", 5, "10.70.0.0/16/24", "x");
    network(&mut world, "red", 6, "10.70.0.0/16/24", "x");
    settle(&mut world);
    let red = world.cudns.get_mut("red").unwrap();
    red.labels = LabelSelector::label(attachments::NAME_LABEL, "blue").match_labels;
    red.network.as_mut().unwrap().transport = UserTransport::Geneve;
    let networks = user_networks::networks(&world);
    world.networks.extend(networks);
    settle(&mut world);
    let of_blue = fabric::advertisement_name(&"cluster_udn_blue".into());
    let plan = plan(&world, &of_blue);
    assert!(plan.accepted(), "{:?}", plan.conditions);
    assert_eq!(serves(&plan), ["cluster_udn_blue"]);
}

#[test]
fn of_two_managed_networks_of_one_range_the_elder_stays_whenever_its_advertisement_was_written() {
    // Whichever name sorts first.
    for (elder, younger) in [("blue", "red"), ("red", "blue")] {
        let mut world = mk_world();
        network(&mut world, elder, 5, "10.70.0.0/16/24", "x");
        network(&mut world, younger, 6, "10.70.0.0/16/24", "x");
        let of = |name: &str| fabric::advertisement_name(&format!("cluster_udn_{name}").into());
        let is_served = |world: &World, name: &str| {
            let whole = fabric::complete(world.clone());
            let plan = plan(&whole, &of(name));
            plan.serves.is_some_and(|served| !served.is_empty())
        };
        assert!(
            is_served(&world, elder) && !is_served(&world, younger),
            "{elder}"
        );
        settle(&mut world);
        world.ras.remove(&of(elder));
        assert!(
            is_served(&world, elder) && !is_served(&world, younger),
            "{elder}"
        );
    }
}

#[test]
fn beside_ovn_kubernetes_that_one_of_two_is_announced_which_nodes_are_led_for() {
    let mut world = mk();
    world.beside = true;
    network(&mut world, "blue", 5, "10.70.0.0/16/24", "b");
    network(&mut world, "red", 6, "10.70.0.0/16/24", "a");
    advertise(&mut world, "elder", 1, "a");
    advertise(&mut world, "younger", 2, "b");
    let served = |world: &World| {
        let plans = plan_all(world);
        let of = |name: &str| {
            serves(&plans[name])
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        let [elder, younger]: [Vec<String>; 2] = [of("elder"), of("younger")];
        (elder, younger)
    };
    let (red, blue) = (
        vec!["cluster_udn_red".to_owned()],
        vec!["cluster_udn_blue".to_owned()],
    );
    let none = Vec::new;
    assert_eq!(served(&world), (red.clone(), none()), "the elder's");
    // Agents go by the age of networks: blue is the elder one.
    let name = world.nodes.keys().next().unwrap().clone();
    let node = world.nodes.get_mut(&name).unwrap();
    node.underlay_ready
        .insert("cluster_udn_blue".into(), Vec::new());
    assert_eq!(served(&world), (none(), blue));
    // What a node says that is known not to be ready counts for nothing.
    world.nodes.get_mut(&name).unwrap().ready = Some(false);
    assert_eq!(served(&world), (red, none()));
}
