//! How many problems there are, by the kind of the object that has them and the reason.
//! In: the problems that each key's last pass found. Out: a gauge's series.
//! Invariant: what several keys found counts once; a series goes with the last of its problems.
//! Not here: events, conditions, logs.

use std::collections::{BTreeMap, BTreeSet};

use model::Problem;
use prometheus::IntGaugeVec;

use super::ClusterReconciler;
use crate::key::Key;

/// What each key's last pass found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: BTreeMap<Key, BTreeSet<Problem>>,
    /// How many there are, by kind and reason.
    told: BTreeMap<(String, &'static str), i64>,
}

impl Problems {
    /// Takes what a pass of `key` found in the place of what the one before found.
    pub(super) fn set(&mut self, key: Key, problems: &[Problem], gauge: &IntGaugeVec) {
        let now: BTreeSet<Problem> = problems.iter().cloned().collect();
        let before = if now.is_empty() {
            self.found.remove(&key)
        } else {
            self.found.insert(key.clone(), now)
        };
        if before.as_ref() != self.found.get(&key) {
            self.count(gauge);
        }
        // Also what is as before: the series go wherever leading lapses, whether or not a pass was there to see it.
        for ((kind, reason), count) in &self.told {
            gauge.with_label_values(&[kind, *reason]).set(*count);
        }
    }

    fn count(&mut self, gauge: &IntGaugeVec) {
        let all: BTreeSet<&Problem> = self.found.values().flatten().collect();
        let mut counts: BTreeMap<(String, &'static str), i64> = BTreeMap::new();
        for problem in all {
            let kind = problem.subject.split('/').next().unwrap_or_default();
            let count = counts.entry((kind.to_owned(), problem.reason));
            *count.or_default() += 1;
        }
        for (kind, reason) in self.told.keys().filter(|told| !counts.contains_key(told)) {
            drop(gauge.remove_label_values(&[kind, *reason]));
        }
        self.told = counts;
    }
}

impl ClusterReconciler {
    /// What a key's pass found wrong, for the metrics.
    pub(super) fn tell_problems(&mut self, key: Key, problems: &[Problem]) {
        let gauge = &self.clients.metrics.problems;
        self.problems.set(key, problems, gauge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use prometheus::{Registry, TextEncoder};

    fn left_out(node: &str) -> Problem {
        Problem::new(format!("Node/{node}"), "NodeLeftOut", "no address")
    }

    #[test]
    fn a_problem_counts_once_and_its_series_goes_with_the_last_of_them() {
        let registry = Registry::new();
        let gauge = Metrics::new(&registry).unwrap().problems;
        let lines = || {
            let text = TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap();
            let lines = text.lines().map(str::to_owned);
            let lines = lines.filter(|l| l.starts_with("noverlay_cluster_manager_problems{"));
            lines.collect::<Vec<_>>()
        };
        let mut problems = Problems::default();
        let refused = Problem::new("RouteAdvertisements/a", "LeftOut", "no subnet");
        let of = |name: &str| Key::Advertisement(name.to_owned());
        problems.set(
            Key::Fabric,
            &[left_out("n1"), left_out("n2"), left_out("n2")],
            &gauge,
        );
        problems.set(Key::Networks, &[left_out("n2"), left_out("n3")], &gauge);
        problems.set(of("a"), &[refused], &gauge);
        let (nodes, ras) = (
            "noverlay_cluster_manager_problems{kind=\"Node\",reason=\"NodeLeftOut\"}",
            "noverlay_cluster_manager_problems{kind=\"RouteAdvertisements\",reason=\"LeftOut\"} 1",
        );
        assert_eq!(lines(), [format!("{nodes} 3"), ras.to_owned()]);
        problems.set(Key::Networks, &[], &gauge);
        assert_eq!(lines(), [format!("{nodes} 2"), ras.to_owned()]);
        problems.set(of("a"), &[], &gauge);
        assert_eq!(lines(), [format!("{nodes} 2")]);
        problems.set(Key::Fabric, &[], &gauge);
        assert!(lines().is_empty());
        assert!(problems.found.is_empty() && problems.told.is_empty());
    }

    #[test]
    fn what_a_pass_finds_again_is_told_again_where_a_lapse_of_leading_took_the_series_away() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let mut problems = Problems::default();
        let mut pass = || {
            problems.set(Key::Fabric, &[left_out("n1")], &metrics.problems);
            registry
                .gather()
                .iter()
                .filter(|family| family.name() == "noverlay_cluster_manager_problems")
                .count()
        };
        assert_eq!(pass(), 1);
        metrics.follows();
        assert_eq!(pass(), 1);
    }
}
