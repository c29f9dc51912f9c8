//! The two hashes of names: FNV-1a as OVN-Kubernetes uses it, and a short one for object names of ours.
//! In: an identity as text. Out: a stable name part. Invariant: never changes, stored names depend on it.
//! Not here: cryptography.

/// 64-bit FNV-1a.
#[must_use]
pub fn fnv1a64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Name of an Address_Set or Port_Group row from its primary id: `a` and the decimal FNV-1a hash.
#[must_use]
pub fn row_name(primary_id: &str) -> String {
    format!("a{}", fnv1a64(primary_id))
}

/// Ten characters (a to z without vowels, and digits) that stand for an identity in an object's name.
#[must_use]
pub fn short(identity: &str) -> String {
    const LETTERS: &[u8; 30] = b"bcdfghjklmnpqrstvwxz0123456789";
    let mut rest = fnv1a64(identity);
    let mut out = String::with_capacity(10);
    for _ in 0..10 {
        let index = usize::try_from(rest % 30).unwrap_or(0);
        out.extend(LETTERS.get(index).copied().map(char::from));
        rest /= 30;
    }
    out
}

#[cfg(test)]
mod tests;
