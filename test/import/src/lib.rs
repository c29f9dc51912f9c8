//! What the tests of the route import need: a gateway link, a database, the import as the node-agent runs it, and who looks on.
//!
//! In: a namespace of the test's own. Out: rows that the kernel's routes ask for, and those that are there.
//! Invariant: what is expected is made again from a dump each time, which says that any order ends as a fresh start does; what
//! a fresh start has to give is evaluated by hand (`tests/import/table.rs`). The observer has an OVSDB session of its own.
//! Not here: what the tests do to them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "what serves tests fails by panicking, and measures time"
)]

mod agent;
mod fault_proxy;
mod observer;
mod testbed;

use std::time::Duration;

pub use crate::agent::{Agent, AgentConfig};
pub use crate::fault_proxy::{Cut, FaultProxy};
pub use crate::observer::{Observer, RouteSeen, Snapshot};
pub use crate::testbed::{LINK, OTHER_LINK, ROUTER, Testbed, try_ip};
pub use testkit::rng::Rng;

/// Programs that the tests need.
pub const TOOLS: &[&str] = &["ip", "ovsdb-server", "ovsdb-tool", "setpriv"];

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a tool is absent, so that the test is to be left. Panics instead where `REQUIRE_TOOLS=1` is set.
#[must_use]
pub fn absent() -> bool {
    netns_tests::absent(TOOLS) || ovsdb_tests::absent(TOOLS)
}

/// Asks until the answer is yes. Panics with `what` after [`PATIENCE`].
pub async fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !ask() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
