//! Which host MTU of the other nodes counts while this process runs.
//! In: all Nodes, again and again. Out: the smallest that counts, and a problem for each that does not.
//! Invariant: no Node that joins or changes its mind takes the MTU of pods and management port of running nodes down.
//! Not here: the own bridge's MTU, and which values can be (`claims`).

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
    pub fn note(&mut self, own: &NodeName, nodes: &[Node]) {
        let others = || nodes.iter().filter(|node| node.name != *own);
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
    pub fn problems(&self, own: &NodeName, nodes: &[Node], ruling: u32) -> Vec<Problem> {
        let Some(first) = &self.first else {
            return Vec::new();
        };
        let smaller = nodes.iter().filter_map(|node| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::Fact;

    fn node(name: &str, mtu: Option<u32>) -> Node {
        Node {
            name: NodeName::from(name),
            labels: model::selector::Labels::default(),
            internal_ips: Vec::new(),
            bad_addresses: Vec::new(),
            node_id: Fact::Absent,
            subnets: Fact::Absent,
            primary: Fact::Absent,
            host_cidrs: Fact::Absent,
            host_mtu: mtu.map_or(Fact::Absent, Fact::Known),
            salvaged: model::node::Salvaged::default(),
            ready: None,
        }
    }

    /// What rules on n1, whose bridge has 9000, after each of these lists; and whose word does not count at the end.
    fn rules(lists: &[&[Node]]) -> (Vec<u32>, Vec<String>) {
        let own = NodeName::from("n1");
        let mut mtus = HostMtus::default();
        let mut ruling = Vec::new();
        let mut problems = Vec::new();
        for nodes in lists {
            mtus.note(&own, nodes);
            let now = mtus.ruling(9000);
            ruling.push(now);
            problems = mtus.problems(&own, nodes, now);
        }
        assert!(problems.iter().all(|p| p.reason == MTU_CAME_LATER));
        let subjects = problems.into_iter().map(|p| p.subject);
        (ruling, subjects.collect())
    }

    #[test]
    fn a_node_that_joins_with_a_smaller_mtu_changes_no_running_node_and_is_reported() {
        let before = [node("n1", Some(9000)), node("n2", Some(8900))];
        let joined = [before.to_vec(), vec![node("n3", Some(1400))]].concat();
        let told = vec!["Node/n3".to_owned()];
        assert_eq!(rules(&[&before, &joined]), (vec![8900, 8900], told));
        // Whoever starts then has it from the start.
        assert_eq!(rules(&[&joined]), (vec![1400], Vec::new()));
        let roomy = [before.to_vec(), vec![node("n3", Some(9000))]].concat();
        assert_eq!(rules(&[&before, &roomy]), (vec![8900, 8900], Vec::new()));
    }

    #[test]
    fn a_node_that_changes_its_mind_changes_no_running_node() {
        let before = [node("n2", Some(8900))];
        let smaller = [node("n2", Some(1400))];
        let told = vec!["Node/n2".to_owned()];
        assert_eq!(rules(&[&before, &smaller]), (vec![8900, 8900], told));
        assert_eq!(rules(&[&before, &[]]), (vec![8900, 8900], Vec::new()));
        let larger = [node("n2", Some(9000))];
        assert_eq!(rules(&[&before, &larger]), (vec![8900, 8900], Vec::new()));
    }

    #[test]
    fn of_nodes_that_start_together_each_first_word_counts() {
        let lists = [
            [node("n2", None), node("n3", None)],
            [node("n2", Some(8900)), node("n3", None)],
            [node("n2", Some(8900)), node("n3", Some(1500))],
            [node("n2", Some(8900)), node("n3", Some(1400))],
        ];
        let lists: Vec<&[Node]> = lists.iter().map(<[Node; 2]>::as_slice).collect();
        let told = vec!["Node/n3".to_owned()];
        assert_eq!(rules(&lists), (vec![9000, 8900, 1500, 1500], told));
    }

    #[test]
    fn an_mtu_that_cannot_be_does_not_rule() {
        let nodes = [node("n2", Some(60)), node("n3", Some(70_000))];
        assert_eq!(rules(&[&nodes]), (vec![9000], Vec::new()));
        let mut mtus = HostMtus::default();
        assert_eq!(mtus.ruling(600), 600, "there is no other");
        mtus.note(&NodeName::from("n1"), &[node("n2", Some(1500))]);
        assert_eq!(mtus.ruling(600), 1500);
    }
}
