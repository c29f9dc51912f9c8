//! IPv6 routes by their events: what a follower holds that dumps only where it is told to.
//!
//! In: changes that `ip` makes. Out: after each the follower holds what a fresh dump shows, and it is known which of them cost a
//! dump. Invariant: routes over nexthop objects, which is how FRR installs them, cost none. Not here: IPv4 (`import-tests`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::time::Duration;

use model::route::{Hints, MAIN_TABLE, PROTOCOL_BGP};
use netlink::{Watcher, dump};
use netns_tests::{absent, in_namespace, ip, mk_link, try_ip_batch};
use rib::Rib;

/// Follows the routes of BGP as an import does.
struct Follower {
    watcher: Watcher,
    rib: Rib,
}

impl Follower {
    async fn start() -> Self {
        let mut follower = Self {
            watcher: Watcher::open().unwrap(),
            rib: Rib::default(),
        };
        // Addresses of the link itself come up to two seconds late.
        tokio::time::sleep(Duration::from_secs(3)).await;
        follower.hints().await;
        follower.rib.replace(dumped());
        follower
    }

    /// What is reported until nothing comes any more.
    async fn hints(&mut self) -> Hints {
        let mut hints = Hints::default();
        let pause = Duration::from_millis(200);
        while let Ok(change) = tokio::time::timeout(pause, self.watcher.changed()).await {
            hints.extend(change.unwrap().hints);
        }
        hints
    }

    /// Makes a change and follows it; whether that took a dump.
    async fn took_dump(&mut self, what: &str) -> bool {
        ip(what);
        self.followed(what).await
    }

    async fn followed(&mut self, what: &str) -> bool {
        let applied = match self.hints().await {
            Hints::Dump => None,
            Hints::Events(events) => self.rib.apply(PROTOCOL_BGP, MAIN_TABLE, events),
        };
        if applied.is_none() {
            self.rib.replace(dumped());
        }
        let wrong = self.rib.replace(dumped());
        let shown = ip("-6 route show proto bgp");
        assert!(
            wrong.is_empty(),
            "ip {what}: wrong about {wrong:?}, there is\n{shown}"
        );
        applied.is_none()
    }
}

fn dumped() -> Vec<model::route::KernelRoute> {
    dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP).unwrap()
}

/// A link with two nexthop objects and a group of both.
fn mk_nexthops() {
    mk_link("d0");
    ip("nexthop add id 7 via fe80::2 dev d0");
    ip("nexthop add id 8 via 2001:db8::3 dev d0");
    ip("nexthop add id 9 group 7/8");
}

#[test]
fn ipv6_routes_over_nexthop_objects_are_followed_without_a_dump() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_nexthops();
        let mut follower = Follower::start().await;
        for what in [
            "route add 2001:db8:1::/64 nhid 7 proto bgp metric 20",
            "route add 2001:db8:2::/64 nhid 9 proto bgp metric 20",
            // As zebra brings another path.
            "route replace 2001:db8:1::/64 nhid 9 proto bgp metric 20",
            "route replace 2001:db8:1::/64 nhid 8 proto bgp metric 20",
            "route replace 2001:db8:3::/64 nhid 8 proto bgp metric 20",
            "route add 2001:db8:1::/64 nhid 7 proto bgp metric 30",
            "route append 2001:db8:1::/64 nhid 9 proto bgp metric 30",
            "route del 2001:db8:1::/64 nhid 8 metric 20",
            "route del 2001:db8:1::/64 nhid 7 metric 30",
            "route del 2001:db8:1::/64 nhid 9 metric 30",
            "route del 2001:db8:2::/64 metric 20",
            // Others' routes beside them.
            "route add 2001:db8:4::/64 via 2001:db8::2 proto static",
            "route add 2001:db8:3::/64 via 2001:db8::2 proto static metric 5",
            "route del 2001:db8:3::/64 proto bgp metric 20",
            "route add 2001:db8:5::/64 nhid 7 proto bgp metric 20 table 100",
        ] {
            assert!(!follower.took_dump(what).await, "ip {what}: took a dump");
        }
    });
}

#[test]
fn what_events_of_ipv6_do_not_tell_takes_a_dump_and_is_right_afterwards() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_nexthops();
        let mut follower = Follower::start().await;
        for what in [
            // The kernel joins paths of one metric, and tells of single ones when they go.
            "route add 2001:db8:1::/64 via 2001:db8::2 proto bgp metric 20",
            "route append 2001:db8:1::/64 via 2001:db8::3 proto bgp metric 20",
            "route del 2001:db8:1::/64 via 2001:db8::2 proto bgp metric 20",
            "route replace 2001:db8:1::/64 proto bgp metric 20 nexthop via 2001:db8::4 nexthop via 2001:db8::5",
            // One of another protocol takes the place of ours.
            "route replace 2001:db8:1::/64 nhid 7 proto static metric 20",
            // Routes go with their nexthop.
            "nexthop del id 8",
        ] {
            assert!(follower.took_dump(what).await, "ip {what}: took no dump");
        }
    });
}

#[test]
fn random_changes_of_ipv6_routes_are_followed_rightly() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_nexthops();
        let mut follower = Follower::start().await;
        let mut state: u32 = 0x2545_f491;
        let mut below = |bound: u32| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state % bound
        };
        let mut dumps = 0;
        for _ in 0..40 {
            // Several at once: some are refused, because there is one already, or none.
            let mut batch = String::new();
            for _ in 0..6 {
                let verb = ["add", "append", "replace", "replace", "del"];
                let verb = verb.get(below(5) as usize).unwrap();
                let to = format!("2001:db8:f:{}::/64", below(3));
                let over = match below(6) {
                    0 => "via 2001:db8::2".to_owned(),
                    n => format!("nhid {}", 7 + n % 3),
                };
                // Which of two protocols' routes of one metric is replaced no event of any family tells.
                let (metric, protocol) = match below(5) {
                    0 => (22, "static"),
                    n => (20 + n % 2, "bgp"),
                };
                batch.push_str(&format!(
                    "route {verb} {to} {over} proto {protocol} metric {metric}\n"
                ));
            }
            try_ip_batch(&batch);
            dumps += usize::from(follower.followed(&batch).await);
        }
        println!("{dumps} of 40 batches took a dump");
        assert!(dumps < 40, "each batch took a dump");
    });
}
