//! Every row of the conflict matrix, and what an object has to be by itself.

use model::frr::{BfdProfile, FrrConfiguration, Neighbor, Peer, PrefixRange, Receive, RemoteAs};
use model::selector::LabelSelector;

use crate::builders::{
    PEER, merged, mk_asn, mk_neighbor, mk_object, mk_peering, mk_prefix, mk_prefixes, mk_raw,
    mk_router,
};
use crate::config::NeighborConfig;
use crate::render::render;

type Change = fn(&mut Neighbor);

fn neighbor_with(change: Change) -> Neighbor {
    let mut neighbor = mk_neighbor(PEER);
    change(&mut neighbor);
    neighbor
}

/// The messages of the problems that merging gives, subjects in front.
fn refused(objects: &[FrrConfiguration]) -> Vec<String> {
    let problems = merged(objects).expect_err("the merge should have been refused");
    problems.iter().map(ToString::to_string).collect()
}

fn only_neighbor(objects: &[FrrConfiguration]) -> NeighborConfig {
    let config = merged(objects).expect("the merge should have worked");
    config.routers[0].neighbors[0].clone()
}

fn fast() -> BfdProfile {
    BfdProfile {
        name: "fast".to_owned(),
        receive_interval: Some(100),
        ..BfdProfile::default()
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_session_field_that_differs_between_two_objects_is_refused_with_both_values() {
    let rows: [(&str, Change, &str); 12] = [
        (
            "asn",
            |n| n.session.remote_as = RemoteAs::Number(mk_asn(65001)),
            "asn is 65001 in frr-k8s-system/c2 and 64512 in",
        ),
        (
            "dynamicASN",
            |n| n.session.remote_as = RemoteAs::Internal,
            "asn is internal in frr-k8s-system/c2 and 64512 in",
        ),
        (
            "port",
            |n| n.session.port = Some(1790),
            "port is 1790 in frr-k8s-system/c2 and absent or 179 in",
        ),
        (
            "holdTime",
            |n| (n.session.hold_time, n.session.keepalive_time) = (Some(9), Some(60)),
            "holdTime is 9s in frr-k8s-system/c2 and absent or 180s in",
        ),
        (
            "keepaliveTime",
            |n| (n.session.hold_time, n.session.keepalive_time) = (Some(180), Some(3)),
            "keepaliveTime is 3s in frr-k8s-system/c2 and absent or 60s in",
        ),
        (
            "connectTime",
            |n| n.session.connect_time = Some(5),
            "connectTime is 5s in frr-k8s-system/c2 and absent or 60s in",
        ),
        (
            "sourceaddress",
            |n| n.session.source = Some("eth1".to_owned()),
            "sourceaddress is eth1 in frr-k8s-system/c2 and absent in",
        ),
        (
            "password",
            |n| n.session.password = Some("hush".to_owned()),
            "password is a password of its own in frr-k8s-system/c2 and absent in",
        ),
        (
            "passwordSecret",
            |n| n.session.password_secret = Some("peering".to_owned()),
            "password is a password of its own in frr-k8s-system/c2 and absent in",
        ),
        (
            "ebgpMultiHop",
            |n| n.session.ebgp_multi_hop = true,
            "ebgpMultiHop is true in frr-k8s-system/c2 and false in",
        ),
        (
            "dualStackAddressFamily",
            |n| n.session.dual_stack = true,
            "dualStackAddressFamily is true in frr-k8s-system/c2 and false in",
        ),
        (
            "localASN",
            |n| n.session.local_as = Some(mk_asn(64999)),
            "localASN is 64999 in frr-k8s-system/c2 and absent in",
        ),
    ];
    for (field, change, wanted) in rows {
        let problems = refused(&[
            mk_peering("c1", &[], mk_neighbor(PEER)),
            mk_peering("c2", &[], neighbor_with(change)),
        ]);
        assert_eq!(problems.len(), 1, "{field}: {problems:?}");
        let wanted = format!("routers[vrf default].neighbors[{PEER}].{wanted} frr-k8s-system/c1");
        assert!(problems[0].contains(&wanted), "{field}: {problems:?}");
        assert!(problems[0].starts_with("FRRConfiguration/frr-k8s-system/c2: "));
        assert!(!problems[0].contains("hush") && !problems[0].contains("s3cret"));
    }
}

#[test]
fn a_value_equal_to_its_default_counts_as_absent() {
    let rows: [(&str, Change); 3] = [
        ("port", |n| n.session.port = Some(179)),
        ("timers", |n| {
            (n.session.hold_time, n.session.keepalive_time) = (Some(180), Some(60))
        }),
        ("connectTime", |n| n.session.connect_time = Some(60)),
    ];
    for (field, change) in rows {
        let neighbor = only_neighbor(&[
            mk_peering("c1", &[], mk_neighbor(PEER)),
            mk_peering("c2", &[], neighbor_with(change)),
        ]);
        assert_eq!(neighbor.session, mk_neighbor(PEER).session, "{field}");
    }
}

#[test]
fn two_as_numbers_or_router_ids_of_one_vrf_are_refused() {
    let mut other = mk_router("", &[], Vec::new());
    other.asn = mk_asn(64513);
    let problems = refused(&[
        mk_object("c1", vec![mk_router("", &[], Vec::new())]),
        mk_object("c2", vec![other]),
    ]);
    assert!(
        problems[0].contains("asn is 64513 in frr-k8s-system/c2 and 64512 in frr-k8s-system/c1")
    );

    let with_id = |name: &str, id: &str| {
        let mut router = mk_router("", &[], Vec::new());
        router.id = Some(id.to_owned());
        mk_object(name, vec![router])
    };
    let problems = refused(&[with_id("c1", "1.1.1.1"), with_id("c2", "2.2.2.2")]);
    assert!(
        problems[0].contains("id is 2.2.2.2 in frr-k8s-system/c2 and 1.1.1.1 in frr-k8s-system/c1")
    );

    let config = merged(&[
        mk_object("c0", vec![mk_router("", &[], Vec::new())]),
        with_id("c1", "1.1.1.1"),
    ])
    .unwrap();
    assert_eq!(config.routers[0].id.as_deref(), Some("1.1.1.1"));
}

#[test]
fn two_vrfs_may_have_two_as_numbers() {
    let mut blue = mk_router("blue", &["10.1.0.0/24"], Vec::new());
    blue.asn = mk_asn(64513);
    let objects = [mk_object("c1", vec![blue, mk_router("", &[], Vec::new())])];
    let config = merged(&objects).unwrap();
    let vrfs: Vec<&str> = config.routers.iter().map(|r| r.vrf.as_str()).collect();
    assert_eq!(vrfs, ["", "blue"]);
}

#[test]
fn a_bfd_profile_of_one_object_stands_and_two_names_are_refused() {
    let with_profile = |object: &str, name: &str| {
        let mut neighbor = mk_neighbor(PEER);
        neighbor.session.bfd_profile = Some(name.to_owned());
        let mut object = mk_peering(object, &[], neighbor);
        object.bfd_profiles = vec![BfdProfile {
            name: name.to_owned(),
            ..BfdProfile::default()
        }];
        object
    };
    for name in ["c0", "c2"] {
        let bare = mk_peering(name, &[], mk_neighbor(PEER));
        let neighbor = only_neighbor(&[with_profile("c1", "fast"), bare]);
        assert_eq!(neighbor.session.bfd_profile.as_deref(), Some("fast"));
    }
    let problems = refused(&[with_profile("c1", "fast"), with_profile("c2", "slow")]);
    assert!(
        problems[0]
            .contains("bfdProfile is slow in frr-k8s-system/c2 and fast in frr-k8s-system/c1")
    );
}

#[test]
fn bfd_profiles_of_one_name_have_to_be_equal() {
    let with = |name: &str, profiles: Vec<BfdProfile>| {
        let mut object = mk_object(name, Vec::new());
        object.bfd_profiles = profiles;
        object
    };
    let mut slow = fast();
    slow.receive_interval = Some(900);
    let equal = merged(&[with("c1", vec![fast()]), with("c2", vec![fast()])]).unwrap();
    assert_eq!(equal.bfd_profiles, [fast()]);
    let problems = refused(&[with("c1", vec![fast()]), with("c2", vec![slow])]);
    assert!(problems[0].contains("bfdProfiles[fast] has other values in frr-k8s-system/c2 (receiveInterval 900) than in frr-k8s-system/c1 (receiveInterval 100)"));
    let problems = refused(&[with("c1", vec![fast(), fast()])]);
    assert!(problems[0].contains("bfdProfiles[fast] is there twice in frr-k8s-system/c1"));
}

#[test]
fn graceful_restart_of_one_object_is_on_and_noted() {
    let on = mk_peering(
        "c2",
        &[],
        neighbor_with(|n| n.session.graceful_restart = true),
    );
    let config = merged(&[mk_peering("c1", &[], mk_neighbor(PEER)), on]).unwrap();
    assert!(config.routers[0].neighbors[0].session.graceful_restart);
    assert_eq!(config.notes.len(), 1);
    assert_eq!(config.notes[0].reason, "GracefulRestartDiffers");
}

#[test]
fn two_local_preferences_or_next_hops_are_refused_and_equal_ones_are_not() {
    let with_pref = |name: &str, value: u32| {
        let mut neighbor = mk_neighbor(PEER);
        neighbor.advertise.prefixes = mk_prefixes(&["10.128.1.0/24"]);
        neighbor.advertise.local_prefs = vec![(value, mk_prefixes(&["10.128.1.0/24"]))];
        mk_peering(name, &["10.128.1.0/24"], neighbor)
    };
    let problems = refused(&[with_pref("c1", 100), with_pref("c2", 200)]);
    assert!(problems[0].contains("withLocalPref of prefix 10.128.1.0/24 is 200 in frr-k8s-system/c2 and 100 in frr-k8s-system/c1"));
    assert!(merged(&[with_pref("c1", 100), with_pref("c2", 100)]).is_ok());

    let with_hop = |name: &str, hop: &str| {
        let mut neighbor = mk_neighbor(PEER);
        neighbor.advertise.next_hops = vec![hop.parse().unwrap()];
        mk_peering(name, &[], neighbor)
    };
    let problems = refused(&[with_hop("c1", "192.0.2.1"), with_hop("c2", "192.0.2.2")]);
    assert!(
        problems[0].contains(
            "nextHop is 192.0.2.2 in frr-k8s-system/c2 and 192.0.2.1 in frr-k8s-system/c1"
        )
    );
    let bare = mk_peering("c2", &[], mk_neighbor(PEER));
    let neighbor = only_neighbor(&[with_hop("c1", "192.0.2.1"), bare]);
    assert_eq!(
        neighbor.advertise.next_hop_v4,
        Some("192.0.2.1".parse().unwrap())
    );
    let problems = refused(&[with_hop("c1", "fd00::1")]);
    assert!(problems[0].contains("nextHop fd00::1, but the session carries ipv4 only"));
}

#[test]
fn a_neighbor_that_stands_twice_in_one_object_is_merged_like_two_objects() {
    let first = neighbor_with(|n| n.receive.prefixes = vec![range("10.200.0.0/16")]);
    let second = neighbor_with(|n| n.receive.prefixes = vec![range("10.201.0.0/16")]);
    let object = mk_object("c1", vec![mk_router("", &[], vec![first, second])]);
    assert_eq!(only_neighbor(&[object]).receive.prefixes.len(), 2);

    let other = neighbor_with(|n| n.session.port = Some(1790));
    let routers = vec![mk_router("", &[], vec![mk_neighbor(PEER), other])];
    assert_eq!(refused(&[mk_object("c1", routers)]).len(), 1);
}

fn range(prefix: &str) -> PrefixRange {
    PrefixRange {
        prefix: mk_prefix(prefix),
        ge: None,
        le: None,
    }
}

#[test]
fn receiving_everything_beats_receiving_some() {
    let some = neighbor_with(|n| n.receive.prefixes = vec![range("10.200.0.0/16")]);
    let all = neighbor_with(|n| {
        n.receive = Receive {
            all: true,
            prefixes: Vec::new(),
        };
    });
    let neighbor = only_neighbor(&[mk_peering("c1", &[], some), mk_peering("c2", &[], all)]);
    assert!(neighbor.receive.all && neighbor.receive.prefixes.is_empty());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_object_has_to_stand_for_itself() {
    let rows: [(&str, Change, &str); 10] = [
        (
            "foreign prefix",
            |n| n.advertise.prefixes = mk_prefixes(&["10.9.9.0/24"]),
            "toAdvertise names prefix 10.9.9.0/24, which is not in prefixes",
        ),
        (
            "family",
            |n| n.advertise.prefixes = mk_prefixes(&["fd00:1::/64"]),
            "toAdvertise names prefix fd00:1::/64, but the session carries ipv4 only",
        ),
        (
            "profile",
            |n| n.session.bfd_profile = Some("nope".to_owned()),
            "bfdProfile nope is not defined",
        ),
        (
            "local AS",
            |n| n.session.local_as = Some(mk_asn(64512)),
            "localASN 64512 is the router's own asn",
        ),
        (
            "timers",
            |n| n.session.hold_time = Some(9),
            "holdTime and keepaliveTime are set together",
        ),
        (
            "secret",
            |n| n.session.password_secret = Some("gone".to_owned()),
            "passwordSecret gone: there is no Secret",
        ),
        (
            "local pref",
            |n| n.advertise.local_prefs = vec![(100, mk_prefixes(&["10.1.0.0/24"]))],
            "withLocalPref 100 names prefix 10.1.0.0/24, which toAdvertise does not allow",
        ),
        (
            "community",
            |n| n.advertise.communities = vec![("1:2".to_owned(), mk_prefixes(&["10.1.0.0/24"]))],
            "withCommunity 1:2 names prefix 10.1.0.0/24, which toAdvertise does not allow",
        ),
        (
            "community text",
            |n| n.advertise.communities = vec![("70000:2".to_owned(), Vec::new())],
            "withCommunity 70000:2 is no community",
        ),
        (
            "community twice",
            |n| {
                n.advertise.communities = vec![
                    ("1:2".to_owned(), Vec::new()),
                    ("01:2".to_owned(), Vec::new()),
                ]
            },
            "withCommunity 01:2 is there twice",
        ),
    ];
    for (what, change, wanted) in rows {
        let object = mk_peering("c1", &["10.1.0.0/24", "fd00:1::/64"], neighbor_with(change));
        let owner = mk_object("c2", vec![mk_router("", &["10.9.9.0/24"], Vec::new())]);
        let problems = refused(&[object, owner]);
        assert_eq!(problems.len(), 1, "{what}: {problems:?}");
        assert!(problems[0].contains(wanted), "{what}: {problems:?}");
        let place = "FRRConfiguration/frr-k8s-system/c1: routers[vrf default].neighbors[172.31.9.2] of frr-k8s-system/c1: ";
        assert!(problems[0].starts_with(place), "{what}: {problems:?}");
    }
}

#[test]
fn imports_name_routers_of_the_same_object() {
    let mut importing = mk_router("", &[], Vec::new());
    importing.imports = vec!["red".to_owned()];
    let red = mk_object("c2", vec![mk_router("red", &[], Vec::new())]);
    let problems = refused(&[mk_object("c1", vec![importing]), red]);
    assert!(problems[0].contains("routers[vrf default].imports names VRF red"));

    let mut blue = mk_router("blue", &[], Vec::new());
    blue.imports = vec!["default".to_owned()];
    let problems = refused(&[mk_object("c1", vec![blue])]);
    assert!(problems[0].contains("routers[vrf blue].imports names VRF default"));
}

#[test]
fn imported_prefixes_may_be_advertised() {
    let mut neighbor = mk_neighbor(PEER);
    neighbor.advertise.prefixes = mk_prefixes(&["10.128.2.0/24"]);
    let mut router = mk_router("", &["10.128.1.0/24"], vec![neighbor]);
    router.imports = vec!["blue".to_owned()];
    let blue = mk_router("blue", &["10.128.2.0/24"], Vec::new());
    let config = merged(&[mk_object("c1", vec![router, blue])]).unwrap();
    assert_eq!(config.routers[0].prefixes.len(), 1);
    assert!(config.routers[0].imports.contains("blue"));
}

#[test]
fn all_takes_the_prefixes_of_its_own_object_and_skips_the_other_family() {
    let everything = neighbor_with(|n| n.advertise.all = true);
    let neighbor = only_neighbor(&[
        mk_peering("c1", &["10.1.0.0/24", "fd00:1::/64"], everything),
        mk_peering("c2", &["10.2.0.0/24"], mk_neighbor(PEER)),
    ]);
    let prefixes: Vec<String> = neighbor
        .advertise
        .prefixes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(prefixes, ["10.1.0.0/24"]);
}

#[test]
fn a_secret_gives_the_password_and_may_not_stand_beside_one() {
    let secret = neighbor_with(|n| n.session.password_secret = Some("peering".to_owned()));
    let plain = neighbor_with(|n| n.session.password = Some("s3cret".to_owned()));
    let neighbor = only_neighbor(&[
        mk_peering("c1", &[], secret.clone()),
        mk_peering("c2", &[], plain),
    ]);
    assert_eq!(neighbor.session.password.as_deref(), Some("s3cret"));
    let mut both = secret;
    both.session.password = Some("other".to_owned());
    let problems = refused(&[mk_peering("c1", &[], both)]);
    assert!(problems[0].contains("password and passwordSecret peering are both set"));
}

#[test]
fn all_conflicts_are_reported_at_once() {
    let other = neighbor_with(|n| {
        n.session.remote_as = RemoteAs::External;
        n.session.connect_time = Some(5);
        n.session.bfd_profile = Some("nope".to_owned());
    });
    let objects = [
        mk_peering("c1", &[], mk_neighbor(PEER)),
        mk_peering("c2", &[], other),
        mk_peering("c3", &[], neighbor_with(|n| n.session.port = Some(1))),
    ];
    assert_eq!(refused(&objects).len(), 4);
}

#[test]
fn only_objects_that_select_the_node_count() {
    let mut foreign = mk_peering("c2", &[], neighbor_with(|n| n.session.port = Some(1)));
    foreign.node_selector = LabelSelector::label("kubernetes.io/hostname", "node2");
    let mut own = mk_peering("c1", &[], mk_neighbor(PEER));
    own.node_selector = LabelSelector::label("kubernetes.io/hostname", "node1");
    let config = merged(&[foreign, own]).unwrap();
    assert_eq!(config.routers[0].neighbors[0].session.port, None);
}

#[test]
fn raw_text_is_ordered_by_priority_then_name() {
    let config = merged(&[
        mk_raw("b", 5, "two"),
        mk_raw("a", 5, "one"),
        mk_raw("z", -1, "zero"),
    ])
    .unwrap();
    let texts: Vec<&str> = config.raw.iter().map(|raw| raw.config.as_str()).collect();
    assert_eq!(texts, ["zero", "one", "two"]);
}

/// Every order of the objects.
fn permutations(objects: &[FrrConfiguration]) -> Vec<Vec<FrrConfiguration>> {
    if objects.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for index in 0..objects.len() {
        let mut rest = objects.to_vec();
        let first = rest.remove(index);
        for mut tail in permutations(&rest) {
            tail.insert(0, first.clone());
            all.push(tail);
        }
    }
    all
}

#[test]
fn the_order_of_objects_does_not_matter_to_the_byte() {
    let unnumbered = |name: &str| {
        let mut neighbor = mk_neighbor("f1");
        neighbor.peer = Peer::Interface("f1".to_owned());
        neighbor.advertise.all = true;
        mk_peering(name, &["10.3.0.0/24", "fd00:3::/64"], neighbor)
    };
    let modified = neighbor_with(|n| {
        n.advertise.all = true;
        n.advertise.local_prefs = vec![(150, mk_prefixes(&["10.1.0.0/24"]))];
        n.advertise.communities = vec![("65000:1".to_owned(), mk_prefixes(&["10.1.0.0/24"]))];
        n.session.graceful_restart = true;
    });
    let mut profiled = mk_raw("c4", 0, "line one");
    profiled.bfd_profiles = vec![fast()];
    let objects = [
        mk_peering("c1", &["10.1.0.0/24"], modified),
        mk_peering(
            "c2",
            &["10.2.0.0/24"],
            neighbor_with(|n| n.receive.all = true),
        ),
        unnumbered("c3"),
        profiled,
    ];
    let wanted = merged(&objects).unwrap();
    for order in permutations(&objects) {
        let config = merged(&order).unwrap();
        assert_eq!(config, wanted);
        assert_eq!(render(&config), render(&wanted));
    }
    let conflicting = [
        mk_peering("c1", &[], neighbor_with(|n| n.session.port = Some(1))),
        mk_peering("c2", &[], neighbor_with(|n| n.session.port = Some(2))),
        mk_peering(
            "c3",
            &[],
            neighbor_with(|n| n.session.connect_time = Some(5)),
        ),
    ];
    for order in permutations(&conflicting) {
        assert_eq!(refused(&order), refused(&conflicting));
    }
}
