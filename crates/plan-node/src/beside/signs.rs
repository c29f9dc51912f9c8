//! Whether a network may be led past the tunnels of OVN-Kubernetes.
//! In: what the node shows of OVN-Kubernetes and of the host. Out: what forbids it, if anything; the first of several.
//! Invariant: where OVN-Kubernetes does the same itself, or the host would lose pods' packets, nothing is begun, and what was begun is
//! undone in order. Not here: reading (`ovn`, `host`), the order (`steps`).

use model::address::{Family, Prefix};
use model::problem::Problem;

use crate::snapshot::NetworkView;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Its VRF device is there; the default network needs none.
    pub vrf: bool,
    /// Its cluster router is in OVN_Northbound.
    pub router: bool,
    /// The management port's Logical_Switch_Port is there.
    pub port: bool,
    /// Routes of the cluster router lead to other nodes over tunnels.
    pub tunnels: bool,
    /// OVN-Kubernetes made a NAT row for the network as one without an overlay.
    pub no_overlay_snat: bool,
    /// Its gateway router leads to the node's subnet alone, as OVN-Kubernetes makes it for a network without an overlay.
    pub own_subnet_route: bool,
    /// Rows that noverlay built itself stand there.
    pub built: bool,
    /// Sysctls that must be 1 for pods' packets to be forwarded and are not.
    pub not_forwarding: Vec<String>,
    /// A packet's source is to be reachable over the bridge that it came in by (`rp_filter` 1 of the bridge or of all).
    pub is_strict: bool,
}

/// Reason of a problem: OVN-Kubernetes leads the network past the tunnels itself, by what it writes where it does.
pub const OVN_KUBERNETES_ROUTES: &str = "OvnKubernetesRoutes";
/// Reason of a problem: nothing leads to other nodes over tunnels, as where OVN-Kubernetes leads the network past them itself, or where
/// the other nodes are only coming.
pub const NO_ROUTES_OVER_TUNNELS: &str = "NoRoutesOverTunnels";

/// What forbids it; `others`: there are other nodes with subnets of the network.
#[must_use]
pub fn forbids(view: NetworkView<'_>, found: &Found, others: bool) -> Option<Problem> {
    let name = view.name();
    let (router, node) = (view.cluster_router(), &view.node.name);
    let problem =
        |reason, text: String| Some(Problem::new(format!("network {name}"), reason, text));
    if found.built {
        let text = "OVN_Northbound holds routers or switches that noverlay built ([ovn] topology = build); adopt is for those of OVN-Kubernetes, on a node that was never built by noverlay";
        return problem("BuiltByNoverlay", text.to_owned());
    }
    if !found.router || !found.port {
        let missing = if found.router {
            format!("Logical_Switch_Port {}", name.management_lsp(node))
        } else {
            format!("Logical_Router {router}")
        };
        let text = format!(
            "OVN_Northbound has no {missing}: OVN-Kubernetes has not made it, or [ovnnorth] address is another node's database"
        );
        return problem("NotThere", text);
    }
    if found.no_overlay_snat || found.own_subnet_route {
        let by = if found.no_overlay_snat {
            "a NAT row of a network without an overlay".to_owned()
        } else {
            let gateway = view.gateway_router();
            format!(
                "{gateway} has a route to the node's subnet instead of one to the whole network"
            )
        };
        let text = format!(
            "OVN-Kubernetes runs the network without an overlay itself: {by}; one of both has to leave it to the other"
        );
        return problem(OVN_KUBERNETES_ROUTES, text);
    }
    if others && !found.tunnels {
        let text = "no route of the cluster router leads to another node over tunnels (external_ids:ic-node): OVN-Kubernetes runs the network without an overlay itself, and one of both has to leave it to the other; or no other node is up";
        return problem(NO_ROUTES_OVER_TUNNELS, text.to_owned());
    }
    if !found.vrf {
        let device = name.vrf_device(view.share.network.id).unwrap_or_default();
        let text = format!(
            "there is no VRF device {device}: OVN-Kubernetes has not made it, or the kernel has no VRFs"
        );
        return problem("NoVrfDevice", text);
    }
    let sysctls = found.not_forwarding.join(", ");
    if !sysctls.is_empty() {
        let text = format!("the host does not forward pods' packets: {sysctls} must be 1");
        return problem("HostDoesNotForward", text);
    }
    let mut families = view.share.host_subnets.iter().map(Prefix::family);
    if found.is_strict && families.any(|family| family == Family::V4) {
        let bridge = &view.node.gateway.bridge;
        let text = format!(
            "the host drops what a peer sends while it has no route to the peer's pods: net.ipv4.conf.{bridge}.rp_filter or that of all is 1; allowed: 0 for both, or 2 for the bridge"
        );
        return problem("StrictReversePathFilter", text);
    }
    None
}

/// The sysctls that have to be 1, as files below `/proc/sys`: of each family that the node has pods of. IPv6 has one for all
/// devices.
#[must_use]
pub fn sysctls(view: NetworkView<'_>) -> Vec<String> {
    let device = model::names::management_device(view.share.network.id);
    let bridge = &view.node.gateway.bridge;
    let vrf = view.share.vrf.as_ref().map(|vrf| vrf.device.as_str());
    let families = view.share.host_subnets.iter().map(Prefix::family);
    let mut all: Vec<String> = Vec::new();
    for family in families.collect::<std::collections::BTreeSet<Family>>() {
        match family {
            Family::V4 => {
                let devices = [bridge.as_str(), device.as_str()].into_iter().chain(vrf);
                all.extend(devices.map(|device| format!("net/ipv4/conf/{device}/forwarding")));
            }
            Family::V6 => all.push("net/ipv6/conf/all/forwarding".to_owned()),
        }
    }
    all
}

/// Whether other nodes have subnets of the network.
#[must_use]
pub fn has_others(view: NetworkView<'_>, claims: Option<&crate::claims::Claims>) -> bool {
    let mut pairs = claims.into_iter().flat_map(|claims| claims.owners.pairs());
    pairs.any(|(_, node)| *node != view.node.name)
}

/// The node's subnets of the network by which its gateway router tells whether the network has an overlay: not one that is all of it.
#[must_use]
pub fn telling(view: NetworkView<'_>) -> Vec<Prefix> {
    let own = view.share.host_subnets.iter().copied();
    own.filter(|own| !view.share.network.prefixes().any(|all| all == *own))
        .collect()
}
