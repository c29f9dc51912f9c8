//! Writes: server-side apply with one field manager, deletes with a uid, each with a deadline.
//! In: objects as JSON. Out: done, or a typed error. Invariant: a write is counted; nothing is created by writing to what is gone.
//! Not here: whether a write is needed (diffs).

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Resource};
use model::ObjectKey;
use serde_json::Value;

use crate::client::CALL_DEADLINE;
use crate::leadership::Leadership;
use crate::outcome::{Observer, Outcome};

/// Why a write failed. All of them are the world's faults: try again later.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The server refused or could not be reached.
    #[error("cannot {verb} {kind} {key}")]
    Api {
        /// apply, delete, ...
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Which one.
        key: ObjectKey,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No answer within the deadline.
    #[error("cannot {verb} {kind} {key}: no answer within {CALL_DEADLINE:?}")]
    Deadline {
        /// apply, delete, ...
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Which one.
        key: ObjectKey,
    },
    /// This process does not lead, or is about to end: nothing was sent.
    #[error("cannot {verb} {kind} {key}: another replica leads")]
    NotLeading {
        /// apply, delete, ...
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Which one.
        key: ObjectKey,
    },
}

impl WriteError {
    /// What the server said, where it answered; otherwise why it did not.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Api { source, .. } => {
                if let kube::Error::Api(status) = source.as_ref() {
                    status.message.clone()
                } else {
                    crate::cache::telling(source.as_ref())
                }
            }
            Self::Deadline { .. } => format!("no answer within {CALL_DEADLINE:?}"),
            Self::NotLeading { .. } => "another replica leads".to_owned(),
        }
    }

    /// True where the server answered, and this write is what it did not like.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(_)))
    }

    /// The HTTP status of the server's answer; `None` where it did not answer.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        if let Self::Api { source, .. } = self
            && let kube::Error::Api(status) = source.as_ref()
        {
            Some(status.code)
        } else {
            None
        }
    }

    /// True where the object is another than the one the write was made from: read it again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(s) if s.code == 409))
    }

    /// True where nothing was sent because another replica leads.
    #[must_use]
    pub fn is_not_leading(&self) -> bool {
        matches!(self, Self::NotLeading { .. })
    }
}

/// Which object a write means.
#[derive(Debug, Clone, Copy, Default)]
pub struct Only<'a> {
    /// `metadata.uid`; without it a missing object is created.
    pub uid: Option<&'a str>,
    /// `metadata.resourceVersion` that the write was made from; any other is a conflict.
    pub version: Option<&'a str>,
}

/// Writes as one field manager. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: kube::Client,
    manager: &'static str,
    writes: Arc<AtomicU64>,
    leadership: Option<Leadership>,
    observer: Option<Observer>,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer; `manager` stands in `metadata.managedFields`.
    #[must_use]
    pub fn new(client: kube::Client, manager: &'static str) -> Self {
        Self {
            client,
            manager,
            writes: Arc::default(),
            leadership: None,
            observer: None,
        }
    }

    /// Has `observe` told the kind of each object that a write was sent for, and what came of it.
    #[must_use]
    pub fn observed(mut self, observe: impl Fn(&str, Outcome) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer::new(observe));
        self
    }

    /// The same for one of several replicas: each write asks right before it is sent whether it may be.
    #[must_use]
    pub fn gated(mut self, leadership: Leadership) -> Self {
        self.leadership = Some(leadership);
        self
    }

    /// How many writes were tried since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn api<K>(&self, key: &ObjectKey) -> (Api<DynamicObject>, ApiResource)
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = if key.namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &key.namespace, &resource)
        };
        (api, resource)
    }

    /// Applies fields of an object of kind `K`; `body` needs neither apiVersion nor kind.
    /// `uid`: the object must be this one; without it a missing object is created.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn apply<K>(
        &self,
        key: &ObjectKey,
        uid: Option<&str>,
        body: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let only = Only {
            uid,
            ..Only::default()
        };
        self.apply_only::<K>(key, only, body).await
    }

    /// The same to this object only.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn apply_only<K>(
        &self,
        key: &ObjectKey,
        only: Only<'_>,
        body: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let (api, resource) = self.api::<K>(key);
        let body = self.body(&resource, key, only, body);
        let params = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(&body);
        let call = api.patch(&key.name, &params, &patch);
        let done = self.call("apply", &resource.kind, key, call).await;
        self.ended(&resource, Outcome::Applied, done.map(drop))
    }

    /// Leaves an object these finalizers, whoever put the others there; one that is gone is no error. `only` names the version
    /// that the list was made from.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn set_finalizers<K>(
        &self,
        key: &ObjectKey,
        only: Only<'_>,
        finalizers: &[String],
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let body = serde_json::json!({"metadata": {"finalizers": finalizers}});
        let merged = self.merge::<K>("release", key, only, body);
        merged.await
    }

    /// Takes a label off an object, whoever put it there; one that is gone is no error. `only` names the version that bears it.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn remove_label<K>(
        &self,
        key: &ObjectKey,
        only: Only<'_>,
        label: &str,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let body = serde_json::json!({"metadata": {"labels": {label: null}}});
        let merged = self.merge::<K>("unlabel", key, only, body);
        merged.await
    }

    /// Changes fields of an object that is there, whoever owns them.
    async fn merge<K>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        only: Only<'_>,
        body: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let (api, resource) = self.api::<K>(key);
        let body = self.body(&resource, key, only, body);
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&body);
        let call = api.patch(&key.name, &params, &patch);
        let done = match self.call(verb, &resource.kind, key, call).await {
            Err(error) if error.code() == Some(404) => Ok(()),
            other => other.map(drop),
        };
        self.ended(&resource, Outcome::Released, done)
    }

    /// Applies `status` of an object.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn apply_status<K>(&self, key: &ObjectKey, status: Value) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let (api, resource) = self.api::<K>(key);
        let body = self.body(
            &resource,
            key,
            Only::default(),
            serde_json::json!({ "status": status }),
        );
        let params = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(&body);
        let call = api.patch_status(&key.name, &params, &patch);
        let done = self.call("apply status of", &resource.kind, key, call);
        let done = done.await.map(drop);
        self.ended(&resource, Outcome::Status, done)
    }

    /// Deletes the object with this uid; one that is gone or is another by now is no error.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub async fn delete<K>(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let (api, resource) = self.api::<K>(key);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let call = api.delete(&key.name, &params);
        let done = match self.call("delete", &resource.kind, key, call).await {
            Err(WriteError::Api { source, .. }) if is_gone(&source) => Ok(()),
            other => other.map(drop),
        };
        self.ended(&resource, Outcome::Deleted, done)
    }

    /// Tells who watches what came of a write that ends as `good` where all is well.
    fn ended(
        &self,
        resource: &ApiResource,
        good: Outcome,
        done: Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let outcome = Outcome::of(good, done.as_ref().copied());
        if let (Some(observer), Some(outcome)) = (&self.observer, outcome) {
            observer.tell(&resource.kind, outcome);
        }
        done
    }

    fn body(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        only: Only<'_>,
        mut body: Value,
    ) -> Value {
        if let Some(map) = body.as_object_mut() {
            map.insert("apiVersion".to_owned(), resource.api_version.clone().into());
            map.insert("kind".to_owned(), resource.kind.clone().into());
            let metadata = map
                .entry("metadata")
                .or_insert_with(|| serde_json::json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("name".to_owned(), key.name.clone().into());
                if !key.namespace.is_empty() {
                    metadata.insert("namespace".to_owned(), key.namespace.clone().into());
                }
                if let Some(uid) = only.uid {
                    metadata.insert("uid".to_owned(), uid.into());
                }
                if let Some(version) = only.version {
                    metadata.insert("resourceVersion".to_owned(), version.into());
                }
            }
        }
        body
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        kind: &str,
        key: &ObjectKey,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        let not_leading = || WriteError::NotLeading {
            verb,
            kind: kind.to_owned(),
            key: key.clone(),
        };
        if self.leadership.as_ref().is_some_and(|l| !l.may_write()) {
            return Err(not_leading());
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        // Between the question and the sending lie a connection and its handshake: whoever was frozen there asks again first,
        // and what was planned in one term is not sent in another.
        let term = || self.leadership.as_ref().map(Leadership::term);
        let begun = term();
        let leads = || begun.is_none() || (begun != Some(None) && term() == begun);
        let call = while_true(leads, call);
        match tokio::time::timeout(CALL_DEADLINE, call).await {
            Ok(None) => Err(not_leading()),
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(source))) => Err(WriteError::Api {
                verb,
                kind: kind.to_owned(),
                key: key.clone(),
                source: Box::new(source),
            }),
            Err(_) => Err(WriteError::Deadline {
                verb,
                kind: kind.to_owned(),
                key: key.clone(),
            }),
        }
    }
}

/// Polls a future for as long as a condition holds, which is asked before each poll; `None` where it does not.
async fn while_true<F: Future>(holds: impl Fn() -> bool, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        if holds() {
            future.as_mut().poll(context).map(Some)
        } else {
            Poll::Ready(None)
        }
    })
    .await
}

/// Not found, or a conflict of uids: the object that was meant does not exist any more.
fn is_gone(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        status.code == 404 || status.code == 409
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[tokio::test]
    async fn a_call_that_waits_goes_no_further_once_nobody_leads() {
        let (leads, sent) = (AtomicBool::new(true), AtomicBool::new(false));
        let call = async {
            // The connection is being made; meanwhile the lease runs out.
            tokio::task::yield_now().await;
            sent.store(true, Ordering::Relaxed);
        };
        let holds = || leads.load(Ordering::Relaxed);
        let (outcome, ()) = tokio::join!(while_true(holds, call), async {
            leads.store(false, Ordering::Relaxed);
        });
        assert_eq!(outcome, None);
        assert!(!sent.load(Ordering::Relaxed), "it was never sent");
        assert_eq!(while_true(|| true, async { 1 }).await, Some(1));
    }
}
