//! Whether the cluster has the custom resources that a daemon reads and writes, with the fields that it writes.
//! In: the API server's OpenAPI documents (v3, one for each group and version). Out: what is missing, by name.
//! Invariant: what cannot be asked is not missing. Not here: what a daemon does without.

pub mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use reconcile::Backoff;
use serde_json::Value;
use tokio::task::JoinSet;

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

/// What is known of all that any daemon needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// What is missing, each once.
    pub missing: Vec<String>,
    /// Of which group and version that is not known, and why.
    pub unknown: Vec<(&'static str, String)>,
}

/// A document, none where the API server has nothing of its group and version; or why that is not known.
type Answer = Result<Option<Value>, String>;

const TABLES: [&[Need]; 3] = [needs::CLUSTER_MANAGER, needs::NODE_AGENT, needs::FRR_AGENT];

/// What is missing of what any daemon needs. Documents are asked for at the same time.
pub async fn lacking(client: &Client) -> Lacking {
    let needs = TABLES.into_iter().flatten();
    let versions: BTreeSet<&'static str> = needs.map(|need| need.version).collect();
    let mut calls = JoinSet::new();
    for version in versions {
        let client = client.clone();
        calls.spawn(async move {
            let answer = tokio::time::timeout(DEADLINE, document(&client, version)).await;
            let answer = answer.unwrap_or_else(|_| Err("no answer".to_owned()));
            (version, answer)
        });
    }
    lacking_of(&calls.join_all().await.into_iter().collect())
}

fn lacking_of(answers: &BTreeMap<&'static str, Answer>) -> Lacking {
    let mut all = Lacking::default();
    let mut unknown = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for need in TABLES.into_iter().flatten() {
        let known = match answers.get(need.version) {
            Some(Ok(document)) => of_version(document.as_ref(), need),
            Some(Err(error)) => Err(error.clone()),
            None => Err("no answer".to_owned()),
        };
        match known {
            Ok(missing) => all
                .missing
                .extend(missing.into_iter().filter(|what| seen.insert(what.clone()))),
            Err(error) => drop(unknown.insert(need.version, error)),
        }
    }
    all.unknown = unknown.into_iter().collect();
    all
}

/// What is missing, or why that is not known.
async fn ask(client: &Client, need: &Need) -> Result<Vec<String>, String> {
    of_version(document(client, need.version).await?.as_ref(), need)
}

/// The document of a group and version; none where the API server has nothing of it.
async fn document(client: &Client, version: &str) -> Answer {
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
    #[test]
    fn a_document_that_is_not_known_hides_nothing_of_the_others() {
        let faulty = || Err("no answer".to_owned());
        let all = lacking_of(&BTreeMap::from([
            ("frrk8s.metallb.io/v1beta1", faulty()),
            ("k8s.cni.cncf.io/v1", Ok(None)),
            ("k8s.ovn.org/v1", Ok(Some(json!({"kind": "Status"})))),
            ("noverlay.io/v1alpha1", Ok(None)),
        ]));
        assert_eq!(
            all.missing,
            [
                "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition",
                "noverlay.io/v1alpha1 NodeRoutes"
            ],
            "each once"
        );
        let unknown: Vec<&str> = all.unknown.iter().map(|(version, _)| *version).collect();
        assert_eq!(unknown, ["frrk8s.metallb.io/v1beta1", "k8s.ovn.org/v1"]);
    }
}
