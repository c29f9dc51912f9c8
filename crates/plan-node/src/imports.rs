//! Which learned routes of the kernel become rows on the gateway router.
//! In: best routes of the network's table, the gateway's link, the network, and prefixes that are taken. Out: rows wanted,
//! and what was left out and why. Invariant: nothing is imported that would take local pods, the join subnet or another
//! writer's row away; no next hop is an address of our own.
//! Not here: reading routes (`netlink`, `rib`), limits (`budget`), holding.
//!
//! Source: OVN-Kubernetes `go-controller/pkg/ovn/routeimport/route_import.go`, and beyond it: only paths over the gateway
//! bridge, RFC 8950 next hops counted, other writers' rows respected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::names::{NetworkName, NodeName, RouterName};
use model::nb::{self, Columns, ImportTarget, ImportedRoute, Rows, Table, Value};
use model::route::{KernelRoute, Leg, RouteKind};

use crate::snapshot::NetworkView;
use crate::subnets::Subnets;

/// Skipped: not a unicast route.
pub const NOT_UNICAST: &str = "not_unicast";
/// Skipped: a path has labels or goes inside another packet (MPLS, SRv6), which a row cannot say.
pub const ENCAPSULATED: &str = "encapsulated";
/// Skipped: a default route, and `[gateway] bgp-default = ignore`.
pub const DEFAULT_ROUTE: &str = "default_route";
/// Skipped: a subnet of the network itself, which has an overlay for it.
pub const OVERLAY_SUBNET: &str = "overlay_subnet";
/// Skipped: equal to or inside a subnet of this node's pods.
pub const OWN_SUBNET: &str = "own_subnet";
/// Skipped: equal to or inside a subnet of another network.
pub const OTHER_NETWORK: &str = "other_network";
/// Skipped: equal to or inside the join subnet.
pub const JOIN_SUBNET: &str = "join_subnet";
/// Skipped: the gateway router has a row for the prefix that is not an imported one of ours and does not give way to one.
pub const PREFIX_TAKEN: &str = "prefix_taken";
/// Skipped path: over a link that is not the gateway bridge.
pub const OTHER_LINK: &str = "other_link";
/// Skipped path: without a gateway.
pub const NO_GATEWAY: &str = "no_gateway";
/// Skipped path: prefix and next hop of different families (RFC 8950).
pub const FAMILY_MISMATCH: &str = "family_mismatch";
/// Skipped path: the next hop is an address of this node.
pub const SELF_NEXT_HOP: &str = "self_next_hop";

/// How many prefixes are named per reason.
pub(crate) const NAMED: usize = 5;

/// What happens to a learned default route. Source: `[gateway] bgp-default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BgpDefault {
    /// It is left out; the gateway's own next hops stay.
    Ignore,
    /// It is imported in the place of the configured default route ([`fallbacks`]).
    Replace,
}

/// What an import is decided by, beside the routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportWorld {
    /// Interface index of the gateway bridge; `None` while there is none: nothing is imported.
    pub gateway_link: Option<u32>,
    /// All subnets of the network.
    pub cluster_subnets: Vec<Prefix>,
    /// The node's own subnets of the network.
    pub host_subnets: Vec<Prefix>,
    /// Subnets of the join switch.
    pub join_subnets: Vec<Prefix>,
    /// Subnets of other networks, on whatever node: their pods are not to be reached from this one.
    pub other_networks: Subnets<()>,
    /// Addresses of this node, never a next hop.
    pub own_addresses: BTreeSet<IpAddr>,
    /// False: the network has an overlay for its own subnets.
    pub no_overlay: bool,
    /// Prefixes of the gateway router's other rows: foreign ones, and those of our topology that do not give way.
    pub taken: BTreeSet<Prefix>,
    /// Rows of our topology that give way to an imported route of the same prefix ([`fallbacks`]).
    pub fallbacks: BTreeMap<Prefix, Vec<Columns>>,
    /// False: there never was a view to make `fallbacks` from. Then imported rows of default routes and of the network's
    /// subnets stay although the kernel has lost them: nobody knows what comes in their place.
    pub fallbacks_known: bool,
    /// What to do with a learned default route.
    pub bgp_default: BgpDefault,
}

impl ImportWorld {
    /// The world of a no-overlay network.
    #[must_use]
    pub fn of(
        view: &NetworkView,
        gateway_link: Option<u32>,
        taken: BTreeSet<Prefix>,
        bgp_default: BgpDefault,
    ) -> Self {
        let shared = view.gateway.addresses.iter().map(|address| address.ip);
        Self {
            gateway_link,
            cluster_subnets: view.cluster_subnets.iter().map(|s| s.cidr).collect(),
            host_subnets: view.host_subnets.clone(),
            join_subnets: view.join_subnets.clone(),
            other_networks: Subnets::default(),
            own_addresses: view.host_addresses.iter().copied().chain(shared).collect(),
            no_overlay: true,
            taken,
            fallbacks: fallbacks(view, bgp_default),
            fallbacks_known: true,
            bgp_default,
        }
    }
}

/// Rows of the topology that give way to an imported route of the same prefix, by prefix: those that drop what has no
/// route, and the configured default route where a learned one may replace it. Both at once would be equal paths.
#[must_use]
pub fn fallbacks(view: &NetworkView, default: BgpDefault) -> BTreeMap<Prefix, Vec<Columns>> {
    let mut found: BTreeMap<Prefix, Vec<Columns>> = BTreeMap::new();
    for (prefix, columns) in gateway_routes(&crate::topology::plan(view), &view.gateway_router()) {
        let discards = columns.get("nexthop") == Some(&Value::Text(nb::DISCARD.to_owned()));
        if discards || (prefix.is_default() && default == BgpDefault::Replace) {
            found.entry(prefix).or_default().push(columns.clone());
        }
    }
    found
}

/// The rows of a topology without those that give way to an imported route; `imported` are the prefixes of imported routes
/// that stand on the gateway router.
#[must_use]
pub fn without_fallbacks(
    mut rows: Rows,
    view: &NetworkView,
    default: BgpDefault,
    imported: &BTreeSet<Prefix>,
) -> Rows {
    let fallbacks = fallbacks(view, default);
    let router = view.gateway_router();
    let doomed: Vec<&Columns> = fallbacks
        .iter()
        .filter(|(prefix, _)| imported.contains(prefix))
        .flat_map(|(_, rows)| rows)
        .collect();
    rows.retain(|key, columns| {
        key.table != Table::StaticRoute
            || key.parent != router.as_str()
            || !doomed.contains(&&*columns)
    });
    rows
}

/// What was left out for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many destinations; one of several paths left out counts too.
    pub count: usize,
    /// The first of them in the order of prefixes, at most five.
    pub first: Vec<Prefix>,
}

/// What the gateway router should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportPlan {
    /// The rows, one per prefix and next hop.
    pub desired: BTreeSet<ImportedRoute>,
    /// By reason: one of the constants of this module.
    pub skipped: BTreeMap<&'static str, Skipped>,
}

impl ImportPlan {
    pub(crate) fn skip(&mut self, reason: &'static str, prefix: Prefix) {
        let skipped = self.skipped.entry(reason).or_default();
        skipped.count += 1;
        if skipped.first.len() < NAMED {
            skipped.first.push(prefix);
        }
    }
}

/// What becomes of one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Next hops to import, sorted, each once.
    pub hops: Vec<IpAddr>,
    /// Why the destination or some of its paths are left out: constants of this module, each once.
    pub reasons: Vec<&'static str>,
}

/// Decides over the best route of a destination in the network's table (`rib::Rib::best_of`).
#[must_use]
pub fn decide(route: &KernelRoute, world: &ImportWorld) -> Decision {
    let mut decision = Decision::default();
    if let Some(reason) = refuse(route, world) {
        decision.reasons.push(reason);
        return decision;
    }
    for leg in &route.legs {
        match next_hop(route.prefix, leg, world) {
            Ok(hop) => decision.hops.push(hop),
            Err(reason) => decision.reasons.push(reason),
        }
    }
    decision.hops.sort_unstable();
    decision.hops.dedup();
    decision.reasons.sort_unstable();
    decision.reasons.dedup();
    decision
}

/// Decides over the best routes of the network's table (`rib::Rib::view`), in the order of prefixes: all at once what
/// `importing::Importer` does step by step.
#[must_use]
pub fn plan(routes: impl IntoIterator<Item = KernelRoute>, world: &ImportWorld) -> ImportPlan {
    let mut plan = ImportPlan::default();
    for route in routes {
        let prefix = route.prefix;
        let decision = decide(&route, world);
        let row = |nexthop| ImportedRoute { prefix, nexthop };
        plan.desired.extend(decision.hops.into_iter().map(row));
        for reason in decision.reasons {
            plan.skip(reason, prefix);
        }
    }
    plan
}

/// Why a destination is left out whatever its paths are.
fn refuse(route: &KernelRoute, world: &ImportWorld) -> Option<&'static str> {
    let prefix = route.prefix;
    let inside = |subnets: &[Prefix]| subnets.iter().any(|subnet| subnet.contains(&prefix));
    // The network's own destinations come first: no other network can hide them.
    let foreign = || world.other_networks.longest_match(&prefix).is_some();
    if route.kind == RouteKind::Encapsulated {
        Some(ENCAPSULATED)
    } else if route.kind != RouteKind::Unicast {
        Some(NOT_UNICAST)
    } else if prefix.is_default() && world.bgp_default == BgpDefault::Ignore {
        Some(DEFAULT_ROUTE)
    } else if inside(&world.host_subnets) {
        Some(OWN_SUBNET)
    } else if !world.no_overlay && inside(&world.cluster_subnets) {
        Some(OVERLAY_SUBNET)
    } else if !inside(&world.cluster_subnets) && foreign() {
        Some(OTHER_NETWORK)
    } else if inside(&world.join_subnets) {
        Some(JOIN_SUBNET)
    } else if world.taken.contains(&prefix) {
        Some(PREFIX_TAKEN)
    } else {
        None
    }
}

/// The next hop of a path, or why it cannot be used.
fn next_hop(prefix: Prefix, leg: &Leg, world: &ImportWorld) -> Result<IpAddr, &'static str> {
    if world.gateway_link != Some(leg.oif) {
        return Err(OTHER_LINK);
    }
    let gateway = leg.gateway.ok_or(NO_GATEWAY)?;
    if Family::of(gateway) != prefix.family() {
        return Err(FAMILY_MISMATCH);
    }
    if world.own_addresses.contains(&gateway) {
        return Err(SELF_NEXT_HOP);
    }
    Ok(gateway)
}

/// The rows' owner, router and output port.
#[must_use]
pub fn target(network: &NetworkName, node: &NodeName) -> ImportTarget {
    let router = network.gateway_router(node);
    ImportTarget {
        network: network.clone(),
        output_port: nb::rtoe(&router),
        router,
    }
}

/// Prefixes that a plan's own rows take on a router: local pods, default, discard routes.
#[must_use]
pub fn topology_prefixes(rows: &Rows, router: &RouterName) -> BTreeSet<Prefix> {
    let routes = gateway_routes(rows, router);
    routes.map(|(prefix, _)| prefix).collect()
}

/// A plan's routes of a router, by destination.
fn gateway_routes<'a>(
    rows: &'a Rows,
    router: &RouterName,
) -> impl Iterator<Item = (Prefix, &'a Columns)> {
    let routes = rows
        .iter()
        .filter(move |(key, _)| key.table == Table::StaticRoute && key.parent == router.as_str());
    routes.filter_map(|(_, columns)| {
        let prefix = match columns.get("ip_prefix") {
            Some(Value::Text(text)) => text
                .parse::<Prefix>()
                .ok()
                .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host)),
            Some(Value::Number(_) | Value::Set(_) | Value::Entries(_) | Value::Ref(_)) | None => {
                None
            }
        };
        Some((prefix?, columns))
    })
}

#[cfg(test)]
mod tests;
