//! Every state that a node's Northbound database has ever been in, and whether one of them has pods of a network without an
//! overlay translated on the way to each other.
//!
//! In: the file of a node's Northbound database, which has each transaction (ovsdb(5), ovsdb(7): RFC 7047 notation, with differences
//! of sets and maps where a record says `_is_diff`). Out: states at which a packet between pods of different nodes would be
//! translated. Invariant: nothing here comes from the product, neither names of rows nor which are wanted.
//! Not here: what changes meanwhile, the host's packet filter (the tests of `netns`).

mod journal;

use std::net::IpAddr;

use crate::harness::Standing;

pub(crate) use journal::Journal;

/// A subnet as rows and rules write it: `10.128.0.0/24`, or an address alone.
fn holds(prefix: &str, ip: IpAddr) -> bool {
    if let Ok(alone) = prefix.parse::<IpAddr>() {
        return alone == ip;
    }
    let network: ipnet::IpNet = prefix.parse().expect("a subnet or an address");
    network.contains(&ip)
}

/// Addresses of the default network's pods, one of each family on each node.
pub(crate) fn pods(lab: &Standing) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for number in 0..lab.nodes() {
        all.extend(lab.pod_addresses(number));
    }
    assert!(all.len() >= 2, "{all:?}");
    all
}

/// Pairs of addresses of one family.
fn pairs(pods: &[IpAddr]) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
    let from = pods.iter().copied();
    from.flat_map(move |from| {
        let to = pods.iter().copied();
        let to = to.filter(move |to| *to != from && to.is_ipv4() == from.is_ipv4());
        to.map(move |to| (from, to))
    })
}

#[test]
fn a_subnet_holds_its_addresses() {
    let ip = |text: &str| text.parse().unwrap();
    assert!(holds("10.128.0.0/16", ip("10.128.1.5")));
    assert!(!holds("10.128.0.0/24", ip("10.128.1.5")));
    assert!(!holds("10.128.0.0/16", ip("fd00::1")));
    assert!(holds("fd00::1", ip("fd00::1")) && !holds("fd00::1", ip("fd00::2")));
}
