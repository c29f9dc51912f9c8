//! A network with an overlay beside those without: its switch, its tunnels, and what it does not do.

use std::collections::BTreeMap;

use model::gateway::GatewayMode;
use model::names::NodeName;
use model::nb::{Columns, CtInvMatch, RowKey, Rows, Table, Value};
use model::network::{Advertised, Transport};
use model::sb::RemoteChassis;
use plan_node::north::{shared, topology};
use plan_node::{FlowTable, RemoteNode, Snapshot, bridge, check, kernel, learn, nft, north, south};
use testkit::{View, mk_snapshot, mk_view};

/// n1 of three nodes; n4 is known of by its subnet alone.
fn overlay() -> View {
    let mut view = mk_view(1);
    view.share.network.transport = Transport::Geneve;
    for number in [2_u8, 3] {
        let remote = RemoteNode {
            id: u32::from(number) + 1,
            chassis: format!("chassis-{number}"),
            encap_ips: [format!("172.30.0.{number}").parse().unwrap()].into(),
        };
        let name = NodeName::from(format!("n{number}"));
        view.node.remotes.insert(name, remote);
    }
    for number in [2, 3, 4] {
        let subnet = format!("10.128.{number}.0/24").parse().unwrap();
        let node = NodeName::from(format!("n{number}"));
        view.share.remote_subnets.push((subnet, node));
    }
    view
}

fn row<'a>(rows: &'a Rows, table: Table, parent: &str, id: &str) -> &'a Columns {
    let key = RowKey::child(table, parent, id);
    rows.get(&key).unwrap_or_else(|| panic!("no {key}"))
}

fn routes(rows: &Rows, router: &str) -> Vec<String> {
    let of = rows.iter().filter(|(key, _)| {
        key.table == Table::StaticRoute && key.is_child_of(Table::Router, router)
    });
    let word = |columns: &Columns, name: &str| match &columns[name] {
        Value::Text(text) => text.clone(),
        other @ (Value::Number(_)
        | Value::Flag(_)
        | Value::Set(_)
        | Value::Entries(_)
        | Value::Ref(_)) => {
            panic!("{other:?}")
        }
    };
    of.map(|(_, c)| format!("{} via {}", word(c, "ip_prefix"), word(c, "nexthop")))
        .collect()
}

fn snapshot(view: &View) -> Snapshot {
    mk_snapshot(&view.node, std::slice::from_ref(&view.share))
}

#[test]
fn cluster_routers_of_all_nodes_meet_on_a_switch_that_each_knows_by_the_same_keys() {
    let view = overlay();
    let rows = north::plan(view.get());
    let of_node = shared::plan(&view.node, [view.get()].into_iter());
    assert_eq!(check::rows(&rows, Some(&of_node)), []);
    let switch = &rows[&RowKey::root(Table::Switch, "transit_switch")];
    let config = [
        ("interconn-ts", "transit_switch"),
        ("requested-tnl-key", "16711683"),
    ];
    assert_eq!(switch["other_config"], Value::entries(config));
    let own = row(&rows, Table::RouterPort, "ovn_cluster_router", "rtots-n1");
    assert_eq!(own["networks"], Value::set(["100.88.0.2/16"]));
    assert_eq!(own["mac"], Value::Text("0a:58:64:58:00:02".to_owned()));
    let own = row(&rows, Table::SwitchPort, "transit_switch", "tstor-n1");
    let options = [("router-port", "rtots-n1"), ("requested-tnl-key", "2")];
    assert_eq!(own["options"], Value::entries(options));
    let other = row(&rows, Table::SwitchPort, "transit_switch", "tstor-n3");
    assert_eq!(other["type"], Value::Text("remote".to_owned()));
    assert_eq!(
        other["addresses"],
        Value::set(["0a:58:64:58:00:04 100.88.0.4/16"])
    );
    let options = [
        ("requested-chassis", "chassis-3"),
        ("requested-tnl-key", "4"),
    ];
    assert_eq!(other["options"], Value::entries(options));
    let all = routes(&rows, "ovn_cluster_router");
    for route in [
        "10.128.2.0/24 via 100.88.0.3",
        "10.128.3.0/24 via 100.88.0.4",
        "100.64.0.3/32 via 100.88.0.3",
        "100.64.0.4/32 via 100.88.0.4",
    ] {
        assert!(all.contains(&route.to_owned()), "{route} in {all:?}");
    }
    assert!(
        !all.iter().any(|route| route.starts_with("10.128.4")),
        "{all:?}"
    );
    // What comes from outside goes to the cluster router, which knows the way to all pods; nothing is dropped for want of a route.
    let gateway = routes(&rows, "GR_n1");
    assert_eq!(
        gateway,
        ["0.0.0.0/0 via 172.30.0.100", "10.128.0.0/16 via 100.64.0.1"]
    );
}

#[test]
fn a_wider_subnet_of_another_node_has_routes_that_those_by_source_do_not_beat() {
    let mut view = overlay();
    let wide = "10.128.64.0/22".parse().unwrap();
    view.share.remote_subnets.push((wide, "n2".into()));
    // More routes than anybody wants.
    let widest = "10.129.0.0/15".parse().unwrap();
    view.share.remote_subnets.push((widest, "n3".into()));
    let rows = topology::plan(view.get());
    let all = routes(&rows, "ovn_cluster_router");
    for part in 64..68 {
        let route = format!("10.128.{part}.0/24 via 100.88.0.3");
        assert!(all.contains(&route), "{route} in {all:?}");
    }
    assert!(!all.iter().any(|route| route.contains("/22")), "{all:?}");
    let problems = view.get().unreachable();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{texts:?}");
    assert!(
        texts[0].contains("Node/n3")
            && texts[0].contains("/15 of network default is too wide beside 24"),
        "{texts:?}"
    );
}

#[test]
fn a_transit_subnet_without_an_address_for_a_node_is_named() {
    let mut view = overlay();
    view.node.transit_subnets = vec!["100.88.0.0/30".parse().unwrap()];
    // n2 has id 3 and the last address, n3 has none.
    let unreached = view.get().unreachable();
    assert_eq!(unreached.len(), 1, "{unreached:?}");
    let text = unreached[0].to_string();
    assert!(
        text.contains("Node/n3")
            && text.contains("node id 4")
            && text.contains("v4-transit-subnet"),
        "{text}"
    );
    assert!(view.get().problems().is_empty());
    view.node.id = 9;
    let own = view.get().problems();
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(own[0].reason, "NoTransitAddress");
}

#[test]
fn networks_of_users_have_switches_and_keys_of_their_own() {
    let mut view = overlay();
    view.share.network.name = "cluster_udn_blue".into();
    view.share.network.id = 5;
    let rows = topology::plan(view.get());
    let name = "cluster_udn_blue_transit_switch";
    let switch = &rows[&RowKey::root(Table::Switch, name)];
    let key = [("requested-tnl-key", "16711688")];
    assert!(switch["other_config"].satisfies(&Value::entries(key)));
    row(&rows, Table::SwitchPort, name, "cluster_udn_blue_tstor-n1");
    row(&rows, Table::SwitchPort, name, "cluster_udn_blue_tstor-n2");
}

#[test]
fn without_an_overlay_there_is_nothing_of_it() {
    let mut view = overlay();
    view.share.network.transport = mk_view(1).share.network.transport;
    let rows = north::plan(view.get());
    let words = format!("{rows:?}");
    assert!(
        !words.contains("transit") && !words.contains("100.88"),
        "{words}"
    );
    assert_eq!(south::plan(&snapshot(&view)), Some(BTreeMap::new()));
}

#[test]
fn tunnels_lead_to_the_other_nodes_and_pass_the_bridge_untracked() {
    let view = overlay();
    let snapshot = snapshot(&view);
    let south = south::plan(&snapshot).unwrap();
    let of_n2 = RemoteChassis {
        hostname: "n2".into(),
        encap_ips: ["172.30.0.2".parse().unwrap()].into(),
    };
    assert_eq!(south.len(), 2);
    assert_eq!(south["chassis-2"], of_n2);
    let FlowTable::Full { flows, .. } = bridge::plan(&snapshot) else {
        panic!("no flows");
    };
    let flows: Vec<String> = flows.iter().map(ToString::to_string).collect();
    let has = |text: &str| flows.iter().any(|flow| flow.contains(text));
    assert!(
        has("priority=205,udp,in_port=1,dl_dst=0a:58:ac:1e:00:01,tp_dst=6081"),
        "{flows:?}"
    );
    assert!(
        has("priority=200,udp,in_port=LOCAL,tp_dst=6081"),
        "{flows:?}"
    );
    // Nobody outside knows its pods.
    assert!(!has("10.128.1.0/24"), "{flows:?}");
}

#[test]
fn while_a_network_is_not_known_no_chassis_goes() {
    let mut view = overlay();
    view.share.network.transport = mk_view(1).share.network.transport;
    let mut unlisted = snapshot(&view);
    unlisted.unlisted = true;
    assert_eq!(south::plan(&unlisted), None);
}

#[test]
fn it_learns_and_keeps_its_addresses_outside_only_where_it_is_advertised() {
    let mut view = overlay();
    let idle = learn::plan(&snapshot(&view));
    // The import stays, to remove what was learned while the network was advertised.
    let inputs = idle.values().next().unwrap();
    assert!(!inputs.learns && inputs.scope.gateway_link.is_none() && inputs.owners.is_empty());
    view.node.mode = GatewayMode::Local;
    let rules = |view: &View| {
        nft::plan(&snapshot(view)).chains["ovn-kube-pod-subnet-masq"]
            .rules
            .clone()
    };
    assert!(rules(&view).contains(&"ip saddr 10.128.1.0/24 masquerade".to_owned()));
    view.share.network.advertised = Advertised {
        default_vrf: true,
        own_vrf: false,
    };
    let learned = learn::plan(&snapshot(&view));
    let inputs = learned.values().next().unwrap();
    assert!(!inputs.scope.no_overlay && inputs.scope.fallbacks.is_empty());
    assert!(inputs.learns && inputs.scope.gateway_link.is_some());
    assert!(inputs.owners.is_empty(), "tunnels lead to all pods");
    assert_eq!(
        rules(&view),
        ["ip saddr 10.128.1.0/24 ip daddr @remote-node-ips-v4 masquerade"]
    );
    // The host's own way to all pods is through OVN in both modes.
    for mode in [GatewayMode::Local, GatewayMode::Shared] {
        view.node.mode = mode;
        let entries = kernel::plan(view.get());
        let texts: Vec<String> = entries.keys().map(ToString::to_string).collect();
        assert!(
            texts.contains(&"route to 10.128.0.0/16 in table 7".to_owned()),
            "{texts:?}"
        );
    }
}

#[test]
fn connections_that_pass_one_way_only_are_no_invalid_ones_where_the_host_forwards_for_advertised_networks()
 {
    let mut view = overlay();
    let wanted = |view: &View, unknown: bool| {
        let mut snapshot = snapshot(view);
        snapshot.unlisted = unknown;
        plan_node::plan(&snapshot).ct_inv_match
    };
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        view.node.mode = mode;
        for advertised in [false, true] {
            view.share.network.advertised.default_vrf = advertised;
            let is_off = mode == GatewayMode::Local && advertised;
            let (known, unknown) = match (is_off, mode) {
                (true, _) => (CtInvMatch::Off, CtInvMatch::Off),
                // Another network, which is not known yet, may need it.
                (false, GatewayMode::Local) => (CtInvMatch::Restored, CtInvMatch::Kept),
                (false, GatewayMode::Shared) => (CtInvMatch::Restored, CtInvMatch::Restored),
            };
            assert_eq!(wanted(&view, false), known, "{mode:?} {advertised}");
            assert_eq!(wanted(&view, true), unknown, "{mode:?} {advertised}");
        }
    }
    // Without an overlay pods are always known outside.
    view.node.mode = GatewayMode::Local;
    view.share.network.advertised.default_vrf = false;
    view.share.network.transport = mk_view(1).share.network.transport;
    assert_eq!(wanted(&view, false), CtInvMatch::Off);
    let mut nothing = snapshot(&view);
    nothing.node = None;
    assert_eq!(plan_node::plan(&nothing).ct_inv_match, CtInvMatch::Kept);
}
