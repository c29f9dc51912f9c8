//! Types of columns and what fits them.

use super::*;

fn kind(text: &str) -> ColumnType {
    serde_json::from_str(text).unwrap()
}

fn admit(kind: &ColumnType, value: &str) -> Result<Datum, TypeError> {
    kind.admit(serde_json::from_str(value).unwrap())
}

const MAP: &str = r#"{"key":"string","value":"string","min":0,"max":"unlimited"}"#;
const REFS: &str =
    r#"{"key":{"type":"uuid","refTable":"T","refType":"strong"},"min":0,"max":"unlimited"}"#;
const OPTIONAL: &str = r#"{"key":{"type":"string","enum":["set",["a","b"]]},"min":0,"max":1}"#;

#[test]
fn a_schema_tells_tables_columns_and_types() {
    let text = r#"{"name":"DB","version":"1.2.3","cksum":"1 2","tables":{"T":{"isRoot":true,"maxRows":1,
        "indexes":[["a"]],"columns":{"a":{"type":"string"},"b":{"type":{"key":"integer","min":0,"max":3},"ephemeral":true}}}}}"#;
    let schema: Schema = serde_json::from_str(text).unwrap();
    assert_eq!((&*schema.name, &*schema.version), ("DB", "1.2.3"));
    assert!(
        schema.has_column("T", "a") && !schema.has_column("T", "c") && !schema.has_column("U", "a")
    );
    assert!(schema.has_table("T") && schema.tables["T"].is_root);
    assert_eq!(schema.column("T", "b").unwrap().max, Max::Bounded(3));
}

#[test]
fn defaults_are_those_of_the_rfc() {
    for (text, default) in [
        ("\"integer\"", "0"),
        ("\"boolean\"", "false"),
        ("\"string\"", "\"\""),
        ("\"real\"", "0.0"),
        (
            "\"uuid\"",
            r#"["uuid","00000000-0000-0000-0000-000000000000"]"#,
        ),
        (MAP, r#"["map",[]]"#),
        (REFS, r#"["set",[]]"#),
        (OPTIONAL, r#"["set",[]]"#),
    ] {
        assert_eq!(
            serde_json::to_string(&kind(text).default_value()).unwrap(),
            default,
            "{text}"
        );
    }
}

#[test]
fn only_columns_for_more_than_one_take_differences() {
    for (text, composite) in [
        ("\"string\"", false),
        (OPTIONAL, false),
        (MAP, true),
        (REFS, true),
        (r#"{"key":"real","max":2}"#, true),
    ] {
        assert_eq!(kind(text).is_composite(), composite, "{text}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for (text, value) in [
        ("\"integer\"", "\"1\""),
        ("\"integer\"", "1.5"),
        ("\"string\"", r#"["set",[]]"#),
        ("\"string\"", r#"["set",["a","b"]]"#),
        ("\"string\"", r#"["map",[]]"#),
        (OPTIONAL, r#"["set",["a","b"]]"#),
        (MAP, r#"["set",[]]"#),
        (MAP, r#"["map",[["a",1]]]"#),
        (MAP, r#"["map",[[1,"a"]]]"#),
        (REFS, r#"["set",["a","b"]]"#),
        (REFS, r#"["named-uuid","a"]"#),
    ] {
        assert!(admit(&kind(text), value).is_err(), "{text} {value}");
    }
}

#[test]
fn an_integer_in_a_real_column_is_a_real() {
    let real = admit(&kind("\"real\""), "1").unwrap();
    assert_eq!(real, Datum::from(Atom::Real(Real::new(1.0).unwrap())));
}

#[test]
fn a_type_that_no_value_fits_is_refused() {
    for (text, bounds) in [
        (r#"{"key":"integer","max":0}"#, "min 1 and max Bounded(0)"),
        (
            r#"{"key":"integer","min":2,"max":3}"#,
            "min 2 and max Bounded(3)",
        ),
    ] {
        let error = serde_json::from_str::<ColumnType>(text)
            .unwrap_err()
            .to_string();
        assert!(error.contains(bounds), "{error}");
    }
}

#[test]
fn integers_among_reals_are_sorted_as_reals() {
    let reals = kind(r#"{"key":"real","min":0,"max":"unlimited"}"#);
    let datum = |text: &str| serde_json::from_str::<Datum>(text).unwrap();
    assert_eq!(
        reals.admit(datum(r#"["set",[2,0.5]]"#)).unwrap(),
        datum(r#"["set",[0.5,2.0]]"#)
    );
    assert_eq!(
        reals.admit(datum(r#"["set",[1,1.0]]"#)),
        Err(TypeError::Repeated)
    );
    let map = kind(r#"{"key":"real","value":"real","min":0,"max":"unlimited"}"#);
    assert_eq!(
        map.admit(datum(r#"["map",[[2,1],[0.5,1]]]"#)).unwrap(),
        datum(r#"["map",[[0.5,1.0],[2.0,1.0]]]"#)
    );
}
