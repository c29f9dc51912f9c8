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
    of_object: bool,
}

/// How the text for other daemons begins where it has what OpenShift's operator object says: it outlives the object.
const OF_OBJECT: &str = "# of operator.openshift.io Network cluster\n";

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

    /// The keys that other daemons put over their file.
    pub(super) fn operator_file(&self, settings: &Settings) -> String {
        let enabled = settings.features.route_advertisements;
        let mut text = String::new();
        if self.of_object {
            text.push_str(OF_OBJECT);
        }
        text.push_str(&settings.network_in_force());
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

/// What is asked for by the file and OpenShift's operator object over it.
#[derive(Debug, PartialEq)]
struct Wanted {
    settings: Settings,
    /// They have what the object says, or said the last time.
    of_object: bool,
    /// Why they do not have what it says now.
    refused: Option<String>,
}

/// The file's settings with what the object says over them. Where the object is gone or wrong, what it said the last time stays:
/// `last`, the settings of then. A file is read where a daemon has none only in tests of other things.
fn wanted(file: &Followed, object: Option<Asked>, last: Option<&Settings>) -> Wanted {
    let over = match (object, last) {
        (Some(Ok(over)), _) => over,
        (Some(Err(why)), _) => return kept(file, last, format!("Network cluster: {why}")),
        (None, Some(_)) => {
            let why = "Network cluster is not there any more: what it said last stays in force";
            return kept(file, last, why.to_owned());
        }
        (None, None) => {
            return Wanted {
                settings: file.settings.clone(),
                of_object: false,
                refused: None,
            };
        }
    };
    match read_over(file, "Network cluster", &over) {
        Ok(settings) => Wanted {
            settings,
            of_object: true,
            refused: None,
        },
        Err(why) => kept(file, last, why),
    }
}

fn kept(file: &Followed, last: Option<&Settings>, refused: String) -> Wanted {
    let settings = file.settings.clone();
    Wanted {
        settings: match last {
            Some(last) => settings.with_operator_of(last),
            None => settings,
        },
        of_object: last.is_some(),
        refused: Some(refused),
    }
}

/// The file's settings with those that another text has over it.
fn read_over(file: &Followed, what: &str, over: &str) -> Result<Settings, String> {
    let Some((name, text)) = &file.file else {
        return Ok(file.settings.clone());
    };
    let daemon = settings::Daemon::ClusterManager;
    let parsed = settings::parse_over(name, text, (what, over), daemon);
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
        let last = match &seen {
            Some(_) => self.in_force.of_object.then(|| self.settings.clone()),
            None => self.rendered_before(&file),
        };
        let wanted = wanted(&file, object, last.as_ref());
        self.in_force.of_object = wanted.of_object;
        let mut refused = file.refused.clone();
        refused.extend(wanted.refused);
        let asked = wanted.settings;
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

    /// What OpenShift's operator object said before this start, as other daemons were told.
    fn rendered_before(&self, file: &Followed) -> Option<Settings> {
        let text = self.caches.operator.as_ref()?.rendered()??;
        if !text.starts_with(OF_OBJECT) {
            return None;
        }
        let read = read_over(file, &format!("ConfigMap {}", CONFIG_MAP.0), &text);
        read.inspect_err(|error| {
            tracing::warn!(error, "cannot be read: what the file says is in force")
        })
        .ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\ntransport = \"geneve\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n[openshift]\nenable = true\n";
    const OBJECT: &str = "[default]\ntransport = \"geneve\"\n[bgp-managed]\ntopology = \"route-reflector\"\nas-number = 64900\n";

    fn followed(text: &str) -> Followed {
        let name = "noverlay.toml";
        let daemon = settings::Daemon::ClusterManager;
        let settings = settings::parse(name, text, daemon.metrics_default()).unwrap();
        let file = Some((name.to_owned(), text.to_owned()));
        Followed {
            file,
            ..Followed::from(settings)
        }
    }

    #[test]
    fn what_the_operator_object_said_stays_when_it_goes_or_is_wrong() {
        let plain = FILE.replace(
            "[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n",
            "",
        );
        for text in [FILE, &plain] {
            let file = followed(text);
            let said = wanted(&file, Some(Ok(OBJECT.to_owned())), None);
            assert_eq!((said.of_object, &said.refused), (true, &None));
            assert_eq!(said.settings.managed.asn.get(), 64900);
            let wrong = OBJECT.replace("64900", "23456");
            for (object, word) in [
                (None, "not there any more"),
                (Some(Err("no topology".to_owned())), "no topology"),
                (Some(Ok(wrong)), "23456"),
            ] {
                let now = wanted(&file, object, Some(&said.settings));
                assert_eq!(
                    (&now.settings, now.of_object),
                    (&said.settings, true),
                    "{word}"
                );
                assert!(now.refused.is_some_and(|why| why.contains(word)), "{word}");
            }
        }
    }

    #[test]
    fn without_an_object_that_ever_was_the_file_holds() {
        let file = followed(FILE);
        let now = wanted(&file, None, None);
        assert_eq!(
            (now.settings, now.of_object, now.refused),
            (file.settings.clone(), false, None)
        );
        let now = wanted(&file, Some(Err("no topology".to_owned())), None);
        assert_eq!(
            (now.settings, now.of_object),
            (file.settings.clone(), false)
        );
        assert_eq!(now.refused.as_deref(), Some("Network cluster: no topology"));
    }
}
