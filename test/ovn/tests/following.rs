//! Looking only at what changed: a follower ends where a fresh look ends, and a quiet topology is one that did not change.
//!
//! In: a topology with imported routes on a real ovsdb-server, many edits by a second client. Out: what was followed.
//! Invariant: every edit is one that somebody with `ovn-nbctl` could make. Not here: what the edits should lead to.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeMap;

use model::nb::{ImportTarget, OWNER, ROUTE_IMPORT, RouteRow, Rows, Table};
use ovn::north::{self, Quiet, RouteFollower};
use ovn_tests::{Fixture, mk_routes, mk_view, rows_of};
use ovsdb::{Datum, Mutation, Row, Transaction, Uuid, random_uuid};
use testkit::rng::Rng;

const HOP: &str = "172.30.0.2";

async fn mk_fixture() -> Option<(Fixture, ImportTarget, Rows)> {
    let fixture = Fixture::start().await?;
    let view = mk_view();
    let rows = rows_of(&view);
    fixture.pass(&rows).await;
    let target = ImportTarget::of(view.get().name(), &view.node.name);
    fixture
        .import(&target, &mk_routes(0, 20, HOP).into_iter().collect())
        .await;
    // A second router, from and to which routes are moved.
    let other = Row::new().with("name", "other");
    let made = Transaction::new(north::DATABASE).insert("Logical_Router", random_uuid(), other);
    fixture.by_hand(made).await;
    Some((fixture, target, rows))
}

fn router(fixture: &Fixture, name: &str) -> Uuid {
    let found = fixture.named(Table::Router, name);
    found.into_iter().next().unwrap()
}

fn mk_row(rng: &mut Rng, target: &ImportTarget) -> Row {
    let to = format!("10.{}.{}.0/24", 200 + rng.below(3), rng.below(30));
    let row = Row::new().with("ip_prefix", to).with("nexthop", HOP);
    let ids = match rng.below(4) {
        // Ours in every way, ours in another form, another network's, nobody's.
        0 => {
            return row.with("output_port", target.output_port.as_str()).with(
                "external_ids",
                Datum::map([(OWNER, target.network.as_str()), ROUTE_IMPORT]),
            );
        }
        1 => vec![(OWNER, target.network.as_str()), ROUTE_IMPORT],
        2 => vec![(OWNER, "blue"), ROUTE_IMPORT],
        _ => vec![],
    };
    row.with("external_ids", Datum::map(ids))
}

/// Somebody's hand; says what it did.
#[expect(clippy::too_many_lines, reason = "an arm for each kind of change")]
async fn meddle(fixture: &Fixture, target: &ImportTarget, rng: &mut Rng) -> &'static str {
    let ours = router(fixture, target.router.as_str());
    let other = router(fixture, "other");
    let at = if rng.below(4) == 0 { other } else { ours };
    let children: Vec<Uuid> = fixture
        .children(Table::Router, at, "static_routes")
        .into_iter()
        .collect();
    let some = (!children.is_empty()).then(|| *rng.pick(&children));
    let table = Table::StaticRoute.name();
    let refer = |router, mutation| Fixture::refer(Table::Router, router, mutation);
    let (done, transaction) = match (rng.below(8), some) {
        (0 | 1, _) | (_, None) => {
            let id = random_uuid();
            let made = Transaction::new(north::DATABASE).insert(table, id, mk_row(rng, target));
            let hung = Mutation::insert("static_routes", vec![id]);
            let itself = vec![ovsdb::Condition::uuid(at)];
            ("add", made.mutate("Logical_Router", itself, vec![hung]))
        }
        (2, Some(row)) => (
            "drop",
            refer(at, Mutation::delete("static_routes", vec![row])),
        ),
        (3, Some(row)) => {
            // It hangs on both routers for a moment, or from then on.
            let to = if at == ours { other } else { ours };
            (
                "share",
                refer(to, Mutation::insert("static_routes", vec![row])),
            )
        }
        (4, Some(row)) => {
            let to = if at == ours { other } else { ours };
            let itself = |id| vec![ovsdb::Condition::uuid(id)];
            let moved = Transaction::new(north::DATABASE)
                .mutate(
                    "Logical_Router",
                    itself(to),
                    vec![Mutation::insert("static_routes", vec![row])],
                )
                .mutate(
                    "Logical_Router",
                    itself(at),
                    vec![Mutation::delete("static_routes", vec![row])],
                );
            ("move", moved)
        }
        (5, Some(row)) => {
            let hop = format!("172.30.0.{}", 2 + rng.below(3));
            (
                "edit",
                Fixture::set(Table::StaticRoute, row, Row::new().with("nexthop", hop)),
            )
        }
        (6, _) => {
            let enabled = Row::new().with(
                "options",
                Datum::map([("mark", rng.below(3).to_string().as_str())]),
            );
            ("option", Fixture::set(Table::Router, at, enabled))
        }
        (_, Some(row)) => {
            let hop = Row::new().with("external_ids", Datum::map([("by", "hand")]));
            ("stamp", Fixture::set(Table::StaticRoute, row, hop))
        }
    };
    fixture.by_hand(transaction).await;
    done
}

#[tokio::test]
async fn a_follower_that_looks_at_changes_knows_what_a_fresh_one_sees() {
    let Some((fixture, target, _)) = mk_fixture().await else {
        return;
    };
    let mut rng = Rng::new(0x9e37_79b9_7f4a_7c15);
    let mut follower = RouteFollower::new(target.clone());
    let mut known: BTreeMap<Uuid, RouteRow> = BTreeMap::new();
    for round in 0..300 {
        let mut done = Vec::new();
        // Sometimes several edits lie between two looks.
        for _ in 0..=rng.below(3) {
            done.push(meddle(&fixture, &target, &mut rng).await);
        }
        let look = |follower: &mut RouteFollower| {
            fixture
                .client
                .with_replica(|r| follower.follow(r))
                .unwrap()
                .unwrap()
        };
        for change in look(&mut follower) {
            assert_eq!(
                known.get(&change.id),
                change.before.as_ref(),
                "round {round}: {done:?}"
            );
            match change.after {
                Some(row) => drop(known.insert(change.id, row)),
                None => drop(known.remove(&change.id)),
            }
        }
        let mut fresh = RouteFollower::new(target.clone());
        let seen: BTreeMap<Uuid, RouteRow> = look(&mut fresh)
            .into_iter()
            .filter_map(|c| Some((c.id, c.after?)))
            .collect();
        assert_eq!(known, seen, "round {round}: {done:?}");
        assert_eq!(look(&mut follower), [], "a second look finds nothing");
    }
}

#[tokio::test]
async fn a_topology_is_quiet_only_where_decoding_it_again_gives_the_same() {
    let Some((fixture, target, rows)) = mk_fixture().await else {
        return;
    };
    let mut rng = Rng::new(0x0123_4567_89ab_cdef);
    let decode = || {
        let read = |replica: &ovsdb::Replica| {
            let north = north::decode(replica).unwrap();
            let quiet = Quiet::of(replica, &north).unwrap();
            (north, quiet)
        };
        fixture.client.with_replica(read).unwrap()
    };
    let (mut calm, mut noisy) = (0, 0);
    for round in 0..300 {
        let (before, mut quiet) = decode();
        let foreign = fixture.foreign(&rows);
        let done = if rng.below(3) == 0 {
            let first = u32::try_from(rng.below(40)).unwrap();
            fixture
                .import(&target, &mk_routes(first, 20, HOP).into_iter().collect())
                .await;
            "import"
        } else {
            meddle(&fixture, &target, &mut rng).await
        };
        let holds = fixture
            .client
            .with_replica(|r| quiet.holds(r))
            .unwrap()
            .unwrap();
        if holds {
            calm += 1;
            assert_eq!(decode().0, before, "round {round}: {done}");
            // What stood in the way may be gone; nothing new stands there.
            let now = fixture.foreign(&rows);
            assert!(
                now.iter().all(|f| foreign.contains(f)),
                "round {round}: {done}"
            );
        } else {
            noisy += 1;
        }
        assert!(
            done != "import" || holds,
            "round {round}: imported routes are no noise"
        );
    }
    assert!(calm > 50 && noisy > 50, "{calm} {noisy}");
}
