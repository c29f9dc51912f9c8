//! Changes one after the other, so many a second, and how long each takes into the database.
//! In: a site with routes. Out: times of new routes and of changed next hops, processor time. Invariant: changes come at an even
//! pace, whether the one before has arrived or not. Not here: storms, where changes are gathered.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::kernel::{Kernel, prefix, router};
use crate::process::Watched;
use crate::report::{Report, percentile};
use crate::testbed::{LINK, Testbed, now};

/// The first destination that changes: beyond all others.
const FIRST: u32 = 150_000;
/// Of each kind of change: this many seconds of them, and this many at least.
const SECONDS: u32 = 10;
const LEAST: u32 = 20;

/// Sets the next hop of each destination in its turn; returns when.
fn change(rate: u32, count: u32, hop: u32) -> anyhow::Result<Vec<Instant>> {
    let mut kernel = Kernel::open(LINK)?;
    let (start, mut made) = (now(), Vec::new());
    for number in 0..count {
        let due = start + Duration::from_secs(1) * number / rate;
        std::thread::sleep(due.saturating_duration_since(now()));
        made.push(now());
        kernel.replace(prefix(FIRST + number), router(hop))?;
    }
    Ok(made)
}

/// `rate` changes a second: destinations that are new, then the same with another next hop.
pub(crate) async fn rate(
    testbed: &Testbed,
    agent: Watched,
    report: &mut Report,
    case: &str,
    rate: u32,
) {
    let count = (rate * SECONDS).max(LEAST);
    for (hop, kind) in [(1, "new route"), (2, "next hop changed")] {
        let cpu = agent.cpu();
        let changing = tokio::task::spawn_blocking(move || change(rate, count, hop));
        let arrived = arrivals(testbed, count, router(hop)).await;
        let made = changing
            .await
            .expect("it ends")
            .expect("the kernel takes it");
        let used = (agent.cpu() - cpu).as_secs_f64() * 1000.0;
        let mut took: Vec<f64> = (0..count)
            .zip(made)
            .filter_map(|(number, at)| Some((number, at, *arrived.get(&prefix(FIRST + number))?)))
            .map(|(_, at, arrived)| (arrived - at).as_secs_f64() * 1000.0)
            .collect();
        for percent in [50, 99] {
            let name = format!("{kind}: p{percent}");
            report.put(case, &name, "ms", percentile(&mut took, percent));
        }
        let each = used / f64::from(count);
        report.put(case, &format!("{kind}: agent CPU for each"), "ms", each);
    }
}

/// When each destination had a row of this next hop.
async fn arrivals(testbed: &Testbed, count: u32, hop: Ipv4Addr) -> BTreeMap<Ipv4Addr, Instant> {
    let (mut arrived, mut from) = (BTreeMap::new(), testbed.observer.generation());
    let range = prefix(FIRST)..prefix(FIRST + count);
    let all = usize::try_from(count).expect("a number of destinations");
    while arrived.len() < all {
        testbed.observer.until_after(from).await;
        let (at, generation) = (now(), testbed.observer.generation());
        for (to, via) in testbed.observer.changed(from) {
            if via == hop && range.contains(&to) {
                arrived.entry(to).or_insert(at);
            }
        }
        from = generation;
    }
    arrived
}
