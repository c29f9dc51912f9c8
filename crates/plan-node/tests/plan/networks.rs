//! Several networks on one node: what is whose, and what must not be.

use std::collections::BTreeSet;

use import::decide::decide;
use model::kernel::KernelKey;
use model::names::NetworkName;
use model::nb::{Owner, RowKey, Table};
use model::route::{KernelRoute, RouteKind, RoutePath};
use plan_node::check::{self, Severity, Violation};
use plan_node::north::shared;
use plan_node::{FlowTable, NetworkShare, Plan, Snapshot};
use testkit::{BRIDGE_LINK, mk_network, mk_node, mk_snapshot, mk_user_network, mk_view};

/// Node n1's share of a network of users that has 10.200.0.0/16.
fn share(name: &str, id: u16) -> NetworkShare {
    NetworkShare {
        network: mk_user_network(name, id, &["10.200.0.0/16/24"], &["100.65.0.0/16"]),
        host_subnets: vec!["10.200.1.0/24".parse().unwrap()],
        remote_subnets: Vec::new(),
        mtu: 1500,
        vrf: None,
    }
}

fn mk(shares: &[NetworkShare]) -> (Snapshot, Plan) {
    let snapshot = mk_snapshot(&mk_view(1).node, shares);
    let plan = plan_node::plan(&snapshot);
    (snapshot, plan)
}

fn three() -> [NetworkShare; 3] {
    let default = mk_view(1).share;
    [
        default,
        share("cluster_udn_blue", 1),
        share("cluster_udn_red", 2),
    ]
}

#[test]
fn what_networks_share_is_the_nodes_and_no_networks() {
    let (_, plan) = mk(&three());
    let set = shared::node_ips(model::Family::V4);
    let owners = plan
        .north
        .iter()
        .filter(|(_, rows)| rows.contains_key(&set));
    let owners: Vec<&Owner> = owners.map(|(owner, _)| owner).collect();
    assert_eq!(owners, [&Owner::Node]);
    // A network that does without the set of its addresses changes nothing for the others.
    let (_, alone) = mk(&three()[..1]);
    let advertised = shared::advertised_subnets(model::Family::V4);
    let mut others = plan.north[&Owner::Node].clone();
    let all = others.remove(&advertised).unwrap();
    let mut of_one = alone.north[&Owner::Node].clone();
    assert_ne!(of_one.remove(&advertised).unwrap(), all);
    assert_eq!(of_one, others);
}

#[test]
fn the_kernels_entries_are_one_plan_for_all_networks() {
    let (_, plan) = mk(&three());
    for (_, part) in three().iter().map(|one| mk(std::slice::from_ref(one))) {
        for (key, entry) in &part.kernel {
            assert_eq!(plan.kernel.get(key), Some(entry), "{key}");
        }
    }
    let rules = plan.kernel.keys();
    let rules = rules
        .filter(|key| matches!(key, KernelKey::Rule { preference: 31, .. }))
        .count();
    assert_eq!(
        rules, 1,
        "two networks may have one subnet; each has a table of its own"
    );
}

#[test]
fn a_network_learns_the_way_to_its_own_pods_though_another_has_the_same_subnet() {
    let nodes: Vec<_> = (1..=3)
        .map(|n| {
            let subnet = format!("10.200.{n}.0/24");
            let default = format!("10.128.{n}.0/24");
            mk_node(
                &format!("n{n}"),
                &[
                    ("default", &[default.as_str()]),
                    ("cluster_udn_blue", &[subnet.as_str()]),
                    ("cluster_udn_red", &[subnet.as_str()]),
                ],
            )
        })
        .collect();
    let (mut snapshot, _) = mk(&three());
    for share in three() {
        let claims = plan_node::claims::evaluate(&share.network, &nodes, &[]);
        assert_eq!(claims.problems, [], "{}", share.network.name);
        snapshot.machine.claims.insert(share.network.name, claims);
    }
    let plan = plan_node::plan(&snapshot);
    let route = |to: &str| KernelRoute {
        table: 1001,
        prefix: to.parse().unwrap(),
        metric: 20,
        kind: RouteKind::Unicast,
        paths: vec![RoutePath {
            gateway: Some("172.30.0.2".parse().unwrap()),
            oif: BRIDGE_LINK,
        }],
    };
    let learns = |network: &str, to: &str| {
        let inputs = &plan.learn[&NetworkName::from(network)];
        !decide(&route(to), &inputs.scope).hops.is_empty()
    };
    for network in ["cluster_udn_blue", "cluster_udn_red"] {
        assert!(learns(network, "10.200.2.0/24"), "{network}");
        assert!(
            !learns(network, "10.200.1.0/24"),
            "{network}: its own subnet"
        );
    }
    // In the main table the same subnets are other networks' pods.
    assert!(!learns("default", "10.200.2.0/24"));
    assert!(learns("default", "10.128.2.0/24"));
    let tables: BTreeSet<_> = plan.learn.values().map(|inputs| inputs.table).collect();
    assert_eq!(tables, BTreeSet::from([Some(254), Some(1001), Some(1002)]));
}

#[test]
fn each_network_has_its_own_flows_and_ports() {
    let (_, plan) = mk(&three());
    let FlowTable::Full {
        flows, complete, ..
    } = &plan.flows
    else {
        panic!("{:?}", plan.flows);
    };
    assert!(complete);
    let with = |text: &str| {
        flows
            .iter()
            .filter(|f| f.to_string().contains(text))
            .count()
    };
    for patch in [2, 3, 4] {
        assert!(with(&format!("in_port={patch},")) > 0);
    }
    let ports: Vec<&str> = plan.ports.values().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["ovn-k8s-mp1", "ovn-k8s-mp2", "ovn-k8s-mp0"]);
}

#[test]
fn rules_between_networks_are_checked() {
    let found = |shares: &[NetworkShare], change: fn(&mut Snapshot)| {
        let (mut snapshot, _) = mk(shares);
        change(&mut snapshot);
        let plan = plan_node::plan(&snapshot);
        check::plan(&snapshot, &plan)
    };
    let blue_name = NetworkName::from("cluster_udn_blue");
    let shared = Violation::SameSubnetOnUplink {
        subnet: "10.200.1.0/24".parse().unwrap(),
        other: blue_name.clone(),
    };
    let red_owner = Owner::Network(NetworkName::from("cluster_udn_red"));
    let on_uplink = (red_owner, shared);
    assert_eq!(found(&three(), |_| ()), std::slice::from_ref(&on_uplink));
    let [default, blue, mut red] = three();
    red.network.id = 1;
    let same_id = found(&[default.clone(), blue.clone(), red.clone()], |_| ());
    let owner = Owner::Network(NetworkName::from("cluster_udn_red"));
    let other = NetworkName::from("cluster_udn_blue");
    let wanted = Violation::SameId {
        id: 1,
        other: other.clone(),
    };
    // One id is one VRF device, and its subnets would be in one table too.
    let (errors, warnings): (Vec<_>, Vec<_>) = same_id
        .into_iter()
        .partition(|(_, violation)| violation.severity() == Severity::Error);
    assert_eq!(errors, [(owner.clone(), wanted)]);
    assert!(
        warnings
            .iter()
            .all(|(_, v)| matches!(v, Violation::SameSubnet { .. }))
    );
    // The one that came second by name is left alone, in every sink.
    let (snapshot, _) = mk(&[default.clone(), blue.clone(), red]);
    let (plan, violations) = plan_node::sound_plan(snapshot);
    assert!(violations.contains(&errors[0]));
    assert_eq!(plan.unknown, [NetworkName::from("cluster_udn_red")]);
    assert_eq!(plan.ports.len(), 2);
    assert!(plan.ports.contains_key(&blue_name));
    let (_, without) = mk(&[default, blue]);
    assert_eq!(plan.kernel, without.kernel);
    // Two devices of one table.
    let one_table = found(&three(), |snapshot| {
        for link in snapshot.machine.links.iter_mut().flatten() {
            link.vrf_table = link.vrf_table.map(|_| 1001);
        }
    });
    let subnet = "10.200.1.0/24".parse().unwrap();
    assert_eq!(
        one_table,
        [on_uplink, (owner, Violation::SameSubnet { subnet, other })]
    );
}

#[test]
fn a_row_that_two_owners_claim_is_found() {
    let (snapshot, mut plan) = mk(&three());
    let row = RowKey::root(Table::Router, "GR_n1");
    let default = Owner::Network(mk_network().name);
    let columns = plan.north[&default][&row].clone();
    let blue = Owner::Network(NetworkName::from("cluster_udn_blue"));
    plan.north
        .get_mut(&blue)
        .unwrap()
        .insert(row.clone(), columns);
    let found = check::plan(&snapshot, &plan);
    let twice = Violation::ClaimedTwice { row, other: blue };
    assert!(found.contains(&(default, twice)), "{found:?}");
}

#[test]
fn a_row_whose_marker_somebody_changed_is_still_the_one_that_its_name_says() {
    let (_, plan) = mk(&three());
    let default = Owner::Network(mk_network().name);
    let stranger = Owner::Network(NetworkName::from("foo"));
    let switch = RowKey::root(Table::Switch, "n1");
    // Nothing is planned for the stranger: its rows go, but for those that another owner has planned.
    assert!(plan.is_anothers(&stranger, &switch));
    assert!(!plan.is_anothers(&default, &switch));
    assert!(!plan.is_anothers(&stranger, &RowKey::root(Table::Switch, "foo_n1")));
    // Rows of the node are distinguished by their names alone.
    let set = shared::node_ips(model::Family::V4);
    assert_eq!(Owner::of("default", set.table, &set.id), Owner::Node);
    assert_eq!(Owner::of("foo", set.table, &set.id), stranger);
    assert_eq!(Owner::of("default", Table::Router, &set.id), default);
}

#[test]
fn no_match_of_a_flow_stands_twice_and_networks_that_are_not_known_hear_what_all_hear() {
    let flows = |plan: &Plan| match &plan.flows {
        FlowTable::Full { flows, .. } => flows.clone(),
        other @ (FlowTable::Unknown { .. }
        | FlowTable::SeveralUplinks { .. }
        | FlowTable::Host { .. }) => panic!("{other:?}"),
    };
    let (mut snapshot, plan) = mk(&three());
    let mut places = BTreeSet::new();
    for flow in flows(&plan) {
        let place = (flow.table, flow.priority, flow.matches.clone());
        assert!(places.insert(place), "{flow}");
    }
    // The network of the smaller id has what arrives for the subnet that two have.
    let inbound = |flow: &&model::ovs::Flow| flow.matches.ends_with("nw_dst=10.200.1.0/24");
    let all = flows(&plan);
    let to: Vec<&str> = all
        .iter()
        .filter(inbound)
        .map(|f| f.actions.as_str())
        .collect();
    assert_eq!(to, ["output:3"]);
    let everybody = |plan: &Plan| {
        let is_arp = |flow: &&model::ovs::Flow| flow.matches == "arp,in_port=1";
        flows(plan).iter().find(is_arp).unwrap().actions.clone()
    };
    assert_eq!(everybody(&plan), "LOCAL,output:2,output:3,output:4");
    let red = NetworkName::from("cluster_udn_red");
    let unknown = plan_node::UnknownShare {
        network: Some(three()[2].network.clone()),
        host_subnets: Vec::new(),
    };
    snapshot
        .networks
        .insert(red, plan_node::Share::Unknown(unknown));
    assert_eq!(everybody(&plan_node::plan(&snapshot)), everybody(&plan));
}

#[test]
fn loose_isolation_leaves_networks_to_the_physical_network() {
    let acls = |strict: bool| {
        let mut node = mk_view(1).node;
        node.strict_isolation = strict;
        let plan = plan_node::plan(&mk_snapshot(&node, &three()));
        let rows = plan.north.values().flatten();
        let set = shared::advertised_subnets(model::Family::V4);
        let found = rows.filter(|(key, _)| key.table == Table::Acl || **key == set);
        found.count()
    };
    assert_eq!(acls(true), 4, "one ACL a network, and the set");
    assert_eq!(acls(false), 0);
}

#[test]
fn a_network_over_its_own_vrfs_interfaces_shares_no_uplink() {
    let mut shares = three();
    let (snapshot, plan) = mk(&shares);
    let on_uplink = |found: &[(Owner, Violation)]| {
        let of = |v: &&(Owner, Violation)| matches!(v.1, Violation::SameSubnetOnUplink { .. });
        found.iter().filter(of).count()
    };
    assert_eq!(on_uplink(&check::plan(&snapshot, &plan)), 1);
    for own in [1, 2] {
        shares = three();
        shares[own].network.advertised.own_vrf = true;
        let (snapshot, plan) = mk(&shares);
        assert_eq!(on_uplink(&check::plan(&snapshot, &plan)), 0);
    }
}

#[test]
fn masquerade_addresses_on_the_way_to_services_keep_their_own() {
    let mut node = mk_view(1).node;
    node.mode = model::gateway::GatewayMode::Local;
    node.service_cidrs = ["172.31.0.0/16", "fd02::/112"]
        .map(|text| text.parse().unwrap())
        .into();
    let plan = plan_node::plan(&mk_snapshot(&node, &three()));
    // As a node of OVN-Kubernetes has it.
    let rule =
        "ip saddr != 169.254.0.0/29 ip daddr != 172.31.0.0/16 ip saddr 169.254.0.0/17 masquerade";
    assert_eq!(plan.nft.chains["ovn-kube-udn-masq"].rules, [rule]);
}
