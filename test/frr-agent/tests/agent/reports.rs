//! The agent's reports: whose they are, and that they stand there whatever others do to them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use frr_agent_tests::{Fixture, lacks_tools};
use kube_tests::until;

/// FRRNodeState as frr-k8s's controller makes it: its program is called so, and that becomes the field manager.
fn state_of_frr_k8s(fixture: &Fixture) {
    let yaml = "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {name: fn1}\nspec: {}\n";
    fixture
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
    fixture.api.kubectl(&[
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

fn sessions_are(fixture: &Fixture, count: usize, seconds: u64) {
    until(&format!("{count} session states"), seconds, || {
        let states = fixture.api.items("bgpsessionstates");
        let good = states.iter().all(|s| s["status"]["bgpStatus"].is_string());
        if good && states.len() == count {
            Ok(())
        } else {
            Err(format!("{states:#?}"))
        }
    });
}

fn readiness_says(fixture: &Fixture, status: &str, words: &str) {
    until(&format!("/readyz says {status} {words}"), 15, || {
        let text = fixture.asked("/readyz", Duration::from_secs(5))?;
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
    let mut fixture = Fixture::start("");
    state_of_frr_k8s(&fixture);
    fixture.start_agent();
    fixture.peer_with("", "");
    let why = fixture.agent_ended(10);
    assert!(
        why.contains("FRRNodeState fn1 is written by \"frr-k8s\"")
            && why.contains("frr-k8s manages FRR on this node"),
        "{why}"
    );
    assert!(!fixture.has_line("neighbor 172.31.10.2 remote-as 64512"));
}

#[test]
fn it_starts_whoever_else_has_touched_its_report_and_stands_aside_for_frr_k8s_alone() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    fixture
        .api
        .kubectl(&["annotate", "frrnodestate", "fn1", "x=y"]);
    fixture.kill_agent();
    fixture.start_agent();
    fixture.object(
        "first",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.91.0.0/24]}]}",
    );
    fixture.runs("network 10.91.0.0/24", 20);
    fixture.state_says("lastReloadResult", "success", 10);
    sessions_are(&fixture, 2, 10);
    readiness_says(&fixture, "200", "ok");

    // Somebody installs frr-k8s on the node.
    state_of_frr_k8s(&fixture);
    readiness_says(&fixture, "503", "frr-k8s is not on this node");
    assert!((fixture.metric("noverlay_frr_managed_by_frr_k8s", "") - 1.0).abs() < 0.1);
    // Its own reports about sessions go: frr-k8s has some of its own.
    sessions_are(&fixture, 0, 10);
    let reloads = fixture.metric("noverlay_frr_reloads_total", "");
    let writes = fixture.api.writes("frr-agent").len();
    fixture.object(
        "second",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.92.0.0/24]}]}",
    );
    fixture.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_secs(8));
    assert!(!fixture.has_line("network 10.92.0.0/24"));
    assert!(
        !fixture.has_line("network 10.91.0.0/24"),
        "FRR is frr-k8s's to configure"
    );
    assert!((fixture.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5);
    assert_eq!(fixture.state()["lastConversionResult"], "theirs");
    let after = fixture.api.writes("frr-agent");
    assert_eq!(after.len(), writes, "{:?}", after.get(writes..));

    // And takes it away again, with what it left.
    fixture.api.kubectl(&["delete", "frrnodestate", "fn1"]);
    fixture.runs("network 10.92.0.0/24", 20);
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    sessions_are(&fixture, 2, 10);
    readiness_says(&fixture, "200", "ok");
}

#[test]
fn a_report_that_somebody_deletes_or_changes_is_written_again_and_goes_with_its_node() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    sessions_are(&fixture, 2, 10);
    fixture.api.kubectl(&["delete", "frrnodestate", "fn1"]);
    fixture.state_says("lastReloadResult", "success", 15);
    fixture.state_says("runningConfig", "neighbor 172.31.10.2 remote-as", 5);
    fixture
        .api
        .kubectl(&["delete", "bgpsessionstates", "-A", "--all"]);
    sessions_are(&fixture, 2, 15);
    fixture.api.kubectl(&[
        "patch",
        "frrnodestate",
        "fn1",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"lastReloadResult":"a hand's"}}"#,
    ]);
    fixture.state_says("lastReloadResult", "success", 15);

    // An agent may outlive its Node: nothing of it stays, and sessions go on.
    let since = fixture.both_up();
    fixture.api.kubectl(&["delete", "node", "fn1"]);
    until("no report is left", 15, || {
        let left = (
            fixture.api.items("frrnodestates").len(),
            fixture.api.items("bgpsessionstates").len(),
        );
        if left == (0, 0) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(fixture.api.items("frrnodestates").len(), 0);
    assert_eq!(fixture.api.items("bgpsessionstates").len(), 0);
    fixture.far_is_undisturbed(since);
    fixture.api.node("fn1", "172.31.10.1");
    fixture.state_says("lastReloadResult", "success", 15);
    sessions_are(&fixture, 2, 15);
    fixture.far_is_undisturbed(since);
}
