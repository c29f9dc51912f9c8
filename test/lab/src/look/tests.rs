//! OVSDB's JSON is read as it is written.

use serde_json::json;

use super::*;

fn row(column: &str, value: Value) -> Row {
    Row::from([(column.to_owned(), value)])
}

#[test]
fn one_value_several_values_and_references_are_read() {
    assert_eq!(members(&row("a", json!("x")), "a"), ["x"]);
    assert_eq!(
        members(&row("a", json!(["set", ["x", "y"]])), "a"),
        ["x", "y"]
    );
    assert_eq!(members(&row("a", json!(["uuid", "u"])), "a"), ["u"]);
    assert_eq!(
        members(
            &row("a", json!(["set", [["uuid", "u"], ["uuid", "v"]]])),
            "a"
        ),
        ["u", "v"]
    );
    assert_eq!(
        members(&row("a", json!(["set", []])), "a"),
        Vec::<String>::new()
    );
}

#[test]
fn a_pair_is_found_by_its_key() {
    let row = row("ids", json!(["map", [["k", "v"], ["l", "w"]]]));
    assert_eq!(entry(&row, "ids", "l").as_deref(), Some("w"));
    assert_eq!(entry(&row, "ids", "m"), None);
}

#[test]
fn an_address_is_a_prefix_of_full_length() {
    assert_eq!(prefix("10.0.0.1"), "10.0.0.1/32".parse().ok());
    assert_eq!(prefix("fd00::1"), "fd00::1/128".parse().ok());
    assert_eq!(prefix("10.0.0.0/24"), "10.0.0.0/24".parse().ok());
    assert_eq!(prefix("default"), None);
}
