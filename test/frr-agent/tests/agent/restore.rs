//! The last good configuration comes back after a restart of FRR whatever the objects say meanwhile.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use frr_agent_tests::{Fixture, NEAR, lacks_tools};
use kube_tests::until;
use serde_json::{Value, json};

/// Kills bgpd, which restarts with nothing configured, and waits until both sessions stand again.
fn bgpd_comes_back(fixture: &Fixture) {
    fixture.frr.signal("bgpd", "KILL").unwrap();
    until("bgpd is another one", 10, || {
        if fixture.established(NEAR) {
            Err("the session stands".to_owned())
        } else {
            Ok(())
        }
    });
    let _ = fixture.both_up();
}

#[test]
fn a_frr_that_restarts_gets_the_last_good_configuration_while_the_wanted_one_is_refused() {
    let Some(fixture) = crate::last_good::refused() else {
        return;
    };
    bgpd_comes_back(&fixture);
    fixture.state_says("lastReloadResult", "ip prefix-lost x", 10);
    // What somebody does by hand is no more wanted than before.
    fixture
        .frr
        .vtysh("configure\nrouter bgp 64512\nneighbor 172.31.10.2 shutdown")
        .unwrap();
    until("what was done by hand is gone", 20, || {
        if fixture.has_line("neighbor 172.31.10.2 shutdown") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    fixture.delete("typo");
    fixture.state_says("lastReloadResult", "success", 10);

    fixture.object(
        "other-asn",
        "  bgp: {routers: [{asn: 64999, prefixes: [10.95.0.0/24]}]}",
    );
    fixture.state_says("lastConversionResult", "64999", 10);
    bgpd_comes_back(&fixture);
    fixture.state_says("lastConversionResult", "64999", 10);
    fixture.delete("other-asn");
    fixture.state_says("lastConversionResult", "success", 10);

    fixture.peer_with(", passwordSecret: {name: nowhere}", "");
    fixture.state_says("lastConversionResult", "there is no Secret", 10);
    bgpd_comes_back(&fixture);
    fixture.peer_with("", "");
    fixture.state_says("lastConversionResult", "success", 10);
}

/// Waits until bfdd has one session, to the near peer, which is up and has the intervals of the profile.
fn watched_as_the_profile_says(fixture: &Fixture) {
    until("the near peer is watched by BFD", 20, || {
        let shown = fixture.frr.ask("bfdd", "show bfd peers json");
        let shown = shown.unwrap_or_default();
        let peers: Value = serde_json::from_str(shown.trim()).unwrap_or_default();
        let of = |key: &str| peers.pointer(&format!("/0/{key}")).cloned();
        let seen = ["peer", "status", "receive-interval", "transmit-interval"].map(of);
        let wanted = [json!(NEAR), json!("up"), json!(250), json!(260)].map(Some);
        if seen == wanted && peers.as_array().is_some_and(|all| all.len() == 1) {
            Ok(())
        } else {
            Err(shown)
        }
    });
}

/// FRR's shell shows what any of the daemons holds. Filters are held by several, so one that lost them looks as if it had
/// them; a bgpd without its filters accepts and announces nothing, with every session established.
#[test]
fn a_daemon_that_restarts_gets_all_of_its_own_configuration_though_others_hold_the_same() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    fixture.object(
        "watched",
        &format!(
            "  bgp: {{bfdProfiles: [{{name: fast, receiveInterval: 250, transmitInterval: 260}}], routers: [{{asn: 64512, neighbors: [{{address: {NEAR}, asn: 64512, connectTime: 1s, bfdProfile: fast}}]}}]}}"
        ),
    );
    let peer = "configure\nrouter bgp 64512\nneighbor 172.31.10.1 bfd";
    fixture.near().vtysh(peer).unwrap();
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    watched_as_the_profile_says(&fixture);
    // zebra is the last: once a zebra of FRR 8.4 was started again, nobody tells a new bfdd of its sessions any more.
    for (daemon, filled) in [
        ("bgpd", "prefix-list"),
        ("bfdd", "interval 2"),
        ("zebra", "prefix-list"),
    ] {
        let holds = || {
            let shown = fixture
                .frr
                .ask(daemon, "show running-config")
                .unwrap_or_default();
            let lines = shown.lines().filter(|line| !line.trim().is_empty());
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let before = holds();
        fixture.frr.signal(daemon, "KILL").unwrap();
        std::thread::sleep(Duration::from_secs(2));
        until(&format!("{daemon} holds what it held"), 20, || {
            let now = holds();
            let lost: Vec<&String> = before.iter().filter(|line| !now.contains(line)).collect();
            if lost.is_empty() {
                Ok(())
            } else {
                Err(format!("{lost:#?}"))
            }
        });
        let counted = before.iter().filter(|line| line.contains(filled));
        assert!(counted.count() > 1, "{daemon}: {before:#?}");
        watched_as_the_profile_says(&fixture);
    }
    let _ = fixture.both_up();
}

#[test]
fn restoring_is_tried_again_until_it_succeeds() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("reload-timeout = 5");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.api.stop();
    fixture.kill_agent();
    fixture.frr.signal("bfdd", "STOP").unwrap();
    fixture.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    fixture.start_agent();
    until("a first attempt fails", 20, || {
        let failed = fixture.metric("noverlay_frr_reloads_total", "failure");
        if failed > 0.5 {
            Ok(())
        } else {
            Err(failed.to_string())
        }
    });
    assert!(fixture.metric("noverlay_frr_reloads_total", "success") < 0.5);
    fixture.frr.signal("bfdd", "CONT").unwrap();
    let _ = fixture.both_up();
    until("a later attempt succeeds", 20, || {
        let succeeded = fixture.metric("noverlay_frr_reloads_total", "success");
        if succeeded > 0.5 {
            Ok(())
        } else {
            Err(succeeded.to_string())
        }
    });

    // The same after a text that FRR took in part: it lies on the disk, and nothing says that it was loaded.
    fixture.api.start_again();
    fixture.object(
        "reflector",
        "  raw: {priority: 5, rawConfig: \"router bgp 64512\\n neighbor 9.9.9.9 route-reflector-client\\nip prefix-list still seq 1 permit any\\n\"}",
    );
    fixture.state_says("lastReloadResult", "neighbor 9.9.9.9", 30);
    fixture.api.stop();
    fixture.kill_agent();
    fixture.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    fixture.start_agent();
    let _ = fixture.both_up();
    fixture.runs("ip prefix-list still seq 1 permit any", 10);
}
