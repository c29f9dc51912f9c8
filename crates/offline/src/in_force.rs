//! The settings that the cluster-manager would plan with.
//! In: its file, the objects that it reads settings from. Out: settings, and what of file and objects is not in force.
//! Invariant: what decides is the manager's own (`settings`). Not here: the file, plans.

use api::operator_network::{Network, settings_of};
use model::network::IN_FORCE;
use serde_json::Value;
use settings::{File, InForce, Settings};

use crate::Objects;
use crate::kind::{CONFIG_MAP, NAD, NETWORK};

/// The ConfigMap that the manager keeps what the operator object said in, and the key.
const OPERATOR: (&str, &str) = ("noverlay-system/noverlay-operator", "operator.toml");

/// What is in force of `file` in a cluster with these objects; `before` is what was, where the manager has run meanwhile.
/// What the manager keeps in objects and cannot read counts as not there, as it does for the manager, and is refused by name.
#[must_use]
pub fn in_force(file: File<'_>, objects: &Objects, before: Option<&InForce>) -> InForce {
    let openshift = file.settings.openshift.is_some();
    let object = objects.get(NETWORK, "cluster").filter(|_| openshift);
    let object = object.map(|object| {
        let typed = serde_json::from_value::<Network>(object.clone());
        let typed = typed.map_err(|error| format!("the object cannot be read: {error}"));
        typed.and_then(|typed| settings_of(&typed))
    });
    let mut unread = Vec::new();
    let mut read = |kept: Result<Option<Settings>, String>| {
        kept.unwrap_or_else(|error| {
            unread.push(format!("{error}; what the file says is in force"));
            None
        })
    };
    let (last, running) = match before {
        Some(before) => (
            before.of_object.then(|| before.settings.clone()),
            Some(before.settings.clone()),
        ),
        None => (
            read(last(file, objects)).filter(|_| openshift),
            read(stored(file.settings, objects)),
        ),
    };
    let mut out = file.in_force(object, last.as_ref(), running.as_ref());
    out.refused.extend(unread);
    out
}

/// What the operator object said the last time.
fn last(file: File<'_>, objects: &Objects) -> Result<Option<Settings>, String> {
    let (name, key) = OPERATOR;
    let map = objects.get(CONFIG_MAP, name);
    let text = map.and_then(|map| map.get("data")?.get(key)?.as_str());
    match text {
        Some(text) => file.last(&format!("{CONFIG_MAP} {name}"), text),
        None => Ok(None),
    }
}

/// What the default network runs with.
fn stored(settings: &Settings, objects: &Objects) -> Result<Option<Settings>, String> {
    let key = settings.network.nad.to_string();
    let annotations = objects.get(NAD, &key);
    let annotations = annotations.and_then(|object| object.pointer("/metadata/annotations"));
    let text = annotations.and_then(|all| all.get(IN_FORCE).and_then(Value::as_str));
    let what = format!("annotation {IN_FORCE} of {NAD} {key}");
    let read = text.map(|text| Settings::of_network_in_force(&what, text));
    read.transpose().map_err(|error| error.to_string())
}
