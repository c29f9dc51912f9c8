//! Events on objects.
//! In: `model::intent::Event` and the object they are about. Out: `events.k8s.io` objects; repeats become a series.
//! Invariant: an event that cannot be published is logged, never an error of the pass; what is queued holds nobody up.
//! Not here: when an event is due (planners).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};
use model::ObjectKey;
use model::intent::Event;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::CALL_DEADLINE;
use crate::leadership::Leadership;

/// So many events may wait; those that come on top are logged and lost.
const QUEUE: usize = 512;

/// Events that wait to be published. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue(mpsc::Sender<(ObjectReference, KubeEvent)>);

impl Queue {
    /// Has one event published on the object of a kind that has no Rust type, some time; `kind` is its `apiVersion` and `kind`.
    pub fn publish_on(&self, kind: (&str, &str), key: &ObjectKey, uid: &str, event: &Event) {
        if self.0.try_send(encoded(kind, key, uid, event)).is_err() {
            tracing::warn!(%key, reason = event.reason, "too many events wait to be published: one is lost");
        }
    }

    /// Has one event published on the object of kind `K`, some time.
    pub fn publish<K>(&self, key: &ObjectKey, uid: &str, event: &Event)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let kind = (&*K::api_version(&()), &*K::kind(&()));
        self.publish_on(kind, key, uid, event);
    }
}

/// For so long a repeated event becomes a series; then it is an event of its own.
const REPEATS: Duration = Duration::from_secs(360);

/// A recorder counts what has the same reason as one event, whatever it says: it gets events of one message only, or the first
/// message would be all that is ever seen. By message: its recorder, and when it was used last.
type Recorders = BTreeMap<String, (Recorder, Instant)>;

/// Publishes events as one component.
#[derive(Clone)]
pub struct Publisher {
    client: kube::Client,
    reporter: Reporter,
    recorders: Arc<Mutex<Recorders>>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Publisher")
    }
}

impl Publisher {
    /// A publisher; `controller` is the component, `instance` the pod or node.
    #[must_use]
    pub fn new(client: kube::Client, controller: &str, instance: &str) -> Self {
        Self {
            client,
            reporter: Reporter {
                controller: controller.to_owned(),
                instance: Some(instance.to_owned()),
            },
            recorders: Arc::default(),
        }
    }

    fn recorder(&self, message: &str) -> Recorder {
        let now = Instant::now();
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|_, (_, used)| now.duration_since(*used) < REPEATS);
        let new = || {
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            (recorder, now)
        };
        let (recorder, used) = recorders.entry(message.to_owned()).or_insert_with(new);
        *used = now;
        recorder.clone()
    }

    /// Publishes one event on the object of kind `K`.
    pub async fn publish<K>(&self, key: &ObjectKey, uid: &str, event: &Event)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let kind = (&*K::api_version(&()), &*K::kind(&()));
        let (about, event) = encoded(kind, key, uid, event);
        self.send(&about, &event).await;
    }

    /// Publishes from now on in a task of its own, one event after the other, while `leadership` lasts. The task ends
    /// when the last clone of the queue is gone and what waited is published.
    #[must_use]
    pub fn queued(self, leadership: Leadership) -> (Queue, JoinHandle<()>) {
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            while let Some((about, event)) = waiting.recv().await {
                // Whoever leads now tells it.
                if leadership.leads() {
                    self.send(&about, &event).await;
                }
            }
        });
        (Queue(queue), task)
    }

    async fn send(&self, about: &ObjectReference, event: &KubeEvent) {
        let recorder = self.recorder(event.note.as_deref().unwrap_or_default());
        match tokio::time::timeout(CALL_DEADLINE, recorder.publish(event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, reason = event.reason, "cannot publish an event")
            }
            Err(_) => tracing::warn!(reason = event.reason, "cannot publish an event: no answer"),
        }
    }
}

fn encoded(
    (api_version, kind): (&str, &str),
    key: &ObjectKey,
    uid: &str,
    event: &Event,
) -> (ObjectReference, KubeEvent) {
    let about = ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(key.name.clone()),
        namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
        uid: (!uid.is_empty()).then(|| uid.to_owned()),
        ..ObjectReference::default()
    };
    // The server allows 1024 bytes of note.
    let note: String = event.message.chars().take(1000).collect();
    let event = KubeEvent {
        type_: if event.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: event.reason.to_owned(),
        note: Some(note),
        action: event.reason.to_owned(),
        secondary: None,
    };
    (about, event)
}
