//! A cache of one kind of object, lifted at the door: what planners see, and nothing else, is kept.
//! In: a watch. Out: a map of lifted values, and a call for every key whose value changed.
//! Invariant: a restart of the watch replaces the map in one step; between, the old one is served.
//! Not here: raw objects; they are dropped once lifted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Resource, ResourceExt};
use model::ObjectKey;
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

/// A lifted object with what writes need to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// `metadata.uid`.
    pub uid: String,
    /// What it says.
    pub value: T,
}

#[derive(Debug)]
struct Inner<T> {
    map: BTreeMap<ObjectKey, Entry<T>>,
    ready: bool,
}

/// The cache; cheap to clone. Its watch ends when the last clone is dropped.
#[derive(Debug)]
pub struct Cache<T> {
    inner: Arc<RwLock<Inner<T>>>,
    watch: Arc<Watch>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            watch: Arc::clone(&self.watch),
        }
    }
}

/// The task that follows the watch.
#[derive(Debug)]
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Clone> Cache<T> {
    /// True once the first listing is complete.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .ready
    }

    /// Looks into the map.
    pub fn with<R>(&self, f: impl FnOnce(&BTreeMap<ObjectKey, Entry<T>>) -> R) -> R {
        f(&self
            .inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .map)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Entry<T>> {
        self.with(|map| map.get(key).cloned())
    }
}

/// Delays between attempts of a broken watch: 0.2 s doubling to 5 s, so that an API server that is back is noticed soon.
#[derive(Debug)]
struct Retry(Duration);

const FIRST_RETRY: Duration = Duration::from_millis(200);

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (self.0 * 2).min(Duration::from_secs(5));
        Some(now)
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        self.0 = FIRST_RETRY;
    }
}

/// Watches objects and keeps them lifted. `changed` is called after the map has the new state: with the key of a changed
/// object, or with `None` when a first or repeated listing is complete.
pub fn watch<K, T>(
    api: Api<K>,
    fields: Option<&str>,
    lift: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let mut config = watcher::Config::default().timeout(60);
    if let Some(fields) = fields {
        config = config.fields(fields);
    }
    let stream = watch_objects(api, config).backoff(Retry(FIRST_RETRY));
    follow(stream, lift, changed)
}

/// The same over any stream of watch events.
pub fn follow<K, T>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    lift: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let shared = Arc::new(RwLock::new(Inner {
        map: BTreeMap::new(),
        ready: false,
    }));
    let inner = Arc::clone(&shared);
    let task = tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        let mut fresh: BTreeMap<ObjectKey, Entry<T>> = BTreeMap::new();
        let mut broken = false;
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    if !broken {
                        tracing::warn!(%error, "watch is broken, trying again");
                    }
                    broken = true;
                    continue;
                }
            };
            if std::mem::take(&mut broken) {
                tracing::info!("watch works again");
            }
            for key in step(&inner, &mut fresh, event, &lift) {
                changed(key.as_ref());
            }
        }
    });
    Cache {
        inner: shared,
        watch: Arc::new(Watch(task.abort_handle())),
    }
}

/// Applies one event; returns what to tell.
fn step<K: Resource, T: Clone + PartialEq>(
    inner: &RwLock<Inner<T>>,
    fresh: &mut BTreeMap<ObjectKey, Entry<T>>,
    event: Event<K>,
    lift: impl Fn(&K) -> T,
) -> Vec<Option<ObjectKey>> {
    let entry = |object: &K| {
        let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
        let uid = object.uid().unwrap_or_default();
        (
            key,
            Entry {
                uid,
                value: lift(object),
            },
        )
    };
    match event {
        Event::Init => {
            fresh.clear();
            Vec::new()
        }
        Event::InitApply(object) => {
            fresh.extend([entry(&object)]);
            Vec::new()
        }
        Event::InitDone => {
            let fresh = std::mem::take(fresh);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            let keys: BTreeSet<&ObjectKey> = inner.map.keys().chain(fresh.keys()).collect();
            let told: Vec<Option<ObjectKey>> = keys
                .into_iter()
                .filter(|key| inner.map.get(*key) != fresh.get(*key))
                .map(|key| Some(key.clone()))
                .collect();
            let first = !inner.ready;
            inner.map = fresh;
            inner.ready = true;
            if first { vec![None] } else { told }
        }
        Event::Apply(object) => {
            let (key, entry) = entry(&object);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            let same = inner.map.get(&key) == Some(&entry);
            inner.map.insert(key.clone(), entry);
            if same { Vec::new() } else { vec![Some(key)] }
        }
        Event::Delete(object) => {
            let (key, _) = entry(&object);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            let there = inner.map.remove(&key).is_some();
            if there { vec![Some(key)] } else { Vec::new() }
        }
    }
}

#[cfg(test)]
mod tests;
