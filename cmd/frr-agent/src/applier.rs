//! Brings a text into FRR, and knows whether FRR holds it.
//! In: the text of frr.conf and what it was made from. Out: FRR runs it, or why not and when to try again.
//! Invariant: what FRR holds already is not loaded again, also after a restart of the agent; a text that failed is tried again
//! after a growing time, a changed one at once; the last good file stays on any failure.
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
    instance: String,
}

impl Note {
    fn lift(line: &str) -> Option<Self> {
        let mut words = line.trim_end().splitn(3, ' ').map(str::to_owned);
        Some(Self {
            text: words.next()?,
            running: words.next()?,
            instance: words.next()?,
        })
    }

    fn lower(&self) -> String {
        format!("{} {} {}\n", self.text, self.running, self.instance)
    }
}

/// A text that FRR did not take.
#[derive(Debug)]
struct Failure {
    text: String,
    instance: String,
    why: String,
    delay: Duration,
    /// Not to be tried again before; `None`: not at all.
    until: Option<Instant>,
}

/// Applies texts to one FRR.
pub(crate) struct Applier {
    frr: Frr,
    metrics: Metrics,
    failure: Option<Failure>,
}

impl Applier {
    pub(crate) fn new(frr: Frr, metrics: Metrics) -> Self {
        Self {
            frr,
            metrics,
            failure: None,
        }
    }

    /// Brings FRR to run the text.
    pub(crate) async fn apply(&mut self, text: &str, config: &NodeConfig) -> Outcome {
        let digest = hash::short(text);
        let instance = self.frr.instance();
        if !(self.frr.runs("bgpd") && self.frr.runs("zebra")) {
            // Whoever follows the sockets tells when it runs again.
            return Outcome::Failed {
                why: "FRR does not run: zebra or bgpd does not listen on its vty socket".to_owned(),
                again: None,
            };
        }
        if let Some(failure) = &self.failure
            && failure.text == digest
            && failure.instance == instance
        {
            let now = Instant::now();
            if let Some(left) = failure.until.map(|u| u.saturating_duration_since(now)) {
                if !left.is_zero() {
                    return Outcome::Failed {
                        why: failure.why.clone(),
                        again: Some(left),
                    };
                }
            } else {
                return Outcome::Failed {
                    why: failure.why.clone(),
                    again: None,
                };
            }
        } else if self.failure.is_none() && self.holds(&digest, &instance).await {
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
            return self.failed(digest, instance, why, hopeless);
        }
        self.load(digest, instance, config).await
    }

    /// Without objects to go by (no API server yet): a FRR that has started anew gets the last good file.
    pub(crate) async fn restore(&mut self, node: &NodeName) {
        let (Some(text), Some(note)) = (self.frr.config(), self.note()) else {
            return;
        };
        let digest = hash::short(&text);
        let instance = self.frr.instance();
        let runs = self.frr.runs("bgpd") && self.frr.runs("zebra");
        if runs && note.text == digest && note.instance != instance {
            tracing::warn!(
                "FRR has started anew and the API server does not answer: loading the last good configuration"
            );
            let nothing = NodeConfig::empty(node.clone(), String::new());
            self.load(digest, instance, &nothing).await;
        }
    }

    async fn load(&mut self, digest: String, instance: String, config: &NodeConfig) -> Outcome {
        let timer = self.metrics.reload_seconds.start_timer();
        let outcome = self.frr.reload().await;
        let seconds = timer.stop_and_record();
        match outcome {
            Ok(()) => {
                tracing::info!(seconds, "FRR loaded its configuration");
                self.metrics.reloads.with_label_values(&["success"]).inc();
                self.failure = None;
                self.write_note(digest, instance).await;
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
                self.failed(digest, instance, why, false)
            }
        }
    }

    async fn write_note(&self, text: String, instance: String) {
        let noted = match self.frr.running_digest().await {
            Ok(running) => {
                let note = Note {
                    text,
                    running,
                    instance,
                };
                self.frr
                    .note_loaded(&note.lower())
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

    async fn holds(&self, text: &str, instance: &str) -> bool {
        let Some(note) = self.note() else {
            return false;
        };
        if note.text != text || note.instance != instance {
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

    /// Remembers a failure; told once for each reason.
    fn failed(&mut self, text: String, instance: String, why: String, hopeless: bool) -> Outcome {
        let before = self
            .failure
            .take()
            .filter(|f| f.text == text && f.instance == instance);
        if before.as_ref().is_none_or(|f| f.why != why) {
            tracing::error!("FRR did not take its configuration: {why}");
        }
        let delay = before.map_or(RETRY_FIRST, |f| (f.delay * 2).min(RETRY_MOST));
        let again = (!hopeless).then_some(delay);
        self.failure = Some(Failure {
            text,
            instance,
            why: why.clone(),
            delay,
            until: again.map(|delay| Instant::now() + delay),
        });
        Outcome::Failed { why, again }
    }
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
            instance: "zebra=1.2.3 bgpd=4.5.6 ".to_owned(),
        };
        assert_eq!(
            Note::lift(&note.lower()).map(|n| n.text),
            Some("a".to_owned())
        );
        assert_eq!(Note::lift("only two"), None);
        assert_eq!(Note::lift(""), None);
    }
}
