//! What is true of the networks' transports: of the default one as an event on its NetworkAttachmentDefinition, of those of
//! users as their condition `TransportAccepted`.
//! In: the RAs and which of them are accepted. Out: an event, or none while nothing changed; conditions.
//! Invariant: an event is given when the state changes, never twice in a row; the first success gives none. The same world
//! gives the same words.
//! Not here: publishing.

use std::collections::BTreeMap;

use model::intent::{Condition, Event};
use model::network::Routing;
use model::problem::Problem;
use model::user_network::{ClusterUserDefinedNetwork, UserTransport};

use crate::advertise::Plan;
use crate::world::World;

/// The state of the default network's transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultNetwork {
    /// It is an overlay: nothing to say.
    Overlay,
    /// At least one accepted RA advertises it.
    Ready,
    /// No RA advertises it.
    NoRouteAdvertisements,
    /// Some do, none is accepted: their names, sorted.
    NotAccepted(Vec<String>),
    /// No RA that can be read advertises it, and these cannot be read: name and why.
    Unreadable(Vec<(String, String)>),
}

/// That state, by the RAs in the world and their acceptance in this very pass.
#[must_use]
pub fn default_network(world: &World, plans: &BTreeMap<String, Plan>) -> DefaultNetwork {
    let network = world.default_network();
    if network.is_none_or(|network| network.transport.no_overlay().is_none()) {
        return DefaultNetwork::Overlay;
    }
    let names = world.covering_default_network();
    let unreadable = world.ras.iter();
    let unreadable = unreadable.filter_map(|(name, ra)| Some((name.clone(), ra.clone().err()?)));
    let unreadable: Vec<(String, String)> = unreadable.collect();
    if names.is_empty() && !unreadable.is_empty() {
        DefaultNetwork::Unreadable(unreadable)
    } else if names.is_empty() {
        DefaultNetwork::NoRouteAdvertisements
    } else if names
        .iter()
        .any(|name| plans.get(name).is_some_and(Plan::accepted))
    {
        DefaultNetwork::Ready
    } else {
        DefaultNetwork::NotAccepted(names)
    }
}

/// The event for a change of the state.
#[must_use]
pub fn event(before: Option<&DefaultNetwork>, now: &DefaultNetwork) -> Option<Event> {
    if before == Some(now) {
        return None;
    }
    match now {
        DefaultNetwork::Overlay => None,
        DefaultNetwork::Ready => before.map(|_| Event {
            warning: false,
            reason: "NoOverlayConfigurationReady",
            message: "No-overlay transport is properly configured with RouteAdvertisements CR advertising the default network pod networks with status Accepted=True".to_owned(),
        }),
        DefaultNetwork::NoRouteAdvertisements => Some(Event {
            warning: true,
            reason: "NoRouteAdvertisements",
            message: "No RouteAdvertisements CR is advertising the default network. RouteAdvertisements configuration is required when transport=no-overlay.".to_owned(),
        }),
        DefaultNetwork::Unreadable(list) => {
            let each = list.iter().map(|(name, why)| format!("RouteAdvertisements {name}: {why}"));
            let each: Vec<String> = each.collect();
            Some(Event {
                warning: true,
                reason: "NoOverlayConfigurationError",
                message: format!(
                    "No-overlay transport configuration error: {}",
                    each.join("; ")
                ),
            })
        }
        DefaultNetwork::NotAccepted(names) => Some(Event {
            warning: true,
            reason: "RouteAdvertisementsNotAccepted",
            message: format!(
                "RouteAdvertisements CR(s) {} exist for the default network but none have status Accepted=True. When transport=no-overlay, at least one RouteAdvertisements CR must be accepted to advertise pod networks.",
                names.join(", ")
            ),
        }),
    }
}

/// `TransportAccepted` of a ClusterUserDefinedNetwork; `None` where it is left to others.
#[must_use]
pub fn condition(
    world: &World,
    cudn: &ClusterUserDefinedNetwork,
    plans: &BTreeMap<String, Plan>,
) -> Option<Condition> {
    let routing = match &cudn.network {
        Ok(network) => match network.transport {
            UserTransport::Unset | UserTransport::Geneve => None,
            UserTransport::NoOverlay { routing, .. } => Some(routing),
        },
        // What runs goes on.
        Err(_) => {
            let running = world.networks.get(&cudn.network_name())?;
            let options = running.transport.no_overlay();
            options.map(|options| options.routing)
        }
    };
    let Some(routing) = routing else {
        return Some(of(
            true,
            "GeneveTransportAccepted",
            "Geneve transport has been configured.",
        ));
    };
    if !world.features.route_advertisements {
        return Some(of(
            false,
            "RouteAdvertisementsNotEnabled",
            "RouteAdvertisements feature is not enabled but required for NoOverlay transport.",
        ));
    }
    if routing == Routing::Managed && world.fabric.is_none() {
        return Some(of(
            false,
            "ManagedTopologyMissing",
            "spec.network.noOverlay.routing is Managed, but no topology of the managed BGP fabric is configured ([bgp-managed] topology; allowed: full-mesh, route-reflector, auto).",
        ));
    }
    Some(routed(world, cudn, plans))
}

/// The type of the condition beside OVN-Kubernetes, which has `TransportAccepted` for itself.
pub const BESIDE: &str = "noverlay.io/TransportAccepted";

/// That condition, of a network whose annotation asks for something; `None` where it has none. `advertised`: OVN-Kubernetes advertises
/// networks itself ([`crate::others::advertises`]), and nothing is announced here.
#[must_use]
pub fn beside(
    world: &World,
    cudn: &ClusterUserDefinedNetwork,
    plans: &BTreeMap<String, Plan>,
    advertised: Option<&Problem>,
) -> Option<Condition> {
    let asked = cudn.annotated.as_ref()?;
    let said = match (asked, advertised) {
        (Ok(_), Some(problem)) => of(false, problem.reason, &problem.to_string()),
        (Err(why), _) => of(
            false,
            "NoOverlayAnnotationInvalid",
            &format!("{why}; the network goes by the tunnels"),
        ),
        (Ok(_), None) => condition(world, cudn, plans)?,
    };
    Some(Condition {
        kind: BESIDE,
        ..said
    })
}

/// Whether an accepted RA serves a network without overlay.
fn routed(
    world: &World,
    cudn: &ClusterUserDefinedNetwork,
    plans: &BTreeMap<String, Plan>,
) -> Condition {
    let readable = world.ras.iter();
    let readable = readable.filter_map(|(name, ra)| Some((name, ra.as_ref().ok()?)));
    let covering = readable.filter(|(_, ra)| ra.pod_network && ra.selects(Some(&cudn.labels)));
    let names: Vec<&str> = covering.map(|(name, _)| name.as_str()).collect();
    let unreadable = world.ras.iter();
    let unreadable = unreadable.filter_map(|(name, ra)| Some((name, ra.as_ref().err()?)));
    let unreadable: Vec<String> = unreadable
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    if names.is_empty() && !unreadable.is_empty() {
        let text = format!(
            "No RouteAdvertisements CR that can be read is advertising the pod networks; what is advertised stays. Those that cannot be read: {}",
            unreadable.join("; ")
        );
        return of(false, "NoOverlayRouteAdvertisementsNotAccepted", &text);
    }
    if names.is_empty() {
        return of(
            false,
            "NoOverlayRouteAdvertisementsIsMissing",
            "No RouteAdvertisements CR is advertising the pod networks.",
        );
    }
    let is_accepted = |name: &&str| plans.get(*name).is_some_and(Plan::accepted);
    let accepted: Vec<&str> = names.iter().copied().filter(is_accepted).collect();
    if accepted.is_empty() {
        let text = format!(
            "RouteAdvertisements CR {} advertises the pod subnets, but its status is not accepted.",
            names.join(", ")
        );
        return of(false, "NoOverlayRouteAdvertisementsNotAccepted", &text);
    }
    let network = cudn.network_name();
    let serves = |name: &&str| {
        let served = plans.get(*name).and_then(|plan| plan.serves.as_ref());
        served.is_some_and(|served| served.contains(&network))
    };
    if !accepted.iter().any(serves) {
        let text = format!(
            "RouteAdvertisements CR {} is accepted, but leaves network {network} out; its condition Complete says why.",
            accepted.join(", ")
        );
        return of(false, "NoOverlayRouteAdvertisementsLeavesOut", &text);
    }
    of(
        true,
        "NoOverlayTransportAccepted",
        "Transport has been configured as 'no-overlay'.",
    )
}

fn of(status: bool, reason: &str, message: &str) -> Condition {
    Condition {
        kind: "TransportAccepted",
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
    .fitted()
}

#[cfg(test)]
mod tests;
