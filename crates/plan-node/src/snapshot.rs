//! What the planners of one network on one node are given.
//! In: objects, settings and local facts, parsed by whoever read them. Out: a value, and the addresses derived from it.
//! Invariant: every derived address has one function here (address plan: OVN-Kubernetes' join and node subnets).
//! Not here: decisions; a view with gaps gives a smaller plan, and `problems` names the gaps.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{ClusterSubnet, Family, InterfaceAddr, Mac, Prefix};
use model::names::{NetworkName, NodeName, RouterName};
use model::network::MissingRoute;
use model::problem::Problem;

/// The node's way to the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayView {
    /// The external bridge, `br-ex`.
    pub bridge: String,
    /// Its name in `ovn-bridge-mappings`, `physnet`.
    pub physical_network: String,
    /// MAC of the bridge, which host and gateway router share.
    pub mac: Mac,
    /// Addresses of the bridge that the gateway router shares; the first of each family is the node's address.
    pub addresses: Vec<InterfaceAddr>,
    /// Default routers; none means no default route in OVN.
    pub next_hops: Vec<IpAddr>,
    /// `Chassis.name` of this node in the Southbound DB (`external_ids:system-id`).
    pub chassis: String,
}

impl GatewayView {
    /// The node's address of a family.
    #[must_use]
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses
            .iter()
            .map(|address| address.ip)
            .find(|ip| Family::of(*ip) == family)
    }
}

/// One network on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkView {
    /// The network.
    pub network: NetworkName,
    /// Network id, 0 for the default network.
    pub network_id: u16,
    /// The node.
    pub node: NodeName,
    /// Node id, from 2. Source: annotation `k8s.ovn.org/node-id`.
    pub node_id: u32,
    /// The node's own subnets of the network. Source: annotation `k8s.ovn.org/node-subnets`.
    pub host_subnets: Vec<Prefix>,
    /// All subnets of the network.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// Subnets of the join switch, one per family.
    pub join_subnets: Vec<Prefix>,
    /// The node's gateway.
    pub gateway: GatewayView,
    /// True: traffic that leaves the network bears the node's address. Source: `[no-overlay] outbound-snat`.
    pub outbound_snat: bool,
    /// What is done without a route.
    pub missing_route: MissingRoute,
    /// MTU of pods and of the management port, bytes.
    pub mtu: u32,
    /// `NAT.external_port_range`, for example `32768-60999`.
    pub ephemeral_port_range: String,
    /// This node's addresses. Source: its annotation `k8s.ovn.org/host-cidrs`.
    pub host_addresses: BTreeSet<IpAddr>,
    /// All nodes' addresses. Source: the same annotation of every node.
    pub node_addresses: BTreeSet<IpAddr>,
    /// Whether the Northbound schema has `NAT.match` (OVN 23.03 has not).
    pub nat_has_match: bool,
}

impl NetworkView {
    /// The node's logical switch.
    #[must_use]
    pub fn switch(&self) -> String {
        self.network.switch(&self.node)
    }

    /// The cluster router.
    #[must_use]
    pub fn cluster_router(&self) -> RouterName {
        self.network.cluster_router()
    }

    /// The node's gateway router.
    #[must_use]
    pub fn gateway_router(&self) -> RouterName {
        self.network.gateway_router(&self.node)
    }

    /// Join addresses of the cluster router: the first of each join subnet.
    #[must_use]
    pub fn cluster_join(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.join_subnets, 1)
    }

    /// Join addresses of the gateway router: each join subnet's base plus the node id.
    #[must_use]
    pub fn gateway_join(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.join_subnets, self.node_id.into())
    }

    /// Addresses of the cluster router in the node's subnets: the first of each.
    #[must_use]
    pub fn subnet_gateways(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.host_subnets, 1)
    }

    /// Addresses of the management port: the second of each node subnet.
    #[must_use]
    pub fn management(&self) -> Vec<InterfaceAddr> {
        nth_of_each(&self.host_subnets, 2)
    }

    /// What keeps the plan from being whole; a missing family costs only that family's rows.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut tell = |reason, message| {
            found.push(Problem::new(format!("Node/{}", self.node), reason, message));
        };
        if self.host_subnets.is_empty() {
            tell(
                "NoNodeSubnet",
                format!("node has no subnet of network {}", self.network),
            );
        }
        if self.node_id < 2 {
            tell(
                "NodeIdOutOfRange",
                format!("node id {} is not allowed; the first is 2", self.node_id),
            );
        }
        for subnet in &self.host_subnets {
            let family = subnet.family();
            if !self.cluster_subnets.iter().any(|c| c.cidr.contains(subnet)) {
                tell(
                    "NodeSubnetOutside",
                    format!(
                        "node subnet {subnet} is in none of the subnets of network {}",
                        self.network
                    ),
                );
            }
            if of_family(&self.gateway_join(), family).is_none() {
                tell(
                    "NoJoinAddress",
                    format!(
                        "node id {} has no address in a join subnet of the family of {subnet}",
                        self.node_id
                    ),
                );
            }
            if self.gateway.address(family).is_none() {
                tell(
                    "NoNodeAddress",
                    format!(
                        "bridge {} has no address of the family of {subnet}",
                        self.gateway.bridge
                    ),
                );
            }
        }
        found
    }
}

/// The `offset`-th address of each subnet that has one, with the subnet's length.
fn nth_of_each(subnets: &[Prefix], offset: u128) -> Vec<InterfaceAddr> {
    subnets
        .iter()
        .filter_map(|subnet| {
            Some(InterfaceAddr {
                ip: subnet.nth(offset)?,
                len: subnet.bits(),
            })
        })
        .collect()
}

/// The first address of a family.
pub(crate) fn of_family(addresses: &[InterfaceAddr], family: Family) -> Option<IpAddr> {
    addresses
        .iter()
        .map(|address| address.ip)
        .find(|ip| Family::of(*ip) == family)
}

/// MAC of a port with these addresses: from its first IPv4 address, else from its first.
pub(crate) fn mac_of(addresses: &[InterfaceAddr]) -> Option<Mac> {
    of_family(addresses, Family::V4)
        .or_else(|| of_family(addresses, Family::V6))
        .map(Mac::of_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_takes_its_mac_from_the_first_ipv4_address() {
        let both: Vec<InterfaceAddr> = vec![
            "fd00:10::2/64".parse().unwrap(),
            "10.128.1.2/24".parse().unwrap(),
        ];
        assert_eq!(mac_of(&both).unwrap().to_string(), "0a:58:0a:80:01:02");
        assert_eq!(mac_of(&[]), None);
    }
}
