//! The last good configuration is what FRR took from the agent, not what somebody has put into frr.conf since.

use frr_agent_tests::{Fixture, NEAR, lacks_tools};
use kube_tests::until;

/// What a package or a configuration tool may put there.
const FOREIGN: &str = "hostname x\n";

/// Both sessions, and a text that FRR does not know in an object of its own.
pub(crate) fn refused() -> Option<Fixture> {
    if lacks_tools() {
        return None;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.object(
        "typo",
        "  raw: {priority: 5, rawConfig: \"ip prefix-lost x seq 1 permit any\\n\"}",
    );
    fixture.state_says("lastReloadResult", "ip prefix-lost x", 10);
    Some(fixture)
}

fn is_back(fixture: &Fixture, good: &str, seconds: u64) {
    until("the old text is back", seconds, || {
        let conf = fixture.conf();
        if conf == good { Ok(()) } else { Err(conf) }
    });
}

#[test]
fn what_was_written_down_by_hand_is_not_taken_for_good() {
    let Some(fixture) = refused() else { return };
    let good = fixture.conf();
    let shutdown = format!("neighbor {NEAR} shutdown");
    let said = fixture.by_hand(&format!(
        "configure\nrouter bgp 64512\n{shutdown}\nend\nwrite memory"
    ));
    assert!(said.contains("saved to"), "{said}");
    fixture.bgpd_loses(&shutdown, 60);
    is_back(&fixture, &good, 10);
    let _ = fixture.both_up();
    fixture.state_says("lastReloadResult", "ip prefix-lost x", 10);
}

#[test]
fn a_foreign_file_is_not_loaded_when_a_daemon_restarts() {
    let Some(mut fixture) = refused() else { return };
    let good = fixture.conf();
    let (near, far) = (fixture.near_since(), fixture.both_up());
    let foreign = || std::fs::write(fixture.folder().join("frr.conf"), FOREIGN).unwrap();
    foreign();
    fixture.frr.signal("bfdd", "KILL").unwrap();
    fixture.both_stay_up(near, far, 10);
    is_back(&fixture, &good, 10);

    // An agent of before has left no copy: the file is good as long as it is the one that the note tells of.
    let copy = fixture.folder().join("frr.conf.last-good");
    std::fs::remove_file(&copy).unwrap();
    fixture.kill_agent();
    fixture.frr.signal("bgpd", "KILL").unwrap();
    fixture.start_agent();
    let far = fixture.both_up();
    let near = fixture.near_since();
    until("there is a copy again", 10, || {
        let text = std::fs::read_to_string(&copy).map_err(|e| e.to_string())?;
        if text == good { Ok(()) } else { Err(text) }
    });
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&copy).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    // Otherwise nothing is known to be good, and nothing is loaded.
    fixture.kill_agent();
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(fixture.folder().join("frr.conf"), FOREIGN).unwrap();
    fixture.start_agent();
    fixture.state_says("lastReloadResult", "no copy of it is left", 10);
    fixture.both_stay_up(near, far, 5);
    // The objects make it good once they can be loaded.
    fixture.delete("typo");
    fixture.state_says("lastReloadResult", "success", 10);
    is_back(&fixture, &good, 10);
    fixture.both_stay_up(near, far, 1);
}
