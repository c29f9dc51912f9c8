//! The other nodes as ovn-controller has to know them where a network has an overlay.
//! In: a snapshot. Out: Chassis rows of OVN_Southbound, by name. Invariant: what may still be needed is not taken away.
//! Not here: ports of the overlay's switch (`north::topology`).

use model::sb::{RemoteChassis, RemoteChassisByName};

use crate::snapshot::Snapshot;

/// The rows; `None` while it is not known which are needed.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Option<RemoteChassisByName> {
    let overlays = snapshot.here().any(|(_, view)| view.is_overlay());
    let unknown = snapshot.unlisted || snapshot.unknown().next().is_some();
    if !overlays {
        return (!unknown && snapshot.node.is_some()).then(RemoteChassisByName::new);
    }
    let remotes = snapshot.node.as_ref()?.remotes.iter();
    let rows = remotes.map(|(name, remote)| {
        let row = RemoteChassis {
            hostname: name.clone(),
            encap_ips: remote.encap_ips.clone(),
        };
        (remote.chassis.clone(), row)
    });
    Some(rows.collect())
}
