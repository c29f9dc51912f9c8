//! What the schemas take and refuse, on a real API server: a table of objects (`tests/data/schema.yaml`), and every example
//! of the design documents (`tests/data/documents.yaml`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_tests::{ApiServer, tools, top};
use serde_json::{Value, json};

fn table(name: &str) -> Vec<Value> {
    let path = top().join("test/kube/tests/data").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_str(&text).expect("test data are YAML")
}

fn strings(entry: &Value, key: &str) -> Vec<String> {
    let list = entry.get(key).and_then(Value::as_array).cloned();
    let text = |v: Value| v.as_str().expect("a list of texts").to_owned();
    list.unwrap_or_default().into_iter().map(text).collect()
}

/// The kind that an entry's object is of, and the object's whole spec.
struct Subject {
    resource: ApiResource,
    namespace: Option<&'static str>,
    name: String,
    /// A spec of the table into a whole one.
    whole: fn(&Value) -> Value,
}

const KINDS: [&str; 6] = ["cudn", "cudn-spec", "udn", "ra", "eip", "network"];

impl Subject {
    fn of(entry: &Value, at: usize) -> (Self, Value) {
        let mut keys = KINDS.iter().filter(|k| entry.get(**k).is_some());
        let key = keys
            .next()
            .unwrap_or_else(|| panic!("entry {at} has none of {KINDS:?}"));
        let (group, kind, plural) = match *key {
            "udn" => ("k8s.ovn.org", "UserDefinedNetwork", "userdefinednetworks"),
            "ra" => ("k8s.ovn.org", "RouteAdvertisements", "routeadvertisements"),
            "eip" => ("k8s.ovn.org", "EgressIP", "egressips"),
            "network" => ("operator.openshift.io", "Network", "networks"),
            _ => (
                "k8s.ovn.org",
                "ClusterUserDefinedNetwork",
                "clusteruserdefinednetworks",
            ),
        };
        let version = GroupVersionKind::gvk(group, "v1", kind);
        let subject = Self {
            resource: ApiResource::from_gvk_with_plural(&version, plural),
            namespace: (*key == "udn").then_some("default"),
            name: format!("entry-{at}"),
            whole: if *key == "cudn" {
                |network| json!({"namespaceSelector": {}, "network": network})
            } else {
                Value::clone
            },
        };
        (subject, entry.get(*key).cloned().unwrap_or_default())
    }

    fn object(&self, spec: &Value) -> DynamicObject {
        DynamicObject::new(&self.name, &self.resource).data(json!({"spec": (self.whole)(spec)}))
    }

    fn api(&self, client: kube::Client) -> Api<DynamicObject> {
        match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// What the API server says of an entry: of the change where there is one, otherwise of the object.
async fn attempt(client: &kube::Client, entry: &Value, at: usize) -> Result<(), String> {
    let (subject, spec) = Subject::of(entry, at);
    let api = subject.api(client.clone());
    let words = |error: kube::Error| {
        let kube::Error::Api(status) = error else {
            panic!("entry {at}: {error}");
        };
        status.message.clone()
    };
    let mut parameters = PostParams::default();
    let Some(to) = entry.get("to") else {
        parameters.dry_run = true;
        let created = api.create(&parameters, &subject.object(&spec)).await;
        return created.map(drop).map_err(words);
    };
    let before = api.create(&parameters, &subject.object(&spec)).await;
    let before = before.unwrap_or_else(|e| panic!("entry {at}, before its change: {e}"));
    let mut after = subject.object(to);
    after.metadata.resource_version = before.metadata.resource_version;
    parameters.dry_run = true;
    let replaced = api.replace(&subject.name, &parameters, &after).await;
    let deleted = api.delete(&subject.name, &DeleteParams::default()).await;
    assert!(deleted.is_ok(), "entry {at} stays: {deleted:?}");
    replaced.map(drop).map_err(words)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schemas_take_and_refuse_what_the_table_says() {
    let Some(tools) = tools() else { return };
    let server = ApiServer::start(tools);
    server.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &manifest("operator.openshift.io_networks.yaml"),
    ]);
    let client = kube_edge::connect(Some(&server.kubeconfig("admin")))
        .await
        .unwrap();
    let mut wrong = Vec::new();
    let entries = table("schema.yaml");
    assert!(entries.len() >= 120, "{}", entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let refused = strings(entry, "refused");
        let said = attempt(&client, entry, at).await;
        match (&said, refused.as_slice()) {
            (Ok(()), []) => {}
            (Err(said), [_, ..]) if refused.iter().all(|part| said.contains(part)) => {}
            _ => wrong.push(format!("{entry}\n  wanted: {refused:?}\n  said: {said:?}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        entries.len(),
        wrong.join("\n")
    );
    many_subnets(&client).await;
}

/// The rules that compare each subnet with each other one have to stay within what the API server spends on them.
async fn many_subnets(client: &kube::Client) {
    for (count, good) in [(100, true), (150, true), (401, false)] {
        let subnet = |n: usize| json!({"cidr": format!("10.{}.{}.0/24", n / 256, n % 256), "hostSubnet": 28});
        let subnets: Vec<Value> = (0..count).map(subnet).collect();
        let entry = json!({"cudn": {"topology": "Layer3", "layer3": {"role": "Primary", "subnets": subnets}}});
        let said = attempt(client, &entry, 10_000 + count).await;
        assert_eq!(said.is_ok(), good, "{count} subnets: {said:?}");
    }
}

fn manifest(name: &str) -> String {
    let path = top().join("manifests/crds").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn examples_of_the_design_documents_are_taken_or_refused_with_the_current_form() {
    let Some(tools) = tools() else { return };
    let server = ApiServer::start(tools);
    server.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &manifest("operator.openshift.io_networks.yaml"),
    ]);
    for namespace in ["metallb-system", "openshift-frr-k8s"] {
        server.kubectl(&["create", "namespace", namespace]);
    }
    let entries = table("documents.yaml");
    assert_eq!(entries.len(), 41, "every example of the five documents");
    for entry in &entries {
        let object = entry.get("object").and_then(Value::as_str).unwrap();
        let refused = strings(entry, "refused");
        // Strict: a field that the schema does not know would be dropped without a word.
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = server.try_kubectl_with(&arguments, object);
        match (&said, refused.as_slice()) {
            (Ok(_), []) => {}
            (Err(said), [_, ..]) if refused.iter().all(|part| said.contains(part)) => {}
            _ => panic!("{object}\nwanted: {refused:?}\nsaid: {said:?}"),
        }
    }
    patches(&server);
}

/// The two patches of the document on OpenShift, the first with the brace that it lacks there.
fn patches(server: &ApiServer) {
    server.apply("{apiVersion: operator.openshift.io/v1, kind: Network, metadata: {name: cluster}, spec: {managementState: Managed}}");
    for patch in [
        r#"{"spec":{"additionalRoutingCapabilities":{"providers":["FRR"]},"defaultNetwork":{"ovnKubernetesConfig":{"routeAdvertisements":"Enabled"}}}}"#,
        r#"{"spec":{"defaultNetwork":{"ovnKubernetesConfig":{"bgpManagedConfig":{"asNumber":64512,"bgpTopology":"FullMesh"}}}}}"#,
    ] {
        server.kubectl(&[
            "patch",
            "networks.operator.openshift.io",
            "cluster",
            "--type",
            "merge",
            "--patch",
            patch,
        ]);
    }
    let state = server.output(&[
        "get",
        "networks.operator.openshift.io",
        "cluster",
        "-o",
        "jsonpath={.spec.managementState}",
    ]);
    assert_eq!(state, "Managed", "fields that are not ours stay");
}
