//! Autonomous system numbers.
//! In: numbers from objects and files. Out: a number that a BGP speaker may use.
//! Invariant: an `Asn` is none of the reserved numbers.
//! Not here: who has which number.

use std::fmt;

/// A usable AS number (RFC 6793: 32 bits; RFC 7607, 6793, 7300: 0, 23456, 65535 and 4294967295 are reserved).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asn(u32);

/// Why a number is no usable AS number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AsnError {
    /// One of the reserved numbers.
    #[error(
        "AS number {number} is reserved{why}; allowed is 1 to 4294967294 without 23456 and 65535"
    )]
    Reserved {
        /// The number.
        number: u32,
        /// For AS_TRANS what it is for, else empty.
        why: &'static str,
    },
    /// Not a 32-bit number.
    #[error(
        "AS number {number} is out of range; allowed is 1 to 4294967294 without 23456 and 65535"
    )]
    Range {
        /// The number.
        number: i64,
    },
}

impl Asn {
    /// What a managed fabric has where nothing is said (design document of the no-overlay mode, `[bgp-managed] as-number`).
    pub const DEFAULT: Self = Self(64_512);

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<i64> for Asn {
    type Error = AsnError;

    fn try_from(number: i64) -> Result<Self, Self::Error> {
        let n = u32::try_from(number).map_err(|_| AsnError::Range { number })?;
        match n {
            0 | 65_535 | u32::MAX => Err(AsnError::Reserved { number: n, why: "" }),
            23_456 => Err(AsnError::Reserved {
                number: n,
                why: " (AS_TRANS for 16-bit to 32-bit AS translation)",
            }),
            _ => Ok(Self(n)),
        }
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
