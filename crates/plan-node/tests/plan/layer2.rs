//! Layer-2 networks: one switch and one router for all nodes, the whole subnet on each.

use model::address::Family;
use model::gateway::GatewayMode;
use model::kernel::{KernelEntry, KernelKey};
use model::names::{NetworkName, NodeName};
use model::nb::{Columns, Owner, RowKey, Rows, Table, Value};
use model::network::Advertised;
use model::node::Fact;
use plan_node::north::shared;
use plan_node::north::snat::exemption_id;
use plan_node::{FlowTable, Plan, RemoteNode, check, kernel, learn, north};
use testkit::{View, mk_layer2_network, mk_layer2_share, mk_link, mk_snapshot, mk_view};

const SWITCH: &str = "cluster_udn_gray_ovn_layer2_switch";
const ROUTER: &str = "cluster_udn_gray_transit_router";
const GATEWAY: &str = "GR_cluster_udn_gray_n1";
const JOIN: &str = "cluster_udn_gray_join";
const TO_SWITCH: &str = "trtos-cluster_udn_gray_ovn_layer2_switch";

/// n1 (id 2) of three nodes and its share of gray, id 4, advertised into the default VRF.
fn gray(subnets: &[&str]) -> View {
    let mut network = mk_layer2_network("cluster_udn_gray", 4, subnets);
    network.advertised.default_vrf = true;
    let mut view = View {
        node: mk_view(1).node,
        share: mk_layer2_share(network),
    };
    for number in [2_u8, 3] {
        let remote = RemoteNode {
            id: u32::from(number) + 1,
            chassis: format!("chassis-{number}"),
            encap_ips: [format!("172.30.0.{number}").parse().unwrap()].into(),
        };
        let name = NodeName::from(format!("n{number}"));
        view.node.remotes.insert(name, remote);
    }
    if subnets.iter().any(|subnet| subnet.contains(':')) {
        let address = "fd00:30::1/64".parse().unwrap();
        view.node.gateway.addresses.push(address);
        view.node.host_addresses.insert(address.ip);
    }
    view
}

fn v4() -> View {
    gray(&["10.153.0.0/16"])
}

fn dual() -> View {
    gray(&["10.153.0.0/16", "fd53::/64"])
}

/// Its rows, checked.
fn rows(view: &View) -> Rows {
    let rows = north::plan(view.get());
    let of_node = shared::plan(&view.node, [view.get()].into_iter());
    assert_eq!(check::rows(&rows, Some(&of_node)), []);
    rows
}

fn row<'a>(rows: &'a Rows, table: Table, parent: &str, id: &str) -> &'a Columns {
    let key = RowKey::child(table, parent, id);
    rows.get(&key).unwrap_or_else(|| panic!("no {key}"))
}

fn ids(rows: &Rows, table: Table, parent: &str) -> Vec<String> {
    let of = |key: &&RowKey| key.table == table && key.parent_name().unwrap_or_default() == parent;
    rows.keys().filter(of).map(|key| key.id.clone()).collect()
}

fn word(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn switch_and_router_are_one_for_all_nodes_and_have_the_keys_that_were_given_out() {
    let rows = rows(&dual());
    assert_eq!(
        ids(&rows, Table::Switch, ""),
        [JOIN, SWITCH, "ext_cluster_udn_gray_n1"]
    );
    assert_eq!(ids(&rows, Table::Router, ""), [GATEWAY, ROUTER]);
    let switch = &rows[&RowKey::root(Table::Switch, SWITCH)];
    let config = [("interconn-ts", SWITCH), ("requested-tnl-key", "16711687")];
    assert_eq!(switch["other_config"], Value::entries(config));
    let ids_of = [
        ("k8s.ovn.org/network", "cluster_udn_gray"),
        ("k8s.ovn.org/topology", "layer2"),
        ("k8s.ovn.org/role", "primary"),
    ];
    assert!(switch["external_ids"].satisfies(&Value::entries(ids_of)));
    let router = &rows[&RowKey::root(Table::Router, ROUTER)];
    assert_eq!(
        router["options"],
        Value::entries([("requested-tnl-key", "16715779")])
    );
    assert!(router["external_ids"].satisfies(&Value::entries([("k8s-cluster-router", "yes")])));
    assert_eq!(
        ids(&rows, Table::SwitchPort, SWITCH),
        [
            "k8s-cluster_udn_gray_n1",
            "stotr-cluster_udn_gray_ovn_layer2_switch"
        ]
    );
    let management = row(&rows, Table::SwitchPort, SWITCH, "k8s-cluster_udn_gray_n1");
    assert_eq!(
        management["addresses"],
        Value::set(["0a:58:0a:99:00:02 10.153.0.2 fd53::2"])
    );
}

#[test]
fn router_ports_are_as_ovn_kubernetes_makes_them() {
    let mut view = dual();
    let rows_of_old = rows(&view);
    let to_switch = row(&rows_of_old, Table::RouterPort, ROUTER, TO_SWITCH);
    assert!(!to_switch.contains_key("options"), "{to_switch:?}");
    view.node.nat_has_match = true;
    let rows = rows(&view);
    let to_switch = row(&rows, Table::RouterPort, ROUTER, TO_SWITCH);
    assert_eq!(to_switch["mac"], word("0a:58:0a:99:00:01"));
    assert_eq!(
        to_switch["networks"],
        Value::set(["10.153.0.1/16", "fd53::1/64"])
    );
    assert_eq!(
        to_switch["options"],
        Value::entries([("requested-tnl-key", "1")])
    );
    let chassis = RowKey::root(Table::GatewayChassis, format!("{TO_SWITCH}-n1"));
    assert_eq!(to_switch["gateway_chassis"], Value::Ref(chassis));
    let advertisements = [
        ("address_mode", "dhcpv6_stateful"),
        ("max_interval", "900"),
        ("min_interval", "300"),
        ("mtu", "1442"),
        ("router_preference", "LOW"),
        ("send_periodic", "true"),
    ];
    assert_eq!(to_switch["ipv6_ra_configs"], Value::entries(advertisements));
}

#[test]
fn each_gateway_router_has_a_link_to_the_transit_router_that_follows_from_its_nodes_id() {
    let rows = rows(&dual());
    let inner = row(
        &rows,
        Table::RouterPort,
        ROUTER,
        "trtor-GR_cluster_udn_gray_n1",
    );
    assert_eq!(inner["mac"], word("0a:58:64:58:00:04"));
    assert_eq!(
        inner["networks"],
        Value::set(["100.88.0.4/31", "fd97::4/127"])
    );
    assert_eq!(
        inner["options"],
        Value::entries([("requested-tnl-key", "12")])
    );
    let outer = row(
        &rows,
        Table::RouterPort,
        GATEWAY,
        "rtotr-GR_cluster_udn_gray_n1",
    );
    assert_eq!(outer["mac"], word("0a:58:64:41:00:02"));
    let networks = [
        "100.65.0.2/16",
        "100.88.0.5/31",
        "fd97::5/127",
        "fd99::2/64",
    ];
    assert_eq!(outer["networks"], Value::set(networks));
    for (router, port) in [
        (ROUTER, "trtor-GR_cluster_udn_gray_n1"),
        (GATEWAY, "rtotr-GR_cluster_udn_gray_n1"),
    ] {
        let end = row(&rows, Table::SwitchPort, JOIN, &format!("jtor-{router}"));
        assert_eq!(end["options"], Value::entries([("router-port", port)]));
    }

    let other = row(
        &rows,
        Table::RouterPort,
        ROUTER,
        "trtor-GR_cluster_udn_gray_n3",
    );
    assert_eq!(other["mac"], word("0a:58:64:58:00:08"));
    assert_eq!(
        other["networks"],
        Value::set(["100.88.0.8/31", "fd97::8/127"])
    );
    let options = [
        ("requested-chassis", "chassis-3"),
        ("requested-tnl-key", "14"),
    ];
    assert_eq!(other["options"], Value::entries(options));
    assert!(other["external_ids"].satisfies(&Value::entries([("k8s.ovn.org/node", "n3")])));
    // Answers that a gateway router's load balancers ask for come to addresses that all nodes know.
    let gateway = &rows[&RowKey::root(Table::Router, GATEWAY)];
    let answers = Value::entries([("lb_force_snat_ip", "100.65.0.2 fd99::2")]);
    assert!(gateway["options"].satisfies(&answers), "{gateway:?}");
}

#[test]
fn routes_of_each_router_follow_the_gateway_mode() {
    let mut view = v4();
    let of_transit = |source| {
        [
            source,
            "|100.65.0.2|100.88.0.5|",
            "|100.65.0.3|100.88.0.7|",
            "|100.65.0.4|100.88.0.9|",
        ]
    };
    let of_gateway = [
        "|0.0.0.0/0|172.30.0.100|rtoe-GR_cluster_udn_gray_n1",
        "|10.153.0.0/16|100.88.0.4|rtotr-GR_cluster_udn_gray_n1",
    ];
    for (mode, source) in [
        (GatewayMode::Shared, "src-ip|10.153.0.0/16|100.88.0.5|"),
        (GatewayMode::Local, "src-ip|10.153.0.0/16|10.153.0.2|"),
    ] {
        view.node.mode = mode;
        let rows = rows(&view);
        assert_eq!(ids(&rows, Table::StaticRoute, ROUTER), of_transit(source));
        assert_eq!(ids(&rows, Table::StaticRoute, GATEWAY), of_gateway);
        let remote = row(&rows, Table::StaticRoute, ROUTER, "|100.65.0.3|100.88.0.7|");
        assert!(remote["external_ids"].satisfies(&Value::entries([("k8s.ovn.org/node", "n2")])));
        let local = row(&rows, Table::StaticRoute, ROUTER, "|100.65.0.2|100.88.0.5|");
        assert!(!format!("{local:?}").contains("k8s.ovn.org/node"));
        let commits = rows[&RowKey::root(Table::Router, ROUTER)]["options"]
            .satisfies(&Value::entries([("ct-commit-all", "true")]));
        assert_eq!(commits, mode == GatewayMode::Local);
        // To the node's address, and not to the gateway router's own behind the bridge.
        let matches =
            format!("1004|inport == \"{TO_SWITCH}\" && ip4.dst == 172.30.0.1 /* {SWITCH} */");
        assert_eq!(ids(&rows, Table::Policy, ROUTER), [matches]);
    }
}

#[test]
fn the_whole_subnet_is_translated_where_it_meets_the_switch() {
    let mut view = v4();
    for (mode, advertised) in [
        (GatewayMode::Shared, true),
        (GatewayMode::Shared, false),
        (GatewayMode::Local, true),
        (GatewayMode::Local, false),
    ] {
        view.node.mode = mode;
        view.share.network.advertised.default_vrf = advertised;
        let rows = rows(&view);
        let limited = if advertised {
            Value::Ref(shared::node_ips(model::Family::V4))
        } else {
            Value::set::<&str>([])
        };
        for (router, external, port) in [
            (ROUTER, "169.254.0.18", Some(TO_SWITCH)),
            (GATEWAY, "169.254.0.17", None),
        ] {
            let nat = row(&rows, Table::Nat, router, "snat|10.153.0.0/16");
            assert_eq!(nat["external_ip"], word(external));
            assert_eq!(
                nat.get("logical_port"),
                port.map(|port| Value::set([port])).as_ref()
            );
            let allowed = &nat["allowed_ext_ips"];
            assert_eq!(*allowed, limited, "{router} {mode:?} {advertised}");
            // Pods of one network see each other's addresses, also by way of a Service.
            let id = exemption_id(view.get().name(), model::Family::V4);
            let set = RowKey::root(Table::AddressSet, model::hash::row_name(&id));
            let exempted = match router {
                ROUTER if !advertised => Value::Ref(set.clone()),
                _ => Value::set::<&str>([]),
            };
            assert_eq!(nat["exempted_ext_ips"], exempted, "{router} {advertised}");
            if !advertised {
                assert_eq!(rows[&set]["addresses"], Value::set(["10.153.0.0/16"]));
            }
        }
        row(&rows, Table::Nat, GATEWAY, "snat|100.65.0.2");
        assert_eq!(ids(&rows, Table::Nat, ROUTER).len(), 1);
        let acls = ids(&rows, Table::Acl, SWITCH);
        assert_eq!(acls.len(), usize::from(advertised), "{acls:?}");
    }
    // Where rows can have a match the gateway router's has it.
    view.node.nat_has_match = true;
    view.share.network.advertised.default_vrf = true;
    let rows = rows(&view);
    let nat = row(&rows, Table::Nat, GATEWAY, "snat|10.153.0.0/16");
    assert_eq!(nat["match"], word("ip4.dst == $a1042611113178530741"));
}

#[test]
fn a_network_of_ipv6_alone_has_addresses_of_its_own_family_only() {
    let view = gray(&["fd53::/64"]);
    let rows = rows(&view);
    let inner = row(
        &rows,
        Table::RouterPort,
        ROUTER,
        "trtor-GR_cluster_udn_gray_n1",
    );
    assert_eq!(inner["networks"], Value::set(["fd97::4/127"]));
    let routes = [
        ids(&rows, Table::StaticRoute, ROUTER),
        ids(&rows, Table::StaticRoute, GATEWAY),
    ];
    assert_eq!(routes[0][0], "src-ip|fd53::/64|fd97::5|");
    assert!(
        routes.concat().iter().all(|id| !id.contains('.')),
        "{routes:?}"
    );
    assert_eq!(ids(&rows, Table::Nat, ROUTER), ["snat|fd53::/64"]);
}

#[test]
fn a_node_whose_id_does_not_fit_the_transit_subnet_gets_no_half_of_a_link() {
    let mut view = v4();
    let subnet = "100.88.0.0/29".parse().unwrap();
    view.share.network.layer2.as_mut().unwrap().transit_subnets = vec![subnet];
    let few = rows(&view);
    let ports = ids(&few, Table::RouterPort, ROUTER);
    // n1 and n2 (ids 2 and 3) fit, n3 does not.
    let own = [
        "trtor-GR_cluster_udn_gray_n1",
        "trtor-GR_cluster_udn_gray_n2",
        TO_SWITCH,
    ];
    assert_eq!(ports, own);
    let problem = view.get().unreachable()[0].to_string();
    let text = "Node/n3: node id 4 has no two addresses in the v4 transit subnet of network cluster_udn_gray (100.88.0.0/29); allowed:";
    assert!(problem.contains(text), "{problem}");
    assert_eq!(view.get().problems(), []);
    view.node.id = 5;
    let none = rows(&view);
    let problem = view.get().problems()[0].to_string();
    assert!(
        problem.contains("node id 5 has no two addresses in the v4"),
        "{problem}"
    );
    assert!(
        !ids(&none, Table::RouterPort, GATEWAY)
            .iter()
            .any(|id| id.starts_with("rtotr"))
    );
    assert_eq!(
        ids(&none, Table::StaticRoute, ROUTER),
        ["|100.65.0.3|100.88.0.7|"]
    );
}

#[test]
fn of_two_networks_with_one_tunnel_key_one_is_left_as_it_stands() {
    let view = v4();
    let mut other = view.share.clone();
    other.network.name = "cluster_udn_teal".into();
    other.network.id = 9;
    let key = other.network.layer2.as_ref().unwrap().switch_key;
    other.network.layer2.as_mut().unwrap().router_key = 16_715_999;
    let snapshot = mk_snapshot(&view.node, &[view.share.clone(), other.clone()]);
    let (plan, found) = plan_node::sound_plan(snapshot);
    let text = format!("tunnel key {key} is network cluster_udn_gray's too; allowed: one network");
    assert!(
        found.iter().any(|(_, v)| v.to_string() == text),
        "{found:?}"
    );
    assert_eq!(plan.unknown, ["cluster_udn_teal".into()]);
}

#[test]
fn a_family_that_has_no_transit_subnet_is_named() {
    let mut view = dual();
    let layer2 = view.share.network.layer2.as_mut().unwrap();
    layer2.transit_subnets.retain(|s| s.family() == Family::V4);
    let problems = view.get().problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = "in the v6 transit subnet of network cluster_udn_gray (none)";
    assert!(problems[0].message.contains(text), "{problems:?}");
}

fn planned(view: &View) -> Plan {
    let snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    let plan = plan_node::plan(&snapshot);
    assert_eq!(check::plan(&snapshot, &plan), []);
    plan
}

#[test]
fn on_the_bridge_and_in_the_kernel_the_nodes_subnet_is_the_whole_one() {
    let mut view = v4();
    for (mode, to) in [
        (GatewayMode::Shared, "output:2"),
        (GatewayMode::Local, "LOCAL"),
    ] {
        view.node.mode = mode;
        let plan = planned(&view);
        let FlowTable::Full { flows, .. } = &plan.flows else {
            panic!("no flows");
        };
        let flows: Vec<String> = flows.iter().map(ToString::to_string).collect();
        let inward = flows
            .iter()
            .find(|flow| flow.contains("nw_dst=10.153.0.0/16"))
            .unwrap();
        assert!(
            inward.contains("priority=300") && inward.contains(to),
            "{inward}"
        );
        let outward = flows
            .iter()
            .find(|flow| flow.contains("nw_src=10.153.0.0/16"))
            .unwrap();
        assert!(
            outward.contains("priority=104") && outward.contains("output:1"),
            "{outward}"
        );
        assert!(
            flows.iter().any(|flow| flow.contains("priority=205,udp")),
            "{flows:?}"
        );

        let port = &plan.ports[&NetworkName::from("cluster_udn_gray")];
        assert_eq!((port.name.as_str(), port.mtu), ("ovn-k8s-mp4", 1442));
        let entries = kernel::plan(view.get());
        let address = KernelKey::Address {
            device: "ovn-k8s-mp4".to_owned(),
            address: "10.153.0.2/16".parse().unwrap(),
        };
        // The address' own route leads to all pods, on whatever node.
        assert_eq!(
            entries[&address],
            KernelEntry::Address { prefix_route: true }
        );
        let texts: Vec<String> = entries.keys().map(ToString::to_string).collect();
        assert!(
            texts.contains(&"rule 2000 to 10.153.0.0/16, table 1004".to_owned()),
            "{texts:?}"
        );
        assert!(
            !texts.iter().any(|text| text.starts_with("route to 10.153")),
            "{texts:?}"
        );
        let set = &plan.nft.sets["advertised-udn-subnets-v4"];
        assert_eq!(set.elements, ["10.153.0.0/16".parse().unwrap()].into());
    }
}

#[test]
fn hosts_reach_a_node_and_an_api_server_whose_address_a_network_holds() {
    let mut view = v4();
    let planned = |view: &View| {
        let snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
        let nft = plan_node::plan(&snapshot).nft;
        let spared: Vec<String> = (nft.sets["advertised-udn-spared-v4"].elements.iter())
            .map(ToString::to_string)
            .collect();
        let set = nft.sets["advertised-udn-subnets-v4"].elements.len();
        assert_eq!(set, 1, "all other addresses are dropped");
        (spared, nft.chains["udn-bgp-drop"].rules.clone())
    };
    let (spared, rules) = planned(&view);
    assert!(spared.is_empty());
    let wanted = [
        "ip daddr @advertised-udn-spared-v4 accept",
        "ct state new ip daddr @advertised-udn-subnets-v4 drop",
    ];
    assert_eq!(rules[..2], wanted);
    view.node.api_servers.insert("10.153.7.7".parse().unwrap());
    view.node
        .node_addresses
        .insert("10.153.0.9".parse().unwrap());
    // The rules stay as they are: a subnet is never dropped without the addresses that are spared.
    assert_eq!(
        planned(&view),
        (
            vec!["10.153.0.9/32".to_owned(), "10.153.7.7/32".to_owned()],
            rules
        )
    );
}

#[test]
fn it_learns_routes_where_its_gateway_router_forwards_and_it_is_advertised() {
    let mut view = v4();
    let learned = |view: &View| {
        let snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
        learn::plan(&snapshot).into_values().next()
    };
    let inputs = learned(&view).unwrap();
    assert_eq!(inputs.table, Some(1004));
    assert!(
        !inputs.scope.no_overlay,
        "the overlay knows the way to its own pods"
    );
    assert_eq!(
        inputs.scope.host_subnets,
        ["10.153.0.0/16".parse().unwrap()]
    );
    assert!(inputs.learns && inputs.scope.gateway_link.is_some());
    // What was learned before is removed.
    let is_idle = |view: &View| {
        let inputs = learned(view).unwrap();
        !inputs.learns && inputs.scope.gateway_link.is_none()
    };
    view.node.mode = GatewayMode::Local;
    assert!(is_idle(&view));
    view.node.mode = GatewayMode::Shared;
    assert!(!is_idle(&view));
    view.share.network.advertised = Advertised::default();
    assert!(is_idle(&view));
}

#[test]
fn two_of_them_with_one_subnet_are_told_over_one_uplink() {
    let (one, mut two) = (v4(), v4());
    two.share.network.name = "cluster_udn_slate".into();
    two.share.network.id = 5;
    let layer2 = two.share.network.layer2.as_mut().unwrap();
    (layer2.switch_key, layer2.router_key) = (16_711_688, 16_715_780);
    two.share.vrf = None;
    let snapshot = mk_snapshot(&one.node, &[one.share.clone(), two.share]);
    let (plan, found) = plan_node::sound_plan(snapshot);
    let told: Vec<String> = found
        .iter()
        .map(|(owner, what)| format!("{owner}: {what}"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("network cluster_udn_slate: subnet 10.153.0.0/16"),
        "{told:?}"
    );
    let slate = Owner::Network("cluster_udn_slate".into());
    assert!(plan.north.contains_key(&slate));
}

#[test]
fn facts_make_a_share_of_it_without_an_annotation_of_the_node() {
    let mut facts = super::facts::whole();
    super::facts::links(&mut facts).push(mk_link(42, "ovn-k8s-mp4"));
    facts.networks.push(v4().share.network);
    facts.encap_ips = Some(Ok(["172.30.0.1".parse().unwrap()].into()));
    // Nobody gives out a part of it.
    let nodes = facts.nodes.iter().flatten();
    let given = nodes.map(|node| match &node.subnets {
        Fact::Known(subnets) => subnets.len(),
        other @ (Fact::Absent | Fact::Malformed(_)) => panic!("{other:?}"),
    });
    assert_eq!(given.collect::<Vec<_>>(), [1, 1, 1]);
    // One that stays out of main takes no route away from the default network, whatever its addresses.
    let mut apart = facts.clone();
    apart.networks[1].advertised = Advertised {
        default_vrf: false,
        own_vrf: true,
    };
    let plan = plan_node::plan(&super::facts::memory().snapshot(apart));
    let scope = &plan.learn[&NetworkName::default_network()].scope;
    let fabric = "10.153.7.0/24".parse().unwrap();
    assert!(scope.other_networks.longest_match(&fabric).is_none());
    let snapshot = super::facts::memory().snapshot(facts);
    assert!(snapshot.stale.is_empty(), "{:?}", snapshot.stale);
    let (_, view) = snapshot
        .here()
        .find(|(name, _)| !name.is_default())
        .unwrap();
    assert_eq!(view.share.host_subnets, ["10.153.0.0/16".parse().unwrap()]);
    assert_eq!(view.share.mtu, 1442);
    let plan = plan_node::plan(&snapshot);
    assert!(plan.is_complete());
    assert_eq!(check::plan(&snapshot, &plan), []);
    // The default network learns nothing that leads to its pods.
    let scope = &plan.learn[&NetworkName::default_network()].scope;
    let pods = "10.153.7.0/24".parse().unwrap();
    assert!(scope.other_networks.longest_match(&pods).is_some());
}
