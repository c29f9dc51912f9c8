//! What a thing that is broken, changed by somebody, or not served at all costs the rest of the cluster; and what is announced
//! to which neighbor.
//! In: settled worlds. Out: failed tests that name the fault. Invariant: nothing that is expected is made by the planners.
//! Not here: what one planner decides (`plan-cluster`), worlds recorded of OVN-Kubernetes (`ra_conformance`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod advertised;
mod blast_radius;
mod cluster;
mod compare;
mod repair;
mod scope;
mod table;
