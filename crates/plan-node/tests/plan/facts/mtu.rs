//! How large pods' packets may be, and what becomes of a network whose packets are too large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::names::{NetworkName, NodeName};
use model::network::Advertised;
use model::ovs::patch_port;
use plan_node::Facts;
use testkit::{mk_link, mk_node, mk_port, mk_user_network};

use super::{memory, node_at, own, prefix, remote, stale, whole, with_overlay};

fn bridge_mtu(facts: &Facts) -> u32 {
    let links = facts.links.as_ref().unwrap();
    links.iter().find(|link| link.name == "br-ex").unwrap().mtu
}

/// All links carry less.
fn shrink(facts: &mut Facts, mtu: u32) {
    for link in facts.links.as_mut().unwrap() {
        link.mtu = mtu;
    }
}

/// Another node with tunnels.
fn joins(facts: &mut Facts) {
    remote(facts, "n4", 9, "chassis-n4", "172.30.0.4");
    node_at(facts, 0).subnets = mk_node("n4", &[("default", &["10.128.4.0/24"])]).subnets;
}

/// The default network and all nodes have IPv6, too.
fn with_ipv6(facts: &mut Facts) {
    let network = &mut facts.networks[0];
    network.subnets.push("fd00:10::/48/64".parse().unwrap());
    network.join_subnets.push(prefix("fd98::/64"));
    own(facts).internal_ips.push("fd99::1".parse().unwrap());
    let links = facts.links.as_mut().unwrap().iter_mut();
    for link in links.filter(|link| link.name == "br-ex") {
        link.addresses.push("fd99::1/64".parse().unwrap());
    }
    for (number, node) in facts.nodes.as_mut().unwrap().iter_mut().enumerate() {
        let node = Arc::make_mut(node);
        let subnets = [
            format!("10.128.{}.0/24", number + 1),
            format!("fd00:10:0:{}::/64", number + 1),
        ];
        let subnets = subnets.each_ref().map(String::as_str);
        node.subnets = mk_node("any", &[("default", &subnets)]).subnets;
    }
}

#[test]
fn a_network_without_an_overlay_has_no_larger_packets_than_the_bridge_carries() {
    let mut facts = whole();
    let most = bridge_mtu(&facts);
    facts.networks[0].mtu = Some(most + 1);
    let snapshot = memory().snapshot(facts.clone());
    let why = snapshot.stale.values().next().unwrap();
    assert_eq!(why.reason(), Some("MtuTooLarge"));
    let allowed = format!(
        "mtu {} is more than {most}, the MTU of the bridge; allowed: {most} at most",
        most + 1
    );
    assert!(why.to_string().ends_with(&allowed), "{why}");
    assert_eq!(snapshot.here().count(), 0, "nothing is built with it");

    // One that runs is reported, follows what else is said, and is not taken away.
    facts.networks[0].mtu = Some(most);
    let mut memory = memory();
    let before = memory.snapshot(facts.clone());
    assert!(before.stale.is_empty(), "{:?}", before.stale);
    shrink(&mut facts, most - 100);
    own(&mut facts).subnets =
        mk_node("n1", &[("default", &["10.128.1.0/24", "10.128.9.0/24"])]).subnets;
    let after = memory.snapshot(facts.clone());
    let why = after.stale.values().next().unwrap();
    assert_eq!(why.reason(), Some("MtuTooLarge"));
    let (_, view) = after.here().next().unwrap();
    assert_eq!(view.share.mtu, most);
    assert_eq!(view.share.host_subnets.len(), 2);

    // A larger MTU than it runs with is no reason to take it away, nor to leave it as it was.
    facts.networks[0].mtu = Some(most + 1);
    own(&mut facts).subnets = mk_node("n1", &[("default", &["10.128.1.0/24"])]).subnets;
    let larger = memory.snapshot(facts.clone());
    let (_, view) = larger.here().next().unwrap();
    assert_eq!((view.share.mtu, view.share.host_subnets.len()), (most, 1));
    assert_eq!(stale(&larger).unwrap().reason(), Some("MtuTooLarge"));

    // Another network of that name has never run.
    let mut other = facts.clone();
    other.networks[0].id = 7;
    assert_eq!(memory.snapshot(other).here().count(), 0);
}

/// Its own management port tells with what.
#[test]
fn a_network_without_an_overlay_goes_on_with_what_it_ran_with_before_this_process() {
    let mut facts = whole();
    let most = bridge_mtu(&facts);
    facts.networks[0].mtu = Some(most);
    shrink(&mut facts, most - 100);
    let owner = |name: &str| {
        Some(BTreeMap::from([(
            "ovn-k8s-mp0".to_owned(),
            NetworkName::from(name),
        )]))
    };
    let default = NetworkName::default_network();
    for (stands, owner, built) in [
        (most, owner(default.as_str()), Some(most)),
        (most - 1, owner(default.as_str()), Some(most - 1)),
        (most + 1, owner(default.as_str()), Some(most)),
        (most, owner("cluster_udn_red"), None),
        (most, Some(BTreeMap::new()), None),
        (most, None, None),
    ] {
        let mut facts = facts.clone();
        facts.management_ports = owner;
        let links = facts.links.as_mut().unwrap();
        let mut port = mk_link(41, "ovn-k8s-mp0");
        port.mtu = stands;
        links.push(port);
        let snapshot = self::memory().snapshot(facts);
        let mtus = snapshot.here().map(|(_, view)| view.share.mtu).next();
        assert_eq!(mtus, built, "{stands}");
        let why = snapshot.stale.values().next().unwrap();
        assert_eq!(why.reason(), Some("MtuTooLarge"));
    }
}

#[test]
fn a_network_that_is_refused_and_never_stood_keeps_nothing_of_others() {
    let blue = || NetworkName::from("cluster_udn_blue");
    let mut facts = whole();
    let mut network = mk_user_network("blue", 5, &["10.150.0.0/16/24"], &["100.65.0.0/16"]);
    network.name = blue();
    network.mtu = Some(9000);
    facts.networks.push(network);
    for (number, node) in facts.nodes.as_mut().unwrap().iter_mut().enumerate() {
        let (default, own) = (
            format!("10.128.{}.0/24", number + 1),
            format!("10.150.{}.0/24", number + 1),
        );
        let name = blue();
        let subnets = [
            ("default", [default.as_str()]),
            (name.as_str(), [own.as_str()]),
        ];
        let subnets = subnets.each_ref().map(|(name, of)| (*name, of.as_slice()));
        Arc::make_mut(node).subnets = mk_node("any", &subnets).subnets;
    }
    let port = |name: &str, owner: NetworkName| Some(BTreeMap::from([(name.to_owned(), owner)]));
    let patch = |facts: &mut Facts| {
        let patch = patch_port("br-ex", &blue(), &NodeName::from("n1"));
        facts
            .ports
            .as_mut()
            .unwrap()
            .ports
            .push(mk_port(&patch, "patch", 7));
    };
    let mut with_patch = facts.clone();
    patch(&mut with_patch);
    let default = NetworkName::default_network;
    let none = || Some(BTreeSet::new());
    for (mut facts, ports, rows, complete) in [
        (facts.clone(), port("ovn-k8s-mp0", default()), none(), true),
        (facts.clone(), Some(BTreeMap::new()), none(), true),
        (facts.clone(), port("ovn-k8s-mp4", blue()), none(), false),
        (with_patch, Some(BTreeMap::new()), none(), false),
        (
            facts.clone(),
            Some(BTreeMap::new()),
            Some([blue()].into()),
            false,
        ),
        (facts.clone(), Some(BTreeMap::new()), None, false),
        (facts, None, none(), false),
    ] {
        facts.management_ports = ports;
        facts.row_owners = rows;
        let snapshot = memory().snapshot(facts);
        assert_eq!(snapshot.stale[&blue()].reason(), Some("MtuTooLarge"));
        let plan = plan_node::plan(&snapshot);
        assert_eq!(plan.is_complete(), complete);
        assert_eq!(plan.unknown.contains(&blue()), !complete);
        assert!(plan.ports.contains_key(&default()) && !plan.ports.contains_key(&blue()));
    }
}

#[test]
fn an_overlay_whose_link_shrinks_keeps_its_packets_and_follows_what_else_changes() {
    let nothing = |_: &mut Facts| {};
    for (change, mtu, link, reason, stays) in [
        // 58 bytes of the overlay are no part of a packet any more.
        (
            nothing as fn(&mut Facts),
            Some(1442),
            1499,
            "MtuTooLarge",
            1442,
        ),
        (with_ipv6, None, 1337, "MtuTooSmall", 1442),
    ] {
        let mut facts = with_overlay();
        change(&mut facts);
        facts.networks[0].mtu = mtu;
        let mut memory = memory();
        let before = memory.snapshot(facts.clone());
        assert!(before.stale.is_empty(), "{:?}", before.stale);
        shrink(&mut facts, link);
        joins(&mut facts);
        let after = memory.snapshot(facts.clone());
        let why = after.stale.values().next().unwrap();
        assert_eq!(why.reason(), Some(reason));
        let (_, view) = after.here().next().unwrap();
        assert_eq!(view.share.mtu, stays);
        let others: BTreeSet<&str> = view
            .share
            .remote_subnets
            .iter()
            .map(|(_, n)| n.as_str())
            .collect();
        assert_eq!(others, ["n2", "n3", "n4"].into());
        // Where it did not run, it is not built.
        let never = self::memory().snapshot(facts.clone());
        assert_eq!(never.here().count(), 0, "{reason}");
        assert_eq!(never.stale.values().next().unwrap().reason(), Some(reason));
        // It ran before this process: by its management port.
        let links = facts.links.as_mut().unwrap();
        links.retain(|link| link.name != "ovn-k8s-mp0");
        let mut port = mk_link(41, "ovn-k8s-mp0");
        port.mtu = stays;
        links.push(port);
        let owner = NetworkName::default_network();
        facts.management_ports = Some([("ovn-k8s-mp0".to_owned(), owner)].into());
        let restarted = self::memory().snapshot(facts);
        let (_, view) = restarted.here().next().unwrap();
        assert_eq!(view.share.mtu, stays, "{reason}");
    }
}

#[test]
fn what_is_routed_in_its_own_vrf_alone_does_not_leave_by_the_bridge() {
    let mut facts = whole();
    let bridge = bridge_mtu(&facts);
    for (default_vrf, built) in [(false, 1), (true, 0)] {
        let network = &mut facts.networks[0];
        network.mtu = Some(bridge + 1);
        network.advertised = Advertised {
            own_vrf: true,
            default_vrf,
        };
        let snapshot = memory().snapshot(facts.clone());
        assert_eq!(snapshot.here().count(), built, "{default_vrf}");
    }
}

#[test]
fn ipv6_needs_more_than_some_tunnels_leave() {
    let mut facts = with_overlay();
    facts.networks[0].mtu = Some(1279);
    assert!(
        memory().snapshot(facts.clone()).stale.is_empty(),
        "IPv4 takes less"
    );
    facts.networks[0]
        .subnets
        .push("fd01::/48/64".parse().unwrap());
    let text = memory().snapshot(facts).stale.into_values().next().unwrap();
    assert_eq!(text.reason(), Some("MtuTooSmall"));
    assert!(
        text.to_string().contains("1279") && text.to_string().contains("1338"),
        "{text}"
    );
}

#[test]
fn what_is_routed_in_its_own_vrf_alone_has_no_larger_packets_than_the_links_there_carry() {
    let blue = NetworkName::from("cluster_udn_blue");
    let mut facts = whole();
    let mut network = mk_user_network("blue", 5, &["10.150.0.0/16/24"], &["100.65.0.0/16"]);
    network.name = blue.clone();
    network.advertised.own_vrf = true;
    network.advertised.default_vrf = false;
    facts.networks.push(network);
    let subnets: [(&str, &[&str]); 2] = [
        ("default", &["10.128.1.0/24"]),
        (blue.as_str(), &["10.150.1.0/24"]),
    ];
    own(&mut facts).subnets = mk_node("n1", &subnets).subnets;
    let links = facts.links.as_mut().unwrap();
    let device = NetworkName::from("cluster_udn_blue").vrf_device(5).unwrap();
    let mut vrf = mk_link(50, &device);
    vrf.vrf_table = Some(1050);
    vrf.mtu = 65_575;
    let with = |index, name: &str, mtu, master| {
        let mut link = mk_link(index, name);
        (link.mtu, link.master) = (mtu, master);
        link
    };
    // That of the id that the network had before is none of them.
    links.push(with(55, "ovn-k8s-mp7", 1400, Some(50)));
    links.extend([
        vrf,
        with(51, "eth1", 9000, Some(50)),
        with(52, "eth2", 4000, Some(50)),
        with(53, "eth3", 1400, None),
        with(54, "ovn-k8s-mp5", 1400, Some(50)),
    ]);
    for (mtu, fits) in [(4000, true), (4001, false)] {
        facts.networks[1].mtu = Some(mtu);
        let snapshot = memory().snapshot(facts.clone());
        let why = snapshot.stale.get(&blue);
        assert_eq!(why.is_none(), fits, "{why:?}");
        if let Some(why) = why {
            assert_eq!(why.reason(), Some("MtuTooLarge"));
            let words =
                "mtu 4001 is more than 4000, the MTU of eth2 in its VRF; allowed: 4000 at most";
            assert!(why.to_string().ends_with(words), "{why}");
        }
    }
}
