//! What a network is, whoever declared it: the settings (the default network) or a ClusterUserDefinedNetwork.
//! In: settings and objects, parsed. Out: values that both daemons' planners speak of.
//! Invariant: transport and routing of a network are defined here and nowhere else.
//! Not here: a node's share of a network (`plan_node::NetworkView`), names derived from it (`names`).

/// How pods of different nodes reach each other. Source: `[default] transport`, `spec.network.transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By the Geneve overlay.
    Geneve,
    /// By the physical network's own routes.
    NoOverlay(NoOverlay),
}

impl Transport {
    /// How packets are routed where there is no overlay.
    #[must_use]
    pub fn no_overlay(self) -> Option<NoOverlay> {
        match self {
            Self::Geneve => None,
            Self::NoOverlay(options) => Some(options),
        }
    }
}

/// A network without an overlay. Source: `[no-overlay]`, `spec.network.noOverlay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoOverlay {
    /// True: traffic that leaves the network bears the node's address. Source: `outbound-snat`.
    pub outbound_snat: bool,
    /// Source: `routing`.
    pub routing: Routing,
    /// Source: `missing-route`.
    pub missing_route: MissingRoute,
}

/// Who routes. Source: `[no-overlay] routing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// `managed`: the internal fabric of `[bgp-managed]`.
    Managed,
    /// `unmanaged`: the admin's own RouteAdvertisements.
    Unmanaged,
}

/// What happens to a packet for a pod subnet without a route. Source: `[no-overlay] missing-route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRoute {
    /// The gateway router drops it (default when managed).
    Discard,
    /// It takes the default route, with the pod's own address (default when unmanaged).
    Forward,
}
