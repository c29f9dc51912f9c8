//! What a scrape shows of ways, and that docs/operations.md has a line for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use model::{NetworkName, NodeName};
use plan_node::paths::{Load, Path, PathKey, Paths};
use prometheus::TextEncoder;

fn scraped(registry: &Registry) -> String {
    TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap()
}

fn ways(peers: &[(&str, &str)]) -> Paths {
    let load = Load {
        mtu: 9000,
        overhead: 0,
    };
    let one = |(node, to): &(&str, &str)| {
        let to: IpAddr = to.parse().unwrap();
        let path = Path {
            source: to,
            loads: Arc::new([(NetworkName::default_network(), load)].into()),
            ends: 65_535,
        };
        let node = NodeName::from(*node);
        (PathKey { node, to }, path)
    };
    peers.iter().map(one).collect()
}

#[test]
fn a_way_has_a_series_while_it_is_narrow_and_the_narrower_of_two_counts() {
    let registry = Registry::new();
    let metrics = PathMetrics::new(&registry).unwrap();
    let all = ways(&[("n2", "192.0.2.2"), ("n2", "192.0.2.3"), ("n3", "fd00::3")]);
    let mut prober = Prober::new(NodeName::from("n1"), Duration::from_secs(60));
    prober.set(&all, Duration::ZERO);
    for (second, passes) in (1..).zip([1500, 1400, 1300]) {
        let due = prober.begin(Duration::from_secs(second)).unwrap();
        prober.ended(&due, Some(Verdict::Narrow { passes }));
    }
    metrics.show(&prober);
    let text = scraped(&registry);
    for line in [
        "noverlay_path_mtu_bytes{family=\"ipv4\",peer=\"n2\"} 1400\n",
        "noverlay_path_mtu_bytes{family=\"ipv6\",peer=\"n3\"} 1300\n",
        "noverlay_path_mtu_peers{state=\"narrow\"} 3\n",
        "noverlay_path_mtu_peers{state=\"wide\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    prober.set(&ways(&[("n3", "fd00::3")]), Duration::ZERO);
    metrics.show(&prober);
    let text = scraped(&registry);
    assert!(
        !text.contains("peer=\"n2\"") && text.contains("peer=\"n3\""),
        "{text}"
    );
}

#[test]
fn each_has_a_line_in_the_document() {
    let registry = Registry::new();
    let metrics = PathMetrics::new(&registry).unwrap();
    metrics.count(Reply::Failed);
    metrics.peers.with_label_values(&["wide"]).set(1);
    metrics.bytes.with_label_values(&["n2", "ipv4"]).set(1500);
    let document = include_str!("../../../../../docs/operations.md");
    let families = registry.gather();
    assert_eq!(families.len(), 3);
    for family in families {
        let row = format!("\n| `{}` |", family.name());
        assert!(document.contains(&row), "{row}");
    }
}
