//! Many neighbors, and many changes: the far session never notices.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api::frr_configuration::FRRConfiguration;
use frr_agent_tests::{Fixture, lacks_tools};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_tests::until;
use serde_json::json;
use tokio::sync::Mutex;

/// Seconds that a busy machine may take for anything here; what is printed is measured, what is asserted has this much time.
const LIMIT: u64 = 300;

#[test]
fn a_thousand_neighbors_and_a_hundred_changes_a_second_disturb_no_session() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let since = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", LIMIT);
    a_hundred_changes_a_second_for_a_minute_are_a_few_reloads(&fixture);
    fixture.far_is_undisturbed(since);
    a_thousand_neighbors_are_loaded_and_reported(&fixture);
    fixture.far_is_undisturbed(since);
}

/// As many changes, one each 10 ms, to 50 objects in turn.
/// How many of them the server took: one that a later one has taken the place of before its turn is not sent.
async fn churn(kubeconfig: &Path, count: u32) -> u32 {
    let client = kube_edge::connect(Some(kubeconfig)).await.unwrap();
    let api: Api<FRRConfiguration> = Api::namespaced(client, "frr-k8s-system");
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let mut running = tokio::task::JoinSet::new();
    // Of one object, one change at a time is under way: else an earlier one could reach the server after a later one.
    let latest: Arc<Vec<(AtomicU32, Mutex<()>)>> =
        Arc::new((0..50).map(|_| Default::default()).collect());
    for number in 0..count {
        tick.tick().await;
        let (api, latest) = (api.clone(), Arc::clone(&latest));
        let of_object = usize::try_from(number % 50).unwrap();
        latest[of_object].0.store(number, Ordering::Relaxed);
        running.spawn(async move {
            let name = format!("churn-{}", number % 50);
            let prefix = format!("10.90.{}.0/24", number % 250);
            let object = json!({
                "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
                "metadata": {"name": name},
                "spec": {"bgp": {"routers": [{"asn": 64512, "prefixes": [prefix]}]}},
            });
            let params = PatchParams::apply("churn").force();
            // A busy machine may be late with a connection; what a later change has taken the place of need not get through.
            let (wanted, turn) = &latest[of_object];
            let _turn = turn.lock().await;
            let mut last = Ok(0);
            for _ in 0..25 {
                if wanted.load(Ordering::Relaxed) != number {
                    return Ok(0);
                }
                let patched = api.patch(&name, &params, &Patch::Apply(&object)).await;
                last = patched.map(|_| 1);
                if last.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            last
        });
    }
    let mut taken = 0;
    while let Some(done) = running.join_next().await {
        taken += done.unwrap().expect("a change did not get through");
    }
    taken
}

fn a_hundred_changes_a_second_for_a_minute_are_a_few_reloads(fixture: &Fixture) {
    const CHANGES: u32 = 6000;
    let before = fixture.metric("noverlay_frr_reloads_total", "");
    let begun = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let taken = runtime.block_on(churn(&fixture.api.kubeconfig("admin"), CHANGES));
    let seconds = begun.elapsed().as_secs_f64();
    let reloads = fixture.metric("noverlay_frr_reloads_total", "") - before;
    println!(
        "{taken} of {CHANGES} changes taken by the API server, {:.0} a second, {reloads} reloads",
        f64::from(taken) / seconds
    );
    // A busy machine takes fewer: ten a second are many times what is reloaded.
    assert!(taken * 10 > CHANGES, "{taken}: this was no load");
    // One each 3 s and its own time, never one for each change.
    assert!(
        reloads >= 3.0 && reloads <= seconds / 3.0 + 2.0,
        "{reloads} reloads in {seconds} s"
    );
    let wanted: Vec<String> = (CHANGES - 50..CHANGES)
        .map(|number| format!("network 10.90.{}.0/24", number % 250))
        .collect();
    until(
        "FRR runs the last state of each object, and no other",
        LIMIT,
        || {
            let lines = fixture.frr.running().map_err(|e| e.to_string())?;
            let has = |line: &String| lines.iter().any(|l| l.trim() == line);
            let all = lines
                .iter()
                .filter(|l| l.contains("network 10.90."))
                .count();
            if wanted.iter().all(has) && all == wanted.len() {
                Ok(())
            } else {
                Err(all.to_string())
            }
        },
    );
    fixture.state_says("lastReloadResult", "success", LIMIT);
    let names: Vec<String> = (0..50).map(|at| format!("churn-{at}")).collect();
    let mut arguments = vec![
        "-n",
        "frr-k8s-system",
        "delete",
        "frrconfiguration",
        "--wait=false",
    ];
    arguments.extend(names.iter().map(String::as_str));
    fixture.api.kubectl(&arguments);
    until("the churn's prefixes are gone", LIMIT, || {
        let lines = fixture.frr.running().map_err(|e| e.to_string())?;
        let left = lines
            .iter()
            .filter(|l| l.contains("network 10.90."))
            .count();
        if left == 0 {
            Ok(())
        } else {
            Err(left.to_string())
        }
    });
}

fn a_thousand_neighbors_are_loaded_and_reported(fixture: &Fixture) {
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
    fixture.object(
        "many",
        &format!("  bgp:\n    routers:\n    - asn: 64512\n      neighbors:\n{neighbors}"),
    );
    fixture.runs("neighbor 10.20.3.250 remote-as 64512", LIMIT);
    println!("1,000 neighbors after {:?}", begun.elapsed());
    fixture.state_says(
        "runningConfig",
        "neighbor 10.20.3.250 remote-as 64512",
        LIMIT,
    );
    fixture.state_says("lastReloadResult", "success", LIMIT);
    until("all sessions are reported", LIMIT, || {
        let sessions = fixture.api.items("bgpsessionstates").len();
        if sessions == 1002 {
            Ok(())
        } else {
            Err(sessions.to_string())
        }
    });
    println!("1,000 sessions reported after {:?}", begun.elapsed());
    fixture.delete("many");
    until("the neighbors and their sessions are gone", LIMIT, || {
        let lines = fixture.frr.running().map_err(|e| e.to_string())?;
        let left = lines.iter().filter(|line| line.contains("10.20.")).count();
        let sessions = fixture.api.items("bgpsessionstates").len();
        if left == 0 && sessions == 2 {
            Ok(())
        } else {
            Err(format!("{left} {sessions}"))
        }
    });
    println!("all of them gone after {:?}", begun.elapsed());
}

/// 100 neighbors with the options of a profile, or bare.
fn mesh(options: &str) -> String {
    let neighbors: String = (1..=100)
        .map(|n| {
            format!(
                "      - {{address: 10.21.0.{n}, asn: 64512, toReceive: {{allowed: {{mode: all}}}}{options}}}\n"
            )
        })
        .collect();
    format!(
        "  bgp:\n    bfdProfiles: [{{name: fast, receiveInterval: 250, transmitInterval: 250}}]\n    routers:\n    - asn: 64512\n      neighbors:\n{neighbors}"
    )
}

#[test]
fn a_hundred_neighbors_lose_the_options_of_a_profile_within_one_reload() {
    if lacks_tools() {
        return;
    }
    // Half of the time that a reload has by default.
    let mut fixture = Fixture::start("reload-timeout = 30");
    fixture.start_agent();
    fixture.peer_with("", "");
    let since = fixture.both_up();
    fixture.object(
        "mesh",
        &mesh(", holdTime: 9s, keepaliveTime: 3s, connectTime: 2s, enableGracefulRestart: true, bfdProfile: fast"),
    );
    for line in [
        "timers 3 9",
        "timers connect 2",
        "graceful-restart",
        "bfd profile fast",
    ] {
        fixture.runs(&format!("neighbor 10.21.0.100 {line}"), 60);
    }
    fixture.state_says("lastReloadResult", "success", LIMIT);
    let failures = fixture.metric("noverlay_frr_reloads_total", "failure");
    let begun = Instant::now();
    fixture.object("mesh", &mesh(""));
    until("the options are gone", LIMIT, || {
        let lines = fixture.frr.running().map_err(|e| e.to_string())?;
        let left = lines
            .iter()
            .filter(|l| l.contains("neighbor 10.21.0."))
            .filter(|l| l.contains("timers") || l.contains("graceful") || l.contains("bfd"))
            .count();
        if left == 0 {
            Ok(())
        } else {
            Err(format!("{left} lines"))
        }
    });
    println!(
        "the options of 100 neighbors gone after {:?}",
        begun.elapsed()
    );
    fixture.state_says("lastReloadResult", "success", LIMIT);
    let now = fixture.metric("noverlay_frr_reloads_total", "failure");
    assert!((now - failures).abs() < 0.5, "a reload was ended");
    assert!(fixture.has_line("neighbor 10.21.0.100 remote-as 64512"));
    fixture.far_is_undisturbed(since);
}
