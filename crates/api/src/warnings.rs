//! What decoding of an FRRConfiguration normalizes away, though it matters to somebody else who reads the object.
//! In: the object as its file has it. Out: problems that stop nothing.
//! Invariant: an object without problems here means the same to frr-k8s, to the API server and to us.
//! Not here: what is wrong (`decode_frr`), what FRR makes of it (`frr::lint`).

use model::{Prefix, Problem};
use serde_json::Value;

use crate::frr_configuration::FRRConfiguration;

/// Fields that the API server would drop without a word, and prefixes that frr-k8s compares by their text.
#[must_use]
pub fn warnings(subject: &str, given: &Value, read: &FRRConfiguration) -> Vec<Problem> {
    let mut out = Vec::new();
    let kept = serde_json::to_value(&read.spec).unwrap_or_default();
    if let Some(spec) = given.get("spec") {
        dropped(subject, "spec", spec, &kept, &mut out);
        prefixes(subject, "spec", spec, &mut out);
    }
    out.sort();
    out.dedup();
    out
}

/// Keys that are not there any more once the object was read.
fn dropped(subject: &str, path: &str, given: &Value, kept: &Value, out: &mut Vec<Problem>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given {
                let path = format!("{path}.{key}");
                match kept.get(key) {
                    Some(kept) => dropped(subject, &path, value, kept, out),
                    None if value.is_null() || is_default(key, value) => {}
                    None => out.push(Problem::new(
                        subject,
                        "UnknownField",
                        format!(
                            "{path}: there is no such field; the API server drops it without a word"
                        ),
                    )),
                }
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (at, (given, kept)) in given.iter().zip(kept).enumerate() {
                dropped(subject, &format!("{path}[{at}]"), given, kept, out);
            }
        }
        _ => {}
    }
}

/// Written defaults are left out when the object is written again.
fn is_default(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty() || key == "allowed" || key == "nodeSelector",
        Value::Array(list) => list.is_empty(),
        Value::String(text) => key == "mode" && text == "filtered",
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Prefixes with host bits, or in another spelling than the canonical one.
fn prefixes(subject: &str, path: &str, value: &Value, out: &mut Vec<Problem>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                prefixes(subject, &format!("{path}.{key}"), value, out);
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                prefixes(subject, &format!("{path}[{at}]"), value, out);
            }
        }
        Value::String(text) => {
            let field = path.rsplit('.').next().unwrap_or_default();
            if field == "prefix" || field.starts_with("prefixes[") {
                spelled(subject, path, text, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn spelled(subject: &str, path: &str, text: &str, out: &mut Vec<Problem>) {
    if let Ok(prefix) = text.parse::<Prefix>()
        && prefix.to_string() != text
    {
        out.push(Problem::new(
            subject,
            "PrefixSpelling",
            format!(
                "{path} is {text}: frr-k8s compares prefixes by their text, so that it never matches {prefix}; write {prefix} everywhere"
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(spec: &str) -> Vec<String> {
        let text = format!(
            r#"{{"apiVersion":"frrk8s.metallb.io/v1beta1","kind":"FRRConfiguration","metadata":{{"name":"c1"}},"spec":{spec}}}"#
        );
        let given: Value = serde_json::from_str(&text).unwrap();
        let read = serde_json::from_value(given.clone()).unwrap();
        warnings("c1", &given, &read)
            .iter()
            .map(|p| format!("{} {}", p.reason, p.message))
            .collect()
    }

    #[test]
    fn fields_that_are_dropped_and_prefixes_that_never_match_are_reported_with_their_path() {
        let rows = [
            (
                r#"{"bgp":{"routers":[{"asn":1,"neighbors":[{"address":"10.0.0.1","asn":1,"toRecieve":{"allowed":{"mode":"all"}}}]}]}}"#,
                Some("UnknownField spec.bgp.routers[0].neighbors[0].toRecieve: "),
            ),
            (r#"{"nodeselector":{}, "bgp":{"routers":[]}}"#, None),
            (
                r#"{"bgp":{"routers":[{"asn":1,"prefixes":["10.128.1.5/24"]}]}}"#,
                Some("PrefixSpelling spec.bgp.routers[0].prefixes[0] is 10.128.1.5/24: "),
            ),
            (
                r#"{"bgp":{"routers":[{"asn":1,"neighbors":[{"address":"10.0.0.1","asn":1,"toReceive":{"allowed":{"prefixes":[{"prefix":"FD00::/64"}]}}}]}]}}"#,
                Some(
                    "PrefixSpelling spec.bgp.routers[0].neighbors[0].toReceive.allowed.prefixes[0].prefix is FD00::/64: ",
                ),
            ),
            (
                r#"{"nodeSelector":{},"raw":{},"bgp":{"bfdProfiles":[{"name":"a","echoMode":false}],"routers":[{"asn":1,"vrf":"","prefixes":["10.128.1.0/24","fd00::/64"],"neighbors":[{"address":"10.0.0.1","asn":1,"disableMP":false,"dualStackAddressFamily":false,"addressFamilies":["unicast"],"toAdvertise":{"allowed":{"mode":"filtered","prefixes":["10.128.1.0/24"]}},"toReceive":{"allowed":{"mode":"filtered"}}}]}]}}"#,
                None,
            ),
        ];
        for (spec, wanted) in rows {
            let seen = found(spec);
            assert_eq!(
                seen.len(),
                usize::from(wanted.is_some()),
                "{spec}: {seen:?}"
            );
            if let Some(wanted) = wanted {
                assert!(seen[0].starts_with(wanted), "{seen:?}");
            }
        }
    }
}
