//! The note beside frr.conf: what was loaded, and into which daemons.
//! In: a line. Out: a value, and how what runs compares with it. Invariant: a line of another form is no note; a daemon that
//! cannot be asked is neither the same nor another. Not here: where it lies (`frr-edge`).

use std::collections::BTreeMap;

use frr_edge::show::Running;

/// What FRR holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    /// As written by [`encode_running`].
    pub(super) running: String,
    pub(super) daemons: String,
}

impl Note {
    pub(super) fn decode(line: &str) -> Option<Self> {
        let mut words = line.trim_end().splitn(3, ' ').map(str::to_owned);
        Some(Self {
            text: words.next()?,
            running: words.next()?,
            daemons: words.next()?,
        })
    }

    pub(super) fn encode(&self) -> String {
        format!("{} {} {}\n", self.text, self.running, self.daemons)
    }

    /// Names of the daemons that answer, or are gone, and do not run what was loaded. `None`: the note is an older agent's,
    /// which had one digest for all.
    pub(super) fn others<'a>(&'a self, running: &'a Running) -> Option<Vec<&'a str>> {
        let noted: Option<BTreeMap<&str, &str>> =
            self.running.split(',').map(|d| d.split_once('=')).collect();
        let noted = noted?;
        let now = running.digests.iter();
        let changed = now
            .filter(|(daemon, digest)| noted.get(daemon.as_str()) != Some(&digest.as_str()))
            .map(|(daemon, _)| daemon.as_str());
        let gone = noted.keys().copied().filter(|daemon| {
            !running.digests.contains_key(*daemon) && !running.silent.contains_key(*daemon)
        });
        Some(changed.chain(gone).collect())
    }
}

/// Daemons with their digests, as one word.
pub(super) fn encode_running(digests: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = digests.iter().map(|(d, h)| format!("{d}={h}")).collect();
    words.join(",")
}

/// Names of the daemons that are not those that were noted: they have started since.
pub(super) fn fresh<'a>(noted: &str, now: &'a str) -> Vec<&'a str> {
    let noted: Vec<&str> = noted.split(' ').collect();
    let started = now.split(' ').filter(|daemon| !noted.contains(daemon));
    started
        .filter_map(|daemon| daemon.split('=').next())
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use frr_edge::vty::VtyError;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Note {
            text: "a".to_owned(),
            running: "b".to_owned(),
            daemons: "zebra=1.2.3 bgpd=4.5.6 ".to_owned(),
        };
        assert_eq!(
            Note::decode(&note.encode()).map(|n| n.text),
            Some("a".to_owned())
        );
        assert_eq!(Note::decode("only two"), None);
        assert_eq!(Note::decode(""), None);
    }

    #[test]
    fn daemons_are_settled_each_by_itself_and_those_that_cannot_be_asked_not_at_all() {
        type Digests = [(&'static str, &'static str)];
        type Names = [&'static str];
        let digests = |all: &Digests| -> BTreeMap<String, String> {
            let owned = |(d, h): &(&str, &str)| ((*d).to_owned(), (*h).to_owned());
            all.iter().map(owned).collect()
        };
        let note = |running: String| Note {
            text: "a".to_owned(),
            running,
            daemons: String::new(),
        };
        let noted = note(encode_running(&digests(&[("bgpd", "b"), ("zebra", "z")])));
        let rows: [(&Digests, &Names, &Names); 6] = [
            (&[("bgpd", "b"), ("zebra", "z")], &[], &[]),
            (&[("bgpd", "x"), ("zebra", "z")], &[], &["bgpd"]),
            (&[("zebra", "z")], &["bgpd"], &[]),
            (&[("zebra", "x")], &["bgpd"], &["zebra"]),
            (&[("zebra", "z")], &[], &["bgpd"]),
            (
                &[("bfdd", "f"), ("bgpd", "b"), ("zebra", "z")],
                &[],
                &["bfdd"],
            ),
        ];
        for (answers, silent, wanted) in rows {
            let silent = silent.iter().map(|daemon| {
                let daemon = (*daemon).to_owned();
                (daemon.clone(), VtyError::Deadline { daemon })
            });
            let running = Running {
                digests: digests(answers),
                silent: silent.collect(),
            };
            assert_eq!(
                noted.others(&running).as_deref(),
                Some(wanted),
                "{running:?}"
            );
        }
        assert_eq!(
            note("olddigest".to_owned()).others(&Running::default()),
            None
        );
    }

    #[test]
    fn daemons_that_started_since_the_note_are_reported_by_name() {
        let noted = "zebra=1.5.0 bgpd=2.5.0 staticd=3.5.0";
        assert_eq!(fresh(noted, noted), [""; 0]);
        assert_eq!(
            fresh(noted, "zebra=1.5.0 bgpd=2.6.0 bfdd=4.6.0"),
            ["bgpd", "bfdd"]
        );
        assert_eq!(fresh("", "zebra=1.5.0"), ["zebra"]);
        assert_eq!(fresh(noted, ""), [""; 0]);
    }
}
