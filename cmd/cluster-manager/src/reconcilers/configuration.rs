//! The settings that plans are made with, when the file changes and after a start.
//! In: the file as it is followed, OpenShift's operator object, the default network's object. Out: settings; an event when something else is refused.
//! Invariant: transport and routing of the default network stay what its object says, or what they were before it had one.
//! Not here: what may change (`settings`), the object itself (`attachment`).

use std::sync::Arc;

use daemon::{Configuration, Followed};
use model::ObjectKey;
use model::intent::Event;
use model::network::IN_FORCE;
use plan_cluster::attachments::Configured;
use settings::{File, Settings};

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
}

impl InForce {
    pub(super) fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            seen: None,
            configured: Configured::default(),
            told: Vec::new(),
            of_object: false,
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
        {
            return;
        }
        let last = match &seen {
            Some(_) => self.in_force.of_object.then(|| self.settings.clone()),
            None => self.rendered_before(&file),
        };
        let running = match seen {
            Some(_) => Some(self.settings.clone()),
            None => self.stored(&file.settings.network.nad),
        };
        let now = file_of(&file).in_force(object, last.as_ref(), running.as_ref());
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
