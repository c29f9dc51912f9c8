//! What the Nodes' annotations say of subnets and MTUs, as far as this node may believe it.
//! In: all Nodes, the network and its subnets. Out: who owns which pod subnet, the subnets of other networks,
//! and a problem for each claim that is not believed. Invariant: no annotation of another Node takes the network's own destinations away,
//! and a claim that is not believed costs nothing but itself.
//! Not here: what follows for routes (`import`), which MTU rules (`mtu`).

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use model::Problem;
use model::address::{Family, Prefix};
use model::names::{NetworkName, NodeName};
use model::network::Network;
use model::node::Node;

use model::subnets::{Owners, Subnets};

/// Reason of a problem: a pod subnet that is in none of the network's subnets.
pub const SUBNET_OUTSIDE: &str = "NodeSubnetOutside";
/// Reason of a problem: a subnet of another network that overlaps this network's.
pub const SUBNET_OVERLAPS: &str = "NodeSubnetOverlaps";
/// Reason of a problem: a subnet of another network that is too large for one node's pods.
pub const SUBNET_TOO_SHORT: &str = "NodeSubnetTooShort";

/// Reason of a problem: a pod subnet in which those of several other nodes lie.
pub const SUBNET_COVERS: &str = "NodeSubnetCovers";

/// Reason of a problem: more subnets than a node can have.
pub const SUBNETS_TOO_MANY: &str = "NodeSubnetsTooMany";

/// Reason of a problem: an MTU that no host's uplink has.
pub const MTU_OUT_OF_RANGE: &str = "HostMtuOutOfRange";

/// Host MTUs that are believed, bytes: what IPv6 and no-overlay pods need at least (RFC 8200, section 5), and what a packet
/// can have at most.
pub const MTU: RangeInclusive<u32> = 1280..=65_535;

/// So many subnets of one network are believed of a node: one or two of each family are usual.
pub const MOST: usize = 16;

/// So many subnets of other networks are believed of a node in all, and so many of them that are [`is_wide`]: networks
/// cost nothing but a name, and a node must not hide whole address ranges by inventing them.
pub const MOST_OF_OTHERS: usize = 512;
/// See [`MOST_OF_OTHERS`].
pub const MOST_WIDE: usize = 16;

/// Whether a subnet is larger than what a node usually has of a network.
#[must_use]
pub fn is_wide(subnet: &Prefix) -> bool {
    subnet.bits()
        < match subnet.family() {
            Family::V4 => 22,
            Family::V6 => 60,
        }
}

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
    /// Pod subnets of the network, and whose they are; one that two nodes claim is both's.
    pub owners: Subnets<Owners>,
    /// Subnets of other networks, on whatever node.
    pub other_networks: Subnets<()>,
    /// One for each claim that is not believed, in the order of Nodes; each names its Node, the subnet and what is allowed.
    pub problems: Vec<Problem>,
}

/// Evaluates the annotation `k8s.ovn.org/node-subnets` of all nodes for a network. What it says of other networks matters to the
/// default one alone: the others have a routing table of their own, in which the same subnets are theirs. `built` are subnets of
/// this node's networks by what was known when they were built: they stay other networks', also where no annotation says so now.
#[must_use]
pub fn evaluate(
    network: &Network,
    nodes: &[impl Borrow<Node>],
    built: &[(&NetworkName, &[Prefix])],
) -> Claims {
    let mut claims = Claims::default();
    let mut owners = Vec::new();
    let pods: Vec<Prefix> = network.prefixes().collect();
    // Of a layer-2 network it is the whole one, of whatever size.
    let is_foreign = |s: &&Prefix| {
        let ours = pods.iter().chain(&network.join_subnets);
        !ours.into_iter().any(|ours| ours.overlaps(s))
    };
    let of_others = built
        .iter()
        .filter(|(name, _)| **name != network.name && network.name.is_default());
    let of_others = of_others.flat_map(|(_, subnets)| subnets.iter());
    let mut others: Vec<(Prefix, ())> = of_others.filter(is_foreign).map(|s| (*s, ())).collect();
    for node in nodes.iter().map(Borrow::borrow) {
        claims.check_mtu(node);
        let mut of_others = OfOthers::default();
        let said = node.subnets.known();
        let of_network = said.and_then(|all| all.get_key_value(&network.name));
        let shares_main = network.name.is_default();
        let all = said.filter(|_| shares_main).into_iter().flatten();
        for (of, subnets) in all.chain(of_network.filter(|_| !shares_main)) {
            if subnets.len() > MOST {
                claims.refuse(
                    node,
                    SUBNETS_TOO_MANY,
                    format!(
                        "{} subnets of network {of}; allowed: {MOST} at most; those after them are ignored",
                        subnets.len()
                    ),
                );
            }
            let is_own = *of == network.name;
            for subnet in subnets.iter().take(MOST) {
                let refused = if is_own {
                    own(subnet, &pods)
                } else {
                    foreign(subnet, &pods, &network.join_subnets)
                };
                match refused {
                    Some((reason, why)) => {
                        let text = format!("subnet {subnet} of network {of} {why}; it is ignored");
                        claims.refuse(node, reason, text);
                    }
                    None if is_own => owners.push((*subnet, node.name.clone())),
                    None if of_others.admit(subnet) => others.push((*subnet, ())),
                    None => of_others.too_many += 1,
                }
            }
        }
        if of_others.too_many > 0 {
            let text = format!(
                "{} subnets of other networks are too many; allowed: {MOST_OF_OTHERS} in all, {MOST_WIDE} of them shorter than /22 (IPv4) or /60 (IPv6); they are ignored",
                of_others.too_many
            );
            claims.refuse(node, SUBNETS_TOO_MANY, text);
        }
    }
    claims.refuse_those_that_cover_others(&mut owners);
    claims.owners = owners.into_iter().collect();
    claims.other_networks = others.into_iter().collect();
    claims
}

/// How many subnets of other networks one node's word is taken for.
#[derive(Default)]
struct OfOthers {
    all: usize,
    wide: usize,
    too_many: usize,
}

impl OfOthers {
    /// Counts the subnet unless the limits are reached; false where they are.
    fn admit(&mut self, subnet: &Prefix) -> bool {
        let is_wide = is_wide(subnet);
        let fits = self.all < MOST_OF_OTHERS && (!is_wide || self.wide < MOST_WIDE);
        if fits {
            self.all += 1;
            self.wide += usize::from(is_wide);
        }
        fits
    }
}

impl Claims {
    fn refuse(&mut self, node: &Node, reason: &'static str, why: String) {
        let text = format!("annotation k8s.ovn.org/node-subnets: {why}");
        let problem = Problem::new(format!("Node/{}", node.name), reason, text);
        self.problems.push(problem);
    }

    fn check_mtu(&mut self, node: &Node) {
        if let Some(mtu) = node.host_mtu.known().filter(|mtu| !MTU.contains(mtu)) {
            let (least, most) = (MTU.start(), MTU.end());
            self.problems.push(Problem::new(
                format!("Node/{}", node.name),
                MTU_OUT_OF_RANGE,
                format!(
                    "annotation noverlay.io/host-mtu: {mtu} is out of range; allowed: {least} to {most}; it is ignored"
                ),
            ));
        }
    }

    /// A subnet in which those of two other nodes lie is no node's share. With one it is not known which of the two is wrong.
    fn refuse_those_that_cover_others(&mut self, owners: &mut Vec<(Prefix, NodeName)>) {
        let all: BTreeSet<(Prefix, NodeName)> = owners.iter().cloned().collect();
        let mut problems = Vec::new();
        owners.retain(|(subnet, node)| {
            let behind = all.range((*subnet, NodeName::from(""))..);
            let inside = behind.take_while(|(other, _)| subnet.contains(other));
            let mut covered = inside.filter(|(other, of)| other != subnet && of != node);
            let Some((first, of_first)) = covered.next() else {
                return true;
            };
            let Some((second, of_second)) = covered.find(|(_, of)| of != of_first) else {
                return true;
            };
            problems.push(Problem::new(
                format!("Node/{node}"),
                SUBNET_COVERS,
                format!(
                    "annotation k8s.ovn.org/node-subnets: subnet {subnet} covers {first} of node {of_first} and {second} of node {of_second}; allowed: one node's share of the network; it is ignored"
                ),
            ));
            false
        });
        self.problems.extend(problems);
    }
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
    let why = format!("overlaps {ours} of the default network; allowed: subnets beside it");
    Some((SUBNET_OVERLAPS, why))
}
