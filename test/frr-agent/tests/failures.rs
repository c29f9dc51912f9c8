//! What the agent does when something around it fails: FRR, the disk, the API server, itself.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Bench, NEAR, Since, lacks_tools};
use kube_tests::until;

/// Reloads may take 5 s here instead of a minute.
const SHORT: &str = "reload-timeout = 5";

fn near_session(bench: &Bench) -> String {
    let states = bench.api.items("bgpsessionstates");
    let near = states.iter().find(|s| s["status"]["peer"] == NEAR);
    near.map_or("absent".to_owned(), |s| {
        s["status"]["bgpStatus"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
}

fn near_is(bench: &Bench, wanted: &str, seconds: u64) {
    until(&format!("the near session is {wanted}"), seconds, || {
        let seen = near_session(bench);
        if seen == wanted { Ok(()) } else { Err(seen) }
    });
}

fn reloads(bench: &Bench) -> f64 {
    bench.metric("noverlay_frr_reloads_total", "")
}

fn object_with_prefix(bench: &Bench, name: &str, prefix: &str) {
    bench.object(
        name,
        &format!("  bgp: {{routers: [{{asn: 64512, prefixes: [{prefix}]}}]}}"),
    );
}

#[test]
fn whatever_fails_the_last_good_configuration_stays_and_the_rest_is_made_good() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start(SHORT);
    bench.start_agent();
    bench.peer_with("", "");
    let since = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);

    a_session_that_goes_down_is_told_within_two_seconds(&bench, since);
    a_frr_reconfigured_by_hand_is_put_back(&bench, since);
    a_disk_that_is_full_or_read_only_is_told_and_tried_again(&bench, since);
    a_restart_of_the_agent_reloads_nothing(&mut bench, since);
    an_api_server_that_is_gone_costs_nothing(&mut bench, since);
    a_reload_that_hangs_is_ended_and_tried_again(&bench);
    a_frr_that_was_killed_gets_its_configuration_back(&mut bench);
}

fn a_session_that_goes_down_is_told_within_two_seconds(bench: &Bench, since: Since) {
    near_is(bench, "Established", 10);
    bench.near().hold("bgpd", true).unwrap();
    bench.near().signal("bgpd", "KILL").unwrap();
    until("FRR sees it", 10, || {
        if bench.established(NEAR) {
            Err("still established".to_owned())
        } else {
            Ok(())
        }
    });
    let begun = Instant::now();
    until("the API server is told", 10, || {
        let seen = near_session(bench);
        if seen == "Established" {
            Err(seen)
        } else {
            Ok(())
        }
    });
    // Kubectl's own time is in it: the bound is generous, the number is printed.
    println!("session down until told: {:?}", begun.elapsed());
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    bench.near().hold("bgpd", false).unwrap();
    // The fixture's peer has no configuration of its own after a restart.
    until("the peer takes its configuration", 20, || {
        let loaded = bench
            .near()
            .load(&frr_agent_tests::peer(10, "10.128.10.0/24"));
        if loaded.is_ok_and(|l| l.clean) {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    near_is(bench, "Established", 20);
    bench.far_is_undisturbed(since);
}

fn a_frr_reconfigured_by_hand_is_put_back(bench: &Bench, since: Since) {
    let mended = bench.metric("noverlay_frr_mended_total", "");
    bench
        .frr
        .vtysh("configure\nrouter bgp 64512\nneighbor 172.31.10.2 description by hand\nneighbor 172.31.10.2 shutdown")
        .unwrap();
    assert!(bench.has_line("neighbor 172.31.10.2 shutdown"));
    until("what was done by hand is gone", 20, || {
        if bench.has_line("neighbor 172.31.10.2 shutdown") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    near_is(bench, "Established", 20);
    assert!(!bench.has_line("neighbor 172.31.10.2 description by hand"));
    assert!((bench.metric("noverlay_frr_mended_total", "") - mended - 1.0).abs() < 0.5);
    bench.far_is_undisturbed(since);
    // And then there is peace: nothing differs any more.
    let before = reloads(bench);
    std::thread::sleep(Duration::from_secs(7));
    assert!(
        (reloads(bench) - before).abs() < 0.5,
        "it reloads without need"
    );
}

fn a_disk_that_is_full_or_read_only_is_told_and_tried_again(bench: &Bench, since: Since) {
    let good = std::fs::read_to_string(bench.folder().join("frr.conf")).unwrap();
    let filler = bench.folder().join("filler");
    let _ = std::fs::write(&filler, vec![0_u8; 16 << 20]);
    object_with_prefix(bench, "full", "10.94.0.0/24");
    bench.state_says("lastReloadResult", "No space left on device", 10);
    assert_eq!(
        std::fs::read_to_string(bench.folder().join("frr.conf")).unwrap(),
        good
    );
    assert!(!bench.has_line("network 10.94.0.0/24"));
    std::fs::remove_file(&filler).unwrap();
    bench.runs("network 10.94.0.0/24", 30);
    bench.state_says("lastReloadResult", "success", 10);

    bench.read_only(true);
    object_with_prefix(bench, "readonly", "10.93.0.0/24");
    bench.state_says("lastReloadResult", "Read-only file system", 10);
    bench.state_says("lastReloadResult", "frr.conf", 1);
    assert!(!bench.has_line("network 10.93.0.0/24"));
    bench.read_only(false);
    bench.runs("network 10.93.0.0/24", 30);
    bench.state_says("lastReloadResult", "success", 10);
    bench.delete("full");
    bench.delete("readonly");
    bench.far_is_undisturbed(since);
}

fn a_restart_of_the_agent_reloads_nothing(bench: &mut Bench, since: Since) {
    until("the prefixes are gone, and that is noted", 20, || {
        let gone = ["10.93.0.0/24", "10.94.0.0/24"]
            .iter()
            .all(|prefix| !bench.has_line(&format!("network {prefix}")));
        let written = |name: &str| {
            let meta = std::fs::metadata(bench.folder().join(name));
            meta.and_then(|m| m.modified()).map_err(|e| e.to_string())
        };
        if gone && written("frr.conf.loaded")? > written("frr.conf")? {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    bench.state_says("lastReloadResult", "success", 10);
    // What came of it has been told.
    std::thread::sleep(Duration::from_secs(2));
    bench.kill_agent();
    let writes = bench.api.writes("frr-agent").len();
    bench.start_agent();
    until("its first pass is done", 10, || {
        let at = bench.metric("noverlay_frr_last_good_timestamp_seconds", "");
        if at > 0.0 {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(reloads(bench).abs() < 0.5, "the same text was loaded again");
    let after = bench.api.writes("frr-agent");
    assert_eq!(after.len(), writes, "{:?}", after.get(writes..));
    bench.far_is_undisturbed(since);
}

fn an_api_server_that_is_gone_costs_nothing(bench: &mut Bench, since: Since) {
    bench.api.stop();
    std::thread::sleep(Duration::from_secs(5));
    assert!(bench.established(NEAR));
    bench.far_is_undisturbed(since);
    // An agent that starts now, beside a bgpd that has just started too, loads the last good file.
    bench.kill_agent();
    bench.start_agent();
    std::thread::sleep(Duration::from_secs(1));
    bench.far_is_undisturbed(since);
    bench.frr.signal("bgpd", "KILL").unwrap();
    bench.runs("neighbor 172.31.10.2 remote-as 64512", 20);
    bench.api.start_again();
    let _ = bench.both_up();
    // It notices that the server is back and goes on.
    object_with_prefix(bench, "back", "10.92.0.0/24");
    bench.runs("network 10.92.0.0/24", 30);
    bench.state_says("lastReloadResult", "success", 10);
    bench.delete("back");
}

fn a_reload_that_hangs_is_ended_and_tried_again(bench: &Bench) {
    let since = bench.both_up();
    until("the prefix is gone", 10, || {
        if bench.has_line("network 10.92.0.0/24") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    // bfdd is asked at each reload and holds up no session.
    bench.frr.signal("bfdd", "STOP").unwrap();
    object_with_prefix(bench, "hangs", "10.91.0.0/24");
    bench.state_says("lastReloadResult", "did not end within 5s", 30);
    // Its sessions are told meanwhile, and it has left nothing behind.
    near_is(bench, "Established", 5);
    bench.far_is_undisturbed(since);
    bench.frr.signal("bfdd", "CONT").unwrap();
    bench.runs("network 10.91.0.0/24", 60);
    bench.state_says("lastReloadResult", "success", 30);
    bench.delete("hangs");
    bench.far_is_undisturbed(since);
}

fn a_frr_that_was_killed_gets_its_configuration_back(bench: &mut Bench) {
    near_is(bench, "Established", 20);
    bench.frr.hold("bgpd", true).unwrap();
    bench.frr.signal("bgpd", "KILL").unwrap();
    near_is(bench, "Idle", 10);
    bench.state_says("lastReloadResult", "FRR does not run", 10);
    bench.frr.hold("bgpd", false).unwrap();
    let _ = bench.both_up();
    near_is(bench, "Established", 10);
    bench.state_says("lastReloadResult", "success", 10);
    // All daemons at once.
    for daemon in ["bfdd", "bgpd", "zebra"] {
        bench.frr.signal(daemon, "KILL").unwrap();
    }
    let _ = bench.both_up();
    bench.runs("ip nht resolve-via-default", 10);
    near_is(bench, "Established", 10);
    bench.state_says("lastReloadResult", "success", 10);
}
