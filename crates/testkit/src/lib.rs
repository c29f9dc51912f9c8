//! What tests of several crates are made from: builders of sound values, comparison with stored texts, scripts of changes.
//! In: numbers, names. Out: values with round addresses. Invariant: what a builder returns has no problem of its own.
//! Not here: expectations; anything that a shipped program uses.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "for tests only"
)]

pub mod golden;
pub mod labels;
pub mod objects;
pub mod port;
pub mod rng;
pub mod script;
mod view;

pub use view::*;
