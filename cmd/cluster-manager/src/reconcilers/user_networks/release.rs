//! Which objects may go: those that no pod uses.
//! In: objects to let go, lists of pods. Out: deletes and releases; the pods that hold the others.
//! Invariant: pods are asked for right before each attempt, and not again for a while where some hold an object; an object loses
//! its finalizer only after it was deleted.
//! Not here: which objects are to go (`plan_cluster::attachments`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube_edge::Entry;
use kube_edge::client::CALL_DEADLINE;
use model::ObjectKey;
use model::user_network::Attachment;
use plan_cluster::attachments::FINALIZER;
use reconcile::Backoff;
use serde_json::Value;
use telemetry::Chain;
use tokio::time::Instant;

use super::super::ClusterReconciler;
use super::super::writes::{Job, What};
use super::KIND;
use crate::key::Key;

/// Annotation of a pod's networks, a JSON object by `namespace/name` of their NetworkAttachmentDefinitions (OVN-Kubernetes).
const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";
/// Pods that have ended, and those on their host's own network, use no network.
const PODS: &str = "status.phase!=Succeeded,status.phase!=Failed,spec.hostNetwork=false";
/// So many pods are asked for with one call.
const PAGE: u32 = 500;
/// Most pods that a condition names.
const NAMED: usize = 5;
/// So many namespaces are asked at once.
const AT_ONCE: usize = 8;
/// From one question to the next while pods hold an object: doubling from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// An object that is held, as it stood when pods were asked for.
#[derive(Debug)]
struct Held {
    entry: Entry<Attachment>,
    text: String,
    again: Instant,
    backoff: Backoff,
}

/// What is remembered of objects that pods hold.
#[derive(Debug, Default)]
pub(in super::super) struct Holding {
    held: BTreeMap<ObjectKey, Held>,
    alarm: Option<tokio::task::JoinHandle<()>>,
}

impl Holding {
    /// What holds an object; `None` where it has to be asked for: never asked, another object by now, or long enough ago.
    fn known(&self, key: &ObjectKey, entry: &Entry<Attachment>, now: Instant) -> Option<&str> {
        let held = self.held.get(key)?;
        let same = held.entry.uid == entry.uid && held.entry.value == entry.value;
        (same && now < held.again).then_some(held.text.as_str())
    }

    fn hold(&mut self, key: &ObjectKey, entry: Entry<Attachment>, text: String, now: Instant) {
        let known = self.held.remove(key);
        let known = known.filter(|h| h.entry.uid == entry.uid && h.entry.value == entry.value);
        if known.as_ref().is_none_or(|h| h.text != text) {
            tracing::info!(%key, "{text}");
        }
        let mut backoff = known.map_or_else(|| Backoff::new(AGAIN.0, AGAIN.1), |h| h.backoff);
        let again = now + backoff.pause();
        let held = Held {
            entry,
            text,
            again,
            backoff,
        };
        self.held.insert(key.clone(), held);
    }

    /// Another replica leads.
    pub(in super::super) fn clear(&mut self) {
        self.held.clear();
        if let Some(alarm) = self.alarm.take() {
            alarm.abort();
        }
    }
}

/// An object that may go if no pod uses it, and how.
struct Candidate {
    key: ObjectKey,
    entry: Entry<Attachment>,
    job: Job,
}

/// Why there is no list of pods.
#[derive(Debug, Clone)]
enum Unlisted {
    /// The API server said this.
    Refused(String),
    /// It said nothing.
    Unanswered(String),
}

/// What came of a question for the pods of a namespace: by object, the names of some that use it. `None`: not asked.
type Users = Option<Result<Vec<Vec<String>>, Unlisted>>;

/// What is to be let go.
#[derive(Default)]
pub(super) struct Going {
    pub(super) jobs: Vec<Job>,
    /// By network: what holds its objects.
    pub(super) in_use: BTreeMap<String, Vec<String>>,
}

impl ClusterReconciler {
    /// The writes that let objects go which no pod uses, and what holds the others.
    pub(super) async fn let_go(&mut self, surplus: &BTreeMap<ObjectKey, Option<String>>) -> Going {
        self.holding.held.retain(|key, _| surplus.contains_key(key));
        let mut going = Going::default();
        let now = Instant::now();
        let mut asked: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
        for key in surplus.keys() {
            let Some(candidate) = self.candidate(key) else {
                self.holding.held.remove(key);
                continue;
            };
            let target = (KIND.to_owned(), key.clone());
            let waits = self
                .refusals
                .waits(&Key::UserNetworks, &target, &candidate.job.what);
            if waits {
                self.holding.held.remove(key);
                going.jobs.push(candidate.job);
            } else if self.holding.known(key, &candidate.entry, now).is_none() {
                let namespace = asked.entry(key.namespace.clone()).or_default();
                namespace.push(candidate);
            }
        }
        for (namespace, candidates, users) in ask(&self.clients.client, asked).await {
            self.evaluate_users(&namespace, candidates, users, &mut going);
        }
        for (key, held) in &self.holding.held {
            let network = surplus.get(key).cloned().flatten().unwrap_or_default();
            let texts = going.in_use.entry(network).or_default();
            texts.push(held.text.clone());
        }
        self.ask_again();
        going
    }

    /// First it is deleted, then its finalizer goes: between the two nobody else finds an object that nothing protects.
    fn candidate(&self, key: &ObjectKey) -> Option<Candidate> {
        let entry = self.caches.attachments.get(key)?;
        let (uid, attachment) = (entry.uid.clone(), &entry.value);
        let what = if !attachment.deleting {
            What::Delete { uid }
        } else if attachment.finalizers.contains(FINALIZER) {
            What::Release {
                uid,
                version: entry.version.clone(),
                finalizers: without_ours(&attachment.finalizers),
            }
        } else {
            return None;
        };
        let job = Job {
            key: key.clone(),
            node: None,
            what,
        };
        Some(Candidate {
            key: key.clone(),
            entry,
            job,
        })
    }

    fn evaluate_users(
        &mut self,
        namespace: &str,
        candidates: Vec<Candidate>,
        users: Users,
        going: &mut Going,
    ) {
        let unlisted =
            |why: &str| format!("(pods of namespace {namespace} cannot be listed: {why})");
        let is_asked = users.is_some();
        let (users, why) = match users {
            Some(Ok(users)) => (users, None),
            Some(Err(Unlisted::Refused(why) | Unlisted::Unanswered(why))) => {
                (Vec::new(), Some(unlisted(&why)))
            }
            None => (Vec::new(), Some(unlisted("no answer"))),
        };
        let mut users = users.into_iter();
        for candidate in candidates {
            let users = users.next().unwrap_or_default();
            let holders = why.clone().unwrap_or_else(|| users.join(" "));
            if holders.is_empty() {
                self.holding.held.remove(&candidate.key);
                going.jobs.push(candidate.job);
                continue;
            }
            let text = format!(
                "failed to delete NetworkAttachmentDefinition [{}]: network in use by the following pods: [{holders}]",
                candidate.key
            );
            let (key, entry) = (candidate.key, candidate.entry);
            if !is_asked {
                // Its turn comes before that of those that were not answered.
                self.holding.held.remove(&key);
            }
            self.holding.hold(&key, entry, text, Instant::now());
        }
    }

    /// Has the next pass made when the first object that is held may be asked for again.
    fn ask_again(&mut self) {
        if let Some(old) = self.holding.alarm.take() {
            old.abort();
        }
        let next = self.holding.held.values().map(|held| held.again).min();
        self.holding.alarm = next.map(|at| {
            let queue = self.clients.queue.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                queue.enqueue(Key::UserNetworks);
            })
        });
    }
}

/// Asks for the pods of some namespaces, a few at once; once there is no answer the rest is left to the next pass.
async fn ask(
    client: &kube::Client,
    asked: BTreeMap<String, Vec<Candidate>>,
) -> Vec<(String, Vec<Candidate>, Users)> {
    let silent = AtomicBool::new(false);
    futures::stream::iter(asked)
        .map(|(namespace, candidates)| async {
            if silent.load(Ordering::Relaxed) {
                return (namespace, candidates, None);
            }
            let users = users(client.clone(), &namespace, &candidates).await;
            if matches!(users, Err(Unlisted::Unanswered(_))) {
                silent.store(true, Ordering::Relaxed);
            }
            (namespace, candidates, Some(users))
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

/// Finalizers of others.
pub(super) fn without_ours(all: &BTreeSet<String>) -> Vec<String> {
    let others = all.iter().filter(|finalizer| *finalizer != FINALIZER);
    others.cloned().collect()
}

/// Names of pods of a namespace that use each of these objects; asked of the API server, since nobody watches pods here.
async fn users(
    client: kube::Client,
    namespace: &str,
    candidates: &[Candidate],
) -> Result<Vec<Vec<String>>, Unlisted> {
    let api: kube::Api<Pod> = kube::Api::namespaced(client, namespace);
    let mut params = ListParams::default().fields(PODS).limit(PAGE);
    let mut found: Vec<Vec<String>> = vec![Vec::new(); candidates.len()];
    loop {
        let listed = tokio::time::timeout(CALL_DEADLINE, api.list_metadata(&params)).await;
        let list = match listed {
            Ok(Ok(list)) => list,
            Ok(Err(error @ kube::Error::Api(_))) => {
                return Err(Unlisted::Refused(Chain(&error).to_string()));
            }
            Ok(Err(error)) => return Err(Unlisted::Unanswered(Chain(&error).to_string())),
            Err(_) => {
                let text = format!("no answer within {CALL_DEADLINE:?}");
                return Err(Unlisted::Unanswered(text));
            }
        };
        for pod in list.items {
            for (names, candidate) in found.iter_mut().zip(candidates) {
                let network = candidate.entry.value.network.as_ref();
                let primary = network.is_some_and(|(_, primary)| *primary);
                if names.len() < NAMED && uses(&pod.metadata, &candidate.key, primary) {
                    names.extend(pod.metadata.name.clone());
                }
            }
        }
        let enough = found.iter().all(|names| names.len() >= NAMED);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if !enough => params = params.continue_token(&token),
            _ => return Ok(found),
        }
    }
}

/// Whether a pod uses a network: as its own annotation says; where it has none, a primary network serves every pod of the
/// namespace.
fn uses(pod: &ObjectMeta, key: &ObjectKey, primary: bool) -> bool {
    let annotation = pod
        .annotations
        .as_ref()
        .and_then(|map| map.get(POD_NETWORKS));
    let networks = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
    networks.map_or(primary, |networks| networks.get(key.to_string()).is_some())
}

#[cfg(test)]
mod tests;
