//! The managed BGP fabric: a base FRRConfiguration and a RouteAdvertisements for the default network.
//! In: the world. Out: the two objects, or none where nothing is managed; problems of nodes that are left out.
//! Invariant: the base object is a template that no node loads; what a node loads never names itself as neighbor.
//! Not here: per-node objects (`advertise` makes them from the template).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::Family;
use model::frr::{
    Advertise, BfdProfile, FrrConfiguration, Neighbor, Peer, Receive, RemoteAs, Router, Session,
};
use model::hash;
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};

use crate::generated;
use crate::ranges::Ranges;
use crate::world::{FabricSettings, World};
use crate::{FABRIC_LABEL, MANAGED_BY};

/// Name of the BFD profile of the resilient fabric.
pub const BFD_PROFILE: &str = "noverlay-resilient";

/// Milliseconds between two BFD packets. Three lost ones end a session: a dead way is noticed in 0.5 to 0.75 s. Faster ones
/// cost more (each peer a packet each way) and take the pauses of a busy host for a failure: with 200 ms some sessions of
/// 24 nodes on two cores flapped under heavy load.
const BFD_INTERVAL: u32 = 250;

/// What the fabric needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The base FRRConfiguration.
    pub base: Option<FrrConfiguration>,
    /// The RouteAdvertisements of the default network.
    pub advertisement: Option<RouteAdvertisements>,
    /// Nodes that are left out, and why.
    pub problems: Vec<Problem>,
}

/// Name of the base object.
#[must_use]
pub fn base_name() -> String {
    format!("ovnk-managed-{}", hash::short("internal-fabric"))
}

/// Name of a network's RouteAdvertisements.
#[must_use]
pub fn advertisement_name(network: &NetworkName) -> String {
    format!(
        "ovnk-managed-{}",
        hash::short(&format!("network/{network}"))
    )
}

/// Labels of every object of the fabric.
#[must_use]
pub fn labels() -> Labels {
    [FABRIC_LABEL, MANAGED_BY]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

/// True for the fabric's template: its node selector matches nobody, the planner takes it as matching every node.
#[must_use]
pub fn is_template(source: &FrrConfiguration) -> bool {
    source.labels.get(FABRIC_LABEL.0).map(String::as_str) == Some(FABRIC_LABEL.1)
}

/// The plan.
#[must_use]
pub fn plan(world: &World) -> Plan {
    let (Some(settings), Some(network)) = (&world.fabric, world.default_network()) else {
        return Plan::default();
    };
    let excluded = world.excluded_nodes(network);
    let base = base(world, settings, network, &excluded);
    let problems = excluded
        .into_iter()
        .map(|(node, why)| {
            let text = format!("node {node} is left out of the managed BGP fabric: {why}");
            Problem::new(format!("Node/{node}"), "NodeLeftOut", text)
        })
        .collect();
    Plan {
        base: Some(base),
        advertisement: Some(advertisement()),
        problems,
    }
}

/// The world with the fabric's own objects as they should be, whatever stands there now: who plans from it neither
/// waits for the echo of our own write, nor withdraws routes because somebody deleted an object that is about to be back.
#[must_use]
pub fn complete(mut world: World) -> World {
    let plan = plan(&world);
    if let Some(base) = plan.base {
        world.frr.insert(base.key.clone(), Ok(base));
    }
    if let Some(mut wanted) = plan.advertisement {
        if let Some(Ok(existing)) = world.ras.get(&wanted.name) {
            wanted.generation = existing.generation;
        }
        world.ras.insert(wanted.name.clone(), Ok(wanted));
    }
    world
}

fn base(
    world: &World,
    settings: &FabricSettings,
    network: &Network,
    excluded: &BTreeMap<NodeName, String>,
) -> FrrConfiguration {
    let ranges = Ranges::of(world, network);
    let families = ranges.families();
    let sessions = Sessions::of(world);
    let addresses = world.nodes.values().flat_map(|node| {
        if excluded.contains_key(&node.name) {
            sessions.existing(world, node)
        } else {
            node.internal_ips.clone()
        }
    });
    // Once each, and always in the same order.
    let addresses: BTreeSet<IpAddr> = addresses
        .filter(|ip| families.contains(&Family::of(*ip)))
        .collect();
    FrrConfiguration {
        key: ObjectKey::new(&settings.namespace, base_name()),
        labels: labels(),
        annotations: BTreeMap::new(),
        node_selector: LabelSelector {
            match_labels: Labels::new(),
            // Both at once are true of no node, also of one without the label.
            match_expressions: [Operator::DoesNotExist, Operator::Exists]
                .map(|operator| Requirement {
                    key: HOSTNAME_LABEL.to_owned(),
                    operator,
                    values: Vec::new(),
                })
                .to_vec(),
        },
        routers: vec![Router {
            asn: settings.asn,
            id: None,
            vrf: String::new(),
            neighbors: addresses
                .into_iter()
                .map(|ip| neighbor(ip, &ranges, settings))
                .collect(),
            prefixes: Vec::new(),
            imports: Vec::new(),
        }],
        bfd_profiles: bfd_profiles(settings),
        raw: None,
    }
}

/// The neighbors in what was generated for the fabric, by node.
struct Sessions<'a>(BTreeMap<&'a str, BTreeSet<IpAddr>>);

impl<'a> Sessions<'a> {
    fn of(world: &'a World) -> Self {
        let ra = advertisement_name(&NetworkName::default_network());
        let mut all: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
        for object in generated::owned(world, &ra) {
            let Some((node, object)) = object.node().zip(object.object()) else {
                continue;
            };
            let neighbors = object.routers.iter().flat_map(|r| &r.neighbors);
            let addresses = neighbors.filter_map(|n| match &n.peer {
                Peer::Address(text) => text.parse::<IpAddr>().ok(),
                Peer::Interface(_) => None,
            });
            all.entry(node).or_default().extend(addresses);
        }
        Self(all)
    }

    /// Addresses by which the peers of a node that is left out have sessions with it. It keeps the objects it has, and so
    /// its ends of the sessions: its peers keep theirs, also where its Node has lost the address or names another's.
    fn existing(&self, world: &World, node: &Node) -> Vec<IpAddr> {
        let Some(own) = self.0.get(node.name.as_str()) else {
            return Vec::new();
        };
        let peers = self
            .0
            .iter()
            .filter(|(name, _)| **name != node.name.as_str());
        let others = world.nodes.values().filter(|other| other.name != node.name);
        let others: BTreeSet<IpAddr> = others.flat_map(Node::own_addresses).collect();
        let named = peers.flat_map(|(_, named)| named).copied();
        let named: BTreeSet<IpAddr> = named.filter(|ip| !others.contains(ip)).collect();
        let known: Vec<IpAddr> = named.intersection(&node.own_addresses()).copied().collect();
        if !known.is_empty() {
            return known;
        }
        // The Node says nothing of it: what its peers name, but neither itself nor any other node.
        named.difference(own).copied().collect()
    }
}

/// The profile that the sessions name, in the same object: every object has to stand for itself.
fn bfd_profiles(settings: &FabricSettings) -> Vec<BfdProfile> {
    if !settings.resilient {
        return Vec::new();
    }
    vec![BfdProfile {
        name: BFD_PROFILE.to_owned(),
        receive_interval: Some(BFD_INTERVAL),
        transmit_interval: Some(BFD_INTERVAL),
        // FRR's own default, three, is left out: FRR does not show it, so each reload would set it again.
        detect_multiplier: None,
        ..BfdProfile::default()
    }]
}

fn neighbor(ip: IpAddr, ranges: &Ranges, settings: &FabricSettings) -> Neighbor {
    let mut session = Session::new(RemoteAs::Number(settings.asn));
    if settings.resilient {
        session.hold_time = Some(9);
        session.keepalive_time = Some(3);
        session.connect_time = Some(2);
        // Together or not at all. Graceful restart alone would keep the routes of a dead node for its restart time of two
        // minutes; BFD says at once that the way is gone, and a bgpd that merely restarts loses nothing.
        session.bfd_profile = Some(BFD_PROFILE.to_owned());
        session.graceful_restart = true;
    }
    Neighbor {
        peer: Peer::Address(ip.to_string()),
        session,
        advertise: Advertise::default(),
        receive: Receive {
            all: false,
            prefixes: ranges.received(Some(Family::of(ip))),
        },
    }
}

fn advertisement() -> RouteAdvertisements {
    RouteAdvertisements {
        name: advertisement_name(&NetworkName::default_network()),
        generation: 0,
        created: 0,
        target_vrf: TargetVrf::Default,
        networks: vec![NetworkSelector::DefaultNetwork],
        node_selector: LabelSelector::default(),
        frr_selector: LabelSelector::label(FABRIC_LABEL.0, FABRIC_LABEL.1),
        pod_network: true,
        egress_ip: false,
    }
}

#[cfg(test)]
mod tests;
