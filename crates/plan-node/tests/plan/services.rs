//! Services of the default network that networks of users may use: rows, kernel entries and flows, in both gateway modes, with
//! both families, as OVN-Kubernetes' own nodes have them.

use std::collections::BTreeSet;

use model::address::Family;
use model::gateway::GatewayMode;
use model::kernel::{KernelKey, MAIN_METRIC};
use model::nb::{self, Owner, RowKey, Rows, Table, Value};
use model::network::Transport;
use model::route::MAIN_TABLE;
use plan_node::north::{services, shared};
use plan_node::{FlowTable, NodeView, Plan, Services, Snapshot, check};
use testkit::{View, mk_snapshot, mk_user_network, mk_view};

/// The default network and red, of both families.
fn views(mode: GatewayMode, snat: bool) -> [View; 2] {
    let mut default = mk_view(1);
    let node = &mut default.node;
    node.mode = mode;
    node.service_cidrs = ["172.31.0.0/16", "fd02::/112"]
        .map(|range| range.parse().unwrap())
        .into();
    let allowed = [
        ("default/kubernetes", ["172.31.0.1", "fd02::1"]),
        ("kube-system/kube-dns", ["172.31.0.10", "fd02::a"]),
    ];
    let allowed = allowed.map(|(name, ips)| {
        let ips = ips.map(|ip| ip.parse().unwrap());
        (name.to_owned(), ips.into())
    });
    node.services = Some(Services {
        allowed: allowed.into(),
    });
    let own = "fd00:30::1/64".parse().unwrap();
    node.gateway.addresses.push(own);
    node.host_addresses.insert(own.ip);
    node.node_addresses.insert(own.ip);
    default.add_subnet("fd00:10::/48/64");
    let join = "fd98::/64".parse().unwrap();
    default.share.network.join_subnets.push(join);
    let subnet = "fd00:10:0:1::/64".parse().unwrap();
    default.share.host_subnets.push(subnet);
    let mut red = default.clone();
    red.share.network = mk_user_network(
        "cluster_udn_red",
        1,
        &["10.150.0.0/16/24", "fd50::/48/64"],
        &["100.65.0.0/16", "fd99::/64"],
    );
    red.share.network.advertised.default_vrf = true;
    red.share.host_subnets = ["10.150.0.0/24", "fd50::/64"]
        .map(|subnet| subnet.parse().unwrap())
        .into();
    red.no_overlay(|options| options.outbound_snat = snat);
    [default, red]
}

fn snapshot(views: &[View; 2]) -> Snapshot {
    mk_snapshot(
        &views[0].node,
        &[views[0].share.clone(), views[1].share.clone()],
    )
}

/// A snapshot of them, for whole plans as text.
pub(crate) fn mk(mode: GatewayMode, snat: bool) -> Snapshot {
    snapshot(&views(mode, snat))
}

fn planned(views: &[View; 2]) -> Plan {
    let snapshot = snapshot(views);
    let plan = plan_node::plan(&snapshot);
    assert_eq!(check::plan(&snapshot, &plan), []);
    plan
}

fn rows<'a>(plan: &'a Plan, name: &str) -> &'a Rows {
    &plan.north[&Owner::Network(name.into())]
}

fn nat(plan: &Plan, router: &str) -> Vec<String> {
    let rows = plan.north.values().flatten();
    let rows = rows.filter(|(key, _)| key.is_child_of(Table::Router, router));
    let rows = rows.filter(|(key, _)| key.table == Table::Nat);
    let name = |value: &Value| match value {
        Value::Ref(set) if *set == shared::node_ips(Family::V4) => "nodes".to_owned(),
        Value::Ref(set) if *set == services::allowed(Family::V4) => "services".to_owned(),
        Value::Ref(set) => set.id.clone(),
        Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Set(_) | Value::Entries(_) => {
            String::new()
        }
    };
    let all = rows.map(|(key, row)| {
        let allowed = name(&row["allowed_ext_ips"]);
        let is_exempted = matches!(row["exempted_ext_ips"], Value::Ref(_));
        format!("{} allowed={allowed} exempted={is_exempted}", key.id)
    });
    all.filter(|text| !text.contains(':')).collect()
}

/// Every row of the cluster router, in each state: whatever is not exempt or allowed keeps the pod's address.
#[test]
fn a_network_of_users_is_translated_towards_its_services_in_every_state() {
    let both = [
        "snat|10.150.0.0/24 allowed=nodes exempted=false",
        "snat|10.150.0.0/24|services allowed=services exempted=false",
    ];
    let router = "cluster_udn_red_ovn_cluster_router";
    for (mode, snat, expected) in [
        (GatewayMode::Shared, true, &both[..]),
        (GatewayMode::Shared, false, &both[..]),
        (GatewayMode::Local, false, &both[..]),
        // The exemption holds pods and the node, so that Services are translated by the one row.
        (
            GatewayMode::Local,
            true,
            &["snat|10.150.0.0/24 allowed= exempted=true"],
        ),
    ] {
        let plan = planned(&views(mode, snat));
        assert_eq!(nat(&plan, router), expected, "{mode:?} {snat}");
    }
}

#[test]
fn without_advertisement_an_overlay_translates_all_but_its_own_subnets_by_one_row() {
    let mut views = views(GatewayMode::Shared, true);
    views[1].share.network.transport = Transport::Geneve;
    views[1].share.network.advertised = Default::default();
    let plan = planned(&views);
    assert_eq!(
        nat(&plan, "cluster_udn_red_ovn_cluster_router"),
        ["snat|10.150.0.0/24 allowed= exempted=true"]
    );
    // On the way out nothing of its own comes by.
    let out = nat(&plan, "GR_cluster_udn_red_n1");
    assert!(
        out.iter().all(|row| row.ends_with("exempted=false")),
        "{out:?}"
    );
}

#[test]
fn the_set_has_ovn_kubernetes_name_and_the_services_of_its_family() {
    let plan = planned(&views(GatewayMode::Shared, true));
    let of = |family| plan.north[&Owner::Node][&services::allowed(family)]["addresses"].clone();
    assert_eq!(services::allowed(Family::V4).id, "a3613486944346402462");
    assert_eq!(of(Family::V4), Value::set(["172.31.0.1", "172.31.0.10"]));
    assert_eq!(of(Family::V6), Value::set(["fd02::1", "fd02::a"]));
}

#[test]
fn only_in_shared_mode_the_cluster_router_has_a_route_for_each_service() {
    let service = |mode| {
        let plan = planned(&views(mode, true));
        let rows = rows(&plan, "cluster_udn_red");
        let routes = rows.iter().filter(
            |(_, row)| matches!(&row.get("policy"), Some(Value::Set(p)) if p.contains("dst-ip")),
        );
        let routes = routes.map(|(key, row)| {
            let Value::Entries(ids) = &row["external_ids"] else {
                panic!("{row:?}");
            };
            let of = &ids["k8s.ovn.org/udn-enabled-default-service"];
            format!("{} {of}", key.id)
        });
        routes.collect::<Vec<String>>()
    };
    assert_eq!(
        service(GatewayMode::Shared),
        [
            "|172.31.0.10|10.150.0.2| kube-system/kube-dns",
            "|172.31.0.1|10.150.0.2| default/kubernetes",
            "|fd02::1|fd50::2| default/kubernetes",
            "|fd02::a|fd50::2| kube-system/kube-dns",
        ]
    );
    assert!(service(GatewayMode::Local).is_empty());
}

#[test]
fn gateway_routers_know_the_way_to_masquerade_addresses_without_asking() {
    let plan = planned(&views(GatewayMode::Shared, true));
    for (network, router, bindings) in [
        ("default", "GR_n1", &["169.254.0.4", "fd69::4"][..]),
        (
            "cluster_udn_red",
            "GR_cluster_udn_red_n1",
            &["169.254.0.2", "169.254.0.4", "fd69::2", "fd69::4"],
        ),
    ] {
        let rows = rows(&plan, network);
        let port = format!("rtoe-{router}");
        for (subnet, next) in [("169.254.0.0/17", "169.254.0.4"), ("fd69::/112", "fd69::4")] {
            let id = nb::route_id("", subnet, next, &port);
            assert!(rows.contains_key(&RowKey::child(Table::StaticRoute, router, id)));
        }
        let found = rows
            .iter()
            .filter(|(k, _)| k.table == Table::StaticMacBinding);
        let found: Vec<&str> = found
            .map(
                |(_, row)| match (&row["ip"], &row["override_dynamic_mac"]) {
                    (Value::Text(ip), Value::Flag(true)) => ip.as_str(),
                    _ => panic!("{row:?}"),
                },
            )
            .collect();
        assert_eq!(found, bindings);
    }
}

fn flows(plan: &Plan) -> BTreeSet<String> {
    let FlowTable::Full { flows, .. } = &plan.flows else {
        panic!("{:?}", plan.flows);
    };
    flows.iter().map(ToString::to_string).collect()
}

/// Flows of a recorded node, with our port numbers: 1 is the uplink, 2 the default network, 3 red.
#[test]
fn flows_are_ovn_kubernetes_own() {
    let shared = [
        "priority=550,ip,in_port=LOCAL,nw_src=169.254.0.0/17,nw_dst=172.31.0.0/16 actions=ct(commit,table=2,zone=64001)",
        "priority=550,ip,in_port=LOCAL,nw_src=10.150.0.0/16,nw_dst=172.31.0.0/16 actions=ct(commit,table=2,zone=64001)",
        "priority=550,ipv6,in_port=LOCAL,ipv6_src=fd69::/112,ipv6_dst=fd02::/112 actions=ct(commit,table=2,zone=64001)",
        "priority=500,ip,in_port=3,nw_src=172.30.0.1,nw_dst=169.254.0.2 actions=ct(commit,table=4,zone=64001,nat(dst=172.30.0.1))",
        "priority=500,ip,in_port=LOCAL,nw_dst=169.254.0.1 actions=ct(table=5,zone=64002,nat)",
        "priority=500,ip,in_port=LOCAL,nw_dst=172.31.0.0/16 actions=ct(commit,table=2,zone=64001,nat(src=169.254.0.2))",
        "priority=500,ip,in_port=2,nw_src=172.31.0.0/16,nw_dst=169.254.0.0/17 actions=ct(table=3,zone=64001,nat)",
        "priority=490,ip,in_port=2,nw_src=172.31.0.1 actions=ct(table=3,zone=64001,nat)",
        "priority=115,ip,in_port=2,nw_dst=172.31.0.0/16 actions=drop",
        "table=2, priority=300,ip,nw_dst=172.31.0.1 actions=set_field:0a:58:ac:1e:00:01->eth_dst,output:2",
        "table=2, priority=250,pkt_mark=0x1001,ip actions=set_field:0a:58:ac:1e:00:01->eth_dst,output:3",
        "table=2, priority=200,ip,nw_src=169.254.0.12 actions=drop",
        "table=2, priority=200,ip,nw_src=10.150.0.0/16 actions=drop",
        "table=2, priority=100 actions=set_field:0a:58:ac:1e:00:01->eth_dst,output:2",
        // OVN-Kubernetes' has the default priority, 32768; there is no other flow in the table.
        "table=3, priority=0 actions=move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:0a:58:ac:1e:00:01->eth_dst,LOCAL",
        "table=4, priority=0,ip actions=ct(commit,table=3,zone=64002,nat(src=169.254.0.1))",
        "table=5, priority=0,ip actions=ct(commit,table=2,zone=64001,nat)",
    ];
    let local = [
        "priority=500,ip,in_port=LOCAL,nw_dst=169.254.0.11 actions=ct(table=5,zone=64002,nat)",
        "priority=175,tcp,in_port=3,nw_src=172.30.0.1 actions=ct(table=4,zone=64001)",
        "priority=175,sctp6,in_port=2,ipv6_src=fd00:30::1 actions=ct(table=4,zone=64001)",
        "table=4, priority=100,ip,in_port=3,nw_dst=10.150.0.0/16 actions=ct(commit,table=3,zone=64002,nat(src=169.254.0.11),exec(set_field:0x4->ct_mark))",
        "table=5, priority=100,ct_mark=0x4,ip actions=ct(commit,zone=64001,nat),set_field:0a:58:ac:1e:00:01->eth_dst,output:3",
    ];
    // As `ovs-ofctl dump-flows` shows it, in our form.
    let form = |shown: &str| {
        let (table, rest) = match shown.strip_prefix("table=") {
            Some(rest) => rest.split_once(", ").unwrap(),
            None => ("0", shown),
        };
        let (head, actions) = rest.split_once("actions=").unwrap();
        let head = head.trim();
        format!("cookie=0xdeff105,table={table},{head},actions={actions}")
    };
    for (mode, expected) in [
        (GatewayMode::Shared, shared.iter().collect::<Vec<_>>()),
        (GatewayMode::Local, shared.iter().chain(&local).collect()),
    ] {
        let flows = flows(&planned(&views(mode, true)));
        for one in expected {
            assert!(flows.contains(&form(one)), "{mode:?}: {one}\n{flows:#?}");
        }
        for one in local.iter().filter(|_| mode == GatewayMode::Shared) {
            assert!(!flows.contains(&form(one)), "{one}");
        }
    }
}

#[test]
fn the_host_has_its_own_routes_in_main_with_the_nodes_address() {
    let plan = planned(&views(GatewayMode::Local, true));
    let in_main = plan.kernel.iter().filter_map(|(key, entry)| {
        let KernelKey::Route { table, to, metric } = key else {
            return None;
        };
        let is_host = (*table, *metric) == (MAIN_TABLE, MAIN_METRIC);
        is_host.then(|| format!("{to} {entry:?}"))
    });
    let in_main: Vec<String> = in_main.collect();
    assert_eq!(in_main.len(), 6, "{in_main:#?}");
    let ranges = ["172.31.0.0/16 ", "fd02::/112 "];
    for (range, own) in ranges.iter().zip(["172.30.0.1", "fd00:30::1"]) {
        let mut of_range = in_main.iter().filter(|text| text.starts_with(range));
        let text = of_range.next().unwrap();
        assert!(text.contains(&format!("source: Some({own})")), "{text}");
    }
    let rules = &plan.nft.chains["ovn-kube-local-gw-masq"].rules;
    assert_eq!(rules[0], "ip saddr 169.254.0.1 masquerade");
    assert_eq!(rules[1], "ip6 saddr fd69::1 masquerade");
}

/// A node of the default network alone is as it was before there were networks of users, whatever Services are configured.
#[test]
fn nothing_of_it_is_there_without_a_network_of_users() {
    let [mut default, _] = views(GatewayMode::Shared, true);
    let shares = [default.share.clone()];
    let without = |node: &NodeView| plan_node::plan(&mk_snapshot(node, &shares));
    default.node.services = None;
    let plan = without(&default.node);
    default.node.service_cidrs.clear();
    assert_eq!(plan, without(&default.node));
    assert!(!format!("{plan:?}").contains("169.254.0."));
}

/// A Service whose address pods of the network have is no Service to it, and an address of a family that it lacks neither.
#[test]
fn an_address_of_pods_gets_no_route() {
    let mut views = views(GatewayMode::Shared, true);
    for view in &mut views {
        let all = view.node.services.as_mut().unwrap();
        all.allowed = [("a/b".to_owned(), ["10.150.9.9".parse().unwrap()].into())].into();
    }
    let plan = planned(&views);
    let text = format!("{:?}", rows(&plan, "cluster_udn_red"));
    assert!(!text.contains("10.150.9.9"), "{text}");
}

/// Whether a row translates what a pod sends to an address; `sets` are all address sets by their key.
fn translates(row: &nb::Columns, to: &str, sets: &Rows) -> bool {
    let holds = |key: &RowKey| {
        let Value::Set(elements) = &sets[key]["addresses"] else {
            panic!("{key}");
        };
        let to: model::Prefix = format!("{to}/32").parse().unwrap();
        let covers = |element: &String| {
            let element: Result<model::Prefix, _> = element.parse();
            element.map_or_else(|_| false, |element| element.contains(&to))
        };
        elements
            .iter()
            .any(|e| e == to.to_string().trim_end_matches("/32") || covers(e))
    };
    let is_exempt = matches!(&row["exempted_ext_ips"], Value::Ref(set) if holds(set));
    let is_allowed = match &row["allowed_ext_ips"] {
        Value::Ref(set) => holds(set),
        Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Set(_) | Value::Entries(_) => {
            true
        }
    };
    is_allowed && !is_exempt
}

/// From each state to each other, in the order in which owners are written, the node's rows first: at no moment is a packet
/// between pods translated.
#[test]
fn between_any_two_states_no_packet_between_pods_is_translated() {
    let states = |mode| {
        let mut without = views(mode, false);
        for view in &mut without {
            view.node.services.as_mut().unwrap().allowed.clear();
        }
        [views(mode, true), views(mode, false), without]
    };
    let mut seen = 0;
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        for before in states(mode) {
            for after in states(mode) {
                let (old, new) = (planned(&before).north, planned(&after).north);
                let mut now = old.clone();
                let mut moments = Vec::new();
                for owner in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                    let rows = new.get(owner).cloned().unwrap_or_default();
                    now.insert(owner.clone(), rows);
                    moments.push(now.clone());
                }
                for rows in moments {
                    let all: Rows = rows.into_values().flatten().collect();
                    let is_red = |key: &RowKey| {
                        let router = key.parent_name().unwrap_or_default();
                        key.table == Table::Nat && router.contains("cluster_udn_red")
                    };
                    let of_pods = |key: &RowKey| is_red(key) && key.id.contains("10.150.");
                    for (key, row) in all.iter().filter(|(key, _)| of_pods(key)) {
                        assert!(!translates(row, "10.150.7.9", &all), "{key}: {row:?}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

/// The same test fails where it should: a row without its exemption, or with a set that holds pods.
#[test]
fn a_row_that_translates_pods_is_told() {
    let plan = planned(&views(GatewayMode::Local, true));
    let all: Rows = plan.north.into_values().flatten().collect();
    let id = nb::nat_id("snat", "10.150.0.0/24", None);
    let key = RowKey::child(Table::Nat, "cluster_udn_red_ovn_cluster_router", id);
    let mut row = all[&key].clone();
    assert!(!translates(&row, "10.150.7.9", &all));
    assert!(translates(&row, "172.31.0.1", &all), "a Service");
    assert!(translates(&row, "172.30.0.2", &all), "another node");
    assert!(
        !translates(&row, "172.30.0.1", &all),
        "the own node answers"
    );
    row.insert("exempted_ext_ips", Value::Set(BTreeSet::new()));
    assert!(translates(&row, "10.150.7.9", &all));
}
