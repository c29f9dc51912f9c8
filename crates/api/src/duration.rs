//! Durations as Kubernetes objects spell them (`1m30s`, `500ms`).
//! In: text. Out: whole seconds. Invariant: what cannot be read is an error with the text.
//! Not here: which durations a field allows.

/// Reads a duration into whole seconds (fractions are cut off, as frr-k8s does).
///
/// # Errors
/// A sentence with the text and the form that is allowed.
pub fn seconds(text: &str) -> Result<u64, String> {
    nanoseconds(text)
        .and_then(|n| u64::try_from(n / 1_000_000_000).ok())
        .ok_or_else(|| format!("{text:?} is not a duration such as 9s or 1m30s"))
}

fn nanoseconds(text: &str) -> Option<u128> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, tail) = after.split_at(unit_end);
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, scale)?)?;
        rest = tail;
    }
    Some(total)
}

fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut total = whole.checked_mul(scale)?;
    let mut unit = scale;
    for digit in fraction.chars() {
        unit /= 10;
        total = total.checked_add(u128::from(digit.to_digit(10)?).checked_mul(unit)?)?;
    }
    Some(total)
}

/// Writes whole seconds.
#[must_use]
pub fn text(seconds: u64) -> String {
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        for (text, n) in [
            ("9s", 9),
            ("1m30s", 90),
            ("1h", 3600),
            ("500ms", 0),
            ("1.5m", 90),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(seconds(text), Ok(n), "{text}");
        }
        for wrong in ["", "9", "s", "-3s", "3 s", "1x", "1m30"] {
            assert!(seconds(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
