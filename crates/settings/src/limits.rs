//! `[limits]`, and times.
//! In: a table. Out: limits in their ranges, or the error of the first that is out of it.
//! Invariant: what is allowed is named in the error. Not here: what the limits do.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::reader::Reader;
use crate::{Limits, SettingsError};

/// `[limits]`.
pub(crate) fn limits(r: &mut Reader<'_>) -> Result<Limits, SettingsError> {
    let section = "limits";
    Ok(Limits {
        max_imported_routes: number(r, (section, "max-imported-routes"), 20_000, 1..=u32::MAX)?,
        stale_time: seconds(r, (section, "stale-time"), 120, 0..=86_400)?,
        mass_withdraw_share: number(r, (section, "mass-withdraw-share"), 50, 0..=100)?,
        mass_withdraw_routes: number(r, (section, "mass-withdraw-routes"), 10, 1..=u32::MAX)?,
        mass_withdraw_window: seconds(r, (section, "mass-withdraw-window"), 2, 1..=60)?,
        mass_withdraw_hold: seconds(r, (section, "mass-withdraw-hold"), 60, 1..=3600)?,
    })
}

/// Whole seconds in a range.
pub(crate) fn seconds(
    r: &mut Reader<'_>,
    at: (&'static str, &'static str),
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<Duration, SettingsError> {
    number(r, at, default, range).map(Duration::from_secs)
}

/// A whole number in a range; `at` is section and key.
pub(crate) fn number<T>(
    r: &mut Reader<'_>,
    (section, key): (&'static str, &'static str),
    default: T,
    range: RangeInclusive<T>,
) -> Result<T, SettingsError>
where
    T: FromStr<Err: Display> + PartialOrd + Display,
{
    let allowed = format!("a whole number from {} to {}", range.start(), range.end());
    let value = r.value(section, key, &allowed)?.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    let why = format!("out of range; allowed: {allowed}");
    Err(r.wrong(section, key, &value.to_string(), &why))
}
