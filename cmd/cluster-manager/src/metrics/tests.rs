//! What a scrape shows, and that docs/operations.md has a line for it.

use super::*;
use prometheus::TextEncoder;
use std::collections::BTreeSet;

fn scraped(registry: &Registry) -> String {
    let families = registry.gather();
    TextEncoder::new().encode_to_string(&families).unwrap()
}

#[test]
fn durations_are_counted_by_reconciler_in_buckets_from_a_millisecond_to_thirty_seconds() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    metrics.reconciled("networks", "done", Duration::from_micros(700));
    metrics.reconciled("networks", "requeue", Duration::from_millis(250));
    metrics.reconciled("networks", "done", Duration::from_secs(45));
    metrics.reconciled("fabric", "done", Duration::from_secs(29));
    let text = scraped(&registry);
    let name = "noverlay_cluster_manager_reconcile_duration_seconds";
    for (reconciler, le, count) in [
        ("networks", "0.001", 1),
        ("networks", "0.1", 1),
        ("networks", "0.3", 2),
        ("networks", "30", 2),
        ("networks", "+Inf", 3),
        ("fabric", "10", 0),
        ("fabric", "30", 1),
    ] {
        let line = format!("{name}_bucket{{reconciler=\"{reconciler}\",le=\"{le}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    let reconciles = "noverlay_cluster_manager_reconciles_total{reconciler=\"networks\"";
    assert!(
        text.contains(&format!("{reconciles},result=\"done\"}} 2\n")),
        "{text}"
    );
}

#[test]
fn subnets_and_networks_are_counted_and_those_that_are_gone_are_not_told_of() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    let of = |name: &str, total, given| {
        let key = (NetworkName::from(name), Family::V4);
        (key, Usage { total, given })
    };
    metrics
        .networks
        .tell_usage(&[of("default", 512, 3), of("cluster_udn_red", 256, 2)].into());
    metrics.networks.tell_usage(&[of("default", 512, 4)].into());
    let text = scraped(&registry);
    let labels = "{family=\"IPv4\",network=\"default\"}";
    for line in [
        format!("noverlay_node_subnets{labels} 512\n"),
        format!("noverlay_node_subnets_allocated{labels} 4\n"),
    ] {
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(!text.contains("cluster_udn_red"), "{text}");
    metrics.follows();
    assert!(!scraped(&registry).contains("noverlay_node_subnets"));
}

#[test]
fn writes_are_counted_by_kind_and_outcome() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    for outcome in Outcome::ALL {
        metrics.wrote("Node", outcome);
    }
    metrics.wrote("Node", Outcome::Conflict);
    metrics.wrote("FRRConfiguration", Outcome::Applied);
    let text = scraped(&registry);
    let name = "noverlay_cluster_manager_object_writes_total";
    for (kind, result, count) in [
        ("Node", "applied", 1),
        ("Node", "deleted", 1),
        ("Node", "released", 1),
        ("Node", "status", 1),
        ("Node", "conflict", 2),
        ("Node", "refused", 1),
        ("Node", "unanswered", 1),
        ("FRRConfiguration", "applied", 1),
    ] {
        let line = format!("{name}{{kind=\"{kind}\",result=\"{result}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn the_document_has_a_line_for_each_metric_and_no_other_of_this_daemon() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    // A family without series is not gathered.
    metrics.reconciled("networks", "done", Duration::ZERO);
    metrics.wrote("Node", Outcome::Applied);
    for of_two in [
        &metrics.condition,
        &metrics.network_condition,
        &metrics.problems,
    ] {
        of_two.with_label_values(&["a", "b"]).set(1);
    }
    metrics.kinds_missing.with_label_values(&["a"]).set(1);
    let families = registry.gather();
    let names = families.iter().map(|family| family.name().to_owned());
    let ours: BTreeSet<String> = names.filter(|n| n.starts_with("noverlay_")).collect();
    assert_eq!(ours.len(), 11);
    let document = include_str!("../../../../docs/operations.md");
    let rows = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    let missing: Vec<&String> = ours.difference(&documented).collect();
    assert!(missing.is_empty(), "not in the document: {missing:?}");
    let of_this = documented
        .iter()
        .filter(|name| name.starts_with("noverlay_cluster_manager_"));
    let gone: Vec<&String> = of_this.filter(|name| !ours.contains(*name)).collect();
    assert!(gone.is_empty(), "in the document only: {gone:?}");
}

#[test]
fn a_replica_that_follows_reports_no_state() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry).unwrap();
    let problems = metrics.problems.with_label_values(&["Node", "NodeLeftOut"]);
    problems.set(4);
    metrics.leader.set(1);
    metrics.follows();
    let text = scraped(&registry);
    assert!(text.contains("noverlay_cluster_manager_leader 0\n"));
    assert!(!text.contains("NodeLeftOut"), "{text}");
}
