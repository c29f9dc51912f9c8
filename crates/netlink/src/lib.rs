//! The kernel over netlink: dumps, a subscription that says only what changed, and our few writes.
//! In: the network namespace of the process. Out: model values; changed links, addresses, rules and routes of ours.
//! Invariant: a dump that did not end well is an error, never an empty list; events that do not tell all say so.
//! Not here: what a route means (`rib`, planners), Open vSwitch.

pub mod dump;
mod facts;
pub mod filter;
mod kernel;
mod message;
pub mod probe;
pub mod steering;
pub mod watch;
pub mod write;

pub use dump::DumpError;
pub use filter::FilterWatcher;
pub use watch::{Change, Watcher};
pub use write::{WriteError, Written};
