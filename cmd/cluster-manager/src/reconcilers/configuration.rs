//! The settings that plans are made with, when the file changes and after a start.
//! In: the file as it is followed, the default network's object. Out: settings; an event when something else is refused.
//! Invariant: transport and routing of the default network stay what its object says, or what they were before it had one.
//! Not here: what may change (`settings`), the object itself (`attachment`).

use std::sync::Arc;

use daemon::Configuration;
use model::ObjectKey;
use model::intent::Event;
use plan_cluster::attachments::{Configured, IN_FORCE};
use settings::{Kept, Settings};

use super::ClusterReconciler;
use crate::caches;

/// What is in force, and what was told of it.
#[derive(Debug)]
pub(super) struct InForce {
    configuration: Configuration,
    /// The file as it was looked at the last time.
    seen: Option<Arc<Kept>>,
    /// What goes into the default network's object.
    pub(super) configured: Configured,
    told: Vec<String>,
}

impl InForce {
    pub(super) fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            seen: None,
            configured: Configured::default(),
            told: Vec::new(),
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
                message: "all of the configuration file is in force".to_owned(),
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

impl ClusterReconciler {
    /// Takes over what the file says since the last pass. The caches have to be filled.
    pub(super) fn configure(&mut self) {
        let file = self.in_force.configuration.now();
        let seen = self.in_force.seen.replace(Arc::clone(&file));
        if seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &file)) {
            return;
        }
        let running = match seen {
            Some(_) => self.settings.clone(),
            None => self
                .stored(&file.settings.network.nad)
                .unwrap_or_else(|| file.settings.clone()),
        };
        let Kept { settings, refused } = file.settings.clone().keeping_network(&running);
        for refused in &refused {
            tracing::warn!("{refused}");
        }
        self.in_force.configured = Configured {
            in_force: settings.network_in_force(),
            refused: file.refused.iter().chain(&refused).cloned().collect(),
        };
        if settings != self.settings {
            self.take(settings);
        }
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
            self.caches.sessions = caches::sessions(client, &settings, queue);
        }
        self.settings = settings;
        self.worlds.forget();
    }
}
