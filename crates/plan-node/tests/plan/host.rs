//! The host's way to pods.

use plan_node::host::*;
use testkit::mk_view;

#[test]
fn the_host_reaches_every_cluster_subnet_through_the_management_port() {
    let mut view = mk_view(1);
    view.cluster_subnets
        .push("10.132.0.0/16/24".parse().unwrap());
    let network = plan(&view).unwrap();
    assert_eq!(network.port.device, "ovn-k8s-mp0");
    let addresses: Vec<String> = network
        .port
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(addresses, ["10.128.1.2/24"]);
    let rules: Vec<String> = network
        .rules
        .iter()
        .map(|r| format!("{} {} {}", r.preference, r.to, r.table))
        .collect();
    assert_eq!(rules, ["31 10.128.0.0/16 7", "31 10.132.0.0/16 7"]);
    let routes: Vec<String> = network
        .routes
        .iter()
        .map(|r| format!("{} via {} {} {} {}", r.to, r.via, r.device, r.table, r.mtu))
        .collect();
    assert_eq!(
        routes,
        [
            "10.128.0.0/16 via 10.128.1.1 ovn-k8s-mp0 7 1500",
            "10.132.0.0/16 via 10.128.1.1 ovn-k8s-mp0 7 1500"
        ]
    );
}

#[test]
fn a_family_without_node_subnet_has_no_way() {
    let mut view = mk_view(1);
    view.cluster_subnets
        .push("fd00:10::/48/64".parse().unwrap());
    assert_eq!(plan(&view).unwrap().routes.len(), 1);
}

#[test]
fn port_and_switch_port_agree() {
    let port = port(&mk_view(1)).unwrap();
    assert_eq!(port.bridge, "br-int");
    assert_eq!(port.iface_id, "k8s-n1");
    assert_eq!(port.mac.to_string(), "0a:58:0a:80:01:02");
    assert_eq!(port.owner, "default");
}

#[test]
fn without_a_subnet_there_is_nothing_to_do() {
    let mut view = mk_view(1);
    view.host_subnets.clear();
    assert_eq!(plan(&view), None);
    assert_eq!(port(&view), None);
}
