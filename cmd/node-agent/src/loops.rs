//! One reconciler a target: what is wanted, what is there, one write.
//! In: the node's view. Out: rows, flows, imported routes, annotations and reports. Invariant: each target has one writer.
//! Not here: what is wanted (`plan-node`).

pub(crate) mod api;
pub(crate) mod bridge;
pub(crate) mod import;
pub(crate) mod north;
