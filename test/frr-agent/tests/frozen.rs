//! What the agent does beside something that is frozen: it accepts connections, or lets them queue, and never answers.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Bench, FAR, NEAR, lacks_tools};
use kube_tests::until;

/// A health check that takes longer than this counts as failed (the manifests' probes have this timeout).
const PROBE: Duration = Duration::from_secs(1);

fn healthy_for(bench: &Bench, seconds: u64, what: &str) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let answer = bench.asked("/healthz", PROBE);
        assert!(
            answer.as_ref().is_ok_and(|text| text.contains(" 200 ")),
            "{what}: {answer:?}"
        );
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn states(bench: &Bench) -> Vec<String> {
    let states = bench.api.items("bgpsessionstates");
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

fn both_states_are(bench: &Bench, wanted: &str, seconds: u64) {
    until(
        &format!("both sessions are told as {wanted}"),
        seconds,
        || {
            let seen = states(bench);
            if seen == [wanted, wanted] {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    );
}

fn ends_at_once(bench: &mut Bench, what: &str) {
    let begun = Instant::now();
    bench.end_agent();
    assert_eq!(bench.agent_ended(10), "no error");
    println!("{what}: ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2), "{what}");
}

#[test]
fn a_daemon_that_is_frozen_freezes_neither_the_agent_nor_its_end() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    both_states_are(&bench, "Established", 10);

    bench.frr.signal("bgpd", "STOP").unwrap();
    healthy_for(&bench, 15, "bgpd is frozen");
    both_states_are(&bench, "Idle", 5);
    healthy_for(&bench, 15, "bgpd is frozen");
    // An agent that starts beside it knows of no session, and takes none away.
    bench.kill_agent();
    bench.start_agent();
    std::thread::sleep(Duration::from_secs(13));
    assert_eq!(states(&bench), ["Idle", "Idle"]);
    ends_at_once(&mut bench, "bgpd is frozen");
    bench.frr.signal("bgpd", "CONT").unwrap();
    bench.start_agent();
    let since = bench.both_up();
    both_states_are(&bench, "Established", 20);

    // A reload asks bfdd, and has a minute.
    bench.frr.signal("bfdd", "STOP").unwrap();
    bench.object(
        "hangs",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.91.0.0/24]}]}",
    );
    healthy_for(&bench, 63, "bfdd is frozen");
    assert_eq!(states(&bench), ["Established", "Established"]);
    bench.state_says("lastReloadResult", "did not end within 60s", 20);
    assert!(bench.established(NEAR) && bench.established(FAR));
    bench.far_is_undisturbed(since);
    ends_at_once(&mut bench, "bfdd is frozen");
    bench.frr.signal("bfdd", "CONT").unwrap();
    bench.start_agent();
    bench.runs("network 10.91.0.0/24", 60);
    bench.far_is_undisturbed(since);
}

#[test]
fn an_api_server_that_accepts_and_never_answers_holds_up_no_reload() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let _ = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);

    bench.signal_api("STOP");
    for at in 0..2 {
        // It is away for long enough that this has to be told, the second time while the first is still being told.
        bench.frr.hold("bgpd", true).unwrap();
        bench.frr.signal("bgpd", "KILL").unwrap();
        std::thread::sleep(Duration::from_secs(3));
        bench.frr.hold("bgpd", false).unwrap();
        let begun = Instant::now();
        let _ = bench.both_up();
        println!("{at}: configuration back after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_secs(12));
    }
    healthy_for(&bench, 2, "the API server is frozen");
    // The first one does not know any object.
    bench.kill_agent();
    bench.start_agent();
    std::thread::sleep(Duration::from_secs(7));
    bench.frr.signal("bgpd", "KILL").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let _ = bench.both_up();
    ends_at_once(&mut bench, "the API server is frozen");
    bench.start_agent();
    bench.signal_api("CONT");
    bench.object(
        "back",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.92.0.0/24]}]}",
    );
    bench.runs("network 10.92.0.0/24", 40);
    bench.state_says("runningConfig", "network 10.92.0.0/24", 20);
    both_states_are(&bench, "Established", 20);
}
