//! What OVN_Southbound holds of other nodes where networks have an overlay.
//! In: nodes. Out: values that the planner and the edge speak of. Not here: the own chassis, which is ovn-controller's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::names::NodeName;

/// Another node's Chassis row; its key is `Chassis.name`, the node's system-id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteChassis {
    /// `Chassis.hostname`.
    pub hostname: NodeName,
    /// `Encap.ip` of each of its tunnels' ends, all of type geneve.
    pub encap_ips: BTreeSet<IpAddr>,
}

/// The other nodes, by `Chassis.name`.
pub type RemoteChassisByName = BTreeMap<String, RemoteChassis>;
