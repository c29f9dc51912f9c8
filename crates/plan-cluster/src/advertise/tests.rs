//! What an RA leads to, and what it costs when something is wrong.

use std::sync::Arc;

use model::intent::{NetworkSelector, TargetVrf};
use model::user_network::{EgressIp, Namespace};

use super::*;
use crate::samples::{
    add, default_of, mk_cudn, mk_managed, mk_node, mk_source, mk_world, neighbors, put_network,
    settle,
};
use crate::{MANAGED_BY, RA_KEY};
use model::frr::Remains;
use model::node::Fact;
use model::selector::LabelSelector;
use model::{Asn, NodeName, Prefix};

fn managed_ra(world: &World) -> String {
    world.ras.keys().next().unwrap().clone()
}

/// Writes what the plan wants, as the binary would.
fn apply(world: &mut World, ra: &str, plan: &Plan) {
    for key in &plan.surplus {
        assert!(generated::owned(world, ra).iter().any(|o| o.key == key));
        world.frr.remove(key);
    }
    for object in plan.desired.values() {
        add(world, object.clone());
    }
}

/// The plan of what all RAs of the fabric want together.
fn of_fabric(world: &World) -> Plan {
    plan(world, &fabric::base_name())
}

/// The neighbors of a node of the fabric, when all is written.
fn fabric_peers(world: &World, node: &str) -> Vec<String> {
    let mut world = world.clone();
    settle(&mut world);
    neighbors(&world)[node].iter().cloned().collect()
}

fn peers(plan: &Plan, node: &str) -> Vec<String> {
    let object = plan
        .desired
        .values()
        .find(|o| o.node_selector == LabelSelector::label("kubernetes.io/hostname", node))
        .unwrap();
    object.routers[0]
        .neighbors
        .iter()
        .map(|n| n.peer.as_str().to_owned())
        .collect()
}

fn with_user_ra(mut world: World) -> World {
    let ra = RouteAdvertisements {
        name: "user".to_owned(),
        generation: 1,
        created: 0,
        target_vrf: TargetVrf::Default,
        networks: vec![NetworkSelector::DefaultNetwork],
        node_selector: LabelSelector::default(),
        frr_selector: LabelSelector::label("use", "me"),
        pod_network: true,
        egress_ip: false,
    };
    world.ras.insert("user".to_owned(), Ok(ra));
    world
}

#[test]
fn every_node_peers_with_all_others_and_never_with_itself() {
    let world = mk_managed();
    let plan = plan(&world, &managed_ra(&world));
    assert!(plan.accepted());
    assert!(plan.desired.is_empty());
    let objects = of_fabric(&world).desired;
    assert_eq!(objects.len(), 6, "two of each node");
    assert_eq!(fabric_peers(&world, "n1"), ["172.30.0.2", "172.30.0.3"]);
    assert_eq!(fabric_peers(&world, "n2"), ["172.30.0.1", "172.30.0.3"]);
    assert_eq!(plan.conditions[0].message, ACCEPTED);
    assert!(plan.conditions[1].status);
}

#[test]
fn beside_ovn_kubernetes_what_a_node_announces_goes_with_its_word_whatever_is_wrong_with_the_node()
{
    let mut world = with_user_ra(mk_world());
    world.beside = true;
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    let n1 = NodeName::from("n1");
    ready(world.nodes.get_mut(&n1).unwrap(), "default");
    settle(&mut world);
    let announces: Vec<_> = plan(&world, "user").desired.into_keys().collect();
    assert_eq!(announces.len(), 1);
    type Change = fn(&mut World, &NodeName);
    let unfit: Change = |world, n1| world.nodes.get_mut(n1).unwrap().internal_ips.clear();
    let excluded: Change = |world, n1| {
        let subnets = world.nodes[&NodeName::from("n2")].subnets.clone();
        let node = world.nodes.get_mut(n1).unwrap();
        (node.subnets, node.node_id) = (subnets, Fact::Known(99));
    };
    let unread: Change = |world, _| {
        let key = world.frr.keys().find(|key| key.name == "src").cloned();
        world.frr.insert(key.unwrap(), Err(Vec::new()));
    };
    let refused: Change = |world, _| {
        world.ras.insert("user".to_owned(), Err("no".to_owned()));
    };
    for change in [unfit, excluded, unread, refused] {
        let mut world = world.clone();
        change(&mut world, &n1);
        let stays = plan(&world, "user");
        assert!(stays.surplus.is_empty(), "it says that it takes packets");
        world.nodes.get_mut(&n1).unwrap().underlay_ready.clear();
        let goes = plan(&world, "user");
        assert!(
            goes.desired.is_empty() && goes.keep.is_empty(),
            "{:?}",
            goes.keep
        );
        assert_eq!(goes.surplus.into_iter().collect::<Vec<_>>(), announces);
    }
}

#[test]
fn of_several_networks_that_a_node_announces_those_go_that_it_takes_no_packets_for() {
    let mut world = mk_managed();
    put_network(&mut world, mk_cudn("red", 1), 1);
    world.beside = true;
    let n1 = NodeName::from("n1");
    for network in ["default", "cluster_udn_red"] {
        ready(world.nodes.get_mut(&n1).unwrap(), network);
    }
    settle(&mut world);
    let announced = |world: &World| -> Vec<String> {
        let plan = of_fabric(world);
        let planned = plan.desired.values();
        let kept = plan
            .keep
            .iter()
            .filter_map(|key| world.frr[key].as_ref().ok());
        let routers = planned.chain(kept).flat_map(|object| &object.routers);
        let all: BTreeSet<Prefix> = routers.flat_map(|router| router.prefixes.clone()).collect();
        all.iter().map(ToString::to_string).collect()
    };
    let before = announced(&world);
    assert_eq!(before.len(), 2, "{before:?}");
    // The other network is planned anew for the node.
    let red = NetworkName::from("cluster_udn_red");
    let mut without = world.clone();
    let node = without.nodes.get_mut(&n1).unwrap();
    let Fact::Known(subnets) = &mut node.subnets else {
        panic!("it has subnets");
    };
    subnets.remove(&red);
    node.underlay_ready.remove(&red);
    let now = announced(&without);
    let is_default = now.len() == 1 && now.iter().all(|prefix| prefix.starts_with("10.128."));
    assert!(is_default, "{now:?} of {before:?}");
    world.nodes.get_mut(&n1).unwrap().internal_ips.clear();
    assert_eq!(announced(&world), before, "it says that it takes packets");
    for (gone, stays) in [("default", "10.61."), ("cluster_udn_red", "10.128.")] {
        let mut world = world.clone();
        let node = world.nodes.get_mut(&n1).unwrap();
        node.underlay_ready.remove(&NetworkName::from(gone));
        let now = announced(&world);
        let is_other = now.len() == 1 && now.iter().all(|prefix| prefix.starts_with(stays));
        assert!(is_other, "{gone}: {now:?} of {before:?}");
    }
    world.nodes.get_mut(&n1).unwrap().underlay_ready.clear();
    assert_eq!(announced(&world), Vec::<String>::new());
}

/// The node says that it takes packets for its subnets of a network.
fn ready(node: &mut Node, network: &str) {
    let network = NetworkName::from(network);
    let subnets = node.subnets.known().and_then(|all| all.get(&network));
    let subnets = subnets.cloned().unwrap_or_default();
    node.underlay_ready.insert(network, subnets);
}

#[test]
fn beside_ovn_kubernetes_a_node_that_is_not_ready_is_a_member_and_announces_nothing() {
    let mut world = mk_managed();
    world.beside = true;
    let announced = |world: &World| -> BTreeMap<String, usize> {
        let plan = of_fabric(world);
        assert_eq!(plan.desired.len(), 6, "two of each node");
        let routers = |o: &Arc<FrrConfiguration>| {
            let prefixes = o.routers.iter().map(|router| router.prefixes.len());
            Some((o.key.name.clone(), prefixes.sum::<usize>()))
        };
        let all = plan.desired.values().filter_map(routers);
        all.filter(|(_, prefixes)| *prefixes > 0).collect()
    };
    assert_eq!(announced(&world), BTreeMap::new());
    assert_eq!(fabric_peers(&world, "n1"), ["172.30.0.2", "172.30.0.3"]);
    let n2 = world.nodes.get_mut(&NodeName::from("n2")).unwrap();
    ready(n2, "red");
    assert_eq!(announced(&world), BTreeMap::new(), "another network");
    let n2 = world.nodes.get_mut(&NodeName::from("n2")).unwrap();
    ready(n2, "default");
    let of_n2: Vec<usize> = announced(&world).into_values().collect();
    assert_eq!(of_n2, [1]);
    assert_eq!(fabric_peers(&world, "n1"), ["172.30.0.2", "172.30.0.3"]);
    // By an administrator's sources the same, and nothing is said against it.
    let mut world = with_user_ra(mk_world());
    world.beside = true;
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    let first = plan(&world, "user");
    assert!(
        first.accepted() && first.desired.is_empty(),
        "{:?}",
        first.conditions
    );
    let n1 = world.nodes.get_mut(&NodeName::from("n1")).unwrap();
    ready(n1, "default");
    let announces = plan(&world, "user");
    assert_eq!(announces.desired.len(), 1);
    // Back in the tunnels nothing would keep others from the pods: what the node announced goes, and that is said.
    settle(&mut world);
    let default = world.networks.get_mut(&NetworkName::default_network());
    default.unwrap().transport = model::network::Transport::Geneve;
    for node in world.nodes.values_mut() {
        node.underlay_ready.clear();
    }
    let back = plan(&world, "user");
    assert!(back.desired.is_empty() && back.keep.is_empty());
    let keys: Vec<_> = announces.desired.keys().collect();
    let surplus: Vec<_> = back.surplus.iter().collect();
    assert_eq!(surplus, keys);
    let said = format!("{:?}", back.conditions);
    assert!(
        said.contains("nothing would keep others from its pods"),
        "{said}"
    );
    let mut world = mk_managed();
    // Who builds the topology announces at once.
    world.beside = false;
    assert_eq!(announced(&world).len(), 3);
}

#[test]
fn every_spelling_and_every_address_of_a_node_counts_as_itself() {
    let mut world = with_user_ra(mk_world());
    let n1 = world.nodes.get_mut(&NodeName::from("n1")).unwrap();
    n1.host_cidrs = Fact::Known(vec!["fd00:30::1/64".parse().unwrap()]);
    n1.subnets = Fact::Known(
        [(
            "default".into(),
            vec![
                "10.128.1.0/24".parse().unwrap(),
                "fd01::/64".parse().unwrap(),
            ],
        )]
        .into(),
    );
    add(
        &mut world,
        mk_source("src", &["FD00:30:0::1", "172.30.0.1", "172.30.0.9"]),
    );
    default_of(&mut world)
        .subnets
        .push("fd01::/48/64".parse().unwrap());
    let plan = plan(&world, "user");
    assert_eq!(peers(&plan, "n1"), ["172.30.0.9"]);
}

#[test]
fn a_second_pass_after_applying_wants_the_same_objects() {
    let mut world = mk_managed();
    let first = of_fabric(&world);
    settle(&mut world);
    assert_eq!(of_fabric(&world), first);
    let ra = managed_ra(&world);
    assert!(plan(&world, &ra).conditions.iter().all(|c| c.status));
}

#[test]
fn a_node_whose_status_lacks_a_familys_address_stays_a_neighbor_under_the_one_that_others_have() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    settle(&mut world);
    let standing = of_fabric(&world).desired;
    let n2 = world.nodes.get_mut(&NodeName::from("n2")).unwrap();
    n2.internal_ips = vec!["fd00::2".parse().unwrap()];
    let objects = of_fabric(&world);
    assert!(objects.surplus.is_empty(), "{:?}", objects.surplus);
    assert_eq!(objects.desired, standing);
    let complete = &plan(&world, &ra).conditions[1];
    for word in ["n2", "no IPv4 InternalIP any more", "under 172.30.0.2"] {
        assert!(complete.message.contains(word), "{complete:?}");
    }
    // The node itself has it no more.
    let mut without = world.clone();
    let n2 = without.nodes.get_mut(&NodeName::from("n2")).unwrap();
    n2.host_cidrs = Fact::Known(vec!["fd00::2/64".parse().unwrap()]);
    let peer = members_peer(&without, "n2");
    assert!(of_fabric(&without).surplus.contains(&peer));
    n2_has(&mut without, "172.30.0.2/24");
    assert!(of_fabric(&without).surplus.is_empty());
    // Another member has it now.
    let n1 = world.nodes.get_mut(&NodeName::from("n1")).unwrap();
    n1.internal_ips.push("172.30.0.2".parse().unwrap());
    let peer = members_peer(&world, "n2");
    assert!(of_fabric(&world).surplus.contains(&peer));
}

fn n2_has(world: &mut World, address: &str) {
    let n2 = world.nodes.get_mut(&NodeName::from("n2")).unwrap();
    n2.host_cidrs = Fact::Known(vec![address.parse().unwrap()]);
}

fn members_peer(world: &World, node: &str) -> ObjectKey {
    let settings = world.fabric.as_ref().unwrap();
    crate::fabric::members::peer_key(settings, &NodeName::from(node))
}

#[test]
fn a_node_that_cannot_be_read_is_left_out_by_name_and_keeps_what_it_has() {
    for (break_it, needle) in [
        (
            Box::new(|n: &mut Node| {
                n.subnets = Fact::Malformed(
                    "annotation k8s.ovn.org/node-subnets = \"x\" is wrong".to_owned(),
                )
            }) as Box<dyn Fn(&mut Node)>,
            "k8s.ovn.org/node-subnets = \"x\"",
        ),
        (
            Box::new(|n: &mut Node| n.subnets = Fact::Absent),
            "waiting for subnet annotation",
        ),
        (
            Box::new(|n: &mut Node| n.internal_ips.clear()),
            "no InternalIP",
        ),
        (
            Box::new(|n: &mut Node| n.internal_ips = vec!["172.30.0.1".parse().unwrap()]),
            "also node n1's",
        ),
    ] {
        let mut world = mk_managed();
        let ra = managed_ra(&world);
        settle(&mut world);
        break_it(world.nodes.get_mut(&NodeName::from("n2")).unwrap());
        let objects = of_fabric(&world);
        assert_eq!(objects.desired.len(), 4, "{needle}");
        assert_eq!(
            (objects.keep.len(), objects.surplus.len()),
            (2, 0),
            "{needle}"
        );
        assert_eq!(objects.roles.len(), 3, "{needle}");
        let second = plan(&world, &ra);
        assert!(second.accepted());
        let complete = &second.conditions[1];
        assert!(
            !complete.status
                && complete.message.contains("node n2")
                && complete.message.contains(needle),
            "{complete:?}"
        );
        assert!(second.conditions[0].message.contains("node n2"));
    }
}

#[test]
fn what_the_user_takes_away_goes_and_what_is_broken_stays() {
    let mut world = with_user_ra(mk_world());
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    let first = plan(&world, "user");
    assert_eq!(first.desired.len(), 3);
    apply(&mut world, "user", &first);
    let key = ObjectKey::new("frr-k8s-system", "src");

    let mut gone = world.clone();
    gone.frr.remove(&key);
    let p = plan(&gone, "user");
    assert!(p.desired.is_empty() && p.keep.is_empty() && !p.accepted());
    assert!(
        p.conditions[0]
            .message
            .contains("configuration pending: no FRRConfigurations selected")
    );

    let mut broken = world.clone();
    broken.frr.insert(
        key,
        Err(vec![Problem::new(
            "FRRConfiguration/frr-k8s-system/src",
            "ConversionFailed",
            "field x: wrong",
        )]),
    );
    let p = plan(&broken, "user");
    assert_eq!(p.keep.len(), 3);
    assert!(p.conditions[0].message.contains("field x: wrong"));

    let mut bad_ra = world.clone();
    bad_ra.ras.insert(
        "user".to_owned(),
        Err("node selector has to select all nodes if pod network is advertised".to_owned()),
    );
    let p = plan(&bad_ra, "user");
    assert_eq!((p.desired.len(), p.keep.len(), p.accepted()), (0, 3, false));
    assert!(
        p.conditions[0]
            .message
            .starts_with("configuration error: node selector")
    );

    let mut no_ra = world;
    no_ra.ras.clear();
    let p = plan(&no_ra, "user");
    assert!(p.desired.is_empty() && p.keep.is_empty());
}

#[test]
fn an_object_that_would_not_merge_is_not_written_and_the_node_is_named() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let mut foreign = mk_source("foreign", &["172.30.0.3"]);
    foreign.routers[0].asn = Asn::try_from(64_999).unwrap();
    foreign.node_selector = LabelSelector::label("kubernetes.io/hostname", "n1");
    add(&mut world, foreign);
    assert_eq!(of_fabric(&world).desired.len(), 4);
    let plan = plan(&world, &ra);
    let text = &plan.conditions[1].message;
    assert!(
        text.contains("node n1") && text.contains("64999") && text.contains("foreign"),
        "{text}"
    );
}

#[test]
fn a_source_elsewhere_or_a_node_without_source_is_said() {
    let mut world = with_user_ra(mk_world());
    let mut elsewhere = mk_source("src", &["172.30.0.9"]);
    elsewhere.key.namespace = "other".to_owned();
    add(&mut world, elsewhere);
    let mut some = mk_source("some", &["172.30.0.9"]);
    some.node_selector = LabelSelector::label("kubernetes.io/hostname", "n1");
    add(&mut world, some);
    let plan = plan(&world, "user");
    // Where nobody reads them they are harmless.
    let namespaces: Vec<&str> = plan
        .desired
        .keys()
        .map(|key| key.namespace.as_str())
        .collect();
    assert_eq!(namespaces, ["frr-k8s-system", "other", "other", "other"]);
    let text = &plan.conditions[0].message;
    for needle in [
        "other/src: it is without effect",
        "node n2: no selected FRRConfiguration",
        "node n3",
    ] {
        assert!(text.contains(needle), "{text}");
    }
}

#[test]
fn targets_and_networks_that_are_not_served_are_refused_by_name() {
    let mut world = with_user_ra(mk_world());
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    if let Some(Ok(ra)) = world.ras.get_mut("user") {
        ra.target_vrf = TargetVrf::Named("red".to_owned());
    }
    let plan = plan(&world, "user");
    let message = &plan.conditions[0].message;
    assert!(!plan.accepted(), "{message}");
    for needle in ["spec.targetVRF \"red\"", "allowed: default, auto"] {
        assert!(message.contains(needle), "{message}");
    }
}

#[test]
fn the_only_node_of_a_cluster_has_a_configuration_without_neighbors() {
    let mut world = mk_managed();
    world.nodes.retain(|name, _| name.as_str() == "n1");
    settle(&mut world);
    assert!(neighbors(&world)["n1"].is_empty());
    let own = of_fabric(&world).desired;
    let prefixes = own.values().flat_map(|object| &object.routers[0].prefixes);
    assert_eq!(prefixes.count(), 1);
}

#[test]
fn a_node_that_becomes_unreadable_stays_its_peers_neighbor_and_one_that_never_was_readable_is_none()
{
    let mut world = mk_managed();
    settle(&mut world);
    let malformed =
        Fact::Malformed("annotation k8s.ovn.org/node-subnets = \"x\" is wrong".to_owned());
    world.nodes.get_mut(&NodeName::from("n2")).unwrap().subnets = malformed.clone();
    let mut n9 = mk_node("n9", "172.30.0.9", Some(9), None);
    n9.subnets = malformed;
    world.nodes.insert(n9.name.clone(), n9);
    assert_eq!(fabric_peers(&world, "n1"), ["172.30.0.2", "172.30.0.3"]);
    assert!(fabric_peers(&world, "n9").is_empty());
}

#[test]
fn a_node_whose_address_is_lost_or_wrong_stays_its_peers_neighbor() {
    let none: fn(&mut Node) = |n| n.internal_ips.clear();
    let of_n1: fn(&mut Node) = |n| n.internal_ips = vec!["172.30.0.1".parse().unwrap()];
    let unreadable: fn(&mut Node) = |n| {
        n.internal_ips.clear();
        n.bad_addresses = vec!["172.30.0.2x".to_owned()];
    };
    let annotated: fn(&mut Node) = |n| {
        n.internal_ips.clear();
        n.host_cidrs = Fact::Known(vec!["172.30.0.2/24".parse().unwrap()]);
    };
    for (number, change) in [none, of_n1, unreadable, annotated].iter().enumerate() {
        let mut world = mk_managed();
        settle(&mut world);
        change(world.nodes.get_mut(&NodeName::from("n2")).unwrap());
        // Also when another node joins meanwhile.
        for expected in [
            vec!["172.30.0.2", "172.30.0.3"],
            vec!["172.30.0.2", "172.30.0.3", "172.30.0.4"],
        ] {
            settle(&mut world);
            assert_eq!(fabric_peers(&world, "n1"), expected, "case {number}");
            let base = fabric::plan(&world).base.unwrap();
            let base: Vec<&str> = base.routers[0]
                .neighbors
                .iter()
                .map(|n| n.peer.as_str())
                .collect();
            assert_eq!(
                base,
                [vec!["172.30.0.1"], expected].concat(),
                "case {number}"
            );
            let n4 = mk_node("n4", "172.30.0.4", Some(5), Some("10.128.4.0/24"));
            world.nodes.insert(n4.name.clone(), n4);
        }
        world.nodes.remove(&NodeName::from("n2"));
        let left = ["172.30.0.3", "172.30.0.4"];
        assert_eq!(fabric_peers(&world, "n1"), left, "case {number}");
    }
}

#[test]
fn an_address_that_another_node_has_now_is_no_longer_that_of_a_node_that_lost_it() {
    let mut world = mk_managed();
    settle(&mut world);
    let node = |world: &mut World, name: &str, ip: Option<&str>| {
        let node = world.nodes.get_mut(&NodeName::from(name)).unwrap();
        node.internal_ips = ip.map(|ip| ip.parse().unwrap()).into_iter().collect();
    };
    node(&mut world, "n2", None);
    node(&mut world, "n3", Some("172.30.0.2"));
    assert_eq!(fabric_peers(&world, "n1"), ["172.30.0.2"]);
    assert_eq!(fabric_peers(&world, "n3"), ["172.30.0.1"]);
}

fn relabelled(world: &mut World, node: &str, hostname: Option<&str>) {
    let node = world.nodes.get_mut(&NodeName::from(node)).unwrap();
    node.labels.remove("kubernetes.io/hostname");
    if let Some(hostname) = hostname {
        let label = ("kubernetes.io/hostname".to_owned(), hostname.to_owned());
        node.labels.extend([label]);
    }
}

#[test]
fn a_node_without_hostname_label_or_with_anothers_is_left_out_and_named() {
    for (hostname, words) in [
        (None, "no label kubernetes.io/hostname"),
        (
            Some("n1"),
            "label kubernetes.io/hostname = \"n1\" is also node n1's",
        ),
    ] {
        // Whose id is smaller does not matter where the label is a node's own name.
        for id in [1, 9] {
            let mut world = mk_managed();
            let ra = managed_ra(&world);
            relabelled(&mut world, "n2", hostname);
            world.nodes.get_mut(&NodeName::from("n2")).unwrap().node_id = Fact::Known(id);
            let world = crate::fabric::complete(world);
            let plan = plan(&world, &ra);
            let own = of_fabric(&world).desired;
            assert_eq!(own.len(), 4, "{words}");
            let complete = &plan.conditions[1];
            assert!(!complete.status, "{words}");
            for word in ["node n2: ", words] {
                assert!(complete.message.contains(word), "{complete:?}");
            }
            assert!(!complete.message.contains("node n1: "), "{complete:?}");
            for node in world.nodes.values() {
                let base = crate::fabric::plan(&world).base.unwrap();
                assert!(!base.node_selector.matches(&node.labels), "{}", node.name);
            }
        }
    }
}

#[test]
fn what_is_asked_for_and_not_done_is_named_in_complete() {
    let mut world = with_user_ra(mk_world());
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    let all = |world: &World| {
        let plan = plan(world, "user");
        assert!(!plan.conditions[1].status, "{:?}", plan.conditions);
        plan.conditions[1].message.clone()
    };
    let mut with_udn = world.clone();
    if let Some(Ok(ra)) = with_udn.ras.get_mut("user") {
        let blue = LabelSelector::label("color", "blue");
        ra.networks
            .push(NetworkSelector::ClusterUserDefinedNetworks(blue));
        ra.egress_ip = true;
    }
    let mut localnet = mk_cudn("lan", 1);
    localnet.labels = LabelSelector::label("color", "blue").match_labels;
    localnet.network = Err("spec.network.topology Localnet is not supported".to_owned());
    with_udn.cudns.insert("lan".to_owned(), localnet);
    let namespaces = [("shop".to_owned(), Namespace::default())];
    with_udn.namespaces.extend(namespaces);
    let egress = EgressIp {
        namespaces: Ok(LabelSelector::default()),
        assigned: [("n1".into(), "172.30.0.77".parse().unwrap())].into(),
    };
    with_udn.egress_ips.insert("out".to_owned(), egress);
    let text = all(&with_udn);
    for words in [
        "network cluster_udn_lan: spec.network.topology Localnet is not supported",
        "EgressIP out: network default has no overlay",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let of_both = plan(&with_udn, "user");
    assert!(of_both.accepted());
    let announced = of_both
        .desired
        .values()
        .flat_map(|o| &o.routers[0].prefixes);
    assert!(
        announced.into_iter().all(|p| p.bits() == 24),
        "no address of an EgressIP"
    );

    // Neighbors that can carry none of the node's prefixes, or are the node itself.
    for (peers, words) in [
        (
            ["fd00::9", "fd00::8"],
            ["node n1", "src", "fd00::9", "10.128.1.0/24"],
        ),
        (
            ["172.30.0.1", "172.30.0.1"],
            ["node n1", "src", "172.30.0.1", "itself"],
        ),
    ] {
        let mut world = world.clone();
        add(&mut world, mk_source("src", &peers));
        let text = all(&world);
        for word in words {
            assert!(text.contains(word), "{text}");
        }
    }
}

fn unreadable(namespace: &str, name: &str, text: &str) -> (ObjectKey, Vec<Problem>) {
    let key = ObjectKey::new(namespace, name);
    let subject = format!("FRRConfiguration/{key}");
    let text = format!("{subject} {text}");
    (key, vec![Problem::new(subject, "ConversionFailed", text)])
}

#[test]
fn an_unreadable_object_of_another_namespace_is_nobodys_fault() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let before = plan(&world, &ra);
    let (key, why) = unreadable("a-tenant", "x", "field spec.x: wrong");
    world.frr.insert(key.clone(), Err(why.clone()));
    assert_eq!(plan(&world, &ra), before);
    // Nor does it hide that nothing is selected.
    let mut world = with_user_ra(mk_world());
    world.frr.insert(key, Err(why));
    let plan = plan(&world, "user");
    assert!(!plan.accepted(), "{:?}", plan.conditions);
}

#[test]
fn an_entry_is_cut_and_nodes_come_first() {
    let mut world = with_user_ra(mk_world());
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    world.nodes.get_mut(&NodeName::from("n3")).unwrap().subnets = Fact::Absent;
    world.nodes.get_mut(&NodeName::from("n1")).unwrap().subnets =
        Fact::Malformed("x".repeat(200_000));
    for n in 0..40 {
        let (key, why) = unreadable("frr-k8s-system", &format!("a{n}"), &"y".repeat(9000));
        world.frr.insert(key, Err(why));
    }
    let plan = plan(&world, "user");
    let text = &plan.conditions[1].message;
    assert!(text.starts_with("node n1: xxx"), "{text:.100}");
    assert!(text.contains("node n3: "), "{text}");
    assert!(text.len() < 9000);
    assert!(plan.problems.iter().all(|p| p.message.len() < 400));
}

#[test]
fn two_faults_of_one_node_are_both_reported() {
    let mut world = with_user_ra(mk_world());
    let mut none = mk_source("one", &["172.30.0.9"]);
    none.routers.clear();
    add(&mut world, none);
    let mut none = mk_source("two", &["172.30.0.9"]);
    none.routers.clear();
    add(&mut world, none);
    let text = plan(&world, "user").conditions[1].message.clone();
    for words in ["frr-k8s-system/one", "frr-k8s-system/two"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_the_node_itself() {
    let mut world = with_user_ra(mk_world());
    add(
        &mut world,
        mk_source("src", &["::ffff:172.30.0.1", "172.30.0.9"]),
    );
    let n1 = world.nodes.get_mut(&NodeName::from("n1")).unwrap();
    let both = ["10.128.1.0/24", "fd01:0:0:1::/64"].map(|p| p.parse().unwrap());
    n1.subnets = Fact::Known([("default".into(), both.to_vec())].into());
    default_of(&mut world)
        .subnets
        .push("fd01::/48/64".parse().unwrap());
    assert_eq!(peers(&plan(&world, "user"), "n1"), ["172.30.0.9"]);
}

#[test]
fn the_label_of_an_advertisement_with_a_long_name_is_a_legal_value_and_its_objects_are_found() {
    let name = format!("{}.example", "a".repeat(200));
    let mut world = with_user_ra(mk_world());
    let Some(Ok(mut ra)) = world.ras.remove("user") else {
        panic!("it is there");
    };
    ra.name = name.clone();
    world.ras.insert(name.clone(), Ok(ra));
    add(&mut world, mk_source("src", &["172.30.0.9"]));
    let first = plan(&world, &name);
    assert_eq!(first.desired.len(), 3);
    for object in first.desired.values() {
        assert!(object.labels[RA_KEY].len() <= 63);
        assert!(object.annotations[RA_KEY].starts_with(&name));
    }
    apply(&mut world, &name, &first);
    world.ras.clear();
    let last = plan(&world, &name);
    apply(&mut world, &name, &last);
    assert_eq!(world.frr.len(), 1, "only the source is left");
}

/// Makes an object unreadable, as `api` would tell it.
fn spoil(world: &mut World, key: &ObjectKey) {
    let Some(Ok(object)) = world.frr.get(key).cloned() else {
        panic!("it is there");
    };
    let remains = Remains {
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        node_selector: Some(object.node_selector.clone()),
        prefixes: object.routers[0].prefixes.clone(),
    };
    world.unreadable.insert(key.clone(), remains);
    let (_, why) = unreadable(&key.namespace, &key.name, "field holdTime: wrong");
    world.frr.insert(key.clone(), Err(why));
}

#[test]
fn an_object_of_ours_that_somebody_made_unreadable_is_written_again_and_goes_with_its_node() {
    let mut world = mk_managed();
    settle(&mut world);
    let first = of_fabric(&world);
    let of_n2 = first
        .desired
        .values()
        .find(|o| o.node_selector.match_labels.values().any(|v| v == "n2"));
    let key = of_n2.unwrap().key.clone();
    spoil(&mut world, &key);
    let ra = managed_ra(&world);
    let again = of_fabric(&world);
    assert!(again.desired.contains_key(&key) && plan(&world, &ra).conditions[1].status);
    world.nodes.remove(&NodeName::from("n2"));
    let world = crate::fabric::complete(world);
    let conditions = plan(&world, &ra).conditions;
    assert!(conditions[1].status, "{conditions:?}");
    let last = of_fabric(&world);
    assert!(last.surplus.contains(&key) && last.surplus.len() == 2);
    // The whole fabric goes.
    let mut gone = world;
    gone.ras.clear();
    gone.fabric = None;
    let name = fabric::base_name();
    assert_eq!(generated::left_behind(&gone), std::slice::from_ref(&name));
    let plan = plan(&gone, &name);
    assert_eq!(plan.surplus.len(), 6);
    assert!(plan.surplus.contains(&key));
}

#[test]
fn what_bears_our_names_but_not_our_label_is_not_ours_to_delete() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let mut theirs = mk_source("ovnk-generated-abcde", &["172.30.0.9"]);
    theirs.labels = [(RA_KEY.to_owned(), ra.clone())].into();
    theirs.node_selector = LabelSelector::label("kubernetes.io/hostname", "elsewhere");
    let key = theirs.key.clone();
    add(&mut world, theirs);
    let first = plan(&world, &ra);
    assert!(!first.surplus.contains(&key) && !first.keep.contains(&key));
    world.ras.clear();
    assert!(!plan(&world, &ra).surplus.contains(&key));
    assert_eq!(generated::left_behind(&world), [] as [String; 0]);
    let (label, value) = MANAGED_BY;
    if let Some(Ok(object)) = world.frr.get_mut(&key) {
        let labels = &mut Arc::make_mut(object).labels;
        labels.insert(label.to_owned(), value.to_owned());
    }
    assert!(plan(&world, &ra).surplus.contains(&key));
}

#[test]
fn the_planner_plans_once_for_one_world() {
    let world = Arc::new(mk_managed());
    let ra = fabric::base_name();
    let mut planner = Planner::default();
    let first = planner.plan_all(&world);
    assert_eq!(first.get(&ra), Some(&plan(&world, &ra)));
    assert!(Arc::ptr_eq(&planner.plan_all(&world), &first));
    let mut other = World::clone(&world);
    other.nodes.remove(&NodeName::from("n3"));
    let other = Arc::new(other);
    let second = planner.plan_all(&other);
    assert_eq!(second.get(&ra), Some(&plan(&other, &ra)));
    assert_ne!(second, first);
    assert!(!plan_of_gone("nobody").accepted());
}

/// An object as OVN-Kubernetes generates it for an RA: its name and label, and nothing that says who made it.
fn mk_foreign(ra: &str) -> FrrConfiguration {
    let mut object = mk_source("ovnk-generated-abcde", &["172.30.0.9"]);
    object.labels = [(RA_KEY.to_owned(), ra.to_owned())].into();
    object.annotations = [(RA_KEY.to_owned(), format!("{ra}/src/n1"))].into();
    object.node_selector = LabelSelector::label("kubernetes.io/hostname", "n1");
    object
}

#[test]
fn only_objects_with_our_managed_by_label_are_ours_whatever_they_are_called() {
    for served in [true, false] {
        let mut world = with_user_ra(mk_world());
        let ra = "user".to_owned();
        add(&mut world, mk_source("src", &["172.30.0.9"]));
        let first = plan(&world, &ra);
        apply(&mut world, &ra, &first);
        if !served {
            // What it selects cannot be served: everything that is ours goes.
            let Some(Ok(spec)) = world.ras.get_mut(&ra) else {
                panic!("it is in the world");
            };
            spec.pod_network = false;
        }
        let foreign = mk_foreign(&ra);
        add(&mut world, foreign.clone());
        let ours: Vec<ObjectKey> = generated::owned(&world, &ra)
            .iter()
            .map(|o| o.key.clone())
            .collect();
        assert_eq!(ours.len(), 3);
        assert!(!ours.contains(&foreign.key));
        let second = plan(&world, &ra);
        assert!(!second.keep.contains(&foreign.key) && !second.desired.contains_key(&foreign.key));
    }
}

#[test]
fn members_in_two_layer_2_subnets_are_named_pair_by_pair_and_served_all_the_same() {
    let mut world = mk_managed();
    settle(&mut world);
    let before = plan_all(&world);
    for (name, cidr) in [
        ("n1", "172.30.0.1/31"),
        ("n2", "172.30.0.2/31"),
        ("n3", "172.30.0.3/31"),
    ] {
        let node = world.nodes.get_mut(&NodeName::from(name)).unwrap();
        node.host_cidrs = Fact::Known(vec![cidr.parse().unwrap()]);
    }
    let after = plan_all(&world);
    for (name, plan) in &after {
        assert_eq!(plan.desired, before[name].desired);
    }
    let told: Vec<&Condition> = after.values().flat_map(|plan| &plan.conditions).collect();
    let complete = told.iter().find(|c| c.kind == "Complete").unwrap();
    assert!(!complete.status);
    assert!(
        complete.message.contains(
            "node n1: it is in 172.30.0.0/31 and shares no layer-2 subnet with n2, n3: pods"
        ),
        "{}",
        complete.message
    );
    assert!(
        !complete.message.contains("node n2"),
        "{}",
        complete.message
    );
}

#[test]
fn egress_ips_that_are_announced_stay_while_nobody_lists_them() {
    let mut world = with_user_ra(mk_world());
    world.fabric = None;
    add(&mut world, mk_source("src", &["172.31.0.1"]));
    default_of(&mut world).transport = model::network::Transport::Geneve;
    let ra = world.ras.get_mut("user").unwrap().as_mut().unwrap();
    (ra.egress_ip, ra.pod_network) = (true, false);
    let namespaces = [("shop".to_owned(), Namespace::default())];
    world.namespaces.extend(namespaces);
    let egress = EgressIp {
        namespaces: Ok(LabelSelector::default()),
        assigned: [("n1".into(), "172.30.0.77".parse().unwrap())].into(),
    };
    world.egress_ips.insert("out".to_owned(), egress);
    settle(&mut world);
    let before = plan(&world, "user");
    let address: model::Prefix = "172.30.0.77/32".parse().unwrap();
    let announces = |plan: &Plan| {
        let routers = plan.desired.values().flat_map(|o| &o.routers);
        routers.flat_map(|r| &r.prefixes).any(|p| *p == address)
    };
    assert!(announces(&before), "{before:?}");

    world.egress_ips.clear();
    world.egress_ips_refused = Some(403);
    let unlisted = plan(&world, "user");
    assert_eq!(unlisted.surplus, before.surplus);
    assert_eq!(unlisted.desired, before.desired);
    let text = &unlisted.conditions[1].message;
    let told = "EgressIPs: the API server does not list them (status 403)";
    assert!(text.contains(told), "{text}");
    // Listed, and there is none; or the kind was taken away with all of them.
    for status in [None, Some(404)] {
        world.egress_ips_refused = status;
        assert!(!announces(&plan(&world, "user")), "{status:?}");
    }
    // Where none is announced a kind that is not installed is nothing to speak of.
    let mut world = with_user_ra(mk_world());
    world.fabric = None;
    add(&mut world, mk_source("src", &["172.31.0.1"]));
    world.egress_ips_refused = Some(404);
    if let Some(Ok(ra)) = world.ras.get_mut("user") {
        ra.egress_ip = true;
    }
    let conditions = plan(&world, "user").conditions;
    assert!(
        !format!("{conditions:?}").contains("does not list"),
        "{conditions:?}"
    );
}
