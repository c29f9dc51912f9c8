//! Writes: server-side apply with one field manager, deletes with a uid, each with a deadline.
//! In: objects as JSON. Out: done, or a typed error. Invariant: a write is counted; nothing is created by writing to what is gone.
//! Not here: whether a write is needed (diffs).

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Resource};
use model::ObjectKey;
use serde_json::Value;

use crate::client::CALL_DEADLINE;

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
}

/// Writes as one field manager. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: kube::Client,
    manager: &'static str,
    writes: Arc<AtomicU64>,
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
        }
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
        let (api, resource) = self.api::<K>(key);
        let body = self.body(&resource, key, uid, body);
        let params = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(&body);
        self.call(
            "apply",
            &resource.kind,
            key,
            api.patch(&key.name, &params, &patch),
        )
        .await
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
            None,
            serde_json::json!({ "status": status }),
        );
        let params = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(&body);
        self.call(
            "apply status of",
            &resource.kind,
            key,
            api.patch_status(&key.name, &params, &patch),
        )
        .await
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
        let done = self
            .call(
                "delete",
                &resource.kind,
                key,
                api.delete(&key.name, &params),
            )
            .await;
        match done {
            Err(WriteError::Api { source, .. }) if is_gone(&source) => Ok(()),
            other => other,
        }
    }

    fn body(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
        uid: Option<&str>,
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
                if let Some(uid) = uid {
                    metadata.insert("uid".to_owned(), uid.into());
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
    ) -> Result<(), WriteError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        match tokio::time::timeout(CALL_DEADLINE, call).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(WriteError::Api {
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

/// Not found, or a conflict of uids: the object that was meant does not exist any more.
fn is_gone(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        status.code == 404 || status.code == 409
    } else {
        false
    }
}
