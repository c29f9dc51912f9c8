//! What is lost on the way: events of the kernel, and the database's server itself.
//!
//! In: bursts, and kills. Out: the right rows. Invariant: steady rows stay, in the database's file too.
//! Not here: dumps that fail (`tests/dump.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use import_tests::{Agent, AgentConfig, Rng, Testbed, absent, until};
use model::subnets::Subnets;
use netns_tests::{in_namespace, ip_batch};
use ovsdb_tests::{Proxy, Relay};

fn lines(verb: &str, count: u32, hop: u32) -> String {
    let line = |number: u32| {
        let (high, low) = (number >> 8, number & 255);
        let via = match verb {
            "del" => String::new(),
            _ => format!(" via 172.30.9.{hop}"),
        };
        format!("route {verb} 30.{high}.{low}.0/24{via} proto bgp metric 25\n")
    };
    (0..count).map(line).collect()
}

#[test]
fn a_burst_that_overruns_the_kernels_buffer_ends_with_the_right_rows() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        let agent = Agent::start(AgentConfig {
            buffer: Some(4096),
            ..testbed.config()
        });
        let quiet = Duration::from_millis(300);
        testbed.until_settled(quiet).await;
        let steady = testbed.guard_steady();
        // The test's thread is the agent's: nothing is read while a burst lasts.
        for burst in [
            lines("add", 1500, 1),
            lines("replace", 1500, 2),
            [lines("del", 700, 2), lines("replace", 900, 3)].concat(),
            [lines("del", 1500, 3), lines("add", 40, 4)].concat(),
        ] {
            let before = agent.lost();
            ip_batch(&burst);
            testbed.until_settled(quiet).await;
            assert!(agent.lost() > before, "the burst was meant to be too large");
            testbed.assert_steady(&steady);
        }
        assert_eq!(testbed.observer.observe().imported().len(), 60 + 40);
    });
}

#[test]
fn a_database_killed_under_load_and_started_again_keeps_what_stands_and_gets_the_rest() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut rng = Rng::of_this_run();
        let mut testbed = Testbed::build().await;
        let _agent = testbed.agent();
        let quiet = Duration::from_millis(200);
        testbed.until_settled(quiet).await;
        let steady = testbed.guard_steady();
        for round in 0..8 {
            let hop = 2 + round % 3;
            let load = match round % 4 {
                0 => lines("add", 2000, hop),
                3 => lines("del", 2000, hop),
                _ => lines("replace", 2000, hop),
            };
            let load = tokio::task::spawn_blocking(move || ip_batch(&load));
            tokio::time::sleep(Duration::from_millis(20 + rng.below(400))).await;
            testbed.server.crash();
            load.await.unwrap();
            tokio::time::sleep(Duration::from_millis(rng.below(300))).await;
            testbed.server.up();
            until("the observer is back", || testbed.observer.is_live()).await;
            // What the new server tells first is what was in the file.
            testbed.assert_steady(&steady);
            testbed.until_settled(quiet).await;
            testbed.assert_steady(&steady);
        }
    });
}

#[test]
fn what_an_outage_of_the_database_cost_is_in_the_histogram() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut testbed = Testbed::build().await;
        let agent = testbed.agent();
        testbed.until_settled(Duration::from_millis(300)).await;
        let before = agent.metric("noverlay_import_duration_seconds");
        let away = Duration::from_millis(1500);
        testbed.server.crash();
        ip_batch("route add 30.1.1.0/24 via 172.30.9.1 proto bgp metric 25\n");
        tokio::time::sleep(away).await;
        testbed.server.up();
        testbed.until_settled(Duration::from_millis(300)).await;
        let cost = agent.metric("noverlay_import_duration_seconds") - before;
        assert!(cost >= away.as_secs_f64(), "{cost} s of at least {away:?}");
    });
}

/// Ends a thread of changes with the test, also where it fails.
#[derive(Default)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn other_inputs_are_followed_while_routes_change_faster_than_the_database_answers() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        let slow = Relay::Gathered(Duration::from_millis(150));
        let proxy = Proxy::start(
            testbed.server.path("slow.sock"),
            testbed.server.socket(),
            slow,
        );
        let agent = Agent::start(AgentConfig {
            socket: proxy.socket().to_path_buf(),
            ..testbed.config()
        });
        agent.until_agreed().await;
        let over = Over::default();
        let churn = tokio::task::spawn_blocking({
            let over = Arc::clone(&over.0);
            move || {
                for hop in (1..200).cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    ip_batch(&lines("replace", 10, hop));
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let hidden = testbed.steady.iter().next().unwrap().clone();
        let subnet = hidden.parse().unwrap();
        agent.change(|inputs| inputs.scope.other_networks = Subnets::from_iter([(subnet, ())]));
        let rows = || testbed.observer.observe().imported();
        until("the row of what is another network's now goes", || {
            rows().iter().all(|(prefix, _)| *prefix != hidden)
        })
        .await;
        drop(over);
        churn.await.unwrap();
    });
}
