//! Whole plans: written once, in one transaction, and never over a database that has moved on.
//!
//! In: plans on a real ovsdb-server. Out: rows. Invariant: what others wrote is as it was.
//! Not here: repairs of single rows (`repair.rs`), imported routes (`imports.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test"
)]

use std::process::Command;

use model::diff::Diff;
use model::gateway::GatewayMode;
use model::nb::{self, Columns, OWNER, RowKey, Rows, Table, Value};
use ovn::{encode, north};
use ovn_tests::{Fixture, TOOLS, View, mk_view, owner_of, rows_of, shared_rows};
use ovsdb::{
    Condition, Datum, Mutation, OperationError, Row, TransactError, Transaction, random_uuid,
};
use ovsdb_tests::{Server, absent, run};
use testkit::mk_user_network;

const NB_SCHEMA: &str = "/usr/share/ovn/ovn-nb.ovsschema";

fn mk_rows() -> Rows {
    rows_of(&mk_view())
}

fn exemption() -> RowKey {
    let rows = mk_rows();
    let referred = rows
        .values()
        .find_map(|columns| match columns.get("exempted_ext_ips") {
            Some(Value::Ref(key)) => Some(key.clone()),
            _ => None,
        });
    referred.unwrap()
}

fn nats(rows: &Rows) -> Vec<(&RowKey, &Columns)> {
    rows.iter()
        .filter(|(key, _)| key.table == Table::Nat)
        .collect()
}

fn is_moved_on(result: &Result<ovsdb::TransactReply, TransactError>) -> bool {
    matches!(
        result,
        Err(TransactError::Operation {
            error: OperationError::TimedOut,
            ..
        })
    )
}

#[tokio::test]
async fn a_plan_is_written_once() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    assert_eq!(fixture.pass(&rows).await, rows.len());
    assert_eq!(fixture.pass(&rows).await, 0);
    assert!(fixture.encode(&rows).is_empty());
    // Another reader sees the tree too.
    fixture.nbctl(&["lrp-get-enabled", "rtoe-GR_n1"]).await;
    fixture
        .nbctl(&["get", "Logical_Router", "GR_n1", "options:chassis"])
        .await;
}

#[tokio::test]
async fn rows_of_others_stay() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture
        .nbctl(&["lr-add", "theirs", "--", "ls-add", "their-switch"])
        .await;
    let rows = mk_rows();
    fixture.pass(&rows).await;
    fixture
        .nbctl(&[
            "--",
            "lsp-add",
            "n1",
            "ns_pod",
            "--",
            "lsp-set-addresses",
            "ns_pod",
            "0a:58:0a:80:01:05 10.128.1.5",
            "--",
            "set",
            "Logical_Router",
            "GR_n1",
            "options:theirs=1",
            "--",
            "lr-route-add",
            "GR_n1",
            "198.51.100.0/24",
            "172.30.0.7",
            "--",
            "lr-nat-add",
            "GR_n1",
            "snat",
            "172.30.0.1",
            "10.200.0.0/16",
        ])
        .await;
    assert_eq!(fixture.pass(&rows).await, 0);
    // The whole network goes but for its switch: its other rows, not theirs.
    let switch = RowKey::root(Table::Switch, "n1");
    let kept: Rows = rows.into_iter().filter(|(key, _)| *key == switch).collect();
    fixture
        .nbctl(&["lr-route-del", "GR_n1", "198.51.100.0/24", "172.30.0.7"])
        .await;
    fixture
        .nbctl(&["lr-nat-del", "GR_n1", "snat", "10.200.0.0/16"])
        .await;
    fixture.pass(&kept).await;
    assert_eq!(fixture.named(Table::SwitchPort, "ns_pod").len(), 1);
    assert_eq!(fixture.pass(&mk_rows()).await, mk_rows().len() - 1);
}

#[tokio::test]
async fn keys_of_others_in_our_maps_stay() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    fixture.pass(&rows).await;
    fixture
        .nbctl(&[
            "set",
            "Logical_Router",
            "GR_n1",
            "options:theirs=1",
            "options:chassis=n9",
        ])
        .await;
    assert_eq!(fixture.pass(&rows).await, 1);
    let key = RowKey::root(Table::Router, "GR_n1");
    let rows = fixture.rows(&key);
    let Some(Value::Entries(options)) = rows[0].1.get("options") else {
        panic!("{rows:?}");
    };
    assert_eq!(options["theirs"], "1");
    assert_eq!(options["chassis"], "n1");
}

#[tokio::test]
async fn forms_of_translation_change_both_ways() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let (on, mut view) = (mk_rows(), mk_view());
    view.no_overlay(|options| options.outbound_snat = false);
    let off = rows_of(&view);
    fixture.pass(&shared_rows(&view)).await;
    for rows in [&on, &off, &on, &off] {
        fixture.pass(rows).await;
        for (key, wanted) in nats(rows) {
            let found = fixture.rows(key);
            let [(_, held)] = found.as_slice() else {
                panic!("{key}");
            };
            for column in ["exempted_ext_ips", "allowed_ext_ips"] {
                assert_eq!(held[column], wanted[column], "{key} {column}");
            }
        }
    }
    assert_eq!(fixture.named(Table::AddressSet, &exemption().id).len(), 0);
}

#[tokio::test]
async fn a_family_goes_and_comes_back() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let (both, mut view) = (mk_rows(), mk_view());
    view.share.network.subnets.truncate(1);
    view.share.host_subnets.truncate(1);
    view.share.network.join_subnets.truncate(1);
    view.node.gateway.addresses.truncate(1);
    view.node.gateway.next_hops.truncate(1);
    let one = rows_of(&view);
    assert!(one.len() < both.len());
    for rows in [&both, &one, &both, &Rows::new(), &one] {
        fixture.pass(rows).await;
    }
}

#[tokio::test]
async fn a_match_is_written_where_the_schema_has_it() {
    if absent(TOOLS) {
        return;
    }
    let mut server = Server::prepared(&[]);
    let schema = std::fs::read_to_string(NB_SCHEMA).unwrap();
    let nat = schema.find("\"NAT\": {").unwrap();
    let column = r#""match": {"type": "string"},"#;
    let (before, after) = schema.split_at(nat);
    let path = server.path("with-match.ovsschema");
    if !after.contains(column) {
        let columns = "\"columns\": {";
        let after = after.replacen(columns, &format!("{columns}{column}"), 1);
        std::fs::write(&path, format!("{before}{after}")).unwrap();
        let mut convert = Command::new("ovsdb-tool");
        run(convert.arg("convert").arg(server.path("nb.db")).arg(&path));
    }
    server.up();
    let fixture = Fixture::over(server).await;
    let mut view = mk_view();
    view.node.nat_has_match = north::nat_has_match(&fixture.client.schema().unwrap());
    assert!(view.node.nat_has_match);
    for outbound_snat in [false, true, false] {
        view.no_overlay(|options| options.outbound_snat = outbound_snat);
        let rows = rows_of(&view);
        fixture.pass(&rows).await;
        for (key, wanted) in nats(&rows) {
            assert_eq!(fixture.rows(key)[0].1["match"], wanted["match"], "{key}");
        }
    }
}

#[tokio::test]
async fn a_lagging_replica_makes_no_second_router() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    let (first, second) = (fixture.encode(&rows), fixture.encode(&rows));
    fixture.client.transact(&first).await.unwrap();
    let late = fixture.client.transact(&second).await;
    assert!(is_moved_on(&late), "{late:?}");
    fixture.settle().await;
    assert_eq!(fixture.named(Table::Router, "GR_n1").len(), 1);
    assert_eq!(fixture.pass(&rows).await, 0);
}

#[tokio::test]
async fn a_parent_that_is_gone_meanwhile_fails_the_whole() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    fixture.pass(&rows).await;
    fixture.nbctl(&["lr-nat-del", "GR_n1"]).await;
    let transaction = fixture.encode(&rows);
    fixture.nbctl(&["lr-del", "GR_n1"]).await;
    let late = fixture.client.transact(&transaction).await;
    assert!(is_moved_on(&late), "{late:?}");
    fixture.pass(&rows).await;
}

#[tokio::test]
async fn a_gateway_router_deleted_by_hand_is_built_again_with_its_children() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    fixture.pass(&rows).await;
    fixture.nbctl(&["lr-del", "GR_n1"]).await;
    let children = rows
        .keys()
        .filter(|key| key.parent_name() == Some("GR_n1"))
        .count();
    assert_eq!(fixture.pass(&rows).await, children + 1);
    fixture.nbctl(&["lrp-get-enabled", "rtoe-GR_n1"]).await;
}

#[tokio::test]
async fn a_row_without_our_marker_is_a_problem_and_not_touched() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    fixture.pass(&rows).await;
    let marked = [
        exemption(),
        RowKey::root(Table::Router, "GR_n1"),
        RowKey::root(Table::Switch, "n1"),
        RowKey::child(Table::RouterPort, "GR_n1", "rtoe-GR_n1"),
        RowKey::child(Table::SwitchPort, "n1", "k8s-n1"),
    ];
    for key in &marked {
        let (table, itself) = (key.table.name(), vec![Condition::uuid(fixture.uuid(key))]);
        let strip = Mutation::delete("external_ids", Datum::set([OWNER]));
        for (change, says) in [
            (
                vec![strip.clone()],
                "has no external_ids:noverlay.io/owner, not default",
            ),
            (
                vec![Mutation::insert(
                    "external_ids",
                    Datum::map([(OWNER, "blue")]),
                )],
                "has external_ids:noverlay.io/owner=blue, not default",
            ),
        ] {
            let edit = Transaction::new(north::DATABASE).mutate(table, itself.clone(), change);
            fixture.by_hand(edit).await;
            let problems = fixture.foreign(&rows);
            let [problem] = problems.as_slice() else {
                panic!("{key}: {problems:?}");
            };
            assert!(
                problem.starts_with(&format!("{table}/{}: ", key.id)),
                "{problem}"
            );
            assert!(problem.contains(says), "{problem}");
        }
        let give_back = vec![
            strip,
            Mutation::insert("external_ids", Datum::map([(OWNER, "default")])),
        ];
        let edit = Transaction::new(north::DATABASE).mutate(table, itself, give_back);
        fixture.by_hand(edit).await;
        assert_eq!(fixture.pass(&rows).await, 0);
    }
}

#[tokio::test]
async fn a_set_that_another_row_refers_to_does_not_hold_up_the_rest() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.pass(&mk_rows()).await;
    fixture.nbctl(&["lr-add", "theirs"]).await;
    let [router] = fixture
        .named(Table::Router, "theirs")
        .into_iter()
        .collect::<Vec<_>>()[..]
    else {
        panic!("no router");
    };
    let nat = random_uuid();
    let row = Row::new()
        .with("type", "snat")
        .with("external_ip", "172.30.0.1")
        .with("logical_ip", "10.200.0.0/16")
        .with("exempted_ext_ips", fixture.uuid(&exemption()));
    let insert =
        Fixture::refer(Table::Router, router, Mutation::insert("nat", nat)).insert("NAT", nat, row);
    fixture.by_hand(insert).await;

    let mut view = mk_view();
    view.no_overlay(|options| options.outbound_snat = false);
    fixture.pass(&shared_rows(&view)).await;
    let rows = rows_of(&view);
    let before = fixture.others();
    fixture
        .client
        .transact(&fixture.encode(&rows))
        .await
        .unwrap();
    fixture.settle().await;
    let left = fixture.diff(&rows);
    assert!(left.create.is_empty() && left.update.is_empty());
    let left: Vec<&RowKey> = left.delete.iter().map(|(_, key)| key).collect();
    assert_eq!(left, [&exemption()]);
    assert!(fixture.encode(&rows).is_empty());
    assert_eq!(fixture.others(), before);
    fixture.nbctl(&["lr-del", "theirs"]).await;
    assert_eq!(fixture.pass(&rows).await, 1);
}

#[tokio::test]
async fn an_error_names_what_is_missing() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let rows = mk_rows();
    let encode = |without: &RowKey| {
        let mut diff = fixture.diff(&rows);
        diff.create.retain(|(key, _)| key != without);
        encode::topology(&diff, &fixture.decode(), &owner_of(&rows), "x")
            .unwrap_err()
            .to_string()
    };
    let parent = encode(&RowKey::root(Table::Switch, "n1"));
    assert!(
        parent.ends_with("of n1 has no parent in the plan or the database"),
        "{parent}"
    );
    let referent = encode(&exemption());
    assert!(
        referent.starts_with("column exempted_ext_ips of NAT snat|"),
        "{referent}"
    );
}

#[tokio::test]
async fn a_database_that_another_nodes_agent_writes_to_is_refused() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let first = mk_view();
    fixture.pass(&rows_of(&first)).await;
    assert!(fixture.foreign(&rows_of(&first)).is_empty());

    let mut second = mk_view();
    second.node.name = "n2".into();
    second.node.gateway.chassis = "5f0c1ab0-0000-4000-8000-000000000002".to_owned();
    let problems = fixture.foreign(&rows_of(&second));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let router = first.get().gateway_router();
    assert!(
        problems[0].contains(router.as_str()) && problems[0].contains("another node's agent"),
        "{problems:?}"
    );

    let among = |nodes: &[&View]| {
        let nodes = nodes.iter().map(|view| view.node.name.clone());
        fixture.foreign_among(&rows_of(&second), Some(&nodes.collect()))
    };
    assert_eq!(among(&[&first, &second]), problems, "both are Nodes");

    // The same machine under another name takes its own leftovers away.
    let mut renamed = mk_view();
    renamed.node.name = "n2".into();
    let rows = rows_of(&renamed);
    assert!(
        fixture.foreign(&rows).is_empty(),
        "{:?}",
        fixture.foreign(&rows)
    );
    assert!(fixture.pass(&rows).await > 0);
    assert!(fixture.named(Table::Router, router.as_str()).is_empty());
}

#[tokio::test]
async fn a_router_of_a_node_that_is_no_more_is_no_rival() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    // The database came along with the disk of another machine.
    let before = mk_view();
    fixture.pass(&rows_of(&before)).await;
    let mut copy = mk_view();
    copy.node.name = "n2".into();
    copy.node.gateway.chassis = "5f0c1ab0-0000-4000-8000-000000000002".to_owned();
    let rows = rows_of(&copy);
    assert_eq!(fixture.foreign(&rows).len(), 1, "Nodes are not listed yet");
    let nodes = [copy.node.name.clone()].into();
    assert_eq!(
        fixture.foreign_among(&rows, Some(&nodes)),
        Vec::<String>::new()
    );
    // What was left goes with the topology's next transaction.
    fixture.by_hand(fixture.encode(&rows)).await;
    fixture.settle().await;
    let old = before.get().gateway_router();
    assert!(fixture.named(Table::Router, old.as_str()).is_empty());
    assert!(fixture.diff(&rows).is_empty());
}

#[tokio::test]
async fn networks_share_the_set_of_node_addresses_and_neither_stands_in_the_others_way() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let default = mk_view();
    let mut blue = mk_view();
    blue.share.network.name = "cluster_udn_blue".into();
    blue.share.network.id = 5;
    for (view, made) in [(&default, 4), (&blue, 0)] {
        assert_eq!(fixture.pass(&shared_rows(view)).await, made);
        fixture.pass(&rows_of(view)).await;
    }
    for view in [&default, &blue] {
        assert_eq!(fixture.pass(&shared_rows(view)).await, 0);
        assert_eq!(fixture.pass(&rows_of(view)).await, 0);
    }
    // A network that is not declared any more is known by its rows; the other's stay.
    let north = fixture.decode();
    let owner = owner_of(&rows_of(&blue));
    let owners: Vec<String> = north.owned.keys().map(ToString::to_string).collect();
    assert_eq!(
        owners,
        ["the node", "network cluster_udn_blue", "network default"]
    );
    assert_eq!(north::bound_elsewhere(north.of(&owner), Some("n1")), None);
    let router = blue.get().gateway_router();
    for chassis in [None, Some("n2")] {
        let bound = north::bound_elsewhere(north.of(&owner), chassis);
        assert_eq!(bound, Some(router.as_str()), "{chassis:?}");
    }
    let diff = Diff::between(north.of(&owner), &Rows::new(), nb::satisfies);
    let gone = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
    fixture.by_hand(gone).await;
    fixture.settle().await;
    assert!(fixture.decode().of(&owner).is_empty());
    assert_eq!(fixture.pass(&rows_of(&default)).await, 0);
    assert_eq!(fixture.pass(&shared_rows(&default)).await, 0);
}

#[tokio::test]
async fn a_shared_set_stays_while_a_networks_row_refers_to_it() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let mut view = mk_view();
    view.no_overlay(|options| options.outbound_snat = false);
    // Sets of advertised subnets are named in matches, not referred to.
    view.node.strict_isolation = false;
    fixture.pass(&shared_rows(&view)).await;
    fixture.pass(&rows_of(&view)).await;
    let north = fixture.decode();
    let owner = owner_of(&shared_rows(&view));
    let diff = Diff::between(north.of(&owner), &Rows::new(), nb::satisfies);
    assert_eq!(diff.delete.len(), 2);
    let gone = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
    assert!(gone.is_empty(), "{gone:?}");
    fixture.pass(&Rows::new()).await;
    let north = fixture.decode();
    let gone = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
    fixture.by_hand(gone).await;
    fixture.settle().await;
    assert!(fixture.decode().owned.is_empty());
}

/// The node's share of a network of users with both families.
fn mk_blue(mode: GatewayMode) -> View {
    let mut view = mk_view();
    let join = ["100.65.0.0/16", "fd99::/64"];
    let subnets = ["10.200.0.0/16/24", "fd00:200::/48/64"];
    view.share.network = mk_user_network("cluster_udn_blue", 5, &subnets, &join);
    view.share.host_subnets = ["10.200.1.0/24", "fd00:200:0:1::/64"]
        .map(|text| text.parse().unwrap())
        .into();
    view.node.mode = mode;
    view
}

#[tokio::test]
async fn a_network_of_users_is_written_once_changes_its_mode_and_goes_whole() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let shared = shared_rows(&mk_blue(GatewayMode::Shared));
    fixture.pass(&shared).await;
    let mut before = None;
    for mode in [GatewayMode::Shared, GatewayMode::Local, GatewayMode::Shared] {
        let rows = rows_of(&mk_blue(mode));
        assert!(fixture.pass(&rows).await > 0, "{mode:?}");
        assert_eq!(fixture.pass(&rows).await, 0, "{mode:?}");
        if mode == GatewayMode::Shared {
            let again = before.replace(rows.clone());
            assert!(again.is_none_or(|before| before == rows));
        }
        let port = rows
            .iter()
            .find(|(key, _)| key.table == Table::RouterPort && key.id.starts_with("rtos-"));
        let port = port
            .map(|(_, columns)| &columns["gateway_chassis"])
            .unwrap();
        assert!(
            matches!(port, Value::Ref(chassis) if fixture.named(Table::GatewayChassis, &chassis.id).len() == 1)
        );
    }
    let owner = owner_of(&rows_of(&mk_blue(GatewayMode::Shared)));
    let north = fixture.decode();
    let diff = Diff::between(north.of(&owner), &Rows::new(), nb::satisfies);
    let gone = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
    fixture.by_hand(gone).await;
    fixture.settle().await;
    assert!(fixture.decode().of(&owner).is_empty());
}
