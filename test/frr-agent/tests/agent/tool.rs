//! FRR's reload tool is broken: FRR goes on with what it runs, and nobody is told that it was changed.
#![expect(
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Fixture, NEAR, Since, lacks_tools};

/// Nobody answers there.
const OTHER: [&str; 2] = ["172.31.10.9", "172.31.10.8"];

fn nothing_is_applied(fixture: &Fixture, near: Since, far: Since) {
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let said = fixture.state()["lastReloadResult"].to_string();
        assert!(!said.contains("applied"), "{said}");
        assert!(!said.contains("refused"), "{said}");
        fixture.both_stay_up(near, far, 1);
    }
}

#[test]
fn a_tool_that_cannot_run_takes_nothing_away() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.own_tool();
    fixture.start_agent();
    fixture.peer_with("", "");
    let far = fixture.both_up();
    let near = fixture.near_since();
    fixture.state_says("lastReloadResult", "success", 10);

    fixture.tool("import sys\nsys.exit(1)\n");
    fixture.peer_at(OTHER[0], "", "");
    fixture.state_says("lastReloadResult", "failed", 15);
    nothing_is_applied(&fixture, near, far);
    fixture.state_says("lastReloadResult", "tool.py", 1);
    std::fs::remove_file(fixture.tool_file()).unwrap();
    fixture.peer_at(OTHER[1], "", "");
    fixture.state_says("lastReloadResult", "can't open file", 15);
    nothing_is_applied(&fixture, near, far);

    fixture.mend_tool();
    fixture.runs(&format!("neighbor {} remote-as 64512", OTHER[1]), 40);
    fixture.bgpd_loses(&format!("neighbor {NEAR} remote-as 64512"), 10);
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.far_is_undisturbed(far);
}
