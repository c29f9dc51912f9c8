//! The address plan.

use model::address::InterfaceAddr;
use testkit::mk_view;

fn texts(addresses: &[InterfaceAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn the_address_plan_is_that_of_ovn_kubernetes() {
    let view = mk_view(1);
    assert_eq!(texts(&view.get().cluster_join()), ["100.64.0.1/16"]);
    assert_eq!(texts(&view.get().gateway_join()), ["100.64.0.2/16"]);
    assert_eq!(texts(&view.get().subnet_gateways()), ["10.128.1.1/24"]);
    assert_eq!(texts(&view.get().management()), ["10.128.1.2/24"]);
    assert_eq!(view.get().problems(), []);
}

#[test]
fn each_gap_in_a_view_is_named() {
    let mut view = mk_view(1);
    view.node.id = 1;
    view.share.host_subnets = vec!["fd00:10::/64".parse().unwrap()];
    let reasons: Vec<&str> = view.get().problems().iter().map(|p| p.reason).collect();
    assert_eq!(
        reasons,
        [
            "NodeIdOutOfRange",
            "NodeSubnetOutside",
            "NoJoinAddress",
            "NoNodeAddress"
        ]
    );
    view.share.host_subnets.clear();
    assert_eq!(view.get().problems()[0].reason, "NoNodeSubnet");
}

#[test]
fn a_node_id_beyond_the_join_subnet_is_named() {
    let mut view = mk_view(1);
    view.share.network.join_subnets = vec!["100.64.0.0/30".parse().unwrap()];
    view.node.id = 9;
    assert_eq!(view.get().problems()[0].reason, "NoJoinAddress");
    assert_eq!(view.get().gateway_join(), []);
}
