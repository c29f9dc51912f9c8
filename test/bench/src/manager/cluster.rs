//! An API server with the objects of others, and whether the manager has made of them what it should.
//! In: a size. Out: calls as an administrator. Invariant: what is right is counted from the objects, not asked of the manager.
//! Not here: processor time, memory.

use std::path::PathBuf;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::Request;
use kube::Client;
use kube_tests::ApiServer;
use serde_json::Value;

use super::record::{Record, Write, now};
use super::{Size, objects};

const NODES: &str = "/api/v1/nodes";
const NAMESPACES: &str = "/api/v1/namespaces";
const CUDNS: &str = "/apis/k8s.ovn.org/v1/clusteruserdefinednetworks";
const RAS: &str = "/apis/k8s.ovn.org/v1/routeadvertisements";
pub(crate) const CONFIGURATIONS: &str = "/apis/frrk8s.metallb.io/v1beta1/frrconfigurations";

/// So many calls are under way at once; as many as the manager's.
pub(crate) const AT_ONCE: usize = 8;
/// Nothing was written for so long: it is quiet.
const QUIET: f64 = 1.5;
/// Whoever is not done after so long never will be.
const PATIENCE: f64 = 600.0;

/// A cluster of objects.
pub(crate) struct Cluster {
    pub(crate) api: ApiServer,
    client: Client,
    record: Record,
}

impl Cluster {
    /// Starts an API server and makes the objects; nobody has looked at them yet.
    pub(crate) async fn start(tools: PathBuf, size: Size) -> Self {
        let start = || ApiServer::start_recording(tools);
        let api = tokio::task::block_in_place(start);
        let client = kube_edge::connect(Some(&api.kubeconfig("admin"))).await;
        let record = Record::new(api.path("audit.log"));
        let cluster = Self {
            api,
            client: client.expect("a client"),
            record,
        };
        let nodes = (0..size.nodes).map(objects::node);
        cluster.create_all(NODES, nodes).await;
        for number in 0..size.cudns {
            cluster.add_namespace(number).await;
            cluster.add_cudn(number).await;
        }
        cluster
    }

    async fn create_all(&self, path: &str, all: impl Iterator<Item = Value>) {
        let calls = futures::stream::iter(all.map(|object| self.create(path, object)));
        calls.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }

    async fn create(&self, path: &str, object: Value) {
        let said = self.call("POST", path, "application/json", &object).await;
        said.expect("it is created");
    }

    pub(crate) async fn add_node(&self, number: u32) {
        self.create(NODES, objects::node(number)).await;
    }

    pub(crate) async fn delete_node(&self, number: u32) {
        let path = format!("{NODES}/{}", objects::node_name(number));
        let said = self.call("DELETE", &path, "application/json", &Value::Null);
        said.await.expect("it is deleted");
    }

    pub(crate) async fn add_namespace(&self, number: u32) {
        self.create(NAMESPACES, objects::namespace(number)).await;
    }

    pub(crate) async fn add_cudn(&self, number: u32) {
        self.create(CUDNS, objects::cudn(number)).await;
    }

    /// One call; the answer's text.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> kube::Result<String> {
        let sent = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", content).body(sent);
        self.client.request_text(request.expect("a request")).await
    }

    /// Items of a list.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let text = self.call("GET", path, "application/json", &Value::Null);
        let text = text.await.expect("a list");
        let mut list: Value = serde_json::from_str(&text).expect("JSON");
        let items = list.get_mut("items").map(Value::take).unwrap_or_default();
        serde_json::from_value(items).expect("items")
    }

    pub(crate) async fn nodes(&self) -> Vec<Value> {
        self.list(NODES).await
    }

    /// Sends the manager's applies once more, a few at once; the seconds from the first to the last answer.
    pub(crate) async fn replay(&self, writes: &[Write]) -> f64 {
        let applies: Vec<(&str, Value)> = writes.iter().map(apply_of).collect();
        let begun = now();
        let calls = applies.iter().map(|(uri, body)| async move {
            let said = self.call("PATCH", uri, "application/apply-patch+yaml", body);
            said.await.map(drop)
        });
        let calls = futures::stream::iter(calls).buffer_unordered(AT_ONCE);
        calls.try_collect::<()>().await.expect("all are taken");
        now() - begun
    }

    /// Waits until all is right and the manager writes nothing more; what it wrote since the last time.
    pub(crate) async fn until_quiet(&mut self, size: Size) -> Vec<Write> {
        let begun = now();
        let mut writes: Vec<Write> = Vec::new();
        let mut wrong = String::new();
        loop {
            let news = self.record.news();
            writes.extend(news);
            let last = writes.iter().map(|write| write.answered);
            let since = last.fold(begun, f64::max);
            if now() - since > QUIET {
                match self.wrong(size).await {
                    None => return writes,
                    Some(what) => wrong = what,
                }
            }
            assert!(now() - begun < PATIENCE, "it is never right: {wrong}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What is not as it should be.
    async fn wrong(&self, size: Size) -> Option<String> {
        let configurations = self.list(CONFIGURATIONS).await.len();
        let wanted = usize::try_from(2 * size.nodes + 1).expect("a size");
        if configurations != wanted {
            return Some(format!("{configurations} FRRConfigurations of {wanted}"));
        }
        let networks = usize::try_from(size.cudns).expect("a size");
        let groups = [
            (RAS, &["Accepted", "Complete"], networks + 1),
            (CUDNS, &["NetworkCreated", "TransportAccepted"], networks),
        ];
        for (path, kinds, wanted) in groups {
            let all = self.list(path).await;
            let right = all.iter().filter(|object| is_true(object, kinds)).count();
            if right != wanted || all.len() != wanted {
                return Some(format!("{path}: {right} of {wanted} right"));
            }
        }
        None
    }
}

/// Whether conditions are True of what the object says now.
fn is_true(object: &Value, kinds: &[&str]) -> bool {
    let generation = object.pointer("/metadata/generation");
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    kinds.iter().all(|kind| {
        let mut all = conditions.into_iter().flatten();
        all.any(|c| {
            c["type"] == *kind
                && c["status"] == "True"
                && Some(&c["observedGeneration"]) == generation
        })
    })
}

/// Where a write goes and what it says, of whichever object is there.
fn apply_of(write: &Write) -> (&str, Value) {
    assert_eq!(write.verb, "patch", "a first start only applies: {write:?}");
    let mut body = write.body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
    (&write.uri, body)
}
