//! Which learned routes of the kernel become rows on the gateway router: one destination at a time.
//! In: best routes of the network's table, the gateway's link, the network, and prefixes that are taken. Out: rows wanted,
//! and what was left out and why. Invariant: nothing is imported that would take local pods, the join subnet or another
//! writer's row away; no next hop is an address of our own.
//! Not here: reading routes (`netlink`, `rib`), limits (`budget`), holding.
//!
//! Source: OVN-Kubernetes `go-controller/pkg/ovn/routeimport/route_import.go`, and beyond it: only paths over the gateway
//! bridge, RFC 8950 next hops counted, other writers' rows respected.

use std::net::IpAddr;

use model::Scope;
use model::address::{Family, Prefix};
use model::gateway::BgpDefault;
use model::route::{KernelRoute, RouteKind, RoutePath};

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

/// What was left out for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many destinations; one of several paths left out counts too.
    pub count: usize,
    /// The first of them in the order of prefixes, at most five.
    pub first: Vec<Prefix>,
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
pub fn decide(route: &KernelRoute, scope: &Scope) -> Decision {
    let mut decision = Decision::default();
    if let Some(reason) = refuse(route, scope) {
        decision.reasons.push(reason);
        return decision;
    }
    for path in &route.paths {
        match next_hop(route.prefix, path, scope) {
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

/// Why a destination is left out whatever its paths are.
fn refuse(route: &KernelRoute, scope: &Scope) -> Option<&'static str> {
    let prefix = route.prefix;
    let inside = |subnets: &[Prefix]| subnets.iter().any(|subnet| subnet.contains(&prefix));
    // The network's own destinations come first: no other network can hide them.
    let foreign = || scope.other_networks.longest_match(&prefix).is_some();
    if route.kind == RouteKind::Encapsulated {
        Some(ENCAPSULATED)
    } else if route.kind != RouteKind::Unicast {
        Some(NOT_UNICAST)
    } else if prefix.is_default() && scope.bgp_default == BgpDefault::Ignore {
        Some(DEFAULT_ROUTE)
    } else if inside(&scope.host_subnets) {
        Some(OWN_SUBNET)
    } else if !scope.no_overlay && inside(&scope.cluster_subnets) {
        Some(OVERLAY_SUBNET)
    } else if !inside(&scope.cluster_subnets) && foreign() {
        Some(OTHER_NETWORK)
    } else if inside(&scope.join_subnets) {
        Some(JOIN_SUBNET)
    } else if scope.taken.contains(&prefix) {
        Some(PREFIX_TAKEN)
    } else {
        None
    }
}

/// The next hop of a path, or why it cannot be used.
fn next_hop(prefix: Prefix, path: &RoutePath, scope: &Scope) -> Result<IpAddr, &'static str> {
    if scope.gateway_link != Some(path.oif) {
        return Err(OTHER_LINK);
    }
    let gateway = path.gateway.ok_or(NO_GATEWAY)?;
    if Family::of(gateway) != prefix.family() {
        return Err(FAMILY_MISMATCH);
    }
    if scope.own_addresses.contains(&gateway) {
        return Err(SELF_NEXT_HOP);
    }
    Ok(gateway)
}

#[cfg(test)]
pub(crate) mod tests;
