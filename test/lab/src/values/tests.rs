//! Values are drawn the same way everywhere and never collide.

use super::*;

#[test]
fn one_seed_gives_the_same_values_twice_and_other_seeds_give_others() {
    assert_eq!(Values::drawn(7), Values::drawn(7));
    assert_ne!(Values::drawn(7), Values::drawn(8));
}

#[test]
fn drawn_values_are_legal_and_no_two_networks_overlap() {
    for seed in 0..2000 {
        let v = Values::drawn(seed);
        let network = v.default_network().unwrap();
        let range = network.ranges[0];
        assert!((24..=25).contains(&range.host_prefix), "{v:?}");
        assert!(
            (64512..=65534).contains(&v.as_number)
                || (4_200_000_000..=4_294_967_294).contains(&v.as_number),
            "{v:?}"
        );
        let all = [range.subnet, network.joins[0], v.underlay.into()];
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
        .map(|seed| Values::drawn(seed).default_network().unwrap().ranges[0].host_prefix)
        .collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [24, 25]);
}

#[test]
fn a_node_gets_the_lowest_index_that_is_free() {
    assert_eq!(Values::free_index(&[1, 2, 4]), Some(3));
}

#[test]
fn a_mac_is_made_of_the_address() {
    assert_eq!(mac(Ipv4Addr::new(172, 30, 0, 1)), "0a:58:ac:1e:00:01");
}
