//! What is remembered, and what it takes to know a network whole.

mod mtu;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::address::Prefix;
use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::{KernelKey, LinkFact};
use model::names::{NetworkName, NodeName};
use model::network::{Topology, Transport};
use model::node::{Fact, Node};
use model::ovs::{BridgeFact, patch_port};
use plan_node::{Facts, FlowTable, Memory, NodeConfig, NotYet, Share, Snapshot, Undeclared, Vrf};
use testkit::{BRIDGE_LINK, mk_link, mk_network, mk_node, mk_port, mk_user_network};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(super) fn memory() -> Memory {
    memory_of(BgpDefault::Ignore)
}

fn memory_of(bgp_default: BgpDefault) -> Memory {
    Memory::new(config(bgp_default))
}

fn config(bgp_default: BgpDefault) -> NodeConfig {
    NodeConfig {
        node: NodeName::from("n1"),
        bridge: "br-ex".to_owned(),
        next_hops: vec!["172.30.0.100".parse().unwrap()],
        mode: GatewayMode::Shared,
        ephemeral_port_range: (32768, 60999),
        bgp_default,
        masquerade_subnets: ["169.254.0.0/17", "fd69::/112"]
            .map(|subnet| subnet.parse().unwrap())
            .into(),
        strict_isolation: true,
        service_cidrs: vec!["172.31.0.0/16".parse().unwrap()],
        beside: false,
        transit_subnets: vec!["100.88.0.0/16".parse().unwrap()],
    }
}

fn own_node() -> Node {
    Node {
        internal_ips: vec!["172.30.0.1".parse().unwrap()],
        node_id: Fact::Known(2),
        ..mk_node("n1", &[("default", &["10.128.1.0/24"])])
    }
}

fn bridge(address: &str) -> LinkFact {
    LinkFact {
        mac: Some("0a:58:ac:1e:00:01".parse().unwrap()),
        addresses: vec![address.parse().unwrap(), "fe80::1/64".parse().unwrap()],
        ..mk_link(BRIDGE_LINK, "br-ex")
    }
}

/// All that there is to know of n1 of three nodes.
pub(super) fn whole() -> Facts {
    let default = NetworkName::default_network();
    let patch = patch_port("br-ex", &default, &NodeName::from("n1"));
    Facts {
        networks: vec![mk_network()],
        nodes: Some(vec![
            own_node().into(),
            mk_node("n2", &[("default", &["10.128.2.0/24"])]).into(),
            mk_node("n3", &[("default", &["10.128.3.0/24"])]).into(),
        ]),
        undeclared: Undeclared::default(),
        api_servers: Some(BTreeSet::new()),
        services: Some(BTreeMap::new()),
        release: Some("1".to_owned()),
        links: Ok(vec![mk_link(1, "lo"), bridge("172.30.0.1/24")]),
        chassis: Some("n1".to_owned()),
        physical_networks: BTreeMap::from([("br-ex".to_owned(), "physnet".to_owned())]),
        encap_ips: None,
        ports: Some(BridgeFact {
            ports: vec![mk_port("eth0", "", 1), mk_port(&patch, "patch", 2)],
        }),
        nat_has_match: Some(true),
        refused_vrfs: BTreeMap::new(),
        management_ports: None,
        row_owners: None,
    }
}

fn stale(snapshot: &Snapshot) -> Option<&NotYet> {
    snapshot.stale.get(&NetworkName::default_network())
}

/// A change of one fact, and the words by which it is reported.
type Loss = (fn(&mut Facts), &'static str);

const LOSSES: [Loss; 14] = [
    (|f| f.nodes = None, "the Nodes have not been listed yet"),
    (
        |f| f.api_servers = None,
        "the EndpointSlices of Service default/kubernetes have not been listed yet",
    ),
    (|f| f.nodes = Some(Vec::new()), "there is no Node object n1"),
    (|f| own(f).node_id = Fact::Absent, "has no node id yet"),
    (
        |f| own(f).node_id = Fact::Malformed("k8s.ovn.org/node-id: x".to_owned()),
        "k8s.ovn.org/node-id: x",
    ),
    (
        |f| own(f).node_id = Fact::Known(1),
        "node id 1 is not allowed",
    ),
    (
        |f| own(f).subnets = Fact::Absent,
        "has no subnet of network default yet",
    ),
    (
        |f| own(f).subnets = mk_node("n1", &[("default", &["192.0.2.0/24"])]).subnets,
        "subnet 192.0.2.0/24 of node n1 is in none of the subnets of network default",
    ),
    (
        |f| own(f).subnets = mk_node("n1", &[("default", &["10.128.1.7/32"])]).subnets,
        "node subnet 10.128.1.7/32 has no address for the management port",
    ),
    (
        |f| f.links = Err("out of memory".to_owned()),
        "cannot read the kernel's links: out of memory",
    ),
    (|f| f.links = Ok(Vec::new()), "bridge br-ex does not exist"),
    (
        |f| {
            if let Ok(links) = &mut f.links {
                links[1].addresses.clear();
            }
        },
        "bridge br-ex has no address",
    ),
    (|f| f.chassis = None, "no system-id yet"),
    (
        |f| f.physical_networks.clear(),
        "does not name bridge br-ex",
    ),
];

fn own(facts: &mut Facts) -> &mut Node {
    node_at(facts, 0)
}

/// The Node at a place of the list.
fn node_at(facts: &mut Facts, place: usize) -> &mut Node {
    Arc::make_mut(&mut facts.nodes.as_mut().unwrap()[place])
}

#[test]
fn what_was_known_whole_once_stays_whatever_is_lost() {
    for (lose, words) in LOSSES {
        let mut memory = memory_of(BgpDefault::Replace);
        let before = memory.snapshot(whole());
        assert!(before.stale.is_empty(), "{:?}", before.stale);
        let plan = plan_node::plan(&before);
        assert!(plan.is_complete() && plan.annotations.is_some());
        let mut facts = whole();
        lose(&mut facts);
        facts.ports = None;
        facts.nat_has_match = None;
        let after = memory.snapshot(facts);
        let now = plan_node::plan(&after);
        assert_eq!(now.north, plan.north, "{words}");
        assert_eq!(now.kernel, plan.kernel, "{words}");
        assert_eq!(now.ports, plan.ports, "{words}");
        assert_eq!(now.flows, plan.flows, "{words}");
        assert_eq!(now.annotations, plan.annotations, "{words}");
        let default = NetworkName::default_network();
        let (before, now) = (&plan.learn[&default], &now.learn[&default]);
        assert!(now.scope.fallbacks_known, "{words}");
        assert_eq!(now.scope.fallbacks, before.scope.fallbacks, "{words}");
        assert_eq!(
            now.scope.fallbacks.len(),
            2,
            "a default route, and what drops"
        );
        assert_eq!(now.scope.gateway_link, before.scope.gateway_link, "{words}");
        assert_eq!(now.scope.host_subnets, before.scope.host_subnets);
        assert_eq!(now.table, before.table);
        let reported = stale(&after).map(ToString::to_string);
        match words {
            // These are caches: what was listed once is known.
            "the Nodes have not been listed yet"
            | "the EndpointSlices of Service default/kubernetes have not been listed yet" => {
                assert_eq!(reported, None);
            }
            words => assert!(reported.unwrap().contains(words), "{words}"),
        }
        // It is reported no more once it is well again.
        assert!(memory.snapshot(whole()).stale.is_empty());
    }
}

#[test]
fn the_api_server_is_always_translated_to_unless_it_is_a_pod() {
    let mut facts = whole();
    let all = ["192.0.2.7", "10.128.2.9", "fd00::7", "172.30.0.2"];
    facts.api_servers = Some(all.iter().map(|ip| ip.parse().unwrap()).collect());
    let mut memory = memory();
    let node = memory.snapshot(facts).node.unwrap();
    let servers: BTreeSet<IpAddr> = ["172.30.0.2", "192.0.2.7"]
        .map(|ip| ip.parse().unwrap())
        .into();
    assert_eq!(
        node.api_servers, servers,
        "no pod, and no family without a network"
    );
    let all = &node.node_addresses | &servers;
    assert_eq!(node.always_translated(), all);
    // Whoever makes a network of users with a VRF of its own has any addresses, and takes nobody's way to the API server.
    let mut facts = whole();
    facts.api_servers = Some(["192.0.2.7".parse().unwrap()].into());
    let mut blue = mk_user_network("blue", 1, &["192.0.2.0/24/26"], &["100.65.0.0/16"]);
    blue.advertised.default_vrf = false;
    facts.networks.push(blue);
    let blue = memory.snapshot(facts).node.unwrap();
    assert!(blue.api_servers.contains(&"192.0.2.7".parse().unwrap()));
    // One that moved away.
    let mut facts = whole();
    facts.api_servers = Some(BTreeSet::new());
    assert_eq!(memory.snapshot(facts).node.unwrap().api_servers, [].into());
}

#[test]
fn an_address_of_pods_in_a_nodes_annotation_is_not_translated_to() {
    let mut facts = whole();
    let n3 = node_at(&mut facts, 2);
    n3.internal_ips = vec!["172.30.0.3".parse().unwrap()];
    n3.host_cidrs = Fact::Known(vec![
        "10.128.2.9/24".parse().unwrap(),
        "192.0.2.3/24".parse().unwrap(),
    ]);
    let snapshot = memory().snapshot(facts);
    let node = snapshot.node.as_ref().unwrap();
    let is_there = |ip: &str| {
        node.always_translated()
            .contains(&ip.parse::<IpAddr>().unwrap())
    };
    assert!(is_there("172.30.0.3") && is_there("192.0.2.3") && is_there("172.30.0.1"));
    assert!(!is_there("10.128.2.9"));
    let told = named(&snapshot, "NodeAddressOfPods");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("Node/n3") && told[0].contains("host-cidrs: 10.128.2.9"),
        "{told:?}"
    );
    assert!(told[0].ends_with("are not translated"), "{told:?}");
    // An InternalIP counts, and is told of.
    let mut facts = whole();
    node_at(&mut facts, 2).internal_ips = vec!["10.128.2.9".parse().unwrap()];
    let snapshot = memory().snapshot(facts);
    let node = snapshot.node.as_ref().unwrap();
    assert!(
        node.always_translated()
            .contains(&"10.128.2.9".parse().unwrap())
    );
    let told = named(&snapshot, "NodeAddressOfPods");
    assert!(told[0].ends_with("translated all the same"), "{told:?}");
    assert_eq!(snapshot.ignored, [], "it is no annotation and not ignored");
}

/// The same with an overlay.
fn with_overlay() -> Facts {
    let mut facts = whole();
    facts.networks[0].transport = Transport::Geneve;
    for node in facts.nodes.as_mut().unwrap().iter_mut().skip(1) {
        let node = Arc::make_mut(node);
        node.node_id = Fact::Known(if node.name.as_str() == "n2" { 3 } else { 4 });
        node.chassis = Fact::Known(format!("chassis-of-{}", node.name));
        let last = if node.name.as_str() == "n2" { 2 } else { 3 };
        let end = format!("172.30.0.{last}/24");
        node.primary = Fact::Known(vec![end.parse().unwrap()]);
    }
    facts.encap_ips = Some(Ok(["172.30.0.1".parse().unwrap()].into()));
    facts
}

#[test]
fn an_overlay_needs_tunnels_that_its_packets_fit() {
    let mut facts = with_overlay();
    let why = |facts: &Facts| memory().snapshot(facts.clone()).stale.into_values().next();
    facts.encap_ips = Some(Err("ovn-is-interconn is absent".to_owned()));
    let text = why(&facts).unwrap();
    assert_eq!(text.reason(), Some("NoTunnels"));
    assert!(
        text.to_string().contains("ovn-is-interconn is absent"),
        "{text}"
    );
    facts.encap_ips = with_overlay().encap_ips;
    facts.networks[0].mtu = Some(1443);
    let text = why(&facts).unwrap();
    assert_eq!(text.reason(), Some("MtuTooLarge"));
    assert!(
        text.to_string().ends_with("allowed: 1442 at most"),
        "{text}"
    );
    facts.networks[0].mtu = None;
    let mut memory = memory();
    let snapshot = memory.snapshot(facts.clone());
    assert!(snapshot.stale.is_empty(), "{:?}", snapshot.stale);
    let (_, view) = snapshot.here().next().unwrap();
    assert_eq!(view.share.mtu, 1442);
    let subnets: Vec<String> = view
        .share
        .remote_subnets
        .iter()
        .map(|(s, n)| format!("{s} {n}"))
        .collect();
    assert_eq!(subnets, ["10.128.2.0/24 n2", "10.128.3.0/24 n3"]);
    let annotations = plan_node::plan(&snapshot).annotations.unwrap();
    assert_eq!(
        annotations["k8s.ovn.org/node-encap-ips"],
        r#"["172.30.0.1"]"#
    );
    // What of a node cannot be read now is what it was; a node that is gone is gone.
    let n2 = node_at(&mut facts, 1);
    n2.chassis = Fact::Malformed("x".to_owned());
    n2.node_id = Fact::Malformed("x".to_owned());
    facts.nodes.as_mut().unwrap().remove(2);
    let snapshot = memory.snapshot(facts);
    let remotes = &snapshot.node.as_ref().unwrap().remotes;
    let names: Vec<&str> = remotes.keys().map(NodeName::as_str).collect();
    assert_eq!(names, ["n2"]);
    assert_eq!(remotes.values().next().unwrap().chassis, "chassis-of-n2");
}

fn remote(facts: &mut Facts, name: &str, id: u32, chassis: &str, end: &str) {
    let mut node = mk_node(name, &[]);
    node.node_id = Fact::Known(id);
    node.chassis = Fact::Known(chassis.to_owned());
    node.encap_ips = Fact::Known(vec![end.parse().unwrap()]);
    // In front of all others: the order of names and of objects is nobody's right.
    facts.nodes.as_mut().unwrap().insert(0, node.into());
}

fn named(snapshot: &Snapshot, reason: &str) -> Vec<String> {
    let all = snapshot.ignored.iter().chain(&snapshot.problems);
    let of = all.filter(|problem| problem.reason == reason);
    of.map(ToString::to_string).collect()
}

fn remotes(snapshot: &Snapshot) -> Vec<(String, u32, String)> {
    let remotes = snapshot.node.as_ref().unwrap().remotes.iter();
    remotes
        .map(|(name, r)| (name.to_string(), r.id, r.chassis.clone()))
        .collect()
}

#[test]
fn who_stands_keeps_its_id_its_chassis_and_the_end_of_its_tunnels_and_who_claims_them_is_named() {
    let stood = remotes(&memory().snapshot(with_overlay()));
    assert_eq!(stood.len(), 2);
    for (id, chassis, end, words) in [
        (3, "chassis-a0", "172.30.0.20", "node-id: 3 is node n2's"),
        (
            9,
            "chassis-of-n2",
            "172.30.0.20",
            "node-chassis-id: chassis-of-n2 is node n2's",
        ),
        (9, "chassis-a0", "172.30.0.2", "172.30.0.2 is node n2's"),
        // This node's own: the tunnel's end, and the InternalIP.
        (2, "chassis-a0", "172.30.0.20", "node-id: 2 is this node's"),
        (9, "n1", "172.30.0.20", "node-chassis-id: n1 is this node's"),
        (9, "chassis-a0", "172.30.0.1", "172.30.0.1 is this node's"),
    ] {
        let mut memory = memory();
        drop(memory.snapshot(with_overlay()));
        let mut facts = with_overlay();
        remote(&mut facts, "a0", id, chassis, end);
        let snapshot = memory.snapshot(facts);
        assert_eq!(remotes(&snapshot), stood, "{words}");
        let told = named(&snapshot, "TunnelClaimTaken");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("Node/a0") && told[0].contains(words),
            "{told:?}"
        );
        let south = plan_node::plan(&snapshot).south.unwrap();
        assert_eq!(south.len(), 2, "{words}");
        assert!(!south.contains_key("n1") && !south.contains_key("chassis-a0"));
        // One that has something of its own is heard.
        let mut facts = with_overlay();
        remote(&mut facts, "a0", 9, "chassis-a0", "172.30.0.20");
        let snapshot = memory.snapshot(facts);
        assert_eq!(remotes(&snapshot).len(), 3);
        assert!(named(&snapshot, "TunnelClaimTaken").is_empty());
    }
}

#[test]
fn a_node_that_turns_into_another_one_stays_what_it_was() {
    let mut memory = memory();
    let stood = remotes(&memory.snapshot(with_overlay()));
    let mut facts = with_overlay();
    let n3 = node_at(&mut facts, 2);
    n3.chassis = Fact::Known("chassis-of-n2".to_owned());
    let snapshot = memory.snapshot(facts);
    assert_eq!(remotes(&snapshot), stood);
    let told = named(&snapshot, "TunnelClaimTaken");
    assert!(
        told[0].contains("Node/n3") && told[0].contains("what it was before holds"),
        "{told:?}"
    );
}

#[test]
fn of_two_that_come_with_one_address_that_one_is_heard_whose_internal_ip_it_is() {
    let mut facts = with_overlay();
    remote(&mut facts, "a0", 9, "chassis-a0", "172.30.0.2");
    node_at(&mut facts, 2).internal_ips = vec!["172.30.0.2".parse().unwrap()];
    let snapshot = memory().snapshot(facts);
    let names: Vec<String> = remotes(&snapshot).into_iter().map(|r| r.0).collect();
    assert_eq!(names, ["n2", "n3"]);
    assert!(named(&snapshot, "TunnelClaimTaken")[0].contains("Node/a0"));
}

#[test]
fn a_subnet_of_an_overlay_is_one_nodes_and_never_takes_this_nodes_pods() {
    let mut memory = memory();
    let subnets = |snapshot: &Snapshot| -> Vec<String> {
        let (_, view) = snapshot.here().next().unwrap();
        let all = view.share.remote_subnets.iter();
        all.map(|(subnet, node)| format!("{subnet} {node}"))
            .collect()
    };
    let stood = subnets(&memory.snapshot(with_overlay()));
    for (claim, whose) in [
        ("10.128.1.128/25", "10.128.1.0/24 of this node"),
        ("10.128.1.0/24", "10.128.1.0/24 of this node"),
        ("10.128.2.0/24", "10.128.2.0/24 of node n2"),
        ("10.128.2.64/26", "10.128.2.0/24 of node n2"),
        ("10.128.2.0/23", "10.128.2.0/24 of node n2"),
    ] {
        let mut facts = with_overlay();
        remote(&mut facts, "a0", 9, "chassis-a0", "172.30.0.20");
        own(&mut facts).subnets = mk_node("a0", &[("default", &[claim])]).subnets;
        let snapshot = memory.snapshot(facts);
        assert_eq!(subnets(&snapshot), stood, "{claim}");
        let mut told = named(&snapshot, "NodeSubnetTaken");
        told.extend(named(&snapshot, "NodeSubnetCovers"));
        assert!(
            told.iter()
                .any(|text| text.contains("Node/a0") && text.contains(claim)),
            "{told:?}"
        );
        if claim != "10.128.2.0/23" {
            assert!(told[0].contains(whose), "{told:?}");
        }
    }
}

#[test]
fn what_is_still_built_as_an_overlay_keeps_its_tunnels() {
    let mut memory = memory();
    drop(memory.snapshot(with_overlay()));
    let mut facts = with_overlay();
    // Made anew under its name without an overlay, with subnets that the node has none of yet.
    facts.networks[0] = mk_network();
    own(&mut facts).subnets = mk_node("n1", &[("default", &["192.0.2.0/24"])]).subnets;
    facts.networks[0].subnets = vec!["192.0.3.0/24/26".parse().unwrap()];
    let snapshot = memory.snapshot(facts);
    let (_, view) = snapshot.here().next().unwrap();
    assert!(view.is_overlay(), "the last share holds");
    assert_eq!(plan_node::plan(&snapshot).south.unwrap().len(), 2);
    assert_eq!(snapshot.node.as_ref().unwrap().remotes.len(), 2);
}

#[test]
fn before_all_is_known_nothing_is_planned_and_nothing_that_stands_may_be_taken_away() {
    for (lose, words) in LOSSES {
        let mut memory = memory();
        let mut facts = whole();
        lose(&mut facts);
        let snapshot = memory.snapshot(facts);
        let plan = plan_node::plan(&snapshot);
        assert!(plan.north.is_empty() && plan.kernel.is_empty(), "{words}");
        assert_eq!(plan.unknown, [NetworkName::default_network()]);
        assert!(!plan.is_complete());
        assert!(stale(&snapshot).unwrap().to_string().contains(words));
        // BGP and the API server are reached before anything else is known.
        assert!(
            matches!(plan.flows, FlowTable::Host { uplink: 1, .. }),
            "{words}"
        );
        let whole = memory.snapshot(whole());
        assert!(whole.stale.is_empty() && plan_node::plan(&whole).is_complete());
    }
}

#[test]
fn which_address_comes_first_is_the_nodes_word_and_nothing_is_published_without_it() {
    let mut facts = whole();
    if let Ok(links) = &mut facts.links {
        links[1]
            .addresses
            .insert(0, "172.30.0.0/24".parse().unwrap());
    }
    let mut memory = memory();
    let unlisted = Facts {
        nodes: None,
        ..facts.clone()
    };
    assert_eq!(
        plan_node::plan(&memory.snapshot(unlisted)).annotations,
        None
    );
    let all = plan_node::plan(&memory.snapshot(facts))
        .annotations
        .unwrap();
    let primary = &all[model::node::annotation::PRIMARY_IFADDR];
    assert_eq!(primary, r#"{"ipv4":"172.30.0.1/24"}"#);
}

#[test]
fn routes_are_looked_after_before_the_node_has_an_id() {
    let without_address: fn(&mut Facts) = |f| {
        if let Ok(links) = &mut f.links {
            links[1].addresses.clear();
        }
    };
    let losses: [fn(&mut Facts); 4] = [
        |f| f.chassis = None,
        |f| f.physical_networks.clear(),
        without_address,
        |f| own(f).node_id = Fact::Known(1),
    ];
    for lose in losses {
        let mut facts = whole();
        lose(&mut facts);
        let plan = plan_node::plan(&memory().snapshot(facts));
        let inputs = &plan.learn[&NetworkName::default_network()];
        assert!(!inputs.scope.fallbacks_known);
        assert_eq!(inputs.scope.gateway_link, Some(BRIDGE_LINK));
    }
    let mut memory = memory();
    let mut facts = whole();
    own(&mut facts).node_id = Fact::Absent;
    let plan = plan_node::plan(&memory.snapshot(facts));
    let inputs = &plan.learn[&NetworkName::default_network()];
    assert!(!inputs.scope.fallbacks_known && inputs.scope.fallbacks.is_empty());
    assert_eq!(inputs.scope.host_subnets, [prefix("10.128.1.0/24")]);
    assert_eq!(inputs.scope.gateway_link, Some(BRIDGE_LINK));
    assert_eq!(inputs.owners.iter().count(), 3);
    let plan = plan_node::plan(&memory.snapshot(whole()));
    let inputs = &plan.learn[&NetworkName::default_network()];
    assert!(inputs.scope.fallbacks_known);
    let fallbacks: Vec<&Prefix> = inputs.scope.fallbacks.keys().collect();
    assert_eq!(fallbacks, [&prefix("10.128.0.0/16")]);
}

#[test]
fn what_the_nodes_say_counts_though_the_own_one_cannot_be_read() {
    let mut memory = memory();
    let before = plan_node::plan(&memory.snapshot(whole()));
    let mut facts = whole();
    own(&mut facts).subnets = Fact::Malformed("no JSON".to_owned());
    let others = mk_node(
        "n4",
        &[("default", &["10.128.4.0/24"]), ("x", &["10.200.7.0/24"])],
    );
    facts.nodes.as_mut().unwrap().push(others.into());
    facts.release = Some("2".to_owned());
    let now = plan_node::plan(&memory.snapshot(facts));
    let default = NetworkName::default_network();
    let (before, now) = (&before.learn[&default], &now.learn[&default]);
    let owner = (prefix("10.128.4.0/24"), NodeName::from("n4"));
    let has = |inputs: &plan_node::Inputs| {
        let mut pairs = inputs.owners.pairs();
        pairs.any(|(subnet, node)| (*subnet, node.clone()) == owner)
    };
    assert!(has(now) && !has(before));
    let other = prefix("10.200.7.9/32");
    assert!(now.scope.other_networks.longest_match(&other).is_some());
    assert_eq!(now.release.as_deref(), Some("2"));
    assert_eq!(now.scope.host_subnets, before.scope.host_subnets);
}

#[test]
fn the_admins_word_is_the_own_nodes_and_stays_while_there_is_none() {
    let mut memory = memory();
    let mut word = |change: fn(&mut Facts)| {
        let mut facts = whole();
        change(&mut facts);
        memory.snapshot(facts).machine.release
    };
    assert_eq!(word(|_| ()), Some("1".to_owned()));
    assert_eq!(
        word(|f| (f.nodes, f.release) = (Some(Vec::new()), None)),
        Some("1".to_owned())
    );
    assert_eq!(
        word(|f| (f.nodes, f.release) = (None, None)),
        Some("1".to_owned())
    );
    assert_eq!(word(|f| f.release = None), None);
}

#[test]
fn flows_are_made_of_the_mac_and_addresses_that_the_host_has_now() {
    let mut memory = memory();
    drop(memory.snapshot(whole()));
    let mut facts = whole();
    let mut changed = bridge("172.30.0.99/24");
    changed.mac = Some("02:42:ac:12:00:99".parse().unwrap());
    facts.links = Ok(vec![changed]);
    own(&mut facts).subnets = Fact::Absent;
    let snapshot = memory.snapshot(facts);
    assert!(stale(&snapshot).is_some());
    let FlowTable::Full { flows, .. } = plan_node::plan(&snapshot).flows else {
        panic!("there was a whole table");
    };
    let all: String = flows.iter().map(|flow| format!("{flow}\n")).collect();
    assert!(
        all.contains("02:42:ac:12:00:99") && all.contains("172.30.0.99"),
        "{all}"
    );
    assert!(
        !all.contains("0a:58:ac:1e:00:01") && all.contains("10.128.1.0/24"),
        "{all}"
    );
}

#[test]
fn a_subnet_outside_costs_only_itself() {
    let mut facts = whole();
    own(&mut facts).subnets =
        mk_node("n1", &[("default", &["10.128.1.0/24", "192.0.2.0/24"])]).subnets;
    let snapshot = memory().snapshot(facts);
    assert_eq!(stale(&snapshot), None);
    let (_, view) = snapshot.here().next().unwrap();
    assert_eq!(view.share.host_subnets, [prefix("10.128.1.0/24")]);
    let reasons: Vec<&str> = snapshot.ignored.iter().map(|p| p.reason).collect();
    assert_eq!(reasons, ["NodeSubnetOutside"]);
    assert_eq!(snapshot.problems, []);
}

#[test]
fn a_network_whose_subnets_hold_hosts_is_not_led_into_by_the_main_table() {
    let facts = |own_vrf: bool| {
        let mut blue = mk_user_network(
            "cluster_udn_blue",
            5,
            &["10.200.0.0/16/24"],
            &["100.65.0.0/16"],
        );
        blue.advertised.default_vrf = !own_vrf;
        blue.advertised.own_vrf = own_vrf;
        let mut facts = whole();
        facts.networks.push(blue);
        let subnets = [
            ("default", &["10.128.1.0/24"][..]),
            ("cluster_udn_blue", &["10.200.1.0/24"]),
        ];
        own(&mut facts).subnets = mk_node("n1", &subnets).subnets;
        facts
    };
    let name = NetworkName::from("cluster_udn_blue");
    let is_here = |snapshot: &Snapshot| snapshot.here().any(|(of, _)| *of == name);
    let told = |snapshot: &Snapshot| snapshot.stale.get(&name).map(ToString::to_string);
    let server = || Some(BTreeSet::from(["10.200.7.7".parse().unwrap()]));
    let mut with_server = facts(false);
    with_server.api_servers = server();
    let snapshot = memory().snapshot(with_server);
    assert!(!is_here(&snapshot));
    let why = told(&snapshot).unwrap();
    assert!(
        why.contains("hold 10.200.7.7, an endpoint of Service default/kubernetes"),
        "{why}"
    );
    let mut with_node = facts(false);
    node_at(&mut with_node, 2).internal_ips = vec!["10.200.0.9".parse().unwrap()];
    let why = told(&memory().snapshot(with_node)).unwrap();
    assert!(
        why.contains("10.200.0.9, an InternalIP of node n3"),
        "{why}"
    );
    // The main table does not lead there.
    let mut apart = facts(true);
    apart.api_servers = server();
    let snapshot = memory().snapshot(apart);
    let why = told(&snapshot).unwrap_or_default();
    assert!(is_here(&snapshot) && !why.contains("hold"), "{why}");
    // One that runs goes on and is told of; one that ran in its own VRF alone is not led into from now on.
    let mut memory = memory();
    assert!(is_here(&memory.snapshot(facts(false))));
    let mut later = facts(false);
    later.api_servers = server();
    let snapshot = memory.snapshot(later);
    assert!(is_here(&snapshot) && told(&snapshot).unwrap().contains("hold 10.200.7.7"));
}

/// With network blue of a user beside OVN-Kubernetes.
fn with_led(subnets: &str, own_subnet: &str, transport: Transport) -> Facts {
    let mut blue = mk_user_network("cluster_udn_blue", 5, &[subnets], &["100.65.0.0/16"]);
    blue.transport = transport;
    let mut facts = whole();
    facts.networks.push(blue);
    let subnets = [
        ("default", &["10.128.1.0/24"][..]),
        ("cluster_udn_blue", &[own_subnet]),
    ];
    own(&mut facts).subnets = mk_node("n1", &subnets).subnets;
    facts
}

fn led() -> Transport {
    let transport = mk_user_network("x", 1, &["10.0.0.0/16/24"], &["100.65.0.0/16"]).transport;
    assert!(transport.no_overlay().is_some());
    transport
}

fn beside() -> Memory {
    Memory::new(NodeConfig {
        beside: true,
        ..config(BgpDefault::Ignore)
    })
}

#[test]
fn what_an_agent_before_this_one_led_is_planned_for_whatever_is_wrong_with_it_now() {
    let name = NetworkName::from("cluster_udn_blue");
    // It could not go back otherwise, and nothing else either.
    let of = |stands: Option<&NetworkName>| {
        let mut facts = with_led("172.30.0.0/16/24", "172.30.9.0/24", led());
        let port = mk_link(9, "ovn-k8s-mp5");
        facts.links.as_mut().unwrap().push(port);
        facts.row_owners = Some(stands.cloned().into_iter().collect());
        beside().snapshot(facts)
    };
    let (refused, stands) = (of(None), of(Some(&name)));
    let is_here = |snapshot: &Snapshot| snapshot.here().any(|(here, _)| *here == name);
    assert!(!is_here(&refused) && is_here(&stands));
    for snapshot in [refused, stands] {
        let why = snapshot.stale[&name].to_string();
        assert!(why.contains("an InternalIP of node n1"), "{why}");
    }
}

#[test]
fn beside_ovn_kubernetes_a_network_is_led_past_the_tunnels_only_where_no_hosts_and_services_are_in_its_subnets()
 {
    let name = NetworkName::from("cluster_udn_blue");
    // There is nothing of OVN-Kubernetes here, which is looked for after.
    let told = |subnets: &str, own_subnet: &str, transport: Transport| {
        let snapshot = beside().snapshot(with_led(subnets, own_subnet, transport));
        snapshot.stale[&name].to_string()
    };
    let later = "there is no device ovn-k8s-mp5";
    for (subnets, own_subnet, transport, why) in [
        // A node is in them; in the tunnels its addresses are its own.
        (
            "172.30.0.0/16/24",
            "172.30.9.0/24",
            led(),
            "an InternalIP of node n1",
        ),
        (
            "172.30.0.0/16/24",
            "172.30.9.0/24",
            Transport::Geneve,
            "has an overlay",
        ),
        (
            "172.31.0.0/16/24",
            "172.31.9.0/24",
            led(),
            "172.31.0.0/16 of [kubernetes] service-cidrs",
        ),
        (
            "172.31.0.0/16/24",
            "172.31.9.0/24",
            Transport::Geneve,
            "has an overlay",
        ),
        ("10.200.0.0/16/24", "10.200.1.0/24", led(), later),
    ] {
        let said = told(subnets, own_subnet, transport);
        assert!(said.contains(why), "{subnets}: {said}");
    }
}

#[test]
fn one_network_that_is_not_known_keeps_no_other_from_being_planned() {
    let blue = || {
        mk_user_network(
            "cluster_udn_blue",
            5,
            &["10.200.0.0/16/24"],
            &["100.65.0.0/16"],
        )
    };
    let (name, mut memory) = (blue().name, memory());
    let mut facts = whole();
    facts.networks.push(blue());
    let snapshot = memory.snapshot(facts);
    let plan = plan_node::plan(&snapshot);
    assert_eq!(plan.unknown, std::slice::from_ref(&name));
    assert!(matches!(
        plan.flows,
        FlowTable::Full {
            complete: false,
            ..
        }
    ));
    let why = snapshot.stale[&name].to_string();
    assert_eq!(why, "node n1 has no subnet of network cluster_udn_blue yet");
    assert_eq!(stale(&snapshot), None);
    assert_eq!(plan.ports.len(), 1);
    let mut facts = whole();
    facts.networks.push(blue());
    own(&mut facts).subnets = mk_node(
        "n1",
        &[
            ("default", &["10.128.1.0/24"]),
            ("cluster_udn_blue", &["10.200.1.0/24"]),
        ],
    )
    .subnets;
    let plan = plan_node::plan(&memory.snapshot(facts));
    assert!(plan.is_complete());
    assert_eq!(plan.ports.len(), 2);
    // It is declared no more.
    let plan = plan_node::plan(&memory.snapshot(whole()));
    assert!(plan.is_complete());
    assert_eq!(plan.ports.len(), 1);
}

#[test]
fn a_layout_that_is_not_built_is_left_alone() {
    let mut facts = whole();
    facts.networks[0].topology = Topology::Layer2;
    let snapshot = memory().snapshot(facts);
    let plan = plan_node::plan(&snapshot);
    assert!(plan.north.is_empty() && plan.learn.is_empty() && !plan.is_complete());
    assert_eq!(
        stale(&snapshot).unwrap().to_string(),
        "network default is a layer-2 one without an overlay; allowed: layer3, or layer2 with one"
    );
}

#[test]
fn both_families_of_one_network_do_not_cost_another_its_own() {
    // The default network has IPv4 alone, and a network of users both.
    let mut facts = whole();
    let both = ["10.200.0.0/16/24", "fd00:200::/48/64"];
    let join = ["100.65.0.0/16", "fd99::/64"];
    facts
        .networks
        .push(mk_user_network("cluster_udn_blue", 5, &both, &join));
    own(&mut facts).subnets = mk_node(
        "n1",
        &[
            ("default", &["10.128.1.0/24"]),
            ("cluster_udn_blue", &["10.200.1.0/24", "fd00:200:0:1::/64"]),
        ],
    )
    .subnets;
    if let Ok(links) = &mut facts.links {
        links[1].addresses.push("fd00:30::1/64".parse().unwrap());
        links.push(mk_link(9, "ovn-k8s-mp5"));
    }
    let snapshot = memory().snapshot(facts);
    assert!(snapshot.stale.is_empty() && snapshot.problems.is_empty());
    let plan = plan_node::plan(&snapshot);
    let default = plan_node::plan(&memory().snapshot(whole()));
    let owner = model::nb::Owner::Network(NetworkName::default_network());
    // But for the way back from Services that the other one uses.
    let mut beside = plan.north[&owner].clone();
    let view = snapshot.here().find(|(name, _)| name.is_default());
    let services = plan_node::north::services::plan(view.unwrap().1);
    assert_eq!(services.len(), 2, "{services:?}");
    beside.retain(|row, _| !services.contains_key(row));
    assert_eq!(beside, default.north[&owner]);
    let text = format!("{:?}", plan.north);
    assert!(
        text.contains("fd00:30::1"),
        "the other network has its address"
    );
}

/// The facts with a network of users of that id.
fn with_blue(id: u16) -> Facts {
    let mut facts = whole();
    let blue = mk_user_network(
        "cluster_udn_blue",
        id,
        &["10.200.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    facts.networks.push(blue);
    let subnets: [(&str, &[&str]); 2] = [
        ("default", &["10.128.1.0/24"]),
        ("cluster_udn_blue", &["10.200.1.0/24"]),
    ];
    own(&mut facts).subnets = mk_node("n1", &subnets).subnets;
    facts
}

pub(super) fn links(facts: &mut Facts) -> &mut Vec<LinkFact> {
    facts.links.as_mut().unwrap()
}

fn vrf_of(snapshot: &Snapshot) -> Option<Vrf> {
    match &snapshot.networks[&NetworkName::from("cluster_udn_blue")] {
        Share::Here(share) => share.vrf.clone(),
        Share::Unknown(_) | Share::Refused => panic!("nothing is known of it"),
    }
}

#[test]
fn a_network_of_users_has_its_port_first_and_its_vrf_behind_it() {
    let mut memory = memory();
    let name = NetworkName::from("cluster_udn_blue");
    let snapshot = memory.snapshot(with_blue(5));
    assert!(plan_node::plan(&snapshot).ports.contains_key(&name));
    assert_eq!(vrf_of(&snapshot), None);
    assert!(snapshot.stale[&name].to_string().contains("ovn-k8s-mp5"));
    let mut facts = with_blue(5);
    links(&mut facts).push(mk_link(42, "ovn-k8s-mp5"));
    let snapshot = memory.snapshot(facts);
    let made = vrf_of(&snapshot).unwrap();
    assert_eq!((made.device.as_str(), made.table), ("blue", 1042));
    assert!(snapshot.stale.is_empty(), "{:?}", snapshot.stale);
    // The port is made anew: another index, the same table.
    let mut facts = with_blue(5);
    let mut vrf = mk_link(43, "blue");
    vrf.vrf_table = Some(1042);
    links(&mut facts).extend([vrf.clone(), mk_link(77, "ovn-k8s-mp5")]);
    assert_eq!(vrf_of(&memory.snapshot(facts)), Some(made.clone()));
    // The port is away, before or behind a restart: what stands stays.
    let mut facts = with_blue(5);
    links(&mut facts).push(vrf);
    for memory in [&mut memory, &mut self::memory()] {
        let snapshot = memory.snapshot(facts.clone());
        assert_eq!(vrf_of(&snapshot), Some(made.clone()));
        let device = KernelKey::Vrf {
            device: "blue".to_owned(),
        };
        assert!(plan_node::plan(&snapshot).kernel.contains_key(&device));
    }
}

#[test]
fn two_vrfs_that_are_made_in_one_breath_have_two_tables() {
    let mut facts = with_blue(5);
    let red = mk_user_network(
        "cluster_udn_red",
        6,
        &["10.201.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    facts.networks.push(red);
    let subnets: [(&str, &[&str]); 3] = [
        ("default", &["10.128.1.0/24"]),
        ("cluster_udn_blue", &["10.200.1.0/24"]),
        ("cluster_udn_red", &["10.201.1.0/24"]),
    ];
    own(&mut facts).subnets = mk_node("n1", &subnets).subnets;
    // Somebody's VRF has the table that the first one would have.
    let mut foreign = mk_link(9, "theirs");
    foreign.vrf_table = Some(1042);
    links(&mut facts).extend([
        foreign,
        mk_link(42, "ovn-k8s-mp5"),
        mk_link(43, "ovn-k8s-mp6"),
    ]);
    let snapshot = memory().snapshot(facts);
    let tables: BTreeSet<u32> = snapshot
        .here()
        .filter_map(|(_, view)| Some(view.share.vrf.as_ref()?.table))
        .collect();
    assert_eq!(tables, BTreeSet::from([1043, 1044]));
}

#[test]
fn a_device_in_the_way_or_a_small_masquerade_subnet_costs_its_network_only() {
    let blue = NetworkName::from("cluster_udn_blue");
    let mut facts = with_blue(5);
    links(&mut facts).extend([mk_link(42, "ovn-k8s-mp5"), mk_link(43, "blue")]);
    let snapshot = memory().snapshot(facts);
    let said = snapshot.stale[&blue].to_string();
    assert!(said.contains("blue") && said.contains("allowed"), "{said}");
    assert_eq!(snapshot.stale.len(), 1);
    let mut config = config(BgpDefault::Ignore);
    config.masquerade_subnets = vec!["169.254.169.0/29".parse().unwrap()];
    let mut facts = with_blue(5);
    links(&mut facts).push(mk_link(42, "ovn-k8s-mp5"));
    let snapshot = Memory::new(config).snapshot(facts);
    let said = snapshot.stale[&blue].to_string();
    assert!(
        said.contains("v4-masquerade-subnet") && said.contains("21"),
        "{said}"
    );
    assert_eq!(snapshot.stale.len(), 1);
    // Nothing of it is built: it would leave with addresses of pods.
    let plan = plan_node::plan(&snapshot);
    assert!(matches!(snapshot.networks[&blue], Share::Unknown(_)));
    assert!(!plan.ports.contains_key(&blue));
    assert!(plan.ports.contains_key(&NetworkName::default_network()));
}

#[test]
fn a_vrf_that_the_kernel_refuses_costs_its_network_alone() {
    let blue = NetworkName::from("cluster_udn_blue");
    let mut facts = with_blue(5);
    links(&mut facts).push(mk_link(42, "ovn-k8s-mp5"));
    let why = ("blue".to_owned(), "Operation not supported".to_owned());
    facts.refused_vrfs = BTreeMap::from([why]);
    let mut memory = memory();
    let snapshot = memory.snapshot(facts.clone());
    assert_eq!(vrf_of(&snapshot), None);
    let stale = &snapshot.stale[&blue];
    assert_eq!(stale.reason(), Some("VrfRefused"));
    assert!(stale.to_string().contains("not supported"), "{stale}");
    assert_eq!(snapshot.stale.len(), 1);
    let plan = plan_node::plan(&snapshot);
    assert!(plan.is_complete(), "what others no longer want may go");
    let without = plan_node::plan(&self::memory().snapshot(whole()));
    assert_eq!(plan.kernel, without.kernel);
    // It is tried again, or somebody else has made it.
    facts.refused_vrfs.clear();
    assert!(vrf_of(&memory.snapshot(facts.clone())).is_some());
    facts.refused_vrfs = BTreeMap::from([("blue".to_owned(), String::new())]);
    let mut vrf = mk_link(43, "blue");
    vrf.vrf_table = Some(500);
    links(&mut facts).push(vrf);
    let snapshot = memory.snapshot(facts);
    assert_eq!(vrf_of(&snapshot).map(|vrf| vrf.table), Some(500));
    assert!(snapshot.stale.is_empty());
}
