//! Values, rows, types and replies: what decodes is canonical.
//!
//! In: a text, or two with a line break between them: a column's type and a value. Out: nothing.
//! Invariant: what decodes encodes to a text that decodes to the same; what a column admits it admits again, unchanged.
//! Not here: table updates; see `replica`.

use std::fmt::Debug;

use ovsdb::notation::{OpKind, decode_reply};
use ovsdb::{Atom, ColumnType, Datum, Row, Schema, TransactError, Uuid};
use serde_json::{from_str, to_string};

/// Decodes the text as everything it may be, and there and back again.
///
/// # Panics
/// Where a value changes on the way.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        // The bytes of a frame need not be text.
        assert!(serde_json::from_slice::<Row>(bytes).is_err());
        return;
    };
    there_and_back::<Atom>(text);
    there_and_back::<Datum>(text);
    there_and_back::<Row>(text);
    if let Ok(uuid) = text.parse::<Uuid>() {
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
    }
    if let Ok(schema) = from_str::<Schema>(text) {
        for kind in schema
            .tables
            .values()
            .flat_map(|table| table.columns.values())
        {
            admits_its_default(kind);
        }
    }
    reply(text);
    if let Some((kind, value)) = text.split_once('\n')
        && let (Ok(kind), Ok(value)) = (from_str::<ColumnType>(kind), from_str::<Datum>(value))
    {
        admits_its_default(&kind);
        if let Ok(admitted) = kind.admit(value) {
            assert_eq!(
                kind.admit(admitted.clone()).as_ref(),
                Ok(&admitted),
                "admitted once"
            );
            let again: Datum = from_str(&to_string(&admitted).unwrap()).unwrap();
            assert_eq!(kind.admit(again), Ok(admitted), "admitted after encoding");
        }
    }
}

fn there_and_back<T>(text: &str)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    if let Ok(value) = from_str::<T>(text) {
        let encoded = to_string(&value).unwrap();
        let again: T = from_str(&encoded).unwrap_or_else(|error| panic!("{encoded}: {error}"));
        assert_eq!(value, again, "by way of {encoded}");
        assert_eq!(
            encoded,
            to_string(&again).unwrap(),
            "the text is canonical too"
        );
    }
}

/// The least a column of this type may hold is 0 or 1, so its default fits.
fn admits_its_default(kind: &ColumnType) {
    if kind.min <= 1 && kind.value.is_none() {
        let value = kind.default_value();
        assert_eq!(kind.admit(value.clone()), Ok(value), "{kind:?}");
    }
}

/// Success has exactly one result an operation.
fn reply(text: &str) {
    let every = [
        OpKind::Insert,
        OpKind::Select,
        OpKind::Update,
        OpKind::Mutate,
        OpKind::Delete,
        OpKind::Other,
    ];
    for count in 0..=every.len() {
        for kinds in [&every[..count], &every[every.len() - count..]] {
            match decode_reply(text, kinds) {
                Ok(reply) => {
                    assert_eq!(reply.results.len(), kinds.len());
                    let _ = reply.check_counts();
                }
                Err(TransactError::Operation { index, .. }) => assert!(index < kinds.len()),
                Err(_) => {}
            }
        }
    }
}
