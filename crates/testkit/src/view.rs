//! Views that tests start from: node N of a three-node network, with round addresses.
//! In: a node number. Out: a `NetworkView`. Invariant: sound, `problems` is empty. Not here: expectations.

use std::net::IpAddr;

use model::names::{NetworkName, NodeName};

use model::network::MissingRoute;
use plan_node::{GatewayView, NetworkView};

/// Node `n<N>` (1 to 3): 172.30.0.N, pods 10.128.N.0/24, node id N + 1.
#[must_use]
pub fn mk_view(number: u8) -> NetworkView {
    let address = |n: u8| -> IpAddr { format!("172.30.0.{n}").parse().unwrap() };
    NetworkView {
        network: NetworkName::default_network(),
        network_id: 0,
        node: NodeName::from(format!("n{number}")),
        node_id: u32::from(number) + 1,
        host_subnets: vec![format!("10.128.{number}.0/24").parse().unwrap()],
        cluster_subnets: vec!["10.128.0.0/16/24".parse().unwrap()],
        join_subnets: vec!["100.64.0.0/16".parse().unwrap()],
        gateway: GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: format!("0a:58:ac:1e:00:{number:02x}").parse().unwrap(),
            addresses: vec![format!("172.30.0.{number}/24").parse().unwrap()],
            next_hops: vec![address(100)],
            chassis: format!("n{number}"),
        },
        outbound_snat: true,
        missing_route: MissingRoute::Discard,
        mtu: 1500,
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: [address(number)].into(),
        node_addresses: [address(1), address(2), address(3)].into(),
        nat_has_match: false,
    }
}
