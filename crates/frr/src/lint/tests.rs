//! Each lint with an input that has it and one that has not.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::frr::{FrrConfiguration, Neighbor, PrefixRange};

use crate::builders::{
    PEER, merged, mk_neighbor, mk_object, mk_peering, mk_prefix, mk_raw, mk_router,
};
use crate::lint::{Listening, Speaker, bgp_listen_disabled, lint, refused, without_self};

fn own(addresses: &[&str]) -> BTreeSet<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

/// Reasons and messages of the lints; the node's own address is 172.31.9.1.
fn lints(objects: &[FrrConfiguration]) -> Vec<(&'static str, String)> {
    let config = merged(objects).expect("the objects should merge");
    lint(&config, &own(&["172.31.9.1", "fd00:31::1"]))
        .into_iter()
        .map(|problem| (problem.reason, problem.to_string()))
        .collect()
}

fn timers(hold: u64, keepalive: u64) -> Neighbor {
    let mut neighbor = mk_neighbor(PEER);
    neighbor.session.hold_time = Some(hold);
    neighbor.session.keepalive_time = Some(keepalive);
    neighbor
}

#[test]
fn a_neighbor_that_is_the_node_itself_is_found_in_every_spelling() {
    for address in ["172.31.9.1", "fd00:31::1", "FD00:31:0::1"] {
        let found = lints(&[mk_peering("c1", &[], mk_neighbor(address))]);
        assert_eq!(found.len(), 1, "{address}: {found:?}");
        assert_eq!(found[0].0, "SelfNeighbor");
        assert!(
            found[0]
                .1
                .contains(&format!("neighbors[{address}] of frr-k8s-system/c1"))
        );
    }
    assert!(lints(&[mk_peering("c1", &[], mk_neighbor(PEER))]).is_empty());
}

#[test]
fn the_node_itself_is_left_out_and_reported() {
    let neighbors = vec![mk_neighbor("172.31.9.1"), mk_neighbor(PEER)];
    let config = merged(&[mk_object("c1", vec![mk_router("", &[], neighbors)])]).unwrap();
    let (config, problems) = without_self(config, &own(&["172.31.9.1"]));
    let left: Vec<&str> = config.routers[0]
        .neighbors
        .iter()
        .map(|n| n.peer.as_str())
        .collect();
    assert_eq!(left, [PEER]);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].subject, "FRRConfiguration/frr-k8s-system/c1");
    let (same, none) = without_self(config.clone(), &own(&["172.31.9.1"]));
    assert!(same == config && none.is_empty());
}

#[test]
fn one_peer_under_two_spellings_is_reported_with_both() {
    let neighbors = vec![mk_neighbor("fd00:30::2"), mk_neighbor("fd00:30:0::2")];
    let found = lints(&[mk_object("c1", vec![mk_router("", &[], neighbors)])]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "TwoSpellings");
    assert!(found[0].1.contains("fd00:30:0::2") && found[0].1.contains("fd00:30::2"));
    let vrfs = ["", "blue"].map(|vrf| mk_router(vrf, &[], vec![mk_neighbor(PEER)]));
    assert!(lints(&[mk_object("c1", vrfs.to_vec())]).is_empty());
}

#[test]
fn timers_that_are_silently_dropped_are_reported() {
    let rows = [
        (180, 30, Some("holdTime 180s is the default")),
        (90, 60, Some("keepaliveTime 60s is the default")),
        (180, 60, None),
        (9, 3, None),
        (0, 0, None),
    ];
    for (hold, keepalive, wanted) in rows {
        let found = lints(&[mk_peering("c1", &[], timers(hold, keepalive))]);
        assert_eq!(
            found.len(),
            usize::from(wanted.is_some()),
            "{hold}/{keepalive}"
        );
        if let Some(wanted) = wanted {
            assert!(found[0].1.contains(wanted), "{found:?}");
        }
    }
    let mut neighbor = mk_neighbor(PEER);
    neighbor.session.connect_time = Some(60);
    let found = lints(&[mk_peering("c1", &[], neighbor)]);
    assert!(found[0].1.contains("connectTime 60s"), "{found:?}");
}

#[test]
fn lengths_beyond_the_family_are_reported_with_field_and_value() {
    let mut neighbor = mk_neighbor(PEER);
    let range = |prefix: &str, le: u8| PrefixRange {
        prefix: mk_prefix(prefix),
        ge: None,
        le: Some(le),
    };
    neighbor.receive.prefixes = vec![
        range("10.0.0.0/8", 64),
        range("10.1.0.0/16", 32),
        range("fd00::/48", 64),
    ];
    let mut found = lints(&[mk_peering("c1", &[], neighbor)]);
    found.retain(|(reason, _)| *reason == "PrefixLength");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.contains("toReceive prefix 10.0.0.0/8 has le 64"),
        "{found:?}"
    );
}

#[test]
fn white_space_in_a_password_is_reported_without_the_password() {
    let mut neighbor = mk_neighbor(PEER);
    neighbor.session.password = Some("two words".to_owned());
    let found = lints(&[mk_peering("c1", &[], neighbor)]);
    assert_eq!(found[0].0, "PasswordWhitespace");
    assert!(!found[0].1.contains("two words"));
}

#[test]
fn raw_text_may_name_configured_and_declared_neighbors_only() {
    let typed = mk_peering("c1", &[], mk_neighbor(PEER));
    let rows = [
        (
            "router bgp 64512\n address-family ipv4 unicast\n  neighbor 172.31.9.2 route-reflector-client\n",
            None,
        ),
        (
            "router bgp 64512\n neighbor 172.31.9.7 route-reflector-client\n",
            Some("neighbor 172.31.9.7 in VRF default"),
        ),
        (
            "router bgp 64512 vrf blue\n neighbor 172.31.9.2 shutdown\n",
            Some("neighbor 172.31.9.2 in VRF blue"),
        ),
        (
            "router bgp 64512\n neighbor RR peer-group\n neighbor RR remote-as 64512\n neighbor RR activate\n",
            None,
        ),
        ("router ospf\n neighbor 10.0.0.1\n", None),
    ];
    for (raw, wanted) in rows {
        let mut found = lints(&[typed.clone(), mk_raw("c2", 0, raw)]);
        found.retain(|(reason, _)| *reason == "RawUnknownNeighbor");
        assert_eq!(
            found.len(),
            usize::from(wanted.is_some()),
            "{raw}: {found:?}"
        );
        if let Some(wanted) = wanted {
            assert!(found[0].1.contains(wanted), "{found:?}");
            assert!(
                found[0]
                    .1
                    .starts_with("FRRConfiguration/frr-k8s-system/c2: ")
            );
        }
    }
}

#[test]
fn what_the_merge_decided_by_itself_is_reported_too() {
    let fast = |graceful_restart| {
        let mut neighbor = mk_neighbor(PEER);
        neighbor.session.graceful_restart = graceful_restart;
        neighbor.session.bfd_profile = Some("fast".to_owned());
        neighbor
    };
    let object = |name: &str, neighbor| {
        let mut object = mk_peering(name, &[], neighbor);
        object.bfd_profiles = vec![mk_profile("fast")];
        object
    };
    let objects = [object("c1", fast(true)), object("c2", fast(false))];
    let found = lints(&objects);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "GracefulRestartDiffers");
    assert!(found[0].1.contains("neighbors[172.31.9.2].enableGracefulRestart is false in frr-k8s-system/c2 and true in frr-k8s-system/c1"));
}

fn mk_profile(name: &str) -> model::frr::BfdProfile {
    model::frr::BfdProfile {
        name: name.to_owned(),
        ..Default::default()
    }
}

/// An object that is right, after a change.
fn changed(change: impl Fn(&mut FrrConfiguration)) -> FrrConfiguration {
    let mut object = mk_peering("c1", &["10.128.1.0/24"], mk_neighbor(PEER));
    object.bfd_profiles = vec![mk_profile("fast")];
    change(&mut object);
    object
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_value_that_frr_refuses_or_that_never_works_is_reported_with_object_and_field() {
    type Change = Box<dyn Fn(&mut FrrConfiguration)>;
    fn neighbor(change: impl Fn(&mut Neighbor) + 'static) -> Change {
        Box::new(move |object| change(&mut object.routers[0].neighbors[0]))
    }
    // Change, reason, words; true where FRR refuses the whole file.
    let rows: Vec<(Change, &str, &str, bool)> = vec![
        (
            Box::new(|o| o.routers[0].id = Some("1.1.1".to_owned())),
            "RouterId",
            "routers[vrf default] of frr-k8s-system/c1: id \"1.1.1\" is not an IPv4 address",
            true,
        ),
        (
            Box::new(|o| o.routers[0].vrf = "my vrf".to_owned()),
            "WhiteSpace",
            "vrf \"my vrf\" contains white space",
            true,
        ),
        (
            Box::new(|o| o.routers[0].imports = vec![String::new()]),
            "ImportEmpty",
            "routers[vrf default] of frr-k8s-system/c1: imports has an entry without a VRF",
            true,
        ),
        (
            neighbor(|n| n.session.source = Some("eth 0".to_owned())),
            "WhiteSpace",
            "neighbors[172.31.9.2] of frr-k8s-system/c1: sourceaddress \"eth 0\" contains",
            true,
        ),
        (
            Box::new(|o| {
                o.bfd_profiles.push(mk_profile("two words"));
                o.routers[0].neighbors[0].session.bfd_profile = Some("two words".to_owned());
            }),
            "WhiteSpace",
            "bfdProfile \"two words\" contains",
            true,
        ),
        (
            Box::new(|o| o.bfd_profiles.push(mk_profile("two words"))),
            "WhiteSpace",
            "bfdProfiles[two words] of frr-k8s-system/c1: the name contains",
            true,
        ),
        (
            neighbor(|n| n.session.password = Some("two words".to_owned())),
            "PasswordWhitespace",
            "neighbors[172.31.9.2] of frr-k8s-system/c1: the password contains",
            true,
        ),
        (
            neighbor(|n| n.session.password = Some("x".repeat(81))),
            "PasswordLength",
            "neighbors[172.31.9.2] of frr-k8s-system/c1: the password has 81 bytes; FRR takes at most 80",
            true,
        ),
        (
            neighbor(|n| {
                n.receive.prefixes = vec![PrefixRange {
                    prefix: mk_prefix("10.0.0.0/8"),
                    ge: Some(40),
                    le: None,
                }];
            }),
            "PrefixLength",
            "toReceive prefix 10.0.0.0/8 has ge 40",
            true,
        ),
        (
            neighbor(|n| {
                n.receive.prefixes = vec![PrefixRange {
                    prefix: mk_prefix("fd00::/48"),
                    ge: None,
                    le: None,
                }];
            }),
            "ReceiveFamily",
            "toReceive names prefix fd00::/48, but the session carries ipv4 only",
            false,
        ),
        (
            neighbor(|n| n.session.graceful_restart = true),
            "RestartWithoutBfd",
            "neighbors[172.31.9.2] of frr-k8s-system/c1: enableGracefulRestart without bfdProfile",
            false,
        ),
    ];
    assert!(lints(&[changed(|_| {})]).is_empty());
    for (change, reason, words, fatal) in rows {
        let object = changed(change);
        let found = lints(std::slice::from_ref(&object));
        assert_eq!(found.len(), 1, "{words}: {found:?}");
        assert_eq!(found[0].0, reason);
        let message = &found[0].1;
        assert!(
            message.starts_with("FRRConfiguration/frr-k8s-system/c1: ") && message.contains(words),
            "{message}"
        );
        let refused = refused(&merged(&[object]).unwrap());
        assert_eq!(!refused.is_empty(), fatal, "{message}");
    }
}

#[test]
fn mode_all_in_an_object_without_prefixes_of_its_own_is_reported() {
    let mut all = mk_neighbor(PEER);
    all.advertise.all = true;
    let other = mk_object("c2", vec![mk_router("", &["10.128.1.0/24"], Vec::new())]);
    let found = lints(&[mk_peering("c1", &[], all.clone()), other.clone()]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "AllOfNothing");
    for words in [
        "FRRConfiguration/frr-k8s-system/c1: routers[vrf default].neighbors[172.31.9.2].toAdvertise.allowed.mode is all",
        "10.128.1.0/24 of frr-k8s-system/c2 is not advertised",
    ] {
        assert!(found[0].1.contains(words), "{found:?}");
    }
    // With prefixes of its own, with those of another family only, or where another object lets them out, all is well.
    let mut listed = mk_neighbor(PEER);
    listed.advertise.prefixes = vec![mk_prefix("10.128.1.0/24")];
    let v6 = mk_object("c2", vec![mk_router("", &["fd00::/64"], Vec::new())]);
    for objects in [
        vec![mk_peering("c1", &["10.128.9.0/24"], all.clone()), other],
        vec![mk_peering("c1", &[], all.clone()), v6],
        vec![
            mk_peering("c1", &[], all.clone()),
            mk_peering("c2", &["10.128.1.0/24"], listed),
        ],
        vec![mk_peering("c1", &[], all)],
    ] {
        assert!(lints(&objects).is_empty(), "{:?}", lints(&objects));
    }
}

#[test]
fn a_reflector_whose_clients_filters_let_nothing_reflected_out_is_reported() {
    let typed = mk_peering("c1", &[], mk_neighbor(PEER));
    let client = "router bgp 64512\n address-family ipv4 unicast\n  neighbor 172.31.9.2 route-reflector-client\n";
    let rows = [
        ("", true),
        ("route-map 172.31.9.2-out permit 60000\n", false),
        (
            "ip prefix-list 172.31.9.2-allowed-ipv4 seq 900 permit 10.128.0.0/16 le 24\n",
            false,
        ),
        (
            "router bgp 64512\n neighbor 172.31.9.2 route-map wide out\n",
            false,
        ),
        ("route-map 172.31.9.3-out permit 60000\n", true),
    ];
    for (more, reported) in rows {
        let raw = mk_raw("c2", 0, &format!("{client}{more}"));
        let found = lints(&[typed.clone(), raw]);
        assert_eq!(found.len(), usize::from(reported), "{more}: {found:?}");
        if reported {
            assert_eq!(found[0].0, "ReflectsNothing");
            assert!(
                found[0]
                    .1
                    .contains("raw.rawConfig of frr-k8s-system/c2 makes neighbor 172.31.9.2")
            );
        }
    }
}

#[test]
fn entries_that_raw_text_writes_a_second_time_are_reported() {
    let typed = mk_peering("c1", &[], mk_neighbor(PEER));
    let rows = [
        (
            "route-map 172.31.9.2-in permit 3\n set weight 5\n",
            "",
            Some("route-map 172.31.9.2-in 3, which the generated text"),
        ),
        (
            "route-map mine permit 10\n set weight 5\n",
            "route-map mine permit 10\n set weight 6\n",
            Some("route-map mine 10, which raw.rawConfig of frr-k8s-system/c2"),
        ),
        (
            "ip prefix-list l seq 5 permit any\n",
            "ip prefix-list l seq 5 deny any\n",
            Some("ip prefix-list l seq 5, which raw.rawConfig of frr-k8s-system/c2"),
        ),
        (
            "ip prefix-list l seq 5 permit any\n",
            "ip prefix-list l seq 5 permit any\n",
            None,
        ),
        (
            "ip prefix-list l seq 5 permit any\n",
            "ipv6 prefix-list l seq 5 deny any\n",
            None,
        ),
        (
            "route-map mine permit 10\n",
            "route-map mine permit 20\n",
            None,
        ),
        (
            "route-map mine deny 10\n match ip address prefix-list l\nexit\nrouter bgp 1\n",
            "route-map mine deny 10\n match  ip address prefix-list l\nexit\n",
            None,
        ),
        (
            "route-map mine deny 10\nmatch ip address prefix-list l\n",
            "route-map mine deny 10\n\n\tmatch ip address prefix-list k\n",
            Some("route-map mine 10, which raw.rawConfig of frr-k8s-system/c2"),
        ),
        (
            "route-map mine deny 10\n match ip address prefix-list l\nexit\n",
            "route-map mine deny 10\n match ip address prefix-list k\nexit\n",
            Some("route-map mine 10, which raw.rawConfig of frr-k8s-system/c2"),
        ),
    ];
    for (first, second, wanted) in rows {
        let found = lints(&[
            typed.clone(),
            mk_raw("c2", 0, first),
            mk_raw("c3", 0, second),
        ]);
        assert_eq!(found.len(), usize::from(wanted.is_some()), "{found:?}");
        if let Some(wanted) = wanted {
            assert_eq!(found[0].0, "RawClash");
            assert!(found[0].1.contains(wanted), "{found:?}");
        }
    }
}

#[test]
fn a_session_that_neither_end_accepts_is_reported_and_what_is_not_known_is_not() {
    let neighbors = vec![
        mk_neighbor(PEER),
        mk_neighbor("172.31.9.3"),
        mk_neighbor("172.31.9.99"),
    ];
    let config = merged(&[mk_object("c1", vec![mk_router("", &[], neighbors)])]).unwrap();
    let speaker = |name: &str, address: &str, listening| Speaker {
        node: name.into(),
        addresses: own(&[address]),
        listening,
    };
    let rows = [
        (
            Listening::No,
            Listening::No,
            Listening::Yes,
            vec!["172.31.9.2"],
        ),
        (
            Listening::No,
            Listening::No,
            Listening::No,
            vec!["172.31.9.2", "172.31.9.3"],
        ),
        (Listening::No, Listening::Unknown, Listening::Yes, vec![]),
        (Listening::Yes, Listening::No, Listening::No, vec![]),
        (Listening::Unknown, Listening::No, Listening::No, vec![]),
    ];
    for (here, second, third, reported) in rows {
        let peers = [
            speaker("node2", PEER, second),
            speaker("node3", "172.31.9.3", third),
        ];
        let found = bgp_listen_disabled(&config, here, &peers);
        assert_eq!(found.len(), reported.len(), "{found:?}");
        for (problem, peer) in found.iter().zip(reported) {
            assert_eq!(problem.reason, "BGPListenDisabled");
            assert_eq!(problem.subject, "FRRConfiguration/frr-k8s-system/c1");
            assert!(problem.message.contains(&format!(
                "neighbors[{peer}] of frr-k8s-system/c1: address is node "
            )));
        }
    }
}
