//! The password that a Secret holds for a BGP session.
//! In: a Secret. Out: its password, or why it has none, as the end of a sentence that begins with the Secret's name.
//! Invariant: the same Secrets are good as with frr-k8s (type basic-auth, key password), but for a password that FRR cannot use.
//! Not here: reading Secrets; the password's way into frr.conf (`frr`).

use k8s_openapi::api::core::v1::Secret;
use model::frr::LONGEST_PASSWORD;

const TYPE: &str = "kubernetes.io/basic-auth";
const KEY: &str = "password";

/// The password of a Secret; `stringData`, as a file may have it, wins over `data`, as on the API server.
///
/// # Errors
/// Why it has none: another type, no such key, empty, not UTF-8, longer than FRR takes, a control character: one that ends
/// the line of frr.conf would make what follows a line of its own.
pub fn decode_secret(secret: &Secret) -> Result<String, String> {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if kind != TYPE {
        return Err(format!("is of type {kind}; only {TYPE} is allowed"));
    }
    let plain = secret.string_data.as_ref().and_then(|d| d.get(KEY));
    let coded = secret.data.as_ref().and_then(|d| d.get(KEY));
    let text = match (plain, coded) {
        (Some(text), _) => text.clone(),
        (None, Some(bytes)) => String::from_utf8(bytes.0.clone())
            .map_err(|_| format!("has a key {KEY} that is not UTF-8"))?,
        (None, None) => return Err(format!("has no key {KEY}")),
    };
    if text.is_empty() {
        return Err(format!("has an empty key {KEY}"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!(
            "has a key {KEY} with a control character (a line break, a tab, ...); none is allowed"
        ));
    }
    if text.len() > LONGEST_PASSWORD {
        return Err(format!(
            "has a key {KEY} of {} bytes; FRR takes at most {LONGEST_PASSWORD}",
            text.len()
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basic_auth_secret_has_a_password_and_any_other_says_why_not() {
        let rows = [
            (
                r#"{"type":"kubernetes.io/basic-auth","data":{"password":"czNjcmV0"}}"#,
                Ok("s3cret"),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","stringData":{"password":"plain"},"data":{"password":"czNjcmV0"}}"#,
                Ok("plain"),
            ),
            (
                r#"{"data":{"password":"czNjcmV0"}}"#,
                Err("is of type Opaque; only kubernetes.io/basic-auth is allowed"),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","data":{"username":"czNjcmV0"}}"#,
                Err("has no key password"),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","stringData":{"password":""}}"#,
                Err("has an empty key password"),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","data":{"password":"/w=="}}"#,
                Err("has a key password that is not UTF-8"),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","stringData":{"password":"x\n neighbor 10.0.0.66 remote-as 1"}}"#,
                Err(
                    "has a key password with a control character (a line break, a tab, ...); none is allowed",
                ),
            ),
            (
                r#"{"type":"kubernetes.io/basic-auth","data":{"password":"cwo="}}"#,
                Err(
                    "has a key password with a control character (a line break, a tab, ...); none is allowed",
                ),
            ),
        ];
        for (json, wanted) in rows {
            let secret: Secret = serde_json::from_str(json).unwrap();
            let wanted = wanted.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(decode_secret(&secret), wanted, "{json}");
        }
    }

    #[test]
    fn a_password_has_at_most_as_many_bytes_as_frr_takes() {
        let of = |password: &str| {
            decode_secret(&Secret {
                type_: Some(TYPE.to_owned()),
                string_data: Some([(KEY.to_owned(), password.to_owned())].into()),
                ..Secret::default()
            })
        };
        assert!(of(&"x".repeat(80)).is_ok());
        assert!(of(&"\u{e9}".repeat(40)).is_ok());
        for (password, bytes) in [("x".repeat(81), 81), ("\u{e9}".repeat(41), 82)] {
            let wanted = format!("has a key password of {bytes} bytes; FRR takes at most 80");
            assert_eq!(of(&password), Err(wanted));
        }
    }
}
