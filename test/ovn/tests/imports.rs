//! Imported routes of a gateway router: what changes, and above all what does not.
//!
//! In: routes on a real ovsdb-server, edits by a second client, which also looks on. Out: rows.
//! Invariant: a prefix that is wanted before and after is never without a row; rows that may stay do.
//! Not here: which routes are imported.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeSet;

use model::Prefix;
use model::gateway::BgpDefault;
use model::nb::{ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, RouteRow, RowKey, Rows, Table};
use ovn::{encode, north};
use ovn_tests::{Fixture, mk_routes, mk_view, rows_of};
use ovsdb::{
    Changes, Client, Condition, Datum, Mutation, OperationError, Row, TransactError, Transaction,
    Uuid, random_uuid,
};
use plan_node::learn;

const ROUTE: &str = "Logical_Router_Static_Route";
const HOP: &str = "172.30.0.2";
const OTHER_HOP: &str = "172.30.0.3";

type Routes = BTreeSet<ImportedRoute>;

fn mk_set(routes: impl IntoIterator<Item = ImportedRoute>) -> Routes {
    routes.into_iter().collect()
}

/// A bench with a topology, and the gateway router of it.
async fn mk_fixture() -> Option<(Fixture, ImportTarget, Rows)> {
    let fixture = Fixture::start().await?;
    let view = mk_view();
    let rows = rows_of(&view);
    fixture.pass(&rows).await;
    let target = ImportTarget::of(view.get().name(), &view.node.name);
    Some((fixture, target, rows))
}

fn uuids(fixture: &Fixture, target: &ImportTarget) -> BTreeSet<Uuid> {
    let rows = fixture.imports(target).rows;
    rows.into_values().flatten().collect()
}

fn generation(client: &Client) -> u64 {
    client.with_replica(ovsdb::Replica::generation).unwrap()
}

/// Route rows that changed in the observer's replica.
fn changed(fixture: &Fixture, since: u64) -> BTreeSet<Uuid> {
    match fixture
        .hand
        .with_replica(|r| r.changes_since(since))
        .unwrap()
    {
        Changes::Rows(mut rows) => rows.remove(ROUTE).unwrap_or_default(),
        Changes::Everything => panic!("everything changed"),
    }
}

#[tokio::test]
async fn routes_come_and_go_and_the_others_are_not_touched() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let first = mk_set(mk_routes(0, 10, HOP));
    assert_eq!(fixture.import(&target, &first).await, 1);
    assert_eq!(fixture.import(&target, &first).await, 0);
    let (before, since) = (uuids(&fixture, &target), generation(&fixture.hand));
    let second = mk_set(
        mk_routes(5, 10, HOP)
            .into_iter()
            .chain(mk_routes(7, 1, OTHER_HOP)),
    );
    assert_eq!(fixture.import(&target, &second).await, 1);
    let kept: BTreeSet<Uuid> = &before & &uuids(&fixture, &target);
    assert_eq!(kept.len(), 5);
    assert!(changed(&fixture, since).is_disjoint(&kept));
    // The topology does not take them for its own.
    assert_eq!(fixture.pass(&rows).await, 0);
    fixture.import(&target, &Routes::new()).await;
    assert_eq!(fixture.pass(&rows).await, 0);
}

#[tokio::test]
async fn a_next_hop_is_replaced_in_one_step() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    fixture
        .import(&target, &mk_set(mk_routes(0, 100, HOP)))
        .await;
    let before = generation(&fixture.hand);
    assert_eq!(
        fixture
            .import(&target, &mk_set(mk_routes(0, 100, OTHER_HOP)))
            .await,
        1
    );
    // The observer was notified once, so there was no state in between.
    assert_eq!(generation(&fixture.hand), before + 1);
}

#[tokio::test]
async fn many_routes_come_in_batches_and_no_prefix_is_ever_without_one() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let staying = mk_set(mk_routes(5000, 100, HOP));
    fixture.import(&target, &staying).await;
    let kept = uuids(&fixture, &target);
    let all = |hop| -> Routes {
        staying
            .iter()
            .cloned()
            .chain(mk_routes(0, 1200, hop))
            .collect()
    };
    let since = generation(&fixture.hand);
    assert_eq!(fixture.import(&target, &all(HOP)).await, 5);

    let wanted: BTreeSet<String> = all(HOP).iter().map(|r| r.prefix.to_string()).collect();
    let onlooker = fixture.hand.clone();
    let looking = tokio::spawn(async move {
        let mut status = onlooker.watch();
        let mut probe = 0;
        loop {
            let (there, done) = onlooker.with_replica(seen).unwrap();
            assert!(wanted.is_subset(&there), "a prefix was without a row");
            probe += 1;
            if done {
                return probe;
            }
            status.changed().await.unwrap();
        }
    });
    let transactions = fixture.encode_imports(&target, &all(OTHER_HOP));
    assert_eq!(transactions.len(), 10);
    assert!(
        transactions
            .iter()
            .all(|t| t.operations().len() <= encode::BATCH + 3)
    );
    for transaction in &transactions {
        fixture.client.transact(transaction).await.unwrap();
        tokio::task::yield_now().await;
    }
    fixture.settle().await;
    assert_eq!(fixture.import(&target, &all(OTHER_HOP)).await, 0);
    assert!(looking.await.unwrap() > 1);
    assert!(changed(&fixture, since).is_disjoint(&kept));
    assert!(kept.is_subset(&uuids(&fixture, &target)));
}

/// Prefixes by way of either hop, and whether the old hop is gone.
fn seen(replica: &ovsdb::Replica) -> (BTreeSet<String>, bool) {
    let rows = replica.table(ROUTE).unwrap().values();
    let mut hops = (0, 0);
    let there = rows
        .map(|record| {
            match record.get::<&str>("nexthop").unwrap() {
                HOP => hops.0 += 1,
                OTHER_HOP => hops.1 += 1,
                _ => {}
            }
            record.get::<String>("ip_prefix").unwrap()
        })
        .collect();
    (there, hops == (100, 1200))
}

#[tokio::test]
async fn a_row_edited_by_hand_is_replaced() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let desired = mk_set(mk_routes(0, 3, HOP));
    fixture.import(&target, &desired).await;
    let edits = [
        Row::new().with("output_port", "rtoj-GR_n1"),
        Row::new().with("output_port", Datum::empty_set()),
        Row::new().with("policy", "src-ip"),
        Row::new().with("policy", "dst-ip"),
        Row::new().with("options", Datum::map([("ecmp_symmetric_reply", "true")])),
        Row::new().with("route_table", "7"),
        Row::new().with("nexthop", "discard"),
        Row::new().with("nexthop", "172.30.0.9"),
        Row::new().with("ip_prefix", "192.168.0.1"),
        Row::new().with("ip_prefix", "nonsense"),
        Row::new().with("ip_prefix", "10.77.0.0/16"),
    ];
    for edit in edits {
        let uuid = fixture
            .imports(&target)
            .rows
            .into_values()
            .flatten()
            .next()
            .unwrap();
        fixture
            .by_hand(Fixture::set(Table::StaticRoute, uuid, edit.clone()))
            .await;
        assert_eq!(fixture.import(&target, &desired).await, 1, "{edit:?}");
        assert!(!uuids(&fixture, &target).contains(&uuid));
    }
    assert_eq!(fixture.pass(&rows).await, 0);
}

#[tokio::test]
async fn a_row_of_another_importer_stays_and_takes_its_prefix() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let desired = mk_set(mk_routes(0, 3, HOP));
    fixture.import(&target, &desired).await;
    let third_parties: [Vec<(&str, &str)>; 2] =
        [vec![ROUTE_IMPORT], vec![ROUTE_IMPORT, (OWNER, "blue")]];
    for ids in third_parties {
        let (route, held) = fixture.imports(&target).rows.into_iter().next().unwrap();
        let edit = Row::new().with("external_ids", Datum::map(ids.clone()));
        fixture
            .by_hand(Fixture::set(Table::StaticRoute, held[0], edit))
            .await;
        let imports = fixture.imports(&target);
        assert!(imports.malformed.is_empty(), "{ids:?}");
        assert!(imports.taken.contains(&route.prefix), "{ids:?}");
        assert!(!imports.rows.contains_key(&route), "{ids:?}");
        assert_eq!(
            fixture.pass(&rows).await,
            0,
            "{ids:?}: nor is it the topology's"
        );
        let mut follower = north::RouteFollower::new(target.clone());
        let followed = fixture
            .client
            .with_replica(|replica| follower.follow(replica));
        followed.unwrap().unwrap();
        assert!(follower.foreign() > 0, "{ids:?} is not reported");
    }
}

#[tokio::test]
async fn a_row_in_another_spelling_is_replaced() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let route = ImportedRoute {
        prefix: "fd77::/64".parse().unwrap(),
        nexthop: "fe80::2".parse().unwrap(),
    };
    let desired = mk_set([route.clone()]);
    fixture.import(&target, &desired).await;
    for (column, spelling) in [("ip_prefix", "FD77::/64"), ("nexthop", "fe80:0::2")] {
        let uuid = fixture.imports(&target).rows[&route][0];
        let edit = Row::new().with(column, spelling);
        fixture
            .by_hand(Fixture::set(Table::StaticRoute, uuid, edit))
            .await;
        assert_eq!(fixture.imports(&target).malformed, [uuid]);
        assert_eq!(fixture.import(&target, &desired).await, 1);
    }
}

#[tokio::test]
async fn a_row_without_the_marker_of_imports_goes_by_way_of_the_topology() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let desired = mk_set(mk_routes(0, 3, HOP));
    fixture.import(&target, &desired).await;
    let (route, held) = fixture.imports(&target).rows.into_iter().next().unwrap();
    let edit = Row::new().with("external_ids", Datum::map([(OWNER, "default")]));
    fixture
        .by_hand(Fixture::set(Table::StaticRoute, held[0], edit))
        .await;
    assert!(fixture.imports(&target).taken.contains(&route.prefix));
    assert_eq!(fixture.pass(&rows).await, 1);
    assert!(!fixture.imports(&target).taken.contains(&route.prefix));
    assert_eq!(fixture.import(&target, &desired).await, 1);
}

#[tokio::test]
async fn duplicates_collapse() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let desired = mk_set(mk_routes(0, 3, HOP));
    fixture.import(&target, &desired).await;
    let router = fixture.imports(&target).router.unwrap();
    let add: Vec<ImportedRoute> = desired.iter().cloned().collect();
    for transaction in encode::imports(&target, router, &add, &[], &[], "noverlay test") {
        fixture.client.transact(&transaction).await.unwrap();
    }
    fixture.settle().await;
    assert_eq!(uuids(&fixture, &target).len(), 6);
    assert_eq!(fixture.import(&target, &desired).await, 1);
}

#[tokio::test]
async fn routes_of_others_are_taken_and_stay() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let own = learn::topology_prefixes(&rows, &target.router);
    assert_eq!(fixture.imports(&target).taken, own);
    fixture
        .nbctl(&["lr-route-add", "GR_n1", "198.51.100.0/24", "172.30.0.7"])
        .await;
    fixture
        .nbctl(&["lr-route-add", "GR_n1", "203.0.113.9", "172.30.0.7"])
        .await;
    fixture
        .nbctl(&[
            "lr-route-add",
            "ovn_cluster_router",
            "192.0.2.0/24",
            "172.30.0.7",
        ])
        .await;
    let foreign = fixture.imports(&target).taken;
    let more: BTreeSet<String> = (&foreign - &own).iter().map(ToString::to_string).collect();
    assert_eq!(
        more,
        ["198.51.100.0/24", "203.0.113.9/32"]
            .map(String::from)
            .into()
    );
    let before = fixture.others();
    fixture.import(&target, &mk_set(mk_routes(0, 5, HOP))).await;
    fixture.import(&target, &Routes::new()).await;
    assert_eq!(fixture.others(), before);
}

/// The topology's rows of a destination.
fn own_rows(fixture: &Fixture, target: &ImportTarget, of: Prefix) -> Vec<Uuid> {
    let mut follower = north::RouteFollower::new(target.clone());
    let changes = fixture.client.with_replica(|r| follower.follow(r));
    let rows = changes.unwrap().unwrap().into_iter();
    let own = rows.filter(
        |change| matches!(&change.after, Some(RouteRow::Topology { prefix, .. }) if *prefix == of),
    );
    own.map(|change| change.id).collect()
}

#[tokio::test]
async fn an_imported_route_and_the_row_that_gives_way_change_places_in_one_transaction() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let view = mk_view();
    for (default, wanted) in [
        (BgpDefault::Ignore, "10.128.0.0/16"),
        (BgpDefault::Replace, "0.0.0.0/0"),
    ] {
        let prefix: Prefix = wanted.parse().unwrap();
        let fallbacks = learn::fallbacks(view.get(), default);
        let restore = &fallbacks[&prefix];
        let among: BTreeSet<Prefix> = fallbacks.keys().copied().collect();
        let existing = || {
            let seen = |r: &ovsdb::Replica| north::imported_among(r, &target, &among);
            fixture.client.with_replica(seen).unwrap().unwrap()
        };
        let planned =
            || learn::without_fallbacks(rows.clone(), &target.router, &fallbacks, &existing());
        let router = fixture.imports(&target).router.unwrap();
        let own = own_rows(&fixture, &target, prefix);
        assert_eq!((own.len(), existing().len()), (1, 0));
        let add = [ImportedRoute {
            prefix,
            nexthop: HOP.parse().unwrap(),
        }];
        let since = generation(&fixture.hand);
        let there = encode::imports(&target, router, &add, &own, &[], "noverlay test");
        assert_eq!(there.len(), 1);
        fixture.by_hand(there[0].clone()).await;
        fixture.settle().await;
        assert_eq!(generation(&fixture.hand), since + 1, "no state in between");
        assert!(own_rows(&fixture, &target, prefix).is_empty());
        assert_eq!(existing(), [prefix].into());
        assert_eq!(
            fixture.pass(&planned()).await,
            0,
            "the topology leaves it alone"
        );
        let imported: Vec<Uuid> = uuids(&fixture, &target).into_iter().collect();
        let since = generation(&fixture.hand);
        let back = encode::imports(&target, router, &[], &imported, restore, "noverlay test");
        assert_eq!(back.len(), 1);
        fixture.by_hand(back[0].clone()).await;
        fixture.settle().await;
        assert_eq!(generation(&fixture.hand), since + 1, "no state in between");
        assert_eq!(
            fixture.pass(&planned()).await,
            0,
            "it is the row that the topology wants"
        );
        assert_eq!(own_rows(&fixture, &target, prefix).len(), 1);
    }
}

#[tokio::test]
async fn the_default_is_back_when_another_importers_row_goes() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let view = mk_view();
    let prefix: Prefix = "0.0.0.0/0".parse().unwrap();
    let add = [ImportedRoute {
        prefix,
        nexthop: HOP.parse().unwrap(),
    }];
    let router = fixture.imports(&target).router.unwrap();
    let theirs = encode::imports(&target, router, &add, &[], &[], "noverlay test");
    fixture.by_hand(theirs[0].clone()).await;
    fixture.settle().await;
    let row = *uuids(&fixture, &target).first().unwrap();
    let ids = Row::new().with("external_ids", Datum::map([ROUTE_IMPORT]));
    fixture
        .by_hand(Fixture::set(Table::StaticRoute, row, ids))
        .await;
    fixture.settle().await;
    let seen = |r: &ovsdb::Replica| north::imported_among(r, &target, &[prefix].into());
    let imported = fixture.client.with_replica(seen).unwrap().unwrap();
    let fallbacks = learn::fallbacks(view.get(), BgpDefault::Replace);
    let planned = learn::without_fallbacks(rows, &target.router, &fallbacks, &imported);
    assert_eq!(
        fixture.pass(&planned).await,
        0,
        "ours does not give way to it"
    );
    assert_eq!(own_rows(&fixture, &target, prefix).len(), 1);
}

#[tokio::test]
async fn a_row_is_known_by_who_made_it_and_by_whether_it_drops() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    for (to, via) in [
        ("198.51.100.0/24", "172.30.0.7"),
        ("203.0.113.0/24", "discard"),
    ] {
        fixture.nbctl(&["lr-route-add", "GR_n1", to, via]).await;
    }
    let mut follower = north::RouteFollower::new(target.clone());
    let changes = fixture.client.with_replica(|r| follower.follow(r));
    let rows = changes
        .unwrap()
        .unwrap()
        .into_iter()
        .filter_map(|change| change.after);
    let rows: Vec<RouteRow> = rows.collect();
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let own = |text, discards| RouteRow::Topology {
        prefix: prefix(text),
        discards,
    };
    for row in [
        RouteRow::Other(Some(prefix("198.51.100.0/24"))),
        RouteRow::Discard(prefix("203.0.113.0/24")),
        own("10.128.0.0/16", true),
        own("10.128.1.0/24", false),
        own("0.0.0.0/0", false),
    ] {
        assert!(rows.contains(&row), "{row:?} in {rows:?}");
    }
}

#[tokio::test]
async fn of_two_routers_ours_is_meant() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let ours = fixture.uuid(&RowKey::root(Table::Router, "GR_n1"));
    for first in [0x00, 0xff] {
        let row = Row::new().with("name", "GR_n1");
        let twin = Uuid::version4([first; 16]);
        let insert = Transaction::new(north::DATABASE).insert("Logical_Router", twin, row);
        fixture.by_hand(insert).await;
        assert_eq!(fixture.imports(&target).router, Some(ours));
    }
    fixture
        .nbctl(&["destroy", "Logical_Router", &ours.to_string()])
        .await;
    assert!(fixture.imports(&target).router.is_some());
}

#[tokio::test]
async fn a_router_that_is_gone_fails_the_batch() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let transactions = fixture.encode_imports(&target, &mk_set(mk_routes(0, 3, HOP)));
    fixture.nbctl(&["lr-del", "GR_n1"]).await;
    let late = fixture.client.transact(&transactions[0]).await;
    let moved_on = matches!(
        late,
        Err(TransactError::Operation {
            error: OperationError::TimedOut,
            ..
        })
    );
    assert!(moved_on, "{late:?}");
    assert_eq!(fixture.imports(&target).router, None);
}

#[tokio::test]
async fn imports_follow_to_the_router_that_stays() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let desired = mk_set(mk_routes(0, 3, HOP));
    fixture.import(&target, &desired).await;
    let held = uuids(&fixture, &target);
    let (ours, twin) = (fixture.imports(&target).router.unwrap(), random_uuid());
    let row = Row::new()
        .with("name", "GR_n1")
        .with("external_ids", Datum::map([(OWNER, "default")]))
        .with("static_routes", held.clone());
    let edit = Transaction::new(north::DATABASE)
        .insert("Logical_Router", twin, row)
        .mutate(
            "Logical_Router",
            vec![Condition::uuid(ours)],
            vec![Mutation::delete("static_routes", held.clone())],
        );
    fixture.by_hand(edit).await;
    assert_eq!(fixture.pass(&rows).await, 1);
    assert_eq!(uuids(&fixture, &target), held);
}
