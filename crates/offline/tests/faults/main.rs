//! What a thing that is broken costs the rest of the cluster.
//! In: settled worlds. Out: failed tests that name the fault. Invariant: nothing that is expected is made by the planners.
//! Not here: what one planner decides (`plan-cluster`), worlds recorded of OVN-Kubernetes (`ra_conformance`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod blast_radius;
mod cluster;
mod table;
