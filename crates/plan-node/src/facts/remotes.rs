//! The other nodes as an overlay reaches them.
//! In: all Nodes, what this node is, the other nodes as they were before. Out: those that tunnels can lead to, and a problem for
//! each claim that is not believed. Invariant: an id, a chassis name and a tunnel's end belong to one node: this one first, then
//! whoever stood with it, then whose InternalIP a tunnel's end is; a claim that is not believed costs its own node only, which
//! stays as it was where that is still possible. Not here: their subnets (`share`), Chassis rows (`crate::south`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::names::NodeName;
use model::node::{Node, annotation};
use model::problem::Problem;

use crate::snapshot::RemoteNode;

/// Reason of a problem: an id, a chassis name or a tunnel's end that is another node's.
pub const NOT_ITS_OWN: &str = "TunnelClaimTaken";

/// What this node is, which no other can be.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    /// Its id, where it is known.
    pub(super) id: Option<u32>,
    /// Every system-id that it has or had.
    pub(super) chassis: BTreeSet<String>,
    /// Where tunnels to it end, and its InternalIPs.
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The other nodes; what cannot be read now of one that is still there is what it was.
pub(super) fn evaluate(
    own: &Own,
    others: &[&Node],
    before: &BTreeMap<NodeName, RemoteNode>,
) -> (BTreeMap<NodeName, RemoteNode>, Vec<Problem>) {
    let said = others.iter().filter_map(|node| {
        let was = before.get(&node.name);
        Some((*node, was, said(node, was)?))
    });
    let mut said: Vec<(&Node, Option<&RemoteNode>, RemoteNode)> = said.collect();
    said.sort_by_key(|(node, was, says)| {
        let stands = *was == Some(says);
        let is_its_own = |ip: &IpAddr| node.internal_ips.contains(ip);
        (
            !stands,
            !says.encap_ips.iter().all(is_its_own),
            node.name.clone(),
        )
    });
    let (mut taken, mut problems) = (Taken::by(own), Vec::new());
    let mut remotes = BTreeMap::new();
    for (node, was, says) in said {
        let clash = taken.clash(&says);
        let before = was.filter(|was| clash.is_some() && taken.clash(was).is_none());
        problems.extend(clash.map(|why| {
            let stays = before.map_or("no tunnels lead to it", |_| "what it was before holds");
            let subject = format!("Node/{}", node.name);
            Problem::new(subject, NOT_ITS_OWN, format!("{why}; {stays}"))
        }));
        let accepted = match (taken.clash(&says), before) {
            (None, _) => says,
            (Some(_), Some(was)) => was.clone(),
            (Some(_), None) => continue,
        };
        taken.take(&node.name, &accepted);
        remotes.insert(node.name.clone(), accepted);
    }
    (remotes, problems)
}

/// What a Node says of itself, as far as it can be read; `None` while something of it was never known.
fn said(node: &Node, was: Option<&RemoteNode>) -> Option<RemoteNode> {
    let set = |ips: Vec<IpAddr>| {
        let set: BTreeSet<IpAddr> = ips.into_iter().collect();
        Some(set).filter(|set| !set.is_empty())
    };
    let ends = node.encap_ips.known().and_then(|all| set(all.clone()));
    let primary = || {
        let all = node.primary.known()?;
        set(all.iter().map(|address| address.ip).collect())
    };
    Some(RemoteNode {
        id: node.node_id.known().copied().or(was.map(|was| was.id))?,
        chassis: (node.chassis.known().cloned()).or(was.map(|was| was.chassis.clone()))?,
        encap_ips: ends
            .or_else(primary)
            .or_else(|| was.map(|was| was.encap_ips.clone()))?,
    })
}

/// Whose everything is that may be one node's only.
struct Taken {
    ids: BTreeMap<u32, String>,
    chassis: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, String>,
}

impl Taken {
    fn by(own: &Own) -> Self {
        let this = || "this node".to_owned();
        Self {
            ids: own.id.map(|id| (id, this())).into_iter().collect(),
            chassis: own.chassis.iter().map(|c| (c.clone(), this())).collect(),
            addresses: own.addresses.iter().map(|ip| (*ip, this())).collect(),
        }
    }

    fn take(&mut self, name: &NodeName, remote: &RemoteNode) {
        let whose = format!("node {name}");
        self.ids.insert(remote.id, whose.clone());
        self.chassis.insert(remote.chassis.clone(), whose.clone());
        let ends = remote.encap_ips.iter();
        self.addresses.extend(ends.map(|ip| (*ip, whose.clone())));
    }

    /// What of a node is another's already.
    fn clash(&self, remote: &RemoteNode) -> Option<String> {
        let RemoteNode { id, chassis, .. } = remote;
        let id = self.ids.get(id).map(|whose| {
            let key = annotation::NODE_ID;
            format!("annotation {key}: {id} is {whose}'s; allowed: an id of its own")
        });
        let name = || {
            let (key, whose) = (annotation::CHASSIS_ID, self.chassis.get(chassis)?);
            Some(format!(
                "annotation {key}: {chassis} is {whose}'s; allowed: a system-id of its own"
            ))
        };
        let end = || {
            let mut ends = remote.encap_ips.iter();
            let (ip, whose) = ends.find_map(|ip| Some((ip, self.addresses.get(ip)?)))?;
            let (key, or) = (annotation::ENCAP_IPS, annotation::PRIMARY_IFADDR);
            Some(format!(
                "annotation {key} (or {or}): {ip} is {whose}'s; allowed: an address of its own"
            ))
        };
        id.or_else(name).or_else(end)
    }
}
