//! The cluster-manager when something is wrong with the API server, the cluster or itself: real processes on a real API server.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

mod allocations;
mod annotated;
mod events;
mod foreign;
mod leading;
mod missing;
pub(crate) mod process;
mod proxy;
mod quiet;
mod random;
mod refused;
mod scraped;
