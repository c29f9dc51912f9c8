//! Whether the cluster has the custom resources that a daemon reads and writes, with the fields that it writes.
//! In: the API server's OpenAPI documents (v3, one for each group and version). Out: what is missing, by name.
//! Invariant: what cannot be asked is not missing. Not here: what a daemon does without.

use kube::Client;
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

/// Asks for everything that is needed and logs what is missing, a line each. Returns how many are missing.
pub async fn probe(client: Client, needs: &'static [Need]) -> usize {
    let mut count = 0;
    for need in needs {
        let asked =
            http::Request::get(format!("/openapi/v3/apis/{}", need.version)).body(Vec::new());
        let Ok(request) = asked else {
            continue;
        };
        let missing = match client.request::<Value>(request).await {
            Ok(document) => missing(&document, need),
            Err(kube::Error::Api(status)) if status.code == 404 => vec![whole(need)],
            Err(error) => {
                let error = telemetry::Chain(&error).to_string();
                tracing::warn!(
                    kind = need.kind,
                    error,
                    "cannot ask for the installed fields of this kind"
                );
                continue;
            }
        };
        for what in &missing {
            tracing::warn!("the cluster's custom resource definitions lack {what}");
        }
        count += missing.len();
    }
    count
}

/// What an OpenAPI document lacks of a need: the kind, or fields.
#[must_use]
pub fn missing(document: &Value, need: &Need) -> Vec<String> {
    let Some(schema) = schema(document, need) else {
        return vec![whole(need)];
    };
    let lacking = need.fields.iter().filter(|field| !has(schema, field));
    lacking
        .map(|field| format!("field {field} of {} {}", need.version, need.kind))
        .collect()
}

fn whole(need: &Need) -> String {
    format!("{} {}", need.version, need.kind)
}

/// Schemas carry the kinds they are of.
fn schema<'a>(document: &'a Value, need: &Need) -> Option<&'a Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    schemas.values().find(|schema| {
        let kinds = schema.get("x-kubernetes-group-version-kind");
        let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
        kinds.any(|of| {
            let text = |key| of.get(key).and_then(Value::as_str).unwrap_or_default();
            text("kind") == need.kind
                && need.version == format!("{}/{}", text("group"), text("version"))
        })
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
            missing(&document, &all),
            [
                "field spec.bgp.routers.neighbors.connectTime of frrk8s.metallb.io/v1beta1 FRRConfiguration"
            ]
        );
        assert_eq!(
            missing(&document, &need("FRRNodeState", &[])),
            ["frrk8s.metallb.io/v1beta1 FRRNodeState"]
        );
        assert_eq!(missing(&json!({}), &all).len(), 1);
    }
}
