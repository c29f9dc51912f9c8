//! The note beside frr.conf: what was loaded, and into which daemons.
//! In: a line. Out: a value. Invariant: a line of another form is no note. Not here: where it lies (`frr-edge`).

/// What FRR holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) running: String,
    pub(super) daemons: String,
}

impl Note {
    pub(super) fn lift(line: &str) -> Option<Self> {
        let mut words = line.trim_end().splitn(3, ' ').map(str::to_owned);
        Some(Self {
            text: words.next()?,
            running: words.next()?,
            daemons: words.next()?,
        })
    }

    pub(super) fn lower(&self) -> String {
        format!("{} {} {}\n", self.text, self.running, self.daemons)
    }
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
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Note {
            text: "a".to_owned(),
            running: "b".to_owned(),
            daemons: "zebra=1.2.3 bgpd=4.5.6 ".to_owned(),
        };
        assert_eq!(
            Note::lift(&note.lower()).map(|n| n.text),
            Some("a".to_owned())
        );
        assert_eq!(Note::lift("only two"), None);
        assert_eq!(Note::lift(""), None);
    }

    #[test]
    fn daemons_that_started_since_the_note_are_told_by_name() {
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
