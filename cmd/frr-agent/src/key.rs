//! What the frr-agent's three loops reconcile, and the queues that sources and loops enqueue to.
//! In and out: keys. Invariant: a reload that takes long holds up no session's state, and an API server that does not answer
//! no reload. Not here: state.

use reconcile::WorkQueue;

/// The configuration loop's only key: frr.conf, and what FRR runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Configuration;

/// The report loop's only key: FRRNodeState.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Report;

/// The session loop's only key: BGPSessionState objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sessions;

/// The queues of the loops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues {
    pub(crate) configuration: WorkQueue<Configuration>,
    pub(crate) reports: WorkQueue<Report>,
    pub(crate) sessions: WorkQueue<Sessions>,
}
