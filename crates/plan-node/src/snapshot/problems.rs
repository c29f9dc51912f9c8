//! What keeps the plan of a network on its node from being whole.
//! In: a network's view. Out: problems. Invariant: what costs one family alone is no reason to build nothing.
//! Not here: why nothing is known (`facts`), what other nodes claim (`claims`).

use model::address::{Family, InterfaceAddr};
use model::names::NodeName;
use model::problem::Problem;

use super::{NetworkView, RemoteNode, SPLIT, of_family};

/// Reason of a problem: the bridge has no address of a family.
const NO_NODE_ADDRESS: &str = "NoNodeAddress";
/// Reason of a problem: the join subnet of a family is too small for the node id.
const NO_JOIN_ADDRESS: &str = "NoJoinAddress";
/// Reason of a problem: the transit subnet of a family is too small for a node's id.
pub const NO_TRANSIT_ADDRESS: &str = "NoTransitAddress";
/// Reason of a problem: the subnet of another node would need too many routes.
pub const SUBNET_TOO_WIDE: &str = "NodeSubnetTooWide";

impl NetworkView<'_> {
    /// What keeps the plan from being whole; a missing family costs only that family's rows.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut tell = |reason, message| {
            found.push(Problem::new(
                format!("Node/{}", self.node.name),
                reason,
                message,
            ));
        };
        if self.share.host_subnets.is_empty() {
            tell(
                "NoNodeSubnet",
                format!("node has no subnet of network {}", self.name()),
            );
        }
        let id = self.node.id;
        if id < 2 {
            let text = format!("node id {id} is not allowed; the first is 2");
            tell("NodeIdOutOfRange", text);
        }
        for subnet in &self.share.host_subnets {
            let family = subnet.family();
            if !self.share.network.holds(subnet) {
                tell(
                    "NodeSubnetOutside",
                    format!(
                        "node subnet {subnet} is in none of the subnets of network {}",
                        self.name()
                    ),
                );
            }
            if subnet.nth(2).is_none() {
                tell(
                    "NodeSubnetTooSmall",
                    format!("node subnet {subnet} has no address for the management port"),
                );
            }
            if of_family(&self.gateway_join(), family).is_none() {
                tell(
                    NO_JOIN_ADDRESS,
                    format!(
                        "node id {id} has no address in a join subnet of the family of {subnet}"
                    ),
                );
            }
            if self.lacks_transit(id, family) {
                tell(NO_TRANSIT_ADDRESS, self.no_transit(id, family));
            }
            if self.gateway_address(family).is_none() {
                tell(
                    NO_NODE_ADDRESS,
                    format!(
                        "bridge {} has no address of the family of {subnet}",
                        self.node.gateway.bridge
                    ),
                );
            }
        }
        found
    }

    /// Whether the node with this id has no address of a family on what leads to the other nodes: the transit switch, or where the
    /// network is a layer-2 one the link of its gateway router.
    fn lacks_transit(&self, id: u32, family: Family) -> bool {
        let addresses: Vec<InterfaceAddr> = match self.layer2() {
            Some(_) => self.transit_link(id).gateway,
            None => self.transit(id),
        };
        self.is_overlay() && of_family(&addresses, family).is_none()
    }

    /// The other nodes that the overlay does not reach, and why.
    #[must_use]
    pub fn unreachable(&self) -> Vec<Problem> {
        if !self.is_overlay() {
            return Vec::new();
        }
        let families = self.share.network.families();
        let remotes = self.node.remotes.iter();
        let of = |(name, remote): (&NodeName, &RemoteNode)| {
            let lacks = |family: &&Family| self.lacks_transit(remote.id, **family);
            let family = families.iter().find(lacks)?;
            Some(Problem::new(
                format!("Node/{name}"),
                NO_TRANSIT_ADDRESS,
                self.no_transit(remote.id, *family),
            ))
        };
        let mut found: Vec<Problem> = remotes.filter_map(of).collect();
        if self.layer2().is_none() {
            found.extend(self.too_wide());
        }
        found
    }

    /// Subnets of other nodes that would need too many routes.
    fn too_wide(&self) -> impl Iterator<Item = Problem> + '_ {
        let remote = self.share.remote_subnets.iter();
        let too_wide = remote.filter(|(subnet, _)| self.overlay_routes(subnet).is_none());
        too_wide.map(|(subnet, name)| {
            Problem::new(
                format!("Node/{name}"),
                SUBNET_TOO_WIDE,
                format!(
                    "annotation k8s.ovn.org/node-subnets: subnet {subnet} of network {} is too wide beside {} of this node; allowed: lengths that differ by {SPLIT} at most; nothing is sent there by tunnel",
                    self.name(),
                    self.longest_own(subnet.family()),
                ),
            )
        })
    }

    fn no_transit(&self, id: u32, family: Family) -> String {
        let version = family.version();
        let Some(layer2) = self.layer2() else {
            return format!(
                "node id {id} has no address in [clustermanager] {version}-transit-subnet; allowed: a subnet with an address for each node id"
            );
        };
        let subnets = layer2.transit_subnets.iter();
        let of_it = subnets.filter(|subnet| subnet.family() == family);
        let said: Vec<String> = of_it.map(ToString::to_string).collect();
        format!(
            "node id {id} has no two addresses in the {version} transit subnet of network {} ({}); allowed: a subnet with two addresses for each node id",
            self.name(),
            if said.is_empty() {
                "none".to_owned()
            } else {
                said.join(",")
            }
        )
    }

    /// Of the problems, the first that costs more than the rows of one family: nothing is built on it.
    #[must_use]
    pub fn unsound(&self) -> Option<Problem> {
        let costs_a_family = |problem: &Problem| {
            matches!(
                problem.reason,
                NO_NODE_ADDRESS | NO_JOIN_ADDRESS | NO_TRANSIT_ADDRESS
            )
        };
        self.problems().into_iter().find(|p| !costs_a_family(p))
    }
}
