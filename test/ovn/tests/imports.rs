//! Imported routes on a real server: what comes, goes and stays.
//!
//! In: routes wanted, edits by hand. Out: rows. Invariant: rows of prefixes that do not change never leave the database.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeSet;

use ovn_tests::{Bench, mk_routes, mk_view};
use ovsdb::{Changes, Uuid};

const COMMENT: &str = "noverlay node-agent import GR_n1";
const ROUTE: &str = "Logical_Router_Static_Route";

async fn mk_bench() -> Option<Bench> {
    let bench = Bench::start().await?;
    bench.settle(&mk_view()).await;
    Some(bench)
}

/// The row of the route with this number.
fn row(bench: &Bench, number: u32) -> String {
    let route = mk_routes(number, 1).pop_first().unwrap();
    let rows = bench.imports().rows;
    let (uuid, in_form) = rows[&route][0];
    assert!(in_form);
    uuid.to_string()
}

/// Rows of routes that were added, changed or removed since that generation.
fn touched(bench: &Bench, since: u64) -> BTreeSet<Uuid> {
    bench.look(|replica| match replica.changes_since(since) {
        Changes::Rows(tables) => tables.get(ROUTE).cloned().unwrap_or_default(),
        Changes::Everything => panic!("too much changed"),
    })
}

fn generation(bench: &Bench) -> u64 {
    bench.look(ovsdb::Replica::generation)
}

#[tokio::test]
async fn many_routes_take_batches_and_a_second_pass_takes_none() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let wanted = mk_routes(0, 1200);
    assert_eq!(bench.import(&wanted).await, 3);
    assert_eq!(bench.import(&wanted).await, 0);
    assert_eq!(bench.records(COMMENT), 3);
    assert_eq!(bench.imports().rows.len(), 1200);
    // The topology's pass does not see them.
    assert_eq!(bench.settle(&mk_view()).await, 0);
    assert_eq!(bench.import(&BTreeSet::new()).await, 3);
    assert!(bench.imports().rows.is_empty());
}

#[tokio::test]
async fn what_stays_is_not_touched_by_what_comes_and_goes() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    bench.import(&mk_routes(0, 100)).await;
    let before = bench.routes();
    let from = generation(&bench);
    // 0 to 9 go, 100 to 109 come, and 50 gets a second next hop.
    let mut wanted = mk_routes(10, 100);
    let mut second = mk_routes(50, 1).pop_first().unwrap();
    second.nexthop = "172.30.0.3".parse().unwrap();
    wanted.insert(second);
    assert_eq!(bench.import(&wanted).await, 1);
    assert_eq!(touched(&bench, from).len(), 21);
    let after = bench.routes();
    for route in mk_routes(10, 90) {
        let key = format!("{} {}", route.prefix, route.nexthop);
        assert_eq!(before[&key], after[&key], "{key}");
    }
}

#[tokio::test]
async fn a_next_hop_that_changes_does_so_in_one_transaction() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    bench.import(&mk_routes(0, 1000)).await;
    let moved: BTreeSet<_> = mk_routes(0, 1000)
        .into_iter()
        .map(|mut route| {
            route.nexthop = "172.30.0.3".parse().unwrap();
            route
        })
        .collect();
    let standing = bench.imports();
    let diff = standing.diff(&moved);
    assert_eq!((diff.create.len(), diff.delete.len()), (1000, 1000));
    let target = ovn_tests::mk_target();
    for transaction in ovn::lower::imports(&standing, &diff, &target) {
        ovn_tests::apply(&bench.north, &transaction).await.unwrap();
        // After each of them every prefix has exactly one row.
        assert_eq!(bench.imports().rows.len(), 1000);
        let prefixes: BTreeSet<_> = bench.imports().rows.keys().map(|r| r.prefix).collect();
        assert_eq!(prefixes.len(), 1000);
    }
    assert_eq!(bench.import(&moved).await, 0);
}

#[tokio::test]
async fn rows_edited_doubled_or_deleted_by_hand_are_repaired_and_others_left() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let wanted = mk_routes(0, 6);
    bench.import(&wanted).await;
    let theirs = ["lr-route-add", "GR_n1", "192.0.2.0/24", "172.30.0.7"];
    bench.nbctl(&theirs).await;
    let edits: [(u32, &[&str]); 8] = [
        (0, &["nexthop=10.9.9.9"]),
        (1, &["output_port=rtoj-GR_n1"]),
        (2, &["policy=src-ip"]),
        (3, &["ip_prefix=nonsense"]),
        (4, &["options:ecmp_symmetric_reply=true"]),
        (5, &["route_table=other"]),
        (0, &["external_ids:noverlay.io/owner=nobody"]),
        (1, &["ip_prefix=11.0.1.7/24"]),
    ];
    for (number, edit) in edits {
        let uuid = row(&bench, number);
        let from = generation(&bench);
        bench.nbctl(&[&["set", ROUTE, &uuid], edit].concat()).await;
        assert!(bench.import(&wanted).await > 0, "{edit:?}");
        assert_eq!(bench.import(&wanted).await, 0, "{edit:?}");
        // The edited row, and the one in its place.
        assert!(touched(&bench, from).len() <= 2, "{edit:?}");
    }
    let mine = row(&bench, 2);
    bench
        .nbctl(&[
            "--id=@r",
            "create",
            ROUTE,
            "ip_prefix=11.0.2.0/24",
            "nexthop=172.30.0.2",
            "output_port=rtoe-GR_n1",
            "external_ids:k8s.ovn.org/owner-controller=RouteImport",
            "external_ids:noverlay.io/owner=default",
            "--",
            "add",
            "logical_router",
            "GR_n1",
            "static_routes",
            "@r",
        ])
        .await;
    assert_eq!(bench.import(&wanted).await, 1);
    bench
        .nbctl(&[
            "remove",
            "logical_router",
            "GR_n1",
            "static_routes",
            &row(&bench, 3),
        ])
        .await;
    assert_eq!(bench.import(&wanted).await, 1);
    assert_eq!(bench.import(&wanted).await, 0);
    assert_eq!(bench.imports().rows.len(), 6);
    assert!(mine.len() == 36 && bench.routes().contains_key("192.0.2.0/24 172.30.0.7"));
}

#[tokio::test]
async fn other_peoples_prefixes_are_taken_and_our_own_are_not() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    for words in [
        ["lr-route-add", "GR_n1", "192.0.2.0/24", "172.30.0.7"],
        ["lr-route-add", "GR_n1", "192.0.3.1", "172.30.0.7"],
    ] {
        bench.nbctl(&words).await;
    }
    let source = [
        "--policy=src-ip",
        "lr-route-add",
        "GR_n1",
        "192.0.4.0/24",
        "172.30.0.7",
    ];
    bench.nbctl(&source).await;
    let foreign: Vec<String> = bench
        .imports()
        .foreign
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(foreign, ["192.0.2.0/24", "192.0.3.1/32"]);
}

#[tokio::test]
async fn without_the_router_there_is_nothing_to_lift_and_a_late_one_fails_the_guard() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let standing = bench.imports();
    let diff = standing.diff(&mk_routes(0, 3));
    bench.nbctl(&["lr-del", "GR_n1"]).await;
    let target = ovn_tests::mk_target();
    let gone = bench.look(|replica| ovn::Imports::lift(replica, &target).unwrap());
    assert_eq!(gone, None);
    for transaction in ovn::lower::imports(&standing, &diff, &target) {
        assert!(ovn_tests::apply(&bench.north, &transaction).await.is_err());
    }
    assert!(bench.routes().values().flatten().count() < 3);
}
