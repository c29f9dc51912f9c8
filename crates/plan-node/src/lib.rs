//! What a node should hold for its networks: OVN rows, imported routes, bridge flows, kernel entries, annotations.
//! In: snapshots (`NetworkView` and the inputs beside each planner). Out: plans as values of `model`.
//! Invariant: every function is total, deterministic and without I/O; equal snapshots give equal plans.
//! Not here: reading the world, comparing with it and changing it (the edges and the door).
//!
//! ```text
//!  NetworkView --+-- topology --+-- plan() --> nb::Rows --- check
//!                +-- snat ------+
//!                +-- host ---------------> HostNetwork, InternalPort
//!  links ----------- vrf ----------------> the table to read
//!  kernel routes --- imports --.
//!  rows ------------------------+- importing --> rows to add and to remove, a few at a time
//!  looks at FRR ---- holding --'- budget (the limit), breaker (mass withdrawals)
//!  ports, MAC ------ bridge -------------> flows
//!  other nodes --+-- coverage -----------> what is reported
//!                '-- claims -------------> whose a subnet is, which ones are other networks'
//!  own gateway ----- annotations --------> what is published
//! ```

pub mod annotations;
pub mod breaker;
pub mod bridge;
pub mod budget;
pub mod check;
pub mod claims;
pub mod coverage;
pub mod holding;
pub mod host;
pub mod importing;
pub mod imports;
pub mod mtu;
mod sheet;
pub mod snapshot;
pub mod snat;
pub mod subnets;
pub mod topology;
pub mod vrf;

pub use imports::ImportPlan;
pub use snapshot::{GatewayView, MissingRoute, NetworkView};

use model::nb::Rows;

/// All Northbound rows of a network on its node but pods' ports and imported routes: topology and address translation.
/// One plan for one transaction, so that no translating rule is ever without its exemption set.
#[must_use]
pub fn plan(view: &NetworkView) -> Rows {
    let mut rows = topology::plan(view);
    rows.extend(snat::plan(view));
    rows
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod samples;
