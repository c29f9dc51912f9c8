//! What stands of networks of which nothing is known yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Problem;
use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::LinkFact;
use model::names::{NetworkName, NodeName};
use model::nb::Owner;
use model::node::{Fact, Node};
use model::ovs::{BridgeFact, patch_port};
use plan_node::{Facts, FlowTable, Memory, NodeConfig, NotYet, Plan, Undeclared};
use testkit::{BRIDGE_LINK, mk_link, mk_network, mk_node, mk_port, mk_user_network};

fn blue() -> NetworkName {
    NetworkName::from("cluster_udn_blue")
}

/// n1 with the default network; patch port 3 is blue's, of which only the API server could tell more.
fn facts() -> Facts {
    let own = NodeName::from("n1");
    let patch = |network: &NetworkName| patch_port("br-ex", network, &own);
    let bridge = LinkFact {
        mac: Some("0a:58:ac:1e:00:01".parse().unwrap()),
        addresses: vec!["172.30.0.1/24".parse().unwrap()],
        ..mk_link(BRIDGE_LINK, "br-ex")
    };
    let subnets: [(&str, &[&str]); 2] = [
        ("default", &["10.128.1.0/24"]),
        ("cluster_udn_blue", &["10.200.1.0/24"]),
    ];
    Facts {
        networks: vec![mk_network()],
        undeclared: Undeclared::default(),
        nodes: Some(vec![Arc::new(Node {
            internal_ips: vec!["172.30.0.1".parse().unwrap()],
            node_id: Fact::Known(2),
            ..mk_node("n1", &subnets)
        })]),
        api_servers: Some(BTreeSet::new()),
        services: Some(BTreeMap::new()),
        release: None,
        links: Ok(vec![bridge]),
        chassis: Some("n1".to_owned()),
        physical_networks: BTreeMap::from([("br-ex".to_owned(), "physnet".to_owned())]),
        encap_ips: None,
        ports: Some(BridgeFact {
            ports: vec![
                mk_port("eth0", "", 1),
                mk_port(&patch(&NetworkName::default_network()), "patch", 2),
                mk_port(&patch(&blue()), "patch", 3),
            ],
        }),
        nat_has_match: Some(true),
        refused_vrfs: BTreeMap::new(),
        management_ports: None,
        row_owners: None,
    }
}

fn unlisted() -> Undeclared {
    Undeclared {
        unlisted: true,
        standing: BTreeSet::from([blue(), NetworkName::default_network()]),
        ..Undeclared::default()
    }
}

fn waiting() -> Undeclared {
    let problem = Problem::new(
        "NetworkAttachmentDefinition/a/blue",
        "AttachmentMalformed",
        "why",
    );
    Undeclared {
        waiting: BTreeMap::from([(blue(), problem)]),
        ..Undeclared::default()
    }
}

fn memory() -> Memory {
    Memory::new(NodeConfig {
        node: NodeName::from("n1"),
        bridge: "br-ex".to_owned(),
        next_hops: vec!["172.30.0.100".parse().unwrap()],
        mode: GatewayMode::Shared,
        ephemeral_port_range: (32768, 60999),
        bgp_default: BgpDefault::Ignore,
        masquerade_subnets: vec!["169.254.0.0/17".parse().unwrap()],
        strict_isolation: true,
        service_cidrs: Vec::new(),
        beside: false,
        transit_subnets: Vec::new(),
    })
}

/// The flows that answer ARP, and whether what else stands goes.
fn bridge(plan: &Plan) -> (String, bool) {
    let FlowTable::Full {
        flows, complete, ..
    } = &plan.flows
    else {
        panic!("{:?}", plan.flows);
    };
    let flows = flows.iter().map(ToString::to_string);
    let mut answers = flows.filter(|flow| flow.contains("arp,in_port=1,actions"));
    (answers.next().unwrap_or_default(), *complete)
}

#[test]
fn before_networks_are_listed_what_stands_for_any_of_them_is_left_alone() {
    let mut whole = facts();
    whole.undeclared = unlisted();
    let snapshot = memory().snapshot(whole);
    assert!(
        snapshot.stale.is_empty(),
        "the default network is known whole"
    );
    let plan = plan_node::plan(&snapshot);
    assert!(!plan.is_complete());
    // Also of a network that nothing on this node tells of.
    for name in [blue(), NetworkName::from("cluster_udn_red")] {
        assert!(plan.unknown.contains(&name), "{name}");
        assert!(!plan.north.contains_key(&Owner::Network(name)));
    }
    // Before the switch's database was read no port is known either.
    let mut unread = facts();
    unread.undeclared = Undeclared {
        unlisted: true,
        ..Undeclared::default()
    };
    let unread = plan_node::plan(&memory().snapshot(unread));
    assert!(unread.unknown.contains(&blue()) && unread.unknown.iter().next().is_none());
    assert!(!plan.unknown.contains(&NetworkName::default_network()));
    let (answers, complete) = bridge(&plan);
    assert!(answers.contains("output:3") && !complete, "{answers}");
    assert!(!plan.ports.contains_key(&blue()) && !plan.learn.contains_key(&blue()));
}

#[test]
fn a_network_that_nobody_can_describe_keeps_what_stands_and_one_that_is_gone_does_not() {
    let mut memory = memory();
    let mut now = facts();
    now.undeclared = waiting();
    let snapshot = memory.snapshot(now.clone());
    assert!(
        matches!(&snapshot.stale[&blue()], NotYet::Unsound(p) if p.reason == "AttachmentMalformed")
    );
    let plan = plan_node::plan(&snapshot);
    assert!(plan.unknown.contains(&blue()) && !plan.is_complete());
    assert!(!plan.unknown.contains(&NetworkName::from("cluster_udn_red")));
    let (answers, complete) = bridge(&plan);
    assert!(answers.contains("output:3") && !complete, "{answers}");
    // It was known once: all of it stays.
    let network = mk_user_network(
        "cluster_udn_blue",
        1,
        &["10.200.0.0/16/24"],
        &["100.65.0.0/16"],
    );
    now.undeclared = Undeclared::default();
    now.networks.push(network);
    let known = plan_node::plan(&memory.snapshot(now.clone()));
    assert!(known.is_complete());
    now.networks.pop();
    for undeclared in [waiting(), unlisted()] {
        now.undeclared = undeclared;
        let later = plan_node::plan(&memory.snapshot(now.clone()));
        assert_eq!(
            (later.north, later.ports),
            (known.north.clone(), known.ports.clone())
        );
        assert_eq!(
            (later.kernel, later.learn),
            (known.kernel.clone(), known.learn.clone())
        );
    }
    now.undeclared = Undeclared::default();
    let gone = plan_node::plan(&memory.snapshot(now));
    assert!(gone.is_complete() && !gone.unknown.contains(&blue()));
    assert!(!gone.north.contains_key(&Owner::Network(blue())));
}

#[test]
fn an_agent_that_starts_without_the_api_server_takes_nothing_away() {
    let mut whole = facts();
    whole.undeclared = unlisted();
    whole.nodes = None;
    let plan = plan_node::plan(&memory().snapshot(whole));
    assert!(!plan.is_complete() && plan.north.is_empty() && plan.ports.is_empty());
    for name in [blue(), NetworkName::default_network()] {
        assert!(plan.unknown.contains(&name), "{name}");
    }
    assert!(matches!(plan.flows, FlowTable::Host { .. }));
}
