//! The import on real parts: a kernel's routes in a namespace, an ovsdb-server, and everything that can come in between.
//!
//! In: routes, edits, cuts, kills. Out: the right rows, each once. Invariant: rows that nothing touches stay; an observer with a
//! session of its own says so. Not here: the whole agent (the lab), a dump that fails (`tests/dump.rs`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod cuts;
mod interleave;
mod losses;
mod sets;
mod table;
mod third_party;
mod withdrawals;
