//! Plans of the builders' views: tables of rules, and whole plans as text.
//! In: views of `testkit`. Out: failed tests. Invariant: every plan that is looked at is also checked.
//! Not here: the import of routes (`import`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod annotations;
mod beside;
mod beside_users;
mod check;
mod claims;
mod declared;
mod facts;
mod golden;
mod kernel;
mod layer2;
mod learn;
mod mtu;
mod networks;
mod overlay;
mod ovnk;
mod paths;
mod render;
mod scripts;
mod services;
mod snapshot;
mod snat;
mod topology;
mod undeclared;
