//! Routes, rules and VRF devices of the node's kernel.

use model::gateway::GatewayMode;
use model::kernel::{KernelEntry, KernelKey, RouteTarget};
use model::network::{Advertised, MissingRoute, Transport};
use plan_node::Vrf;
use plan_node::kernel::*;
use testkit::{View, mk_view};

/// The entries, in the words of `ip`.
fn texts(view: &View) -> Vec<String> {
    let entries = plan(view.get());
    entries.keys().map(ToString::to_string).collect()
}

#[test]
fn the_host_reaches_every_cluster_subnet_through_the_management_port() {
    let mut view = mk_view(1);
    view.add_subnet("10.132.0.0/16/24");
    assert_eq!(
        texts(&view),
        [
            "device ovn-k8s-mp0",
            "address 10.128.1.2/24 of ovn-k8s-mp0",
            "route to 10.128.0.0/16 in table 7",
            "route to 10.132.0.0/16 in table 7",
            "rule 31 to 10.128.0.0/16, table 7",
            "rule 31 to 10.132.0.0/16, table 7",
        ]
    );
    let key = KernelKey::Route {
        table: 7,
        to: "10.132.0.0/16".parse().unwrap(),
        metric: 0,
    };
    let route = KernelEntry::Route(RouteTarget::Device {
        device: Some("ovn-k8s-mp0".to_owned()),
        via: Some("10.128.1.1".parse().unwrap()),
        source: None,
        mtu: Some(1500),
    });
    assert_eq!(plan(view.get())[&key], route);
}

#[test]
fn a_family_without_node_subnet_has_no_way() {
    let mut view = mk_view(1);
    let before = texts(&view);
    view.add_subnet("fd00:10::/48/64");
    assert_eq!(texts(&view), before);
}

fn blue(view: &mut View) {
    view.share.network.name = "cluster_udn_blue".into();
    view.share.network.id = 5;
    view.share.vrf = Some(Vrf {
        device: "blue".to_owned(),
        table: 1042,
    });
}

#[test]
fn a_network_of_users_has_a_table_of_its_own() {
    let mut view = mk_view(1);
    blue(&mut view);
    assert_eq!(
        texts(&view),
        [
            "VRF blue",
            "device ovn-k8s-mp5",
            "address 10.128.1.2/24 of ovn-k8s-mp5",
            "route to 0.0.0.0/0 in table 1042",
            "route to 0.0.0.0/0 in table 1042, metric 4278198272",
            "route to 10.128.0.0/16 in table 1042",
            "route to 169.254.0.20/32 in table 1042",
            "rule 2000 to 169.254.0.20/32, table 1042",
            "rule 2000 fwmark 0x1005 (IPv4), table 1042",
        ]
    );
    let entries = plan(view.get());
    let port = KernelEntry::Link {
        up: true,
        vrf: Some("blue".to_owned()),
    };
    assert!(entries.values().any(|entry| *entry == port));
}

#[test]
fn only_where_it_is_advertised_into_the_default_vrf_main_leads_to_a_network_of_users() {
    let mut view = mk_view(1);
    blue(&mut view);
    let rule = "rule 2000 to 10.128.0.0/16, table 1042".to_owned();
    let default = "route to 0.0.0.0/0 in table 1042".to_owned();
    for (default_vrf, own_vrf, has_rule, has_default) in [
        (false, false, false, true),
        (true, false, true, true),
        (true, true, true, true),
        (false, true, false, false),
    ] {
        view.share.network.advertised = Advertised {
            default_vrf,
            own_vrf,
        };
        let texts = texts(&view);
        assert_eq!(texts.contains(&rule), has_rule, "{texts:?}");
        assert_eq!(texts.contains(&default), has_default, "{texts:?}");
    }
}

#[test]
fn without_a_vrf_device_a_network_of_users_has_nothing_in_main() {
    let mut view = mk_view(1);
    blue(&mut view);
    view.share.vrf = None;
    assert!(plan(view.get()).is_empty());
}

#[test]
fn in_local_gateway_mode_what_has_no_route_ends_in_the_kernel() {
    let mut view = mk_view(1);
    view.node.mode = GatewayMode::Local;
    let port = ["device ovn-k8s-mp0", "address 10.128.1.2/24 of ovn-k8s-mp0"];
    let last = "route to 10.128.0.0/16 in table 254, metric 4278198272";
    assert_eq!(texts(&view), [port[0], port[1], last]);
    let entries = plan(view.get());
    let unreachable = KernelEntry::Route(RouteTarget::Unreachable);
    assert!(entries.values().any(|entry| *entry == unreachable));
    view.no_overlay(|options| options.missing_route = MissingRoute::Forward);
    assert_eq!(texts(&view), port);
}

#[test]
fn in_local_gateway_mode_remote_pods_of_a_network_of_users_are_not_behind_its_port() {
    let mut view = mk_view(1);
    blue(&mut view);
    view.node.mode = GatewayMode::Local;
    let all = texts(&view);
    for wanted in [
        "route to 10.128.1.0/24 in table 1042",
        "route to 10.128.1.1/32 in table 1042",
        "route to 10.128.0.0/16 in table 1042, metric 4278198272",
    ] {
        assert!(all.iter().any(|text| text == wanted), "{wanted}: {all:?}");
    }
    assert!(
        !all.iter()
            .any(|text| text == "route to 10.128.0.0/16 in table 1042")
    );
    let address = KernelEntry::Address {
        prefix_route: false,
    };
    assert!(plan(view.get()).values().any(|entry| *entry == address));
    // With an overlay they are.
    view.share.network.transport = Transport::Geneve;
    assert!(texts(&view).contains(&"route to 10.128.0.0/16 in table 1042".to_owned()));
}

#[test]
fn port_and_switch_port_agree() {
    let port = port(mk_view(1).get()).unwrap();
    assert_eq!(port.bridge, "br-int");
    assert_eq!(port.iface_id, "k8s-n1");
    assert_eq!(port.mac.to_string(), "0a:58:0a:80:01:02");
    assert_eq!(port.owner, "default");
}

#[test]
fn without_a_subnet_there_is_nothing_to_do() {
    let mut view = mk_view(1);
    view.share.host_subnets.clear();
    assert!(plan(view.get()).is_empty());
    assert_eq!(port(view.get()), None);
}
