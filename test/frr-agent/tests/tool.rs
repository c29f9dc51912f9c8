//! FRR's reload tool is broken: FRR goes on with what it runs, and nobody is told that it was changed.
#![expect(
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use frr_agent_tests::{Bench, NEAR, Since, lacks_tools};

/// Nobody answers there.
const OTHER: [&str; 2] = ["172.31.10.9", "172.31.10.8"];

fn nothing_is_applied(bench: &Bench, near: Since, far: Since) {
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let said = bench.state()["lastReloadResult"].to_string();
        assert!(!said.contains("applied"), "{said}");
        assert!(!said.contains("refused"), "{said}");
        bench.both_stay_up(near, far, 1);
    }
}

#[test]
fn a_tool_that_cannot_run_takes_nothing_away() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.own_tool();
    bench.start_agent();
    bench.peer_with("", "");
    let far = bench.both_up();
    let near = bench.near_since();
    bench.state_says("lastReloadResult", "success", 10);

    bench.tool("import sys\nsys.exit(1)\n");
    bench.peer_at(OTHER[0], "", "");
    bench.state_says("lastReloadResult", "failed", 15);
    nothing_is_applied(&bench, near, far);
    bench.state_says("lastReloadResult", "tool.py", 1);
    std::fs::remove_file(bench.tool_file()).unwrap();
    bench.peer_at(OTHER[1], "", "");
    bench.state_says("lastReloadResult", "can't open file", 15);
    nothing_is_applied(&bench, near, far);

    bench.mend_tool();
    bench.runs(&format!("neighbor {} remote-as 64512", OTHER[1]), 40);
    bench.bgpd_loses(&format!("neighbor {NEAR} remote-as 64512"), 10);
    bench.state_says("lastReloadResult", "success", 10);
    bench.far_is_undisturbed(far);
}
