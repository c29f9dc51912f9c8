//! What an RA leads to, and what it costs when something is wrong.

use super::*;
use crate::samples::{add, mk_managed, mk_node, mk_world};
use model::frr::{Advertise, Neighbor, Peer, Receive, RemoteAs, Session};
use model::{Asn, NodeName};

fn managed_ra(world: &World) -> String {
    world.ras.keys().next().unwrap().clone()
}

/// Writes what the plan wants, as the door would.
fn apply(world: &mut World, ra: &str, plan: &Plan) {
    let surplus: Vec<ObjectKey> = owned(world, ra)
        .iter()
        .map(|o| o.key.clone())
        .filter(|k| !plan.desired.contains_key(k) && !plan.keep.contains(k))
        .collect();
    for key in surplus {
        world.frr.remove(&key);
    }
    for object in plan.desired.values() {
        add(world, object.clone());
    }
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

fn mk_source(name: &str, peers: &[&str]) -> FrrConfiguration {
    let asn = Asn::try_from(64_512).unwrap();
    FrrConfiguration {
        key: ObjectKey::new("frr-k8s-system", name),
        labels: [("use".to_owned(), "me".to_owned())].into(),
        annotations: BTreeMap::new(),
        node_selector: LabelSelector::default(),
        routers: vec![Router {
            asn,
            id: None,
            vrf: String::new(),
            neighbors: peers
                .iter()
                .map(|p| Neighbor {
                    peer: Peer::Address((*p).to_owned()),
                    session: Session::new(RemoteAs::Number(asn)),
                    advertise: Advertise::default(),
                    receive: Receive::default(),
                })
                .collect(),
            prefixes: Vec::new(),
            imports: Vec::new(),
        }],
        bfd_profiles: Vec::new(),
        raw: None,
    }
}

fn with_user_ra(mut world: World) -> World {
    let ra = RouteAdvertisements {
        name: "user".to_owned(),
        generation: 1,
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
    assert_eq!(plan.desired.len(), 3);
    assert_eq!(peers(&plan, "n1"), ["172.30.0.2", "172.30.0.3"]);
    assert_eq!(peers(&plan, "n2"), ["172.30.0.1", "172.30.0.3"]);
    assert_eq!(plan.conditions[0].message, ACCEPTED);
    assert!(plan.conditions[1].status);
    assert!(check::conflicts(&world, &managed_ra(&world), &plan.desired).is_empty());
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
    world.cluster_subnets.push("fd01::/48/64".parse().unwrap());
    let plan = plan(&world, "user");
    assert_eq!(peers(&plan, "n1"), ["172.30.0.9"]);
}

#[test]
fn a_second_pass_after_applying_wants_the_same_objects() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let first = plan(&world, &ra);
    apply(&mut world, &ra, &first);
    assert_eq!(plan(&world, &ra), first);
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
        let first = plan(&world, &ra);
        apply(&mut world, &ra, &first);
        break_it(world.nodes.get_mut(&NodeName::from("n2")).unwrap());
        let second = plan(&world, &ra);
        assert!(second.accepted());
        assert_eq!(second.desired.len(), 2, "{needle}");
        assert_eq!(second.keep.len(), 1, "{needle}");
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
    let plan = plan(&world, &ra);
    assert_eq!(plan.desired.len(), 2);
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
    assert_eq!(plan.desired.len(), 1);
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
    for (vrf, needle) in [
        (TargetVrf::Auto, "targetVRF auto"),
        (
            TargetVrf::Named("red".to_owned()),
            "neither default nor auto",
        ),
    ] {
        if let Some(Ok(ra)) = world.ras.get_mut("user") {
            ra.target_vrf = vrf;
        }
        let plan = plan(&world, "user");
        assert!(!plan.accepted() && plan.conditions[0].message.contains(needle));
    }
}

#[test]
fn the_only_node_of_a_cluster_has_a_configuration_without_neighbors() {
    let mut world = mk_managed();
    world.nodes.retain(|name, _| name.as_str() == "n1");
    let ra = managed_ra(&world);
    let base = crate::fabric::plan(&world).base.unwrap();
    add(&mut world, base);
    let plan = plan(&world, &ra);
    let object = plan.desired.values().next().unwrap();
    assert!(object.routers[0].neighbors.is_empty() && object.raw.is_none());
    assert_eq!(object.routers[0].prefixes.len(), 1);
}

#[test]
fn a_joining_node_changes_each_object_by_one_neighbor() {
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let n4 = mk_node("n4", "172.30.0.4", Some(5), Some("10.128.4.0/24"));
    world.nodes.insert(n4.name.clone(), n4);
    let base = crate::fabric::plan(&world).base.unwrap();
    add(&mut world, base);
    let plan = plan(&world, &ra);
    assert_eq!(plan.desired.len(), 4);
    assert_eq!(
        peers(&plan, "n1"),
        ["172.30.0.2", "172.30.0.3", "172.30.0.4"]
    );
}

#[test]
fn a_node_that_becomes_unreadable_stays_its_peers_neighbor_and_one_that_never_was_readable_is_none()
{
    let mut world = mk_managed();
    let ra = managed_ra(&world);
    let first = plan(&world, &ra);
    apply(&mut world, &ra, &first);
    let malformed =
        Fact::Malformed("annotation k8s.ovn.org/node-subnets = \"x\" is wrong".to_owned());
    world.nodes.get_mut(&NodeName::from("n2")).unwrap().subnets = malformed.clone();
    let mut n9 = mk_node("n9", "172.30.0.9", Some(9), None);
    n9.subnets = malformed;
    world.nodes.insert(n9.name.clone(), n9);
    let world = crate::fabric::complete(world);
    assert_eq!(
        peers(&plan(&world, &ra), "n1"),
        ["172.30.0.2", "172.30.0.3"]
    );
}
