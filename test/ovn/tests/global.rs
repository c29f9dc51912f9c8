//! `NB_Global.options:use_ct_inv_match` on a real ovsdb-server, and what the installed ovn-northd makes of it.
//!
//! In: what is wanted, and hands that meddle. Out: the option, the marker beside it, flows.
//! Invariant: other keys of the row, and a value that is somebody else's, stay. Not here: when it is wanted (`plan_node`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use model::nb::{CT_INV_MATCH, CT_INV_MATCH_OURS, CtInvMatch};
use ovn::global;
use ovn_tests::{Fixture, NORTHD_TOOLS, Northd};
use ovsdb::Client;
use ovsdb_tests::{absent, until_synced};

/// One pass; whether it wrote, and the value in its way. A second one has nothing to do.
async fn pass(client: &Client, wanted: CtInvMatch) -> (bool, Option<String>) {
    let look = || client.with_replica(|replica| global::transaction(replica, wanted));
    let (transaction, in_the_way) = look().unwrap().unwrap();
    let writes = !transaction.operations().is_empty();
    if writes {
        let mut status = client.watch();
        let before = status.borrow_and_update().generation;
        let reply = client.transact(&transaction).await.unwrap();
        reply.check_counts().unwrap();
        status
            .wait_for(|now| now.generation > before)
            .await
            .unwrap();
        let (left, still) = look().unwrap().unwrap();
        assert!(left.operations().is_empty(), "{left:?}");
        assert_eq!(still, in_the_way);
    }
    (writes, in_the_way)
}

/// The option and the marker, as the replica shows them.
fn shown(fixture: &Fixture) -> (Option<String>, Option<String>) {
    let read = |replica: &ovsdb::Replica| {
        let (_, record) = replica.table("NB_Global").unwrap().iter().next().unwrap();
        let of = |column: &str, key: &str| {
            let map = record.get::<std::collections::BTreeMap<String, String>>(column);
            map.unwrap().remove(key)
        };
        (
            of("options", CT_INV_MATCH),
            of("external_ids", CT_INV_MATCH_OURS),
        )
    };
    fixture.client.with_replica(read).unwrap()
}

fn both(value: &str) -> (Option<String>, Option<String>) {
    (Some(value.to_owned()), Some(value.to_owned()))
}

#[tokio::test]
async fn the_option_is_set_and_taken_back_and_nothing_else_of_the_row_changes() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    // Nobody has made the row yet.
    assert_eq!(pass(&fixture.client, CtInvMatch::Off).await, (false, None));
    let others = ["options:theirs=1", "external_ids:theirs=2"];
    fixture
        .nbctl(&[&["set", "NB_Global", "."], &others[..]].concat())
        .await;
    assert_eq!(
        pass(&fixture.client, CtInvMatch::Restored).await,
        (false, None)
    );
    assert_eq!(pass(&fixture.client, CtInvMatch::Off).await, (true, None));
    assert_eq!(shown(&fixture), both("false"));
    // While nobody knows whether it is needed it stays.
    assert_eq!(pass(&fixture.client, CtInvMatch::Kept).await, (false, None));
    assert_eq!(pass(&fixture.client, CtInvMatch::Off).await, (false, None));
    // Somebody takes it away: it is put there again.
    fixture
        .nbctl(&["remove", "NB_Global", ".", "options", CT_INV_MATCH])
        .await;
    assert_eq!(pass(&fixture.client, CtInvMatch::Off).await, (true, None));
    assert_eq!(shown(&fixture), both("false"));
    assert_eq!(
        pass(&fixture.client, CtInvMatch::Restored).await,
        (true, None)
    );
    assert_eq!(shown(&fixture), (None, None));
    for (column, key, value) in [("options", "theirs", "1"), ("external_ids", "theirs", "2")] {
        let set = [format!("{column}:{key}={value}")];
        fixture
            .nbctl(&["--", "wait-until", "NB_Global", ".", &set[0]])
            .await;
    }
}

#[tokio::test]
async fn a_value_of_somebody_elses_stays_whatever_is_wanted() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let set = |value: &str| format!("options:{CT_INV_MATCH}={value}");
    fixture
        .nbctl(&["set", "NB_Global", ".", &set("true")])
        .await;
    let told = Some("true".to_owned());
    assert_eq!(
        pass(&fixture.client, CtInvMatch::Off).await,
        (false, told.clone())
    );
    assert_eq!(
        pass(&fixture.client, CtInvMatch::Restored).await,
        (false, None)
    );
    assert_eq!(shown(&fixture), (told.clone(), None));
    // The same that we would write, as OVN-Kubernetes' start script does: it is theirs, and does not go with us.
    fixture
        .nbctl(&["set", "NB_Global", ".", &set("false")])
        .await;
    assert_eq!(pass(&fixture.client, CtInvMatch::Off).await, (false, None));
    assert_eq!(
        pass(&fixture.client, CtInvMatch::Restored).await,
        (false, None)
    );
    assert_eq!(shown(&fixture), (Some("false".to_owned()), None));
    // Whoever writes over ours has it.
    fixture
        .nbctl(&["remove", "NB_Global", ".", "options", CT_INV_MATCH])
        .await;
    pass(&fixture.client, CtInvMatch::Off).await;
    for wanted in [CtInvMatch::Off, CtInvMatch::Restored] {
        fixture
            .nbctl(&["remove", "NB_Global", ".", "options", CT_INV_MATCH])
            .await;
        pass(&fixture.client, CtInvMatch::Off).await;
        fixture
            .nbctl(&["set", "NB_Global", ".", &set("true")])
            .await;
        assert!(pass(&fixture.client, wanted).await.0);
        assert_eq!(shown(&fixture), (told.clone(), None), "{wanted:?}");
    }
}

#[tokio::test]
async fn northd_drops_nothing_as_invalid_while_it_is_set() {
    if absent(NORTHD_TOOLS) {
        return;
    }
    let northd = Northd::start();
    let client = Fixture::connect(northd.nb.clone());
    until_synced(&client).await;
    northd.nbctl(&[
        "ls-add",
        "n1",
        "--",
        "acl-add",
        "n1",
        "to-lport",
        "1001",
        "ip4",
        "allow-related",
    ]);
    let tells = || {
        northd.nbctl(&["sync"]);
        northd.flows("n1").contains("ct.inv")
    };
    assert!(tells());
    assert!(pass(&client, CtInvMatch::Off).await.0);
    assert!(!tells());
    assert!(pass(&client, CtInvMatch::Restored).await.0);
    assert!(tells());
    assert_eq!(northd.complaints(), Vec::<String>::new());
}
