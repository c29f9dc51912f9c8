//! The host's way to pods.

use model::kernel::{KernelEntry, KernelKey};
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
    };
    let route = KernelEntry::Route {
        via: Some("10.128.1.1".parse().unwrap()),
        device: Some("ovn-k8s-mp0".to_owned()),
        mtu: Some(1500),
    };
    assert_eq!(plan(view.get())[&key], route);
}

#[test]
fn a_family_without_node_subnet_has_no_way() {
    let mut view = mk_view(1);
    let before = texts(&view);
    view.add_subnet("fd00:10::/48/64");
    assert_eq!(texts(&view), before);
}

#[test]
fn only_the_default_network_has_a_way_in_the_hosts_own_table() {
    let mut view = mk_view(1);
    view.share.network.name = "cluster_udn_blue".into();
    view.share.network.id = 5;
    assert_eq!(
        texts(&view),
        ["device ovn-k8s-mp5", "address 10.128.1.2/24 of ovn-k8s-mp5"]
    );
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
