//! Node ids, and the nodes' subnets of each network.
//! In: the world. Out: for each node that lacks one, its id and subnets; problems.
//! Invariant: what a node has it keeps; what any annotation says, readable or not, or any object announces that we
//! generated, is nobody else's; the same world gives the same answer, whatever the order nodes came in.
//! Not here: writing annotations.

use std::collections::{BTreeMap, BTreeSet};

use model::address::{ClusterSubnet, Family};
use model::network::Topology;
use model::node::{Fact, NODE_IDS, Node, NodeSubnets};
use model::user_network::CUDN_PREFIX;
use model::{Network, NetworkName, NodeName, Prefix, Problem};

use crate::generated::{self, Generated};
use crate::ranges::Ranges;
use crate::suitable;
use crate::world::World;
use model::prefixes::PrefixMap;

/// The first node id; smaller ones are the cluster router's and the base address.
pub const FIRST_NODE_ID: u32 = 2;

/// Reason of the problem that the default network's subnets overlap something else of the cluster.
const IN_USE: &str = "SubnetsInUse";

/// What is to be written to a Node. Absent parts it has already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// `k8s.ovn.org/node-id`.
    pub node_id: Option<u32>,
    /// The whole of `k8s.ovn.org/node-subnets`, other networks' entries kept.
    pub subnets: Option<NodeSubnets>,
    /// `metadata.resourceVersion` of the Node that this was planned from: for any other it may be wrong. `None` where the
    /// world does not know it.
    pub resource_version: Option<String>,
}

/// Subnets of nodes in a network's cluster subnets of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are.
    pub total: u64,
    /// How many nodes have, those that are about to be given among them.
    pub given: u64,
}

/// Allocations by node; nodes that need none are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to write.
    pub allocations: BTreeMap<NodeName, Allocation>,
    /// Nodes that get nothing or share an id, and settings that are refused; and why.
    pub problems: Vec<Problem>,
    /// How far the cluster subnets of each layer-3 network are used up.
    pub usage: BTreeMap<(NetworkName, Family), Usage>,
}

impl Plan {
    /// The world as it is once this is written.
    #[must_use]
    pub fn applied(&self, mut world: World) -> World {
        for (name, allocation) in &self.allocations {
            let Some(node) = world.nodes.get_mut(name) else {
                continue;
            };
            if let Some(id) = allocation.node_id {
                node.node_id = Fact::Known(id);
            }
            if let Some(subnets) = &allocation.subnets {
                node.subnets = Fact::Known(subnets.clone());
            }
        }
        world
    }
}

/// Gives ids and subnets: the smallest free ones, to nodes in the order of their names.
#[must_use]
pub fn plan(world: &World) -> Plan {
    let ours = generated::all(world).filter(Generated::is_ours);
    let originated = generated::originated(world, ours);
    let mut all = Ranges::beside(world, &originated);
    let networks = world.networks.values();
    let ranges: Vec<(&Network, Ranges)> = networks
        .filter(|network| network.topology == Topology::Layer3)
        .map(|network| (network, all.remove(&network.name).unwrap_or_default()))
        .collect();
    let refused = ranges.iter().flat_map(|(_, ranges)| &ranges.problems);
    let in_use = suitable::default_subnets(world);
    let in_use = in_use.map(|why| Problem::new("Network/default", IN_USE, why));
    let mut plan = Plan {
        problems: refused.cloned().chain(in_use).collect(),
        ..Plan::default()
    };
    let mut ids = Ids::in_use(world);
    let mut pools: Vec<Pool<'_>> = ranges
        .iter()
        .map(|(network, ranges)| Pool::of(world, network, ranges, originated.get(&network.name)))
        .collect();
    for node in world.nodes.values() {
        let mut allocation = Allocation::default();
        match ids.give(node) {
            Ok(given) => allocation.node_id = given,
            Err(problem) => plan.problems.push(problem),
        }
        let mut subnets = match &node.subnets {
            Fact::Known(map) => map.clone(),
            Fact::Absent => NodeSubnets::default(),
            Fact::Malformed(why) => {
                plan.problems.push(problem(node, why));
                plan.put(world, node, allocation);
                continue;
            }
        };
        let before = subnets.len();
        subnets.retain(|network, _| !is_gone(world, network));
        if subnets.len() != before {
            allocation.subnets = Some(subnets.clone());
        }
        // One network that has no subnet left keeps no other from giving one.
        for pool in &mut pools {
            match pool.allot(node, &mut subnets) {
                Ok(true) => allocation.subnets = Some(subnets.clone()),
                Ok(false) => {}
                Err(why) => plan.problems.push(problem(node, &why)),
            }
        }
        plan.put(world, node, allocation);
    }
    plan.usage = usage(world, &ranges, &plan.allocations);
    plan
}

fn usage(
    world: &World,
    ranges: &[(&Network, Ranges)],
    allocations: &BTreeMap<NodeName, Allocation>,
) -> BTreeMap<(NetworkName, Family), Usage> {
    let mut out: BTreeMap<(NetworkName, Family), Usage> = BTreeMap::new();
    for (network, ranges) in ranges {
        for range in &ranges.list {
            let bits = range.host_len.saturating_sub(range.cidr.bits());
            let subnets = 1_u64.checked_shl(bits.into()).unwrap_or(u64::MAX);
            let of_family = (network.name.clone(), range.cidr.family());
            let usage = out.entry(of_family).or_default();
            usage.total = usage.total.saturating_add(subnets);
        }
    }
    for node in world.nodes.values() {
        let given = allocations
            .get(&node.name)
            .and_then(|given| given.subnets.as_ref());
        let subnets = given.or(node.subnets.known()).into_iter().flatten();
        for (network, list) in subnets {
            for subnet in list {
                if let Some(usage) = out.get_mut(&(network.clone(), subnet.family())) {
                    usage.given += 1;
                }
            }
        }
    }
    out
}

/// Whether a network was a ClusterUserDefinedNetwork's that is gone, with the last of its NetworkAttachmentDefinitions.
fn is_gone(world: &World, network: &NetworkName) -> bool {
    let Some(name) = network.as_str().strip_prefix(CUDN_PREFIX) else {
        return false;
    };
    let mut attached = world
        .attachments
        .values()
        .filter_map(|a| a.network.as_ref());
    !world.cudns.contains_key(name)
        && !world.networks.contains_key(network)
        && !attached.any(|(of, _)| of == network)
}

/// Node ids: those in use, whoever says so, and whose they are.
struct Ids<'a> {
    used: BTreeSet<u32>,
    joins: Vec<Prefix>,
    holders: BTreeMap<u32, &'a NodeName>,
}

impl<'a> Ids<'a> {
    fn in_use(world: &World) -> Self {
        let nodes = world.nodes.values();
        let used = nodes.flat_map(|n| n.node_id.known().into_iter().chain(&n.salvaged.ids));
        // A network of users whose join subnets are too small costs itself (`suitable`).
        let joins = world.default_network().into_iter();
        let joins = joins.flat_map(|network| &network.join_subnets);
        Self {
            used: used.copied().collect(),
            joins: joins.copied().collect(),
            holders: BTreeMap::new(),
        }
    }

    /// The id that a node gets; none where it has one.
    fn give(&mut self, node: &'a Node) -> Result<Option<u32>, Problem> {
        match &node.node_id {
            Fact::Known(id) => match self.holders.get(id) {
                None => {
                    self.holders.insert(*id, &node.name);
                    Ok(None)
                }
                Some(other) => Err(Problem::new(
                    format!("Node/{}", node.name),
                    "DuplicateNodeId",
                    format!(
                        "node {}: node id {id} is also node {other}'s; take annotation {} from one of them, it then gets an id of its own",
                        node.name,
                        model::node::annotation::NODE_ID
                    ),
                )),
            },
            Fact::Malformed(why) => Err(problem(node, why)),
            Fact::Absent => {
                let id = free_id(&self.used, &self.joins)
                    .ok_or_else(|| problem(node, "no node id is left: join subnets have no more addresses, or all from 2 to 32767 are used"))?;
                self.used.insert(id);
                Ok(Some(id))
            }
        }
    }
}

impl Plan {
    fn put(&mut self, world: &World, node: &Node, mut allocation: Allocation) {
        if allocation != Allocation::default() {
            allocation.resource_version = world.node_versions.get(&node.name).cloned();
            self.allocations.insert(node.name.clone(), allocation);
        }
    }
}

fn problem(node: &Node, why: &str) -> Problem {
    Problem::new(
        format!("Node/{}", node.name),
        "AllocationFailed",
        format!("node {}: {why}", node.name),
    )
}

fn free_id(ids: &BTreeSet<u32>, join: &[Prefix]) -> Option<u32> {
    let mut next = FIRST_NODE_ID;
    for id in ids.range(FIRST_NODE_ID..) {
        if *id != next {
            break;
        }
        next = next.checked_add(1)?;
    }
    let has_address = join.iter().all(|j| j.nth(u128::from(next) + 1).is_some());
    (has_address && NODE_IDS.contains(&next)).then_some(next)
}

/// The subnets of one network: what is taken, and by whom.
struct Pool<'a> {
    network: &'a NetworkName,
    ranges: &'a Ranges,
    taken: PrefixMap<String>,
    /// Each prefix with who has it, for the question whether it is anybody else's.
    claims: Vec<(String, Prefix)>,
    /// What a node's generated objects announce.
    announced: BTreeMap<String, Vec<Prefix>>,
    cursors: Vec<u128>,
}

impl<'a> Pool<'a> {
    fn of(
        world: &World,
        network: &'a Network,
        ranges: &'a Ranges,
        originated: Option<&BTreeMap<&str, Vec<Prefix>>>,
    ) -> Self {
        let mut pool = Self {
            network: &network.name,
            ranges,
            taken: PrefixMap::default(),
            claims: Vec::new(),
            announced: BTreeMap::new(),
            cursors: vec![0; ranges.list.len()],
        };
        for node in world.nodes.values() {
            let known = node.subnets.known().and_then(|map| map.get(&network.name));
            for prefix in known.into_iter().flatten() {
                pool.claim(node.name.as_str(), *prefix);
            }
            for address in &node.salvaged.subnets {
                // A length that no node's subnet has was not read whole, but the address was.
                let of_range = ranges.list.iter().find(|c| c.cidr.contains_ip(address.ip));
                let len = of_range.map_or(address.len, |c| address.len.max(c.host_len));
                if let Ok(prefix) = Prefix::new(address.ip, len) {
                    pool.claim(node.name.as_str(), prefix);
                }
            }
        }
        for (node, prefixes) in originated.into_iter().flatten() {
            for prefix in prefixes {
                pool.claim(node, *prefix);
            }
            let announced = pool.announced.entry((*node).to_owned()).or_default();
            announced.extend(prefixes);
        }
        pool
    }

    fn claim(&mut self, node: &str, prefix: Prefix) {
        self.taken.insert(prefix, node.to_owned());
        self.claims.push((node.to_owned(), prefix));
    }

    /// Puts the network's subnets into the annotation of a node that has none; true where it did.
    fn allot(&mut self, node: &Node, subnets: &mut NodeSubnets) -> Result<bool, String> {
        let is_whole = |list: &Vec<Prefix>| {
            !list.is_empty() && (self.network.is_default() || !self.is_of_before(list))
        };
        if subnets.get(self.network).is_some_and(is_whole) {
            return Ok(false);
        }
        let mut own = Vec::new();
        for family in self.ranges.families() {
            let subnet = match self.own(node, family) {
                Some(subnet) => subnet,
                None => self.free(family)?,
            };
            own.push(subnet);
        }
        if own.is_empty() {
            return Ok(false);
        }
        for subnet in &own {
            self.claim(node.name.as_str(), *subnet);
        }
        subnets.insert(self.network.clone(), own);
        Ok(true)
    }

    /// Whether these are subnets of a network of the same name that is gone: of a ClusterUserDefinedNetwork subnets can only be
    /// added.
    fn is_of_before(&self, list: &[Prefix]) -> bool {
        let mut ranges = self.ranges.list.iter();
        !ranges.any(|range| list.iter().any(|subnet| subnet.overlaps(&range.cidr)))
    }

    /// What the node's own objects announce still: its pods run in it, whoever took the annotation away.
    fn own(&self, node: &Node, family: Family) -> Option<Prefix> {
        let announced = self.announced.get(node.name.as_str())?;
        announced.iter().copied().find(|prefix| {
            let mut others = self.claims.iter().filter(|(n, _)| n != node.name.as_str());
            prefix.family() == family
                && self.ranges.has(prefix)
                && !others.any(|(_, p)| p.overlaps(prefix))
        })
    }

    fn free(&mut self, family: Family) -> Result<Prefix, String> {
        let ranges = self.ranges.list.iter().zip(self.cursors.iter_mut());
        let found = ranges
            .filter(|(c, _)| c.cidr.family() == family)
            .find_map(|(c, cursor)| next_free(c, &self.taken, cursor));
        found.ok_or_else(|| {
            let all: Vec<String> = self.ranges.list.iter().map(ToString::to_string).collect();
            let mut text = format!(
                "no subnet is left in the cluster subnets {}",
                all.join(", ")
            );
            let wide = self.claims.iter().find(|(_, prefix)| {
                let mut ranges = self.ranges.list.iter();
                ranges.any(|c| c.cidr.overlaps(prefix) && prefix.bits() < c.host_len)
            });
            if let Some((holder, prefix)) = wide {
                text.push_str(&format!(
                    "; node {holder} has {prefix}, which is more than one node's share"
                ));
            }
            text
        })
    }
}

fn next_free(
    range: &ClusterSubnet,
    taken: &PrefixMap<String>,
    cursor: &mut u128,
) -> Option<Prefix> {
    while *cursor < range.cidr.subnet_count(range.host_len) {
        let candidate = range.cidr.subnet(*cursor, range.host_len)?;
        let Some((hit, _)) = taken.overlapping(&candidate) else {
            *cursor += 1;
            return Some(candidate);
        };
        // A wide one is passed in one step: to the next multiple of its size.
        let bits = range
            .host_len
            .saturating_sub(hit.bits().max(range.cidr.bits()));
        let span = 1_u128.checked_shl(u32::from(bits))?;
        *cursor = (*cursor / span + 1).checked_mul(span)?;
    }
    None
}

#[cfg(test)]
mod tests;
