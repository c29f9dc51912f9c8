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
        let mut groups: BTreeMap<Prefix, BTreeSet<&NodeName>> = BTreeMap::new();
        let mut told: BTreeSet<(&NodeName, &NodeName)> = BTreeSet::new();
        for node in members {
            let of_family = node
                .internal_ips
                .iter()
                .filter(|ip| Family::of(**ip) == *family);
            // Of several any one may do.
            for subnet in of_family.filter_map(|ip| subnet(node, *ip)) {
                groups.entry(subnet).or_default().insert(&node.name);
            }
        }
        let mut by_size: Vec<(&Prefix, &BTreeSet<&NodeName>)> = groups.iter().collect();
        by_size.sort_by_key(|(subnet, names)| (names.len(), **subnet));
        for (at, (subnet, names)) in by_size.iter().enumerate() {
            let larger = by_size.iter().skip(at + 1);
            let others: BTreeSet<&NodeName> = larger
                .flat_map(|(_, names)| names.iter().copied())
                .collect();
            for name in *names {
                let reached: BTreeSet<&NodeName> = groups
                    .iter()
                    .filter(|(subnet, _)| {
                        let mut own = groups.iter().filter(|(_, group)| group.contains(name));
                        own.any(|(own, _)| own.overlaps(subnet))
                    })
                    .flat_map(|(_, group)| group)
                    .copied()
                    .collect();
                let apart = others.difference(&reached).copied();
                let apart: Vec<&NodeName> =
                    apart.filter(|other| told.insert((*name, *other))).collect();
                if !apart.is_empty() {
                    let text = sentence(subnet, &apart);
                    let said = out.entry(name).or_default();
                    if !said.is_empty() {
                        said.push_str("; ");
                    }
                    said.push_str(&text);
                }
            }
        }
    }
    out
}

/// The subnet of an address, as the node says.
fn subnet(node: &Node, ip: IpAddr) -> Option<Prefix> {
    let facts = [&node.primary, &node.host_cidrs];
    let mut listed = facts.into_iter().filter_map(|fact| fact.known()).flatten();
    let own = listed.find(|address| address.ip == ip)?;
    // One address alone says nothing of the link.
    (own.len < Family::of(ip).host_len()).then(|| own.subnet())
}

fn sentence(subnet: &Prefix, apart: &[&NodeName]) -> String {
    let named: Vec<&str> = apart.iter().take(NAMED).map(|name| name.as_str()).collect();
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
