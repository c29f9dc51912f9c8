//! JSON forms of data.

use proptest::prelude::*;

use super::*;
use crate::notation::{Real, Uuid, UuidName};

fn decode(text: &str) -> Result<Datum, serde_json::Error> {
    serde_json::from_str(text)
}

fn encode(datum: &Datum) -> String {
    serde_json::to_string(datum).unwrap()
}

#[test]
fn the_wire_forms_are_those_of_the_rfc() {
    let uuid = Uuid::from_bytes([0x11; 16]);
    for (datum, text) in [
        (Datum::from(-3_i64), "-3"),
        (Datum::from(true), "true"),
        (Datum::from("a\"é"), "\"a\\\"é\""),
        (Datum::from(Atom::Real(Real::new(1.5).unwrap())), "1.5"),
        (
            Datum::from(uuid),
            r#"["uuid","11111111-1111-1111-1111-111111111111"]"#,
        ),
        (
            Datum::from(UuidName::new("row1").unwrap()),
            r#"["named-uuid","row1"]"#,
        ),
        (Datum::empty_set(), r#"["set",[]]"#),
        (Datum::set(["only"]), "\"only\""),
        (Datum::set(["b", "a"]), r#"["set",["a","b"]]"#),
        (Datum::empty_map(), r#"["map",[]]"#),
        (
            Datum::map([("k", "v"), ("a", "b")]),
            r#"["map",[["a","b"],["k","v"]]]"#,
        ),
    ] {
        assert_eq!(encode(&datum), text);
        assert_eq!(decode(text).unwrap(), datum, "{text}");
    }
}

#[test]
fn a_set_of_one_is_the_bare_atom() {
    assert_eq!(
        decode(r#"["set",["a"]]"#).unwrap(),
        decode("\"a\"").unwrap()
    );
    assert_eq!(
        decode(r#"["set",[3,1,2]]"#).unwrap(),
        Datum::set([1_i64, 2, 3])
    );
}

#[test]
fn what_is_no_value_is_refused() {
    for text in [
        "null",
        "{}",
        "[]",
        r#"["set"]"#,
        r#"["set",1]"#,
        r#"["set",[],1]"#,
        r#"["set",["a","a"]]"#,
        r#"["set",[["set",[]]]]"#,
        r#"["map",[["a"]]]"#,
        r#"["map",[["a","b"],["a","c"]]]"#,
        r#"["map",[["a","b","c"]]]"#,
        r#"["uuid","x"]"#,
        r#"["uuid"]"#,
        r#"["named-uuid","a-b"]"#,
        r#"["other",[]]"#,
        r#"[1,2]"#,
        "9223372036854775808",
        "1e999",
    ] {
        assert!(decode(text).is_err(), "{text}");
    }
}

#[test]
fn a_datum_is_small() {
    assert_eq!(size_of::<Datum>(), 24);
}

#[test]
fn values_are_found_by_key() {
    let map = Datum::map([("a", "1"), ("b", "2")]);
    assert_eq!(map.value_of(&"b".into()), Some(&"2".into()));
    assert_eq!(map.value_of(&"c".into()), None);
    assert_eq!(Datum::empty_set().value_of(&"c".into()), None);
}

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        any::<i64>().prop_map(Atom::Integer),
        any::<f64>().prop_filter_map("finite", |value| Real::new(value).map(Atom::Real)),
        any::<bool>().prop_map(Atom::Boolean),
        any::<String>().prop_map(Atom::from),
        any::<[u8; 16]>().prop_map(|bytes| Atom::Uuid(Uuid::from_bytes(bytes))),
        "[A-Za-z_][A-Za-z0-9_]{0,8}"
            .prop_map(|name| Atom::NamedUuid(UuidName::new(&name).unwrap())),
    ]
}

proptest! {
    #[test]
    fn encoding_and_decoding_is_the_identity(
        atoms in proptest::collection::vec(atom(), 0..6),
        pairs in proptest::collection::vec((atom(), atom()), 0..6),
        one in atom(),
    ) {
        for datum in [Datum::set(atoms), Datum::map(pairs), Datum::from(one)] {
            prop_assert_eq!(decode(&encode(&datum)).unwrap(), datum);
        }
    }

    #[test]
    fn no_text_makes_the_decoder_panic(text in "[\\[\\]\",setmapuid0-9{}:. -]{0,40}") {
        let _ = decode(&text);
    }
}
