//! Arrays that are values: `["uuid", ...]`, `["named-uuid", ...]`, `["set", ...]`, `["map", ...]`.
//! In: the array's first element, and what follows it. Out: what it is; an error where the array goes on too long.
//! Source: RFC 7047 section 5.1. Not here: the values.

use serde::de::{Error, IgnoredAny, SeqAccess};

/// The first element of an array that is a value.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tag {
    Uuid,
    NamedUuid,
    Set,
    Map,
}

/// Errs where the array goes on.
pub(super) fn end_of<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<(), A::Error> {
    match seq.next_element::<IgnoredAny>()? {
        None => Ok(()),
        Some(IgnoredAny) => Err(A::Error::custom("a third element in a tagged array")),
    }
}
