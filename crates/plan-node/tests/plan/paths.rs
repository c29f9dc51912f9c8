//! Ways to other nodes: which there are, what answers mean, when they are asked.

mod prober;
mod visit;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::names::{NetworkName, NodeName};
use model::network::{Advertised, Transport};
use model::node::{Fact, Node};
use plan_node::paths::{self, Load, Path, PathKey, Paths, report};
use plan_node::{RemoteNode, Snapshot};
use testkit::{mk_node, mk_node_view, mk_snapshot, mk_user_network, mk_view};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(node: &str, to: &str) -> PathKey {
    let node = NodeName::from(node);
    PathKey { node, to: ip(to) }
}

/// A way of the default network without an overlay.
fn way(source: &str, mtu: u32) -> Path {
    let load = Load { mtu, overhead: 0 };
    Path {
        source: ip(source),
        loads: Arc::new([(NetworkName::default_network(), load)].into()),
        ends: 65_535,
    }
}

/// Node `n<number>` with pods of the default network and of network `blue`.
fn node(number: u8) -> Node {
    let mut node = mk_node(
        &format!("n{number}"),
        &[("default", &["10.128.9.0/24"]), ("blue", &["10.61.9.0/24"])],
    );
    node.internal_ips = vec![
        ip(&format!("172.30.0.{number}")),
        ip(&format!("fd00::{number}")),
    ];
    node
}

fn planned(snapshot: &Snapshot, nodes: &[Node]) -> Vec<String> {
    let all = paths::plan(snapshot, nodes);
    let words = all.iter().map(|(key, path)| {
        let loads = path.loads.iter();
        let loads: Vec<String> = loads
            .map(|(name, load)| format!("{name} {}", load.size()))
            .collect();
        format!(
            "{} {} from {}: {}",
            key.node,
            key.to,
            path.source,
            loads.join(", ")
        )
    });
    words.collect()
}

#[test]
fn a_network_without_overlay_has_a_way_to_each_node_with_pods_of_it_that_is_not_down() {
    let view = mk_view(1);
    let snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    let mut nodes = vec![node(1), node(2), node(3), node(4), node(5)];
    nodes[2].ready = Some(false);
    nodes[3].subnets = Fact::Absent;
    nodes[4].internal_ips.clear();
    let ways = ["n2 172.30.0.2 from 172.30.0.1: default 1500"];
    assert_eq!(planned(&snapshot, &nodes), ways);
    // Known by what the node says where it has no InternalIP; a node that claims this one's address has no way.
    nodes[4].primary = Fact::Known(vec!["172.30.0.5/24".parse().unwrap()]);
    nodes[1].internal_ips = vec![ip("172.30.0.1")];
    let ways = ["n5 172.30.0.5 from 172.30.0.1: default 1500"];
    assert_eq!(planned(&snapshot, &nodes), ways);
    assert!(planned(&mk_snapshot(&view.node, &[]), &nodes).is_empty());
}

#[test]
fn each_family_of_a_network_has_a_way_of_its_own_with_the_largest_packet_of_all_networks() {
    let mut view = mk_view(1);
    view.add_subnet("fd01::/48/64");
    view.node
        .gateway
        .addresses
        .push("fd00::1/64".parse().unwrap());
    let mut blue = view.share.clone();
    blue.network = mk_user_network("blue", 3, &["10.61.0.0/16/24"], &["100.65.0.0/16"]);
    blue.network.advertised = Advertised {
        default_vrf: true,
        own_vrf: false,
    };
    blue.mtu = 9000;
    let shares = [view.share.clone(), blue.clone()];
    let ways = [
        "n2 172.30.0.2 from 172.30.0.1: blue 9000, default 1500",
        "n2 fd00::2 from fd00::1: default 1500",
    ];
    assert_eq!(planned(&mk_snapshot(&view.node, &shares), &[node(2)]), ways);
    // Both ends' own links decide what can be tried.
    let mut snapshot = mk_snapshot(&view.node, &shares);
    let size = |snapshot: &Snapshot, other: Fact<u32>| {
        let mut node = node(2);
        node.host_mtu = other;
        paths::plan(snapshot, &[node])[&key("n2", "172.30.0.2")].size()
    };
    assert_eq!(
        size(&snapshot, Fact::Known(9000)),
        1500,
        "this one's bridge"
    );
    snapshot.machine.links.as_mut().unwrap()[0].mtu = 9100;
    assert_eq!(size(&snapshot, Fact::Absent), 9000);
    assert_eq!(size(&snapshot, Fact::Known(9200)), 9000);
    assert_eq!(size(&snapshot, Fact::Known(8900)), 8900);
    assert_eq!(size(&snapshot, Fact::Known(600)), 9000, "no host's");
    // A network that is routed in its VRF alone takes links of that VRF.
    blue.network.advertised.default_vrf = false;
    let snapshot = mk_snapshot(&view.node, &[view.share.clone(), blue]);
    assert!(planned(&snapshot, &[node(2)])[0].ends_with("default 1500"));
}

#[test]
fn packets_of_an_overlay_are_as_large_as_tunnels_make_them_and_go_where_tunnels_end() {
    let mut view = mk_view(1);
    view.share.network.transport = Transport::Geneve;
    view.share.mtu = 1400;
    let remote = RemoteNode {
        id: 3,
        chassis: "n2".to_owned(),
        encap_ips: [ip("192.0.2.2"), ip("2001:db8::2")].into(),
    };
    view.node.remotes.insert(NodeName::from("n2"), remote);
    let mut snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    assert!(planned(&snapshot, &[node(2)]).is_empty(), "no tunnels here");
    snapshot.machine.encap_ips = vec![ip("192.0.2.1"), ip("2001:db8::1")];
    let ways = [
        "n2 192.0.2.2 from 192.0.2.1: default 1458",
        "n2 2001:db8::2 from 2001:db8::1: default 1478",
    ];
    assert_eq!(planned(&snapshot, &[node(2), node(3)]), ways);
}

fn said(paths: &Paths, narrow: &[(PathKey, u32)]) -> BTreeMap<NetworkName, String> {
    let narrow = narrow.iter().cloned().collect();
    report::by_network(&mk_node_view(1).name, paths, &narrow)
}

#[test]
fn a_report_names_nodes_family_sizes_and_what_is_allowed() {
    let mut wide = way("172.30.0.1", 9000);
    let load = Load {
        mtu: 1342,
        overhead: 58,
    };
    Arc::make_mut(&mut wide.loads).insert(NetworkName::from("blue"), load);
    let paths = Paths::from([(key("n2", "172.30.0.2"), wide)]);
    let found = said(&paths, &[(key("n2", "172.30.0.2"), 1500)]);
    let text = "echo requests as large as packets that pods of network default may send are not answered, and smaller ones are, from node n1 to node n2 (IPv4, 172.30.0.1 to 172.30.0.2): 9000 bytes do not pass, 1500 do; allowed: an underlay that carries 9000 bytes from node to node, or [default] mtu on all nodes at 1500 or less";
    let wanted = BTreeMap::from([(NetworkName::default_network(), text.to_owned())]);
    assert_eq!(found, wanted, "1400 bytes of network blue pass");
    let found = said(&paths, &[(key("n2", "172.30.0.2"), 1399)]);
    let text = &found[&NetworkName::from("blue")];
    for words in [
        "1400 bytes (mtu 1342 and 58 of the overlay) do not pass, 1399 do",
        "the network's mtu at 1341 or less",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(
        said(&paths, &[(key("n3", "172.30.0.3"), 1500)]).is_empty(),
        "it is gone"
    );
}

#[test]
fn a_report_of_many_ways_is_bounded() {
    let keys = (2..100).map(|number| key(&format!("n{number:03}"), &format!("fd00::{number}")));
    let keys: Vec<PathKey> = keys.collect();
    let all = keys.iter().map(|key| (key.clone(), way("fd00::1", 9000)));
    let paths: Paths = all.collect();
    let narrow: Vec<(PathKey, u32)> = keys.into_iter().map(|key| (key, 1400)).collect();
    let found = said(&paths, &narrow);
    let text = &found[&NetworkName::default_network()];
    assert!(
        text.contains("n006 (IPv6, ") && text.contains("; and 93 more; "),
        "{text}"
    );
    assert!(!text.contains("n007") && text.len() < 1000, "{text}");
}
