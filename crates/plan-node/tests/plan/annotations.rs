//! The text of each annotation.

use model::node::annotation;
use plan_node::{GatewayView, Machine};
use std::collections::BTreeMap;
use testkit::{mk_snapshot, mk_view};

fn facts() -> Machine {
    let view = mk_view(1);
    let mut machine = mk_snapshot(&view.node, &[]).machine;
    machine.host_cidrs = vec![
        "192.0.2.1/32".parse().unwrap(),
        "172.30.0.1/24".parse().unwrap(),
    ];
    machine
}

/// The annotations of a machine whose gateway is known.
fn plan(machine: &Machine) -> BTreeMap<String, String> {
    plan_node::annotations::plan(machine).unwrap()
}

fn gateway(machine: &mut Machine) -> &mut GatewayView {
    machine.gateway.as_mut().unwrap()
}

#[test]
fn a_node_publishes_what_others_need_of_it() {
    let all = plan(&facts());
    assert_eq!(all.len(), 5);
    assert_eq!(
        all[annotation::PRIMARY_IFADDR],
        r#"{"ipv4":"172.30.0.1/24"}"#
    );
    assert_eq!(
        all[annotation::HOST_CIDRS],
        r#"["172.30.0.1/24","192.0.2.1/32"]"#
    );
    assert_eq!(all[annotation::CHASSIS_ID], "n1");
    assert_eq!(all[annotation::HOST_MTU], "1500");
    assert_eq!(
        all[annotation::L3_GATEWAY],
        concat!(
            r#"{"default":{"mode":"shared","bridge-id":"br-ex","interface-id":"br-ex_n1","#,
            r#""mac-address":"0a:58:ac:1e:00:01","ip-addresses":["172.30.0.1/24"],"#,
            r#""ip-address":"172.30.0.1/24","next-hops":["172.30.0.100"],"next-hop":"172.30.0.100","#,
            r#""node-port-enable":"true","vlan-id":"0"}}"#
        )
    );
}

#[test]
fn singular_fields_stand_only_where_there_is_one() {
    let mut facts = facts();
    gateway(&mut facts)
        .addresses
        .push("fd01::1/64".parse().unwrap());
    gateway(&mut facts).next_hops.clear();
    let all = plan(&facts);
    let text = &all[annotation::L3_GATEWAY];
    assert!(text.contains(r#""ip-addresses":["172.30.0.1/24","fd01::1/64"]"#));
    assert!(!text.contains("ip-address\""));
    assert!(!text.contains("next-hop"));
    assert_eq!(
        all[annotation::PRIMARY_IFADDR],
        r#"{"ipv4":"172.30.0.1/24","ipv6":"fd01::1/64"}"#
    );
}

#[test]
fn a_bridge_without_address_is_no_gateway() {
    let mut facts = facts();
    gateway(&mut facts).addresses.clear();
    let all = plan(&facts);
    assert!(!all.contains_key(annotation::L3_GATEWAY));
    assert!(!all.contains_key(annotation::PRIMARY_IFADDR));
}

#[test]
fn the_order_of_addresses_does_not_change_the_text() {
    let one = facts();
    let mut two = facts();
    two.host_cidrs.reverse();
    two.host_cidrs.push("192.0.2.1/32".parse().unwrap());
    assert_eq!(plan(&one), plan(&two));
}

#[test]
fn nothing_is_published_before_the_gateway_was_known() {
    let mut facts = facts();
    facts.gateway = None;
    assert_eq!(plan_node::annotations::plan(&facts), None);
}
