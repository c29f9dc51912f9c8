//! The configuration file with what OpenShift's operator object says over it, and with what has to stay.
//! In: the file, the object's keys, what it said before, what the default network runs with. Out: settings, and why they are not
//! what is asked for.
//! Invariant: an object that is gone or wrong changes nothing; transport and routing of the default network stay.
//! Not here: the object's fields (`api`), where texts are kept.

use crate::{Daemon, Settings};

/// How the text for other daemons begins where it has what OpenShift's operator object says: it outlives the object.
const OF_OBJECT: &str = "# of operator.openshift.io Network cluster\n";

/// The cluster-manager's file: its settings, and where they were read from one, its name and text.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Its settings.
    pub settings: &'a Settings,
    /// Name and text.
    pub text: Option<(&'a str, &'a str)>,
}

/// What the cluster-manager goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The settings.
    pub settings: Settings,
    /// They have what OpenShift's operator object says, or said the last time.
    pub of_object: bool,
    /// Why they do not have what file and object say; a sentence each.
    pub refused: Vec<String>,
    /// Another transport or routing is asked for than the default network runs with, and that stays.
    pub network_stays: bool,
}

impl File<'_> {
    /// What is in force of file and object. `object`: the object's keys in TOML, or what is wrong with it; `None` where there is
    /// none. `last`: settings with what it said the last time. `running`: what the default network runs with; `None` where it
    /// runs with nothing yet.
    #[must_use]
    pub fn in_force(
        self,
        object: Option<Result<String, String>>,
        last: Option<&Settings>,
        running: Option<&Settings>,
    ) -> InForce {
        let mut asked = self.asked(object, last);
        if let Some(running) = running {
            let kept = asked.settings.keeping_network(running);
            asked.settings = kept.settings;
            asked.network_stays = !kept.refused.is_empty();
            asked.refused.extend(kept.refused);
        }
        asked
    }

    /// The file's settings with what the object says over them. Where the object is gone or wrong, what it said the last time
    /// stays.
    fn asked(self, object: Option<Result<String, String>>, last: Option<&Settings>) -> InForce {
        let over = match (object, last) {
            (Some(Ok(over)), _) => over,
            (Some(Err(why)), _) => return self.kept(last, format!("Network cluster: {why}")),
            (None, Some(_)) => {
                let why = "Network cluster is not there any more: what it said last stays in force";
                return self.kept(last, why.to_owned());
            }
            (None, None) => {
                return InForce {
                    settings: self.settings.clone(),
                    of_object: false,
                    refused: Vec::new(),
                    network_stays: false,
                };
            }
        };
        match self.under("Network cluster", &over) {
            Ok(settings) => InForce {
                settings,
                of_object: true,
                refused: Vec::new(),
                network_stays: false,
            },
            Err(why) => self.kept(last, why),
        }
    }

    fn kept(self, last: Option<&Settings>, refused: String) -> InForce {
        let settings = self.settings.clone();
        InForce {
            settings: match last {
                Some(last) => settings.with_operator_of(last),
                None => settings,
            },
            of_object: last.is_some(),
            refused: vec![refused],
            network_stays: false,
        }
    }

    /// The settings with those that another text has over them; `what` names it.
    fn under(self, what: &str, over: &str) -> Result<Settings, String> {
        // Settings without a file are those of tests of other things.
        let Some(file) = self.text else {
            return Ok(self.settings.clone());
        };
        let parsed = crate::parse_over(file.0, file.1, (what, over), Daemon::ClusterManager);
        let parsed = parsed.map_err(|error| error.to_string())?;
        Ok(self.settings.clone().with_operator_of(&parsed))
    }

    /// What the object said when `text` was made by [`Settings::operator_text`]; `None` where it had said nothing.
    ///
    /// # Errors
    /// Where the text cannot be read; `what` names it.
    pub fn last(self, what: &str, text: &str) -> Result<Option<Settings>, String> {
        if !text.starts_with(OF_OBJECT) {
            return Ok(None);
        }
        self.under(what, text).map(Some)
    }
}

impl Settings {
    /// The keys that other daemons put over their file. `of_object`: see [`InForce::of_object`].
    #[must_use]
    pub fn operator_text(&self, of_object: bool) -> String {
        let enabled = self.features.route_advertisements;
        let mut text = String::new();
        if of_object {
            text.push_str(OF_OBJECT);
        }
        text.push_str(&self.network_in_force());
        if self.managed.topology.is_some() && !text.contains("[bgp-managed]") {
            text.push_str(&self.fabric_in_force());
        }
        text + &format!("[ovnkubernetesfeature]\nenable-route-advertisements = {enabled}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\ntransport = \"geneve\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n[openshift]\nenable = true\n";
    const OBJECT: &str = "[default]\ntransport = \"geneve\"\n[bgp-managed]\ntopology = \"route-reflector\"\nas-number = 64900\n";

    fn read(text: &str) -> Settings {
        crate::parse("f.toml", text, Daemon::ClusterManager.metrics_default()).unwrap()
    }

    fn file<'a>(settings: &'a Settings, text: &'a str) -> File<'a> {
        File {
            settings,
            text: Some(("f.toml", text)),
        }
    }

    #[test]
    fn what_the_operator_object_said_stays_when_it_goes_or_is_wrong() {
        let plain = FILE.replace(
            "[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n",
            "",
        );
        for text in [FILE, &plain] {
            let settings = read(text);
            let file = file(&settings, text);
            let said = file.in_force(Some(Ok(OBJECT.to_owned())), None, None);
            assert_eq!((said.of_object, said.refused.len()), (true, 0));
            assert_eq!(said.settings.managed.asn.get(), 64900);
            let told = said.settings.operator_text(said.of_object);
            let again = file.last("ConfigMap", &told).unwrap();
            assert_eq!(again.as_ref(), Some(&said.settings), "over a restart");
            let wrong = OBJECT.replace("64900", "23456");
            for (object, word) in [
                (None, "not there any more"),
                (Some(Err("no topology".to_owned())), "no topology"),
                (Some(Ok(wrong)), "23456"),
            ] {
                let now = file.in_force(object, again.as_ref(), None);
                assert_eq!(
                    (&now.settings, now.of_object),
                    (&said.settings, true),
                    "{word}"
                );
                assert_eq!(now.refused.len(), 1, "{now:?}");
                assert!(now.refused[0].contains(word), "{now:?}");
            }
        }
    }

    #[test]
    fn without_an_object_that_ever_was_the_file_holds() {
        let settings = read(FILE);
        let file = file(&settings, FILE);
        let now = file.in_force(None, None, None);
        let expected = InForce {
            settings: settings.clone(),
            of_object: false,
            refused: Vec::new(),
            network_stays: false,
        };
        assert_eq!(now, expected);
        let told = now.settings.operator_text(now.of_object);
        assert_eq!(file.last("ConfigMap", &told), Ok(None));
        let now = file.in_force(Some(Err("no topology".to_owned())), None, None);
        let expected = InForce {
            refused: vec!["Network cluster: no topology".to_owned()],
            ..expected
        };
        assert_eq!(now, expected);
    }

    #[test]
    fn the_default_network_keeps_its_transport_whatever_file_and_object_say() {
        let settings = read(FILE);
        let file = file(&settings, FILE);
        let object = "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\n";
        let now = file.in_force(Some(Ok(object.to_owned())), None, Some(&settings));
        assert!(now.settings.network.transport.no_overlay().is_none());
        assert_eq!((now.refused.len(), now.network_stays), (1, true));
    }
}
