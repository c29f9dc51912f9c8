//! Members of the fabric that share no layer-2 subnet.
//! In: members and what they say of their addresses. Out: for a node, the members that it cannot hand a pod's packet to.
//! Invariant: each pair counts once, at a node of the smaller group; of what nobody knows nothing is said. Subnets that overlap
//! are one: masks of one link may differ.
//! Not here: whether the subnets are in truth one link.
//!
//! A node announces itself as the next hop of its pods, and reflectors leave that as it is: a node in another subnet hands the
//! packet to a router that knows nothing of pods (design document of the no-overlay mode, managed routing).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::node::Node;
use model::{Family, NodeName, Prefix};

/// Most members that a sentence names.
const NAMED: usize = 5;

/// By node, what to say of it.
pub(crate) fn apart<'a>(
    members: &[&'a Node],
    families: &BTreeSet<Family>,
) -> BTreeMap<&'a NodeName, String> {
    let mut out: BTreeMap<&NodeName, String> = BTreeMap::new();
    for family in families {
        let groups = groups(members, *family);
        if groups.len() < 2 {
            continue;
        }
        let reached = reached(&groups, members.len());
        let larger = larger(&groups, members.len());
        let mut told = Pairs::new(members.len());
        for ((subnet, group), larger) in groups.iter().zip(&larger) {
            for at in group {
                let apart = larger.without(reached.of(*at)).without(told.of(*at));
                let apart: Vec<usize> = apart.iter().collect();
                apart.iter().for_each(|other| told.join(*at, *other));
                let names = apart.iter().filter_map(|other| members.get(*other));
                let names: Vec<&str> = names.map(|node| node.name.as_str()).collect();
                let Some(node) = members.get(*at).filter(|_| !names.is_empty()) else {
                    continue;
                };
                let said = out.entry(&node.name).or_default();
                if !said.is_empty() {
                    said.push_str("; ");
                }
                said.push_str(&sentence(subnet, &names));
            }
        }
    }
    out
}

/// A subnet, and the members in it by their place.
type Group = (Prefix, Vec<usize>);

/// The smallest first.
fn groups(members: &[&Node], family: Family) -> Vec<Group> {
    let mut groups: BTreeMap<Prefix, BTreeSet<usize>> = BTreeMap::new();
    for (at, node) in members.iter().enumerate() {
        let ips = node.internal_ips.iter();
        let of_family = ips.filter(|ip| Family::of(**ip) == family);
        // Of several any one may do.
        for subnet in of_family.filter_map(|ip| subnet(node, *ip)) {
            groups.entry(subnet).or_default().insert(at);
        }
    }
    let groups = groups.into_iter();
    let mut groups: Vec<Group> = groups.map(|(s, g)| (s, g.into_iter().collect())).collect();
    groups.sort_by_key(|(subnet, group)| (group.len(), *subnet));
    groups
}

/// Members in subnets that overlap.
fn reached(groups: &[Group], members: usize) -> Pairs {
    let mut out = Pairs::new(members);
    let mut sorted: Vec<&Group> = groups.iter().collect();
    sorted.sort_by_key(|(subnet, _)| *subnet);
    let mut reach = |one: &Group, other: &Group| {
        for at in &one.1 {
            other.1.iter().for_each(|of_other| out.join(*at, *of_other));
        }
    };
    for (at, one) in sorted.iter().enumerate() {
        reach(one, one);
        // What overlaps a prefix and comes after it is inside it, and follows it at once.
        let inside = sorted.iter().skip(at + 1);
        for other in inside.take_while(|(subnet, _)| subnet.overlaps(&one.0)) {
            reach(one, other);
        }
    }
    out
}

/// By group, the members of all that come after it.
fn larger(groups: &[Group], members: usize) -> Vec<Set> {
    let mut after = Set::new(members);
    let mut out = Vec::with_capacity(groups.len());
    for (_, group) in groups.iter().rev() {
        out.push(after.clone());
        group.iter().for_each(|name| after.insert(*name));
    }
    out.reverse();
    out
}

/// Pairs of members, by the places of both.
struct Pairs {
    of: Vec<Set>,
    none: Set,
}

impl Pairs {
    fn new(members: usize) -> Self {
        Self {
            of: vec![Set::new(members); members],
            none: Set::new(members),
        }
    }

    fn join(&mut self, one: usize, other: usize) {
        for (of, with) in [(one, other), (other, one)] {
            if let Some(set) = self.of.get_mut(of) {
                set.insert(with);
            }
        }
    }

    fn of(&self, place: usize) -> &Set {
        self.of.get(place).unwrap_or(&self.none)
    }
}

/// Places of members, a bit for each: with a subnet for each server there are as many groups as members.
#[derive(Debug, Clone)]
struct Set(Vec<u64>);

impl Set {
    fn new(members: usize) -> Self {
        Self(vec![0; members.div_ceil(64)])
    }

    fn insert(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn without(&self, others: &Self) -> Self {
        let words = self.0.iter().zip(&others.0);
        Self(words.map(|(word, other)| word & !other).collect())
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let bits = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter_map(move |bit| (word >> bit & 1 == 1).then_some(at * 64 + bit))
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

/// The subnet of an address, as the node says.
fn subnet(node: &Node, ip: IpAddr) -> Option<Prefix> {
    let facts = [&node.primary, &node.host_cidrs];
    let mut listed = facts.into_iter().filter_map(|fact| fact.known()).flatten();
    let own = listed.find(|address| address.ip == ip)?;
    // One address alone says nothing of the link.
    (own.len < Family::of(ip).host_len()).then(|| own.subnet())
}

fn sentence(subnet: &Prefix, apart: &[&str]) -> String {
    let named: Vec<&str> = apart.iter().take(NAMED).copied().collect();
    let more = match apart.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "it is in {subnet} and shares no layer-2 subnet with {}{more}: pods of the two may not reach each other",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use model::node::Fact;

    use super::*;
    use crate::samples::mk_node;

    fn nodes(list: &[(&str, &str, &str)]) -> Vec<Node> {
        let node = |(name, ip, cidrs): &(&str, &str, &str)| {
            let mut node = mk_node(name, ip, None, None);
            if !cidrs.is_empty() {
                let cidrs = cidrs.split(',').map(|c| c.parse().unwrap());
                node.host_cidrs = Fact::Known(cidrs.collect());
            }
            node
        };
        list.iter().map(node).collect()
    }

    fn told(nodes: &[Node]) -> Vec<String> {
        let members: Vec<&Node> = nodes.iter().collect();
        let apart = apart(&members, &[Family::V4, Family::V6].into());
        apart
            .into_iter()
            .map(|(name, text)| format!("{name}: {text}"))
            .collect()
    }

    const END: &str = "pods of the two may not reach each other";

    #[test]
    fn each_pair_is_named_once_at_the_smaller_group() {
        let list = [
            ("a", "10.0.0.1", "10.0.0.1/24"),
            ("b", "10.0.0.2", "10.0.0.2/24"),
            ("c", "10.0.0.3", "192.168.7.3/24,10.0.0.3/24"),
            ("d", "10.0.1.1", "10.0.1.1/24"),
            ("e", "10.0.1.2", "10.0.1.2/24"),
            ("f", "10.9.0.1", "10.9.0.1/16"),
            // Nothing is known of their subnets.
            ("g", "10.77.0.1", ""),
            ("h", "10.78.0.1", "10.78.0.1/32"),
        ];
        assert_eq!(
            told(&nodes(&list)),
            [
                format!("d: it is in 10.0.1.0/24 and shares no layer-2 subnet with a, b, c: {END}"),
                format!("e: it is in 10.0.1.0/24 and shares no layer-2 subnet with a, b, c: {END}"),
                format!(
                    "f: it is in 10.9.0.0/16 and shares no layer-2 subnet with a, b, c, d, e: {END}"
                ),
            ]
        );
        assert_eq!(told(&nodes(&list[..3])), [""; 0]);
    }

    #[test]
    fn masks_of_one_link_may_differ_and_a_node_in_two_subnets_is_told_once() {
        let list = [
            ("a", "10.0.0.1", "10.0.0.1/16"),
            ("b", "10.0.3.2", "10.0.3.2/24"),
            ("c", "10.0.3.3", "10.0.3.3/24"),
        ];
        assert_eq!(told(&nodes(&list)), [""; 0]);
        let mut list = nodes(&[
            ("a", "10.0.0.1", "10.0.0.1/24,10.0.1.1/24"),
            ("b", "10.9.0.1", "10.9.0.1/24"),
            ("c", "10.9.0.2", "10.9.0.2/24"),
        ]);
        list[0].internal_ips.push("10.0.1.1".parse().unwrap());
        assert_eq!(
            told(&list),
            [format!(
                "a: it is in 10.0.0.0/24 and shares no layer-2 subnet with b, c: {END}"
            )]
        );
    }

    #[test]
    fn a_pair_that_is_apart_in_two_ways_is_named_at_one_of_them() {
        let mut list = nodes(&[
            ("a", "10.0.0.1", "10.0.0.1/24,10.2.0.1/24"),
            ("b", "10.1.0.1", "10.1.0.1/24"),
            ("c", "10.1.0.2", "10.1.0.2/24"),
            ("d", "10.2.0.2", "10.2.0.2/24"),
            ("e", "10.2.0.3", "10.2.0.3/24"),
        ]);
        list[0].internal_ips.push("10.2.0.1".parse().unwrap());
        let told = told(&list);
        let pairs = |a: &str, b: &str| {
            let named = told.iter().filter(|line| {
                let (name, text) = line.split_once(": ").unwrap();
                let with = text.split_once(" with ").unwrap().1;
                let with: Vec<&str> = with.split_once(':').unwrap().0.split(", ").collect();
                name == a && with.contains(&b) || name == b && with.contains(&a)
            });
            named.count()
        };
        assert_eq!((pairs("a", "b"), pairs("a", "c")), (1, 1), "{told:?}");
        assert_eq!((pairs("b", "d"), pairs("a", "d")), (1, 0), "{told:?}");
    }

    #[test]
    fn a_node_with_addresses_in_two_subnets_reaches_both_and_many_are_counted() {
        let mut list = nodes(&[
            ("a", "10.0.0.1", "10.0.0.1/24,10.0.1.9/24"),
            ("b", "10.0.0.2", "10.0.0.2/24"),
            ("c", "10.0.1.1", "10.0.1.1/24"),
        ]);
        list[0].internal_ips.push("10.0.1.9".parse().unwrap());
        let told_of = told(&list);
        let [line] = told_of.as_slice() else {
            panic!("{told_of:?}")
        };
        assert!(
            line.starts_with("b: ") && line.contains(" with c: "),
            "{line}"
        );
        let mut list: Vec<(String, String, String)> = (1..=9)
            .map(|n| {
                (
                    format!("n{n}"),
                    format!("10.0.0.{n}"),
                    format!("10.0.0.{n}/24"),
                )
            })
            .collect();
        list.push(("z".into(), "fd00::1".into(), "fd00::1/64".into()));
        list.push(("y".into(), "10.1.0.1".into(), "10.1.0.1/24".into()));
        let list: Vec<(&str, &str, &str)> =
            list.iter().map(|(a, b, c)| (&**a, &**b, &**c)).collect();
        assert_eq!(
            told(&nodes(&list)),
            [format!(
                "y: it is in 10.1.0.0/24 and shares no layer-2 subnet with n1, n2, n3, n4, n5 and 4 more: {END}"
            )]
        );
    }
}
