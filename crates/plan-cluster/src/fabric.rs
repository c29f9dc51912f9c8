//! The managed BGP fabric: a base FRRConfiguration, and a RouteAdvertisements for each managed network.
//! In: the world. Out: the objects, or none where nothing is managed; problems of nodes that are left out.
//! Invariant: the base object is a template that no node loads; what a node loads never names itself as neighbor.
//! Not here: per-node objects (`advertise` makes them from the template).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::Family;
use model::frr::{
    Advertise, BfdProfile, FrrConfiguration, Neighbor, Peer, PrefixRange, Receive, RemoteAs,
    Router, Session,
};
use model::hash;
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::network::Routing;
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::user_network::{CUDN_PREFIX, ClusterUserDefinedNetwork, UserTransport};
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};

use crate::attachments::NAME_LABEL;
use crate::generated::{self, Generated, label_value};
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
    /// The RouteAdvertisements of the managed networks, by their names.
    pub advertisements: BTreeMap<String, RouteAdvertisements>,
    /// Managed ClusterUserDefinedNetworks, each of which has to bear [`NAME_LABEL`] with its own name.
    pub labelled: BTreeSet<String>,
    /// Nodes that are left out, and why.
    pub problems: Vec<Problem>,
}

/// Names of the fabric's own objects begin so.
pub const MANAGED_PREFIX: &str = "ovnk-managed-";

/// Name of the base object.
#[must_use]
pub fn base_name() -> String {
    format!("{MANAGED_PREFIX}{}", hash::short("internal-fabric"))
}

/// Whether a RouteAdvertisements is one of the fabric's.
#[must_use]
pub fn is_of_fabric(world: &World, name: &str) -> bool {
    let default = managed_networks(world)
        .into_iter()
        .map(|network| network.name.clone());
    let cudns = managed_cudns(world).map(ClusterUserDefinedNetwork::network_name);
    let mut networks = default.chain(cudns);
    world.fabric.is_some() && networks.any(|network| advertisement_name(&network) == name)
}

/// Name of a network's RouteAdvertisements.
#[must_use]
pub fn advertisement_name(network: &NetworkName) -> String {
    format!(
        "{MANAGED_PREFIX}{}",
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

/// Managed ClusterUserDefinedNetworks, as long as they, or their networks, are there.
fn managed_cudns(world: &World) -> impl Iterator<Item = &ClusterUserDefinedNetwork> {
    let readable = world.cudns.values().filter_map(|cudn| cudn.as_ref().ok());
    readable.filter(|cudn| {
        let transport = cudn.network.as_ref().map(|network| network.transport);
        let managed = matches!(
            transport,
            Ok(UserTransport::NoOverlay {
                routing: Routing::Managed,
                ..
            })
        );
        managed && (!cudn.deleting || world.networks.contains_key(&cudn.network_name()))
    })
}

/// Managed networks that exist.
fn managed_networks(world: &World) -> Vec<&Network> {
    let networks = world.networks.values();
    let is_managed = |network: &&Network| {
        let options = network.transport.no_overlay();
        options.is_some_and(|options| options.routing == Routing::Managed)
    };
    networks.filter(is_managed).collect()
}

/// The plan.
#[must_use]
pub fn plan(world: &World) -> Plan {
    let Some(settings) = &world.fabric else {
        return Plan::default();
    };
    let networks = managed_networks(world);
    let labelled: BTreeSet<String> = managed_cudns(world).map(|cudn| cudn.name.clone()).collect();
    let default = networks.iter().filter(|network| network.name.is_default());
    let mut advertisements: Vec<RouteAdvertisements> = default
        .map(|network| advertisement(&network.name, NetworkSelector::DefaultNetwork))
        .collect();
    advertisements.extend(managed_cudns(world).map(|cudn| {
        let selector = LabelSelector::label(NAME_LABEL, &cudn.name);
        let selector = NetworkSelector::ClusterUserDefinedNetworks(selector);
        advertisement(&cudn.network_name(), selector)
    }));
    if advertisements.is_empty() {
        return Plan::default();
    }
    let excluded = excluded_of_all(world, &networks);
    let base = base(world, settings, &networks, &excluded);
    let problems = excluded
        .into_iter()
        .map(|(node, why)| {
            let text = format!("node {node} is left out of the managed BGP fabric: {why}");
            Problem::new(format!("Node/{node}"), "NodeLeftOut", text)
        })
        .collect();
    Plan {
        base: Some(base),
        advertisements: advertisements
            .into_iter()
            .map(|ra| (ra.name.clone(), ra))
            .collect(),
        labelled,
        problems,
    }
}

/// Nodes that take part in none of the networks, with the reason of the first of them.
fn excluded_of_all(world: &World, networks: &[&Network]) -> BTreeMap<NodeName, String> {
    let mut all = networks.iter().map(|network| world.excluded_nodes(network));
    let Some(mut out) = all.next() else {
        return world.unfit_nodes();
    };
    for excluded in all {
        out.retain(|node, _| excluded.contains_key(node));
    }
    out
}

/// The world with the fabric's own objects as they should be, whatever stands there now: who plans from it neither
/// waits for the echo of our own write, nor withdraws routes because somebody deleted an object that is about to be back.
#[must_use]
pub fn complete(mut world: World) -> World {
    let plan = plan(&world);
    if let Some(base) = plan.base {
        world.frr.insert(base.key.clone(), Ok(base));
    }
    for (name, mut wanted) in plan.advertisements {
        if let Some(Ok(existing)) = world.ras.get(&name) {
            wanted.generation = existing.generation;
            wanted.created = existing.created;
        }
        world.ras.insert(name, Ok(wanted));
    }
    for name in plan.labelled {
        if let Some(Ok(cudn)) = world.cudns.get_mut(&name) {
            cudn.labels.insert(NAME_LABEL.to_owned(), name);
        }
    }
    world
}

fn base(
    world: &World,
    settings: &FabricSettings,
    networks: &[&Network],
    excluded: &BTreeMap<NodeName, String>,
) -> FrrConfiguration {
    let ranges: Vec<Ranges> = networks
        .iter()
        .map(|network| Ranges::of(world, network))
        .collect();
    let families: BTreeSet<Family> = ranges.iter().flat_map(Ranges::families).collect();
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
    let received = Family::ALL.map(|family| {
        let prefixes = ranges
            .iter()
            .flat_map(|ranges| ranges.received(Some(family)));
        (family, prefixes.collect())
    });
    let received: BTreeMap<Family, Vec<PrefixRange>> = received.into();
    let neighbors = addresses.into_iter().map(|ip| {
        let received = received.get(&Family::of(ip)).cloned().unwrap_or_default();
        neighbor(ip, received, settings)
    });
    FrrConfiguration {
        key: ObjectKey::new(&settings.namespace, base_name()),
        labels: labels(),
        annotations: BTreeMap::new(),
        node_selector: nobody(),
        routers: vec![Router {
            asn: settings.asn,
            id: None,
            vrf: String::new(),
            neighbors: neighbors.collect(),
            prefixes: Vec::new(),
            imports: Vec::new(),
            evpn: None,
        }],
        bfd_profiles: bfd_profiles(settings),
        raw: None,
    }
}

/// Both at once are true of no node, also of one without the label.
fn nobody() -> LabelSelector {
    let both = [Operator::DoesNotExist, Operator::Exists];
    LabelSelector {
        match_labels: Labels::new(),
        match_expressions: both
            .map(|operator| Requirement {
                key: HOSTNAME_LABEL.to_owned(),
                operator,
                values: Vec::new(),
            })
            .to_vec(),
    }
}

/// The neighbors in what was generated for the fabric, by node.
struct Sessions<'a>(BTreeMap<&'a str, BTreeSet<IpAddr>>);

impl<'a> Sessions<'a> {
    fn of(world: &'a World) -> Self {
        let default = NetworkName::default_network();
        let networks = world
            .cudns
            .keys()
            .map(|name| format!("{CUDN_PREFIX}{name}").into());
        let ras = std::iter::once(default).chain(networks);
        let ras: BTreeSet<String> = ras
            .map(|network| label_value(&advertisement_name(&network)))
            .collect();
        let mut all: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
        let is_of_fabric =
            |o: &Generated<'_>| o.is_ours() && o.label().is_some_and(|l| ras.contains(l));
        for object in generated::all(world).filter(is_of_fabric) {
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

fn neighbor(ip: IpAddr, received: Vec<PrefixRange>, settings: &FabricSettings) -> Neighbor {
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
            prefixes: received,
        },
        disable_mp: false,
        address_families: Vec::new(),
    }
}

fn advertisement(network: &NetworkName, selector: NetworkSelector) -> RouteAdvertisements {
    RouteAdvertisements {
        name: advertisement_name(network),
        generation: 0,
        created: 0,
        target_vrf: TargetVrf::Default,
        networks: vec![selector],
        node_selector: LabelSelector::default(),
        frr_selector: LabelSelector::label(FABRIC_LABEL.0, FABRIC_LABEL.1),
        pod_network: true,
        egress_ip: false,
    }
}

#[cfg(test)]
mod tests;
