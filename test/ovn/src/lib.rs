//! What the integration tests of the crate ovn need: a database that a plan is written to, and a hand that meddles.
//!
//! In: a view of a network. Out: passes as the node agent makes them, checked on every side.
//! Invariant: after a pass the next difference is empty, and rows of others are as they were before it.
//! Not here: the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what serves tests fails by panicking"
)]

mod fixture;
mod northd;
mod view;

pub use crate::fixture::{Fixture, TOOLS, TopologyDiff, owner_of};
pub use crate::northd::{NORTHD_TOOLS, Northd};
pub use crate::view::{View, mk_routes, mk_view, rows_of, shared_rows};
