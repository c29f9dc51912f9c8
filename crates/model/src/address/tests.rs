//! Tables and properties of addresses.

use super::*;
use proptest::prelude::*;

#[test]
fn a_prefix_loses_its_host_bits_and_keeps_one_spelling() {
    for (given, shown) in [
        ("10.128.1.5/24", "10.128.1.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00:0:0::1/64", "fd00::/64"),
    ] {
        assert_eq!(given.parse::<Prefix>().unwrap().to_string(), shown);
    }
    for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", "", "::/129"] {
        assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
    }
}

#[test]
fn the_nth_address_and_subnet_stop_at_the_end() {
    let p: Prefix = "10.128.0.0/30".parse().unwrap();
    assert_eq!(p.nth(3).unwrap().to_string(), "10.128.0.3");
    assert_eq!(p.nth(4), None);
    let p: Prefix = "10.128.0.0/22".parse().unwrap();
    assert_eq!(p.subnet_count(24), 4);
    assert_eq!(p.subnet(3, 24).unwrap().to_string(), "10.128.3.0/24");
    assert_eq!(p.subnet(4, 24), None);
    assert_eq!(p.subnet(0, 21), None);
    assert_eq!(
        "::/0"
            .parse::<Prefix>()
            .unwrap()
            .subnet(0, 0)
            .unwrap()
            .to_string(),
        "::/0"
    );
}

#[test]
fn a_cluster_subnet_names_what_is_allowed() {
    let c: ClusterSubnet = "10.128.0.0/14/23".parse().unwrap();
    assert_eq!((c.cidr.bits(), c.host_len), (14, 23));
    assert_eq!("10.0.0.0/16".parse::<ClusterSubnet>().unwrap().host_len, 24);
    for wrong in [
        "10.0.0.0/24/24",
        "10.0.0.1/16/24",
        "10.0.0.0/16/33",
        "fd00::/48/72",
        "x",
        "10.0.0.0/16/24/1",
    ] {
        let err = wrong.parse::<ClusterSubnet>().unwrap_err().to_string();
        assert!(
            err.contains(wrong) && err.contains("10.128.0.0/14/23"),
            "{err}"
        );
    }
}

#[test]
fn macs_are_derived_and_read_back() {
    let mac = Mac::of_ip("10.128.1.2".parse().unwrap());
    assert_eq!(mac.to_string(), "0a:58:0a:80:01:02");
    // printf %s fd01:128::2 | sha256sum
    let of_ipv6 = Mac::of_ip("fd01:128::2".parse().unwrap());
    assert_eq!(of_ipv6.to_string(), "0a:58:c3:5f:4c:89");
    assert_eq!("0A:58:0a:80:01:02".parse::<Mac>().unwrap(), mac);
    for wrong in [
        "0a:58",
        "0a:58:0a:80:01:02:03",
        "0a:58:0a:80:01:zz",
        "a:58:0a:80:01:02",
    ] {
        assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn a_prefix_reads_back_what_it_shows(ip: u32, len in 0_u8..=32) {
        let p = Prefix::new(IpAddr::V4(ip.into()), len).unwrap();
        prop_assert_eq!(p.to_string().parse::<Prefix>().unwrap(), p);
        prop_assert!(p.contains_ip(p.network()));
    }

    #[test]
    fn overlap_means_one_holds_the_other(a: u32, b: u32, la in 0_u8..=32, lb in 0_u8..=32) {
        let (a, b) = (Prefix::new(IpAddr::V4(a.into()), la).unwrap(), Prefix::new(IpAddr::V4(b.into()), lb).unwrap());
        prop_assert_eq!(a.overlaps(&b), a.contains_ip(b.network()) || b.contains_ip(a.network()));
    }
}
