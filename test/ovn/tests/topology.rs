//! A network's rows on a real server: made, repaired, and nobody else's touched.
//!
//! In: edits by hand. Out: rows as planned. Invariant: the pass after a repair finds nothing to do.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use model::nb::{RowKey, Table};
use ovn::lower;
use ovn_tests::{Bench, apply, mk_routes, mk_target, mk_view};
use ovsdb::{OperationError, TransactError};

const COMMENT: &str = "noverlay node-agent topology default";

/// A bench whose rows stand, with a pod's port and other people's rows beside them.
async fn mk_bench() -> Option<Bench> {
    let bench = Bench::start().await?;
    assert!(bench.settle(&mk_view()).await > 20);
    bench
        .nbctl(&["lsp-add", "n1", "pod", "--", "lr-add", "theirs"])
        .await;
    let route = ["lr-route-add", "GR_n1", "192.0.2.0/24", "172.30.0.7"];
    bench.nbctl(&route).await;
    assert_eq!(bench.settle(&mk_view()).await, 0);
    Some(bench)
}

/// What other people made is there, the very rows.
fn theirs(bench: &Bench) -> Vec<String> {
    [
        ("logical_switch_port", "name=pod"),
        ("logical_router", "name=theirs"),
        ("logical_router_static_route", "ip_prefix=192.0.2.0/24"),
    ]
    .map(|(table, condition)| {
        let words = ["--bare", "--columns=_uuid", "find", table, condition];
        let uuid = bench.ask("ovn-nbctl", &words);
        assert_eq!(uuid.len(), 36, "{table} {condition}: {uuid:?}");
        uuid
    })
    .to_vec()
}

#[tokio::test]
async fn a_plan_is_one_transaction_and_the_second_pass_has_nothing_to_do() {
    let Some(bench) = Bench::start().await else {
        return;
    };
    let rows = bench.settle(&mk_view()).await;
    assert_eq!(rows, plan_node::plan(&mk_view()).len());
    assert_eq!(bench.records(COMMENT), 1);
    assert_eq!(bench.settle(&mk_view()).await, 0);
    assert_eq!(bench.records(COMMENT), 1);
    // As OVN's own tool sees it.
    let shown = bench.ask("ovn-nbctl", &["lr-nat-list", "GR_n1"]);
    assert!(shown.contains("10.128.0.0/16"), "{shown}");
    let shown = bench.ask("ovn-nbctl", &["lr-route-list", "GR_n1"]);
    assert!(shown.contains("discard"), "{shown}");
    let ports = bench.ask("ovn-nbctl", &["lsp-list", "join"]);
    assert_eq!(ports.lines().count(), 2, "{ports}");
}

#[tokio::test]
async fn columns_edited_by_hand_are_put_right_and_foreign_entries_stay() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let before = theirs(&bench);
    let edits: [&[&str]; 7] = [
        &[
            "set",
            "logical_router_port",
            "rtoe-GR_n1",
            "networks=10.9.9.9/24",
        ],
        &["lsp-set-type", "br-ex_n1", "router"],
        &[
            "set",
            "logical_router",
            "GR_n1",
            "options:chassis=other",
            "options:mine=1",
        ],
        &[
            "remove",
            "logical_switch_port",
            "etor-GR_n1",
            "options",
            "router-port",
        ],
        &["clear", "logical_switch_port", "k8s-n1", "addresses"],
        &["set", "nat", "snat-row", "external_ip=10.9.9.9"],
        &["clear", "nat", "snat-row", "exempted_ext_ips"],
    ];
    let find = [
        "--bare",
        "--columns=_uuid",
        "find",
        "nat",
        "logical_ip=\"10.128.0.0/16\"",
    ];
    let nat = bench.ask("ovn-nbctl", &find);
    for edit in edits {
        let words: Vec<&str> = edit
            .iter()
            .map(|word| {
                if *word == "snat-row" {
                    nat.as_str()
                } else {
                    word
                }
            })
            .collect();
        bench.nbctl(&words).await;
        assert_eq!(bench.settle(&mk_view()).await, 1, "{edit:?}");
        assert_eq!(bench.settle(&mk_view()).await, 0, "{edit:?}");
    }
    let kept = bench.ask(
        "ovn-nbctl",
        &["get", "logical_router", "GR_n1", "options:mine"],
    );
    assert_eq!(kept, "\"1\"");
    assert_eq!(bench.ask("ovn-nbctl", &find), nat, "repaired in place");
    assert_eq!(theirs(&bench), before);
}

#[tokio::test]
async fn rows_that_are_there_twice_are_collapsed() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let before = theirs(&bench);
    let stamp = "external_ids:noverlay.io/owner=default";
    let twins: [&[&str]; 3] = [
        &[
            "--id=@r",
            "create",
            "logical_router_static_route",
            "ip_prefix=10.128.1.0/24",
            "nexthop=100.64.0.1",
            stamp,
            "--",
            "add",
            "logical_router",
            "GR_n1",
            "static_routes",
            "@r",
        ],
        &[
            "--id=@n",
            "create",
            "nat",
            "type=snat",
            "logical_ip=100.64.0.2",
            "external_ip=10.1.1.1",
            stamp,
            "--",
            "add",
            "logical_router",
            "GR_n1",
            "nat",
            "@n",
        ],
        &["create", "logical_router", "name=ovn_cluster_router", stamp],
    ];
    for twin in twins {
        bench.nbctl(twin).await;
        assert_eq!(bench.settle(&mk_view()).await, 1, "{twin:?}");
        assert_eq!(bench.settle(&mk_view()).await, 0, "{twin:?}");
    }
    assert_eq!(theirs(&bench), before);
}

#[tokio::test]
async fn of_a_router_that_is_there_twice_the_one_with_the_routes_stays() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    bench.import(&mk_routes(0, 20)).await;
    let before = bench.routes();
    // Whichever of the two has the smaller uuid.
    for _ in 0..6 {
        let stamp = "external_ids:noverlay.io/owner=default";
        bench
            .nbctl(&["create", "logical_router", "name=GR_n1", stamp])
            .await;
        assert_eq!(bench.import(&mk_routes(0, 20)).await, 0);
        assert_eq!(bench.settle(&mk_view()).await, 1);
        assert_eq!(bench.settle(&mk_view()).await, 0);
    }
    assert_eq!(bench.routes(), before);
}

#[tokio::test]
async fn deleted_rows_and_a_deleted_gateway_router_are_made_again() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    bench.nbctl(&["lr-route-del", "ovn_cluster_router"]).await;
    assert_eq!(bench.settle(&mk_view()).await, 2);
    bench.nbctl(&["lsp-del", "jtor-GR_n1"]).await;
    assert_eq!(bench.settle(&mk_view()).await, 1);
    bench.nbctl(&["lr-del", "GR_n1"]).await;
    assert!(bench.settle(&mk_view()).await >= 8);
    assert_eq!(bench.settle(&mk_view()).await, 0);
    assert!(bench.imports().rows.is_empty());
    // A switch that goes takes its pods' ports along; the rest is ours to make.
    bench.nbctl(&["ls-del", "n1"]).await;
    assert_eq!(bench.settle(&mk_view()).await, 3);
    assert_eq!(bench.settle(&mk_view()).await, 0);
}

#[tokio::test]
async fn a_foreign_row_of_a_name_of_ours_is_told_and_left() {
    let Some(bench) = Bench::start().await else {
        return;
    };
    bench
        .nbctl(&[
            "ls-add",
            "x",
            "--",
            "lsp-add",
            "x",
            "etor-GR_n1",
            "--",
            "lr-add",
            "GR_n1",
        ])
        .await;
    let (wanted, standing, _) = bench.differs(&mk_view());
    let told: Vec<String> = standing
        .in_the_way(&wanted)
        .into_iter()
        .map(|problem| problem.subject)
        .collect();
    assert_eq!(
        told,
        ["Logical_Router GR_n1", "Logical_Switch_Port etor-GR_n1"]
    );
    // A row of another network of ours is foreign too.
    bench
        .nbctl(&[
            "set",
            "logical_router",
            "GR_n1",
            "external_ids:noverlay.io/owner=blue",
        ])
        .await;
    assert_eq!(bench.differs(&mk_view()).1.in_the_way(&wanted).len(), 2);
}

#[tokio::test]
async fn translation_is_switched_in_one_transaction() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let before = bench.records(COMMENT);
    let mut view = mk_view();
    view.outbound_snat = false;
    // The set goes and the row that referred to it changes: neither could go alone.
    assert_eq!(bench.settle(&view).await, 2);
    assert_eq!(bench.settle(&view).await, 0);
    let find = [
        "--bare",
        "--columns=allowed_ext_ips",
        "find",
        "nat",
        "logical_ip=\"10.128.0.0/16\"",
    ];
    assert_eq!(bench.ask("ovn-nbctl", &find).len(), 36);
    assert_eq!(bench.settle(&mk_view()).await, 2);
    assert_eq!(bench.settle(&mk_view()).await, 0);
    assert_eq!(bench.records(COMMENT), before + 2);
}

#[tokio::test]
async fn a_moved_node_subnet_moves_every_row_that_follows_from_it() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let mut view = mk_view();
    view.host_subnets = vec!["10.128.9.0/24".parse().unwrap()];
    view.node_addresses.insert("172.30.0.9".parse().unwrap());
    assert!(bench.settle(&view).await > 5);
    assert_eq!(bench.settle(&view).await, 0);
    let theirs = theirs(&bench);
    assert_eq!(theirs.len(), 3);
}

#[tokio::test]
async fn what_changed_after_it_was_read_fails_the_guard_and_nothing_is_written() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let chassis = ["set", "logical_router", "GR_n1", "options:chassis=other"];
    bench.nbctl(&chassis).await;
    bench
        .nbctl(&["lr-route-del", "GR_n1", "10.128.1.0/24"])
        .await;
    let (_, standing, diff) = bench.differs(&mk_view());
    let transaction = lower::topology(&standing, &diff, &mk_view().network).unwrap();
    bench
        .nbctl(&["set", "logical_router", "GR_n1", "name=renamed"])
        .await;
    let before = bench.routes();
    assert!(is_guard(apply(&bench.north, &transaction).await));
    assert_eq!(bench.routes(), before);

    // The same where a root row appears that was not there.
    let Some(empty) = Bench::start().await else {
        return;
    };
    let (_, standing, diff) = empty.differs(&mk_view());
    let transaction = lower::topology(&standing, &diff, &mk_view().network).unwrap();
    empty.nbctl(&["ls-add", "join"]).await;
    assert!(is_guard(apply(&empty.north, &transaction).await));
    assert!(empty.standing().owned.is_empty());
}

fn is_guard(outcome: Result<(), TransactError>) -> bool {
    matches!(
        outcome,
        Err(TransactError::Operation {
            error: OperationError::TimedOut,
            ..
        })
    )
}

#[tokio::test]
async fn whatever_is_done_to_the_rows_two_passes_mend_it() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let before = theirs(&bench);
    let mut seed = 20_u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for round in 0..60 {
        for _ in 0..=next(3) {
            vandalise(&bench, &mut next).await;
        }
        let mut passes = 0;
        while bench.settle(&mk_view()).await > 0 {
            passes += 1;
            assert!(passes <= 2, "round {round} does not come to rest");
        }
    }
    assert_eq!(theirs(&bench), before);
}

/// Does something to one row of ours.
async fn vandalise(bench: &Bench, next: &mut impl FnMut(usize) -> usize) {
    let owned = bench.standing().owned;
    let rows: Vec<(&RowKey, String)> = owned
        .iter()
        .flat_map(|(key, rows)| rows.iter().map(move |(uuid, _)| (key, uuid.to_string())))
        // Of what stands by name, taking the stamp would make it somebody else's.
        .filter(|(key, _)| !matches!(key.table, Table::AddressSet | Table::Router | Table::Switch))
        .collect();
    let Some((key, uuid)) = rows.get(next(rows.len())) else {
        return;
    };
    let table = key.table.name();
    let Some((parent, column)) = key.table.parent() else {
        return;
    };
    match next(3) {
        0 => {
            let words = ["remove", parent.name(), key.parent.as_str(), column, uuid];
            bench.nbctl(&words).await;
        }
        1 => {
            let words = match key.table {
                Table::RouterPort => vec!["set", table, uuid, "mac=\"00:00:00:00:00:09\""],
                Table::SwitchPort => vec!["set", table, uuid, "type=virtual"],
                Table::StaticRoute => vec!["set", table, uuid, "nexthop=10.9.9.9"],
                Table::Policy => vec!["set", table, uuid, "priority=7"],
                Table::Nat => vec!["set", table, uuid, "external_port_range=1-2"],
                Table::AddressSet | Table::Router | Table::Switch => return,
            };
            bench.nbctl(&words).await;
        }
        _ => {
            let words = ["clear", "logical_router", "GR_n1", "options"];
            bench.nbctl(&words).await;
        }
    }
}

#[tokio::test]
async fn the_reports_destinations_are_those_of_the_router() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let mut found = bench.look(|replica| ovn::north::destinations(replica, &mk_target()).unwrap());
    found.sort();
    let texts: Vec<String> = found
        .iter()
        .map(|(prefix, forwards)| format!("{prefix} {forwards}"))
        .collect();
    assert_eq!(
        texts,
        [
            "0.0.0.0/0 true",
            "10.128.0.0/16 false",
            "10.128.1.0/24 true",
            "192.0.2.0/24 true"
        ]
    );
}
