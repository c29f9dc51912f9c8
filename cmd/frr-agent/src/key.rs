//! What the frr-agent's loop can be poked to look at.
//! In and out: keys. Invariant: the configuration comes first. Not here: state.

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// frr.conf and FRRNodeState.
    Configuration,
    /// BGPSessionState objects.
    Sessions,
}
