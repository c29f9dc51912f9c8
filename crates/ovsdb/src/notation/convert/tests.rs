//! Reading values as Rust types refuses what does not fit.

use super::*;

#[test]
fn scalars_and_containers_read_back() {
    assert_eq!(i64::from_datum(&Datum::from(7_i64)), Ok(7));
    assert_eq!(<&str>::from_datum(&Datum::from("a")), Ok("a"));
    assert_eq!(
        Option::<bool>::from_datum(&Datum::from(Some(true))),
        Ok(Some(true))
    );
    assert_eq!(Option::<bool>::from_datum(&Datum::empty_set()), Ok(None));
    assert_eq!(
        Vec::<&str>::from_datum(&Datum::from(vec!["b", "a", "b"])),
        Ok(vec!["a", "b"])
    );
    assert_eq!(Vec::<i64>::from_datum(&Datum::from(5_i64)), Ok(vec![5]));
    let map = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    assert_eq!(
        BTreeMap::<String, String>::from_datum(&Datum::from(map.clone())),
        Ok(map)
    );
}

#[test]
fn an_impossible_value_is_an_error_and_never_empty() {
    let kind = |expected, found| DatumError::Kind { expected, found };
    assert_eq!(
        i64::from_datum(&Datum::from("7")),
        Err(kind("integer", "string"))
    );
    assert_eq!(
        String::from_datum(&Datum::empty_set()),
        Err(kind("string", "empty set"))
    );
    assert_eq!(
        Option::<i64>::from_datum(&Datum::empty_map()),
        Err(kind("optional value", "map"))
    );
    assert_eq!(
        Vec::<i64>::from_datum(&Datum::empty_map()),
        Err(kind("set", "map"))
    );
    assert_eq!(
        Vec::<i64>::from_datum(&Datum::set(["x"])),
        Err(kind("integer", "string"))
    );
    assert_eq!(
        BTreeMap::<String, String>::from_datum(&Datum::empty_set()),
        Err(kind("map", "empty set"))
    );
    let two = Option::<i64>::from_datum(&Datum::set([1_i64, 2]));
    assert_eq!(
        two,
        Err(DatumError::Size {
            expected: "at most one",
            found: 2
        })
    );
}
