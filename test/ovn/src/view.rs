//! A node's view of the default network, and routes that it has learned.
//!
//! In: numbers. Out: values. Invariant: the view is sound and has both families. Not here: expectations.

use std::net::{IpAddr, Ipv4Addr};

use model::nb::ImportedRoute;
use model::network::MissingRoute;
use model::{NetworkName, NodeName, Prefix};
use plan_node::{GatewayView, NetworkView};

/// Node `n1` of three: 172.30.0.1 and fd00:30::1, pods 10.128.1.0/24 and fd01:0:0:1::/64.
#[must_use]
pub fn mk_view() -> NetworkView {
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    NetworkView {
        network: NetworkName::default_network(),
        network_id: 0,
        node: NodeName::from("n1".to_owned()),
        node_id: 2,
        host_subnets: vec![
            "10.128.1.0/24".parse().unwrap(),
            "fd01:0:0:1::/64".parse().unwrap(),
        ],
        cluster_subnets: vec![
            "10.128.0.0/16/24".parse().unwrap(),
            "fd01::/48/64".parse().unwrap(),
        ],
        join_subnets: vec![
            "100.64.0.0/16".parse().unwrap(),
            "fd98::/64".parse().unwrap(),
        ],
        gateway: GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: "0a:58:ac:1e:00:01".parse().unwrap(),
            addresses: vec![
                "172.30.0.1/24".parse().unwrap(),
                "fd00:30::1/64".parse().unwrap(),
            ],
            next_hops: vec![ip("172.30.0.100"), ip("fd00:30::100")],
            chassis: "n1".to_owned(),
        },
        outbound_snat: true,
        missing_route: MissingRoute::Discard,
        mtu: 1500,
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: [ip("172.30.0.1"), ip("fd00:30::1")].into(),
        node_addresses: [ip("172.30.0.1"), ip("172.30.0.2"), ip("fd00:30::1")].into(),
        nat_has_match: false,
    }
}

/// Imported routes to 192.168.y.z/32, numbered from `first`, by way of `nexthop`.
#[must_use]
pub fn mk_routes(first: u32, count: u32, nexthop: &str) -> Vec<ImportedRoute> {
    (first..first + count)
        .map(|number| ImportedRoute {
            prefix: Prefix::host(Ipv4Addr::from_bits(0xc0a8_0000 + number).into()),
            nexthop: nexthop.parse().unwrap(),
        })
        .collect()
}
