//! A storm of changes, and how old the database's data is in it.
//! In: a site with routes. Out: processor time, transactions, the data's age. Invariant: changes come at an even pace.
//! Not here: single changes.
//!
//! One destination more changes its next hop every ten milliseconds, and its next hop says when: the data is as old as the
//! first of these changes that cannot be seen yet.

use std::time::{Duration, Instant};

use crate::kernel::{Kernel, prefix, router};
use crate::process::Watched;
use crate::report::Report;
use crate::testbed::{LINK, Testbed, now};

/// Destinations that come and go.
const FLAPPING: u32 = 500;
/// The first of them: beyond all others.
const FIRST: u32 = 100_000;
const PROBE: u32 = 200_000;
/// Changes of the probe, after each so many others: one in 10 ms.
const EACH: u32 = 10;

/// When which change of the probe was made.
struct Reported {
    made: Vec<Instant>,
    last: Instant,
}

fn blow(seconds: u32) -> anyhow::Result<Reported> {
    let mut kernel = Kernel::open(LINK)?;
    let start = now();
    let mut made = Vec::new();
    for number in 0..seconds * 2 * FLAPPING {
        let due = start + Duration::from_millis(u64::from(number));
        std::thread::sleep(due.saturating_duration_since(now()));
        let (round, at) = (number / FLAPPING, number % FLAPPING);
        if round % 2 == 0 {
            kernel.replace(prefix(FIRST + at), router(1))?;
        } else {
            kernel.delete(prefix(FIRST + at))?;
        }
        if number % EACH == 0 {
            made.push(now());
            kernel.replace(prefix(PROBE), router(number / EACH))?;
        }
    }
    Ok(Reported { made, last: now() })
}

/// 1,000 changes a second for so long, over `rows` rows that stay.
pub(crate) async fn storm(
    testbed: &Testbed,
    agent: Watched,
    report: &mut Report,
    case: &str,
    seconds: u32,
) {
    let rows = testbed.observer.rows();
    let (cpu, server) = (agent.cpu(), testbed.database.cpu());
    let before = testbed.observer.generation();
    let wind = tokio::task::spawn_blocking(move || blow(seconds));
    let mut seen: Vec<(Instant, u32)> = Vec::new();
    let mut from = before;
    while !wind.is_finished() {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let generation = testbed.observer.generation();
        let changed = testbed.observer.changed(from);
        from = generation;
        if let Some((_, hop)) = changed.into_iter().find(|(to, _)| *to == prefix(PROBE)) {
            seen.push((now(), hop.to_bits() - router(0).to_bits()));
        }
    }
    let reported = wind.await.expect("it blows").expect("the kernel takes it");
    testbed.observer.until_rows(rows + 1).await;
    let right = reported.last.elapsed();
    let used = (agent.cpu() - cpu).as_secs_f64();
    report.put(case, "agent CPU", "s", used);
    report.put(
        case,
        "ovsdb-server CPU",
        "s",
        (testbed.database.cpu() - server).as_secs_f64(),
    );
    let changes = testbed.observer.generation() - before;
    report.put(
        case,
        "NB updates",
        "",
        f64::from(u32::try_from(changes).unwrap_or(u32::MAX)),
    );
    let mut ages = ages(&reported.made, &seen);
    report.put(
        case,
        "NB age, mean",
        "s",
        ages.iter().sum::<f64>() / f64::from(u32::try_from(ages.len()).unwrap_or(1).max(1)),
    );
    report.put(
        case,
        "NB age, longest",
        "s",
        crate::report::percentile(&mut ages, 100),
    );
    report.put(
        case,
        "right after the last change",
        "s",
        right.as_secs_f64(),
    );
    report.put(case, "agent peak RSS", "MiB", agent.peak());
}

/// How old the data was, every 5 ms.
fn ages(made: &[Instant], seen: &[(Instant, u32)]) -> Vec<f64> {
    let (Some(first), Some(last)) = (made.first(), made.last()) else {
        return Vec::new();
    };
    let mut ages = Vec::new();
    let mut at = *first;
    let mut seen = seen.iter().peekable();
    let mut next = 0;
    while at < *last {
        while let Some((_, number)) = seen.next_if(|(when, _)| *when <= at) {
            next = usize::try_from(*number).unwrap_or(0) + 1;
        }
        let oldest = made.get(next).filter(|oldest| **oldest <= at);
        ages.push(oldest.map_or(0.0, |oldest| (at - *oldest).as_secs_f64()));
        at += Duration::from_millis(5);
    }
    ages
}
