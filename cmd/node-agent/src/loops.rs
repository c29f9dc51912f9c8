//! One reconciler per target: what is wanted, what is there, one write.
//! In: the node's view. Out: rows, flows, imported routes, annotations and reports. Invariant: each target has one writer.
//! Not here: what is wanted (`plan-node`).

use std::time::Duration;

pub(crate) mod api;
pub(crate) mod bridge;
pub(crate) mod import;
pub(crate) mod north;

/// For so long nothing may come to its end before the process says that it is not ready.
pub(crate) const UNREADY: Duration = Duration::from_secs(5);
