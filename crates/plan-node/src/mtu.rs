//! Which host MTU of the other nodes counts while this process runs.
//! In: all Nodes, again and again. Out: the smallest that counts, and a problem for each that does not.
//! Invariant: no Node that joins or changes its mind takes the MTU of pods and management port of running nodes down.
//! Not here: the own bridge's MTU, and which values can be (`claims`).

use std::borrow::Borrow;
use std::collections::BTreeMap;

use model::Problem;
use model::names::NodeName;
use model::node::Node;

use crate::claims::MTU;

/// Reason of a problem: a host MTU that came later and is smaller than what this node works with.
pub const MTU_CAME_LATER: &str = "HostMtuCameLater";

/// The other nodes' MTUs as they were when this process first saw them, bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostMtus {
    /// `None` until the Nodes have been listed. Of a Node that was there and said nothing yet, its first word counts: nodes
    /// that start together tell theirs one after the other.
    first: Option<BTreeMap<NodeName, Option<u32>>>,
}

impl HostMtus {
    /// Takes what all Nodes say now; `own` is this node's name, whose own word does not count.
    pub fn note(&mut self, own: &NodeName, nodes: &[impl Borrow<Node>]) {
        let others = || {
            nodes
                .iter()
                .map(Borrow::borrow)
                .filter(|node| node.name != *own)
        };
        match &mut self.first {
            None => {
                let all = others().map(|node| (node.name.clone(), said(node)));
                self.first = Some(all.collect());
            }
            Some(first) => {
                for node in others() {
                    if let Some(mtu @ None) = first.get_mut(&node.name) {
                        *mtu = said(node);
                    }
                }
            }
        }
    }

    /// What pods and management port get, bytes: the smallest of those that count and of the own bridge's. An own one that
    /// cannot be counts only where there is no other.
    #[must_use]
    pub fn ruling(&self, own: u32) -> u32 {
        let others = self.first.iter().flat_map(BTreeMap::values).flatten();
        let believed = Some(own).filter(|own| MTU.contains(own));
        others.copied().chain(believed).min().unwrap_or(own)
    }

    /// One for each Node whose MTU is smaller than the ruling one and does not count; each names its Node.
    #[must_use]
    pub fn problems(
        &self,
        own: &NodeName,
        nodes: &[impl Borrow<Node>],
        ruling: u32,
    ) -> Vec<Problem> {
        let Some(first) = &self.first else {
            return Vec::new();
        };
        let smaller = nodes.iter().map(Borrow::borrow).filter_map(|node| {
            let mtu = said(node).filter(|mtu| *mtu < ruling)?;
            let counts = node.name == *own || first.get(&node.name) == Some(&Some(mtu));
            (!counts).then(|| {
                Problem::new(
                    format!("Node/{}", node.name),
                    MTU_CAME_LATER,
                    format!(
                        "annotation noverlay.io/host-mtu: {mtu} came after this node-agent started and is smaller than {ruling}, which it works with; it is ignored until the node-agent restarts; allowed: {ruling} and more, or [default] mtu on all nodes"
                    ),
                )
            })
        });
        smaller.collect()
    }
}

/// What a Node says, if it can be.
fn said(node: &Node) -> Option<u32> {
    let mtu = node.host_mtu.known().copied();
    mtu.filter(|mtu| MTU.contains(mtu))
}
