//! What a node should hold for its networks: OVN rows, ports, bridge flows, kernel entries, annotations, and what it may learn.
//! In: one [`Snapshot`] of the node with all its networks. Out: one [`Plan`] for all sinks, as values of `model`.
//! Invariant: every function is total, deterministic and without I/O; equal snapshots give equal plans.
//! Not here: reading the world, comparing with it and changing it (the edges and the binary).
//!
//! ```text
//!  objects -- declare --> networks
//!                            |
//!  facts (what was read) -- Memory::snapshot --> Snapshot { machine, node, networks }
//!                                                   |
//!    of the node:     north::shared, bridge, annotations       of each network:  north (topology, snat), kernel, learn
//!                                                   v
//!                                       plan() --> Plan --- check::plan
//! ```

pub mod annotations;
pub mod beside;
pub mod bridge;
pub mod check;
pub mod claims;
pub mod declared;
pub mod facts;
pub mod kernel;
pub mod learn;
pub mod mtu;
pub mod nft;
pub mod north;
pub mod paths;
pub mod snapshot;
pub mod south;
mod unknown;
pub mod vrf;

use std::collections::BTreeMap;

use model::kernel::Entries;
use model::names::NetworkName;
use model::nb::{CtInvMatch, Owner, RowKey, Rows};
use model::nft::Ruleset;
use model::ovs::InternalPort;
use model::sb::RemoteChassisByName;

use crate::check::{Severity, Violation};

pub use bridge::FlowTable;
pub use declared::{Declared, declare};
pub use facts::{Facts, Memory, NodeConfig, NotYet, ServiceAddresses, Undeclared};
pub use learn::Inputs;
pub use snapshot::{
    GatewayView, Machine, NetworkShare, NetworkView, NodeView, RemoteNode, Reserved, Services,
    Share, Snapshot, Standing, UnknownShare, Vrf,
};
pub use unknown::Unknown;

/// What a node should hold, by sink. A network that is in a sink and not in the plan is taken away, but for those in `unknown`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Networks that nothing is planned for yet: what stands for them is left alone. While there are any, what all networks
    /// share (kernel, flows, rows of [`Owner::Node`]) may grow and must not shrink.
    pub unknown: Unknown,
    /// Rows of OVN_Northbound but pods' ports and imported routes.
    pub north: BTreeMap<Owner, Rows>,
    /// What is wanted of `NB_Global.options:use_ct_inv_match`.
    pub ct_inv_match: CtInvMatch,
    /// Other nodes' Chassis rows of OVN_Southbound; `None`: what stands is left as it is.
    pub south: Option<RemoteChassisByName>,
    /// Management ports on the integration bridge.
    pub ports: BTreeMap<NetworkName, InternalPort>,
    /// Addresses, routes and rules of all networks.
    pub kernel: Entries,
    /// Sets and chains of the host's packet filter.
    pub nft: Ruleset,
    /// Flows of the external bridge.
    pub flows: FlowTable,
    /// What each import obeys.
    pub learn: BTreeMap<NetworkName, Inputs>,
    /// Annotations of the own Node but [`model::node::annotation::UNDERLAY_READY`]; `None` until they can be known.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Rules and routes beside OVN-Kubernetes.
    pub steering: model::steering::Entries,
    /// Beside OVN-Kubernetes: how far networks are led past the tunnels.
    pub steps: beside::Steps,
}

impl Plan {
    /// Whether what is not in the plan is not wanted, in the sinks that all networks share.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }

    /// Whether a row is planned for another owner than this one.
    #[must_use]
    pub fn is_anothers(&self, owner: &Owner, row: &RowKey) -> bool {
        let mut others = self.north.iter().filter(|(other, _)| *other != owner);
        others.any(|(_, rows)| rows.contains_key(row))
    }
}

/// The plan of a snapshot without networks whose part breaks an invariant, and every violation. Such a network counts as not
/// known: nothing of it is written anywhere, and what stands for it stays.
#[must_use]
pub fn sound_plan(mut snapshot: Snapshot) -> (Plan, Vec<(Owner, Violation)>) {
    let mut all = Vec::new();
    loop {
        let mut plan = plan(&snapshot);
        let found = check::plan(&snapshot, &plan);
        let is_error =
            |(_, violation): &&(Owner, Violation)| violation.severity() == Severity::Error;
        let broken = found.iter().find(is_error).map(|(owner, _)| owner.clone());
        match broken {
            None => {
                all.extend(found);
                return (plan, all);
            }
            Some(Owner::Node) => {
                // The node's rows alone: they stay as they are, like those of a network that is not known.
                plan.north.remove(&Owner::Node);
                all.extend(found);
                return (plan, all);
            }
            Some(Owner::Network(name)) => {
                let of_it =
                    |(owner, _): &(Owner, Violation)| *owner == Owner::Network(name.clone());
                all.extend(found.into_iter().filter(of_it));
                snapshot.set_aside(&name);
            }
        }
    }
}

/// The plan of a snapshot.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = Plan {
        unknown: unknown(snapshot),
        north: BTreeMap::new(),
        ct_inv_match: north::global::plan(snapshot),
        south: south::plan(snapshot),
        ports: BTreeMap::new(),
        kernel: kernel::services::host(snapshot),
        nft: nft::plan(snapshot),
        flows: bridge::plan(snapshot),
        learn: learn::plan(snapshot),
        annotations: annotations::plan(&snapshot.machine),
        steering: model::steering::Entries::default(),
        steps: beside::Steps::new(),
    };
    if let FlowTable::Full { complete, .. } = &mut plan.flows {
        *complete &= !snapshot.unlisted;
    }
    for (name, view) in snapshot.here() {
        let owner = Owner::Network(name.clone());
        plan.north.insert(owner, north::plan(view));
        plan.kernel.extend(kernel::plan(view));
        plan.ports
            .extend(kernel::port(view).map(|port| (name.clone(), port)));
    }
    if let Some(node) = &snapshot.node {
        let networks = snapshot.here().map(|(_, view)| view);
        let rows = north::shared::plan(node, networks);
        if !rows.is_empty() {
            plan.north.insert(Owner::Node, rows);
        }
    }
    plan
}

fn unknown(snapshot: &Snapshot) -> Unknown {
    let names = snapshot.unknown().map(|(name, _)| name.clone());
    let planned = || snapshot.here().map(|(name, _)| name.clone()).collect();
    Unknown::new(names.collect(), snapshot.unlisted.then(planned))
}
