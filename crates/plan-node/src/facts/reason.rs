//! Which of the reasons for planning nothing, or nothing new, somebody has to act on.
//! In: [`NotYet`]. Out: the reason of a condition, or none. Invariant: what passes while a node starts has none.
//! Not here: the condition (the node-agent).

use super::NotYet;
use crate::claims;

impl NotYet {
    /// CamelCase reason, where somebody has to change something; `None`: it passes with the start of the node, or the log tells.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Transport(_) => Some("TransportNotSupported"),
            Self::Outside(..) => Some(claims::SUBNET_OUTSIDE),
            Self::Malformed(..) => Some("NodeAnnotationMalformed"),
            Self::Unsound(problem) => Some(problem.reason),
            Self::Nodes
            | Self::NoNode(_)
            | Self::Waiting(..)
            | Self::NoBridge(_)
            | Self::NoAddress(_)
            | Self::NoChassis
            | Self::NoMapping(_)
            | Self::Links(_) => None,
        }
    }
}
