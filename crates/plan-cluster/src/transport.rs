//! What is true of the default network's transport, as an event on its NetworkAttachmentDefinition.
//! In: the RAs and which of them are accepted. Out: an event, or none while nothing changed.
//! Invariant: an event is given when the state changes, never twice in a row; the first success gives none.
//! Not here: publishing.

use std::collections::BTreeMap;

use model::intent::Event;

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
}

/// That state, by the RAs in the world and their acceptance in this very pass.
#[must_use]
pub fn default_network(world: &World, accepted: &BTreeMap<String, bool>) -> DefaultNetwork {
    let network = world.default_network();
    if network.is_none_or(|network| network.transport.no_overlay().is_none()) {
        return DefaultNetwork::Overlay;
    }
    let names = world.covering_default_network();
    if names.is_empty() {
        DefaultNetwork::NoRouteAdvertisements
    } else if names
        .iter()
        .any(|name| accepted.get(name).copied().unwrap_or(false))
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

#[cfg(test)]
mod tests;
