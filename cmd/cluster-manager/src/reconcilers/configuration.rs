//! The settings that plans are made with, when the file changes and after a start.
//! In: the file as it is followed, OpenShift's operator object, the default network's object. Out: settings; an event when something else is refused.
//! Invariant: transport and routing of the default network stay what its object says, or what they were before it had one.
//! Not here: what may change (`settings`), the object itself (`attachment`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use daemon::{Configuration, Followed};
use kube_edge::Entry;
use model::intent::Event;

use model::network::{IN_FORCE, MissingRoute, NoOverlay, Routing, Transport};
use model::node::{Node, annotation};
use model::{NetworkName, ObjectKey};
use plan_cluster::attachments::Configured;
use settings::{File, OvnTopology, Settings};

use super::ClusterReconciler;
use crate::caches;
use crate::caches::operator::{Asked, CONFIG_MAP, Operator};

/// What is in force, and what was told of it.
#[derive(Debug)]
pub(super) struct InForce {
    configuration: Configuration,
    /// The file as it was looked at the last time, and the operator object over it.
    seen: Option<(Arc<Followed>, Option<Asked>)>,
    /// What goes into the default network's object.
    pub(super) configured: Configured,
    told: Vec<String>,
    /// What is in force has what OpenShift's operator object says, or said the last time.
    pub(super) of_object: bool,
    /// Beside OVN-Kubernetes: the default network goes back to tunnels when no node is past them any more.
    waits: bool,
    /// What was said of those that are waited for.
    told_waiting: BTreeSet<String>,
}

impl InForce {
    pub(super) fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            seen: None,
            configured: Configured::default(),
            told: Vec::new(),
            of_object: false,
            waits: false,
            told_waiting: BTreeSet::new(),
        }
    }

    /// What to tell, where it is something new.
    pub(super) fn event(&mut self) -> Option<Event> {
        let refused = &self.configured.refused;
        if *refused == self.told {
            return None;
        }
        self.told.clone_from(refused);
        Some(if refused.is_empty() {
            Event {
                warning: false,
                reason: "ConfigurationInForce",
                message: "all of the configuration is in force".to_owned(),
            }
        } else {
            Event {
                warning: true,
                reason: "ConfigurationRefused",
                message: refused.join("; "),
            }
        })
    }
}

/// What a default network beside OVN-Kubernetes runs with whose nodes are past the tunnels while the configuration says `geneve`,
/// as far as that can be told: the fabric is managed where there is one.
fn past_the_tunnels(file: &Settings) -> Settings {
    let managed = file.managed.topology.is_some();
    let mut settings = file.clone();
    if settings.network.transport.no_overlay().is_none() {
        settings.network.transport = Transport::NoOverlay(NoOverlay {
            outbound_snat: true,
            routing: if managed {
                Routing::Managed
            } else {
                Routing::Unmanaged
            },
            missing_route: MissingRoute::Forward,
        });
    }
    settings
}

/// The file as planners of settings take it.
fn file_of(followed: &Followed) -> File<'_> {
    let text = followed.file.as_ref();
    File {
        settings: &followed.settings,
        text: text.map(|(name, text)| (name.as_str(), text.as_str())),
    }
}

impl ClusterReconciler {
    /// Takes over what the file and OpenShift's operator object say since the last pass. The caches have to be filled.
    pub(super) fn configure(&mut self) {
        let file = self.in_force.configuration.now();
        let object = self.caches.operator.as_ref().and_then(Operator::asked);
        let seen = self
            .in_force
            .seen
            .replace((Arc::clone(&file), object.clone()));
        if let Some((last, last_object)) = &seen
            && Arc::ptr_eq(last, &file)
            && *last_object == object
            && !self.in_force.waits
        {
            return;
        }
        let last = match &seen {
            Some(_) => self.in_force.of_object.then(|| self.settings.clone()),
            None => self.rendered_before(&file),
        };
        let adopts = file.settings.ovn.topology == OvnTopology::Adopt;
        let running = match seen {
            Some(_) => Some(self.settings.clone()),
            // Nobody keeps there what is in force: nodes tell what they do.
            None if adopts => Some(past_the_tunnels(&file.settings)),
            None => self.stored(&file.settings.network.nad),
        };
        let past = match &running {
            Some(running) if adopts => self.still_past(running, &file),
            _ => Vec::new(),
        };
        self.in_force.waits = !past.is_empty();
        // Beside OVN-Kubernetes each node changes its way without loss, whatever the others do; but what nodes send by the physical
        // network is announced until they do not.
        let running = running.filter(|_| !adopts || self.in_force.waits);
        let mut now = file_of(&file).in_force(object, last.as_ref(), running.as_ref());
        if now.network_stays && self.in_force.waits {
            // The last is what nobody has to change here.
            now.refused.pop();
            let nodes = past.join(", ");
            now.refused.push(format!(
                "the configuration says geneve: what nodes send past the tunnels is announced until none does; still: {nodes} (annotation {})",
                annotation::UNDERLAY_READY
            ));
            now.refused
                .retain(|refused| !self.in_force.told_waiting.contains(refused));
            self.in_force
                .told_waiting
                .extend(now.refused.iter().cloned());
        } else {
            self.in_force.told_waiting.clear();
        }
        let settings = now.settings;
        self.in_force.of_object = now.of_object;
        for refused in &now.refused {
            tracing::warn!("{refused}");
        }
        self.in_force.configuration.tell_kept(now.refused.len());
        let refused = [file.refused.clone(), now.refused].concat();
        self.in_force.configured = Configured {
            in_force: settings.network_in_force(),
            refused,
            network_stays: now.network_stays,
        };
        if settings != self.settings {
            self.take(settings);
        }
    }

    /// The nodes that are past the tunnels still, where the default network is to go back to them. One that is known not to be
    /// ready sends nothing.
    fn still_past(&self, running: &Settings, file: &Followed) -> Vec<String> {
        let no_overlay = |settings: &Settings| settings.network.transport.no_overlay().is_some();
        if !no_overlay(running) || no_overlay(&file.settings) {
            return Vec::new();
        }
        let default = NetworkName::default_network();
        self.caches
            .nodes
            .with(|nodes: &BTreeMap<ObjectKey, Entry<Node>>| {
                let nodes = nodes.values().map(|entry| &entry.value);
                let past = nodes.filter(|node| {
                    node.underlay_ready.contains_key(&default) && node.ready != Some(false)
                });
                past.map(|node| node.name.to_string()).collect()
            })
    }

    /// What OpenShift's operator object said before this start, as other daemons were told.
    fn rendered_before(&self, file: &Followed) -> Option<Settings> {
        let text = self.caches.operator.as_ref()?.rendered()??;
        let last = file_of(file).last(&format!("ConfigMap {}", CONFIG_MAP.0), &text);
        last.inspect_err(|error| {
            tracing::warn!(error, "cannot be read: what the file says is in force");
        })
        .ok()?
    }

    /// What the object of the default network says.
    fn stored(&self, key: &ObjectKey) -> Option<Settings> {
        let object = self.caches.attachments.get(key)?.value;
        let text = object.annotations.get(IN_FORCE)?;
        let what = format!("annotation {IN_FORCE} of NetworkAttachmentDefinition {key}");
        match Settings::of_network_in_force(&what, text) {
            Ok(stored) => Some(stored),
            Err(error) => {
                let error = telemetry::Chain(&error).to_string();
                tracing::warn!(error, "cannot be read: what the file says is in force");
                None
            }
        }
    }

    fn take(&mut self, settings: Settings) {
        let reported = |s: &Settings| {
            (
                s.managed.topology.is_some(),
                s.managed.frr_namespace.clone(),
            )
        };
        if reported(&settings) != reported(&self.settings) {
            let (client, queue) = (&self.clients.client, &self.clients.queue);
            let installed = &self.caches.installed;
            self.caches.sessions = caches::sessions(client, installed, &settings, queue);
        }
        self.settings = settings;
        self.worlds.forget();
    }
}
