//! Other people's objects beside ours: each row of what frr-k8s refuses, and what it lets stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use frr::NodeInput;
use model::frr::{
    BfdProfile, FrrConfiguration, Neighbor, Peer, Raw, Remains, RemoteAs, Router, Session,
};
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::node::Fact;
use model::selector::LabelSelector;
use model::{Asn, ObjectKey, Prefix, Problem};

use crate::World;
use crate::advertise::{self, Plan};
use crate::fabric;
use crate::samples::{add, default_of, mk_managed, mk_source, mk_world, settle};

const PEER: &str = "172.30.9.9";
const RA: &str = "user";

fn asn(number: i64) -> Asn {
    Asn::try_from(number).unwrap()
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn profile(name: &str, receive_interval: u32) -> BfdProfile {
    BfdProfile {
        name: name.to_owned(),
        receive_interval: Some(receive_interval),
        ..BfdProfile::default()
    }
}

fn object(name: &str, node_selector: LabelSelector) -> FrrConfiguration {
    FrrConfiguration {
        labels: BTreeMap::new(),
        node_selector,
        bfd_profiles: vec![profile("fast", 100), profile("slow", 300)],
        ..mk_source(name, &[PEER])
    }
}

type Change = Box<dyn Fn(&mut FrrConfiguration)>;

fn same() -> Change {
    Box::new(|_| {})
}

fn router(change: impl Fn(&mut Router) + 'static) -> Change {
    Box::new(move |o| change(&mut o.routers[0]))
}

fn neighbor(change: impl Fn(&mut Neighbor) + 'static) -> Change {
    Box::new(move |o| change(&mut o.routers[0].neighbors[0]))
}

fn session(change: impl Fn(&mut Session) + 'static) -> Change {
    neighbor(move |n| change(&mut n.session))
}

/// It originates n1's subnet and gives it a local preference.
fn preferring(value: u32) -> Change {
    router(move |r| {
        r.prefixes = prefixes(&["10.128.1.0/24"]);
        r.neighbors[0].advertise.prefixes = r.prefixes.clone();
        r.neighbors[0].advertise.local_prefs = vec![(value, r.prefixes.clone())];
    })
}

/// Three nodes, an RA over the source `src` that peers all of them with PEER, everything written.
fn existing(ours: &Change) -> World {
    existing_on(mk_world(), ours)
}

/// With IPv6 pods as well.
fn dual(mut world: World) -> World {
    default_of(&mut world)
        .subnets
        .push("fd01::/48/64".parse().unwrap());
    for (n, node) in world.nodes.values_mut().enumerate() {
        let Fact::Known(map) = &mut node.subnets else {
            panic!("every node has one");
        };
        let subnet = format!("fd01:0:0:{n}::/64").parse().unwrap();
        map.values_mut().for_each(|list| list.push(subnet));
    }
    world
}

fn existing_on(mut world: World, ours: &Change) -> World {
    world.fabric = None;
    let mut source = object("src", LabelSelector::default());
    source.labels = [("use".to_owned(), "me".to_owned())].into();
    ours(&mut source);
    add(&mut world, source);
    let ra = RouteAdvertisements {
        name: RA.to_owned(),
        generation: 1,
        created: 0,
        target_vrf: TargetVrf::Default,
        networks: vec![NetworkSelector::DefaultNetwork],
        node_selector: LabelSelector::default(),
        frr_selector: LabelSelector::label("use", "me"),
        pod_network: true,
        egress_ip: false,
    };
    world.ras.insert(RA.to_owned(), Ok(ra));
    let plan = advertise::plan(&world, RA);
    assert!(
        plan.conditions.iter().all(|c| c.status),
        "{:?}",
        plan.conditions
    );
    for object in plan.desired.values() {
        add(&mut world, object.clone());
    }
    world
}

fn foreign(change: &Change) -> FrrConfiguration {
    let mut object = object(
        "metallb",
        LabelSelector::label("kubernetes.io/hostname", "n1"),
    );
    change(&mut object);
    object
}

/// What is wrong with n1, and n1 only, is reported as condition and problem, and nothing is taken away. Where n1's other objects
/// load without ours, ours is not written; where they do not load at all, ours does no harm.
fn assert_conflict(plan: &Plan, words: &[&str], row: &str, loads: bool) {
    let complete = &plan.conditions[1];
    assert!(!complete.status, "{row}: {complete:?}");
    let says = if loads {
        "node n1: its FRR configuration would not load"
    } else {
        "node n1: its FRR configuration does not load, whatever is added to it"
    };
    for word in [&[says], words].concat() {
        assert!(complete.message.contains(word), "{row}: {complete:?}");
        let reported =
            |p: &Problem| p.subject == "RouteAdvertisements/user" && p.message.contains(word);
        assert!(
            plan.problems.iter().any(reported),
            "{row}: {:?}",
            plan.problems
        );
    }
    assert!(!complete.message.contains("node n2"), "{row}: {complete:?}");
    let counts = if loads { (2, 1) } else { (3, 0) };
    assert_eq!((plan.desired.len(), plan.keep.len()), counts, "{row}");
}

/// Whether n1 loads what is not ours.
fn loads_without_ours(world: &World) -> bool {
    let node = &world.nodes[&"n1".into()];
    let mut objects: Vec<Arc<FrrConfiguration>> = Vec::new();
    for (key, object) in &world.frr {
        match object {
            _ if key.name.starts_with("ovnk-generated-") => {}
            Ok(object) => objects.push(object.clone()),
            Err(_) => return false,
        }
    }
    let secrets = objects.iter().flat_map(|o| &o.routers);
    let secrets = secrets.flat_map(|router| &router.neighbors);
    let secrets = secrets.filter_map(|n| n.session.password_secret.clone());
    let input = NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: "n1".to_owned(),
        objects: &objects,
        passwords: &secrets.map(|name| (name, Ok("x".to_owned()))).collect(),
    };
    frr::merge(&input).is_ok_and(|config| frr::lint::refused(&config).is_empty())
}

fn assert_fine(plan: &Plan, row: &str) {
    assert!(plan.conditions[1].status, "{row}: {:?}", plan.conditions[1]);
    assert_eq!((plan.desired.len(), plan.keep.len()), (3, 0), "{row}");
}

/// Puts the foreign object in, evaluates, and takes it out again.
fn evaluate(row: &str, ours: &Change, theirs: &Change, words: Option<&[&str]>) {
    let mut world = existing(ours);
    let before = advertise::plan(&world, RA);
    let object = foreign(theirs);
    let key = object.key.clone();
    add(&mut world, object);
    let plan = advertise::plan(&world, RA);
    match words {
        Some(words) => assert_conflict(&plan, words, row, loads_without_ours(&world)),
        None => assert_fine(&plan, row),
    }
    assert!(
        !plan.desired.contains_key(&key) && !plan.keep.contains(&key),
        "{row}: the foreign object is nobody's to plan"
    );
    world.frr.remove(&key);
    assert_eq!(
        advertise::plan(&world, RA),
        before,
        "{row}: all is as it was"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_difference_between_two_objects_that_frr_k8s_refuses_is_named_with_node_object_field_and_values()
 {
    let names: &[&str] = &["frr-k8s-system/metallb", "frr-k8s-system/"];
    let field = |field: &'static str| format!("neighbors[{PEER}].{field}");
    let rows: Vec<(&str, Change, Change, Option<Vec<String>>)> = vec![
        (
            "router asn",
            same(),
            router(|r| r.asn = asn(64_999)),
            Some(vec![
                "routers[vrf default].asn".into(),
                "64999".into(),
                "64512".into(),
            ]),
        ),
        (
            "two router ids",
            router(|r| r.id = Some("1.1.1.1".into())),
            router(|r| r.id = Some("2.2.2.2".into())),
            Some(vec![
                "routers[vrf default].id".into(),
                "1.1.1.1".into(),
                "2.2.2.2".into(),
            ]),
        ),
        (
            "router id in one",
            same(),
            router(|r| r.id = Some("2.2.2.2".into())),
            None,
        ),
        (
            "neighbor asn",
            same(),
            session(|s| s.remote_as = RemoteAs::Number(asn(65_001))),
            Some(vec![field("asn"), "65001".into(), "64512".into()]),
        ),
        (
            "asn and dynamicASN",
            same(),
            session(|s| s.remote_as = RemoteAs::Internal),
            Some(vec![field("asn"), "internal".into(), "64512".into()]),
        ),
        (
            "port in one",
            same(),
            session(|s| s.port = Some(1179)),
            Some(vec![field("port"), "1179".into(), "absent or 179".into()]),
        ),
        (
            "port 179 in one",
            same(),
            session(|s| s.port = Some(179)),
            None,
        ),
        (
            "hold and keepalive in one",
            same(),
            session(|s| (s.hold_time, s.keepalive_time) = (Some(9), Some(3))),
            Some(vec![
                field("holdTime"),
                field("keepaliveTime"),
                "9s".into(),
                "absent or 180s".into(),
                "3s".into(),
                "absent or 60s".into(),
            ]),
        ),
        (
            "other hold",
            session(|s| (s.hold_time, s.keepalive_time) = (Some(9), Some(3))),
            session(|s| (s.hold_time, s.keepalive_time) = (Some(90), Some(3))),
            Some(vec![field("holdTime"), "9s".into(), "90s".into()]),
        ),
        (
            "hold and keepalive at defaults in one",
            same(),
            session(|s| (s.hold_time, s.keepalive_time) = (Some(180), Some(60))),
            None,
        ),
        (
            "connectTime in one",
            same(),
            session(|s| s.connect_time = Some(5)),
            Some(vec![
                field("connectTime"),
                "5s".into(),
                "absent or 60s".into(),
            ]),
        ),
        (
            "connectTime 60s in one",
            same(),
            session(|s| s.connect_time = Some(60)),
            None,
        ),
        (
            "sourceaddress in one",
            same(),
            session(|s| s.source = Some("172.30.0.1".into())),
            Some(vec![
                field("sourceaddress"),
                "172.30.0.1".into(),
                "absent".into(),
            ]),
        ),
        (
            "password in one",
            same(),
            session(|s| s.password = Some("hush".into())),
            Some(vec![
                field("password"),
                "a password of its own".into(),
                "absent".into(),
            ]),
        ),
        (
            "passwordSecret in one",
            same(),
            session(|s| s.password_secret = Some("peering".into())),
            Some(vec![
                field("password"),
                "a password of its own".into(),
                "absent".into(),
            ]),
        ),
        (
            "two passwords",
            session(|s| s.password = Some("hush".into())),
            session(|s| s.password = Some("hushed".into())),
            Some(vec![field("password")]),
        ),
        (
            "the same passwordSecret",
            session(|s| s.password_secret = Some("peering".into())),
            session(|s| s.password_secret = Some("peering".into())),
            None,
        ),
        (
            "ebgpMultiHop in one",
            same(),
            session(|s| s.ebgp_multi_hop = true),
            Some(vec![field("ebgpMultiHop"), "true".into(), "false".into()]),
        ),
        (
            "dualStackAddressFamily in one",
            same(),
            session(|s| s.dual_stack = true),
            Some(vec![
                field("dualStackAddressFamily"),
                "true".into(),
                "false".into(),
            ]),
        ),
        (
            "localASN in one",
            same(),
            session(|s| s.local_as = Some(asn(65_009))),
            Some(vec![field("localASN"), "65009".into(), "absent".into()]),
        ),
        (
            "bfdProfile in one",
            same(),
            session(|s| s.bfd_profile = Some("fast".into())),
            None,
        ),
        (
            "two bfdProfiles",
            session(|s| s.bfd_profile = Some("slow".into())),
            session(|s| s.bfd_profile = Some("fast".into())),
            Some(vec![field("bfdProfile"), "fast".into(), "slow".into()]),
        ),
        (
            "graceful restart in one",
            same(),
            session(|s| s.graceful_restart = true),
            None,
        ),
        (
            "two local preferences of a prefix",
            preferring(100),
            preferring(200),
            Some(vec![
                field("toAdvertise.withLocalPref of prefix 10.128.1.0/24"),
                "100".into(),
                "200".into(),
            ]),
        ),
        (
            "two next hops",
            neighbor(|n| n.advertise.next_hops = vec!["172.30.0.50".parse().unwrap()]),
            neighbor(|n| n.advertise.next_hops = vec!["172.30.0.60".parse().unwrap()]),
            Some(vec![
                field("toAdvertise.nextHop"),
                "172.30.0.50".into(),
                "172.30.0.60".into(),
            ]),
        ),
        (
            "BFD profile of other values",
            same(),
            Box::new(|o| o.bfd_profiles[0].receive_interval = Some(999)),
            Some(vec![
                "bfdProfiles[fast]".into(),
                "receiveInterval 999".into(),
                "receiveInterval 100".into(),
            ]),
        ),
        (
            "the same neighbor twice, differing",
            same(),
            router(|r| {
                let mut twice = r.neighbors[0].clone();
                twice.session.port = Some(1179);
                r.neighbors.push(twice);
            }),
            Some(vec![field("port"), "1179".into()]),
        ),
        (
            "the same neighbor twice, equal",
            same(),
            router(|r| r.neighbors.push(r.neighbors[0].clone())),
            None,
        ),
    ];
    for (row, ours, theirs, words) in rows {
        let words: Option<Vec<&str>> = words.as_ref().map(|w| {
            names
                .iter()
                .copied()
                .chain(w.iter().map(String::as_str))
                .collect()
        });
        evaluate(row, &ours, &theirs, words.as_deref());
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_object_that_does_not_stand_for_itself_stops_its_node_and_is_named() {
    let advertise =
        |list: &'static [&'static str]| neighbor(move |n| n.advertise.prefixes = prefixes(list));
    let rows: Vec<(&str, Change, Option<Vec<&str>>)> = vec![
        (
            "a prefix of another object",
            advertise(&["10.128.1.0/24"]),
            Some(vec![
                "neighbors[172.30.9.9] of frr-k8s-system/metallb: toAdvertise names prefix 10.128.1.0/24",
            ]),
        ),
        (
            "a BFD profile of another object",
            Box::new(|o| {
                o.bfd_profiles.clear();
                o.routers[0].neighbors[0].session.bfd_profile = Some("fast".into());
            }),
            Some(vec![
                "bfdProfile fast is not defined in bfdProfiles of this object",
                "frr-k8s-system/metallb",
            ]),
        ),
        (
            "an import that nobody declares",
            router(|r| r.imports = vec!["red".into()]),
            Some(vec![
                "routers[vrf default].imports names VRF red",
                "frr-k8s-system/metallb",
            ]),
        ),
        (
            "an import of default without its router",
            router(|r| {
                r.vrf = "red".into();
                r.imports = vec!["default".into()];
            }),
            Some(vec![
                "routers[vrf red].imports names VRF default",
                "frr-k8s-system/metallb",
            ]),
        ),
        (
            "an IPv6 prefix to an IPv4 neighbor",
            Box::new(|o| {
                o.routers[0].prefixes = prefixes(&["fd00::/64"]);
                o.routers[0].neighbors[0].advertise.prefixes = prefixes(&["fd00::/64"]);
            }),
            Some(vec![
                "toAdvertise names prefix fd00::/64, but the session carries ipv4 only",
                "frr-k8s-system/metallb",
            ]),
        ),
        (
            "the same in mode all",
            Box::new(|o| {
                o.routers[0].prefixes = prefixes(&["fd00::/64"]);
                o.routers[0].neighbors[0].advertise.all = true;
            }),
            None,
        ),
        (
            "mode all over another object's prefixes",
            neighbor(|n| n.advertise.all = true),
            None,
        ),
    ];
    for (row, theirs, words) in rows {
        evaluate(row, &same(), &theirs, words.as_deref());
    }
}

#[test]
fn what_merges_but_makes_frr_refuse_the_file_is_a_conflict_too() {
    let rows: Vec<(Change, &str)> = vec![
        (
            neighbor(|n| {
                n.receive.prefixes = vec![model::frr::PrefixRange {
                    prefix: "10.0.0.0/8".parse().unwrap(),
                    ge: None,
                    le: Some(64),
                }];
            }),
            "toReceive prefix 10.0.0.0/8 has le 64",
        ),
        (
            router(|r| r.id = Some("one".into())),
            "id \"one\" is not an IPv4 address",
        ),
    ];
    for (theirs, words) in rows {
        evaluate(
            words,
            &same(),
            &theirs,
            Some(&[words, "frr-k8s-system/metallb"]),
        );
    }
}

#[test]
fn an_unreadable_object_stops_the_nodes_that_it_selects_and_one_of_evpn_only_itself() {
    let broken = |reason| {
        let subject = "FRRConfiguration/frr-k8s-system/metallb";
        let text = format!("{subject} field spec.x: wrong");
        Err(vec![Problem::new(subject, reason, text)])
    };
    let key = ObjectKey::new("frr-k8s-system", "metallb");
    let n1 = LabelSelector::label("kubernetes.io/hostname", "n1");
    let mut world = existing(&same());
    world.frr.insert(key.clone(), broken("ConversionFailed"));
    let remains = Remains {
        node_selector: Some(n1),
        ..Remains::default()
    };
    world.unreadable.insert(key.clone(), remains);
    let plan = advertise::plan(&world, RA);
    let words = ["frr-k8s-system/metallb field spec.x: wrong"];
    assert_conflict(&plan, &words, "n1", loads_without_ours(&world));
    // Whom it selects is not known: everybody.
    world.unreadable.clear();
    let plan = advertise::plan(&world, RA);
    assert_eq!((plan.desired.len(), plan.keep.len()), (3, 0));
    let text = "node n2: its FRR configuration does not load, whatever is added to it";
    assert!(plan.conditions[1].message.contains(text));
    let evpn: Change = Box::new(|o: &mut FrrConfiguration| {
        o.routers[0].asn = asn(64_999);
        o.routers[0].evpn = Some("{}".to_owned());
    });
    world.frr.insert(key.clone(), Ok(Arc::new(foreign(&evpn))));
    let plan = advertise::plan(&world, RA);
    assert_eq!((plan.desired.len(), plan.keep.len()), (3, 0));
    assert!(plan.conditions[1].status, "it costs this one nothing");
    assert!(
        plan.conditions[0]
            .message
            .contains("field spec.bgp.routers[0].evpn"),
        "it is named nevertheless"
    );
    // Elsewhere nobody reads it.
    world.frr.remove(&key);
    world
        .frr
        .insert(ObjectKey::new("elsewhere", "x"), broken("ConversionFailed"));
    let plan = advertise::plan(&world, RA);
    assert_eq!(plan.desired.len(), 3);
    assert!(plan.conditions[1].status, "{:?}", plan.conditions);
}

#[test]
fn what_is_odd_in_other_peoples_objects_and_costs_nothing_is_named_in_condition_and_event() {
    let spelled = |peer: &'static str| neighbor(move |n| n.peer = Peer::Address(peer.to_owned()));
    let rows: Vec<(Change, Change, &str, &[&str])> = vec![
        (
            same(),
            spelled("172.30.0.1"),
            "SelfNeighbor",
            &["neighbors[172.30.0.1]", "node n1's own"],
        ),
        (
            spelled("fd00::9"),
            spelled("fd00:0::9"),
            "TwoSpellings",
            &["fd00:0::9", "also spelled"],
        ),
        (
            same(),
            Box::new(|o| {
                let text = "router bgp 64512\n neighbor 10.9.9.9 timers 3 9\n";
                let (priority, config) = (20, text.to_owned());
                o.raw = Some(Raw { priority, config });
            }),
            "RawUnknownNeighbor",
            &["neighbor 10.9.9.9", "node n1"],
        ),
    ];
    for (ours, theirs, reason, words) in rows {
        let mut world = existing_on(dual(mk_world()), &ours);
        let before = advertise::plan(&world, RA);
        add(&mut world, foreign(&theirs));
        let plan = advertise::plan(&world, RA);
        assert_eq!(plan.desired, before.desired, "{reason}: it is served");
        assert!(plan.conditions[1].status, "{reason}: {:?}", plan.conditions);
        let accepted = &plan.conditions[0];
        assert!(accepted.status);
        for word in [&["frr-k8s-system/metallb"], words].concat() {
            assert!(accepted.message.contains(word), "{reason}: {accepted:?}");
            let event = |p: &Problem| p.reason == reason && p.message.contains(word);
            assert!(plan.problems.iter().any(event), "{:?}", plan.problems);
        }
    }
}

#[test]
fn what_stands_stays_on_a_node_that_is_left_out_even_without_its_annotation() {
    let mut world = mk_managed();
    settle(&mut world);
    let plan = advertise::plan(&world, &fabric::base_name());
    let of_n1 =
        |o: &&Arc<FrrConfiguration>| o.node_selector.match_labels.values().any(|v| v == "n1");
    let mut bare = FrrConfiguration::clone(plan.desired.values().find(of_n1).unwrap());
    bare.annotations.clear();
    let key = bare.key.clone();
    add(&mut world, bare);
    add(
        &mut world,
        metallb(|s| s.remote_as = RemoteAs::Number(asn(65_001))),
    );
    let plan = advertise::plan(&world, &fabric::base_name());
    assert_eq!(plan.keep, [key].into());
    assert_eq!(plan.surplus, [].into());
    assert_eq!(plan.roles.len(), 3);
}

#[test]
fn two_advertisements_over_one_source_follow_its_changes_in_any_order() {
    // Two objects must not define a profile in two ways.
    let change = |s: &mut FrrConfiguration, interval: u32| {
        s.bfd_profiles = vec![profile("fast", interval)];
        let router = &mut s.routers[0];
        router.asn = asn(64_600);
        let session = &mut router.neighbors[0].session;
        (session.hold_time, session.keepalive_time) = (Some(9), Some(3));
        session.bfd_profile = Some("fast".to_owned());
    };
    let key = ObjectKey::new("frr-k8s-system", "src");
    for order in [[RA, "other"], ["other", RA]] {
        let mut world = existing(&same());
        let mut other = world.ras[RA].clone().unwrap();
        other.name = "other".to_owned();
        world.ras.insert(other.name.clone(), Ok(other));
        for ra in order {
            for object in advertise::plan(&world, ra).desired.into_values() {
                add(&mut world, object);
            }
        }
        assert_eq!(world.frr.len(), 7);
        for interval in [350, 500] {
            let mut source = world.frr[&key].clone().unwrap();
            change(Arc::make_mut(&mut source), interval);
            add(&mut world, source);
            for ra in order {
                let plan = advertise::plan(&world, ra);
                assert!(plan.conditions[1].status, "{:?}", plan.conditions);
                for object in plan.desired.into_values() {
                    add(&mut world, object);
                }
            }
            for object in world.frr.values() {
                let object = object.as_ref().unwrap();
                let router = &object.routers[0];
                assert_eq!(router.asn, asn(64_600));
                assert_eq!(router.neighbors[0].session.hold_time, Some(9));
                assert_eq!(object.bfd_profiles, [profile("fast", interval)]);
            }
        }
    }
}

#[test]
fn the_next_hop_of_a_source_is_that_of_what_is_advertised_by_it_and_can_be_changed() {
    let key = ObjectKey::new("frr-k8s-system", "src");
    let mut world = existing(&same());
    for hop in ["172.30.0.99", "172.30.0.98"] {
        let mut source = world.frr[&key].clone().unwrap();
        let neighbor = &mut Arc::make_mut(&mut source).routers[0].neighbors[0];
        neighbor.advertise.next_hops = vec![hop.parse().unwrap()];
        add(&mut world, source);
        let plan = advertise::plan(&world, RA);
        assert!(plan.conditions[1].status, "{:?}", plan.conditions);
        let node = &world.nodes[&"n1".into()];
        let source = world.frr[&key].clone().unwrap();
        // Whoever checks all objects of a node at each write takes the source before anything else was written.
        for own in [&existing(&same()).frr, &world.frr] {
            let own = own.values().filter_map(|object| object.clone().ok());
            let own = own.filter(|object| object.key != key);
            let objects: Vec<Arc<FrrConfiguration>> = own.chain([Arc::clone(&source)]).collect();
            let config = frr::merge(&NodeInput {
                name: node.name.clone(),
                labels: &node.labels,
                hostname: "n1".to_owned(),
                objects: &objects,
                passwords: &BTreeMap::new(),
            })
            .unwrap();
            let advertise = &config.routers[0].neighbors[0].advertise;
            assert_eq!(
                advertise.next_hop_v4.map(|ip| ip.to_string()).as_deref(),
                Some(hop)
            );
            assert!(
                advertise
                    .prefixes
                    .iter()
                    .any(|p| p.to_string().starts_with("10.128."))
            );
        }
        for object in plan.desired.into_values() {
            add(&mut world, object);
        }
    }
}

/// As MetalLB writes them: its addresses as /32, with community, local preference, BFD and a Secret.
fn metallb(change: impl Fn(&mut Session)) -> FrrConfiguration {
    let mut object = object(
        "metallb-n1",
        LabelSelector::label("kubernetes.io/hostname", "n1"),
    );
    let list = prefixes(&["192.0.2.1/32", "192.0.2.2/32"]);
    let router = &mut object.routers[0];
    router.asn = asn(64_512);
    router.prefixes = list.clone();
    let neighbor = &mut router.neighbors[0];
    neighbor.peer = Peer::Address("172.30.0.2".to_owned());
    (neighbor.session.hold_time, neighbor.session.keepalive_time) = (Some(9), Some(3));
    neighbor.session.connect_time = Some(2);
    neighbor.advertise.prefixes = list.clone();
    neighbor.advertise.communities = vec![("65000:100".to_owned(), list.clone())];
    neighbor.advertise.local_prefs = vec![(150, list)];
    change(&mut neighbor.session);
    object
}

#[test]
fn an_object_of_metallb_with_our_neighbor_merges_and_both_sides_prefixes_pass() {
    let mut world = mk_managed();
    let ra = world.ras.keys().next().unwrap().clone();
    settle(&mut world);
    let own = metallb(|_| ());
    add(&mut world, own.clone());
    let conditions = advertise::plan(&world, &ra).conditions;
    assert!(conditions[1].status, "{:?}", conditions[1]);
    let plan = advertise::plan(&world, &fabric::base_name());
    assert_eq!(plan.desired.len(), 6);
    assert!(!plan.desired.contains_key(&own.key) && !plan.keep.contains(&own.key));
    let node = world.nodes.values().next().unwrap();
    let own = [Arc::new(own)];
    let objects: Vec<Arc<FrrConfiguration>> = plan.desired.values().cloned().chain(own).collect();
    let config = frr::merge(&NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: "n1".to_owned(),
        objects: &objects,
        passwords: &BTreeMap::new(),
    })
    .unwrap();
    let neighbor = &config.routers[0].neighbors[0];
    let out: Vec<String> = neighbor
        .advertise
        .prefixes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(out, ["192.0.2.1/32", "192.0.2.2/32"]);
    assert_eq!(config.routers[0].prefixes.len(), 3);
    let text = frr::render(&config).to_string();
    for line in [
        "ip prefix-list noverlay-announced seq 5 permit 10.128.1.0/24",
        "route-map 172.30.0.2-out permit 60000",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
    let profile = neighbor.session.bfd_profile.as_deref();
    assert_eq!(profile, Some("noverlay-resilient"), "one side's is enough");
    assert_eq!(neighbor.advertise.local_prefs[&150].len(), 2);
    assert_eq!(neighbor.advertise.communities["65000:100"].len(), 2);
}

#[test]
fn an_object_of_metallb_that_differs_from_our_session_is_named_and_stays_as_it_is() {
    // The last one loads with nobody's objects, so that ours is written all the same.
    let rows: Vec<(FrrConfiguration, &[&str])> = vec![
        (
            metallb(|s| s.remote_as = RemoteAs::Number(asn(65_001))),
            &["neighbors[172.30.0.2].asn", "65001"],
        ),
        (
            metallb(|s| (s.hold_time, s.keepalive_time) = (Some(90), Some(30))),
            &["neighbors[172.30.0.2].holdTime", "90s", "9s"],
        ),
        (
            metallb(|s| s.connect_time = None),
            &["neighbors[172.30.0.2].connectTime", "absent or 60s", "2s"],
        ),
        (
            metallb(|s| s.password_secret = Some("peering".to_owned())),
            &["neighbors[172.30.0.2].password", "absent"],
        ),
        (
            metallb(|s| s.bfd_profile = Some("fast".to_owned())),
            &[
                "neighbors[172.30.0.2].bfdProfile",
                "noverlay-resilient",
                "fast",
            ],
        ),
        (
            metallb(|s| s.bfd_profile = Some("gone".to_owned())),
            &["bfdProfile gone is not defined", "does not load, whatever"],
        ),
    ];
    for (own, words) in rows {
        let mut world = mk_managed();
        let ra = world.ras.keys().next().unwrap().clone();
        add(&mut world, own.clone());
        let conditions = advertise::plan(&world, &ra).conditions;
        let plan = advertise::plan(&world, &fabric::base_name());
        let count = 4 + 2 * usize::from(words.contains(&"does not load, whatever"));
        assert_eq!(plan.desired.len(), count, "{words:?} {conditions:?}");
        assert!(!plan.desired.contains_key(&own.key) && !plan.keep.contains(&own.key));
        let text = &conditions[1].message;
        for word in [&["node n1: ", "frr-k8s-system/metallb-n1"], words].concat() {
            assert!(text.contains(word), "{text}");
        }
    }
}
