//! Many neighbors, and many changes: the far session never notices.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Bench, lacks_tools};
use kube_tests::until;

#[test]
fn a_thousand_neighbors_and_a_hundred_changes_a_second_disturb_no_session() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let since = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    a_hundred_changes_a_second_for_a_minute_are_a_few_reloads(&bench);
    bench.far_is_undisturbed(since);
    a_thousand_neighbors_are_loaded_and_told(&bench);
    bench.far_is_undisturbed(since);
}

fn a_hundred_changes_a_second_for_a_minute_are_a_few_reloads(bench: &Bench) {
    let before = bench.metric("noverlay_frr_reloads_total", "");
    let begun = Instant::now();
    // One kubectl a batch: a process for each change would be the limit.
    let mut number = 0_u32;
    while begun.elapsed() < Duration::from_secs(60) {
        let batch: String = (0..50)
            .map(|at| {
                number += 1;
                format!(
                    "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: churn-{at}, namespace: frr-k8s-system}}\nspec: {{bgp: {{routers: [{{asn: 64512, prefixes: [10.90.{}.0/24]}}]}}}}\n---\n",
                    number % 250
                )
            })
            .collect();
        bench.api.apply(&batch);
        let due = Duration::from_millis(u64::from(number) * 10);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let rate = f64::from(number) / begun.elapsed().as_secs_f64();
    let reloads = bench.metric("noverlay_frr_reloads_total", "") - before;
    println!("{number} changes at {rate:.0} a second, {reloads} reloads");
    assert!(number > 2000, "only {number} changes in a minute");
    // At least one each 3 s and its own time, and never one for each change.
    assert!((5.0..=25.0).contains(&reloads), "{reloads} reloads");
    let last = format!("network 10.90.{}.0/24", number % 250);
    bench.runs(&last, 20);
    bench.state_says("lastReloadResult", "success", 10);
    bench.api.kubectl(&[
        "-n",
        "frr-k8s-system",
        "delete",
        "frrconfiguration",
        "--field-selector",
        "metadata.name!=base",
        "--all",
        "--wait=false",
    ]);
    until("the churn's prefixes are gone", 20, || {
        if bench.has_line(&last) {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
}

fn a_thousand_neighbors_are_loaded_and_told(bench: &Bench) {
    let neighbors: String = (0..1000)
        .map(|n| {
            format!(
                "      - {{address: 10.20.{}.{}, asn: 64512, connectTime: 60s, toReceive: {{allowed: {{prefixes: [{{prefix: 10.128.0.0/16, ge: 24, le: 24}}]}}}}}}\n",
                n / 250,
                n % 250 + 1
            )
        })
        .collect();
    let begun = Instant::now();
    bench.object(
        "many",
        &format!("  bgp:\n    routers:\n    - asn: 64512\n      neighbors:\n{neighbors}"),
    );
    bench.runs("neighbor 10.20.3.250 remote-as 64512", 120);
    println!("1,000 neighbors after {:?}", begun.elapsed());
    bench.state_says("runningConfig", "neighbor 10.20.3.250 remote-as 64512", 60);
    bench.state_says("lastReloadResult", "success", 60);
    until("all sessions are told", 120, || {
        let sessions = bench.api.items("bgpsessionstates").len();
        if sessions == 1002 {
            Ok(())
        } else {
            Err(sessions.to_string())
        }
    });
    println!("1,000 sessions told after {:?}", begun.elapsed());
    bench.delete("many");
    until("the neighbors and their sessions are gone", 240, || {
        let left = bench.has_line("neighbor 10.20.3.250 remote-as 64512");
        let sessions = bench.api.items("bgpsessionstates").len();
        if !left && sessions == 2 {
            Ok(())
        } else {
            Err(format!("{left} {sessions}"))
        }
    });
    let lines = bench.frr.running().unwrap();
    assert!(!lines.iter().any(|line| line.contains("10.20.")));
    println!("all of them gone after {:?}", begun.elapsed());
}
