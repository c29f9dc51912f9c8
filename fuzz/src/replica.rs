//! The replica: an update is applied wholly or not at all.
//!
//! In: `<table-updates2>` texts, one a line. Out: nothing.
//! Invariant: the replica is what a plain model of the protocol makes of the lines, and refuses what the model refuses;
//! what changed is reported; every value fits its column; a fresh dump of the same rows is no change.
//! Not here: the conversation that brings the updates.

mod model;

use std::collections::BTreeMap;

use ovsdb::cache::{CacheError, TableLayout, Tables};
use ovsdb::{Changes, Datum, Replica, Uuid};
use serde_json::{Map, Value, from_str, json, to_value};

/// Table, then row, then columns.
type Rows = BTreeMap<&'static str, BTreeMap<Uuid, Vec<(String, Datum)>>>;

const UUIDS: &str = r#"{"key":{"type":"uuid"},"min":0,"max":"unlimited"}"#;
const TEXTS: &str = r#"{"key":"string","value":"string","min":0,"max":"unlimited"}"#;

/// Columns of OVN_Northbound, of `_Server`, and one of every other kind.
const TABLES: [(&str, &[(&str, &str)]); 4] = [
    (
        "Logical_Router",
        &[
            ("name", r#""string""#),
            ("static_routes", UUIDS),
            ("external_ids", TEXTS),
            ("options", TEXTS),
            ("enabled", r#"{"key":"boolean","min":0,"max":1}"#),
        ],
    ),
    (
        "Logical_Router_Static_Route",
        &[
            ("ip_prefix", r#""string""#),
            ("nexthop", r#""string""#),
            ("output_port", r#"{"key":"string","min":0,"max":1}"#),
            ("policy", r#"{"key":"string","min":0,"max":1}"#),
            ("external_ids", TEXTS),
        ],
    ),
    (
        "Database",
        &[
            ("name", r#""string""#),
            ("leader", r#""boolean""#),
            ("connected", r#""boolean""#),
            ("schema", r#"{"key":"string","min":0,"max":1}"#),
        ],
    ),
    (
        "Odd",
        &[
            ("i", r#""integer""#),
            ("r", r#""real""#),
            ("u", r#""uuid""#),
            ("two", r#"{"key":"integer","min":1,"max":2}"#),
            ("reals", r#"{"key":"real","min":1,"max":"unlimited"}"#),
            ("m", r#"{"key":"integer","value":"real","min":0,"max":3}"#),
            ("one", r#"{"key":"uuid","value":"boolean","min":0,"max":1}"#),
        ],
    ),
];

/// An empty replica of the tables that the check knows.
#[must_use]
pub fn fresh() -> Replica {
    let column = |&(name, kind): &(&str, &str)| (name.into(), from_str(kind).unwrap());
    let table = |&(name, columns): &(&str, &[(&str, &str)])| {
        TableLayout::new(name, columns.iter().map(column))
    };
    Replica::new(Tables::new(TABLES.iter().map(table)))
}

/// Applies line after line and looks at the replica each time.
///
/// # Panics
/// Where it is not what the line makes of it.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut replica = fresh();
    for line in text.lines() {
        let (before, generation) = (rows(&replica), replica.generation());
        let expected = model::apply(line, &before);
        let outcome = replica.apply(line);
        let after = rows(&replica);
        assert_eq!(outcome.is_ok(), expected.is_some(), "{line}: {outcome:?}");
        if let Some(expected) = expected {
            assert_eq!(after, expected, "{line}");
        }
        if matches!(outcome, Ok(true)) {
            assert_eq!(replica.generation(), generation + 1);
            reported(&replica.changes_since(generation), &before, &after);
            again(&mut replica, line);
        } else {
            assert_eq!(
                (after, replica.generation()),
                (before, generation),
                "{line}"
            );
        }
    }
}

/// Whole rows of a line that was applied are there now; a fresh dump of what is there is no change.
fn again(replica: &mut Replica, line: &str) {
    let (held, generation) = (rows(replica), replica.generation());
    let dump = dump_of(&held).to_string();
    let mut other = fresh();
    other
        .apply(&dump)
        .unwrap_or_else(|error| panic!("{line} led to {dump}: {error:?}"));
    assert_eq!(rows(&other), held, "a dump is read as what it was made of");
    assert_eq!(
        held.values().all(BTreeMap::is_empty),
        other.generation() == 0
    );
    if other.generation() > 0 {
        let twice = other.apply(&dump);
        assert!(
            matches!(twice, Err(CacheError::Present { .. })),
            "{twice:?}"
        );
        assert_eq!(rows(&other), held);
    }
    assert!(!replica.resync(other), "nothing differs");
    assert_eq!((rows(replica), replica.generation()), (held, generation));
}

/// Every row that differs is among the changes, and nothing is there that was in neither.
fn reported(changes: &Changes, before: &Rows, after: &Rows) {
    let Changes::Rows(changes) = changes else {
        panic!("few changes are all remembered");
    };
    for (table, _) in TABLES {
        let (before, after) = (&before[table], &after[table]);
        let reported = changes.get(table);
        for uuid in before.keys().chain(after.keys()) {
            let differs = before.get(uuid) != after.get(uuid);
            assert!(
                !differs || reported.is_some_and(|reported| reported.contains(uuid)),
                "{table} {uuid}"
            );
        }
        for uuid in reported.into_iter().flatten() {
            assert!(
                before.contains_key(uuid) || after.contains_key(uuid),
                "{table} {uuid}"
            );
        }
    }
}

fn rows(replica: &Replica) -> Rows {
    let columns = |record: &ovsdb::Record| {
        record
            .columns()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    };
    let table = |name| {
        let rows = replica.table(name).unwrap().iter();
        rows.map(|(uuid, record)| (*uuid, columns(record)))
            .collect()
    };
    TABLES
        .iter()
        .map(|&(name, _)| (name, table(name)))
        .collect()
}

/// The `<table-updates2>` that a server would send for these rows.
fn dump_of(rows: &Rows) -> Value {
    let row = |columns: &Vec<(String, Datum)>| {
        let columns = columns
            .iter()
            .map(|(name, value)| (name.clone(), to_value(value).unwrap()));
        json!({"initial": columns.collect::<Map<_, _>>()})
    };
    let table = |rows: &BTreeMap<Uuid, _>| -> Value {
        rows.iter()
            .map(|(uuid, columns)| (uuid.to_string(), row(columns)))
            .collect()
    };
    rows.iter()
        .map(|(name, rows)| ((*name).to_owned(), table(rows)))
        .collect()
}
