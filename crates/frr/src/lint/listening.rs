//! Sessions that neither end can accept.
//! In: a merged configuration, what is known of bgpd at the node and at its peers. Out: a problem per neighbor.
//! Invariant: reported only where both ends are known not to listen; what is not known is no problem.
//! Not here: finding out (who looks at daemons or at sessions that stay down).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::names::NodeName;
use model::problem::Problem;

use super::problem;
use crate::config::NodeConfig;

/// Whether a bgpd accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// It does.
    Yes,
    /// It does not: it was started with `-p 0`, as frr-k8s ships it.
    No,
    /// Nobody has looked.
    Unknown,
}

/// A peer that is a node too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// The node.
    pub node: NodeName,
    /// All its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether its bgpd listens.
    pub listening: Listening,
}

/// Neighbors with which no session can come up, since neither end listens.
#[must_use]
pub fn bgp_listen_disabled(
    config: &NodeConfig,
    here: Listening,
    peers: &[Speaker],
) -> Vec<Problem> {
    let mut out = Vec::new();
    if here != Listening::No {
        return out;
    }
    for router in &config.routers {
        for neighbor in &router.neighbors {
            let Some(ip) = neighbor.peer.ip() else {
                continue;
            };
            let peer = peers.iter().find(|peer| peer.addresses.contains(&ip));
            if let Some(peer) = peer.filter(|peer| peer.listening == Listening::No) {
                let text = format!(
                    "address is node {}'s, and bgpd listens neither there nor on node {} (-p 0), so that the session never comes up; start bgpd without -p 0 on one of them",
                    peer.node, config.node
                );
                out.push(problem(router, neighbor, "BGPListenDisabled", &text));
            }
        }
    }
    out.sort();
    out
}
