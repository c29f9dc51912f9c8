//! What the schemas take and refuse, on a real API server.
//! In: tables of objects (`tests/data/schema`); in `recorded` objects that OVN-Kubernetes' own schemas refuse.
//! Invariant: of an object that is refused every cause is compared, field and message; of one that is taken the whole spec.
//! Not here: examples of the design documents (`documents.rs`); what an object means for a cluster (`networks.rs`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod recorded;

use std::collections::BTreeSet;

use kube_tests::{ApiServer, tools, top};
use serde_json::{Value, json};

/// The tables and how many entries each has: one that is lost in an edit would not be missed otherwise.
const TABLES: [(&str, usize); 7] = [
    ("layer3", 97),
    ("layer2", 67),
    ("localnet", 41),
    ("transport", 46),
    ("evpn", 72),
    ("advertisements", 54),
    ("operator", 52),
];

/// A YAML file by its path from the checkout's top folder.
fn yaml(path: &str) -> Value {
    let text = std::fs::read_to_string(top().join(path)).unwrap();
    serde_saphyr::from_str(&text).expect("test data are YAML")
}

fn text(object: &Value, at: &str) -> String {
    let value = object.pointer(at).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    match value {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(text).collect(),
        Some(one) => vec![text(one)],
    }
}

/// Fields and what is said of each.
type Causes = BTreeSet<(String, String)>;

/// `refused` of an entry: what is said of a field, one text or a list of them.
fn refused(entry: &Value) -> Causes {
    let fields = entry.get("refused").and_then(Value::as_object);
    let pairs = fields.into_iter().flatten().flat_map(|(field, said)| {
        let texts = strings(Some(said)).into_iter();
        texts.map(move |text| (field.clone(), text))
    });
    pairs.collect()
}

/// The kind that an object is of.
#[derive(Clone, Copy)]
struct Subject {
    version: &'static str,
    kind: &'static str,
    /// Where its objects are in the API.
    path: &'static str,
    /// Whether a table's spec is `spec.network` only.
    network: bool,
}

const CUDN: Subject = Subject {
    version: "k8s.ovn.org/v1",
    kind: "ClusterUserDefinedNetwork",
    path: "/apis/k8s.ovn.org/v1/clusteruserdefinednetworks",
    network: true,
};
const CUDN_SPEC: Subject = Subject {
    network: false,
    ..CUDN
};
const UDN: Subject = Subject {
    kind: "UserDefinedNetwork",
    path: "/apis/k8s.ovn.org/v1/namespaces/default/userdefinednetworks",
    ..CUDN_SPEC
};
const RA: Subject = Subject {
    kind: "RouteAdvertisements",
    path: "/apis/k8s.ovn.org/v1/routeadvertisements",
    ..CUDN_SPEC
};
const EIP: Subject = Subject {
    kind: "EgressIP",
    path: "/apis/k8s.ovn.org/v1/egressips",
    ..CUDN_SPEC
};
const OPERATOR: Subject = Subject {
    version: "operator.openshift.io/v1",
    kind: "Network",
    path: "/apis/operator.openshift.io/v1/networks",
    network: false,
};

/// An entry's key, and the kinds that its spec is tried as.
const KINDS: [(&str, &[Subject]); 7] = [
    ("both", &[CUDN, UDN]),
    ("cudn", &[CUDN]),
    ("cudn-spec", &[CUDN_SPEC]),
    ("udn", &[UDN]),
    ("ra", &[RA]),
    ("eip", &[EIP]),
    ("network", &[OPERATOR]),
];

impl Subject {
    fn spec(&self, of: &Value) -> Value {
        if self.network {
            json!({"namespaceSelector": {}, "network": of})
        } else {
            of.clone()
        }
    }

    fn object(&self, name: &str, of: &Value) -> Value {
        json!({
            "apiVersion": self.version, "kind": self.kind,
            "metadata": {"name": name}, "spec": self.spec(of),
        })
    }
}

/// What is said of a field, without the field and its value, which some messages repeat.
fn words(field: &str, message: &str) -> String {
    let text = match message.strip_prefix("Invalid value: ") {
        Some(rest) => rest.split_once(": ").map_or(rest, |(_value, text)| text),
        None => message,
    };
    let repeated = format!("{field} in body ");
    text.strip_prefix(&repeated).unwrap_or(text).to_owned()
}

/// What the API server answers to an object: the stored one, or each cause of its refusal.
async fn send(
    client: &kube::Client,
    method: http::Method,
    url: String,
    object: &Value,
) -> Result<Value, Causes> {
    let body = serde_json::to_vec(object).unwrap();
    let request = http::Request::builder().method(method).uri(url);
    let request = request.header("Content-Type", "application/json");
    let answer = client.request(request.body(body).unwrap()).await;
    answer.map_err(|error| {
        let kube::Error::Api(status) = error else {
            panic!("{object}: {error}");
        };
        let causes = status.details.clone().map(|d| d.causes).unwrap_or_default();
        if causes.is_empty() {
            return Causes::from([(String::new(), status.message.clone())]);
        }
        // That rules were left out because of other causes is said without a field.
        let causes = causes.into_iter().filter(|c| c.field != "<nil>");
        let pair = |c: kube::core::response::StatusCause| {
            let words = words(&c.field, &c.message);
            (c.field, words)
        };
        causes.map(pair).collect()
    })
}

/// What the API server says of a change where there is one, otherwise of the object; of what it takes, the spec.
/// Strict: a field that the schema does not know would be dropped without a word.
async fn attempt(
    client: &kube::Client,
    subject: Subject,
    spec: &Value,
    to: Option<&Value>,
) -> Result<Value, Causes> {
    let path = subject.path;
    let strict = "fieldValidation=Strict";
    let object = subject.object("entry", spec);
    let spec_of = |object: Value| object.get("spec").cloned().unwrap_or_default();
    let Some(to) = to else {
        let url = format!("{path}?{strict}&dryRun=All");
        let said = send(client, http::Method::POST, url, &object).await;
        return said.map(spec_of);
    };
    let url = format!("{path}?{strict}");
    let before = send(client, http::Method::POST, url, &object).await;
    let before = before.unwrap_or_else(|e| panic!("{object}, before its change: {e:?}"));
    let mut after = subject.object("entry", to);
    let version = before.pointer("/metadata/resourceVersion");
    after["metadata"]["resourceVersion"] = version.cloned().unwrap();
    let url = format!("{path}/entry?{strict}&dryRun=All");
    let replaced = send(client, http::Method::PUT, url, &after).await;
    let url = format!("{path}/entry");
    let deleted = send(client, http::Method::DELETE, url, &json!({})).await;
    assert!(deleted.is_ok(), "{object} stays: {deleted:?}");
    replaced.map(spec_of)
}

/// How what was said differs from what the entry says, for each kind that it is tried as.
async fn differences(client: &kube::Client, entry: &Value) -> Vec<String> {
    let (key, subjects) = *KINDS
        .iter()
        .find(|(key, _)| entry.get(key).is_some())
        .unwrap_or_else(|| panic!("{entry} is of no kind"));
    let spec = entry.get(key).unwrap();
    let to = entry.get("to");
    let mut wrong = Vec::new();
    for subject in subjects {
        let mut refused = refused(entry);
        if key == "both" && !subject.network {
            let short = |(field, text): (String, String)| (field.replacen(".network", "", 1), text);
            refused = refused.into_iter().map(short).collect();
        }
        let said = attempt(client, *subject, spec, to).await;
        let wanted = if refused.is_empty() {
            Ok(subject.spec(to.unwrap_or(spec)))
        } else {
            Err(refused)
        };
        if said != wanted {
            wrong.push(format!(
                "{} {entry}\n  wanted: {wanted:?}\n  said: {said:?}",
                subject.kind
            ));
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schemas_take_and_refuse_what_the_tables_say() {
    let Some(tools) = tools() else { return };
    let server = ApiServer::start(tools);
    server.install("operator.openshift.io_networks.yaml");
    let client = kube_edge::connect(Some(&server.kubeconfig("admin")))
        .await
        .unwrap();
    let mut wrong = Vec::new();
    for (name, count) in TABLES {
        let entries = yaml(&format!("test/kube/tests/data/schema/{name}.yaml"));
        let entries = entries.as_array().unwrap();
        if entries.len() != count {
            wrong.push(format!("{name} has {} entries, not {count}", entries.len()));
        }
        for entry in entries {
            wrong.extend(differences(&client, entry).await);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    many_subnets(&client).await;
}

/// The messages of the rules in a schema.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations");
            let rules = rules.and_then(Value::as_array).into_iter().flatten();
            found.extend(rules.map(|rule| text(rule, "/message")));
            fields.values().for_each(|field| messages(field, found));
        }
        Value::Array(list) => list.iter().for_each(|one| messages(one, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn each_rule_with_a_message_has_an_entry() {
    let mut said = BTreeSet::new();
    for (name, _) in TABLES {
        let entries = yaml(&format!("test/kube/tests/data/schema/{name}.yaml"));
        let causes = entries.as_array().unwrap().iter().flat_map(refused);
        said.extend(causes.map(|(_field, text)| text));
    }
    let mut rules = BTreeSet::new();
    for crd in [
        "k8s.ovn.org_clusteruserdefinednetworks",
        "k8s.ovn.org_userdefinednetworks",
        "k8s.ovn.org_routeadvertisements",
        "operator.openshift.io_networks",
    ] {
        messages(&yaml(&format!("manifests/crds/{crd}.yaml")), &mut rules);
    }
    assert!(rules.len() > 80, "{}", rules.len());
    // Two of them are refused as too many already.
    rules.remove("providers must not be repeated");
    let untested: Vec<&String> = rules.difference(&said).collect();
    assert!(untested.is_empty(), "{untested:#?}");
}

/// 400 subnets can be made and changed, 401 not: what compares each with each other one is within what the server spends.
async fn many_subnets(client: &kube::Client) {
    type Range = fn(usize) -> String;
    let ranges: [Range; 2] = [
        |n| format!("10.{}.{}.0/24", n / 256, n % 256),
        |n| format!("fd00:{n:x}::/56"),
    ];
    for subject in [CUDN, UDN] {
        for range in ranges {
            let network = |count| {
                let subnets = (0..count).map(|n| json!({"cidr": range(n)}));
                let subnets: Vec<Value> = subnets.collect();
                json!({"topology": "Layer3", "layer3": {"role": "Primary", "subnets": subnets}})
            };
            let (less, most) = (network(399), network(400));
            let added = attempt(client, subject, &less, Some(&most)).await;
            assert_eq!(added, Ok(subject.spec(&most)));
            // What any other change of the object sends: the same spec.
            let same = attempt(client, subject, &most, Some(&most)).await;
            assert_eq!(same, Ok(subject.spec(&most)));
            let removed = attempt(client, subject, &most, Some(&less)).await;
            let layer3 = if subject.network {
                "spec.network.layer3"
            } else {
                "spec.layer3"
            };
            let said = |field: String, text: &str| Err(Causes::from([(field, text.to_owned())]));
            let text = "Removing existing subnets is not allowed";
            assert_eq!(removed, said(layer3.to_owned(), text));
            let more = attempt(client, subject, &network(401), None).await;
            let text = "Too many: 401: must have at most 400 items";
            assert_eq!(more, said(format!("{layer3}.subnets"), text));
        }
    }
}
