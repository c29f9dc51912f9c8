//! Whether the cluster has the custom resources that a daemon reads and writes, with the fields that it writes.
//! In: the API server's OpenAPI documents (v3, one for each group and version). Out: what is missing, by name.
//! Invariant: what cannot be asked is not missing. Not here: what a daemon does without.

pub mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use reconcile::Backoff;
use serde_json::Value;

/// A custom resource that is needed.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Group and version, for example `k8s.ovn.org/v1`.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Paths of fields, with dots; lists count as their members: `spec.bgp.routers.neighbors.connectTime`.
    pub fields: &'static [&'static str],
}

/// A document is not larger than this, bytes; frr-k8s's has 70,000.
const LARGEST: usize = 8 << 20;
/// An answer that takes longer is none.
const DEADLINE: Duration = Duration::from_secs(10);
/// From a question without an answer to the next; grows to the second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Asks for everything that is needed until each question is answered, and logs what is missing, a line each. Returns how
/// many are missing.
pub async fn probe(client: Client, needs: &'static [Need]) -> usize {
    let mut count = 0;
    for need in needs {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1).with_jitter();
        let mut reported = false;
        let missing = loop {
            match ask(&client, need).await {
                Ok(missing) => break missing,
                Err(error) if !reported => {
                    tracing::warn!(
                        kind = need.kind,
                        error,
                        "cannot ask for the installed fields of this kind, trying again"
                    );
                    reported = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.pause()).await;
        };
        for what in &missing {
            tracing::warn!("the cluster's custom resource definitions lack {what}");
        }
        count += missing.len();
    }
    count
}

/// What is missing of what any daemon needs, each once; or why that is not known.
///
/// # Errors
/// When the API server does not answer, or not as expected.
pub async fn lacking(client: &Client) -> Result<Vec<String>, String> {
    let mut documents = BTreeMap::new();
    let mut all = Vec::new();
    let tables = [needs::CLUSTER_MANAGER, needs::NODE_AGENT, needs::FRR_AGENT];
    for need in tables.into_iter().flatten() {
        if !documents.contains_key(need.version) {
            let document = document(client, need.version);
            let document = tokio::time::timeout(DEADLINE, document).await;
            let document = document.map_err(|_| "no answer".to_owned())??;
            documents.insert(need.version, document);
        }
        let known = documents.get(need.version).and_then(Option::as_ref);
        all.extend(of_version(known, need)?);
    }
    let mut seen = BTreeSet::new();
    all.retain(|what| seen.insert(what.clone()));
    Ok(all)
}

/// What is missing, or why that is not known.
async fn ask(client: &Client, need: &Need) -> Result<Vec<String>, String> {
    of_version(document(client, need.version).await?.as_ref(), need)
}

/// The document of a group and version; none where the API server has nothing of it.
async fn document(client: &Client, version: &str) -> Result<Option<Value>, String> {
    let request = http::Request::get(format!("/openapi/v3/apis/{version}")).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(text) if text.len() > LARGEST => Err(format!("an answer of {} bytes", text.len())),
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(telemetry::Chain(&error).to_string()),
    }
}

fn of_version(document: Option<&Value>, need: &Need) -> Result<Vec<String>, String> {
    let Some(document) = document else {
        return Ok(vec![whole(need)]);
    };
    missing(document, need).ok_or_else(|| "the answer is no OpenAPI document".to_owned())
}

/// What an OpenAPI document lacks of a need: the kind, or fields; `None`: it is no such document.
#[must_use]
pub fn missing(document: &Value, need: &Need) -> Option<Vec<String>> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let Some(schema) = schemas.values().find(|schema| is_of(schema, need)) else {
        return Some(vec![whole(need)]);
    };
    let lacking = need.fields.iter().filter(|field| !has(schema, field));
    let named = lacking.map(|field| format!("field {field} of {} {}", need.version, need.kind));
    Some(named.collect())
}

fn whole(need: &Need) -> String {
    format!("{} {}", need.version, need.kind)
}

/// Schemas carry the kinds they are of.
fn is_of(schema: &Value, need: &Need) -> bool {
    let kinds = schema.get("x-kubernetes-group-version-kind");
    let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
    kinds.any(|of| {
        let text = |key| of.get(key).and_then(Value::as_str).unwrap_or_default();
        text("kind") == need.kind
            && need.version == format!("{}/{}", text("group"), text("version"))
    })
}

fn has(schema: &Value, field: &str) -> bool {
    let mut at = schema;
    for name in field.split('.') {
        // A list counts as its members, a field that keeps everything has whatever is asked for.
        while let Some(items) = at.get("items") {
            at = items;
        }
        if at.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            return true;
        }
        match at.get("properties").and_then(|all| all.get(name)) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn need(kind: &'static str, fields: &'static [&'static str]) -> Need {
        Need {
            version: "frrk8s.metallb.io/v1beta1",
            kind,
            fields,
        }
    }

    #[test]
    fn a_kind_or_field_that_is_not_installed_is_named() {
        let document = json!({"components": {"schemas": {
            "io.metallb.frrk8s.v1beta1.FRRConfiguration": {
                "x-kubernetes-group-version-kind":
                    [{"group": "frrk8s.metallb.io", "version": "v1beta1", "kind": "FRRConfiguration"}],
                "properties": {"spec": {"properties": {
                    "raw": {"x-kubernetes-preserve-unknown-fields": true},
                    "bgp": {"properties": {"routers": {"items": {"properties": {
                        "neighbors": {"items": {"properties": {"asn": {}}}}}}}}}}}}}}}});
        let all = need(
            "FRRConfiguration",
            &[
                "spec.bgp.routers.neighbors.asn",
                "spec.bgp.routers.neighbors.connectTime",
                "spec.raw.rawConfig",
            ],
        );
        assert_eq!(
            missing(&document, &all).unwrap(),
            [
                "field spec.bgp.routers.neighbors.connectTime of frrk8s.metallb.io/v1beta1 FRRConfiguration"
            ]
        );
        assert_eq!(
            missing(&document, &need("FRRNodeState", &[])).unwrap(),
            ["frrk8s.metallb.io/v1beta1 FRRNodeState"]
        );
        assert_eq!(missing(&json!({}), &all), None);
        assert_eq!(missing(&json!({"kind": "Status"}), &all), None);
    }
}
