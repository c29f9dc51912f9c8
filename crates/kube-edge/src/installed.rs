//! Which custom resources the API server has, so that a kind that is not installed need not be asked for again and again.
//! In: a watch of the metadata of CustomResourceDefinitions. Out: when it is worth asking for a kind again.
//! Invariant: while definitions cannot be listed or watched nothing is known of any kind, and each is asked for at intervals.
//! Not here: schemas (`daemon::crds`); whether a kind is served, which only asking for it tells.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt};
use model::ObjectKey;
use reconcile::Backoff;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::{self, Cache};

/// Between attempts while nothing is known of definitions; grows to the second.
const UNKNOWN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// The same for a kind that was listed before: the API server has mostly begun anew, and serves it soon.
const LISTED: (Duration, Duration) = (Duration::from_millis(200), UNKNOWN.1);
/// The same while there is no definition: it may be served by an aggregated API server.
const ABSENT: Duration = Duration::from_secs(1200);
/// While there is one: the kind is served soon after, or something is wrong; that it is not served is nobody's normal state.
const PRESENT: (Duration, Duration) = LISTED;

/// Called after a change of the definitions.
type Changed = Box<dyn Fn(Option<&ObjectKey>) + Send>;

/// The definitions that the API server has; cheap to clone.
#[derive(Debug, Clone)]
pub struct Installed {
    /// `metadata.resourceVersion` by name.
    definitions: Cache<String>,
    changes: watch::Receiver<()>,
}

impl Installed {
    /// Begins to watch the definitions, of which only the metadata are asked for.
    #[must_use]
    pub fn start(client: &kube::Client) -> Self {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
        Self::of(|changed| cache::watch(api, None, Self::version, changed))
    }

    fn of(cache: impl FnOnce(Changed) -> Cache<String>) -> Self {
        let (changed, changes) = watch::channel(());
        Self {
            definitions: cache(Box::new(move |_| changed.send_replace(()))),
            changes,
        }
    }

    fn version(object: &PartialObjectMeta<CustomResourceDefinition>) -> String {
        object.resource_version().unwrap_or_default()
    }

    /// [`cache::watch`] of a kind that may not be installed: it is asked for again when its definition comes or changes.
    pub fn watch<K, T>(
        &self,
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
        let unserved = Unserved::new(name(&what).map(|name| (self.clone(), name)));
        let stream = watcher(api, cache::config(fields));
        cache::follow_kind(what, stream, unserved, decode, changed)
    }

    /// Whether the API server is known to have no definition of a kind: then there are no objects of it.
    #[must_use]
    pub fn lacks<K: Resource<DynamicType = ()>>(&self) -> bool {
        let name = format!("{}.{}", K::plural(&()), K::group(&()));
        self.definition(&name) == Definition::Absent
    }

    fn definition(&self, name: &str) -> Definition {
        let all = &self.definitions;
        // One that came while the watch fails is not in the map.
        if all.failing() || all.refused().is_some() || !all.ready() {
            return Definition::Unknown;
        }
        let entry = self.definitions.get(&ObjectKey::new("", name));
        entry.map_or(Definition::Absent, |entry| Definition::Present(entry.value))
    }
}

/// The definition's name of a kind that has this URL; none of the kinds that are the API server's own.
fn name(url: &str) -> Option<String> {
    let mut parts = url.strip_prefix("/apis/")?.split('/');
    let group = parts.next()?;
    let plural = parts.next_back()?;
    Some(format!("{plural}.{group}"))
}

/// What is known of a kind's definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Definition {
    Unknown,
    Absent,
    /// With its version, which tells one change from the next.
    Present(String),
}

/// Waiting for a kind that the API server answers 404 for.
#[derive(Debug)]
pub(crate) struct Unserved {
    kind: Option<(Installed, String)>,
    /// The version of its definition that was seen last.
    last: Option<String>,
    /// It was served before.
    listed: bool,
    unknown: Backoff,
    absent: Backoff,
    present: Backoff,
}

impl Unserved {
    /// Without the name of a definition: by the clock alone.
    pub(crate) fn new(kind: Option<(Installed, String)>) -> Self {
        Self {
            kind,
            last: None,
            listed: false,
            unknown: Backoff::new(UNKNOWN.0, UNKNOWN.1).with_jitter(),
            absent: Backoff::new(ABSENT, ABSENT).with_jitter(),
            present: Backoff::new(PRESENT.0, PRESENT.1).with_jitter(),
        }
    }

    /// The kind is served.
    pub(crate) fn is_over(&mut self) {
        if !self.listed {
            self.listed = true;
            self.unknown = Backoff::new(LISTED.0, LISTED.1).with_jitter();
        }
        self.begins_anew();
    }

    /// Pauses are short again.
    pub(crate) fn begins_anew(&mut self) {
        self.unknown.reset();
        self.present.reset();
    }

    /// Returns when it is worth asking again.
    pub(crate) async fn wait(&mut self) {
        // What is seen again has no new time: else a watch of definitions that breaks again and again would defer it for ever.
        let mut times = BTreeMap::new();
        loop {
            let seen = self.definition();
            let time = *times
                .entry(seen.clone())
                .or_insert_with(|| Instant::now() + self.pause(&seen));
            tokio::select! {
                () = tokio::time::sleep_until(time) => return,
                () = self.differs(&seen) => {}
            }
        }
    }

    fn definition(&self) -> Definition {
        let kind = self.kind.as_ref();
        kind.map_or(Definition::Unknown, |(all, name)| all.definition(name))
    }

    fn pause(&mut self, seen: &Definition) -> Duration {
        match seen {
            Definition::Unknown => self.unknown.pause(),
            Definition::Absent => self.absent.pause(),
            Definition::Present(version) => {
                if self.last.as_ref() != Some(version) {
                    self.last = Some(version.clone());
                    self.present.reset();
                }
                self.present.pause()
            }
        }
    }

    /// Returns when the definition is no longer as it was seen.
    async fn differs(&self, seen: &Definition) {
        if let Some((all, name)) = &self.kind {
            let (mut changes, mut failures) = (all.changes.clone(), all.definitions.failures());
            loop {
                // Before it is looked at, so that what comes after is not missed.
                changes.mark_unchanged();
                failures.mark_unchanged();
                if all.definition(name) != *seen {
                    return;
                }
                let told = tokio::select! {
                    told = changes.changed() => told,
                    told = failures.changed() => told,
                };
                if told.is_err() {
                    break;
                }
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
