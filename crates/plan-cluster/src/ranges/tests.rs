//! Votes for the host lengths in force, against a model of sets.
//! In: nodes with annotations, with objects, with both, and names that are gone. Out: who is elected in each range.
//! Invariant: a node has one vote in each range at most. Not here: what becomes of a length that is refused.

use std::collections::{BTreeMap, BTreeSet};

use model::Prefix;
use model::address::ClusterSubnet;
use model::node::Fact;
use proptest::prelude::*;
use testkit::mk_network;

use super::*;
use crate::samples::mk_node;

/// Ranges of both families; one of each lies in another.
const RANGES: [&str; 5] = [
    "10.128.0.0/16/24",
    "10.132.0.0/14/24",
    "10.128.128.0/17/25",
    "fd00:10::/48/64",
    "fd00:10:0:100::/56/64",
];
/// Names of which some are known and some gone: before, between and behind one another.
const NAMES: [&str; 7] = ["", "a", "b", "b1", "c", "d", "z"];

/// A share of one of the ranges, or a range itself, or what lies in none.
fn any_prefix() -> impl Strategy<Value = Prefix> {
    let share = (0..RANGES.len(), 0_u128..3, 0_u8..4).prop_map(|(range, index, longer)| {
        let range: ClusterSubnet = RANGES[range].parse().unwrap();
        let bits = range.host_len + longer - 1;
        range.cidr.subnet(index, bits).unwrap()
    });
    let other = prop::sample::select(vec!["10.128.0.0/16", "10.0.0.0/8", "192.0.2.0/24"]);
    prop_oneof![8 => share, 1 => other.prop_map(|text| text.parse().unwrap())]
}

fn some_prefixes() -> impl Strategy<Value = Vec<Prefix>> {
    prop_oneof![
        4 => prop::collection::vec(any_prefix(), 0..4),
        // One that is there twice.
        1 => any_prefix().prop_map(|prefix| vec![prefix, prefix]),
    ]
}

/// What is known of a name: its annotation where there is such a node, and what was generated for it.
type Known = (Option<Vec<Prefix>>, Option<Vec<Prefix>>);

fn any_nodes() -> impl Strategy<Value = BTreeMap<&'static str, Known>> {
    let known = (
        prop::option::of(some_prefixes()),
        prop::option::of(some_prefixes()),
    );
    prop::collection::vec(known, NAMES.len()).prop_map(|all| {
        let mut nodes: BTreeMap<_, _> = NAMES.into_iter().zip(all).collect();
        // Objects that name no node have an empty name; there is no such node.
        nodes
            .entry("")
            .and_modify(|(annotated, _)| *annotated = None);
        nodes
    })
}

/// The length that most vote for in a range, and how many do, by the sets of what each holds.
fn elected(range: &ClusterSubnet, nodes: &BTreeMap<&str, Known>) -> (u8, usize) {
    let mut votes: BTreeMap<u8, BTreeSet<&str>> = BTreeMap::new();
    for (name, (annotated, announced)) in nodes {
        let in_range = |list: &Option<Vec<Prefix>>| -> BTreeSet<Prefix> {
            let all = list.iter().flatten().copied();
            all.filter(|p| range.cidr.contains(p) && *p != range.cidr)
                .collect()
        };
        let mut shares = in_range(annotated);
        if shares.is_empty() {
            shares = in_range(announced);
        }
        if shares.len() == 1 {
            for share in shares {
                votes.entry(share.bits()).or_default().insert(*name);
            }
        }
    }
    let most = votes.values().map(BTreeSet::len).max().unwrap_or(0);
    let first = |len: &u8| votes.get(len).is_some_and(|names| names.len() == most);
    if votes.is_empty() || first(&range.host_len) {
        return (range.host_len, most);
    }
    // Among others the longest.
    let len = votes.keys().rev().find(|len| first(len));
    (*len.unwrap(), most)
}

proptest! {
    #[test]
    fn each_node_has_one_vote_in_each_range_by_what_it_holds_or_else_by_what_was_generated_for_it(
        nodes in any_nodes(),
    ) {
        let mut network = mk_network();
        network.subnets = RANGES.iter().map(|range| range.parse().unwrap()).collect();
        let mut world = World::default();
        for (name, (annotated, _)) in &nodes {
            let Some(annotated) = annotated else { continue };
            let mut node = mk_node(name, "172.30.0.1", None, None);
            let subnets = [(network.name.clone(), annotated.clone())];
            node.subnets = Fact::Known(subnets.into());
            world.nodes.insert(node.name.clone(), node);
        }
        let announced = nodes.iter().filter_map(|(name, (_, announced))| {
            Some((*name, announced.clone()?))
        });
        let announced: BTreeMap<&str, Vec<Prefix>> = announced.collect();
        world.networks.insert(network.name.clone(), network.clone());
        let originated = [(&network.name, announced)].into();
        let ranges = Ranges::beside(&world, &originated).remove(&network.name).unwrap();

        let mut refused = 0;
        for (range, found) in network.subnets.iter().zip(&ranges.list) {
            let (len, votes) = elected(range, &nodes);
            prop_assert_eq!((found.cidr, found.host_len), (range.cidr, len));
            if len != range.host_len {
                let told = format!("the subnets of {votes} nodes in it are /{len};");
                let problem = ranges.problems.get(refused);
                prop_assert!(problem.is_some_and(|p| p.message.contains(&told)), "{problem:?}");
                refused += 1;
            }
        }
        prop_assert_eq!(ranges.list.len(), network.subnets.len());
        prop_assert_eq!(ranges.problems.len(), refused);
    }
}
