//! A daemon that cannot be asked is told, and nothing is taken for granted of it.
#![expect(
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Bench, NEAR, lacks_tools};
use kube_tests::until;

fn sessions(bench: &Bench) -> Vec<String> {
    let states = bench.api.items("bgpsessionstates");
    let text = |s: &serde_json::Value| s["status"]["bgpStatus"].to_string();
    let mut all: Vec<String> = states.iter().map(text).collect();
    all.sort();
    all
}

const ESTABLISHED: [&str; 2] = ["\"Established\"", "\"Established\""];

fn stay_established(bench: &Bench, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        assert_eq!(sessions(bench), ESTABLISHED);
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn up() -> Option<Bench> {
    if lacks_tools() {
        return None;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    Some(bench)
}

#[test]
fn a_frozen_daemon_is_told_and_what_was_done_to_another_by_hand_too() {
    let Some(bench) = up() else { return };
    let far = bench.both_up();
    let shutdown = format!("neighbor {NEAR} shutdown");
    bench.frr.signal("bfdd", "STOP").unwrap();
    bench
        .frr
        .ask("bgpd", &format!("configure\nrouter bgp 64512\n{shutdown}"))
        .unwrap();
    assert!(bench.bgpd_has(&shutdown));
    bench.state_says("lastReloadResult", "bfdd does not answer", 30);
    bench.state_says("lastReloadResult", "bgpd runs something else", 30);
    bench.frr.signal("bfdd", "CONT").unwrap();
    bench.bgpd_loses(&shutdown, 30);
    bench.state_says("lastReloadResult", "success", 30);
    let _ = bench.both_up();
    bench.far_is_undisturbed(far);

    // Nothing is loaded for its sake alone.
    let reloads = bench.metric("noverlay_frr_reloads_total", "");
    bench.frr.signal("bfdd", "STOP").unwrap();
    bench.state_says("lastReloadResult", "bfdd does not answer", 30);
    bench.frr.signal("bfdd", "CONT").unwrap();
    bench.state_says("lastReloadResult", "success", 30);
    assert!((bench.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5);
    bench.far_is_undisturbed(far);
}

/// The socket becomes a link that leads to itself: connecting fails, as it does without the right or without a
/// descriptor, and says nothing about bgpd.
#[test]
fn a_bgpd_that_cannot_be_asked_is_not_taken_for_a_dead_one() {
    let Some(mut bench) = up() else { return };
    until("both sessions are told", 20, || {
        let seen = sessions(&bench);
        if seen == ESTABLISHED {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    let (far, near) = (bench.both_up(), bench.near_since());
    let socket = bench.frr.dir().join("bgpd.vty");
    let aside = bench.frr.dir().join("aside.vty");
    std::fs::rename(&socket, &aside).unwrap();
    std::os::unix::fs::symlink("bgpd.vty", &socket).unwrap();
    bench.state_says("lastReloadResult", "cannot ask bgpd", 15);
    bench.state_says("lastReloadResult", "symbolic links", 1);
    stay_established(&bench, 15);
    // Nor does an agent that starts now know better.
    bench.kill_agent();
    bench.start_agent();
    stay_established(&bench, 6);
    std::fs::rename(&aside, &socket).unwrap();
    bench.state_says("lastReloadResult", "success", 20);
    stay_established(&bench, 3);
    bench.both_stay_up(near, far, 1);
}
