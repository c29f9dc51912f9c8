//! Each lint with an input that has it and one that has not.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::frr::{FrrConfiguration, Neighbor, PrefixRange};

use crate::builders::{
    PEER, merged, mk_neighbor, mk_object, mk_peering, mk_prefix, mk_raw, mk_router,
};
use crate::lint::{lint, without_self};

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
fn the_node_itself_is_left_out_and_told() {
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
fn one_peer_under_two_spellings_is_told_with_both() {
    let neighbors = vec![mk_neighbor("fd00:30::2"), mk_neighbor("fd00:30:0::2")];
    let found = lints(&[mk_object("c1", vec![mk_router("", &[], neighbors)])]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "TwoSpellings");
    assert!(found[0].1.contains("fd00:30:0::2") && found[0].1.contains("fd00:30::2"));
    let vrfs = ["", "blue"].map(|vrf| mk_router(vrf, &[], vec![mk_neighbor(PEER)]));
    assert!(lints(&[mk_object("c1", vrfs.to_vec())]).is_empty());
}

#[test]
fn timers_that_are_silently_dropped_are_told() {
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
fn lengths_beyond_the_family_are_told_with_field_and_value() {
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
    let found = lints(&[mk_peering("c1", &[], neighbor)]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.contains("toReceive prefix 10.0.0.0/8 has le 64"),
        "{found:?}"
    );
}

#[test]
fn white_space_in_a_password_is_told_without_the_password() {
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
        let found = lints(&[typed.clone(), mk_raw("c2", 0, raw)]);
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
fn what_the_merge_decided_by_itself_is_told_too() {
    let mut restarting = mk_neighbor(PEER);
    restarting.session.graceful_restart = true;
    let objects = [
        mk_peering("c1", &[], restarting),
        mk_peering("c2", &[], mk_neighbor(PEER)),
    ];
    assert_eq!(lints(&objects)[0].0, "GracefulRestartDiffers");
}
