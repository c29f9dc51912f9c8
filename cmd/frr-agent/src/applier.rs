//! Brings a text into FRR, and knows whether FRR holds it.
//! In: the text of frr.conf and what it was made from. Out: FRR runs it, or why not and when to try again.
//! Invariant: what FRR holds already is not loaded again, also after a restart of the agent; a text that failed is tried again
//! after a growing time, a changed one at once; the last good file stays on any failure, and FRR runs it meanwhile, also one
//! that has started anew.
//! Not here: what the text says (`frr`), the tool (`frr-edge`).
//!
//! The note beside frr.conf says what was loaded: digest of the text, of what FRR ran afterwards, identity of its daemons.
//! A daemon that starts anew, or is reconfigured by hand, no longer matches its note.

use std::time::Duration;

use frr::config::NodeConfig;
use frr_edge::{CheckError, Frr, Refusal, ReloadError, refusal};
use model::{NodeName, hash};
use telemetry::Chain;
use tokio::time::Instant;

use crate::metrics::Metrics;

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(300);

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// FRR runs the text.
    Holds,
    /// It does not, for this reason. `None`: only another text or another FRR can help.
    Failed {
        why: String,
        again: Option<Duration>,
    },
}

/// What FRR holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    text: String,
    running: String,
    daemons: String,
}

impl Note {
    fn lift(line: &str) -> Option<Self> {
        let mut words = line.trim_end().splitn(3, ' ').map(str::to_owned);
        Some(Self {
            text: words.next()?,
            running: words.next()?,
            daemons: words.next()?,
        })
    }

    fn lower(&self) -> String {
        format!("{} {} {}\n", self.text, self.running, self.daemons)
    }
}

/// A text that FRR did not take.
#[derive(Debug)]
struct Failure {
    text: String,
    daemons: String,
    why: String,
    delay: Duration,
    /// Not to be tried again before; `None`: not at all.
    until: Option<Instant>,
}

impl Failure {
    fn is(&self, text: &str, daemons: &str) -> bool {
        self.text == text && self.daemons == daemons
    }

    /// What is to be said as long as it is not to be tried again.
    fn stands(&self) -> Option<Outcome> {
        let again = match self.until {
            None => None,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                Some((!left.is_zero()).then_some(left)?)
            }
        };
        Some(Outcome::Failed {
            why: self.why.clone(),
            again,
        })
    }
}

/// Applies texts to one FRR.
pub(crate) struct Applier {
    frr: Frr,
    metrics: Metrics,
    node: NodeName,
    /// A text that did not take frr.conf's place.
    unplaced: Option<Failure>,
    /// frr.conf, which did not load whole.
    unloaded: Option<Failure>,
}

impl Applier {
    pub(crate) fn new(frr: Frr, metrics: Metrics, node: NodeName) -> Self {
        Self {
            frr,
            metrics,
            node,
            unplaced: None,
            unloaded: None,
        }
    }

    /// Brings FRR to run the text; where it cannot be, to run the last good one.
    pub(crate) async fn apply(&mut self, text: &str, config: &NodeConfig) -> Outcome {
        let digest = hash::short(text);
        let daemons = self.frr.daemons();
        if let Some(outcome) = self.away().await {
            return outcome;
        }
        let known = self.unplaced.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(outcome) = known.and_then(Failure::stands) {
            return self.and_restore(outcome).await;
        }
        let failed = self.unloaded.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(failed) = failed {
            if let Some(outcome) = failed.stands() {
                return outcome;
            }
        } else if self.holds(&digest, &daemons).await {
            (self.unplaced, self.unloaded) = (None, None);
            return Outcome::Holds;
        }
        if let Err(error) = self.frr.prepare(text).await {
            let (why, hopeless) = match error {
                CheckError::Unknown(lines) => (
                    format!(
                        "FRR does not know {}; the last good configuration stays",
                        blamed(config, &lines)
                    ),
                    true,
                ),
                CheckError::File(_) | CheckError::Program(_) => (Chain(&error).to_string(), false),
            };
            let outcome = remember(&mut self.unplaced, digest, daemons, why, hopeless);
            return self.and_restore(outcome).await;
        }
        self.unplaced = None;
        self.load(digest, daemons, config).await
    }

    /// Without a text to go by: FRR gets, and keeps, the last good file. `None` where nothing was ever loaded.
    pub(crate) async fn restore(&mut self) -> Option<Outcome> {
        let text = self.frr.config()?;
        self.note()?;
        if let Some(outcome) = self.away().await {
            return Some(outcome);
        }
        let digest = hash::short(&text);
        let daemons = self.frr.daemons();
        let failed = self.unloaded.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(failed) = failed {
            if let Some(outcome) = failed.stands() {
                return Some(outcome);
            }
        } else if self.holds(&digest, &daemons).await {
            self.unloaded = None;
            return Some(Outcome::Holds);
        }
        tracing::warn!("FRR does not run the last good configuration: loading it");
        let nothing = NodeConfig::empty(self.node.clone(), String::new());
        Some(self.load(digest, daemons, &nothing).await)
    }

    /// A failure of the wanted text, while the last good one is looked after.
    async fn and_restore(&mut self, outcome: Outcome) -> Outcome {
        match (outcome, self.restore().await) {
            (
                Outcome::Failed { why, again },
                Some(Outcome::Failed {
                    why: more,
                    again: sooner,
                }),
            ) => Outcome::Failed {
                why: format!("{why}; nor does the last good one load: {more}"),
                again: match (again, sooner) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
            },
            (outcome, _) => outcome,
        }
    }

    /// What is to be said of an FRR that does not run.
    async fn away(&self) -> Option<Outcome> {
        if self.frr.runs("bgpd").await && self.frr.runs("zebra").await {
            return None;
        }
        // Whoever follows the sockets tells when it runs again.
        Some(Outcome::Failed {
            why: "FRR does not run: zebra or bgpd does not listen on its vty socket".to_owned(),
            again: None,
        })
    }

    async fn load(&mut self, digest: String, daemons: String, config: &NodeConfig) -> Outcome {
        let timer = self.metrics.reload_seconds.start_timer();
        let fresh = self.note().map(|note| fresh(&note.daemons, &daemons));
        let filled = self.frr.fill(&fresh.unwrap_or_default()).await;
        let outcome = match filled {
            Ok(()) => self.frr.reload().await,
            Err(error) => Err(ReloadError::Program(error)),
        };
        let seconds = timer.stop_and_record();
        match outcome {
            Ok(()) => {
                tracing::info!(seconds, "FRR loaded its configuration");
                self.metrics.reloads.with_label_values(&["success"]).inc();
                self.unloaded = None;
                self.write_note(digest, daemons).await;
                self.metrics.held_since(self.frr.loaded_at());
                Outcome::Holds
            }
            Err(error) => {
                self.metrics.reloads.with_label_values(&["failure"]).inc();
                let why = match &error {
                    ReloadError::Refused(lines) => format!(
                        "FRR refused {}; everything else is applied",
                        blamed(config, lines)
                    ),
                    ReloadError::Program(_) => Chain(&error).to_string(),
                };
                remember(&mut self.unloaded, digest, daemons, why, false)
            }
        }
    }

    async fn write_note(&self, text: String, daemons: String) {
        let noted = match self.frr.running_digest().await {
            Ok(running) => {
                let note = Note {
                    text,
                    running,
                    daemons,
                };
                self.frr
                    .note_loaded(note.lower())
                    .await
                    .map_err(|e| Chain(&e).to_string())
            }
            Err(error) => Err(Chain(&error).to_string()),
        };
        if let Err(error) = noted {
            tracing::warn!(
                error,
                "cannot note what was loaded; it will be loaded once more"
            );
        }
    }

    fn note(&self) -> Option<Note> {
        Note::lift(&self.frr.loaded()?)
    }

    /// Whether these daemons run the text, as frr.conf and the note say.
    async fn holds(&self, text: &str, daemons: &str) -> bool {
        let Some(note) = self.note() else {
            return false;
        };
        if note.text != text || note.daemons != daemons {
            return false;
        }
        // A text that failed after it may lie there.
        if self.frr.config().is_none_or(|t| hash::short(&t) != text) {
            return false;
        }
        match self.frr.running_digest().await {
            Ok(running) if running != note.running => {
                tracing::warn!(
                    "FRR runs something else than was loaded: somebody reconfigured it, putting it back"
                );
                self.metrics.mended.inc();
                false
            }
            Ok(_) => {
                self.metrics.held_since(self.frr.loaded_at());
                true
            }
            Err(error) => {
                // A daemon that does not answer would not take a configuration either.
                tracing::warn!(error = %Chain(&error), "cannot read what FRR runs");
                true
            }
        }
    }
}

/// Names of the daemons that are not those that were noted: they have started since.
fn fresh<'a>(noted: &str, now: &'a str) -> Vec<&'a str> {
    let noted: Vec<&str> = noted.split(' ').collect();
    let started = now.split(' ').filter(|daemon| !noted.contains(daemon));
    started
        .filter_map(|daemon| daemon.split('=').next())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Remembers a failure; told once for each reason.
fn remember(
    slot: &mut Option<Failure>,
    text: String,
    daemons: String,
    why: String,
    hopeless: bool,
) -> Outcome {
    let before = slot.take().filter(|f| f.is(&text, &daemons));
    if before.as_ref().is_none_or(|f| f.why != why) {
        tracing::error!("FRR did not take its configuration: {why}");
    }
    let delay = before.map_or(RETRY_FIRST, |f| (f.delay * 2).min(RETRY_MOST));
    let again = (!hopeless).then_some(delay);
    *slot = Some(Failure {
        text,
        daemons,
        why: why.clone(),
        delay,
        until: again.map(|delay| Instant::now() + delay),
    });
    Outcome::Failed { why, again }
}

/// Refused lines with the objects that brought them.
fn blamed(config: &NodeConfig, lines: &[Refusal]) -> String {
    let mut text = refusal::list(lines);
    let objects: std::collections::BTreeSet<String> = lines
        .iter()
        .flat_map(|refusal| frr::blame(config, &refusal.line))
        .map(|key| key.to_string())
        .collect();
    if !objects.is_empty() {
        let names: Vec<String> = objects.into_iter().collect();
        text.push_str(&format!(" (from FRRConfiguration {})", names.join(", ")));
    }
    text
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
