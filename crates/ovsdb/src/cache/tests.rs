//! Updates as the server sends them, and what the replica makes of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::notation::{Atom, Datum};

const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

fn mk_tables() -> Tables {
    let column = |name: &str, kind: &str| (Box::from(name), serde_json::from_str(kind).unwrap());
    let columns = [
        column("name", "\"string\""),
        column("tag", r#"{"key":"integer","min":0,"max":1}"#),
        column("ports", r#"{"key":"integer","min":0,"max":"unlimited"}"#),
        column(
            "ids",
            r#"{"key":"string","value":"string","min":0,"max":"unlimited"}"#,
        ),
    ];
    Tables::new([
        TableLayout::new("T", columns),
        TableLayout::new("U", [column("x", "\"real\"")]),
    ])
}

fn mk_replica(rows: &str) -> Replica {
    let mut replica = Replica::new(mk_tables());
    replica.apply(&format!(r#"{{"T":{{{rows}}}}}"#)).unwrap();
    replica
}

fn row(replica: &Replica, uuid: &str) -> String {
    let record = &replica.table("T").unwrap()[&uuid.parse().unwrap()];
    record
        .columns()
        .map(|(name, value)| format!("{name}={}", serde_json::to_string(value).unwrap()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn modify(replica: &mut Replica, columns: &str) -> bool {
    replica
        .apply(&format!(r#"{{"T":{{"{A}":{{"modify":{{{columns}}}}}}}}}"#))
        .unwrap()
}

/// Where the map of a row is kept.
fn place(replica: &Replica, uuid: &str) -> *const (Atom, Atom) {
    let record = &replica.table("T").unwrap()[&uuid.parse().unwrap()];
    record.datum("ids").unwrap().as_map().unwrap().as_ptr()
}

#[test]
fn rows_of_one_map_share_it_until_one_of_them_changes() {
    let ids = r#"{"ids":["map",[["owner","import"],["network","default"]]]}"#;
    let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{ids}}}"#));
    let more = format!(r#"{{"T":{{"{B}":{{"insert":{ids}}}}}}}"#);
    replica.apply(&more).unwrap();
    assert_eq!(place(&replica, A), place(&replica, B));
    modify(&mut replica, r#""ids":["map",[["owner","static"]]]"#);
    assert_ne!(place(&replica, A), place(&replica, B));
    assert!(row(&replica, A).contains(r#"["owner","static"]"#));
    assert!(row(&replica, B).contains(r#"["owner","import"]"#));
}

#[test]
fn a_map_that_a_change_makes_equal_is_shared_again_and_so_are_rows_after_a_resynchronisation() {
    let ids = r#"{"ids":["map",[["owner","import"]]]}"#;
    let both = format!(r#""{A}":{{"initial":{ids}}},"{B}":{{"initial":{{}}}}"#);
    let mut replica = mk_replica(&both);
    let change = format!(r#"{{"T":{{"{B}":{{"modify":{ids}}}}}}}"#);
    replica.apply(&change).unwrap();
    assert_eq!(place(&replica, A), place(&replica, B));

    replica.resync(mk_replica(&format!(r#""{A}":{{"initial":{ids}}}"#)));
    let more = format!(r#"{{"T":{{"{B}":{{"insert":{ids}}}}}}}"#);
    replica.apply(&more).unwrap();
    assert_eq!(place(&replica, A), place(&replica, B));
}

#[test]
fn few_maps_are_remembered_and_none_that_is_large() {
    let uuid = |n: u32| format!("aaaaaaaa-aaaa-aaaa-aaaa-{n:012}");
    let rows = (0..1000).map(|n| {
        let id = uuid(n);
        format!(r#""{id}":{{"initial":{{"ids":["map",[["n","{n}"]]]}}}}"#)
    });
    let mut replica = mk_replica(&rows.collect::<Vec<_>>().join(","));
    for n in 0..1000 {
        let wanted = format!(r#"ids=["map",[["n","{n}"]]]"#);
        assert!(row(&replica, &uuid(n)).starts_with(&wanted), "{n}");
    }
    assert!((1..=256).contains(&replica.maps.len()));

    // Of rows that are gone nothing is left once there are others.
    let gone = (0..1000).map(|n| format!(r#""{}":{{"delete":null}}"#, uuid(n)));
    let gone = gone.collect::<Vec<_>>().join(",");
    replica.apply(&format!(r#"{{"T":{{{gone}}}}}"#)).unwrap();
    let new = (1000..1257).map(|n| {
        let id = uuid(n);
        format!(r#""{id}":{{"insert":{{"ids":["map",[["n","{n}"]]]}}}}"#)
    });
    let new = new.collect::<Vec<_>>().join(",");
    replica.apply(&format!(r#"{{"T":{{{new}}}}}"#)).unwrap();
    assert!((1..=256).contains(&replica.maps.len()));

    let large = "x".repeat(10_000);
    let many: Vec<String> = (0..20).map(|n| format!(r#"["{n}","a"]"#)).collect();
    let many = many.join(",");
    let rows = format!(
        r#""{A}":{{"initial":{{"ids":["map",[["n","{large}"]]]}}}},"{B}":{{"initial":{{"ids":["map",[{many}]]}}}}"#
    );
    assert_eq!(mk_replica(&rows).maps.len(), 0);
}

#[test]
fn omitted_columns_have_their_defaults() {
    let replica = mk_replica(&format!(
        r#""{A}":{{"initial":{{}}}},"{B}":{{"insert":{{"name":"b","tag":5}}}}"#
    ));
    assert_eq!(
        row(&replica, A),
        r#"ids=["map",[]] name="" ports=["set",[]] tag=["set",[]]"#
    );
    assert_eq!(
        row(&replica, B),
        r#"ids=["map",[]] name="b" ports=["set",[]] tag=5"#
    );
    assert_eq!(replica.generation(), 1);
}

#[test]
fn a_row_that_is_told_its_defaults_or_comes_back_to_them_is_one_that_was_told_nothing() {
    let told = r#"{"initial":{"name":"","tag":["set",[]],"ports":["set",[]],"ids":["map",[]]}}"#;
    let mut replica = mk_replica(&format!(r#""{A}":{told}"#));
    let fresh = || mk_replica(&format!(r#""{A}":{{"initial":{{}}}}"#));
    assert!(!replica.resync(fresh()));
    for there_and_back in [
        [r#""name":"a""#, r#""name":"""#],
        [r#""tag":1"#, r#""tag":["set",[]]"#],
        [r#""ports":["set",[1,2]]"#, r#""ports":["set",[1,2]]"#],
        [
            r#""ids":["map",[["k","v"]]]"#,
            r#""ids":["map",[["k","v"]]]"#,
        ],
    ] {
        let [there, back] = there_and_back;
        assert!(modify(&mut replica, there));
        assert_ne!(row(&replica, A), row(&fresh(), A), "{there}");
        assert!(modify(&mut replica, back));
        assert_eq!(row(&replica, A), row(&fresh(), A), "{back}");
        assert!(!replica.resync(fresh()), "{back}");
    }
    // Columns told in any order are found.
    let order = r#"{"initial":{"tag":5,"name":"n","ids":["map",[["k","v"]]],"ports":7}}"#;
    assert_eq!(
        row(&mk_replica(&format!(r#""{A}":{order}"#)), A),
        r#"ids=["map",[["k","v"]]] name="n" ports=7 tag=5"#
    );
}

#[test]
fn a_modify_toggles_sets_and_maps_and_replaces_the_rest() {
    let mut replica = mk_replica(&format!(
        r#""{A}":{{"initial":{{"name":"a","tag":1,"ports":["set",[1,2]],"ids":["map",[["k","v"],["l","w"]]]}}}}"#
    ));
    for (columns, expected) in [
        (
            r#""name":"z""#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=["set",[1,2]] tag=1"#,
        ),
        (
            r#""tag":2"#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=["set",[1,2]] tag=2"#,
        ),
        (
            r#""tag":["set",[]]"#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=["set",[1,2]] tag=["set",[]]"#,
        ),
        (
            r#""ports":["set",[2,3]]"#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=["set",[1,3]] tag=["set",[]]"#,
        ),
        (
            r#""ports":3"#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=1 tag=["set",[]]"#,
        ),
        (
            r#""ports":1"#,
            r#"ids=["map",[["k","v"],["l","w"]]] name="z" ports=["set",[]] tag=["set",[]]"#,
        ),
        (
            r#""ids":["map",[["k","v"],["l","new"],["m","x"]]]"#,
            r#"ids=["map",[["l","new"],["m","x"]]] name="z" ports=["set",[]] tag=["set",[]]"#,
        ),
    ] {
        assert!(modify(&mut replica, columns));
        assert_eq!(row(&replica, A), expected, "{columns}");
    }
    assert_eq!(replica.generation(), 8);
}

#[test]
fn a_delete_takes_the_row() {
    let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{{}}}}"#));
    replica
        .apply(&format!(r#"{{"T":{{"{A}":{{"delete":null}}}}}}"#))
        .unwrap();
    assert!(replica.table("T").unwrap().is_empty());
}

#[test]
fn an_update_that_does_not_fit_changes_nothing() {
    let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{{"name":"a"}}}}"#));
    for text in [
        format!(
            r#"{{"T":{{"{A}":{{"modify":{{"name":"x"}}}},"{B}":{{"modify":{{"name":"x"}}}}}}}}"#
        ),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"name":"x"}}}},"{B}":{{"delete":null}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"insert":{{"name":"x"}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"name":["set",[]]}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"name":7}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"ids":["set",[]]}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"other":"x"}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"name":"x"}},"delete":null}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"other":{{}}}}}}}}"#),
        format!(r#"{{"V":{{"{A}":{{"delete":null}}}}}}"#),
        r#"{"T":{"x":{"delete":null}}}"#.to_owned(),
        r#"{"T":[]}"#.to_owned(),
        "null".to_owned(),
        "{} {}".to_owned(),
    ] {
        assert!(replica.apply(&text).is_err(), "{text}");
        assert_eq!(replica.table("T").unwrap().len(), 1);
        assert_eq!(replica.generation(), 1, "{text}");
        assert!(row(&replica, A).contains("name=\"a\""), "{text}");
    }
}

#[test]
fn an_error_of_a_value_names_its_column() {
    let mut replica = mk_replica("");
    let error = replica
        .apply(&format!(r#"{{"T":{{"{A}":{{"insert":{{"name":7}}}}}}}}"#))
        .unwrap_err();
    let CacheError::Decode(source) = error else {
        panic!("{error}")
    };
    assert!(
        source
            .to_string()
            .contains("column name: expected String, found integer"),
        "{source}"
    );
}

#[test]
fn only_monitored_things_can_be_read() {
    let replica = mk_replica(&format!(r#""{A}":{{"initial":{{"name":"a"}}}}"#));
    assert!(matches!(replica.table("V"), Err(AccessError::Table { .. })));
    let record = &replica.table("T").unwrap()[&A.parse().unwrap()];
    assert_eq!(record.get::<&str>("name"), Ok("a"));
    assert!(matches!(
        record.get::<&str>("other"),
        Err(AccessError::Column { .. })
    ));
    assert!(matches!(
        record.get::<i64>("name"),
        Err(AccessError::Value { .. })
    ));
}

#[test]
fn a_resync_counts_only_what_differs() {
    let mut replica = mk_replica(&format!(
        r#""{A}":{{"initial":{{"name":"a"}}}},"{B}":{{"initial":{{}}}}"#
    ));
    assert!(!replica.resync(mk_replica(&format!(
        r#""{A}":{{"initial":{{"name":"a"}}}},"{B}":{{"initial":{{}}}}"#
    ))));
    assert_eq!(replica.generation(), 1, "the same dump is no change");
    let c = "cccccccc-cccc-cccc-cccc-cccccccccccc";
    assert!(replica.resync(mk_replica(&format!(
        r#""{A}":{{"initial":{{"name":"z"}}}},"{c}":{{"initial":{{}}}}"#
    ))));
    let changed: BTreeSet<Uuid> = [A, B, c].map(|uuid| uuid.parse().unwrap()).into();
    assert_eq!(
        replica.changes_since(1),
        Changes::Rows(BTreeMap::from([("T".into(), changed)]))
    );
    assert_eq!(replica.changes_since(2), Changes::Rows(BTreeMap::new()));
}

#[test]
fn a_resync_with_other_columns_is_a_change_of_everything() {
    let mut replica = mk_replica("");
    assert!(replica.resync(Replica::new(Tables::new([TableLayout::new("T", [])]))));
    assert_eq!(replica.changes_since(0), Changes::Everything);
}

#[test]
fn changes_are_remembered_up_to_a_bound() {
    let mut replica = mk_replica("");
    let many: Vec<String> = (0..=REMEMBERED)
        .map(|n| format!(r#""00000000-0000-0000-0000-{n:012x}":{{"initial":{{}}}}"#))
        .collect();
    replica
        .apply(&format!(r#"{{"T":{{{}}}}}"#, many.join(",")))
        .unwrap();
    assert_eq!(replica.changes_since(0), Changes::Everything);
    assert_eq!(replica.changes_since(1), Changes::Rows(BTreeMap::new()));
    let first = "00000000-0000-0000-0000-000000000000";
    for n in 0..=REMEMBERED {
        replica
            .apply(&format!(
                r#"{{"T":{{"{first}":{{"modify":{{"tag":{n}}}}}}}}}"#
            ))
            .unwrap();
    }
    assert_eq!(replica.changes_since(1), Changes::Everything);
    let one = Changes::Rows(BTreeMap::from([(
        "T".into(),
        BTreeSet::from([first.parse().unwrap()]),
    )]));
    assert_eq!(replica.changes_since(2), one);
}

proptest! {
    #[test]
    fn toggling_a_difference_leads_from_any_set_to_any_other(
        old in proptest::collection::btree_set(0_i64..20, 0..12),
        new in proptest::collection::btree_set(0_i64..20, 0..12),
    ) {
        let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{{"ports":{}}}}}"#, json(&Datum::from(old.clone()))));
        let difference: BTreeSet<i64> = old.symmetric_difference(&new).copied().collect();
        modify(&mut replica, &format!(r#""ports":{}"#, json(&Datum::from(difference))));
        let record = &replica.table("T").unwrap()[&A.parse().unwrap()];
        prop_assert_eq!(record.get::<BTreeSet<i64>>("ports").unwrap(), new);
    }

    #[test]
    fn toggling_a_difference_leads_from_any_map_to_any_other(
        old in proptest::collection::btree_map("[a-e]", "[x-z]", 0..5),
        new in proptest::collection::btree_map("[a-e]", "[x-z]", 0..5),
    ) {
        let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{{"ids":{}}}}}"#, json(&Datum::from(old.clone()))));
        let gone = old.iter().filter(|(key, _)| !new.contains_key(*key));
        let come = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
        let difference = Datum::map(gone.chain(come));
        modify(&mut replica, &format!(r#""ids":{}"#, json(&difference)));
        let record = &replica.table("T").unwrap()[&A.parse().unwrap()];
        prop_assert_eq!(record.get::<BTreeMap<String, String>>("ids").unwrap(), new);
    }
}

fn json(datum: &Datum) -> String {
    serde_json::to_string(datum).unwrap()
}

#[test]
fn what_is_named_twice_is_refused_and_changes_nothing() {
    let mut replica = mk_replica(&format!(r#""{A}":{{"initial":{{"ports":7}}}}"#));
    let before = (row(&replica, A), replica.generation());
    for update in [
        format!(r#"{{"T":{{"{B}":{{"insert":{{}}}}}},"T":{{"{B}":{{"insert":{{}}}}}}}}"#),
        format!(r#"{{"T":{{"{B}":{{"insert":{{}}}},"{B}":{{"insert":{{}}}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"ports":8}}}},"{A}":{{"delete":null}}}}}}"#),
        format!(r#"{{"T":{{"{A}":{{"modify":{{"ports":8,"name":"n","ports":9}}}}}}}}"#),
    ] {
        let error = replica.apply(&update).unwrap_err();
        assert!(
            matches!(&error, CacheError::Decode(_)),
            "{update}: {error:?}"
        );
        assert_eq!((row(&replica, A), replica.generation()), before, "{update}");
    }
}

#[test]
fn a_difference_that_leaves_a_value_that_cannot_be_is_refused_with_all_the_rest() {
    let column = |name: &str, kind: &str| (Box::from(name), serde_json::from_str(kind).unwrap());
    let columns = [column("two", r#"{"key":"integer","min":1,"max":2}"#)];
    let mut replica = Replica::new(Tables::new([TableLayout::new("T", columns)]));
    replica
        .apply(&format!(
            r#"{{"T":{{"{A}":{{"initial":{{"two":1}}}},"{B}":{{"initial":{{"two":1}}}}}}}}"#
        ))
        .unwrap();
    for difference in ["1", r#"["set",[2,3]]"#] {
        let update = format!(
            r#"{{"T":{{"{A}":{{"modify":{{"two":2}}}},"{B}":{{"modify":{{"two":{difference}}}}}}}}}"#
        );
        let error = replica.apply(&update).unwrap_err();
        assert!(
            matches!(&error, CacheError::Misfit { column, .. } if &**column == "two"),
            "{error:?}"
        );
        assert_eq!(row(&replica, A), "two=1");
    }
}
