//! A cache of one kind of object, decoded on arrival: what planners see, and nothing else, is kept.
//! In: a watch. Out: a map of decoded values, and a call for every key whose value changed.
//! Invariant: a restart of the watch replaces the map in one step; between, the old one is served.
//! Not here: raw objects; they are dropped once decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use futures::Stream;
use kube::runtime::watcher as watch_objects;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use model::ObjectKey;
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio::task::AbortHandle;

use crate::installed::Unserved;

mod health;

use health::{Health, refusal};

/// A decoded object with what writes need to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`. A change of it alone is no change.
    pub version: String,
    /// What it says.
    pub value: T,
}

impl<T: PartialEq> Entry<T> {
    /// The same object that says the same.
    fn says(&self, other: &Self) -> bool {
        self.uid == other.uid && self.value == other.value
    }
}

#[derive(Debug)]
struct Inner<T> {
    map: BTreeMap<ObjectKey, Entry<T>>,
    ready: bool,
    /// Grows with every change.
    revision: u64,
    /// 403 or 404, with which the listing was refused the last time.
    refused: Option<u16>,
}

/// The cache; cheap to clone. Its watch ends when the last clone is dropped.
#[derive(Debug)]
pub struct Cache<T> {
    inner: Arc<RwLock<Inner<T>>>,
    /// True from a failure of the watch to what shows that it works.
    failing: channel::Receiver<bool>,
    watch: Arc<Watch>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            failing: self.failing.clone(),
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

    /// 404 where the server has no such kind, 403 where it may not be listed; until a listing is complete.
    #[must_use]
    pub fn refused(&self) -> Option<u16> {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .refused
    }

    /// Whether the map may be old: the watch has failed, and has neither said anything since nor been silent for long enough.
    pub(crate) fn failing(&self) -> bool {
        *self.failing.borrow()
    }

    /// Tells every change of [`Self::failing`].
    pub(crate) fn failures(&self) -> channel::Receiver<bool> {
        self.failing.clone()
    }

    /// Another number after every change of what objects say: whoever has made something of the map asks whether it is still
    /// of this one.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .revision
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

/// Watches objects and keeps them decoded. `changed` is called after the map has the new state: with the key of a changed
/// object, or with `None` when a first or repeated listing is complete, or is refused.
pub fn watch<K, T>(
    api: Api<K>,
    fields: Option<&str>,
    decode: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let what = api.resource_url().to_owned();
    let stream = watch_objects(api, config(fields));
    follow(what, stream, decode, changed)
}

/// How objects are watched; `fields` selects among them.
pub(crate) fn config(fields: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().timeout(60);
    match fields {
        Some(fields) => config.fields(fields),
        None => config,
    }
}

/// The same for the objects that a label selector chooses.
pub fn watch_labelled<K, T>(
    api: Api<K>,
    labels: &str,
    decode: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let config = watcher::Config::default().timeout(60).labels(labels);
    let what = api.resource_url().to_owned();
    follow(what, watch_objects(api, config), decode, changed)
}

/// The same over any stream of watch events; `what` names it in the log.
pub fn follow<K, T>(
    what: String,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    decode: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    follow_kind(what, stream, Unserved::new(None), decode, changed)
}

/// The same with what is waited for while the kind is not served.
pub(crate) fn follow_kind<K, T>(
    what: String,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    unserved: Unserved,
    decode: impl Fn(&K) -> T + Send + 'static,
    changed: impl Fn(Option<&ObjectKey>) + Send + 'static,
) -> Cache<T>
where
    K: Resource + Send + 'static,
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let shared = Arc::new(RwLock::new(Inner {
        map: BTreeMap::new(),
        ready: false,
        revision: 0,
        refused: None,
    }));
    let inner = Arc::clone(&shared);
    let (failing, failures) = channel::channel(false);
    let mut health = Health::new(what, unserved, failing);
    let task = tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        let mut fresh: BTreeMap<ObjectKey, Entry<T>> = BTreeMap::new();
        while let Some(event) = health.next(&mut stream).await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    health.fails(&error);
                    if refusal(&error).is_some_and(|code| is_news(&inner, code)) {
                        health.tells_refusal(&error);
                        changed(None);
                    }
                    health.pauses.after(&error).await;
                    continue;
                }
            };
            let says = !matches!(event, Event::Init | Event::InitApply(_));
            let keys = step(&inner, &mut fresh, event, &decode);
            if says {
                health.works();
            }
            for key in keys {
                changed(key.as_ref());
            }
        }
    });
    Cache {
        inner: shared,
        failing: failures,
        watch: Arc::new(Watch(task.abort_handle())),
    }
}

/// An error with all its causes, in one line; what says no more than the one above it is left out.
pub(crate) fn telling(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Remembers that a listing was refused; true where that is news.
fn is_news<T>(inner: &RwLock<Inner<T>>, code: u16) -> bool {
    let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
    inner.refused.replace(code) != Some(code)
}

/// Applies one event; returns what to tell.
fn step<K: Resource, T: Clone + PartialEq>(
    inner: &RwLock<Inner<T>>,
    fresh: &mut BTreeMap<ObjectKey, Entry<T>>,
    event: Event<K>,
    decode: impl Fn(&K) -> T,
) -> Vec<Option<ObjectKey>> {
    let entry = |object: &K| {
        let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
        let uid = object.uid().unwrap_or_default();
        (
            key,
            Entry {
                uid,
                version: object.resource_version().unwrap_or_default(),
                value: decode(object),
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
        Event::InitDone => replace(inner, std::mem::take(fresh)),
        Event::Apply(object) => {
            let (key, entry) = entry(&object);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            let same = inner.map.get(&key).is_some_and(|old| old.says(&entry));
            inner.map.insert(key.clone(), entry);
            inner.revision += u64::from(!same);
            if same { Vec::new() } else { vec![Some(key)] }
        }
        Event::Delete(object) => {
            let (key, _) = entry(&object);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            let there = inner.map.remove(&key).is_some();
            inner.revision += u64::from(there);
            if there { vec![Some(key)] } else { Vec::new() }
        }
    }
}

/// Replaces the map by what was listed; returns what to tell.
fn replace<T: PartialEq>(
    inner: &RwLock<Inner<T>>,
    fresh: BTreeMap<ObjectKey, Entry<T>>,
) -> Vec<Option<ObjectKey>> {
    let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
    let keys: BTreeSet<&ObjectKey> = inner.map.keys().chain(fresh.keys()).collect();
    let reported: Vec<Option<ObjectKey>> = keys
        .into_iter()
        .filter(|key| match (inner.map.get(*key), fresh.get(*key)) {
            (Some(old), Some(new)) => !old.says(new),
            _ => true,
        })
        .map(|key| Some(key.clone()))
        .collect();
    let first = !inner.ready;
    let answers_again = inner.refused.take().is_some();
    inner.map = fresh;
    inner.ready = true;
    inner.revision += u64::from(first || !reported.is_empty());
    if first {
        vec![None]
    } else {
        let all = reported.into_iter();
        all.chain(answers_again.then_some(None)).collect()
    }
}

#[cfg(test)]
mod tests;
