//! What the agent does when something around it fails: FRR, the disk, the API server, itself.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Fixture, NEAR, Since, lacks_tools};
use kube_tests::until;

/// Reloads may take 5 s here instead of a minute.
const SHORT: &str = "reload-timeout = 5";

fn near_session(fixture: &Fixture) -> String {
    let states = fixture.api.items("bgpsessionstates");
    let near = states.iter().find(|s| s["status"]["peer"] == NEAR);
    near.map_or("absent".to_owned(), |s| {
        s["status"]["bgpStatus"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
}

fn near_is(fixture: &Fixture, wanted: &str, seconds: u64) {
    until(&format!("the near session is {wanted}"), seconds, || {
        let seen = near_session(fixture);
        if seen == wanted { Ok(()) } else { Err(seen) }
    });
}

fn reloads(fixture: &Fixture) -> f64 {
    fixture.metric("noverlay_frr_reloads_total", "")
}

fn object_with_prefix(fixture: &Fixture, name: &str, prefix: &str) {
    fixture.object(
        name,
        &format!("  bgp: {{routers: [{{asn: 64512, prefixes: [{prefix}]}}]}}"),
    );
}

#[test]
fn whatever_fails_the_last_good_configuration_stays_and_the_rest_is_made_good() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start(SHORT);
    fixture.start_agent();
    fixture.peer_with("", "");
    let since = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);

    a_session_that_goes_down_is_reported_within_two_seconds(&fixture, since);
    a_frr_reconfigured_by_hand_is_put_back(&fixture, since);
    a_disk_that_is_full_or_read_only_is_reported_and_tried_again(&fixture, since);
    a_restart_of_the_agent_reloads_nothing(&mut fixture, since);
    an_api_server_that_is_gone_costs_nothing(&mut fixture, since);
    a_reload_that_hangs_is_ended_and_tried_again(&fixture);
    a_frr_that_was_killed_gets_its_configuration_back(&mut fixture);
}

fn a_session_that_goes_down_is_reported_within_two_seconds(fixture: &Fixture, since: Since) {
    near_is(fixture, "Established", 10);
    fixture.near().hold("bgpd", true).unwrap();
    fixture.near().signal("bgpd", "KILL").unwrap();
    until("FRR sees it", 10, || {
        if fixture.established(NEAR) {
            Err("still established".to_owned())
        } else {
            Ok(())
        }
    });
    let begun = Instant::now();
    until("the API server is reported", 10, || {
        let seen = near_session(fixture);
        if seen == "Established" {
            Err(seen)
        } else {
            Ok(())
        }
    });
    // Kubectl's own time is in it: the bound is generous, the number is printed.
    println!("session down until reported: {:?}", begun.elapsed());
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    fixture.near().hold("bgpd", false).unwrap();
    // The fixture's peer has no configuration of its own after a restart.
    until("the peer takes its configuration", 20, || {
        let loaded = fixture
            .near()
            .load(&frr_agent_tests::peer(10, "10.128.10.0/24"));
        if loaded.is_ok_and(|l| l.clean) {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    near_is(fixture, "Established", 20);
    fixture.far_is_undisturbed(since);
}

fn a_frr_reconfigured_by_hand_is_put_back(fixture: &Fixture, since: Since) {
    let corrected = fixture.metric("noverlay_frr_drift_corrections_total", "");
    fixture
        .frr
        .vtysh("configure\nrouter bgp 64512\nneighbor 172.31.10.2 description by hand\nneighbor 172.31.10.2 shutdown")
        .unwrap();
    assert!(fixture.has_line("neighbor 172.31.10.2 shutdown"));
    until("what was done by hand is gone", 20, || {
        if fixture.has_line("neighbor 172.31.10.2 shutdown") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    near_is(fixture, "Established", 20);
    assert!(!fixture.has_line("neighbor 172.31.10.2 description by hand"));
    assert!(
        (fixture.metric("noverlay_frr_drift_corrections_total", "") - corrected - 1.0).abs() < 0.5
    );
    fixture.far_is_undisturbed(since);
    // And then there is peace: nothing differs any more.
    let before = reloads(fixture);
    std::thread::sleep(Duration::from_secs(7));
    assert!(
        (reloads(fixture) - before).abs() < 0.5,
        "it reloads without need"
    );
}

fn a_disk_that_is_full_or_read_only_is_reported_and_tried_again(fixture: &Fixture, since: Since) {
    let good = std::fs::read_to_string(fixture.folder().join("frr.conf")).unwrap();
    let filler = fixture.folder().join("filler");
    let _ = std::fs::write(&filler, vec![0_u8; 16 << 20]);
    object_with_prefix(fixture, "full", "10.94.0.0/24");
    fixture.state_says("lastReloadResult", "No space left on device", 10);
    assert_eq!(
        std::fs::read_to_string(fixture.folder().join("frr.conf")).unwrap(),
        good
    );
    assert!(!fixture.has_line("network 10.94.0.0/24"));
    std::fs::remove_file(&filler).unwrap();
    fixture.runs("network 10.94.0.0/24", 30);
    fixture.state_says("lastReloadResult", "success", 10);

    fixture.read_only(true);
    object_with_prefix(fixture, "readonly", "10.93.0.0/24");
    fixture.state_says("lastReloadResult", "Read-only file system", 10);
    fixture.state_says("lastReloadResult", "frr.conf", 1);
    assert!(!fixture.has_line("network 10.93.0.0/24"));
    fixture.read_only(false);
    fixture.runs("network 10.93.0.0/24", 30);
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.delete("full");
    fixture.delete("readonly");
    fixture.far_is_undisturbed(since);
}

fn a_restart_of_the_agent_reloads_nothing(fixture: &mut Fixture, since: Since) {
    until("the prefixes are gone, and that is noted", 20, || {
        let gone = ["10.93.0.0/24", "10.94.0.0/24"]
            .iter()
            .all(|prefix| !fixture.has_line(&format!("network {prefix}")));
        let written = |name: &str| {
            let meta = std::fs::metadata(fixture.folder().join(name));
            meta.and_then(|m| m.modified()).map_err(|e| e.to_string())
        };
        if gone && written("frr.conf.loaded")? > written("frr.conf")? {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    fixture.state_says("lastReloadResult", "success", 10);
    // What came of it has been reported.
    std::thread::sleep(Duration::from_secs(2));
    fixture.kill_agent();
    let writes = fixture.api.writes("frr-agent").len();
    fixture.start_agent();
    until("its first pass is done", 10, || {
        let at = fixture.metric("noverlay_frr_last_applied_timestamp_seconds", "");
        if at > 0.0 {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        reloads(fixture).abs() < 0.5,
        "the same text was loaded again"
    );
    let after = fixture.api.writes("frr-agent");
    assert_eq!(after.len(), writes, "{:?}", after.get(writes..));
    fixture.far_is_undisturbed(since);
}

fn an_api_server_that_is_gone_costs_nothing(fixture: &mut Fixture, since: Since) {
    fixture.api.stop();
    std::thread::sleep(Duration::from_secs(5));
    assert!(fixture.established(NEAR));
    fixture.far_is_undisturbed(since);
    // An agent that starts now, beside a bgpd that has just started too, loads the last good file.
    fixture.kill_agent();
    fixture.start_agent();
    std::thread::sleep(Duration::from_secs(1));
    fixture.far_is_undisturbed(since);
    fixture.frr.signal("bgpd", "KILL").unwrap();
    fixture.runs("neighbor 172.31.10.2 remote-as 64512", 20);
    fixture.api.start_again();
    let _ = fixture.both_up();
    // It notices that the server is back and goes on.
    object_with_prefix(fixture, "back", "10.92.0.0/24");
    fixture.runs("network 10.92.0.0/24", 30);
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.delete("back");
}

fn a_reload_that_hangs_is_ended_and_tried_again(fixture: &Fixture) {
    let since = fixture.both_up();
    until("the prefix is gone", 10, || {
        if fixture.has_line("network 10.92.0.0/24") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    // bfdd is asked at each reload and holds up no session.
    fixture.frr.signal("bfdd", "STOP").unwrap();
    object_with_prefix(fixture, "hangs", "10.91.0.0/24");
    fixture.state_says("lastReloadResult", "did not end within 5s", 30);
    // Its sessions are reported meanwhile, and it has left nothing behind.
    near_is(fixture, "Established", 5);
    fixture.far_is_undisturbed(since);
    fixture.frr.signal("bfdd", "CONT").unwrap();
    fixture.runs("network 10.91.0.0/24", 60);
    fixture.state_says("lastReloadResult", "success", 30);
    fixture.delete("hangs");
    fixture.far_is_undisturbed(since);
}

fn a_frr_that_was_killed_gets_its_configuration_back(fixture: &mut Fixture) {
    near_is(fixture, "Established", 20);
    fixture.frr.hold("bgpd", true).unwrap();
    fixture.frr.signal("bgpd", "KILL").unwrap();
    near_is(fixture, "Idle", 10);
    fixture.state_says("lastReloadResult", "FRR does not run", 10);
    fixture.frr.hold("bgpd", false).unwrap();
    let _ = fixture.both_up();
    near_is(fixture, "Established", 10);
    fixture.state_says("lastReloadResult", "success", 10);
    // All daemons at once.
    for daemon in ["bfdd", "bgpd", "zebra"] {
        fixture.frr.signal(daemon, "KILL").unwrap();
    }
    let _ = fixture.both_up();
    fixture.runs("ip nht resolve-via-default", 10);
    near_is(fixture, "Established", 10);
    fixture.state_says("lastReloadResult", "success", 10);
}
