//! The connection to the database is cut at every request and inside of them, while many routes come, change and go.
//!
//! In: places of cuts. Out: an import that goes on, or a fresh one, ends with the right rows.
//! Invariant: steady rows stay; a prefix that only changes its next hop has a row at every moment.
//! Not here: other disturbances (`interleave`).

use std::collections::BTreeMap;
use std::time::Duration;

use import_tests::{Agent, AgentConfig, Cut, FaultProxy, Rng, Testbed, absent, until};
use netns_tests::{in_namespace, ip, ip_batch};

const COUNT: u32 = 2000;
/// Requests of a change of so many rows: 500 rows each, a change of next hops is two rows a destination.
const REQUESTS: [usize; 3] = [4, 8, 4];
const QUIET: Duration = Duration::from_millis(50);
const NEVER: Cut = Cut::After(usize::MAX);

fn prefixes() -> Vec<String> {
    let of = |number: u32| format!("30.{}.{}.0/24", number >> 8, number & 255);
    (0..COUNT).map(of).collect()
}

fn lines(verb: &str, hop: &str) -> String {
    let line = |prefix: String| format!("route {verb} {prefix}{hop} proto bgp metric 25\n");
    prefixes().into_iter().map(line).collect()
}

/// Where connections are cut in a change of so many requests: at each boundary, and inside of each.
fn cuts(requests: usize, rng: &mut Rng) -> Vec<Cut> {
    let mut all = Vec::new();
    for number in 0..requests {
        let bytes = *rng.pick(&[1, 40, 900, 20_000, 70_000]);
        all.push(Cut::Inside(number, bytes));
        // One after the other, so that each kind comes whatever the random numbers say.
        all.push(if number % 2 == 0 {
            Cut::After(number + 1)
        } else {
            Cut::Inside(number, 0)
        });
    }
    all
}

/// The kinds of cuts: right after a request, as the next one begins, and inside of one.
const KINDS: [&str; 3] = ["after a request", "before a request", "inside of a request"];

fn kind(cut: Cut) -> &'static str {
    match cut {
        Cut::After(_) => KINDS[0],
        Cut::Inside(_, 0) => KINDS[1],
        Cut::Inside(..) => KINDS[2],
    }
}

struct Scene {
    testbed: Testbed,
    fault_proxy: FaultProxy,
    agent: Agent,
    /// By kind: how many cuts came, of how many.
    done: BTreeMap<&'static str, (usize, usize)>,
}

impl Scene {
    fn through(testbed: &Testbed, fault_proxy: &FaultProxy) -> Agent {
        Agent::start(AgentConfig {
            socket: fault_proxy.socket().to_owned(),
            ..testbed.config()
        })
    }

    /// Makes a change of the kernel with a cut in it; then the agent goes on, or another one comes.
    async fn change(&mut self, lines: &str, cut: Cut, fresh: bool) {
        let before = self.fault_proxy.cuts();
        self.fault_proxy.arm(cut);
        ip_batch(lines);
        if fresh {
            let (fault_proxy, testbed) = (&self.fault_proxy, &self.testbed);
            // Events that come in pieces may need fewer requests than were counted on.
            until("the cut, or all is written", || {
                let seen = testbed.observer.observe();
                fault_proxy.cuts() > before || seen.imported() == testbed.wanted(&seen)
            })
            .await;
            self.agent = Self::through(&self.testbed, &self.fault_proxy);
        }
        self.testbed.until_settled(QUIET).await;
        if cut != NEVER {
            let (came, meant) = self.done.entry(kind(cut)).or_default();
            *came += self.fault_proxy.cuts() - before;
            *meant += 1;
        }
        self.fault_proxy.disarm();
    }
}

#[test]
fn a_cut_at_any_request_or_inside_of_it_costs_no_row_that_should_stay() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut rng = Rng::of_this_run();
        let testbed = Testbed::build().await;
        let fault_proxy =
            FaultProxy::start(testbed.server.path("cut.sock"), testbed.server.socket());
        let agent = Scene::through(&testbed, &fault_proxy);
        testbed.until_settled(Duration::from_millis(300)).await;
        let steady = testbed.guard_steady();
        let mut scene = Scene {
            testbed,
            fault_proxy,
            agent,
            done: BTreeMap::new(),
        };
        let mut queues = REQUESTS.map(|requests| cuts(requests, &mut rng));
        let mut hop = 0;
        while queues.iter().any(|queue| !queue.is_empty()) {
            let mut next = |of: usize| queues.get_mut(of).and_then(Vec::pop);
            let (come, others, go) = (next(0), [next(1), next(1)], next(2));
            let add = lines("add", " via 172.30.9.1");
            scene
                .change(&add, come.unwrap_or(NEVER), rng.percent(50))
                .await;
            scene.testbed.observer.guard(prefixes());
            for cut in others.into_iter().flatten() {
                hop += 1;
                let replace = lines("replace", &format!(" via 172.30.9.{}", 2 + hop % 3));
                scene.change(&replace, cut, rng.percent(50)).await;
            }
            scene.testbed.observer.assert_no_gap();
            scene.testbed.observer.unguard(&prefixes());
            let del = lines("del", "");
            scene
                .change(&del, go.unwrap_or(NEVER), rng.percent(50))
                .await;
            scene.testbed.assert_steady(&steady);
        }
        println!(
            "cuts that came, and that were meant, by kind: {:?}",
            scene.done
        );
        for kind in KINDS {
            // Changes that come in other portions may need fewer requests than were counted on: the last cuts find none.
            let (came, meant) = scene.done.get(kind).copied().unwrap_or_default();
            assert!(
                meant > 0 && came * 4 >= meant * 3,
                "{kind}: {came} of {meant} cuts came"
            );
        }
        assert_eq!(ip("route show proto bgp metric 25"), "");
    });
}
