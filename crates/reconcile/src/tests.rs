//! The loop under paused time: no sleeping, no "eventually".

use super::*;
use std::collections::VecDeque;

#[derive(Default)]
struct Log {
    passes: Vec<(&'static str, u128)>,
    answers: BTreeMap<&'static str, VecDeque<Action>>,
    keys: VecDeque<Option<Vec<&'static str>>>,
    sweeps: usize,
}

struct Recorder(Arc<Mutex<Log>>, Instant, Duration);

impl Reconciler for Recorder {
    type Key = &'static str;

    async fn keys(&mut self) -> Option<Vec<&'static str>> {
        let mut log = self.0.lock().unwrap();
        log.sweeps += 1;
        log.keys.pop_front().unwrap_or(Some(Vec::new()))
    }

    async fn reconcile(&mut self, key: &&'static str) -> Action {
        tokio::time::sleep(self.2).await;
        let mut log = self.0.lock().unwrap();
        log.passes.push((key, self.1.elapsed().as_millis()));
        log.answers
            .get_mut(key)
            .and_then(VecDeque::pop_front)
            .unwrap_or(Action::Done)
    }
}

fn timing() -> Timing {
    Timing {
        pace: Pace::Fixed(Duration::from_millis(100)),
        sweep: Duration::from_secs(1000),
        retry_first: Duration::from_millis(200),
        retry_most: Duration::from_secs(1),
        ..Timing::default()
    }
}

struct Fixture {
    log: Arc<Mutex<Log>>,
    queue: WorkQueue<&'static str>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(log: Log, pass_time: Duration) -> Fixture {
    start_with(log, pass_time, timing())
}

fn start_with(log: Log, pass_time: Duration, timing: Timing) -> Fixture {
    let log = Arc::new(Mutex::new(log));
    let queue = WorkQueue::new();
    let (stop, stopped) = watch::channel(false);
    let recorder = Recorder(Arc::clone(&log), Instant::now(), pass_time);
    let task = tokio::spawn(run(recorder, queue.clone(), timing, stopped));
    Fixture {
        log,
        queue,
        stop,
        task,
    }
}

async fn ms(n: u64) {
    tokio::time::sleep(Duration::from_millis(n)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_quiet_key_passes_at_once_and_a_storm_is_coalesced_to_the_pace() {
    let b = start(Log::default(), Duration::ZERO);
    ms(10).await;
    for _ in 0..1000 {
        b.queue.enqueue("a");
        ms(1).await;
    }
    let passes = b.log.lock().unwrap().passes.clone();
    assert_eq!(passes[0], ("a", 10));
    assert!(passes.len() <= 11, "{passes:?}");
    assert!(
        passes.len() >= 10,
        "churn must not starve the key: {passes:?}"
    );
}

fn by_cost() -> Timing {
    Timing {
        pace: Pace::ByCost {
            share: 30,
            least: Duration::from_millis(2),
            gather: Duration::from_millis(40),
        },
        ..timing()
    }
}

/// When passes of a key ended that was enqueued so many times, so often.
async fn passes_of(b: &Fixture, requests: u32, each: u64) -> Vec<u128> {
    b.log.lock().unwrap().passes.clear();
    for _ in 0..requests {
        b.queue.enqueue("a");
        ms(each).await;
    }
    ms(100).await;
    let passes = b.log.lock().unwrap().passes.clone();
    passes.iter().map(|(_, at)| *at).collect()
}

fn gaps(passes: &[u128]) -> Vec<u128> {
    passes.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn with_a_pace_by_cost_single_requests_pass_at_once_and_storms_are_gathered() {
    let b = start_with(Log::default(), Duration::from_millis(2), by_cost());
    ms(10).await;
    // A fifth of the time.
    let single = gaps(&passes_of(&b, 200, 10).await);
    assert!(single.iter().all(|gap| *gap == 10), "{single:?}");
    assert_eq!(single.len(), 199);

    let storm = gaps(&passes_of(&b, 2000, 1).await);
    let (first, later) = storm.split_at(40);
    assert_eq!(first[..10], [2; 10], "at once, until it costs too much");
    assert!(first.contains(&42), "{first:?}");
    assert!(later.iter().all(|gap| *gap == 42), "{later:?}");

    // What is gathered ends with the storm, also where requests go on to come.
    let after = gaps(&passes_of(&b, 200, 10).await);
    assert!(after[1..].iter().all(|gap| *gap == 10), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn passes_that_take_next_to_nothing_are_gathered_in_a_storm_too() {
    let b = start_with(Log::default(), Duration::ZERO, by_cost());
    ms(10).await;
    let storm = passes_of(&b, 2000, 1).await;
    assert!(storm.len() < 100, "{storm:?}");
    let single = gaps(&passes_of(&b, 200, 10).await);
    assert!(single[1..].iter().all(|gap| *gap == 10), "{single:?}");
}

#[tokio::test(start_paused = true)]
async fn one_pass_that_takes_long_delays_few_others() {
    let b = start_with(Log::default(), Duration::from_secs(5), by_cost());
    b.queue.enqueue("a");
    ms(10).await;
    b.queue.enqueue("a");
    ms(20_000).await;
    let passes = b.log.lock().unwrap().passes.clone();
    assert_eq!(passes, [("a", 5000), ("a", 10_040)]);
}

/// Its first pass takes long, the others 2 ms.
struct LongAtFirst(Recorder, bool);

impl Reconciler for LongAtFirst {
    type Key = &'static str;

    async fn keys(&mut self) -> Option<Vec<&'static str>> {
        self.0.keys().await
    }

    async fn reconcile(&mut self, key: &&'static str) -> Action {
        if !std::mem::replace(&mut self.1, true) {
            ms(5000).await;
        }
        self.0.reconcile(key).await
    }
}

#[tokio::test(start_paused = true)]
async fn one_long_pass_is_forgotten_while_requests_go_on() {
    let log = Arc::new(Mutex::new(Log::default()));
    let (queue, (_stop, stopped)) = (WorkQueue::new(), watch::channel(false));
    let recorder = Recorder(Arc::clone(&log), Instant::now(), Duration::from_millis(2));
    tokio::spawn(run(
        LongAtFirst(recorder, false),
        queue.clone(),
        by_cost(),
        stopped,
    ));
    for _ in 0..2000 {
        queue.enqueue("a");
        ms(10).await;
    }
    let passes: Vec<u128> = log
        .lock()
        .unwrap()
        .passes
        .iter()
        .map(|(_, at)| *at)
        .collect();
    let last = gaps(&passes[passes.len() - 100..]);
    assert!(last.iter().all(|gap| *gap == 10), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_at_once_is_not_tried_faster_because_it_is_asked_for() {
    let failing = || VecDeque::from(vec![Action::Requeue; 100_000]);
    let log = Log {
        answers: BTreeMap::from([("a", failing())]),
        ..Log::default()
    };
    let b = start_with(log, Duration::ZERO, by_cost());
    let passes = passes_of(&b, 10_000, 1).await.len();
    assert!(passes <= 10_100 / 40 + 20, "{passes}");
}

#[tokio::test(start_paused = true)]
async fn a_resync_counts_as_a_request_of_each_key() {
    let log = Log {
        keys: VecDeque::from(vec![Some(vec!["a"]); 10_000]),
        ..Log::default()
    };
    let b = start_with(log, Duration::from_millis(2), by_cost());
    for _ in 0..2000 {
        b.queue.resync();
        ms(1).await;
    }
    let passes: Vec<u128> = b.log.lock().unwrap().passes.iter().map(|p| p.1).collect();
    let later = gaps(&passes[40..]);
    assert!(later.iter().all(|gap| *gap >= 42), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn no_rest_follows_a_pass_that_found_nothing_to_do() {
    let log = Log {
        answers: BTreeMap::from([("a", VecDeque::from([Action::NoChange]))]),
        ..Log::default()
    };
    let b = start(log, Duration::from_millis(10));
    for _ in 0..3 {
        b.queue.enqueue("a");
        ms(11).await;
    }
    ms(100).await;
    let passes = b.log.lock().unwrap().passes.clone();
    assert_eq!(passes, [("a", 10), ("a", 21), ("a", 131)]);
}

#[tokio::test(start_paused = true)]
async fn requests_during_a_pass_give_exactly_one_more_pass() {
    let b = start(Log::default(), Duration::from_millis(50));
    b.queue.enqueue("a");
    ms(20).await;
    b.queue.enqueue("a");
    b.queue.enqueue("a");
    ms(1000).await;
    assert_eq!(b.log.lock().unwrap().passes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_backs_off_and_does_not_hold_up_its_neighbour() {
    let log = Log {
        answers: BTreeMap::from([(
            "a",
            VecDeque::from([Action::Requeue, Action::Requeue, Action::Requeue]),
        )]),
        ..Log::default()
    };
    let b = start(log, Duration::ZERO);
    b.queue.enqueue("a");
    ms(5).await;
    b.queue.enqueue("b");
    ms(5000).await;
    let passes = b.log.lock().unwrap().passes.clone();
    assert_eq!(
        passes,
        [("a", 0), ("b", 5), ("a", 200), ("a", 600), ("a", 1400)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_awaits_a_change_waits_for_a_request() {
    let log = Log {
        answers: BTreeMap::from([("a", VecDeque::from([Action::AwaitChange]))]),
        ..Log::default()
    };
    let b = start(log, Duration::ZERO);
    b.queue.enqueue("a");
    ms(10_000).await;
    assert_eq!(b.log.lock().unwrap().passes.len(), 1);
    b.queue.enqueue("a");
    ms(1).await;
    assert_eq!(b.log.lock().unwrap().passes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resync_means_all_keys_and_an_unreadable_world_is_asked_again() {
    let log = Log {
        keys: VecDeque::from([None, Some(vec!["x"]), Some(vec!["x", "y"])]),
        ..Log::default()
    };
    let b = start(log, Duration::ZERO);
    ms(300).await;
    assert_eq!(b.log.lock().unwrap().passes, [("x", 200)]);
    b.queue.resync();
    ms(150).await;
    let log = b.log.lock().unwrap();
    assert_eq!(log.sweeps, 3);
    assert_eq!(log.passes, [("x", 200), ("x", 300), ("y", 300)]);
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_the_pass_under_way() {
    let b = start(Log::default(), Duration::from_millis(50));
    b.queue.enqueue("a");
    ms(10).await;
    b.stop.send(true).unwrap();
    b.task.await.unwrap();
    assert_eq!(b.log.lock().unwrap().passes, [("a", 50)]);
}

fn gathering() -> Timing {
    Timing {
        gather: Duration::from_millis(300),
        gather_most: Duration::from_secs(3),
        ..timing()
    }
}

#[tokio::test(start_paused = true)]
async fn a_gathering_key_waits_for_the_end_of_a_burst_and_passes_once() {
    let b = start_with(Log::default(), Duration::ZERO, gathering());
    ms(10).await;
    for _ in 0..5 {
        b.queue.enqueue("a");
        ms(100).await;
    }
    ms(5000).await;
    assert_eq!(b.log.lock().unwrap().passes, [("a", 710)]);
}

#[tokio::test(start_paused = true)]
async fn churn_puts_a_gathering_key_off_by_its_limit_and_no_longer() {
    let b = start_with(Log::default(), Duration::ZERO, gathering());
    for _ in 0..1000 {
        b.queue.enqueue("a");
        ms(10).await;
    }
    ms(1000).await;
    let passes = b.log.lock().unwrap().passes.clone();
    let times: Vec<u128> = passes.iter().map(|(_, at)| *at).collect();
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times[0] >= 3000 && times[0] <= 3010, "{times:?}");
    assert!(times[3] >= 10_000 && times[3] <= 10_300, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_put_off_a_retry_that_is_due_sooner() {
    let log = Log {
        answers: BTreeMap::from([("a", VecDeque::from([Action::Requeue]))]),
        ..Log::default()
    };
    let b = start_with(log, Duration::ZERO, gathering());
    b.queue.enqueue("a");
    ms(450).await;
    b.queue.enqueue("a");
    ms(3000).await;
    assert_eq!(b.log.lock().unwrap().passes, [("a", 300), ("a", 500)]);
}
