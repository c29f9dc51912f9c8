//! What the Nodes' annotations say of subnets and MTUs, as far as this node may believe it.
//! In: all Nodes, the network and its subnets. Out: who owns which pod subnet, the subnets of other networks,
//! and a problem for each claim that is not believed. Invariant: no annotation of another Node takes the network's own destinations away,
//! and a claim that is not believed costs nothing but itself.
//! Not here: what follows for routes (`imports`, `importing`), which MTU rules (`mtu`).

use std::ops::RangeInclusive;

use model::Problem;
use model::address::{Family, Prefix};
use model::names::{NetworkName, NodeName};
use model::node::Node;

use crate::subnets::Subnets;

/// Reason of a problem: a pod subnet that is in none of the network's subnets.
pub const SUBNET_OUTSIDE: &str = "NodeSubnetOutside";
/// Reason of a problem: a subnet of another network that overlaps this network's.
pub const SUBNET_OVERLAPS: &str = "NodeSubnetOverlaps";
/// Reason of a problem: a subnet of another network that is too large for one node's pods.
pub const SUBNET_TOO_SHORT: &str = "NodeSubnetTooShort";

/// Reason of a problem: more subnets of one network than a node can have.
pub const SUBNETS_TOO_MANY: &str = "NodeSubnetsTooMany";

/// Reason of a problem: an MTU that no host's uplink has.
pub const MTU_OUT_OF_RANGE: &str = "HostMtuOutOfRange";

/// Host MTUs that are believed, bytes: what IPv6 and no-overlay pods need at least (RFC 8200, section 5), and what a packet
/// can have at most.
pub const MTU: RangeInclusive<u32> = 1280..=65_535;

/// So many subnets of one network are believed of a node: one or two of each family are usual.
pub const MOST: usize = 16;

/// The shortest prefix, in bits, that a node's share of another network may have: what is shorter is a mistake, and would
/// hide routes that have nothing to do with pods.
#[must_use]
pub fn shortest(family: Family) -> u8 {
    match family {
        Family::V4 => 16,
        Family::V6 => 48,
    }
}

/// What is believed, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Pod subnets of the network, and whose they are.
    pub owners: Vec<(Prefix, NodeName)>,
    /// Subnets of other networks, on whatever node.
    pub other_networks: Subnets<()>,
    /// One for each claim that is not believed, in the order of Nodes; each names its Node, the subnet and what is allowed.
    pub problems: Vec<Problem>,
}

/// Judges the annotation `k8s.ovn.org/node-subnets` of all nodes. `pods` are the subnets of `network`, `join` those of its
/// join switch.
#[must_use]
pub fn judge(network: &NetworkName, pods: &[Prefix], join: &[Prefix], nodes: &[Node]) -> Claims {
    let mut claims = Claims::default();
    let mut others = Vec::new();
    for node in nodes {
        if let Some(mtu) = node.host_mtu.known().filter(|mtu| !MTU.contains(mtu)) {
            let (least, most) = (MTU.start(), MTU.end());
            claims.problems.push(Problem::new(
                format!("Node/{}", node.name),
                MTU_OUT_OF_RANGE,
                format!(
                    "annotation noverlay.io/host-mtu: {mtu} is out of range; allowed: {least} to {most}; it is ignored"
                ),
            ));
        }
        for (of, subnets) in node.subnets.known().into_iter().flatten() {
            if subnets.len() > MOST {
                claims.problems.push(Problem::new(
                    format!("Node/{}", node.name),
                    SUBNETS_TOO_MANY,
                    format!(
                        "annotation k8s.ovn.org/node-subnets: {} subnets of network {of}; allowed: {MOST} at most; those after them are ignored",
                        subnets.len()
                    ),
                ));
            }
            for subnet in subnets.iter().take(MOST) {
                let refused = if of == network {
                    own(subnet, pods)
                } else {
                    foreign(subnet, pods, join)
                };
                match refused {
                    Some((reason, why)) => claims.problems.push(Problem::new(
                        format!("Node/{}", node.name),
                        reason,
                        format!(
                            "annotation k8s.ovn.org/node-subnets: subnet {subnet} of network {of} {why}; it is ignored"
                        ),
                    )),
                    None if of == network => claims.owners.push((*subnet, node.name.clone())),
                    None => others.push((*subnet, ())),
                }
            }
        }
    }
    claims.other_networks = others.into_iter().collect();
    claims
}

type Refused = Option<(&'static str, String)>;

fn own(subnet: &Prefix, pods: &[Prefix]) -> Refused {
    let inside = pods.iter().any(|pods| pods.contains(subnet));
    (!inside).then(|| {
        let allowed: Vec<String> = pods.iter().map(ToString::to_string).collect();
        let why = format!(
            "is outside of the network; allowed: inside {}",
            allowed.join(", ")
        );
        (SUBNET_OUTSIDE, why)
    })
}

fn foreign(subnet: &Prefix, pods: &[Prefix], join: &[Prefix]) -> Refused {
    let least = shortest(subnet.family());
    if subnet.bits() < least {
        let why = format!("is too large for one node; allowed: /{least} and longer");
        return Some((SUBNET_TOO_SHORT, why));
    }
    let ours = pods.iter().chain(join).find(|ours| ours.overlaps(subnet))?;
    let why = format!("overlaps {ours} of this network; allowed: subnets beside it");
    Some((SUBNET_OVERLAPS, why))
}

#[cfg(test)]
mod tests;
