//! What the frr-agent's two loops can be poked to look at.
//! In and out: keys. Invariant: a reload that takes long holds up no session's state. Not here: state.

/// The configuration loop's only key: frr.conf and FRRNodeState.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Configuration;

/// The session loop's only key: BGPSessionState objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sessions;
