//! What the agent does beside something that is frozen: it accepts connections, or lets them queue, and never answers.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{FAR, Fixture, NEAR, lacks_tools};
use kube_tests::until;

/// A health check that takes longer than this counts as failed (a probe's default timeout).
const PROBE: Duration = Duration::from_secs(1);
/// So many failures in a row end a container (a probe's default threshold).
const THRESHOLD: u32 = 3;

fn healthy_for(fixture: &Fixture, seconds: u64, what: &str) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut failures = 0;
    while Instant::now() < end {
        let answer = fixture.asked("/healthz", PROBE);
        if answer.as_ref().is_ok_and(|text| text.contains(" 200 ")) {
            failures = 0;
        } else {
            failures += 1;
            println!("{what}: {answer:?}");
        }
        assert!(failures < THRESHOLD, "{what}: {answer:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(failures, 0, "{what}");
}

fn states(fixture: &Fixture) -> Vec<String> {
    let states = fixture.api.items("bgpsessionstates");
    let mut all: Vec<String> = states
        .iter()
        .map(|s| {
            s["status"]["bgpStatus"]
                .as_str()
                .unwrap_or("none")
                .to_owned()
        })
        .collect();
    all.sort();
    all
}

fn both_states_are(fixture: &Fixture, wanted: &str, seconds: u64) {
    until(
        &format!("both sessions are reported as {wanted}"),
        seconds,
        || {
            let seen = states(fixture);
            if seen == [wanted, wanted] {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    );
}

fn ends_at_once(fixture: &mut Fixture, what: &str) {
    let begun = Instant::now();
    fixture.end_agent();
    assert_eq!(fixture.agent_ended(10), "no error");
    println!("{what}: ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
}

#[test]
fn a_daemon_that_is_frozen_freezes_neither_the_agent_nor_its_end() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 30);
    both_states_are(&fixture, "Established", 30);

    fixture.frr.signal("bgpd", "STOP").unwrap();
    healthy_for(&fixture, 15, "bgpd is frozen");
    both_states_are(&fixture, "Idle", 20);
    healthy_for(&fixture, 15, "bgpd is frozen");
    // An agent that starts beside it knows of no session, and takes none away.
    fixture.kill_agent();
    fixture.start_agent();
    std::thread::sleep(Duration::from_secs(13));
    assert_eq!(states(&fixture), ["Idle", "Idle"]);
    ends_at_once(&mut fixture, "bgpd is frozen");
    fixture.frr.signal("bgpd", "CONT").unwrap();
    fixture.start_agent();
    let since = fixture.both_up();
    both_states_are(&fixture, "Established", 40);

    // A reload asks bfdd, and has a minute.
    fixture.frr.signal("bfdd", "STOP").unwrap();
    fixture.object(
        "hangs",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.91.0.0/24]}]}",
    );
    healthy_for(&fixture, 63, "bfdd is frozen");
    assert_eq!(states(&fixture), ["Established", "Established"]);
    fixture.state_says("lastReloadResult", "did not end within 60s", 20);
    assert!(fixture.established(NEAR) && fixture.established(FAR));
    fixture.far_is_undisturbed(since);
    ends_at_once(&mut fixture, "bfdd is frozen");
    fixture.frr.signal("bfdd", "CONT").unwrap();
    fixture.start_agent();
    fixture.runs("network 10.91.0.0/24", 60);
    fixture.far_is_undisturbed(since);
}

#[test]
fn an_api_server_that_accepts_and_never_answers_holds_up_no_reload() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 30);

    fixture.signal_api("STOP");
    for at in 0..2 {
        // It is away for long enough that this has to be reported, the second time while the first is still being reported.
        fixture.frr.hold("bgpd", true).unwrap();
        fixture.frr.signal("bgpd", "KILL").unwrap();
        std::thread::sleep(Duration::from_secs(3));
        fixture.frr.hold("bgpd", false).unwrap();
        let begun = Instant::now();
        let _ = fixture.both_up();
        println!("{at}: configuration back after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_secs(12));
    }
    healthy_for(&fixture, 2, "the API server is frozen");
    // The first one does not know any object.
    fixture.kill_agent();
    fixture.start_agent();
    std::thread::sleep(Duration::from_secs(7));
    fixture.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let _ = fixture.both_up();
    ends_at_once(&mut fixture, "the API server is frozen");
    fixture.start_agent();
    fixture.signal_api("CONT");
    fixture.object(
        "back",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.92.0.0/24]}]}",
    );
    fixture.runs("network 10.92.0.0/24", 40);
    fixture.state_says("runningConfig", "network 10.92.0.0/24", 40);
    both_states_are(&fixture, "Established", 40);
}
