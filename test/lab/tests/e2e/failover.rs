//! What a dead bgpd and a cut uplink cost.

use std::net::IpAddr;
use std::time::Duration;

use journal::Journal;

use crate::harness::{Said, Standing, able, call, wait};

/// How long routes to a node behind a cut uplink may stay with BFD, in seconds: far more
/// than the measured part of a second, because other jobs may run on the machine.
const LIMIT: f64 = 5.0;
/// How soon sessions are steady.
const STEADY: Duration = Duration::from_secs(60);
/// Changes without networks of users: outbound SNAT, node-agents killed and ended by SIGTERM, ovn-controllers.
const CHANGES: usize = 4;
/// How often a demonstration under pings may be tried.
const TURNS: usize = 3;
/// Steps of each demonstration under pings.
pub(crate) const STEPS: usize = 3;

fn fail_over(what: &str) -> Said {
    call(&["failover", "--only", what])
}

#[test]
fn a_bgpd_that_dies_and_comes_back_costs_no_ping_between_pods() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let mut said = fail_over("bgpd");
    // The dead node's bfdd says that its session is down. Where a processor is so busy that this overtakes the end of the
    // TCP connection, bgpd of the other end takes the routes away instead of waiting: FRR's, and rare.
    for _ in 0..2 {
        if said.good || !said.text.contains("BFD down") {
            break;
        }
        said = fail_over("bgpd");
    }
    assert!(said.good, "{}", said.text);
    let node = lab.node(0);
    for line in [
        " 0 of ".to_owned(),
        format!("OVN of {node} was never short of routes"),
    ] {
        assert!(said.text.contains(&line), "no {line:?} in\n{}", said.text);
    }
    lab.prove(&["--only", "5,8"]).assert_all_hold();
}

#[test]
fn the_rows_of_a_node_stay_while_its_bgpd_is_dead_although_zebra_removes_its_routes() {
    if !able() {
        return;
    }
    // Without graceful restart zebra removes everything at once.
    let lab = Standing::up(&["--profile", "compat", "--wait", "200"]);
    let said = fail_over("bgpd");
    let node = lab.node(0);
    for line in [
        format!("kernel of {node} was short of routes"),
        format!("OVN of {node} was never short of routes"),
    ] {
        assert!(said.text.contains(&line), "no {line:?} in\n{}", said.text);
    }
    // Held no longer than needed: what FRR takes away afterwards is obeyed.
    lab.prove(&["--only", "8"]).assert_all_hold();
}

#[test]
fn the_fabric_gets_route_reflectors_another_one_for_one_that_is_drained_and_is_a_mesh_again() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--nodes", "5"]);
    under_pings("topology", [20; STEPS]);
    lab.recovers("1,5");
}

#[test]
fn with_auto_a_mesh_that_grows_gets_route_reflectors_and_is_a_mesh_again_when_nodes_leave() {
    if !able() {
        return;
    }
    let numbers = [
        "--auto-reflectors-above",
        "5",
        "--auto-full-mesh-below",
        "5",
    ];
    let words = [&["--nodes", "5", "--topology", "auto"], &numbers[..]].concat();
    let mut lab = Standing::up(&words);
    let mut said = fail_over("auto");
    for _ in 1..TURNS {
        if !bfd_ended_sessions("auto", &said) {
            break;
        }
        // As in `under_pings`; the lab has lost a node.
        drop(lab);
        lab = Standing::up(&words);
        said = fail_over("auto");
    }
    // The reflector that leaves in the last step is not among its four.
    assert_steps(&said, [20, 20, 12]);
    lab.recovers("1,5");
}

/// Three steps between these numbers of pairs, none of which costs a pair of pods its way. Where the machine lets a switch or a
/// routing daemon stand still for half a second BFD ends its sessions: then, and only then, there is another turn.
pub(crate) fn under_pings(what: &str, pairs: [usize; STEPS]) {
    let mut said = fail_over(what);
    for _ in 1..TURNS {
        if !bfd_ended_sessions(what, &said) {
            break;
        }
        said = fail_over(what);
    }
    assert_steps(&said, pairs);
}

/// Whether a turn failed although every step of it finished, and the sessions are named that BFD ended in it.
fn bfd_ended_sessions(what: &str, said: &Said) -> bool {
    let finished = said.text.matches(": done after ").count() == STEPS
        && said.text.matches(" pings lost between all ").count() == STEPS;
    // An error is told in a line of its own, without a time as the steps of a node that joins have it.
    let told = said
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("lab: "));
    let failed = told
        .into_iter()
        .any(|rest| !rest.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    // In each step that failed those sessions' nodes are at one end of whatever was lost.
    let lost = said.text.matches("pods lost their way").count();
    let by_bfd = said
        .text
        .matches("pods lost their way by sessions that BFD ended")
        .count();
    let again = !said.good && finished && !failed && lost > 0 && lost == by_bfd;
    if again {
        println!(
            "ANOTHER TURN of failover --only {what}: BFD ended sessions in this one:\n{}",
            said.text
        );
    }
    again
}

/// All steps finished and were good, and no pod was left out of the pings under them.
fn assert_steps(said: &Said, pairs: [usize; STEPS]) {
    assert!(said.good, "{}", said.text);
    let steps = said.text.matches(": done after ").count();
    assert_eq!(steps, STEPS, "{}", said.text);
    let counted = said.text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(" pings lost between all ")?;
        rest.split_once(" pairs of pods")?.0.parse().ok()
    });
    let counted: Vec<usize> = counted.collect();
    assert_eq!(counted, pairs, "{}", said.text);
}

#[test]
fn with_route_reflectors_a_node_joins_and_leaves_and_a_reflector_may_die_be_cut_off_or_drained() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--nodes", "5", "--topology", "route-reflector"]);
    // Not line 8: a withdrawn route is looked for at the other reflectors first, and is back for a moment.
    lab.prove(&["--only", "1,2,5,6"]).assert_all_hold();
    // Between the four that are not the reflector in question.
    under_pings("reflector", [12; STEPS]);
    lab.recovers("1,5");
}

#[test]
fn routes_to_a_node_behind_a_cut_uplink_are_gone_soon_and_back_when_it_is_mended() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    nothing_is_held(&lab);
    let said = fail_over("cut");
    assert!(said.good, "{}", said.text);
    let seconds = said
        .text
        .split_once("from OVN after ")
        .and_then(|(_, rest)| rest.split(' ').next())
        .and_then(|number| number.parse::<f64>().ok())
        .expect("the time after which the routes were gone");
    println!("routes were gone after {seconds} s");
    assert!(seconds < LIMIT, "{}", said.text);
    lab.recovers("1,5");
}

/// Waits until the node-agents have seen steady sessions: after a start of theirs or of FRR they keep rows until then, and
/// a cut would be measured together with the rest of that time.
fn nothing_is_held(lab: &Standing) {
    for number in 0..3 {
        let log = lab.dir(&lab.node(number)).join("node-agent.log");
        let steady = wait(STEADY, || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().rfind(|line| line.contains("\"restarting\":"));
            last.is_some_and(|line| line.contains("\"restarting\":false"))
        });
        assert!(steady, "{} does not tell of steady sessions", log.display());
    }
}

#[test]
fn an_frr_that_is_ended_in_good_order_and_started_again_costs_no_row() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let said = call(&["failover", "--only", "frr-stop", "--rounds", "2"]);
    assert!(said.good, "{}", said.text);
    let node = lab.node(0);
    let whole = format!("OVN of {node} was never short of routes");
    assert_eq!(said.text.matches(&whole).count(), 4, "{}", said.text);
    // It can fail: the kernel did lose its routes, whichever of the daemons was ended.
    for what in ["zebra of", "bgpd of", "zebra and bgpd of"] {
        let line = said.text.lines().find(|line| line.starts_with(what));
        let line = line.unwrap_or_else(|| panic!("no line {what:?} in\n{}", said.text));
        assert!(!line.contains("short of routes 0 times"), "{line}");
    }
    lab.recovers("1,5");
}

#[test]
fn an_frr_with_a_thousand_routes_that_is_ended_in_good_order_costs_no_row() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let words = ["--only", "frr-stop", "--rounds", "2", "--routes", "1000"];
    let said = call(&[&["failover"], &words[..]].concat());
    assert!(said.good, "{}", said.text);
    let whole = format!("OVN of {} was never short of routes", lab.node(0));
    for line in [whole.as_str(), "with 1002 routes"] {
        assert_eq!(said.text.matches(line).count(), 4, "{}", said.text);
    }
    lab.recovers("1,5");
}

#[test]
fn what_changes_of_a_node_translates_no_flow_between_pods_in_either_gateway_mode() {
    if !able() {
        return;
    }
    for mode in ["shared", "local"] {
        let words = ["--nodes", "2", "--families", "dual", "--gateway-mode", mode];
        let lab = Standing::up(&words);
        changes_translate_nothing();
        lab.recovers("1,3,5");
        // With local gateway mode the packet filter is what is switched.
        let least = if mode == "shared" { 7 } else { 2 };
        no_transaction_translated(&lab, least);
    }
}

/// Addresses of the default network's pods, one of each family on each node.
fn pods_of(lab: &Standing) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for number in 0..lab.nodes() {
        all.extend(lab.pod_addresses(number));
    }
    assert!(all.len() >= 2, "{all:?}");
    all
}

/// Of all transactions since the databases were made; one by hand shows that it would be seen.
fn no_transaction_translated(lab: &Standing, least: usize) {
    let pods = pods_of(lab);
    let file = |number: usize| lab.dir(&lab.node(number)).join("ovs/ovnnb.db");
    for number in 0..lab.nodes() {
        let journal = Journal::of_file(&file(number), &pods);
        println!(
            "{}: {} transactions, {} of them on translation, after {} of which pods' packets to pods would have been translated",
            lab.node(number),
            journal.transactions,
            journal.of_nat,
            journal.wrong.len()
        );
        assert!(journal.wrong.is_empty(), "{:?}", journal.wrong);
        // The first rows, and one or two for each change of what is translated.
        assert!(journal.of_nat >= least, "{}", journal.of_nat);
    }
    let node = lab.node(0);
    let rows = [
        "ovn-nbctl",
        "--bare",
        "--columns=_uuid",
        "find",
        "nat",
        "type=snat",
    ];
    for row in lab.exec(&node, &rows).split_whitespace() {
        for column in ["exempted_ext_ips", "allowed_ext_ips"] {
            lab.exec(&node, &["ovn-nbctl", "clear", "nat", row, column]);
        }
    }
    let journal = Journal::of_file(&file(0), &pods);
    assert!(
        !journal.wrong.is_empty(),
        "what was done by hand is not seen"
    );
    lab.recovers("3,5");
}

/// What changes of a node under traffic: at no moment may pods' traffic to pods be translated. On a busy machine pings may
/// be lost as they are there without any change, so that they have a second turn; addresses have none.
fn changes_translate_nothing() {
    let mut said = fail_over("change");
    if !said.good && lost_pings_alone(&said, CHANGES) {
        println!("SECOND TURN of failover --only change: no flow was translated, pings were lost");
        said = fail_over("change");
    }
    assert!(
        said.good && lost_pings_alone(&said, CHANGES),
        "{}",
        said.text
    );
}

/// Whether all of so many changes came to their end with flows seen and none translated, and nothing is complained of but lost pings.
pub(crate) fn lost_pings_alone(said: &Said, changes: usize) -> bool {
    let text = &said.text;
    let finished = text.matches(": done after ").count() == changes;
    let flows = text.lines().filter_map(|line| {
        let (count, rest) = line.trim().split_once(" of ")?;
        let (all, _) = rest.split_once(" new UDP flows that were answered")?;
        Some((count.to_owned(), all.parse::<u64>().ok()?))
    });
    let flows: Vec<(String, u64)> = flows.collect();
    let untranslated = flows.iter().all(|(count, all)| count == "0" && *all > 100);
    let complaints = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FAIL: "));
    let only_pings = complaints.into_iter().all(|why| why == "pings were lost");
    finished && flows.len() == changes && untranslated && only_pings
}
