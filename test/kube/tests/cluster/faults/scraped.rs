//! What a scrape shows of real work: durations, writes and problems, beside the API server's own record.

use std::collections::BTreeMap;

use kube_tests::{ApiServer, tools, until};

use super::events::without;
use super::process::{Daemon, settled, writes_of};

/// The series of a metric, by their labels as they are written.
fn series(daemon: &Daemon, name: &str) -> BTreeMap<String, f64> {
    let (_, body) = daemon.get("/metrics").unwrap();
    let of = |line: &str| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        let labels = labels.strip_prefix('{')?.strip_suffix('}')?;
        Some((labels.to_owned(), value.parse().ok()?))
    };
    body.lines().filter_map(of).collect()
}

/// Writes of a kind that ended in one of these ways.
fn writes(daemon: &Daemon, kind: &str, results: &[&str]) -> f64 {
    let all = series(daemon, "noverlay_cluster_manager_object_writes_total");
    let of = |result: &&str| all.get(&format!("kind=\"{kind}\",result=\"{result}\""));
    results.iter().filter_map(of).sum()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn a_scrape_shows_durations_writes_and_problems_as_the_api_server_saw_them() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let daemon = Daemon::managed(&api, "a");
    settled(&api, 3, 30);
    // Nobody can peer with it.
    api.node("n4", "");
    let left_out = "kind=\"Node\",reason=\"NodeLeftOut\"";
    let problems = || series(&daemon, "noverlay_cluster_manager_problems");
    until("a node is left out", 10, || {
        let seen = problems();
        let is = seen.get(left_out) == Some(&1.0);
        if is { Ok(()) } else { Err(format!("{seen:?}")) }
    });

    // What is counted is what the API server has in its audit log.
    let kinds = [
        ("Node", "nodes"),
        ("FRRConfiguration", "frrconfigurations"),
        ("RouteAdvertisements", "routeadvertisements"),
        (
            "NetworkAttachmentDefinition",
            "network-attachment-definitions",
        ),
    ];
    let good = ["applied", "status", "released", "deleted"];
    let agree = |what: &str| {
        until(what, 10, || {
            let audited = writes_of(&api, "cluster-manager");
            for (kind, resource) in kinds {
                let of_kind = audited.iter().filter(|(words, _)| {
                    let mut parts = words.split([' ', '/']).skip(1);
                    parts.next() == Some(resource)
                });
                let (well, ill): (Vec<_>, Vec<_>) = of_kind.partition(|(_, code)| *code < 300);
                let seen = (
                    writes(&daemon, kind, &good),
                    writes(&daemon, kind, &["conflict", "refused"]),
                );
                // Numbers of a few dozen: exact.
                #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
                let wanted = (well.len() as f64, ill.len() as f64);
                if seen != wanted || wanted.0 == 0.0 {
                    return Err(format!("{kind}: {seen:?}, audited {wanted:?}"));
                }
            }
            Ok(())
        });
    };
    agree("the first writes");
    assert_eq!(writes(&daemon, "FRRConfiguration", &["deleted"]), 0.0);
    assert!(writes(&daemon, "RouteAdvertisements", &["status"]) >= 1.0);

    // Each reconcile has its duration.
    let durations = "noverlay_cluster_manager_reconcile_duration_seconds";
    until("durations", 10, || {
        // Two scrapes: a pass may end between them.
        let counts = series(&daemon, &format!("{durations}_count"));
        let passes = series(&daemon, "noverlay_cluster_manager_reconciles_total");
        for reconciler in [
            "networks",
            "fabric",
            "sessions",
            "user_networks",
            "advertisement",
            "attachment",
            "leftovers",
        ] {
            let label = format!("reconciler=\"{reconciler}\"");
            let count = counts.get(&label).copied().unwrap_or_default();
            let of = passes
                .iter()
                .filter(|(labels, _)| labels.starts_with(&format!("{label},")));
            let wanted: f64 = of.map(|(_, value)| value).sum();
            if count < 1.0 || (count - wanted).abs() > 0.0 {
                return Err(format!("{reconciler}: {count} durations, {wanted} passes"));
            }
        }
        Ok(())
    });
    let sums = series(&daemon, &format!("{durations}_sum"));
    let writing = sums.get("reconciler=\"advertisement\"").copied();
    assert!(writing.is_some_and(|s| s > 0.001), "it wrote: {sums:?}");

    // The problem goes with its cause, and its series with it; what goes is counted, and so is what is refused.
    let address = r#"{"status":{"addresses":[{"type":"InternalIP","address":"172.30.0.4"}]}}"#;
    let patch = ["patch", "node", "n4", "--subresource=status"];
    api.kubectl(&[&patch[..], &["--type=merge", "-p", address]].concat());
    settled(&api, 4, 30);
    until("its series is gone", 10, || {
        let seen = problems();
        if seen.contains_key(left_out) {
            Err(format!("{seen:?}"))
        } else {
            Ok(())
        }
    });
    api.kubectl(&["delete", "node", "n4"]);
    until("the objects of a node that went", 20, || {
        let deleted = writes(&daemon, "FRRConfiguration", &["deleted"]);
        if deleted >= 2.0 {
            Ok(())
        } else {
            Err(format!("{deleted}"))
        }
    });
    agree("the last writes");
    let rights = without(&api, "routeadvertisements/status");
    let role = ["patch", "clusterrole", "noverlay-cluster-manager"];
    api.kubectl(&[&role[..], &["--type=json", "-p", &rights]].concat());
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: mine}\nspec: {targetVRF: red, networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {}, advertisements: [PodNetwork]}\n");
    until("a status that is refused", 20, || {
        let refused = writes(&daemon, "RouteAdvertisements", &["refused"]);
        if refused >= 1.0 {
            Ok(())
        } else {
            Err(daemon.said())
        }
    });
    let of_mine = |labels: &String| labels.starts_with("kind=\"RouteAdvertisements\"");
    assert!(problems().keys().any(of_mine), "{:?}", problems());
    api.kubectl(&["delete", "ra", "mine"]);
    until("its problems go with it", 20, || {
        let seen = problems();
        if seen.keys().any(of_mine) {
            Err(format!("{seen:?}"))
        } else {
            Ok(())
        }
    });
}
