//! OpenShift's operator object, and the ConfigMap that is made of it.
//! In: watches, where `[openshift] enable` is true. Out: keys that replace those of the configuration file.
//! Invariant: an object that cannot be read is there with the reason.
//! Not here: the fields (`api`), what becomes of the keys.

use api::operator_network::{Network, settings_of};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use kube_edge::{Cache, Installed, untyped, watch};
use model::ObjectKey;
use reconcile::WorkQueue;

use crate::key::Key;

/// Keys in TOML, or what is wrong with the object.
pub(crate) type Asked = Result<String, String>;

/// Name and key of the ConfigMap, in the manager's own namespace.
pub(crate) const CONFIG_MAP: (&str, &str) = ("noverlay-operator", "operator.toml");

/// Both caches.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    object: Cache<Asked>,
    rendered: Cache<Option<String>>,
}

impl Operator {
    pub(super) fn start(
        client: &kube::Client,
        installed: &Installed,
        queue: &WorkQueue<Key>,
    ) -> Self {
        let resync = |queue: &WorkQueue<Key>| {
            let queue = queue.clone();
            move |_: Option<&ObjectKey>| queue.resync()
        };
        let objects = untyped::<Network>(client.clone(), None);
        let namespace = crate::LEASE.0;
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client.clone(), namespace);
        let by_name = format!("metadata.name={}", CONFIG_MAP.0);
        Self {
            object: installed.watch(objects, Some("metadata.name=cluster"), asked, resync(queue)),
            rendered: watch(
                maps,
                Some(&by_name),
                |map: &ConfigMap| map.data.as_ref()?.get(CONFIG_MAP.1).cloned(),
                resync(queue),
            ),
        }
    }

    /// Whether the object is known; the status with which its listing is refused.
    pub(super) fn state(&self) -> (bool, Option<u16>) {
        (self.object.ready(), self.object.refused())
    }

    /// Whether it is known what was made of it before: one that may not be read is no answer.
    pub(super) fn is_read(&self) -> bool {
        self.rendered.ready()
    }

    /// What the object asks for; none where it is not there.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let key = ObjectKey::new("", "cluster");
        Some(self.object.get(&key)?.value)
    }

    /// The ConfigMap's text; none before it is known.
    pub(crate) fn rendered(&self) -> Option<Option<String>> {
        let key = ObjectKey::new(crate::LEASE.0, CONFIG_MAP.0);
        let text = || self.rendered.get(&key).and_then(|entry| entry.value);
        self.rendered.ready().then(text)
    }
}

fn asked(object: &DynamicObject) -> Asked {
    let typed = object.clone().try_parse::<Network>();
    let typed = typed.map_err(|err| format!("the object cannot be read: {err}"))?;
    settings_of(&typed)
}
