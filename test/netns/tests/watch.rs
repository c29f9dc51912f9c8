//! Events: whatever changes is reported, and what was lost is reported as lost.
//!
//! In: changes that `ip` makes. Out: flags.
//! Invariant: the kernel is quiet before each change.
//! Not here: what it changed to; that is read by dumps.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::time::Duration;

use model::route::{MAIN_TABLE, PROTOCOL_BGP};
use netlink::{Change, Watcher, dump};
use netns_tests::{PATIENCE, absent, in_namespace, ip, ip_batch, mk_link, route_lines};

/// Waits until nothing has happened for a while.
async fn quiet(watcher: &mut Watcher) {
    let pause = Duration::from_millis(300);
    while let Ok(change) = tokio::time::timeout(pause, watcher.changed()).await {
        change.unwrap();
    }
}

/// Makes a change and waits until it is reported.
async fn reported(watcher: &mut Watcher, what: &str, wanted: impl Fn(Change) -> bool) {
    quiet(watcher).await;
    ip(what);
    let waiting = async { while !wanted(watcher.changed().await.unwrap()) {} };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "ip {what}: not reported");
}

fn count() -> usize {
    dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP).unwrap().len()
}

#[test]
fn every_kind_of_change_is_reported() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        let mut watcher = Watcher::open().unwrap();
        let watcher = &mut watcher;
        reported(watcher, "addr add 192.0.2.9/24 dev d0", |c| c.addresses).await;
        reported(watcher, "-6 addr add 2001:db8::9/64 dev d0", |c| {
            c.addresses
        })
        .await;
        reported(watcher, "rule add pref 31 to 10.0.0.0/8 lookup 7", |c| {
            c.rules
        })
        .await;
        reported(
            watcher,
            "-6 rule add pref 31 to 2001:db8::/32 lookup 7",
            |c| c.rules,
        )
        .await;
        reported(watcher, "route add 10.1.0.0/24 via 192.0.2.2", |c| c.routes).await;
        reported(watcher, "route add 2001:db8:1::/64 via 2001:db8::2", |c| {
            c.routes
        })
        .await;
        reported(watcher, "nexthop add id 7 via 192.0.2.2 dev d0", |c| {
            c.routes
        })
        .await;
        reported(watcher, "link set d0 mtu 1400", |c| c.links).await;
    });
}

#[test]
fn routes_that_go_without_an_event_of_their_own_are_reported() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        ip("nexthop add id 7 via 192.0.2.4 dev d0");
        ip("route add 10.3.0.0/24 nhid 7 proto bgp");
        ip("route add 10.1.0.0/24 via 192.0.2.2 proto bgp");
        let mut watcher = Watcher::open().unwrap();
        assert_eq!(count(), 2);
        reported(&mut watcher, "nexthop del id 7", |c| c.routes).await;
        assert_eq!(count(), 1);
        reported(&mut watcher, "link set d0 down", |c| c.links).await;
        assert_eq!(count(), 0);
    });
}

#[test]
fn an_overrun_is_reported_and_what_follows_too() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        let mut watcher = Watcher::open_with(4096).unwrap();
        quiet(&mut watcher).await;
        ip_batch(&route_lines("add", 3000));
        let change = watcher.changed().await.unwrap();
        assert!(change.lost, "{change:?}");
        reported(&mut watcher, "link set d0 mtu 1400", |c| c.links).await;
    });
}

/// Until the queue is empty the kernel drops what comes without saying so once more.
#[test]
fn what_is_lost_while_an_overrun_is_still_being_read_is_reported_too() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        let mut watcher = Watcher::open().unwrap();
        // Addresses of the links themselves come up to two seconds late.
        tokio::time::sleep(Duration::from_secs(3)).await;
        quiet(&mut watcher).await;
        for verb in ["add", "del"] {
            let line = |n: u32| {
                let to = std::net::Ipv4Addr::from_bits(0x0ac8_0000 + n);
                format!("route {verb} blackhole {to} table 4000\n")
            };
            ip_batch(&(0..60_000).map(line).collect::<String>());
        }
        let change = watcher.changed().await.unwrap();
        assert!(change.lost, "{change:?}");
        // Whoever reads everything now does not see what comes next.
        ip("route add 10.1.0.0/24 via 192.0.2.2 proto bgp");
        let pause = Duration::from_millis(500);
        let mut reported = false;
        while let Ok(change) = tokio::time::timeout(pause, watcher.changed()).await {
            let change = change.unwrap();
            reported |= change.lost || change.hints != model::route::Hints::default();
        }
        assert!(
            reported,
            "a route came after events were lost, and nothing tells"
        );
    });
}

#[test]
fn the_usual_buffer_holds_a_burst() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_link("d0");
        let mut watcher = Watcher::open().unwrap();
        assert!(watcher.granted >= netlink::watch::BUFFER, "as root");
        quiet(&mut watcher).await;
        ip_batch(&route_lines("add", 20_000));
        let change = watcher.changed().await.unwrap();
        assert!(change.routes && !change.lost, "{change:?}");
    });
}
