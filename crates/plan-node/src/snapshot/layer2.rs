//! Addresses of a layer-2 network on its node.
//! In: the network's transit subnets, ids of nodes. Out: the two ends of each link between transit router and gateway router.
//! Invariant: they follow from the node's id, so that all nodes have the same. Not here: rows (`north::topology::layer2`).

use model::address::{InterfaceAddr, Prefix};
use model::network::Layer2;

use super::NetworkView;

/// The ends of the link between a transit router and a node's gateway router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransitLink {
    /// The transit router's addresses.
    pub transit: Vec<InterfaceAddr>,
    /// The gateway router's.
    pub gateway: Vec<InterfaceAddr>,
}

impl<'a> NetworkView<'a> {
    /// What all nodes agree on of it, where it is a layer-2 network.
    #[must_use]
    pub fn layer2(&self) -> Option<&'a Layer2> {
        self.share.network.layer2.as_ref()
    }

    /// The link to the gateway router of the node with this id: in each transit subnet the pair of addresses from its base plus
    /// twice the id on (OVN-Kubernetes' plan); of the network's families, none where a subnet is too small.
    #[must_use]
    pub fn transit_link(&self, node_id: u32) -> TransitLink {
        let families = self.share.network.families();
        let mut link = TransitLink::default();
        let subnets = self.layer2().into_iter().flat_map(|l| &l.transit_subnets);
        for subnet in subnets.filter(|subnet| families.contains(&subnet.family())) {
            let first = 2 * u128::from(node_id);
            if let (Some(transit), Some(gateway)) = (subnet.nth(first), subnet.nth(first + 1)) {
                let len = Prefix::host(transit).bits() - 1;
                link.transit.push(InterfaceAddr { ip: transit, len });
                link.gateway.push(InterfaceAddr { ip: gateway, len });
            }
        }
        link
    }
}
