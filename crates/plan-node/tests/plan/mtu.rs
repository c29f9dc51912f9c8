//! Whose host MTU counts.

use model::names::NodeName;
use model::node::{Fact, Node};
use plan_node::mtu::*;
use testkit::mk_node;

fn node(name: &str, mtu: Option<u32>) -> Node {
    Node {
        host_mtu: mtu.map_or(Fact::Absent, Fact::Known),
        ..mk_node(name, &[])
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
    let reported = vec!["Node/n3".to_owned()];
    assert_eq!(rules(&[&before, &joined]), (vec![8900, 8900], reported));
    // Whoever starts then has it from the start.
    assert_eq!(rules(&[&joined]), (vec![1400], Vec::new()));
    let roomy = [before.to_vec(), vec![node("n3", Some(9000))]].concat();
    assert_eq!(rules(&[&before, &roomy]), (vec![8900, 8900], Vec::new()));
}

#[test]
fn a_node_that_changes_its_mind_changes_no_running_node() {
    let before = [node("n2", Some(8900))];
    let smaller = [node("n2", Some(1400))];
    let reported = vec!["Node/n2".to_owned()];
    assert_eq!(rules(&[&before, &smaller]), (vec![8900, 8900], reported));
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
    let reported = vec!["Node/n3".to_owned()];
    assert_eq!(rules(&lists), (vec![9000, 8900, 1500, 1500], reported));
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
