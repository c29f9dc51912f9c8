//! The settings that plans are made with, when the file changes and after a start.
//! In: the file as it is followed, OpenShift's operator object, the default network's object. Out: settings; an event when something else is refused.
//! Invariant: transport and routing of the default network stay what its object says, or what they were before it had one.
//! Not here: what may change (`settings`), the object itself (`attachment`).

use std::sync::Arc;

use daemon::{Configuration, Followed};
use model::ObjectKey;
use model::intent::Event;
use plan_cluster::attachments::{Configured, IN_FORCE};
use settings::Settings;

use super::ClusterReconciler;
use crate::caches;
use crate::caches::operator::{Asked, Operator};

/// What is in force, and what was told of it.
#[derive(Debug)]
pub(super) struct InForce {
    configuration: Configuration,
    /// The file as it was looked at the last time, and the operator object over it.
    seen: Option<(Arc<Followed>, Option<Asked>)>,
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

    /// The keys that other daemons put over their file.
    pub(super) fn operator_file(&self, settings: &Settings) -> String {
        let enabled = settings.features.route_advertisements;
        let mut text = settings.network_in_force();
        if settings.managed.topology.is_some() && !text.contains("[bgp-managed]") {
            text.push_str(&settings.fabric_in_force());
        }
        text + &format!("[ovnkubernetesfeature]\nenable-route-advertisements = {enabled}\n")
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

/// The file's settings with what the object says over them; without a file, as in tests of other things, the object says nothing.
fn with_operator(file: &Followed, object: Option<Asked>) -> Result<Settings, String> {
    let (Some(asked), Some((name, text))) = (object, &file.file) else {
        return Ok(file.settings.clone());
    };
    let over = asked.map_err(|why| format!("Network cluster: {why}"))?;
    let daemon = settings::Daemon::ClusterManager;
    let parsed = settings::parse_over(name, text, ("Network cluster", &over), daemon);
    match parsed {
        Ok(other) => Ok(file.settings.clone().with_operator_of(&other)),
        Err(error) => Err(telemetry::Chain(&error).to_string()),
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
        let mut refused = file.refused.clone();
        let asked = with_operator(&file, object).unwrap_or_else(|error| {
            refused.push(error);
            // What the object said the last time holds.
            let running = seen.is_some().then(|| self.settings.clone());
            let running = running.unwrap_or_else(|| file.settings.clone());
            file.settings.clone().with_operator_of(&running)
        });
        let running = match seen {
            Some(_) => self.settings.clone(),
            None => {
                let stored = self.stored(&file.settings.network.nad);
                stored.unwrap_or_else(|| asked.clone())
            }
        };
        let kept = asked.keeping_network(&running);
        let settings = kept.settings;
        refused.extend(kept.refused);
        for refused in refused.iter().skip(file.refused.len()) {
            tracing::warn!("{refused}");
        }
        self.in_force.configured = Configured {
            in_force: settings.network_in_force(),
            refused,
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
