//! What the loops reconcile, and the queues that sources and loops enqueue to.
//! In and out: keys. Invariant: whoever enqueues knows keys, never a loop.
//! Not here: state.

use model::NetworkName;
use reconcile::WorkQueue;

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BridgeKey {
    /// The flows of the external bridge.
    Flows,
}

/// What can be looked at; topology first, because imports hang on its router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NorthKey {
    /// Routers, switches, ports, SNAT.
    Topology,
    /// The management port, down to the kernel's addresses, rules and routes.
    Port,
}

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiKey {
    /// Annotations of the own Node.
    Annotations,
    /// The NodeRoutes object.
    Report,
}

/// The queues of the four loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues {
    pub(crate) bridge: WorkQueue<BridgeKey>,
    pub(crate) north: WorkQueue<NorthKey>,
    pub(crate) import: WorkQueue<NetworkName>,
    pub(crate) api: WorkQueue<ApiKey>,
}
