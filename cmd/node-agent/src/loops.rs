//! One reconciler per target: what is wanted, what is there, one write.
//! In: the plan. Out: rows, ports, flows, imported routes, annotations and reports. Invariant: each target has one writer.
//! Not here: what is wanted (`plan-node`).

pub(crate) mod api;
pub(crate) mod bridge;
mod failing;
pub(crate) mod filter;
pub(crate) mod import;
pub(crate) mod north;
pub(crate) mod port;
pub(crate) mod south;
pub(crate) mod steering;
