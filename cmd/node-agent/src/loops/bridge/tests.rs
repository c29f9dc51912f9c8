//! Which port leads out of the node.

use super::*;

fn mk_port(name: &str, kind: &str, ofport: Option<u32>) -> PortFact {
    PortFact {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ofport,
    }
}

#[test]
fn the_uplink_is_the_one_port_that_is_neither_internal_nor_a_patch() {
    let own = mk_port("br-ex", "internal", Some(65534));
    let patch = mk_port("patch-br-ex_n1-to-br-int", "patch", Some(2));
    let eth0 = mk_port("eth0", "", Some(1));
    let all = [own.clone(), patch.clone(), eth0.clone()];
    assert_eq!(uplink("br-ex", &all), Ok(1));
    let why = |ports: &[PortFact]| match uplink("br-ex", ports).unwrap_err() {
        NoUplink::Waiting(why) => why,
        NoUplink::Several { ports, why } => format!("{ports:?} {why}"),
    };
    assert!(why(&[]).contains("no port"));
    assert!(why(&[own, patch]).contains("no port"));
    assert!(why(&[mk_port("eth0", "", None)]).contains("no number"));
    let eth1 = mk_port("eth1", "", Some(3));
    let several = why(&[eth0, eth1, mk_port("eth2", "", None)]);
    assert!(
        several.starts_with("[1, 3] ") && several.contains("several"),
        "{several}"
    );
}

fn mk_view() -> NetworkView {
    NetworkView {
        network: model::NetworkName::default_network(),
        network_id: 0,
        node: model::NodeName::from("n1".to_owned()),
        node_id: 2,
        host_subnets: vec!["10.128.1.0/24".parse().unwrap()],
        cluster_subnets: vec!["10.128.0.0/16/24".parse().unwrap()],
        join_subnets: vec!["100.64.0.0/16".parse().unwrap()],
        gateway: GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: "02:42:ac:12:00:02".parse().unwrap(),
            addresses: vec!["172.18.0.2/16".parse().unwrap()],
            next_hops: Vec::new(),
            chassis: "n1".to_owned(),
        },
        outbound_snat: true,
        missing_route: model::network::MissingRoute::Discard,
        mtu: 1400,
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: std::collections::BTreeSet::new(),
        node_addresses: std::collections::BTreeSet::new(),
        nat_has_match: true,
    }
}

#[test]
fn flows_are_made_of_the_mac_and_addresses_that_the_host_has_now() {
    let view = mk_view();
    let mut fresh = view.gateway.clone();
    fresh.mac = "02:42:ac:12:00:99".parse().unwrap();
    fresh.addresses = vec!["172.18.0.99/16".parse().unwrap()];
    let made = input(&view, Some(&fresh), 1, 2);
    assert_eq!(made.mac, fresh.mac);
    assert_eq!(
        made.addresses,
        ["172.18.0.99".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(made.networks[0].pod_subnets, view.host_subnets);
    assert_eq!(input(&view, None, 1, 2).mac, view.gateway.mac);
}
