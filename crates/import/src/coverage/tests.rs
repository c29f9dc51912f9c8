//! What counts as reached.

use super::*;

/// A routing table: what it forwards, what it drops. Where both have one prefix, the route counts.
#[derive(Default)]
struct Reach {
    routes: BTreeSet<Prefix>,
    discards: BTreeSet<Prefix>,
}

impl Reach {
    fn at(&self, prefix: &Prefix) -> Option<bool> {
        let dropped = || self.discards.contains(prefix).then_some(false);
        self.routes
            .contains(prefix)
            .then_some(true)
            .or_else(dropped)
    }

    fn covers(&self, to: &Prefix) -> bool {
        covers(to, |prefix| self.at(prefix))
    }
}

fn evaluated(expected: &BTreeMap<NodeName, Vec<Prefix>>, kernel: &Reach, ovn: &Reach) -> Coverage {
    evaluate(expected, |p| kernel.at(p), |p| ovn.at(p))
}

fn prefixes(texts: &[&str]) -> BTreeSet<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn reach(routes: &[&str], discards: &[&str]) -> Reach {
    Reach {
        routes: prefixes(routes),
        discards: prefixes(discards),
    }
}

fn others(subnets: &[(&str, &str)]) -> BTreeMap<NodeName, Vec<Prefix>> {
    let mut nodes: BTreeMap<NodeName, Vec<Prefix>> = BTreeMap::new();
    for (node, subnet) in subnets {
        nodes
            .entry(NodeName::from(*node))
            .or_default()
            .push(subnet.parse().unwrap());
    }
    nodes
}

#[test]
fn an_exact_route_an_aggregate_and_nothing_else_cover() {
    let to = "10.128.2.0/24".parse().unwrap();
    assert!(reach(&["10.128.2.0/24"], &[]).covers(&to));
    assert!(reach(&["10.128.0.0/14"], &[]).covers(&to));
    assert!(!reach(&["0.0.0.0/0"], &[]).covers(&to));
    assert!(!reach(&["10.128.2.0/25", "10.128.3.0/24"], &[]).covers(&to));
    assert!(!reach(&[], &["10.128.0.0/16"]).covers(&to));
}

#[test]
fn a_discard_hides_shorter_routes_and_is_beaten_by_longer_ones() {
    let to = "10.128.2.0/24".parse().unwrap();
    assert!(!reach(&["10.0.0.0/8"], &["10.128.0.0/16"]).covers(&to));
    assert!(reach(&["10.128.2.0/23"], &["10.128.0.0/16"]).covers(&to));
    assert!(reach(&["10.128.0.0/16"], &["10.128.0.0/16"]).covers(&to));
}

#[test]
fn gaps_are_reported_in_words() {
    let expected = others(&[
        ("worker-7", "10.128.14.0/23"),
        ("worker-8", "10.128.16.0/23"),
        ("worker-9", "10.128.18.0/23"),
    ]);
    let coverage = evaluated(
        &expected,
        &reach(&["10.128.14.0/23"], &[]),
        &reach(&["10.128.16.0/23"], &["10.128.0.0/14"]),
    );
    assert_eq!(
        (coverage.expected, coverage.in_kernel, coverage.in_ovn),
        (3, 1, 1)
    );
    assert_eq!(
        coverage.missing,
        [
            "worker-7 10.128.14.0/23: in kernel, not in OVN",
            "worker-8 10.128.16.0/23: in OVN, not in kernel",
            "worker-9 10.128.18.0/23: neither in kernel nor in OVN",
        ]
    );
    assert!(!coverage.is_complete());
}

#[test]
fn the_first_ten_gaps_are_named() {
    let subnets: Vec<(String, String)> = (0..30)
        .map(|n| (format!("w{n:02}"), format!("10.128.{n}.0/24")))
        .collect();
    let expected = others(
        &subnets
            .iter()
            .map(|(node, subnet)| (node.as_str(), subnet.as_str()))
            .collect::<Vec<_>>(),
    );
    let coverage = evaluated(&expected, &Reach::default(), &Reach::default());
    assert_eq!(coverage.missing.len(), 10);
    assert!(coverage.missing[0].starts_with("w00 "));
}

#[test]
fn the_digest_follows_destinations_and_their_state() {
    let one = others(&[("n2", "10.128.2.0/24")]);
    let two = others(&[("n2", "10.128.2.0/24"), ("n3", "10.128.3.0/24")]);
    let both = reach(&["10.128.2.0/24", "10.128.3.0/24"], &[]);
    let digest = |expected: &BTreeMap<NodeName, Vec<Prefix>>, kernel: &Reach| {
        evaluated(expected, kernel, &both).digest
    };
    assert_eq!(digest(&one, &both), digest(&one, &both));
    assert_ne!(digest(&one, &both), digest(&two, &both));
    assert_ne!(digest(&one, &both), digest(&one, &Reach::default()));
}

#[test]
fn a_lone_node_is_complete() {
    let coverage = evaluated(&BTreeMap::new(), &Reach::default(), &Reach::default());
    assert!(coverage.is_complete());
    assert_eq!(coverage.expected, 0);
}
