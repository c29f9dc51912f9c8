//! The two objects of a member.

use super::*;
use crate::samples::{mk_node, mk_world};
use model::address::ClusterSubnet;

fn mk_received(texts: &[&str]) -> Received {
    let mut out = Received::new();
    for text in texts {
        let range: ClusterSubnet = text.parse().unwrap();
        let family = range.cidr.family();
        out.entry(family).or_default().push(PrefixRange {
            prefix: range.cidr,
            ge: Some(range.host_len),
            le: Some(range.host_len),
        });
    }
    out
}

#[test]
fn the_list_of_a_member_has_its_own_prefixes_and_that_of_a_reflector_all_that_may_be_announced() {
    let own = ["10.128.3.0/24", "fd00:10:3::/64"].map(|text| text.parse().unwrap());
    assert_eq!(
        list(own.into_iter(), None),
        "ip prefix-list noverlay-announced seq 5 permit 10.128.3.0/24\n\
         ipv6 prefix-list noverlay-announced seq 5 permit fd00:10:3::/64\n"
    );
    let mut received = mk_received(&["10.128.0.0/14/23", "fd00:10::/48/64"]);
    let whole = PrefixRange {
        prefix: "10.1.0.0/24".parse().unwrap(),
        ge: Some(24),
        le: Some(24),
    };
    received.entry(Family::V4).or_default().push(whole);
    assert_eq!(
        list(own.into_iter(), Some(&received)),
        "ip prefix-list noverlay-announced seq 5 permit 10.128.3.0/24\n\
         ipv6 prefix-list noverlay-announced seq 5 permit fd00:10:3::/64\n\
         ip prefix-list noverlay-announced seq 10 permit 10.128.0.0/14 ge 23 le 23\n\
         ip prefix-list noverlay-announced seq 15 permit 10.1.0.0/24\n\
         ipv6 prefix-list noverlay-announced seq 10 permit fd00:10::/48 ge 64 le 64\n"
    );
}

#[test]
fn a_running_configuration_is_that_of_a_reflector_where_the_list_has_all_ranges() {
    let received = mk_received(&["10.128.0.0/14/23", "fd00:10::/48/64"]);
    let own = || ["10.128.2.0/23".parse().unwrap()].into_iter();
    assert!(passes_on(&list(own(), Some(&received)), &received));
    assert!(!passes_on(&list(own(), None), &received));
    let other = list(own(), Some(&received)).replace(LIST, "another-list");
    assert!(!passes_on(&other, &received));
    // One family only.
    let half = mk_received(&["10.128.0.0/14/23"]);
    assert!(!passes_on(&list(own(), Some(&half)), &received));
    assert!(!passes_on("", &received));
}

#[test]
fn a_peer_object_has_both_families_and_selects_neither_the_node_nor_who_has_its_address() {
    let world = mk_world();
    let settings = world.fabric.unwrap();
    let mut node = mk_node("n3", "172.30.0.3", Some(4), None);
    node.internal_ips.push("fd00:30::3".parse().unwrap());
    let received = mk_received(&["10.128.0.0/14/23", "fd00:10::/48/64"]);
    let others = BTreeSet::from(["twin"]);
    let object = peer(
        &settings,
        (&node, &node.internal_ips.iter().copied().collect()),
        true,
        &others,
        &received,
    )
    .unwrap();
    let labels = |host: &str, role: Option<Role>| {
        let host = (HOSTNAME_LABEL.to_owned(), host.to_owned());
        let role = role.map(|role| (ROLE_LABEL.to_owned(), role.word().to_owned()));
        [host].into_iter().chain(role).collect::<Labels>()
    };
    let loads =
        |object: &FrrConfiguration, host, role| object.node_selector.matches(&labels(host, role));
    assert!(loads(&object, "n1", Some(Role::Member)));
    assert!(loads(&object, "n1", Some(Role::Reflector)));
    for (host, role) in [
        ("n3", Some(Role::Member)),
        ("twin", Some(Role::Member)),
        ("n1", None),
    ] {
        assert!(!loads(&object, host, role), "{host} {role:?}");
    }
    let narrow = peer(
        &settings,
        (&node, &node.internal_ips.iter().copied().collect()),
        false,
        &others,
        &received,
    )
    .unwrap();
    assert!(!loads(&narrow, "n1", Some(Role::Member)));
    assert!(loads(&narrow, "n1", Some(Role::Reflector)));
    assert!(!loads(&narrow, "n3", Some(Role::Reflector)));
    let router = &object.routers[0];
    let neighbors = router.neighbors.iter();
    let taken = neighbors.map(|n| (n.peer.as_str(), n.receive.prefixes.len()));
    assert_eq!(
        taken.collect::<Vec<_>>(),
        [("172.30.0.3", 1), ("fd00:30::3", 1)]
    );
    assert_eq!(
        object.raw.unwrap().config,
        "route-map 172.30.0.3-out permit 60000\n match ip address prefix-list noverlay-announced\nexit\n\
         route-map fd00:30::3-out permit 60000\n match ipv6 address prefix-list noverlay-announced\nexit\n\
         router bgp 64512\n \
         address-family ipv4 unicast\n  neighbor 172.30.0.3 route-reflector-client\n exit-address-family\n \
         address-family ipv6 unicast\n  neighbor fd00:30::3 route-reflector-client\n exit-address-family\n\
         exit\n"
    );
}

#[test]
fn a_node_without_an_address_is_no_neighbor() {
    let settings = mk_world().fabric.unwrap();
    let node = mk_node("n3", "172.30.0.3", Some(4), None);
    let received = mk_received(&["fd00:10::/48/64"]);
    let nowhere = (&node, &BTreeSet::new());
    assert_eq!(
        peer(&settings, nowhere, true, &BTreeSet::new(), &received),
        None
    );
}

#[test]
fn a_password_is_that_of_the_secret_in_every_peer_object() {
    let mut settings = mk_world().fabric.unwrap();
    settings.password_secret = Some("fabric".to_owned());
    let node = mk_node("n3", "172.30.0.3", Some(4), None);
    let received = mk_received(&["10.128.0.0/14/23"]);
    let object = peer(
        &settings,
        (&node, &node.internal_ips.iter().copied().collect()),
        true,
        &BTreeSet::new(),
        &received,
    )
    .unwrap();
    let session = &object.routers[0].neighbors[0].session;
    assert_eq!(session.password_secret.as_deref(), Some("fabric"));
}
