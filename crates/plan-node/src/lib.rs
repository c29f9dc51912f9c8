//! What a node should hold for its networks: OVN rows, bridge flows, kernel entries, annotations.
//! In: snapshots (`NetworkView` and the inputs beside each planner). Out: plans as values of `model`.
//! Invariant: every function is total, deterministic and without I/O; equal snapshots give equal plans.
//! Not here: reading the world, comparing with it and changing it (the edges and the binary).
//!
//! ```text
//!  NetworkView --+-- topology --+-- plan() --> nb::Rows --- check
//!                +-- snat ------+
//!                +-- host ---------------> HostNetwork, InternalPort
//!  links ----------- vrf ----------------> the table to read
//!  ports, MAC ------ bridge -------------> flows
//!  other nodes ----- claims -------------> whose a subnet is, which ones are other networks'
//!  topology -------- learn --------------> the scope that `import` obeys
//!  own gateway ----- annotations --------> what is published
//! ```

pub mod annotations;
pub mod bridge;
pub mod check;
pub mod claims;
pub mod host;
pub mod learn;
pub mod mtu;
mod rows_builder;
pub mod snapshot;
pub mod snat;
pub mod topology;
pub mod vrf;

pub use snapshot::{GatewayView, NetworkView};

use model::nb::Rows;

/// All Northbound rows of a network on its node but pods' ports and imported routes: topology and address translation.
/// One plan for one transaction, so that no translating rule is ever without its exemption set.
#[must_use]
pub fn plan(view: &NetworkView) -> Rows {
    let mut rows = topology::plan(view);
    rows.extend(snat::plan(view));
    rows
}
