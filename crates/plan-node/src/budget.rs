//! How many imported routes a network may have on its gateway router.
//! In: an import plan, the limit, the network's subnets. Out: the plan cut to the limit; what was cut stands among the skipped.
//! Invariant: a pod subnet is never cut for another route; what stays depends on the set of routes alone, not on who came first.
//! Not here: which routes are eligible (`imports`).
//!
//! Order, first to stay: pod subnets, then shorter prefixes (they cover more), then the order of prefixes.
//! The unit is a destination: all its next hops stay or go.

use std::collections::BTreeSet;

use model::address::Prefix;

use crate::imports::ImportPlan;

/// Skipped: more destinations than `[limits] max-imported-routes`.
pub const OVER_LIMIT: &str = "over_limit";

/// Cuts a plan to `limit` destinations. `pods` are the network's subnets. Source: `[limits] max-imported-routes`.
pub fn cut(plan: &mut ImportPlan, limit: usize, pods: &[Prefix]) {
    // At most one destination a row: the usual case costs nothing.
    if plan.desired.len() <= limit {
        return;
    }
    let mut prefixes: Vec<Prefix> = plan.desired.iter().map(|row| row.prefix).collect();
    prefixes.dedup();
    if prefixes.len() <= limit {
        return;
    }
    let is_pod = |prefix: &Prefix| pods.iter().any(|subnet| subnet.contains(prefix));
    prefixes.sort_by_cached_key(|prefix| (!is_pod(prefix), prefix.bits(), *prefix));
    let mut over: Vec<Prefix> = prefixes.split_off(limit);
    over.sort_unstable();
    let gone: BTreeSet<Prefix> = over.iter().copied().collect();
    plan.desired.retain(|row| !gone.contains(&row.prefix));
    for prefix in over {
        plan.skip(OVER_LIMIT, prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::nb::ImportedRoute;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn mk_plan<'a>(rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> ImportPlan {
        let row = |(to, via): (&str, &str)| ImportedRoute {
            prefix: prefix(to),
            nexthop: via.parse().unwrap(),
        };
        ImportPlan {
            desired: rows.into_iter().map(row).collect(),
            ..ImportPlan::default()
        }
    }

    fn kept(plan: &ImportPlan) -> Vec<String> {
        let rows = plan.desired.iter();
        rows.map(|row| format!("{} {}", row.prefix, row.nexthop))
            .collect()
    }

    #[test]
    fn pod_subnets_stay_first_then_shorter_prefixes_and_all_next_hops_of_a_destination() {
        let rows = [
            ("10.0.0.0/30", "192.0.2.1"),
            ("10.0.0.0/8", "192.0.2.1"),
            ("10.0.0.0/8", "192.0.2.2"),
            ("172.16.0.0/12", "192.0.2.1"),
            ("10.128.3.0/24", "192.0.2.3"),
        ];
        let pods = [prefix("10.128.0.0/16")];
        let mut plan = mk_plan(rows);
        cut(&mut plan, 2, &pods);
        assert_eq!(
            kept(&plan),
            [
                "10.0.0.0/8 192.0.2.1",
                "10.0.0.0/8 192.0.2.2",
                "10.128.3.0/24 192.0.2.3"
            ]
        );
        let skipped = &plan.skipped[OVER_LIMIT];
        assert_eq!(skipped.count, 2);
        assert_eq!(
            skipped.first,
            [prefix("10.0.0.0/30"), prefix("172.16.0.0/12")]
        );
        let mut whole = mk_plan(rows);
        cut(&mut whole, 4, &pods);
        assert_eq!(whole, mk_plan(rows), "five rows of four destinations fit");
        cut(&mut whole, 0, &pods);
        assert!(whole.desired.is_empty());
    }

    proptest! {
        #[test]
        fn a_pod_subnet_is_never_cut_for_another_route(
            others in prop::collection::btree_set((0_u32..1 << 24, 8_u8..33), 0..60),
            nodes in prop::collection::btree_set(0_u8..=255, 0..20),
            limit in 0_usize..60,
        ) {
            let pods = [prefix("10.128.0.0/16")];
            let mut texts: BTreeSet<String> = others
                .iter()
                .map(|(bits, length)| {
                    // 64.0.0.0/2 and up: none of them lies in the pods' subnet.
                    let ip = std::net::Ipv4Addr::from_bits(0x4000_0000 | bits << 6);
                    Prefix::new(ip.into(), *length).unwrap().to_string()
                })
                .collect();
            let subnets: BTreeSet<String> = nodes.iter().map(|n| format!("10.128.{n}.0/24")).collect();
            texts.extend(subnets.iter().cloned());
            let mut plan = mk_plan(texts.iter().map(|to| (to.as_str(), "192.0.2.1")));
            cut(&mut plan, limit, &pods);
            let left = plan.desired.iter().filter(|row| pods[0].contains(&row.prefix)).count();
            prop_assert_eq!(plan.desired.len(), texts.len().min(limit));
            prop_assert_eq!(left, subnets.len().min(limit));
            let mut again = plan.clone();
            cut(&mut again, limit, &pods);
            prop_assert_eq!(again, plan);
        }
    }
}
