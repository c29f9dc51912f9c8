//! The addresses that Nodes say are their own, and those of pods among them.
//! In: Nodes, networks. Out: addresses, and problems of those that lie in a network. Invariant: between pods nothing is translated
//! because an annotation names one of them. Not here: which of them are translated to (`facts`).

use std::net::IpAddr;

use model::address::Prefix;
use model::names::NetworkName;
use model::network::Network;
use model::node::Node;
use model::problem::Problem;

use super::{Memory, NotYet};
use crate::snapshot::Snapshot;

/// The network that an address is a pod's of; those of users that are routed in a VRF of their own alone may have any addresses.
pub(super) fn network_of(ip: IpAddr, networks: &[Network]) -> Option<&NetworkName> {
    let in_main = |n: &&Network| n.name.is_default() || n.advertised.default_vrf;
    let mut in_main = networks.iter().filter(in_main);
    let found = in_main.find(|network| network.holds(&Prefix::host(ip)));
    found.map(|network| &network.name)
}

/// The addresses that a Node says are its own beside its InternalIPs.
pub(super) fn annotated(node: &Node) -> impl Iterator<Item = IpAddr> + '_ {
    let annotated = node.host_cidrs.known().into_iter().flatten();
    annotated.map(|address| address.ip)
}

/// Addresses of pods that a Node says are its own, each with whether it counts: an InternalIP does, any other does not.
pub(super) fn pods_addresses(
    node: &Node,
    networks: &[Network],
    snapshot: &Snapshot,
) -> Vec<(bool, Problem)> {
    let counts = |ip: &IpAddr| {
        let known = snapshot.node.as_ref();
        known.is_some_and(|known| known.node_addresses.contains(ip))
    };
    let internal = node.internal_ips.iter().map(|ip| (*ip, "status.addresses"));
    let said = annotated(node).filter(|ip| !node.internal_ips.contains(ip));
    let said = said.map(|ip| (ip, "annotation k8s.ovn.org/host-cidrs"));
    let claims = internal.chain(said).filter_map(|(ip, field)| {
        let network = network_of(ip, networks)?;
        let counts = counts(&ip);
        let what = if counts {
            "packets of pods to it are translated all the same"
        } else {
            "packets of pods to it are not translated"
        };
        let problem = Problem::new(
            format!("Node/{}", node.name),
            POD_ADDRESS,
            format!(
                "{field}: {ip} is in the subnets of network {network}; allowed: addresses of the node; {what}"
            ),
        );
        Some((counts, problem))
    });
    claims.collect()
}

impl Memory {
    /// What is wrong with a network that the main table is to lead to hosts: as an error where it does not do so yet.
    pub(super) fn led_to_hosts(&self, network: &Network) -> Result<Option<NotYet>, NotYet> {
        let stands = self.shares.get(&network.name).map(|share| &share.network);
        let is_led = stands.is_some_and(|network| self.is_in_main(network));
        // What an agent before this one led goes on, and back by itself; without a share nothing could take it back.
        let is_led = is_led || (stands.is_none() && self.stands_beside(&network.name));
        match self.hosts_within(network) {
            Some(why) if !is_led => Err(why),
            why => Ok(why),
        }
    }

    /// A node or an API server in the subnets of a network of users that the main table is to lead into its VRF: hosts would lose
    /// the way to it, the API server's included, so that nobody could take the network back.
    fn hosts_within(&self, network: &Network) -> Option<NotYet> {
        if network.name.is_default() || !self.is_in_main(network) {
            return None;
        }
        if let Some(services) = self.holds_services(network) {
            return Some(services);
        }
        let nodes = self.nodes.iter().flatten();
        let of_nodes = nodes.flat_map(|node| {
            let addresses = node.internal_ips.iter();
            addresses.map(move |ip| (*ip, Some(&node.name)))
        });
        let servers = self.api_servers.iter().flatten().map(|ip| (*ip, None));
        let mut hosts = of_nodes.chain(servers);
        let (ip, node) = hosts.find(|(ip, _)| network.holds(&Prefix::host(*ip)))?;
        let whose = node.map_or_else(
            || "an endpoint of Service default/kubernetes".to_owned(),
            |node| format!("an InternalIP of node {node}"),
        );
        let name = &network.name;
        let text = if self.config.beside {
            format!(
                "its subnets hold {ip}, {whose}, and nodes are to have routes to them; allowed: subnets without hosts, or the tunnels"
            )
        } else {
            format!(
                "its subnets hold {ip}, {whose}, and it is advertised into the default VRF; allowed: subnets without hosts, or advertising into its own VRF alone"
            )
        };
        let subject = format!("network {name}");
        Some(NotYet::Unsound(Problem::new(subject, HOSTS_WITHIN, text)))
    }

    /// Whether rows of ours stand for a network beside OVN-Kubernetes, of this process or of one before it.
    pub(super) fn stands_beside(&self, network: &NetworkName) -> bool {
        let owners = self.row_owners.as_ref();
        self.config.beside && owners.is_some_and(|owners| owners.contains(network))
    }

    /// Whether the main tables of nodes are to lead to the network's pods. Beside OVN-Kubernetes each network that is led past the tunnels
    /// is announced there, whatever its objects say.
    fn is_in_main(&self, network: &Network) -> bool {
        let is_led = self.config.beside && network.transport.no_overlay().is_some();
        is_led || network.advertised.default_vrf
    }

    /// Addresses of Services in the subnets of a network beside OVN-Kubernetes, where nobody else looks at that: those of a network in
    /// its tunnels are its own.
    fn holds_services(&self, network: &Network) -> Option<NotYet> {
        let mut ranges = self.config.service_cidrs.iter();
        let range = ranges.find(|range| {
            self.config.beside && network.prefixes().any(|own| own.overlaps(range))
        })?;
        let name = &network.name;
        Some(NotYet::Unsound(Problem::new(
            format!("network {name}"),
            HOSTS_WITHIN,
            format!(
                "its subnets overlap {range} of [kubernetes] service-cidrs, and nodes are to have routes to them; allowed: subnets without addresses of Services, or the tunnels"
            ),
        )))
    }
}

/// Reason of a problem: hosts are in the subnets of a network that they would lose their way to.
pub const HOSTS_WITHIN: &str = "SubnetHoldsHosts";
/// Reason of a problem: a Node says that an address of pods is its own.
pub const POD_ADDRESS: &str = "NodeAddressOfPods";
