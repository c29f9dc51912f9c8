//! Import with many networks in one process: what each further network costs, and what they cost each other.
//! In: how many, and how many routes each has. Out: times, memory. Invariant: each network has a routing table and a gateway
//! router of its own; tables have no VRF device, which the import does not look at.
//! Not here: planning for many networks (`plan`), one network (`cases`).

use std::time::Duration;

use netns_tests::{ip, ip_batch};
use ovsdb_tests::{mk_router, until_synced};

use crate::ImportArguments;
use crate::agent::{network, table};
use crate::kernel::{Kernel, lines_in, prefix, router};
use crate::process::Watched;
use crate::report::{Report, percentile};
use crate::testbed::{Agent, LINK, Testbed, now};

/// Lone changes.
const LONE: u32 = 40;
/// Between two of them: each finds the process quiet.
const PAUSE: Duration = Duration::from_millis(300);
/// A destination beyond all others.
const BEYOND: u32 = 60_000;

pub(crate) async fn networks(arguments: &ImportArguments) {
    let (number, each) = (arguments.networks, arguments.routes);
    let mut report = Report::new("import", arguments.json.as_deref());
    let case = format!("{number} networks x {each}");
    let testbed = Testbed::build().await;
    let client = testbed.client();
    until_synced(&client).await;
    for number in 1..=number {
        let name = network(number).gateway_router(&"n1".into());
        let made = client.transact(&mk_router(name.as_str())).await;
        made.expect("the router is made");
        ip_batch(&lines_in(table(number), each));
    }
    let all = usize::from(number) * usize::try_from(each).expect("a number of routes");
    let mut put = |metric: &str, unit: &str, value: f64| report.put(&case, metric, unit, value);

    let agent = Agent::start_with(&testbed, 200_000, number);
    testbed.observer.until_rows(all).await;
    put(
        "cold start: wall",
        "s",
        agent.started.elapsed().as_secs_f64(),
    );
    put(
        "cold start: agent CPU",
        "s",
        agent.watched.cpu().as_secs_f64(),
    );
    put("cold start: agent peak RSS", "MiB", agent.watched.peak());
    drop(agent);

    let mut agent = Agent::start_with(&testbed, 200_000, number);
    let took = agent.until_agreed().await;
    put("restart, nothing to do: wall", "s", took.as_secs_f64());
    put(
        "restart, nothing to do: peak RSS",
        "MiB",
        agent.watched.peak(),
    );
    testbed.until_settled().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    put("then: agent RSS", "MiB", agent.watched.resident());
    let cpu = agent.watched.cpu();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = (agent.watched.cpu() - cpu).as_secs_f64() * 1000.0;
    put("idle: agent CPU in 10 s", "ms", idle);

    lone(&testbed, agent.watched, number, all, &mut put).await;
    for number in 1..=number {
        ip(&format!("route flush table {}", table(number)));
    }
}

/// One route more and one route less, of one network after the other.
async fn lone(
    testbed: &Testbed,
    agent: Watched,
    number: u16,
    all: usize,
    put: &mut impl FnMut(&str, &str, f64),
) {
    let mut kernel = Kernel::open(LINK).expect("a socket to the kernel");
    let (mut more, mut less) = (Vec::new(), Vec::new());
    let cpu = agent.cpu();
    for at in 0..LONE {
        kernel.table = Some(table(1 + u16::try_from(at).expect("a few") % number));
        let to = prefix(BEYOND + at);
        let start = now();
        kernel.replace(to, router(1)).expect("the kernel takes it");
        testbed.observer.until_rows(all + 1).await;
        more.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
        let start = now();
        kernel.delete(to).expect("the kernel takes it");
        testbed.observer.until_rows(all).await;
        less.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
    }
    let used = (agent.cpu() - cpu).as_secs_f64() * 1000.0;
    put(
        "+1 route of one network: p50",
        "ms",
        percentile(&mut more, 50),
    );
    put(
        "+1 route of one network: p99",
        "ms",
        percentile(&mut more, 99),
    );
    put(
        "-1 route of one network: p50",
        "ms",
        percentile(&mut less, 50),
    );
    put(
        "-1 route of one network: p99",
        "ms",
        percentile(&mut less, 99),
    );
    put("one change: agent CPU", "ms", used / f64::from(LONE * 2));
}
