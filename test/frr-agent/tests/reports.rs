//! The agent's reports: whose they are, and that they stand there whatever others do to them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use frr_agent_tests::{Bench, lacks_tools};
use kube_tests::until;

/// FRRNodeState as frr-k8s's controller makes it: its program is called so, and that becomes the field manager.
fn state_of_frr_k8s(bench: &Bench) {
    let yaml = "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {name: fn1}\nspec: {}\n";
    bench
        .api
        .try_kubectl_with(
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--field-manager=frr-k8s",
                "-f",
                "-",
            ],
            yaml,
        )
        .unwrap();
    bench.api.kubectl(&[
        "patch",
        "frrnodestate",
        "fn1",
        "--field-manager=frr-k8s",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"lastConversionResult":"theirs"}}"#,
    ]);
}

fn sessions_are(bench: &Bench, count: usize, seconds: u64) {
    until(&format!("{count} session states"), seconds, || {
        let states = bench.api.items("bgpsessionstates");
        let good = states.iter().all(|s| s["status"]["bgpStatus"].is_string());
        if good && states.len() == count {
            Ok(())
        } else {
            Err(format!("{states:#?}"))
        }
    });
}

fn readiness_says(bench: &Bench, status: &str, words: &str) {
    until(&format!("/readyz says {status} {words}"), 15, || {
        let text = bench.asked("/readyz", Duration::from_secs(5))?;
        if text.contains(&format!(" {status} ")) && text.contains(words) {
            Ok(())
        } else {
            Err(text)
        }
    });
}

#[test]
fn it_does_not_start_beside_frr_k8s() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    state_of_frr_k8s(&bench);
    bench.start_agent();
    bench.peer_with("", "");
    let why = bench.agent_ended(10);
    assert!(
        why.contains("FRRNodeState fn1 is written by \"frr-k8s\"")
            && why.contains("frr-k8s manages FRR on this node"),
        "{why}"
    );
    assert!(!bench.has_line("neighbor 172.31.10.2 remote-as 64512"));
}

#[test]
fn it_starts_whoever_else_has_touched_its_report_and_stands_aside_for_frr_k8s_alone() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    bench
        .api
        .kubectl(&["annotate", "frrnodestate", "fn1", "x=y"]);
    bench.kill_agent();
    bench.start_agent();
    bench.object(
        "first",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.91.0.0/24]}]}",
    );
    bench.runs("network 10.91.0.0/24", 20);
    bench.state_says("lastReloadResult", "success", 10);
    sessions_are(&bench, 2, 10);
    readiness_says(&bench, "200", "ok");

    // Somebody installs frr-k8s on the node.
    state_of_frr_k8s(&bench);
    readiness_says(&bench, "503", "frr-k8s is not on this node");
    assert!((bench.metric("noverlay_frr_managed_by_frr_k8s", "") - 1.0).abs() < 0.1);
    // Its own reports about sessions go: frr-k8s has some of its own.
    sessions_are(&bench, 0, 10);
    let reloads = bench.metric("noverlay_frr_reloads_total", "");
    let writes = bench.api.writes("frr-agent").len();
    bench.object(
        "second",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.92.0.0/24]}]}",
    );
    bench.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_secs(8));
    assert!(!bench.has_line("network 10.92.0.0/24"));
    assert!(
        !bench.has_line("network 10.91.0.0/24"),
        "FRR is frr-k8s's to configure"
    );
    assert!((bench.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5);
    assert_eq!(bench.state()["lastConversionResult"], "theirs");
    let after = bench.api.writes("frr-agent");
    assert_eq!(after.len(), writes, "{:?}", after.get(writes..));

    // And takes it away again, with what it left.
    bench.api.kubectl(&["delete", "frrnodestate", "fn1"]);
    bench.runs("network 10.92.0.0/24", 20);
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    sessions_are(&bench, 2, 10);
    readiness_says(&bench, "200", "ok");
}

#[test]
fn a_report_that_somebody_deletes_or_changes_is_written_again_and_goes_with_its_node() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    sessions_are(&bench, 2, 10);
    bench.api.kubectl(&["delete", "frrnodestate", "fn1"]);
    bench.state_says("lastReloadResult", "success", 15);
    bench.state_says("runningConfig", "neighbor 172.31.10.2 remote-as", 5);
    bench
        .api
        .kubectl(&["delete", "bgpsessionstates", "-A", "--all"]);
    sessions_are(&bench, 2, 15);
    bench.api.kubectl(&[
        "patch",
        "frrnodestate",
        "fn1",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"lastReloadResult":"a hand's"}}"#,
    ]);
    bench.state_says("lastReloadResult", "success", 15);

    // An agent may outlive its Node: nothing of it stays, and sessions go on.
    let since = bench.both_up();
    bench.api.kubectl(&["delete", "node", "fn1"]);
    until("no report is left", 15, || {
        let left = (
            bench.api.items("frrnodestates").len(),
            bench.api.items("bgpsessionstates").len(),
        );
        if left == (0, 0) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(bench.api.items("frrnodestates").len(), 0);
    assert_eq!(bench.api.items("bgpsessionstates").len(), 0);
    bench.far_is_undisturbed(since);
    bench.api.node("fn1", "172.31.10.1");
    bench.state_says("lastReloadResult", "success", 15);
    sessions_are(&bench, 2, 15);
    bench.far_is_undisturbed(since);
}
