//! JSON forms of operations, held against the RFC's grammar.

use super::*;
use crate::notation::Transaction;

#[test]
fn a_transaction_is_the_array_of_the_rfc() {
    let row = Uuid::from_bytes([0x22; 16]);
    let transaction = Transaction::new("DB")
        .comment("why")
        .guard(
            "R",
            vec![Condition::uuid(row)],
            Row::new().with("name", "gr"),
        )
        .insert("S", row, Row::new().with("b", 1_i64).with("a", "x"))
        .insert("S", UuidName::new("new").unwrap(), Row::new())
        .push(Operation::Insert {
            table: "S".into(),
            id: RowId::Server,
            row: Row::new(),
        })
        .mutate(
            "R",
            vec![Condition::equal("name", "gr")],
            vec![Mutation::insert("s", UuidName::new("new").unwrap())],
        )
        .update("R", vec![], Row::new().with("s", Option::<i64>::None))
        .delete(
            "R",
            vec![Condition::includes(
                "ids",
                crate::notation::Datum::map([("o", "x")]),
            )],
        )
        .select("R", vec![], &["name"])
        .select("R", vec![], &[])
        .push(Operation::Assert("lock".into()))
        .push(Operation::Abort);
    let expected = serde_json::json!([
        "DB",
        {"op": "comment", "comment": "why"},
        {"op": "wait", "table": "R", "timeout": 0, "where": [["_uuid", "==", ["uuid", row.to_string()]]],
         "columns": ["name"], "until": "==", "rows": [{"name": "gr"}]},
        {"op": "insert", "table": "S", "uuid": row.to_string(), "row": {"a": "x", "b": 1}},
        {"op": "insert", "table": "S", "uuid-name": "new", "row": {}},
        {"op": "insert", "table": "S", "row": {}},
        {"op": "mutate", "table": "R", "where": [["name", "==", "gr"]],
         "mutations": [["s", "insert", ["named-uuid", "new"]]]},
        {"op": "update", "table": "R", "where": [], "row": {"s": ["set", []]}},
        {"op": "delete", "table": "R", "where": [["ids", "includes", ["map", [["o", "x"]]]]]},
        {"op": "select", "table": "R", "where": [], "columns": ["name"]},
        {"op": "select", "table": "R", "where": []},
        {"op": "assert", "lock": "lock"},
        {"op": "abort"},
    ]);
    assert_eq!(serde_json::to_value(&transaction).unwrap(), expected);
    assert_eq!(transaction.operations().len(), transaction.kinds().len());
}

#[test]
fn a_row_keeps_one_value_per_column_in_order() {
    let row = Row::new()
        .with("b", 1_i64)
        .with("a", 2_i64)
        .with("b", 3_i64);
    assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"a":2,"b":3}"#);
    assert_eq!(row.get::<i64>("b"), Ok(3));
    assert!(row.get::<i64>("c").is_err());
    assert_eq!(
        serde_json::from_str::<Row>(r#"{"b":3,"a":2}"#).unwrap(),
        row
    );
}
