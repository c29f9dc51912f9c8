//! What the loops reconcile, and the queues that sources and loops enqueue to.
//! In and out: keys. Invariant: whoever enqueues knows keys, never a loop.
//! Not here: state.

use model::NetworkName;
use model::nb::Owner;
use reconcile::WorkQueue;

/// What the bridge loop reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BridgeKey {
    /// The flows of the external bridge.
    Flows,
}

/// What the port loop reconciles; ports first, because the kernel's entries hang on their devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortKey {
    /// A network's management port on the integration bridge.
    Port(NetworkName),
    /// All networks' addresses, routes and rules.
    Kernel,
}

/// What the filter loop reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FilterKey {
    /// Our sets and chains of the packet filter.
    Ruleset,
}

/// What the tunnels' loop reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SouthKey {
    /// Chassis of other nodes in OVN_Southbound.
    Chassis,
}

/// What the API loop reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiKey {
    /// Annotations of the own Node.
    Annotations,
    /// The NodeRoutes object.
    Report,
}

/// The queues of the loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues {
    pub(crate) bridge: WorkQueue<BridgeKey>,
    /// Rows of OVN_Northbound, by owner.
    pub(crate) north: WorkQueue<Owner>,
    pub(crate) south: WorkQueue<SouthKey>,
    pub(crate) port: WorkQueue<PortKey>,
    pub(crate) filter: WorkQueue<FilterKey>,
    pub(crate) import: WorkQueue<NetworkName>,
    pub(crate) api: WorkQueue<ApiKey>,
}
