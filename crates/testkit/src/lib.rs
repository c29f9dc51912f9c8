//! What tests of several crates are made from: builders of sound values, and comparison with stored texts.
//! In: numbers, names. Out: values with round addresses. Invariant: what a builder returns has no problem of its own.
//! Not here: expectations; anything that a shipped program uses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "for tests only")]

pub mod golden;
mod view;

pub use view::*;
