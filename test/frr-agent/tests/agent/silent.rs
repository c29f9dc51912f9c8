//! A daemon that cannot be asked is reported, and nothing is taken for granted of it.
#![expect(
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Fixture, NEAR, lacks_tools};
use kube_tests::until;

fn sessions(fixture: &Fixture) -> Vec<String> {
    let states = fixture.api.items("bgpsessionstates");
    let text = |s: &serde_json::Value| s["status"]["bgpStatus"].to_string();
    let mut all: Vec<String> = states.iter().map(text).collect();
    all.sort();
    all
}

const ESTABLISHED: [&str; 2] = ["\"Established\"", "\"Established\""];

fn stay_established(fixture: &Fixture, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        assert_eq!(sessions(fixture), ESTABLISHED);
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn up() -> Option<Fixture> {
    if lacks_tools() {
        return None;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    Some(fixture)
}

#[test]
fn a_frozen_daemon_is_reported_and_what_was_done_to_another_by_hand_too() {
    let Some(fixture) = up() else { return };
    let far = fixture.both_up();
    let shutdown = format!("neighbor {NEAR} shutdown");
    fixture.frr.signal("bfdd", "STOP").unwrap();
    fixture
        .frr
        .ask("bgpd", &format!("configure\nrouter bgp 64512\n{shutdown}"))
        .unwrap();
    assert!(fixture.bgpd_has(&shutdown));
    fixture.state_says("lastReloadResult", "bfdd does not answer", 30);
    fixture.state_says("lastReloadResult", "bgpd runs something else", 30);
    fixture.frr.signal("bfdd", "CONT").unwrap();
    fixture.bgpd_loses(&shutdown, 30);
    fixture.state_says("lastReloadResult", "success", 30);
    let _ = fixture.both_up();
    fixture.far_is_undisturbed(far);

    // Nothing is loaded for its sake alone.
    let reloads = fixture.metric("noverlay_frr_reloads_total", "");
    fixture.frr.signal("bfdd", "STOP").unwrap();
    fixture.state_says("lastReloadResult", "bfdd does not answer", 30);
    fixture.frr.signal("bfdd", "CONT").unwrap();
    fixture.state_says("lastReloadResult", "success", 30);
    assert!((fixture.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5);
    fixture.far_is_undisturbed(far);
}

/// The socket becomes a link that leads to itself: connecting fails, as it does without the right or without a
/// descriptor, and says nothing about bgpd.
#[test]
fn a_bgpd_that_cannot_be_asked_is_not_taken_for_a_dead_one() {
    let Some(mut fixture) = up() else { return };
    until("both sessions are reported", 20, || {
        let seen = sessions(&fixture);
        if seen == ESTABLISHED {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    let (far, near) = (fixture.both_up(), fixture.near_since());
    let socket = fixture.frr.dir().join("bgpd.vty");
    let aside = fixture.frr.dir().join("aside.vty");
    std::fs::rename(&socket, &aside).unwrap();
    std::os::unix::fs::symlink("bgpd.vty", &socket).unwrap();
    fixture.state_says("lastReloadResult", "cannot ask bgpd", 15);
    fixture.state_says("lastReloadResult", "symbolic links", 1);
    stay_established(&fixture, 15);
    // Nor does an agent that starts now know better.
    fixture.kill_agent();
    fixture.start_agent();
    stay_established(&fixture, 6);
    std::fs::rename(&aside, &socket).unwrap();
    fixture.state_says("lastReloadResult", "success", 20);
    stay_established(&fixture, 3);
    fixture.both_stay_up(near, far, 1);
}
