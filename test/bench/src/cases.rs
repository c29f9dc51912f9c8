//! The cases of the import's benchmark.
//! In: arguments. Out: numbers of each case. Invariant: a case begins with a quiet process and an empty or known database.
//! Not here: storms.

use std::time::Duration;

use netns_tests::ip_batch;

use crate::floor::Raw;
use crate::kernel::{lines, prefix, router};
use crate::networks::networks;
use crate::process::Watched;
use crate::rate::rate;
use crate::report::{Report, Runs, percentile};
use crate::sets::sets;
use crate::storm::storm;
use crate::testbed::{Agent, Testbed, now};
use crate::{ImportArguments, WholeArguments};

/// Routes and next hops.
const SIZES: [(u32, u32); 8] = [
    (100, 1),
    (1000, 1),
    (10_000, 1),
    (50_000, 1),
    (1000, 2),
    (10_000, 2),
    (1000, 8),
    (10_000, 8),
];
const QUICK: [(u32, u32); 2] = [(1000, 1), (10_000, 1)];
/// Lone changes of each kind.
const LONE: u32 = 40;
/// Between two of them: each finds the process quiet.
const PAUSE: Duration = Duration::from_millis(300);
/// Cold starts and installs of each size, each beside a floor of its own; the table has medians.
const RUNS: usize = 5;
/// `[limits] max-imported-routes` as shipped.
const LIMIT: u32 = 20_000;
/// Destinations beyond the first.
const BEYOND: u32 = 60_000;

#[expect(clippy::too_many_lines, reason = "one measurement, step by step")]
pub(crate) async fn import(arguments: ImportArguments) {
    if arguments.networks > 0 {
        return networks(&arguments).await;
    }
    if arguments.sets > 0 {
        return sets(&arguments).await;
    }
    let mut report = Report::new("import", arguments.json.as_deref());
    let wanted = |case: &str| {
        arguments
            .only
            .as_ref()
            .is_none_or(|only| case.contains(only.as_str()))
    };
    let mut testbed = Testbed::build().await;
    let sizes: &[(u32, u32)] = if arguments.quick { &QUICK } else { &SIZES };
    for (count, hops) in sizes {
        let case = format!("{count}x{hops}");
        if wanted(&case) {
            size(
                &mut testbed,
                &mut report,
                &case,
                *count,
                *hops,
                arguments.quick,
            )
            .await;
        }
    }
    let seconds = if arguments.quick { 5 } else { 20 };
    let storms: &[u32] = if arguments.quick {
        &[10_000]
    } else {
        &[100, 1000, 10_000]
    };
    for count in storms {
        let case = format!("storm over {count}");
        if wanted(&case) {
            let (mut agent, _) = fresh(&testbed, *count, 1).await;
            agent.until_agreed().await;
            testbed.until_settled().await;
            storm(&testbed, agent.watched, &mut report, &case, seconds).await;
        }
    }
    let rates: &[u32] = if arguments.quick {
        &[20, 100]
    } else {
        &[1, 5, 20, 100]
    };
    for each in rates {
        let case = format!("rate {each} a second over 10000");
        if wanted(&case) {
            let (mut agent, _) = fresh(&testbed, 10_000, 1).await;
            agent.until_agreed().await;
            testbed.until_settled().await;
            rate(&testbed, agent.watched, &mut report, &case, *each).await;
        }
    }
    let case = "idle with 10000";
    if wanted(case) {
        let (mut agent, _) = fresh(&testbed, 10_000, 1).await;
        agent.until_agreed().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let cpu = agent.watched.cpu();
        let seconds = if arguments.quick { 3 } else { 10 };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let used = (agent.watched.cpu() - cpu).as_secs_f64() * 1000.0;
        report.put(case, &format!("agent CPU in {seconds} s"), "ms", used);
    }
}

/// So many routes in the kernel, none in the database, a process that has just been started; it ends with all of them written.
/// Also returns the server's processor time since the start.
async fn fresh(testbed: &Testbed, count: u32, hops: u32) -> (Agent, Duration) {
    testbed.flush();
    testbed.empty().await;
    ip_batch(&lines("add", 0, count, hops));
    let cpu = testbed.database.cpu();
    let agent = Agent::start(testbed, limit(count));
    testbed.observer.until_rows(rows(count, hops)).await;
    (agent, testbed.database.cpu() - cpu)
}

/// The shipped limit; where a case has more destinations, what an admin would set for them.
fn limit(count: u32) -> u32 {
    if count + 1000 > LIMIT { 200_000 } else { LIMIT }
}

fn rows(count: u32, hops: u32) -> usize {
    usize::try_from(count * hops).expect("a number of rows")
}

#[expect(clippy::too_many_lines, reason = "one measurement, step by step")]
async fn size(
    testbed: &mut Testbed,
    report: &mut Report,
    case: &str,
    count: u32,
    hops: u32,
    quick: bool,
) {
    let all = rows(count, hops);
    let allowed = f64::from(limit(count));
    report.put(case, "[limits] max-imported-routes", "", allowed);
    let runs = if quick { 3 } else { RUNS };
    let mut cold = Runs::new();
    let mut last = None;
    for _ in 0..runs {
        // The floor of the same moment: the machine's own speed differs between two runs.
        let mut raw = Raw::start();
        let floor = raw.add(0, count, hops);
        let mut lone: Vec<f64> = (0..LONE / 4)
            .map(|at| raw.add(BEYOND + at, 1, hops).wall.as_secs_f64() * 1000.0)
            .collect();
        let (lone, clear) = (percentile(&mut lone, 50), raw.clear());
        drop(raw);
        drop(last.take());
        let (agent, server) = fresh(testbed, count, hops).await;
        cold.add(agent.started.elapsed(), floor.wall);
        last = Some((agent, server, floor, lone, clear));
    }
    cold.put(report, case, "cold start: wall");
    let (agent, server, floor, lone_floor, clear_floor) = last.expect("at least one run");
    report.put(
        case,
        "cold start: agent CPU",
        "s",
        agent.watched.cpu().as_secs_f64(),
    );
    report.put_with_floor(
        case,
        "cold start: ovsdb-server CPU",
        "s",
        server.as_secs_f64(),
        floor.server.as_secs_f64(),
    );
    report.put(
        case,
        "cold start: agent peak RSS",
        "MiB",
        agent.watched.peak(),
    );
    drop(agent);

    let mut agent = Agent::start(testbed, limit(count));
    let before = testbed.observer.generation();
    let took = agent.until_agreed().await;
    report.put(
        case,
        "restart, nothing to do: wall",
        "s",
        took.as_secs_f64(),
    );
    report.put(
        case,
        "restart, nothing to do: agent CPU",
        "s",
        agent.watched.cpu().as_secs_f64(),
    );
    report.put(
        case,
        "restart, nothing to do: peak RSS",
        "MiB",
        agent.watched.peak(),
    );
    report.put(
        case,
        "restart, nothing to do: NB updates",
        "",
        updates(testbed, before),
    );

    testbed.until_settled().await;
    lone(
        testbed,
        report,
        case,
        agent.watched,
        if quick { 8 } else { LONE },
        lone_floor,
    )
    .await;
    if count >= 10_000 {
        bulk(testbed, report, case, agent.watched, hops).await;
    }

    tokio::time::sleep(Duration::from_secs(2)).await;
    let (cpu, server, before) = (
        agent.watched.cpu(),
        testbed.database.cpu(),
        testbed.observer.generation(),
    );
    testbed.flush();
    let start = now();
    testbed.observer.until_rows(0).await;
    report.put_with_floor(
        case,
        "delete all: wall after the last",
        "s",
        start.elapsed().as_secs_f64(),
        clear_floor.wall.as_secs_f64(),
    );
    settle().await;
    report.put(
        case,
        "delete all: agent CPU",
        "s",
        (agent.watched.cpu() - cpu).as_secs_f64(),
    );
    report.put_with_floor(
        case,
        "delete all: ovsdb-server CPU",
        "s",
        (testbed.database.cpu() - server).as_secs_f64(),
        clear_floor.server.as_secs_f64(),
    );
    report.put(case, "delete all: NB updates", "", updates(testbed, before));
    drop(agent);

    let mut install = Runs::new();
    let mut last = None;
    for _ in 0..runs {
        drop(last.take());
        let floor = Raw::start().add(0, count, hops);
        testbed.flush();
        testbed.empty().await;
        let mut agent = Agent::start(testbed, limit(count));
        agent.until_agreed().await;
        settle().await;
        agent.watched.forget_peak();
        let (cpu, server, before) = (
            agent.watched.cpu(),
            testbed.database.cpu(),
            testbed.observer.generation(),
        );
        let batch = lines("add", 0, count, hops);
        let start = now();
        let batch = tokio::task::spawn_blocking(move || {
            ip_batch(&batch);
            now()
        });
        testbed.observer.until_rows(all).await;
        let done = now();
        let reported = batch.await.expect("ip ends");
        install.add(done - start, floor.wall);
        last = Some((agent, cpu, server, before, done, reported, floor));
    }
    install.put(report, case, "install while running: wall");
    let (agent, cpu, server, before, done, last, floor) = last.expect("at least one run");
    report.put(
        case,
        "install while running: after the last",
        "s",
        done.saturating_duration_since(last).as_secs_f64(),
    );
    settle().await;
    report.put(
        case,
        "install while running: agent CPU",
        "s",
        (agent.watched.cpu() - cpu).as_secs_f64(),
    );
    report.put_with_floor(
        case,
        "install while running: ovsdb CPU",
        "s",
        (testbed.database.cpu() - server).as_secs_f64(),
        floor.server.as_secs_f64(),
    );
    report.put(
        case,
        "install while running: peak RSS",
        "MiB",
        agent.watched.peak(),
    );
    report.put(
        case,
        "install while running: NB updates",
        "",
        updates(testbed, before),
    );
}

fn updates(testbed: &Testbed, before: u64) -> f64 {
    f64::from(u32::try_from(testbed.observer.generation() - before).unwrap_or(u32::MAX))
}

/// What follows a change by itself, a dump that checks it for one, belongs to its cost.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1500)).await;
}

/// One route more, one route less, again and again.
async fn lone(
    testbed: &mut Testbed,
    report: &mut Report,
    case: &str,
    agent: Watched,
    times: u32,
    floor: f64,
) {
    settle().await;
    let all = testbed.observer.rows();
    let (mut more, mut less) = (Vec::new(), Vec::new());
    let cpu = agent.cpu();
    for number in 0..times {
        let to = prefix(BEYOND + number);
        let start = now();
        testbed
            .kernel
            .replace(to, router(1))
            .expect("the kernel takes it");
        testbed.observer.until_rows(all + 1).await;
        more.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
        let start = now();
        testbed.kernel.delete(to).expect("the kernel takes it");
        testbed.observer.until_rows(all).await;
        less.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
    }
    settle().await;
    let used = (agent.cpu() - cpu).as_secs_f64() * 1000.0 / f64::from(times * 2);
    report.put_with_floor(
        case,
        "+1 route: p50",
        "ms",
        percentile(&mut more, 50),
        floor,
    );
    report.put(case, "+1 route: p99", "ms", percentile(&mut more, 99));
    report.put(case, "-1 route: p50", "ms", percentile(&mut less, 50));
    report.put(case, "-1 route: p99", "ms", percentile(&mut less, 99));
    report.put(case, "one change: agent CPU", "ms", used);
}

/// 1,000 routes more in one go, and less.
async fn bulk(testbed: &Testbed, report: &mut Report, case: &str, agent: Watched, hops: u32) {
    let all = testbed.observer.rows();
    for (command, there) in [("add", rows(1000, hops)), ("del", 0)] {
        let before = testbed.observer.generation();
        let (cpu, server) = (agent.cpu(), testbed.database.cpu());
        ip_batch(&lines(command, BEYOND, 1000, hops));
        let start = now();
        testbed.observer.until_rows(all + there).await;
        let sign = if there > 0 { "+" } else { "-" };
        report.put(
            case,
            &format!("{sign}1000 routes: after the last"),
            "s",
            start.elapsed().as_secs_f64(),
        );
        settle().await;
        report.put(
            case,
            &format!("{sign}1000 routes: agent CPU"),
            "s",
            (agent.cpu() - cpu).as_secs_f64(),
        );
        report.put(
            case,
            &format!("{sign}1000 routes: ovsdb-server CPU"),
            "s",
            (testbed.database.cpu() - server).as_secs_f64(),
        );
        report.put(
            case,
            &format!("{sign}1000 routes: NB updates"),
            "",
            updates(testbed, before),
        );
    }
}

/// The whole node-agent of a lab: with its topology, bridge, report, and with northd and ovn-controller beside it.
pub(crate) async fn whole(arguments: WholeArguments) {
    let mut report = Report::new("import of the whole agent", arguments.json.as_deref());
    let mut testbed = Testbed::attach(arguments.north, arguments.database).await;
    let agent = Watched::new(arguments.agent);
    let case = "10000x1";
    report.put(case, "before: agent RSS", "MiB", agent.peak());
    let (cpu, before) = (agent.cpu(), testbed.observer.generation());
    let batch = lines("add", 0, 10_000, 1);
    let start = now();
    let batch = tokio::task::spawn_blocking(move || {
        ip_batch(&batch);
        now()
    });
    testbed.observer.until_rows(10_000).await;
    let done = now();
    let last = batch.await.expect("ip ends");
    let name = |what: &str| format!("install while running: {what}");
    report.put(case, &name("wall"), "s", (done - start).as_secs_f64());
    let after = done.saturating_duration_since(last);
    report.put(case, &name("after the last"), "s", after.as_secs_f64());
    settle().await;
    report.put(
        case,
        &name("agent CPU"),
        "s",
        (agent.cpu() - cpu).as_secs_f64(),
    );
    report.put(case, &name("NB updates"), "", updates(&testbed, before));
    report.put(case, &name("agent peak RSS"), "MiB", agent.peak());
    // northd and ovn-controller have much to do first.
    tokio::time::sleep(Duration::from_secs(20)).await;
    lone(&mut testbed, &mut report, case, agent, LONE, f64::NAN).await;
    bulk(&testbed, &mut report, case, agent, 1).await;
    storm(&testbed, agent, &mut report, "storm over 10000", 20).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let cpu = agent.cpu();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let used = (agent.cpu() - cpu).as_secs_f64() * 1000.0;
    report.put("idle with 10000", "agent CPU in 10 s", "ms", used);
    testbed.flush();
}
