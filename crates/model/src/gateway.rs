//! How a node's networks reach the physical one.
//! In: settings, parsed. Out: values that planners match on.
//! Invariant: defined here and nowhere else. Not here: addresses of a node's gateway (`plan_node::GatewayView`).

/// Who does the routing of pods' outgoing traffic. Source: `[gateway] mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMode {
    /// `shared` (default): OVN's gateway router, over the external bridge.
    Shared,
    /// `local`: the host's kernel.
    Local,
}

/// What a learned default route does. Source: `[gateway] bgp-default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BgpDefault {
    /// It is not imported (default); the gateway's own next hops stay.
    Ignore,
    /// It takes the place of the configured one while it is there.
    Replace,
}
