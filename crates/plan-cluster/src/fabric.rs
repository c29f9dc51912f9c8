//! The managed BGP fabric: a base FRRConfiguration, and a RouteAdvertisements for each managed network.
//! In: the world. Out: the objects, or none where nothing is managed; problems of nodes that are left out.
//! Invariant: the base object is a template that no node loads; what a node loads never names itself as neighbor.
//! Not here: what each member loads (`advertise` puts it together from `members`).

pub mod as_number;
pub mod awaited;
pub(crate) mod layer2;
pub mod members;
pub mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::address::Family;
use model::frr::{
    BfdProfile, FrrConfiguration, Neighbor, Peer, PrefixRange, Receive, RemoteAs, Router, Session,
};
use model::hash;
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::network::Routing;
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::user_network::{ClusterUserDefinedNetwork, UserTransport};
use model::{Network, NetworkName, NodeName, ObjectKey, Problem};

use crate::advertise;
use crate::attachments::NAME_LABEL;
use crate::ranges::Ranges;
use crate::world::{Exclusions, FabricSettings, World};
use crate::{FABRIC_LABEL, MANAGED_BY};
use roles::Roles;

/// Name of the BFD profile of the resilient fabric.
pub const BFD_PROFILE: &str = "noverlay-resilient";

/// Reason of a problem with a node that takes no part in the fabric.
pub const NODE_LEFT_OUT: &str = "NodeLeftOut";

/// Milliseconds between two BFD packets. Three lost ones end a session: a dead way is noticed in 0.5 to 0.75 s. Faster ones
/// cost more (each peer a packet each way) and take the pauses of a busy host for a failure: with 200 ms some sessions of
/// 24 nodes on two cores flapped under heavy load.
const BFD_INTERVAL: u32 = 250;

/// What the fabric needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The base FRRConfiguration.
    pub base: Option<Arc<FrrConfiguration>>,
    /// The RouteAdvertisements of the managed networks, by their names.
    pub advertisements: BTreeMap<String, RouteAdvertisements>,
    /// Managed ClusterUserDefinedNetworks, each of which has to bear [`NAME_LABEL`] with its own name.
    pub labelled: BTreeSet<String>,
    /// The settings that all of it is made with: the AS number is the one that is in force.
    pub settings: Option<FabricSettings>,
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

/// Key of the base object.
#[must_use]
pub fn base_key(settings: &FabricSettings) -> ObjectKey {
    ObjectKey::new(&settings.namespace, base_name())
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
    world.cudns.values().filter(|cudn| {
        let running = world.networks.get(&cudn.network_name());
        let managed = match &cudn.network {
            Ok(network) => matches!(
                network.transport,
                UserTransport::NoOverlay {
                    routing: Routing::Managed,
                    ..
                }
            ),
            // What runs goes on.
            Err(_) => running.is_some_and(is_managed),
        };
        managed && (!cudn.deleting || running.is_some())
    })
}

/// Managed networks that exist.
pub(crate) fn managed_networks(world: &World) -> Vec<&Network> {
    let networks = world.networks.values();
    networks.filter(|network| is_managed(network)).collect()
}

fn is_managed(network: &Network) -> bool {
    let options = network.transport.no_overlay();
    options.is_some_and(|options| options.routing == Routing::Managed)
}

/// The plan.
#[must_use]
pub fn plan(world: &World) -> Plan {
    let Some(settings) = &world.fabric else {
        return Plan::default();
    };
    let (settings, refused) = as_number::in_force(world, settings);
    let networks = managed_networks(world);
    let labelled: BTreeSet<String> = managed_cudns(world).map(|cudn| cudn.name.clone()).collect();
    let default = networks.iter().filter(|network| network.name.is_default());
    let mut advertisements: Vec<RouteAdvertisements> = default
        .map(|network| advertisement(&network.name, 0, NetworkSelector::DefaultNetwork))
        .collect();
    advertisements.extend(managed_cudns(world).map(|cudn| {
        let selector = LabelSelector::label(NAME_LABEL, &cudn.name);
        let selector = NetworkSelector::ClusterUserDefinedNetworks(selector);
        advertisement(&cudn.network_name(), cudn.created, selector)
    }));
    if advertisements.is_empty() {
        return Plan::default();
    }
    let ranges = Ranges::all(world);
    let excluded = excluded_of_all(world, &networks, &ranges);
    let names = world.nodes.keys();
    let members: BTreeSet<NodeName> = names
        .filter(|name| !excluded.contains_key(*name))
        .cloned()
        .collect();
    let roles = roles::plan(world, &settings, &members, &BTreeSet::new());
    let received = received(managed_networks(world), &ranges);
    let base = base(world, &settings, &members, (&roles, &received));
    let mut problems: Vec<Problem> = excluded
        .into_iter()
        .map(|(node, why)| {
            let text = format!("node {node} is left out of the managed BGP fabric: {why}");
            Problem::new(format!("Node/{node}"), NODE_LEFT_OUT, text)
        })
        .collect();
    problems.extend(single_reflector(&roles, &members));
    problems.extend(refused);
    Plan {
        base: Some(Arc::new(base)),
        settings: Some(settings),
        advertisements: advertisements
            .into_iter()
            .map(|ra| (ra.name.clone(), ra))
            .collect(),
        labelled,
        problems,
    }
}

/// One reflector that everything depends on.
fn single_reflector(roles: &Roles, members: &BTreeSet<NodeName>) -> Option<Problem> {
    let mut reflectors = roles.reflectors.iter();
    let (only, None) = (reflectors.next()?, reflectors.next()) else {
        return None;
    };
    let (key, value) = roles::REQUESTED_LABEL;
    let text = format!(
        "node {only} is the only route reflector of the managed BGP fabric: while it is away, nodes lose the routes to one another; label a second node {key}={value}"
    );
    (members.len() > 1).then(|| Problem::new(format!("Node/{only}"), "SingleRouteReflector", text))
}

/// Nodes that take part in none of the networks, with the reason of the first of them.
fn excluded_of_all(
    world: &World,
    networks: &[&Network],
    ranges: &BTreeMap<&NetworkName, Ranges>,
) -> BTreeMap<NodeName, String> {
    let Exclusions { unfit, by_network } = world.exclusions(ranges);
    let mut all = networks
        .iter()
        .filter_map(|network| by_network.get(&network.name));
    let Some(mut out) = all.next().cloned() else {
        return unfit;
    };
    for excluded in all {
        out.retain(|node, _| excluded.contains_key(node));
    }
    out
}

/// The world with the fabric's own objects as they should be, whatever stands there now: who plans from it neither
/// waits for the echo of our own write, nor withdraws routes because somebody deleted an object that is about to be back.
#[must_use]
pub fn complete(world: World) -> World {
    let plan = plan(&world);
    completed(world, &plan)
}

/// The same by the plan of this very world, for who has it already.
#[must_use]
pub fn completed(mut world: World, plan: &Plan) -> World {
    if let Some(settings) = &plan.settings {
        world.fabric = Some(settings.clone());
    }
    if let Some(base) = &plan.base {
        world.frr.insert(base.key.clone(), Ok(base.clone()));
    }
    for (name, wanted) in &plan.advertisements {
        let mut wanted = wanted.clone();
        if let Some(Ok(existing)) = world.ras.get(name) {
            wanted.generation = existing.generation;
        }
        world.ras.insert(name.clone(), Ok(wanted));
    }
    for name in &plan.labelled {
        if let Some(cudn) = world.cudns.get_mut(name) {
            cudn.labels.insert(NAME_LABEL.to_owned(), name.clone());
        }
    }
    world
}

/// What a node takes of these networks, by the families that they have.
pub(crate) fn received<'a>(
    networks: impl IntoIterator<Item = &'a Network>,
    ranges: &BTreeMap<&NetworkName, Ranges>,
) -> members::Received {
    let mut out = members::Received::new();
    for ranges in networks
        .into_iter()
        .filter_map(|network| ranges.get(&network.name))
    {
        for family in ranges.families() {
            let of_family = out.entry(family).or_default();
            of_family.extend(ranges.received(Some(family)));
        }
    }
    out
}

/// Whether FRR's running configuration is that of a node that reflects.
#[must_use]
pub fn passes_on(world: &World, running: &str) -> bool {
    let world = complete(world.clone());
    let taken_in = advertise::taken_in(&world);
    let received = received(taken_in, &Ranges::all(&world));
    members::passes_on(running, &received)
}

fn base(
    world: &World,
    settings: &FabricSettings,
    members: &BTreeSet<NodeName>,
    (roles, received): (&Roles, &members::Received),
) -> FrrConfiguration {
    let listed = world
        .nodes
        .values()
        .filter(|node| !members.contains(&node.name) || roles.peers_of_all.contains(&node.name));
    let addresses = listed.flat_map(|node| {
        if members.contains(&node.name) {
            node.internal_ips.clone()
        } else {
            kept_addresses(world, settings, node, members)
        }
    });
    // Once each, and always in the same order.
    let addresses: BTreeSet<IpAddr> = addresses
        .filter(|ip| received.contains_key(&Family::of(*ip)))
        .collect();
    let neighbors = addresses.into_iter().map(|ip| {
        let received = received.get(&Family::of(ip)).cloned().unwrap_or_default();
        neighbor(ip, received, settings)
    });
    FrrConfiguration {
        key: base_key(settings),
        labels: labels(),
        annotations: BTreeMap::new(),
        node_selector: nobody(),
        routers: vec![Router {
            neighbors: neighbors.collect(),
            ..Router::new(settings.asn)
        }],
        bfd_profiles: bfd_profiles(settings),
        raw: None,
    }
}

/// Addresses by which others go on having a node as a neighbor that is left out: those of its peer object, as long as no member
/// has one of them.
pub(crate) fn kept_addresses(
    world: &World,
    settings: &FabricSettings,
    node: &Node,
    members: &BTreeSet<NodeName>,
) -> Vec<IpAddr> {
    let object = world.frr.get(&members::peer_key(settings, &node.name));
    let Some(Ok(object)) = object else {
        return Vec::new();
    };
    let others = members.iter().filter_map(|name| world.nodes.get(name));
    let others: BTreeSet<IpAddr> = others.flat_map(Node::own_addresses).collect();
    let addresses = members::addresses(object);
    if addresses.is_disjoint(&others) {
        addresses.into_iter().collect()
    } else {
        Vec::new()
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
    session
        .password_secret
        .clone_from(&settings.password_secret);
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
        receive: Receive {
            all: false,
            prefixes: received,
        },
        ..Neighbor::new(Peer::Address(ip.to_string()), session)
    }
}

/// It is as old as its network, whenever it was written, and written again.
fn advertisement(
    network: &NetworkName,
    created: i64,
    selector: NetworkSelector,
) -> RouteAdvertisements {
    RouteAdvertisements {
        name: advertisement_name(network),
        generation: 0,
        created,
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
