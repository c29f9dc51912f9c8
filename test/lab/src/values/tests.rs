//! Values are drawn the same way everywhere and never collide.

use super::*;

fn drawn(seed: u64) -> Values {
    Values::drawn(seed, Families::Dual)
}

#[test]
fn one_seed_gives_the_same_values_twice_and_other_seeds_give_others() {
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
}

#[test]
fn drawn_values_are_legal_and_no_two_networks_overlap() {
    for seed in 0..2000 {
        let v = drawn(seed);
        let network = v.default_network().unwrap();
        let range = network.ranges[0];
        assert!((24..=25).contains(&range.host_prefix), "{v:?}");
        assert!(
            (64512..=65534).contains(&v.as_number)
                || (4_200_000_000..=4_294_967_294).contains(&v.as_number),
            "{v:?}"
        );
        assert_eq!(network.ranges[1].host_prefix, 64, "{v:?}");
        let ranges = network.ranges.iter().map(|range| range.subnet);
        let joins = network.joins.iter().copied();
        let all: Vec<IpNet> = ranges.chain(joins).chain(v.underlays.clone()).collect();
        assert_eq!(all.len(), 6);
        for (i, a) in all.iter().enumerate() {
            for b in all.iter().skip(i + 1) {
                assert!(!a.contains(b) && !b.contains(a), "{v:?}");
            }
        }
    }
}

#[test]
fn two_neighbouring_seeds_give_both_host_prefix_lengths() {
    let seen: std::collections::BTreeSet<u8> = (0..50)
        .map(|seed| drawn(seed).default_network().unwrap().ranges[0].host_prefix)
        .collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [24, 25]);
}

#[test]
fn a_node_gets_the_lowest_index_that_is_free() {
    assert_eq!(Values::free_index(&[1, 2, 4]), Some(3));
}

#[test]
fn a_mac_is_made_of_the_address() {
    let shown = |text: &str| mac(text.parse().unwrap());
    assert_eq!(shown("172.30.0.1"), "0a:58:ac:1e:00:01");
    // printf %s fd00:30::1 | sha256sum
    assert_eq!(shown("fd00:30::1"), "0a:58:3a:55:b6:ba");
}

#[test]
fn a_link_local_address_is_made_of_the_mac() {
    let address = "172.30.0.1".parse().unwrap();
    let wanted: IpAddr = "fe80::858:acff:fe1e:1".parse().unwrap();
    assert_eq!(link_local(address), wanted);
}

#[test]
fn one_family_alone_has_the_values_that_it_has_beside_the_other() {
    let (v4, v6, both) = (
        Values::drawn(9, Families::Ipv4),
        Values::drawn(9, Families::Ipv6),
        drawn(9),
    );
    assert_eq!(
        [v4.families(), v6.families()].concat(),
        [Family::V4, Family::V6]
    );
    assert_eq!([v4.underlays, v6.underlays].concat(), both.underlays);
    let ranges = |v: &Values| v.default_network().unwrap().ranges.clone();
    assert_eq!(v4.networks.len(), both.networks.len());
    assert_eq!(ranges(&both).len(), 2);
    assert_eq!((v4.as_number, v4.stem), (both.as_number, both.stem));
}
