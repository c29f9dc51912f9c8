//! What the node's networks ask of the Northbound database as a whole.
//! In: a snapshot. Out: what is wanted of `NB_Global.options:use_ct_inv_match`.
//! Invariant: while a network is not known nothing is taken back. Not here: whose value stands there (`ovn::global`).

use model::gateway::GatewayMode;
use model::nb::CtInvMatch;

use crate::snapshot::Snapshot;

/// In local gateway mode packets of one connection with a pod that is known outside may pass OVN in one direction only: those
/// back come by the host, or by another node. Conntrack takes what it saw half of for invalid, and rows of load balancers and
/// access lists would drop it (OVN-Kubernetes' start script writes the option once).
#[must_use]
pub fn plan(snapshot: &Snapshot) -> CtInvMatch {
    let is_local = snapshot.machine.mode == GatewayMode::Local;
    let is_needed = is_local && snapshot.here().any(|(_, view)| view.is_advertised());
    let unknown = snapshot.unlisted || snapshot.unknown().next().is_some();
    if is_needed {
        CtInvMatch::Off
    } else if snapshot.node.is_none() || (is_local && unknown) {
        CtInvMatch::Kept
    } else {
        CtInvMatch::Restored
    }
}
