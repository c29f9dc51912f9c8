//! Row identities: 128 bits, written as 36 characters.
//!
//! In: text of RFC 4122's form, or bytes a caller chose. Out: the same, lower case.
//! Invariant: every value prints to a text that parses back to it.
//! Not here: a source of randomness; the client has one.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The identity of a row (`_uuid`, RFC 7047 section 3.1 `<uuid>`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// The text is not 36 characters of hexadecimal digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a uuid")]
pub struct UuidError(Box<str>);

impl Uuid {
    /// The uuid made of these bytes, most significant first.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A version 4 uuid (RFC 4122 section 4.4) from sixteen bytes of the caller's, of which six bits are overwritten.
    ///
    /// The bytes may be random, or a hash of the row's identity where the same thing shall always get the same uuid.
    #[must_use]
    pub const fn version4(bytes: [u8; 16]) -> Self {
        let value = u128::from_be_bytes(bytes);
        let version = (value & !(0xf << 76)) | (0x4 << 76);
        let variant = (version & !(0x3 << 62)) | (0x2 << 62);
        Self(variant.to_be_bytes())
    }

    /// The bytes, most significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = u128::from_be_bytes(self.0);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            value >> 96,
            (value >> 80) & 0xffff,
            (value >> 64) & 0xffff,
            (value >> 48) & 0xffff,
            value & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        decode(text).ok_or_else(|| UuidError(text.into()))
    }
}

fn decode(text: &str) -> Option<Uuid> {
    if text.len() != 36 {
        return None;
    }
    let mut value = 0_u128;
    for (at, byte) in text.bytes().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
        } else {
            value = (value << 4) | u128::from(char::from(byte).to_digit(16)?);
        }
    }
    Some(Uuid(value.to_be_bytes()))
}

/// A uuid written as a plain JSON string, as in the keys of table updates; read without an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UuidText(pub(crate) Uuid);

impl<'de> Deserialize<'de> for UuidText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = UuidText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a uuid")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UuidText, E> {
                text.parse().map(UuidText).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests;
