//! The API server, as the binaries use it: caches of decoded objects, server-side apply, leases, events.
//! In: objects. Out: model values with their uid; writes.
//! Invariant: a cache enqueues only when the decoded value changed; every call has a deadline; one field manager a daemon.
//! Not here: what to write (planners).

pub mod cache;
pub mod client;
pub mod events;
mod gate;
mod installed;
pub mod leadership;
pub mod lease;
pub mod outcome;
pub mod write;

pub use cache::{Cache, Entry, watch};
pub use client::{ClientError, connect, connect_gated, untyped};
pub use installed::Installed;
pub use leadership::Leadership;
pub use outcome::Outcome;
pub use write::{Only, WriteError, Writer};
