//! When ways are visited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use plan_node::paths::prober::{Due, Prober};
use plan_node::paths::visit::Verdict;

const MINUTE: Duration = Duration::from_secs(60);

fn many(count: u32) -> Paths {
    let one = |number: u32| {
        let to = format!("172.30.{}.{}", number / 250, number % 250 + 1);
        (key(&format!("n{number:04}"), &to), way("172.31.0.1", 9000))
    };
    (0..count).map(one).collect()
}

fn mk_prober(own: &str, paths: &Paths) -> Prober {
    let mut prober = Prober::new(NodeName::from(own), MINUTE);
    prober.set(paths, Duration::ZERO);
    prober
}

/// All visits that begin until then, each of which ends at once; and when each began.
fn begun(prober: &mut Prober, until: Duration) -> Vec<(Duration, Due)> {
    let mut all = Vec::new();
    while let Some(at) = prober.wakes().filter(|at| *at < until) {
        let due = prober.begin(at).unwrap();
        prober.ended(&due, Some(Verdict::Wide));
        all.push((at, due));
    }
    all
}

#[test]
fn a_thousand_ways_are_visited_once_a_minute_each_evenly() {
    let paths = many(999);
    let mut prober = mk_prober("n0500", &paths);
    let all = begun(&mut prober, 3 * MINUTE);
    assert!((2990..3010).contains(&all.len()), "{}", all.len());
    let mut times: BTreeMap<PathKey, Vec<Duration>> = BTreeMap::new();
    for (at, due) in &all {
        times.entry(due.key.clone()).or_default().push(*at);
    }
    assert_eq!(times.len(), 999);
    for times in times.values() {
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= MINUTE && pair[1] - pair[0] < 2 * MINUTE);
        }
    }
    for second in 0..180 {
        let second = Duration::from_secs(second);
        let within = |at: &Duration| (second..second + Duration::from_secs(1)).contains(at);
        let count = all.iter().filter(|(at, _)| within(at)).count();
        assert!(count <= 18, "{count} in a second");
    }
    // It begins with the nodes after its own.
    assert_eq!(all[0].1.key.node.as_str(), "n0500");
    assert_eq!(all[998].1.key.node.as_str(), "n0499");
}

#[test]
fn a_few_ways_are_visited_within_a_second() {
    let mut prober = mk_prober("n2", &many(3));
    assert!(!prober.is_settled());
    let all = begun(&mut prober, Duration::from_secs(1));
    assert_eq!(all.len(), 3);
    assert!(prober.is_settled());
    prober.set(&many(4), Duration::from_secs(1));
    assert!(!prober.is_settled(), "one is new");
}

#[test]
fn no_way_is_visited_twice_at_a_time() {
    let paths = many(2);
    let mut prober = mk_prober("x", &paths);
    let mut under_way = BTreeSet::new();
    for at in (0..600).map(Duration::from_secs) {
        while let Some(due) = prober.begin(at) {
            assert!(under_way.insert(due.key.clone()), "again");
        }
    }
    assert_eq!(under_way.len(), 2);
    assert_eq!(prober.wakes(), None);
}

#[test]
fn what_is_found_is_forgotten_with_the_way_and_what_comes_late_is_not_heard() {
    let (paths, none) = (many(2), Paths::new());
    let narrow = Some(Verdict::Narrow { passes: 1500 });
    let mut prober = mk_prober("x", &paths);
    let first = prober.begin(Duration::ZERO).unwrap();
    prober.ended(&first, narrow);
    assert_eq!(prober.narrow(), BTreeMap::from([(first.key.clone(), 1500)]));
    // The same ways again change nothing.
    prober.set(&paths, Duration::from_secs(1));
    assert_eq!(prober.narrow().len(), 1);
    let second = prober.begin(Duration::from_secs(1)).unwrap();
    prober.set(&none, Duration::from_secs(2));
    prober.ended(&second, narrow);
    assert!(prober.narrow().is_empty());
    // From another address it is another way.
    prober.set(&paths, Duration::from_secs(3));
    let old = prober.begin(Duration::from_secs(3)).unwrap();
    let moved = many(2)
        .into_keys()
        .map(|key| (key, way("172.31.0.2", 9000)));
    prober.set(&moved.collect(), Duration::from_secs(4));
    prober.ended(&old, narrow);
    assert!(prober.narrow().is_empty());
}

#[test]
fn a_way_whose_packets_grow_is_visited_at_once() {
    let mut paths = many(1);
    let mut prober = mk_prober("x", &paths);
    let due = prober.begin(Duration::ZERO).unwrap();
    prober.ended(&due, Some(Verdict::Wide));
    assert_eq!(prober.wakes(), Some(MINUTE));
    paths
        .values_mut()
        .for_each(|path| *path = way("172.31.0.1", 9100));
    prober.set(&paths, Duration::from_secs(5));
    assert_eq!(prober.wakes(), Some(Duration::from_secs(5)));
    let due = prober.begin(Duration::from_secs(5)).unwrap();
    assert_eq!(due.visit.next(), Some(9100));
    // A visit that began with other packets says nothing of these.
    paths
        .values_mut()
        .for_each(|path| *path = way("172.31.0.1", 9200));
    prober.set(&paths, Duration::from_secs(6));
    prober.ended(&due, Some(Verdict::Wide));
    let verdicts: Vec<Verdict> = prober.verdicts().map(|(_, verdict)| verdict).collect();
    assert_eq!(verdicts, [Verdict::Unknown]);
    assert_eq!(prober.wakes(), Some(Duration::from_secs(6)));
}
